// SPDX-License-Identifier: Apache-2.0
// my-plugin: a copy of the model on every replica; all gradients are summed at the end of the step.
#include "core/plugin/strategy.h"

// The state of an instance. One instance serves all replicas of a process, so state for each replica
// would be an array here.
struct ls_strategy {
    const struct ls_strategy_host *host;
};

// `strategy` is zeroed memory of `state_bytes`; the host frees it. What open takes beside it, close gives back.
static int32_t open_strategy(const struct ls_strategy_host *host, struct ls_strategy *strategy)
{
    strategy->host = host;
    return LS_OK;
}

// Before the first step: every replica gets the parameters of rank 0.
static int32_t initialize_parameters(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    return host->collectives->broadcast_parameters(host, replica, 0);
}

// Backward has finished a bucket. Starting its all-reduce here would hide the time under the rest of
// backward.
static int32_t gradient_ready(struct ls_strategy *strategy, uint32_t replica, uint32_t bucket)
{
    (void)strategy, (void)replica, (void)bucket;
    return LS_OK;
}

// Sums every bucket over all ranks, then updates. Passes on the status of every host call.
static int32_t end_step(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    int32_t status = LS_OK;
    for (uint32_t bucket = 0; !status && bucket < host->bucket_count; bucket++)
        status = host->collectives->all_reduce_start(host, replica, bucket);
    for (uint32_t bucket = 0; !status && bucket < host->bucket_count; bucket++)
        status = host->collectives->all_reduce_wait(host, replica, bucket);
    if (!status) // stops all replicas if the loss is not finite
        status = host->step->check_step(host, replica);
    for (uint32_t bucket = 0; !status && bucket < host->bucket_count; bucket++)
        status = host->step->update(host, replica, bucket);
    return status;
}

static const struct ls_strategy_interface interface = {
    .struct_size = sizeof(struct ls_strategy_interface),
    .state_bytes = sizeof(struct ls_strategy),
    .traits = {.struct_size = sizeof(struct ls_strategy_traits),
               .divisor = LS_DIVISOR_GLOBAL, // gradients are means over the global batch
               .equality = LS_EQUAL_EVERY_STEP},
    .needs_collective = 1,
    .open = open_strategy,
    .initialize_parameters = initialize_parameters,
    .gradient_ready = gradient_ready,
    .end_step = end_step,
};

static const struct ls_plugin_option options[] = {
    {"collective", "text", "ring", "how gradients are summed: the name of a collective"},
    {"transport", "text", "local", "how bytes travel between replicas: the name of a transport"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_STRATEGY),
    .name = "my-plugin",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "copies of the model, summed at the end of the step",
    .options = options,
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
