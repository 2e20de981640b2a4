// SPDX-License-Identifier: Apache-2.0
// diloco: every replica trains weights of its own; the mean of what they have changed in H steps is
// the gradient of an outer optimizer (hooks.h).
#include "plugins/strategy/diloco/hooks.h"

static int32_t read_outer(const struct ls_strategy_host *host, struct ls_strategy *strategy)
{
    const double rate = ls_host_number(host->host, "outer_learning_rate");
    const double momentum = ls_host_number(host->host, "outer_momentum");
    const double mix = ls_host_number(host->host, "mix");
    if (!(rate > 0))
        return ls_host_fail(host->host, LS_USAGE, "outer_learning_rate=%g: must be more than 0",
                            rate);
    if (!(momentum >= 0 && momentum < 1))
        return ls_host_fail(host->host, LS_USAGE, "outer_momentum=%g: must be from 0 to below 1",
                            momentum);
    if (!(mix >= 0 && mix <= 1))
        return ls_host_fail(host->host, LS_USAGE, "mix=%g: must be from 0 to 1", mix);
    strategy->rate = (float)rate;
    strategy->momentum = (float)momentum;
    strategy->mix = (float)mix;
    return LS_OK;
}

static int32_t diloco_open(const struct ls_strategy_host *host, struct ls_strategy *strategy)
{
    const double steps = ls_host_number(host->host, "steps");
    const double fragments = ls_host_number(host->host, "fragments");
    const double delay = ls_host_number(host->host, "delay");
    if (!(fragments >= 1 && fragments <= MOST_FRAGMENTS))
        return ls_host_fail(host->host, LS_USAGE, "fragments=%.0f: must be from 1 to %u", fragments,
                            MOST_FRAGMENTS);
    if (!(steps >= 1) || (uint64_t)steps % (uint64_t)fragments)
        return ls_host_fail(host->host, LS_USAGE,
                            "steps=%.0f: must be at least 1, and a multiple of fragments=%.0f",
                            steps, fragments);
    strategy->fragments = (uint32_t)fragments;
    strategy->period = (uint64_t)steps / strategy->fragments;
    if (!(delay >= 0 && delay < (double)strategy->period))
        return ls_host_fail(host->host, LS_USAGE,
                            "delay=%.0f: must be from 0 to below steps / fragments, which is %llu",
                            delay, (unsigned long long)strategy->period);
    strategy->delay = (uint64_t)delay;
    const int32_t status = read_outer(host, strategy);
    return status ? status : diloco_open_with(host, strategy);
}

static const struct ls_strategy_interface interface = {DILOCO_TABLE(diloco_open)};

static const struct ls_plugin_option options[] = {
    {"steps", "integer", "50", "steps in which every fragment is sent once"},
    {"outer_learning_rate", "number", "0.7", "rate of the outer optimizer, Nesterov's"},
    {"outer_momentum", "number", "0.9", "its momentum; 0: none"},
    {"fragments", "integer", "1",
     "parts of the model, of which one is sent every steps / fragments steps"},
    {"delay", "integer", "0", "steps that a fragment travels while the replicas go on"},
    {"mix", "number", "0", "how much a replica keeps of its own weights in a round, 0 to 1"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_STRATEGY),
    .name = "diloco",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary =
        "weights of its own on every replica; what they change in many steps is the gradient "
        "of an outer optimizer (DiLoCo)",
    .options = options,
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
