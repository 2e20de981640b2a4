// SPDX-License-Identifier: Apache-2.0
// Runs steps on one device.
#include "core/replica/input.h"
#include "core/replica/slicing.h"

#include "core/base/clock.h"
#include "core/base/log.h"

#include <string.h>

static const struct ls_trace_label zero_slice = {.category = "backward", .name = "zero gradients"};
static const struct ls_trace_label update_slice = {
    .category = "update", .name = "update", .value = "bucket"};
static const struct ls_trace_label shadows_slice = {.category = "update", .name = "shadows"};

// The program for a share of `count` examples.
static struct ls_replica_program *find_program(struct ls_replica *replica, uint64_t count,
                                               bool training)
{
    for (uint32_t i = 0; i < replica->program_count; i++) {
        struct ls_replica_program *entry = &replica->programs[i];
        if (entry->training == training && (uint64_t)entry->program->options.batch == count)
            return entry;
    }
    return NULL;
}

static enum ls_status run_empty(struct ls_replica *replica, const struct ls_replica_hooks *hooks)
{
    ls_trace_begin(&zero_slice, 0);
    int32_t status =
        replica->ops->zero(replica->device, replica->gradients, replica->plan->flat_bytes, NULL);
    ls_trace_end();
    for (uint32_t bucket = 0; !status && bucket < replica->buckets.count; bucket++)
        status = (int32_t)hooks->bucket_ready(hooks->context, replica, bucket);
    return (enum ls_status)status;
}

// Kernel by kernel once something is under way, so that communication moves on between kernels.
static enum ls_status run_range(struct ls_replica *replica, struct ls_program *program,
                                uint32_t from, uint32_t to, bool under_way,
                                const struct ls_replica_hooks *hooks)
{
    const uint32_t stride = under_way ? 1 : to - from;
    for (uint32_t step = from; step < to; step += stride) {
        const uint64_t start = ls_clock_ns();
        enum ls_status status = ls_program_run(program, step, step + stride, replica->timing);
        replica->times.compute_ns += ls_clock_ns() - start;
        if (!status && under_way && hooks->progress)
            status = hooks->progress(hooks->context, replica);
        if (status)
            return status;
    }
    return LS_OK;
}

static enum ls_status run_program(struct ls_replica *replica,
                                  const struct ls_replica_program *entry,
                                  const struct ls_replica_hooks *hooks)
{
    uint32_t from = 0;
    for (uint32_t bucket = 0; bucket < replica->buckets.count; bucket++) {
        const uint32_t to = entry->bucket_ends[bucket] > from ? entry->bucket_ends[bucket] : from;
        enum ls_status status = run_range(replica, entry->program, from, to, bucket > 0, hooks);
        if (!status)
            status = hooks->bucket_ready(hooks->context, replica, bucket);
        if (status)
            return status;
        from = to;
    }
    return run_range(replica, entry->program, from, entry->program->step_count, true, hooks);
}

void ls_slice(uint64_t count, uint32_t slices, uint32_t index, uint64_t *offset, uint64_t *size)
{
    const uint64_t each = count / slices, more = count % slices;
    *offset = each * index + (index < more ? index : more);
    *size = each + (index < more);
}

static enum ls_status run_slice(struct ls_replica *replica, const struct ls_replica_batch *slice,
                                float stop, const struct ls_replica_hooks *hooks)
{
    struct ls_replica_program *entry = find_program(replica, slice->count, true);
    if (!entry) {
        ls_error("replica", "no program was prepared for a share of %llu examples",
                 (unsigned long long)slice->count);
        return LS_FAILED;
    }
    const bool cold = replica->timing && replica->current != entry && entry->runs == 0;
    replica->current = entry;
    replica->host_record.example_offset = slice->example_offset;
    const float tail[LS_TAIL_FLOATS] = {[LS_TAIL_STOP] = stop};
    enum ls_status status = ls_input_write(replica, entry, slice, tail);
    if (!status)
        status = run_program(replica, entry, hooks);
    if (!cold)
        entry->runs++;
    for (uint32_t i = 0; cold && i < entry->program->step_count; i++)
        entry->program->steps[i].nanoseconds = 0;
    return status;
}

// Runs the parts of a share one after the other; buckets are ready in the last one, when what the others
// left is added.
static enum ls_status run_slices(struct ls_replica *replica, const struct ls_replica_batch *batch,
                                 float stop, const struct ls_replica_hooks *hooks)
{
    const uint64_t example = (uint64_t)ls_shape_elements(&replica->graph->input->shape, 1) *
                             (batch->example_dtype == LS_U8 ? 1 : sizeof(float));
    struct ls_slicing slicing = {.hooks = hooks};
    const uint64_t parts = batch->count < replica->slices ? batch->count : replica->slices;
    for (uint32_t i = 0; i < parts; i++) {
        struct ls_replica_batch slice = *batch;
        uint64_t offset;
        ls_slice(batch->count, replica->slices, i, &offset, &slice.count);
        slice.example_offset += offset;
        slice.examples = (const char *)slice.examples + offset * example;
        slice.labels = (const char *)slice.labels + offset * replica->label_bytes;
        slicing.first = i == 0;
        slicing.last = i + 1 == parts;
        const struct ls_replica_hooks around = ls_slicing_hooks(&slicing);
        const enum ls_status status = run_slice(replica, &slice, slicing.last ? stop : 0, &around);
        if (status)
            return status;
    }
    return LS_OK;
}

enum ls_status ls_replica_run(struct ls_replica *replica, const struct ls_replica_batch *batch,
                              uint64_t step, double learning_rate, float stop,
                              const struct ls_replica_hooks *hooks)
{
    struct ls_step_record *record = &replica->host_record;
    record->step = step;
    record->example_offset = batch->example_offset;
    record->learning_rate = (float)learning_rate;
    record->gradient_scale = (float)(1.0 / (double)batch->global_count);
    if (batch->count)
        return replica->slices > 1 ? run_slices(replica, batch, stop, hooks)
                                   : run_slice(replica, batch, stop, hooks);
    replica->current = NULL;
    const float tail[LS_TAIL_FLOATS] = {[LS_TAIL_STOP] = stop};
    const enum ls_status status = ls_input_write(replica, NULL, batch, tail);
    return status ? status : run_empty(replica, hooks);
}

enum ls_status ls_replica_update(struct ls_replica *replica, uint32_t index)
{
    const uint64_t start = ls_clock_ns();
    const struct ls_bucket *bucket = &replica->buckets.list[index];
    if (bucket->bytes == 0)
        return LS_OK;
    const uint64_t at = bucket->offset / sizeof(float);
    void *arguments[LS_MAX_ARGUMENTS] = {replica->gradients + at, replica->parameters + at};
    for (uint32_t i = 0; i < replica->optimizer.state_count; i++)
        arguments[2 + i] = replica->states[i] + at;
    const struct ls_launch launch = {.struct_size = sizeof(launch),
                                     .arguments = arguments,
                                     .scratch = replica->scratch,
                                     .record = replica->record};
    const int32_t status = replica->ops->launch(replica->device, replica->updates[index], &launch);
    const uint64_t end = ls_clock_ns();
    replica->times.update_ns += end - start;
    ls_trace_slice(&update_slice, start, end, index);
    return (enum ls_status)status;
}

enum ls_status ls_replica_refresh(struct ls_replica *replica)
{
    if (replica->plan->shadow_count == 0)
        return LS_OK;
    const uint64_t start = ls_clock_ns();
    const enum ls_status status = ls_plan_refresh_shadows(replica->plan, replica->parameters,
                                                          replica->shadows, replica->scratch);
    const uint64_t end = ls_clock_ns();
    replica->times.update_ns += end - start;
    ls_trace_slice(&shadows_slice, start, end, 0);
    return status;
}

enum ls_status ls_replica_read_tail(struct ls_replica *replica, float *out)
{
    if (replica->ops->memory_kind == LS_MEMORY_HOST) {
        memcpy(out, replica->reduced, LS_TAIL_FLOATS * sizeof(float));
        return LS_OK;
    }
    return (enum ls_status)replica->ops->copy(replica->device, out, replica->reduced,
                                              LS_TAIL_FLOATS * sizeof(float), NULL);
}

enum ls_status ls_replica_guard(struct ls_replica *replica)
{
    void *arguments[LS_MAX_ARGUMENTS] = {replica->reduced, replica->failed, &replica->record->skip};
    const struct ls_launch launch = {.struct_size = sizeof(launch),
                                     .arguments = arguments,
                                     .scratch = replica->scratch,
                                     .record = replica->record};
    return (enum ls_status)replica->ops->launch(replica->device, replica->guard, &launch);
}

static void add_sums(double *sums, const float *found)
{
    for (int i = 0; sums && i < LS_SUMS; i++)
        sums[i] += (double)found[i];
}

static enum ls_status take_sums(struct ls_replica *replica, double *sums)
{
    uint64_t batch;
    const enum ls_status status = ls_late_wait(&replica->late, replica->deadline_ns, NULL, NULL);
    if (status == LS_PEER_LOST)
        ls_error("replica",
                 "the device has not done a batch of an evaluation after %.1f s; it hangs, or "
                 "--deadline is too short for it",
                 (double)replica->deadline_ns * 1e-9);
    if (!status)
        add_sums(sums, ls_late_take(&replica->late, &batch));
    return status;
}

enum ls_status ls_replica_evaluate_end(struct ls_replica *replica, double *sums)
{
    enum ls_status status = LS_OK;
    while (!status && sums && ls_late_pending(&replica->late))
        status = take_sums(replica, sums);
    replica->late.taken = replica->late.put;
    return status;
}

// The sums of a batch, or where the device works on: of an earlier one.
static enum ls_status read_sums(struct ls_replica *replica, double *sums)
{
    float found[LS_TAIL_FLOATS];
    if (ls_late_offered(&replica->late)) {
        const enum ls_status status = ls_late_put(&replica->late, replica->evaluation_sums, 0);
        if (status || ls_late_pending(&replica->late) <= LS_LATE_STEPS)
            return status;
        return take_sums(replica, sums);
    }
    const int32_t status = replica->ops->copy(replica->device, found, replica->evaluation_sums,
                                              LS_SUMS * sizeof(float), NULL);
    if (!status)
        add_sums(sums, found);
    return (enum ls_status)status;
}

enum ls_status ls_replica_evaluate(struct ls_replica *replica, const struct ls_replica_batch *batch,
                                   double *sums)
{
    if (batch->count == 0)
        return LS_OK;
    struct ls_replica_program *entry = find_program(replica, batch->count, false);
    if (!entry) {
        ls_error("replica", "no evaluation program was prepared for a share of %llu examples",
                 (unsigned long long)batch->count);
        return LS_FAILED;
    }
    enum ls_status status = ls_input_write(replica, entry, batch, NULL);
    if (!status)
        status = ls_program_run(entry->program, 0, entry->program->step_count, false);
    return status ? status : read_sums(replica, sums);
}

enum ls_status ls_replica_find_not_finite(struct ls_replica *replica, char *text, size_t bytes)
{
    text[0] = '\0';
    if (!replica->current)
        return LS_OK;
    return ls_program_find_not_finite(replica->current->program, text, bytes);
}
