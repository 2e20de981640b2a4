// SPDX-License-Identifier: Apache-2.0
// Adds the gradients of the blocks of a share.
#include "core/replica/microbatches.h"
#include "core/replica/programs.h"

#include "core/base/clock.h"
#include "core/base/inside.h"
#include "core/base/log.h"

#include <stdlib.h>

static const struct ls_trace_label sum_span = {
    .category = "backward", .name = "add parts", .value = "bucket"};

// The gradients of the bucket += a sum of blocks
static enum ls_status add(struct ls_replica *replica, uint32_t bucket, struct ls_memory sum)
{
    uint64_t first, count;
    ls_buckets_reduced(&replica->buckets, bucket, &first, &count);
    const struct ls_memory to = ls_replica_bucket_memory(replica, LS_BUFFER_REDUCED, bucket);
    const struct ls_memory arguments[3] = {to, ls_memory_at(sum, first * sizeof(float)), to};
    const struct ls_launch launch = {.struct_size = sizeof(launch),
                                     .argument_count = 3,
                                     .arguments = arguments,
                                     .scratch = replica->scratch.memory,
                                     .record = replica->record};
    return ls_device_launch(replica->device, replica->adds[bucket], &launch);
}

static enum ls_status copy(struct ls_replica *replica, uint32_t bucket, struct ls_memory sum)
{
    uint64_t first, count;
    ls_buckets_reduced(&replica->buckets, bucket, &first, &count);
    return ls_device_copy(replica->device, ls_memory_at(sum, first * sizeof(float)),
                          ls_replica_bucket_memory(replica, LS_BUFFER_REDUCED, bucket),
                          count * sizeof(float), NULL);
}

uint32_t ls_microbatches_levels(uint32_t microbatches)
{
    uint32_t levels = 0;
    while (microbatches > 1 && (microbatches - 1) >> levels)
        levels++;
    return levels;
}

// How many sums of 1, 2, 4, ... blocks wait for block `index` in a row.
static uint32_t waiting(uint32_t index)
{
    uint32_t count = 0;
    while (index >> count & 1)
        count++;
    return count;
}

uint32_t ls_microbatches_pass(uint32_t index, uint32_t microbatches)
{
    if (microbatches == 1)
        return LS_PASS_WHOLE;
    return index + 1 == microbatches ? LS_PASS_LAST : LS_PASS_ADDED + waiting(index);
}

enum ls_status ls_microbatches_add(struct ls_replica *replica, uint32_t index, uint32_t bucket)
{
    const uint64_t start = ls_clock_ns();
    const bool last = index + 1 == replica->microbatches;
    // What waits is a bit of `index`; the last block is added to all of it, the smallest sum first.
    const uint32_t levels = last ? ls_microbatches_levels(replica->microbatches) : waiting(index);
    enum ls_status status = LS_OK;
    if (replica->microbatches == 1)
        return LS_OK;
    for (uint32_t level = 0; !status && level < levels; level++)
        if (index >> level & 1)
            status = add(replica, bucket, replica->accumulated[level]);
    if (!status && !last)
        status = copy(replica, bucket, replica->accumulated[levels]);
    ls_trace_span(&sum_span, start, ls_clock_ns(), bucket);
    return status;
}

static enum ls_status prepare_add(struct ls_replica *replica, uint32_t bucket)
{
    uint64_t first, count;
    ls_buckets_reduced(&replica->buckets, bucket, &first, &count);
    const struct ls_range_operation sum = {
        .op = LS_OP_ADD, .input_count = 2, .output_count = 1, .count = count};
    struct ls_kernel_answer answer;
    const enum ls_status status =
        ls_device_prepare_range(replica->device, "add microbatches", &sum, &answer);
    if (status)
        return status;
    replica->adds[bucket] = answer.kernel;
    ls_replica_need_scratch(replica, answer.scratch_bytes);
    if (answer.in_place & 1)
        return LS_OK;
    ls_error("--microbatches",
             "this device cannot add one buffer to another in place; use --microbatches=1");
    return LS_UNSUPPORTED;
}

enum ls_status ls_microbatches_prepare(struct ls_replica *replica)
{
    if (replica->microbatches <= 1 || replica->adds)
        return LS_OK;
    replica->adds = calloc(replica->buckets.count, sizeof(struct ls_kernel *));
    if (!replica->adds)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < replica->buckets.count; i++) {
        const enum ls_status status = prepare_add(replica, i);
        if (status)
            return status;
    }
    return LS_OK;
}
