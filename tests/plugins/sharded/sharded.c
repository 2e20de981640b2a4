// SPDX-License-Identifier: Apache-2.0
// strategy-sharded, for tests: mirrored, but each rank keeps the optimizer's state of its part of every bucket only (ZeRO,
// stage 1). Gradients are reduced to their parts, each rank updates its own, and the new parameters are gathered; with late=on
// only when forward of the next step reads them. It proves that the contract is enough for sharding. A placement that is asked
// on another thread than open fails.
#include "core/plugin/strategy.h"

#include <pthread.h>

// Of one replica and bucket.
struct shard {
    struct ls_range part; // of this rank
    struct ls_strategy_collective *scatter, *gather;
    uint32_t gathering;
};

struct ls_strategy {
    const struct ls_strategy_host *host;
    struct ls_strategy_collective **sums; // one a replica
    struct shard *shards; // replica * buckets + bucket
    pthread_t main; // that called open
    uint32_t late;
};

static struct shard *shard_of(struct ls_strategy *strategy, uint32_t replica, uint32_t bucket)
{
    return &strategy->shards[replica * strategy->host->bucket_count + bucket];
}

// The part of a bucket that a rank keeps: the chunk that reduce-scatter leaves there.
static struct ls_range part_of(const struct ls_strategy_host *host, uint32_t rank, uint32_t bucket)
{
    uint64_t first, count;
    host->layout->bucket_range(host, bucket, &first, &count);
    return ls_part(ls_data_range(first, count), rank, host->world);
}

static int32_t sharded_open(const struct ls_strategy_host *host, struct ls_strategy *strategy)
{
    const uint64_t count = (uint64_t)host->replicas * host->bucket_count;
    strategy->host = host;
    strategy->main = pthread_self();
    strategy->late = host->host->option(host->host, "late")[1] == 'n';
    strategy->shards =
        (struct shard *)host->host->allocate(host->host, count * sizeof(struct shard), 8);
    strategy->sums = (struct ls_strategy_collective **)host->host->allocate(
        host->host, host->replicas * sizeof(struct ls_strategy_collective *), 8);
    if (!strategy->shards || !strategy->sums) {
        host->host->release(host->host, strategy->shards);
        host->host->release(host->host, strategy->sums);
        return LS_OUT_OF_MEMORY;
    }
    return LS_OK;
}

static void sharded_close(struct ls_strategy *strategy)
{
    const struct ls_host *host = strategy->host->host;
    host->release(host, strategy->shards);
    host->release(host, strategy->sums);
}

static void sharded_placement(struct ls_strategy *strategy, uint32_t rank, uint32_t bucket,
                              struct ls_strategy_placement *out)
{
    const struct ls_range part = part_of(strategy->host, rank, bucket);
    out->states = (struct ls_placed_range){part.offset, part.count};
    if (!pthread_equal(strategy->main, pthread_self())) // which the host refuses
        out->states = (struct ls_placed_range){UINT64_MAX, 1};
}

static int32_t prepare(struct ls_strategy *strategy, uint32_t replica, uint32_t operation,
                       uint32_t memory, uint32_t bucket, struct ls_strategy_collective **out)
{
    const struct ls_strategy_host *host = strategy->host;
    struct ls_strategy_operation range = {
        .struct_size = sizeof(range), .operation = operation, .memory = memory};
    if (memory == LS_REPLICA_SUMS)
        range.count = LS_STRATEGY_SUMS;
    else
        host->layout->bucket_range(host, bucket, &range.first, &range.count);
    return host->collectives->prepare(host, replica, &range, out);
}

static int32_t sharded_initialize(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    int32_t status = host->collectives->broadcast_parameters(host, replica, 0);
    if (!status)
        status =
            prepare(strategy, replica, LS_ALL_REDUCE, LS_REPLICA_SUMS, 0, &strategy->sums[replica]);
    for (uint32_t bucket = 0; !status && bucket < host->bucket_count; bucket++) {
        struct shard *shard = shard_of(strategy, replica, bucket);
        shard->part = part_of(host, host->first_rank + replica, bucket);
        shard->gathering = 0;
        status = prepare(strategy, replica, LS_REDUCE_SCATTER, LS_REPLICA_GRADIENTS, bucket,
                         &shard->scatter);
        if (!status)
            status = prepare(strategy, replica, LS_ALL_GATHER, LS_REPLICA_PARAMETERS, bucket,
                             &shard->gather);
    }
    return status;
}

static int32_t sharded_gradient_ready(struct ls_strategy *strategy, uint32_t replica,
                                      uint32_t bucket)
{
    const struct ls_strategy_host *host = strategy->host;
    int32_t status = LS_OK;
    if (bucket == 0)
        status = host->collectives->start(host, replica, strategy->sums[replica]);
    if (!status)
        status =
            host->collectives->start(host, replica, shard_of(strategy, replica, bucket)->scatter);
    return status;
}

static int32_t need(struct ls_strategy *strategy, uint32_t replica, uint32_t bucket)
{
    const struct ls_strategy_host *host = strategy->host;
    struct shard *shard = shard_of(strategy, replica, bucket);
    if (!shard->gathering)
        return LS_OK;
    shard->gathering = 0;
    return host->collectives->wait(host, replica, shard->gather);
}

static int32_t need_all(struct ls_strategy *strategy, uint32_t replica)
{
    int32_t status = LS_OK;
    for (uint32_t bucket = 0; !status && bucket < strategy->host->bucket_count; bucket++)
        status = need(strategy, replica, bucket);
    return status;
}

static int32_t sharded_end_step(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    int32_t status = host->collectives->wait(host, replica, strategy->sums[replica]);
    if (!status)
        status = host->step->check_step(host, replica);
    for (uint32_t bucket = 0; !status && bucket < host->bucket_count; bucket++) {
        struct shard *shard = shard_of(strategy, replica, bucket);
        status = host->collectives->wait(host, replica, shard->scatter);
        if (!status)
            status = host->step->update_range(host, replica, shard->part.offset, shard->part.count);
        if (!status)
            status = host->collectives->start(host, replica, shard->gather);
        shard->gathering = !status;
    }
    return status || strategy->late ? status : need_all(strategy, replica);
}

static const struct ls_strategy_interface interface = {
    .struct_size = sizeof(interface),
    .state_bytes = sizeof(struct ls_strategy),
    .traits = {.struct_size = sizeof(interface.traits),
               .divisor = LS_DIVISOR_GLOBAL,
               .equality = LS_EQUAL_EVERY_STEP},
    .needs_collective = 1,
    .open = sharded_open,
    .close = sharded_close,
    .placement = sharded_placement,
    .initialize_parameters = sharded_initialize,
    .parameters_needed = need,
    .gradient_ready = sharded_gradient_ready,
    .end_step = sharded_end_step,
    .synchronise = need_all,
};

static const struct ls_plugin_option options[] = {
    {"collective", "text", "ring", "how gradients are summed: the name of a collective"},
    {"transport", "text", "local", "how bytes travel between replicas: the name of a transport"},
    {"late", "boolean", "off", "gathers parameters only when forward reads them"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_STRATEGY),
    .name = "sharded",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "for tests: mirrored, with the optimizer's state spread over the ranks",
    .options = options,
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
