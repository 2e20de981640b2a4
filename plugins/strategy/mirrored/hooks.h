// SPDX-License-Identifier: Apache-2.0
// The hooks of mirrored and multi-worker-mirrored: every replica holds all variables. Gradients are
// summed by a collective, bucket by bucket while backward still runs; then each replica makes the
// same update. To be included once by each plugin.
#ifndef LS_PLUGINS_STRATEGY_MIRRORED_HOOKS_H
#define LS_PLUGINS_STRATEGY_MIRRORED_HOOKS_H

#include "core/plugin/strategy.h"

struct ls_strategy {
    const struct ls_strategy_host *host;
};

static int32_t mirrored_open(const struct ls_strategy_host *host, struct ls_strategy *strategy)
{
    strategy->host = host;
    return LS_OK;
}

static int32_t mirrored_initialize(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    return host->collectives->broadcast_parameters(host, replica, 0);
}

static int32_t mirrored_gradient_ready(struct ls_strategy *strategy, uint32_t replica,
                                       uint32_t bucket)
{
    const struct ls_strategy_host *host = strategy->host;
    return host->collectives->all_reduce_start(host, replica, bucket);
}

// The sums of the step travel in bucket 0, so they can be checked before the first update.
static int32_t mirrored_end_step(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    int32_t status = LS_OK;
    for (uint32_t bucket = 0; !status && bucket < host->bucket_count; bucket++) {
        status = host->collectives->all_reduce_wait(host, replica, bucket);
        if (!status && bucket == 0)
            status = host->step->check_step(host, replica);
        if (!status)
            status = host->step->update(host, replica, bucket);
    }
    return status;
}

// The table of both; `.all_here` follows.
#define MIRRORED_TABLE                                                                            \
    .struct_size = sizeof(struct ls_strategy_interface),                                          \
    .state_bytes = sizeof(struct ls_strategy),                                                    \
    .traits = {.struct_size = sizeof(struct ls_strategy_traits),                                  \
               .divisor = LS_DIVISOR_GLOBAL,                                                      \
               .equality = LS_EQUAL_EVERY_STEP,                                                   \
               .capturable = 1},                                                                  \
    .needs_collective = 1, .norms = LS_NORM_OF_VARIABLES | LS_NORM_OF_ALL, .open = mirrored_open, \
    .initialize_parameters = mirrored_initialize, .gradient_ready = mirrored_gradient_ready,      \
    .end_step = mirrored_end_step

#endif
