// SPDX-License-Identifier: Apache-2.0
// mirrored: every replica of this process holds all variables. Gradients are summed by a collective,
// bucket by bucket while backward still runs; then each replica makes the same update.
#include "core/plugin/strategy.h"

struct ls_strategy {
    const struct ls_strategy_host *host;
};

static int32_t mirrored_open(const struct ls_strategy_host *host, struct ls_strategy **out)
{
    struct ls_strategy *strategy =
        (struct ls_strategy *)host->host->allocate(host->host, sizeof(*strategy), sizeof(void *));
    if (!strategy)
        return LS_OUT_OF_MEMORY;
    strategy->host = host;
    *out = strategy;
    return LS_OK;
}

static void mirrored_close(struct ls_strategy *strategy)
{
    if (strategy)
        strategy->host->host->release(strategy->host->host, strategy);
}

static int32_t mirrored_place(struct ls_strategy *strategy, uint32_t replica)
{
    return strategy->host->broadcast_parameters(strategy->host, replica, 0);
}

static int32_t mirrored_gradient_ready(struct ls_strategy *strategy, uint32_t replica,
                                       uint32_t bucket)
{
    return strategy->host->all_reduce_start(strategy->host, replica, bucket);
}

// The sums travel in bucket 0, so the decision can be made before the first update.
static int32_t mirrored_end_step(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    int32_t status = LS_OK;
    for (uint32_t bucket = 0; !status && bucket < host->bucket_count; bucket++) {
        status = host->all_reduce_wait(host, replica, bucket);
        if (!status && bucket == 0)
            status = host->decide(host, replica);
        if (!status)
            status = host->update(host, replica, bucket);
    }
    return status;
}

// All that a step asks of the host is put on the device's stream.
static void mirrored_traits(struct ls_strategy *strategy, struct ls_strategy_traits *out)
{
    (void)strategy;
    if (LS_HAS(out, capturable))
        out->capturable = 1;
}

static const struct ls_strategy_interface interface = {
    .struct_size = sizeof(interface),
    .divisor = LS_DIVISOR_GLOBAL,
    .equality = LS_EQUAL_EVERY_STEP,
    .needs_collective = 1,
    .open = mirrored_open,
    .close = mirrored_close,
    .place = mirrored_place,
    .gradient_ready = mirrored_gradient_ready,
    .end_step = mirrored_end_step,
    .traits = mirrored_traits,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_STRATEGY),
    .name = "mirrored",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "a copy of all variables on every replica of this process, gradients summed by a "
               "collective",
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void);
LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
