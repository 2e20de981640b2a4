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
    float *values; // where programs write them, and updates read them
    uint64_t count;
    uint64_t first; // of its integers
};

struct ls_shard_sums {
    uint32_t shards, blocks;
    struct part *parts; // sums of the step, counts of metrics, then variables in their order
    uint32_t part_count, count_part; // the first that a metric counts
    uint32_t *bucket_parts; // bucket_count + 1: the first part of each bucket
    uint64_t count; // of all integers
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
    float *reduced = ls_address(replica->reduced), *counts = ls_address(replica->counts);
    float *gradients = ls_address(replica->gradients);
    for (uint32_t i = 0; i < LS_STEP_STATS; i++)
        add_part(sums, reduced + i, 1);
    sums->count_part = sums->part_count;
    for (uint32_t i = 0; i < replica->graph->count_slots; i++)
        add_part(sums, counts + i, 1);
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
    if (!sums->parts || !sums->bucket_parts)
        return LS_OUT_OF_MEMORY;
    list_parts(replica, sums);
    sums->kept = ls_replica_take_memory(replica, sums->count * blocks * sizeof(float));
    sums->largest = ls_replica_take_memory(replica, sums->part_count * sizeof(int32_t));
    sums->sums = ls_replica_take_memory(replica, sums->count * sizeof(int64_t));
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
    ls_device_release(replica->device, sums->kept);
    ls_device_release(replica->device, sums->largest);
    ls_device_release(replica->device, sums->sums);
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

void ls_replica_keep_shard(struct ls_replica *replica, const struct ls_pass *pass)
{
    const uint64_t start = ls_clock_ns();
    const struct ls_shard_sums *sums = replica->shard_sums;
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

void ls_replica_round_sums(struct ls_replica *replica, uint32_t bucket, bool zero)
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
    replica->counts_whole = true;
    ls_trace_span(&round_span, start, ls_clock_ns(), bucket);
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
