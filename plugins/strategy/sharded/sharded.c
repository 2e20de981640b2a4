// SPDX-License-Identifier: Apache-2.0
// Each rank keeps the optimizer's states of its part of every bucket alone (ZeRO, stage 1), and its
// part of the gradients (stage 2) and of the parameters (stage 3):
//
//   parameters_ahead  stage 3: all-gather of a bucket begins, when the bucket that was in its place
//   parameters_needed   was read for the last time; it is there
//   gradient_ready    reduce-scatter of the bucket: each rank gets the sums of its own part
//   gradient_finish   stage 2: has ended, as the next bucket but one is written in the same place
//   end_step          each rank updates its part; stages 1 and 2: all-gather of the new parameters
//
// That sends what an all-reduce does, 2 (world - 1) / world of the parameters; stage 3 sends up to
// half of it again, for backward. With Adam a replica has 8 + 8 / world bytes a parameter in place
// of 16, in stage 2 4 + 12 / world and two buckets, in stage 3 16 / world and four. Parts are the
// chunks into which `mirrored` has its all-reduce cut: bucket 0 with the sums of the step in front.
// (Rajbhandari, Rasley, Ruwase, He: ZeRO: Memory optimizations toward training trillion parameter
// models, 2020.)
#include "core/plugin/strategy.h"

// Of one replica and bucket.
struct shard {
    struct ls_placed_range part; // of this rank
    struct ls_strategy_collective *scatter, *gather;
    uint32_t scattering, gathering;
};

struct ls_strategy {
    const struct ls_strategy_host *host;
    struct ls_strategy_collective **sums; // one a replica
    struct shard *shards; // replica * buckets + bucket
    uint32_t late;
    uint32_t stage;
};

// Buckets of frozen parameters are behind the others. They are gathered, and that is all.
static uint32_t all_buckets(const struct ls_strategy_host *host)
{
    return host->bucket_count + host->frozen_buckets;
}

static struct shard *shard_of(struct ls_strategy *strategy, uint32_t replica, uint32_t bucket)
{
    return &strategy->shards[replica * all_buckets(strategy->host) + bucket];
}

// The chunk that reduce-scatter leaves at a rank. The sums are within that of rank 0.
static struct ls_placed_range part_of(const struct ls_strategy_host *host, uint32_t rank,
                                      uint32_t bucket)
{
    const uint64_t sums = bucket == 0 ? LS_STRATEGY_SUMS : 0;
    uint64_t first, count;
    host->layout->bucket_range(host, bucket, &first, &count);
    const struct ls_range part = ls_part(ls_data_range(0, sums + count), rank, host->world);
    const uint64_t begin = part.offset > sums ? part.offset : sums;
    const uint64_t end = part.offset + part.count > begin ? part.offset + part.count : begin;
    const struct ls_placed_range out = {first + begin - sums, end - begin};
    return out;
}

static int32_t sharded_open(const struct ls_strategy_host *host, struct ls_strategy *strategy)
{
    const uint64_t count = (uint64_t)host->replicas * all_buckets(host);
    strategy->stage = (uint32_t)ls_host_number(host->host, "stage");
    strategy->host = host;
    strategy->late = (uint32_t)ls_host_is_on(host->host, "late");
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
    out->states = part_of(strategy->host, rank, bucket);
    if (strategy->stage >= 2)
        out->gradients = out->states;
    if (strategy->stage == 3)
        out->parameters = out->states;
}

// `longer`: the memory in which bucket 0 has the sums in front.
static int32_t prepare_bucket(struct ls_strategy *strategy, uint32_t replica, uint32_t operation,
                              uint32_t memory, uint32_t longer, uint32_t bucket,
                              struct ls_strategy_collective **out)
{
    const struct ls_strategy_host *host = strategy->host;
    struct ls_strategy_operation range = {.struct_size = sizeof(range),
                                          .operation = operation,
                                          .memory = bucket == 0 ? longer : memory};
    host->layout->bucket_range(host, bucket, &range.first, &range.count);
    if (bucket == 0)
        range.count += LS_STRATEGY_SUMS;
    return host->collectives->prepare(host, replica, &range, out);
}

// Rank 0 gets the sums of the step with its part of bucket 0; all ranks need them.
static int32_t prepare_sums(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    const struct ls_strategy_operation range = {.struct_size = sizeof(range),
                                                .operation = LS_BROADCAST,
                                                .memory = LS_REPLICA_SUMS,
                                                .count = LS_STRATEGY_SUMS};
    return host->collectives->prepare(host, replica, &range, &strategy->sums[replica]);
}

static int32_t sharded_initialize(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    // Where nobody has all parameters, each rank was given its parts of the same ones.
    int32_t status =
        strategy->stage == 3 ? LS_OK : host->collectives->broadcast_parameters(host, replica, 0);
    if (!status)
        status = prepare_sums(strategy, replica);
    const uint32_t gathered = strategy->stage == 3 ? all_buckets(host) : host->bucket_count;
    for (uint32_t bucket = 0; !status && bucket < gathered; bucket++) {
        struct shard *shard = shard_of(strategy, replica, bucket);
        shard->part = part_of(host, host->first_rank + replica, bucket);
        shard->scattering = shard->gathering = 0;
        if (bucket < host->bucket_count)
            status = prepare_bucket(strategy, replica, LS_REDUCE_SCATTER, LS_REPLICA_GRADIENTS,
                                    LS_REPLICA_SUMS_AND_GRADIENTS, bucket, &shard->scatter);
        if (!status)
            status = prepare_bucket(strategy, replica, LS_ALL_GATHER, LS_REPLICA_PARAMETERS,
                                    LS_REPLICA_ROOM_AND_PARAMETERS, bucket, &shard->gather);
    }
    return status;
}

static int32_t sharded_gradient_ready(struct ls_strategy *strategy, uint32_t replica,
                                      uint32_t bucket)
{
    const struct ls_strategy_host *host = strategy->host;
    struct shard *shard = shard_of(strategy, replica, bucket);
    const int32_t status = host->collectives->start(host, replica, shard->scatter);
    shard->scattering = !status;
    return status;
}

static int32_t sharded_gradient_finish(struct ls_strategy *strategy, uint32_t replica,
                                       uint32_t bucket)
{
    const struct ls_strategy_host *host = strategy->host;
    struct shard *shard = shard_of(strategy, replica, bucket);
    if (!shard->scattering)
        return LS_OK;
    shard->scattering = 0;
    return host->collectives->wait(host, replica, shard->scatter);
}

static int32_t start_gather(struct ls_strategy *strategy, uint32_t replica, uint32_t bucket)
{
    const struct ls_strategy_host *host = strategy->host;
    struct shard *shard = shard_of(strategy, replica, bucket);
    const int32_t status = host->collectives->start(host, replica, shard->gather);
    shard->gathering = !status;
    return status;
}

static int32_t need(struct ls_strategy *strategy, uint32_t replica, uint32_t bucket)
{
    const struct ls_strategy_host *host = strategy->host;
    struct shard *shard = shard_of(strategy, replica, bucket);
    if (!shard->gathering && strategy->stage < 3)
        return LS_OK;
    const int32_t status = shard->gathering ? LS_OK : start_gather(strategy, replica, bucket);
    shard->gathering = 0;
    return status ? status : host->collectives->wait(host, replica, shard->gather);
}

static int32_t sharded_parameters_ahead(struct ls_strategy *strategy, uint32_t replica,
                                        uint32_t bucket)
{
    return strategy->stage == 3 ? start_gather(strategy, replica, bucket) : LS_OK;
}

static int32_t need_all(struct ls_strategy *strategy, uint32_t replica)
{
    int32_t status = LS_OK;
    if (strategy->stage == 3) // each pass gathers for itself
        return LS_OK;
    for (uint32_t bucket = 0; !status && bucket < strategy->host->bucket_count; bucket++)
        status = need(strategy, replica, bucket);
    return status;
}

static int32_t check_sums(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    int32_t status = host->collectives->start(host, replica, strategy->sums[replica]);
    if (!status)
        status = host->collectives->wait(host, replica, strategy->sums[replica]);
    return status ? status : host->step->check_step(host, replica);
}

static int32_t sharded_end_step(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    const uint32_t at_the_end = host->norms & LS_NORM_OF_ALL; // the last call updates all parts
    int32_t status = LS_OK;
    for (uint32_t bucket = 0; !status && bucket < host->bucket_count; bucket++) {
        const struct shard *shard = shard_of(strategy, replica, bucket);
        status = sharded_gradient_finish(strategy, replica, bucket);
        if (!status && bucket == 0)
            status = check_sums(strategy, replica);
        if (!status)
            status = host->step->update_range(host, replica, shard->part.first, shard->part.count);
        if (!status && !at_the_end && strategy->stage < 3)
            status = start_gather(strategy, replica, bucket);
    }
    for (uint32_t bucket = 0;
         !status && at_the_end && strategy->stage < 3 && bucket < host->bucket_count; bucket++)
        status = start_gather(strategy, replica, bucket);
    return status || strategy->late ? status : need_all(strategy, replica);
}

static const struct ls_strategy_interface interface = {
    .struct_size = sizeof(interface),
    .state_bytes = sizeof(struct ls_strategy),
    .traits = {.struct_size = sizeof(interface.traits),
               .divisor = LS_DIVISOR_GLOBAL,
               .equality = LS_EQUAL_EVERY_STEP},
    .needs_collective = 1,
    .norms = LS_NORM_OF_ALL,
    .open = sharded_open,
    .close = sharded_close,
    .placement = sharded_placement,
    .initialize_parameters = sharded_initialize,
    .parameters_needed = need,
    .gradient_ready = sharded_gradient_ready,
    .end_step = sharded_end_step,
    .synchronise = need_all,
    .gradient_finish = sharded_gradient_finish,
    .parameters_ahead = sharded_parameters_ahead,
};

static const struct ls_plugin_option options[] = {
    {"stage", "one of: 1, 2, 3", "1",
     "what each replica holds a part of; 1: the optimizer's states; 2: gradients, too; 3: "
     "parameters, too"},
    {LS_BUCKET_OPTION, "integer", NULL,
     "the most bytes of a bucket, of which stages 2 and 3 have places beside the parts; 26214400 "
     "if not given"},
    {"late", "boolean", "off", "waits for new parameters only when forward reads them"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_STRATEGY),
    .name = "sharded",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary =
        "optimizer's states, gradients and parameters in parts, one on each replica (ZeRO, FSDP)",
    .options = options,
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
