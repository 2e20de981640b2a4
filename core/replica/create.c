// SPDX-License-Identifier: Apache-2.0
// Builds a replica: device, plan, programs, buffers, optimizer kernels.
#include "core/replica/input.h"
#include "core/replica/record.h"
#include "core/replica/slicing.h"

#include "core/base/inside.h"
#include "core/base/log.h"

#include <stdlib.h>
#include <string.h>

static enum ls_status open_device(struct ls_replica *replica,
                                  const struct ls_replica_options *options)
{
    const struct ls_device_config config = {.struct_size = sizeof(config),
                                            .index = options->device_index,
                                            .threads = options->threads,
                                            .deadline_ns = options->deadline_ns};
    return (enum ls_status)options->ops->open(options->host, &config, &replica->device);
}

// Where a program is cut: the first step that reads a parameter of a bucket, and the first after which every gradient of
// it is complete.
static enum ls_status find_bucket_ends(const struct ls_replica *replica,
                                       struct ls_replica_program *entry)
{
    entry->bucket_ends = calloc(replica->buckets.count, sizeof(*entry->bucket_ends));
    entry->bucket_needs = calloc(replica->buckets.count, sizeof(*entry->bucket_needs));
    if (!entry->bucket_ends || !entry->bucket_needs)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < replica->buckets.count; i++) {
        const struct ls_bucket *bucket = &replica->buckets.list[i];
        entry->bucket_needs[i] = entry->program->step_count;
        for (uint32_t place = bucket->first_place;
             place < bucket->first_place + bucket->place_count; place++)
            if (entry->program->needed[place] < entry->bucket_needs[i])
                entry->bucket_needs[i] = entry->program->needed[place];
        for (uint32_t place = bucket->first_place;
             place < bucket->first_place + bucket->place_count; place++)
            if (entry->program->ready[place] + 1 > entry->bucket_ends[i])
                entry->bucket_ends[i] = entry->program->ready[place] + 1;
    }
    return LS_OK;
}

static bool has_program(const struct ls_replica *replica, uint64_t size, bool training)
{
    for (uint32_t i = 0; i < replica->program_count; i++)
        if (replica->programs[i].training == training &&
            (uint64_t)replica->programs[i].program->options.batch == size)
            return true;
    return false;
}

void ls_replica_need_scratch(struct ls_replica *replica, uint64_t bytes)
{
    if (bytes > replica->scratch_bytes)
        replica->scratch_bytes = bytes;
}

// Of a program.
static uint32_t take_count(const struct ls_replica *replica)
{
    return LS_STEP_KINDS * LS_ROLE_COUNT * (replica->buckets.count + 1);
}

static enum ls_status add_programs(struct ls_replica *replica, const uint64_t *sizes, bool training)
{
    for (uint32_t i = 0; i < LS_REPLICA_SIZES; i++) {
        if (sizes[i] == 0 || has_program(replica, sizes[i], training))
            continue;
        struct ls_replica_program *entry = &replica->programs[replica->program_count];
        const struct ls_program_options options = {.batch = (int64_t)sizes[i],
                                                   .purpose = training ? LS_PURPOSE_TRAIN
                                                                       : LS_PURPOSE_EVALUATE};
        enum ls_status status =
            ls_program_create(replica->plan, replica->graph, &options, &entry->program);
        if (status)
            return status;
        replica->program_count++;
        entry->training = training;
        entry->takes = calloc(take_count(replica), sizeof(*entry->takes));
        if (!entry->takes)
            return LS_OUT_OF_MEMORY;
        if (training)
            status = find_bucket_ends(replica, entry);
        if (status)
            return status;
        if (entry->program->arena_bytes > replica->arena_bytes)
            replica->arena_bytes = entry->program->arena_bytes;
        if (sizes[i] > replica->largest_batch)
            replica->largest_batch = sizes[i];
    }
    return LS_OK;
}

void *ls_replica_allocate(struct ls_replica *replica, uint64_t bytes)
{
    replica->device_bytes += bytes;
    return replica->ops->allocate(replica->device, bytes ? bytes : LS_ALIGNMENT);
}

static enum ls_status allocate_buffers(struct ls_replica *replica, const struct ls_host *host)
{
    const uint64_t flat = replica->plan->flat_bytes;
    const uint64_t tail = LS_TAIL_FLOATS * sizeof(float);
    replica->parameters = ls_replica_allocate(replica, flat);
    replica->reduced = ls_replica_allocate(replica, tail + flat);
    replica->shadows = ls_replica_allocate(replica, replica->plan->shadow_bytes);
    replica->scratch = ls_replica_allocate(replica, replica->scratch_bytes);
    replica->arena = ls_replica_allocate(replica, replica->arena_bytes);
    replica->evaluation_sums = ls_replica_allocate(replica, tail);
    if (replica->slices > 1)
        replica->accumulated = ls_replica_allocate(replica, tail + flat);
    if (replica->guard)
        replica->failed = ls_replica_allocate(replica, sizeof(*replica->failed));
    bool complete = replica->parameters && replica->reduced && replica->shadows &&
                    replica->scratch && replica->arena && replica->evaluation_sums &&
                    (replica->slices == 1 || replica->accumulated) &&
                    (!replica->guard || replica->failed);
    for (uint32_t i = 0; i < replica->optimizer.state_count; i++) {
        replica->states[i] = ls_replica_allocate(replica, flat);
        complete = complete && replica->states[i];
    }
    const enum ls_status status = complete ? ls_input_allocate(replica) : LS_OUT_OF_MEMORY;
    if (status == LS_OUT_OF_MEMORY)
        ls_host_fail(host, (int32_t)status,
                     "the device has no %.1f MB of memory left for this model; a smaller batch "
                     "needs less",
                     (double)replica->device_bytes * 1e-6);
    replica->gradients = replica->reduced + LS_TAIL_FLOATS;
    return status;
}

static void bind_programs(struct ls_replica *replica)
{
    for (uint32_t i = 0; i < replica->program_count; i++) {
        const bool training = replica->programs[i].training;
        const struct ls_bindings bindings = {
            .arena = replica->arena,
            .parameters = replica->parameters,
            .gradients = training ? replica->gradients : NULL,
            .shadows = replica->shadows,
            .sums = training ? replica->reduced : replica->evaluation_sums,
            .record = replica->record,
        };
        ls_program_bind(replica->programs[i].program, &bindings);
    }
}

static enum ls_status prepare_update(struct ls_replica *replica, uint32_t index)
{
    const uint64_t bytes = replica->buckets.list[index].bytes;
    if (bytes == 0)
        return LS_OK;
    struct ls_kernel_request request = {.struct_size = sizeof(request),
                                        .op = replica->optimizer.op,
                                        .attributes = replica->optimizer.attributes,
                                        .input_count = 1,
                                        .output_count = 1 + replica->optimizer.state_count};
    for (uint32_t i = 0; i < 1 + request.output_count; i++) {
        struct ls_tensor_desc *desc = &request.arguments[i];
        desc->dtype = LS_F32;
        desc->ndims = 1;
        desc->dims[0] = (int64_t)(bytes / sizeof(float));
        desc->layout = (struct ls_layout){.kind = LS_LAYOUT_PLAIN, .bytes = bytes};
    }
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    ls_inside_about("update");
    const int32_t status = replica->ops->prepare(replica->device, &request, &answer);
    if (status)
        return (enum ls_status)status;
    replica->updates[index] = answer.kernel;
    ls_replica_need_scratch(replica, answer.scratch_bytes);
    return LS_OK;
}

// A device without the operation is waited for in every step.
static enum ls_status prepare_guard(struct ls_replica *replica)
{
    struct ls_kernel_request request = {
        .struct_size = sizeof(request), .op = LS_OP_GUARD, .input_count = 1, .output_count = 2};
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    if (!ls_late_offered(&replica->late))
        return LS_OK;
    for (uint32_t i = 0; i < 3; i++)
        request.arguments[i] =
            (struct ls_tensor_desc){.dtype = i == 0 ? LS_F32 : LS_I32,
                                    .ndims = 1,
                                    .dims = {1},
                                    .layout = {.kind = LS_LAYOUT_PLAIN, .bytes = sizeof(float)}};
    ls_inside_about("guard of the loss");
    const int32_t status = replica->ops->prepare(replica->device, &request, &answer);
    if (status)
        return status == LS_UNSUPPORTED ? LS_OK : (enum ls_status)status;
    replica->guard = answer.kernel;
    ls_replica_need_scratch(replica, answer.scratch_bytes);
    return LS_OK;
}

static enum ls_status prepare_updates(struct ls_replica *replica)
{
    replica->updates = calloc(replica->buckets.count, sizeof(struct ls_kernel *));
    replica->update_takes = calloc(replica->buckets.count, sizeof(*replica->update_takes));
    if (!replica->updates || !replica->update_takes)
        return LS_OUT_OF_MEMORY;
    if (replica->optimizer.op == LS_OP_NONE)
        return LS_OK;
    for (uint32_t i = 0; i < replica->buckets.count; i++) {
        const enum ls_status status = prepare_update(replica, i);
        if (status)
            return status;
    }
    return prepare_guard(replica);
}

enum ls_status ls_replica_create(const struct ls_replica_options *options, struct ls_replica **out)
{
    struct ls_replica *replica = calloc(1, sizeof(*replica));
    if (!replica)
        return LS_OUT_OF_MEMORY;
    replica->ops = options->ops;
    replica->rank = options->rank;
    replica->device_name = options->device_name ? options->device_name : "?";
    replica->graph = options->graph;
    replica->timing = options->timing;
    replica->deadline_ns = options->deadline_ns;
    replica->slices = options->slices ? options->slices : 1;
    replica->host_record.seed = options->seed;
    if (options->optimizer)
        replica->optimizer = *options->optimizer;
    if (options->graph->label)
        replica->label_bytes = 4 * (uint64_t)ls_shape_elements(&options->graph->label->shape, 1);

    ls_record_init(replica, options->host);
    enum ls_status status = open_device(replica, options);
    if (!status)
        status = ls_late_init(&replica->late, replica->ops, replica->device);
    if (!status)
        status = ls_plan_create(options->graph, options->ops, replica->device, options->plan_batch,
                                options->plain, &replica->plan);
    if (!status)
        status = ls_buckets_create(replica->plan, options->first_bucket_bytes,
                                   options->bucket_bytes, &replica->buckets);
    if (!status)
        status = add_programs(replica, options->training_sizes, true);
    if (!status)
        status = add_programs(replica, options->evaluation_sizes, false);
    if (!status)
        status = prepare_updates(replica);
    if (!status)
        status = ls_slicing_prepare(replica);
    if (!status)
        status = ls_input_prepare(replica, options->byte_divisor);
    if (status)
        goto fail;
    for (uint32_t i = 0; i < replica->plan->shadow_count; i++)
        ls_replica_need_scratch(replica, replica->plan->shadows[i].scratch_bytes);
    status = allocate_buffers(replica, options->host);
    if (status)
        goto fail;
    bind_programs(replica);
    *out = replica;
    return LS_OK;

fail:
    ls_replica_destroy(replica);
    return status;
}

static void release_buffers(struct ls_replica *replica)
{
    void *const buffers[] = {replica->parameters,  replica->reduced,        replica->shadows,
                             replica->scratch,     replica->arena,          replica->failed,
                             replica->accumulated, replica->evaluation_sums};
    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++)
        replica->ops->release(replica->device, buffers[i]);
    for (uint32_t i = 0; i < replica->optimizer.state_count; i++)
        replica->ops->release(replica->device, replica->states[i]);
}

void ls_replica_forget_recordings(struct ls_replica *replica)
{
    for (uint32_t i = 0; i < replica->program_count; i++)
        ls_record_release(replica, replica->programs[i].takes, take_count(replica));
    if (replica->update_takes)
        ls_record_release(replica, replica->update_takes, replica->buckets.count);
    ls_record_release(replica, replica->empty_takes, LS_STEP_KINDS);
    ls_record_release(replica, &replica->shadows_take, 1);
}

void ls_replica_destroy(struct ls_replica *replica)
{
    if (!replica)
        return;
    ls_replica_forget_recordings(replica);
    for (uint32_t i = 0; i < replica->program_count; i++) {
        free(replica->programs[i].takes);
        ls_program_destroy(replica->programs[i].program);
        free(replica->programs[i].bucket_ends);
        free(replica->programs[i].bucket_needs);
    }
    free(replica->update_takes);
    for (uint32_t i = 0; replica->updates && i < replica->buckets.count; i++)
        replica->ops->release_kernel(replica->device, replica->updates[i]);
    for (uint32_t i = 0; replica->adds && i < replica->buckets.count; i++)
        replica->ops->release_kernel(replica->device, replica->adds[i]);
    free(replica->adds);
    free(replica->updates);
    if (replica->guard)
        replica->ops->release_kernel(replica->device, replica->guard);
    ls_late_finish(&replica->late);
    ls_buckets_finish(&replica->buckets);
    ls_plan_destroy(replica->plan);
    if (replica->device) {
        ls_input_destroy(replica);
        release_buffers(replica);
        replica->ops->close(replica->device);
    }
    free(replica);
}

void ls_replica_abandon(struct ls_replica *replica)
{
    if (replica && replica->device && replica->ops->abandon)
        replica->ops->abandon(replica->device);
}
