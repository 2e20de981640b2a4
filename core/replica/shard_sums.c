// SPDX-License-Identifier: Apache-2.0
#include "core/replica/shard_sums.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/replica/buffers.h"
#include "core/replica/integers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct ls_trace_label keep_span = {
    .category = "backward", .name = "keep shard", .value = "block"};
static const struct ls_trace_label add_span = {
    .category = "backward", .name = "add shards", .value = "bucket"};
static const struct ls_trace_label round_span = {
    .category = "backward", .name = "round sums", .value = "bucket"};

// What has an exponent of its own: a variable, or a single sum of the step.
struct part {
    float *values; // where programs write them, and updates read them; or the host's copy
    uint64_t count;
    uint64_t first; // of its integers
};

struct ls_shard_sums {
    uint32_t shards, blocks;
    struct part *parts; // sums of the step, counts of metrics, then variables in their order
    uint32_t part_count, count_part; // the first that a metric counts
    uint32_t *bucket_parts; // bucket_count + 1: the first part of each bucket
    uint64_t count; // of all integers
    bool apart; // the device has memory of its own, or computes beside its thread
    float *reduced, *counts; // of the replica; where the device is apart, the host's copies of them
    struct ls_memory kept; // (blocks, count) float32
    struct ls_memory largest; // (part_count) int32: bits of magnitudes
    struct ls_memory sums; // (count) int64
};

// ---- Life ----

static void add_part(struct ls_shard_sums *sums, float *values, uint64_t count)
{
    sums->parts[sums->part_count++] = (struct part){values, count, sums->count};
    sums->count += count;
}

static void list_parts(const struct ls_replica *replica, struct ls_shard_sums *sums)
{
    float *gradients = sums->reduced + LS_STEP_STATS;
    for (uint32_t i = 0; i < LS_STEP_STATS; i++)
        add_part(sums, sums->reduced + i, 1);
    sums->count_part = sums->part_count;
    for (uint32_t i = 0; i < replica->graph->count_slots; i++)
        add_part(sums, sums->counts + i, 1);
    for (uint32_t i = 0; i < replica->buckets.count; i++) {
        const struct ls_bucket *bucket = &replica->buckets.list[i];
        sums->bucket_parts[i] = i ? sums->part_count : 0;
        for (uint32_t k = 0; k < bucket->place_count; k++) {
            const struct ls_parameter_place *place =
                &replica->plan->places[bucket->first_place + k];
            add_part(sums, gradients + place->offset / sizeof(float), place->bytes / sizeof(float));
        }
    }
    sums->bucket_parts[replica->buckets.count] = sums->part_count;
}

static uint64_t reduced_bytes(const struct ls_replica *replica)
{
    return LS_STEP_STATS_BYTES + replica->plan->reduced_bytes;
}

static uint64_t counts_bytes(const struct ls_replica *replica)
{
    return replica->graph->count_slots * sizeof(float);
}

static enum ls_status find_values(const struct ls_replica *replica, struct ls_shard_sums *sums)
{
    sums->apart =
        !ls_device_in_host_memory(replica->device) || !ls_device_blocking(replica->device);
    sums->reduced = sums->apart ? calloc(1, reduced_bytes(replica)) : ls_address(replica->reduced);
    sums->counts = sums->apart ? calloc(1, counts_bytes(replica) + 1) : ls_address(replica->counts);
    return sums->apart && (!sums->reduced || !sums->counts) ? LS_OUT_OF_MEMORY : LS_OK;
}

static struct ls_memory take(struct ls_replica *replica, uint64_t bytes)
{
    return replica->shard_sums->apart ? ls_host_memory(calloc(1, bytes + 1))
                                      : ls_replica_take_memory(replica, bytes);
}

static void give(struct ls_replica *replica, struct ls_memory memory)
{
    if (replica->shard_sums->apart)
        free(ls_address(memory));
    else
        ls_device_release(replica->device, memory);
}

enum ls_status ls_shard_sums_create(struct ls_replica *replica, uint32_t shards, uint32_t blocks)
{
    struct ls_shard_sums *sums = calloc(1, sizeof(*sums));
    const size_t most =
        (size_t)LS_STEP_STATS + replica->graph->count_slots + replica->plan->reduced_count;
    if (!sums)
        return LS_OUT_OF_MEMORY;
    replica->shard_sums = sums;
    sums->shards = shards;
    sums->blocks = blocks;
    sums->parts = calloc(most, sizeof(*sums->parts));
    sums->bucket_parts = calloc((size_t)replica->buckets.count + 1, sizeof(*sums->bucket_parts));
    if (!sums->parts || !sums->bucket_parts || find_values(replica, sums))
        return LS_OUT_OF_MEMORY;
    list_parts(replica, sums);
    sums->kept = take(replica, sums->count * blocks * sizeof(float));
    sums->largest = take(replica, sums->part_count * sizeof(int32_t));
    sums->sums = take(replica, sums->count * sizeof(int64_t));
    return ls_memory_is_null(sums->kept) || ls_memory_is_null(sums->largest) ||
                   ls_memory_is_null(sums->sums)
               ? LS_OUT_OF_MEMORY
               : LS_OK;
}

void ls_shard_sums_destroy(struct ls_replica *replica)
{
    struct ls_shard_sums *sums = replica->shard_sums;
    if (!sums)
        return;
    give(replica, sums->kept);
    give(replica, sums->largest);
    give(replica, sums->sums);
    if (sums->apart) {
        free(sums->reduced);
        free(sums->counts);
    }
    free(sums->parts);
    free(sums->bucket_parts);
    free(sums);
    replica->shard_sums = NULL;
}

// ---- A step ----

// Whether a metric counts in the part.
static bool is_count(const struct ls_replica *replica, uint32_t part)
{
    const uint32_t first = replica->shard_sums->count_part;
    return part >= first && part - first < replica->graph->count_slots;
}

static enum ls_status copy(const struct ls_replica *replica, struct ls_memory to,
                           struct ls_memory from, uint64_t bytes)
{
    return bytes ? (enum ls_status)ls_device_copy(replica->device, to, from, bytes, NULL) : LS_OK;
}

// What the block has made comes to the host, which waits for it.
static enum ls_status pull(const struct ls_replica *replica)
{
    const struct ls_shard_sums *sums = replica->shard_sums;
    if (!sums->apart)
        return LS_OK;
    const enum ls_status status =
        copy(replica, ls_host_memory(sums->reduced), replica->reduced, reduced_bytes(replica));
    return status ? status
                  : copy(replica, ls_host_memory(sums->counts), replica->counts,
                         counts_bytes(replica));
}

// And the sums of a bucket go back.
static enum ls_status push(const struct ls_replica *replica, uint32_t bucket)
{
    const struct ls_shard_sums *sums = replica->shard_sums;
    uint64_t first, count;
    if (!sums->apart)
        return LS_OK;
    ls_buckets_reduced(&replica->buckets, bucket, &first, &count);
    const enum ls_status status =
        copy(replica, ls_memory_at(replica->reduced, first * sizeof(float)),
             ls_host_memory(sums->reduced + first), count * sizeof(float));
    return status || bucket > 0 ? status
                                : copy(replica, replica->counts, ls_host_memory(sums->counts),
                                       counts_bytes(replica));
}

enum ls_status ls_replica_keep_shard(struct ls_replica *replica, const struct ls_pass *pass)
{
    const uint64_t start = ls_clock_ns();
    const struct ls_shard_sums *sums = replica->shard_sums;
    const enum ls_status status = pull(replica);
    if (status)
        return status;
    float *kept = (float *)ls_address(sums->kept) + pass->block * sums->count;
    int32_t *largest = ls_address(sums->largest);
    for (uint32_t i = 0; i < sums->part_count; i++) {
        const struct part *part = &sums->parts[i];
        const bool counts = is_count(replica, i);
        if (counts && !pass->program) // those of an earlier block
            memset(kept + part->first, 0, part->count * sizeof(*kept));
        else
            memcpy(kept + part->first, part->values, part->count * sizeof(*kept));
        largest[i] =
            ls_integers_largest(kept + part->first, part->count, pass->first ? 0 : largest[i]);
    }
    ls_trace_span(&keep_span, start, ls_clock_ns(), pass->block);
    return LS_OK;
}

void ls_replica_add_shards(struct ls_replica *replica, uint32_t bucket)
{
    const uint64_t start = ls_clock_ns();
    const struct ls_shard_sums *sums = replica->shard_sums;
    const int32_t *largest = ls_address(sums->largest);
    const float *kept = ls_address(sums->kept);
    int64_t *out = ls_address(sums->sums);
    for (uint32_t i = sums->bucket_parts[bucket]; i < sums->bucket_parts[bucket + 1]; i++) {
        const struct part *part = &sums->parts[i];
        const int32_t exponent = ls_integers_exponent(largest[i], sums->shards);
        memset(out + part->first, 0, part->count * sizeof(*out));
        for (uint32_t block = 0; block < sums->blocks && ls_integers_finite(largest[i]); block++)
            ls_integers_add(kept + block * sums->count + part->first, part->count, exponent,
                            out + part->first);
    }
    ls_trace_span(&add_span, start, ls_clock_ns(), bucket);
}

enum ls_status ls_replica_round_sums(struct ls_replica *replica, uint32_t bucket, bool zero)
{
    const uint64_t start = ls_clock_ns();
    const struct ls_shard_sums *sums = replica->shard_sums;
    const int32_t *largest = ls_address(sums->largest);
    const int64_t *from = ls_address(sums->sums);
    for (uint32_t i = sums->bucket_parts[bucket]; i < sums->bucket_parts[bucket + 1]; i++) {
        const struct part *part = &sums->parts[i];
        const bool counts = is_count(replica, i);
        if (zero && !counts)
            memset(part->values, 0, part->count * sizeof(float));
        else if (ls_integers_finite(largest[i]))
            ls_integers_round(from + part->first, part->count,
                              ls_integers_exponent(largest[i], sums->shards), part->values);
        else
            for (uint64_t k = 0; k < part->count; k++)
                part->values[k] = NAN;
    }
    const enum ls_status status = push(replica, bucket);
    replica->counts_whole = true;
    ls_trace_span(&round_span, start, ls_clock_ns(), bucket);
    return status;
}

// ---- What travels ----

struct ls_memory ls_replica_largest(const struct ls_replica *replica, uint64_t *count)
{
    *count = replica->shard_sums->part_count;
    return replica->shard_sums->largest;
}

struct ls_memory ls_replica_integers(const struct ls_replica *replica, uint32_t bucket,
                                     uint64_t *count)
{
    const struct ls_shard_sums *sums = replica->shard_sums;
    const uint32_t first = sums->bucket_parts[bucket], end = sums->bucket_parts[bucket + 1];
    const uint64_t at = first < sums->part_count ? sums->parts[first].first : sums->count;
    *count = (end < sums->part_count ? sums->parts[end].first : sums->count) - at;
    return ls_memory_at(sums->sums, at * sizeof(int64_t));
}
