// SPDX-License-Identifier: Apache-2.0
// local-sgd: every replica trains weights of its own, and every H steps they become their mean. It
// is DiLoCo (plugins/strategy/diloco) with one fragment, outer rate 1 and no momentum.
#include "plugins/strategy/diloco/hooks.h"

static int32_t local_sgd_open(const struct ls_strategy_host *host, struct ls_strategy *strategy)
{
    const double steps = ls_host_number(host->host, "steps");
    if (steps < 1)
        return ls_host_fail(host->host, LS_USAGE, "steps=%.0f: must be at least 1", steps);
    strategy->period = (uint64_t)steps;
    strategy->fragments = 1;
    strategy->rate = 1;
    return diloco_open_with(host, strategy);
}

static const struct ls_strategy_interface interface = {DILOCO_TABLE(local_sgd_open)};

static const struct ls_plugin_option options[] = {
    {"steps", "integer", "50", "steps of each replica between two means of their weights"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_STRATEGY),
    .name = "local-sgd",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "weights of its own on every replica, which become their mean every so many steps",
    .options = options,
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
