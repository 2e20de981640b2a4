// SPDX-License-Identifier: Apache-2.0
// Adds the gradients of the parts of a share.
#include "core/replica/slicing.h"

#include "core/base/clock.h"
#include "core/base/inside.h"
#include "core/base/log.h"

#include <stdlib.h>

static const struct ls_trace_label sum_slice = {
    .category = "backward", .name = "add parts", .value = "bucket"};

// A bucket with its tail, as it is reduced: floats from the start of `reduced`.
static uint64_t bucket_start(const struct ls_replica *replica, uint32_t index)
{
    return index == 0 ? 0 : LS_TAIL_FLOATS + replica->buckets.list[index].offset / sizeof(float);
}

static uint64_t bucket_floats(const struct ls_replica *replica, uint32_t index)
{
    return replica->buckets.list[index].bytes / sizeof(float) + (index == 0 ? LS_TAIL_FLOATS : 0);
}

// to += from
static enum ls_status add(struct ls_replica *replica, uint32_t bucket, float *to, float *from)
{
    const uint64_t at = bucket_start(replica, bucket);
    void *arguments[LS_MAX_ARGUMENTS] = {to + at, from + at, to + at};
    const struct ls_launch launch = {.struct_size = sizeof(launch),
                                     .arguments = arguments,
                                     .scratch = replica->scratch,
                                     .record = replica->record};
    return (enum ls_status)replica->ops->launch(replica->device, replica->adds[bucket], &launch);
}

static enum ls_status copy(struct ls_replica *replica, uint32_t bucket, float *to,
                           const float *from)
{
    const uint64_t at = bucket_start(replica, bucket);
    return (enum ls_status)replica->ops->copy(replica->device, to + at, from + at,
                                              bucket_floats(replica, bucket) * sizeof(float), NULL);
}

enum ls_status ls_slicing_add(const struct ls_slicing *slicing, struct ls_replica *replica,
                              uint32_t bucket)
{
    const uint64_t start = ls_clock_ns();
    enum ls_status status = LS_OK;
    if (slicing->first && slicing->last)
        return LS_OK;
    if (slicing->last)
        status = add(replica, bucket, replica->reduced, replica->accumulated);
    else if (!slicing->first)
        status = add(replica, bucket, replica->accumulated, replica->reduced);
    else
        status = copy(replica, bucket, replica->accumulated, replica->reduced);
    const uint64_t end = ls_clock_ns();
    replica->times.compute_ns += end - start;
    ls_trace_slice(&sum_slice, start, end, bucket);
    return status;
}

static enum ls_status prepare_add(struct ls_replica *replica, uint32_t bucket)
{
    struct ls_kernel_request request = {
        .struct_size = sizeof(request), .op = LS_OP_ADD, .input_count = 2, .output_count = 1};
    const uint64_t floats = bucket_floats(replica, bucket);
    for (uint32_t i = 0; i < 3; i++)
        request.arguments[i] = (struct ls_tensor_desc){
            .dtype = LS_F32,
            .ndims = 1,
            .dims = {(int64_t)floats},
            .layout = {.kind = LS_LAYOUT_PLAIN, .bytes = floats * sizeof(float)}};
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    ls_inside_about("add slices");
    const int32_t status = replica->ops->prepare(replica->device, &request, &answer);
    if (status)
        return (enum ls_status)status;
    replica->adds[bucket] = answer.kernel;
    ls_replica_need_scratch(replica, answer.scratch_bytes);
    if (answer.in_place & 1)
        return LS_OK;
    ls_error("--slices", "this device cannot add one buffer to another in place; use --slices=1");
    return LS_UNSUPPORTED;
}

enum ls_status ls_slicing_prepare(struct ls_replica *replica)
{
    if (replica->slices <= 1)
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
