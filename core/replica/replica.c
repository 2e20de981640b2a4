// SPDX-License-Identifier: Apache-2.0
// Runs steps on one device.
#include "core/replica/input.h"
#include "core/replica/record.h"
#include "core/replica/slicing.h"

#include "core/base/clock.h"
#include "core/base/inside.h"
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

// A run through a program, for a share or a part of it.
struct pass {
    struct ls_replica *replica;
    struct ls_replica_program *entry;
    const struct ls_replica_hooks *hooks;
    struct ls_slicing slicing;
    struct ls_take *takes;
    uint32_t bucket, from, to; // the stretch under way: up to where this bucket is complete
};

// Forward reads the last bucket first.
static enum ls_status need_parameters(const struct pass *pass, uint32_t step)
{
    const struct ls_replica_hooks *hooks = pass->hooks;
    enum ls_status status = LS_OK;
    for (uint32_t i = pass->replica->buckets.count; !status && i-- > 0;)
        if (pass->entry->bucket_needs[i] == step)
            status = hooks->parameters_needed(hooks->context, pass->replica, i);
    return status;
}

// Kernel by kernel once something is under way, so that communication moves on between kernels.
static enum ls_status run_range(const struct pass *pass)
{
    struct ls_replica *replica = pass->replica;
    const struct ls_replica_hooks *hooks = pass->hooks;
    const bool under_way = pass->slicing.last && pass->bucket > 0;
    const bool asks = hooks->parameters_needed && pass->slicing.first;
    const uint32_t stride = under_way || asks ? 1 : pass->to - pass->from;
    for (uint32_t step = pass->from; step < pass->to; step += stride) {
        enum ls_status status = asks ? need_parameters(pass, step) : LS_OK;
        if (status)
            return status;
        const uint64_t start = ls_clock_ns();
        status = ls_program_run(pass->entry->program, step, step + stride, replica->timing);
        replica->times.compute_ns += ls_clock_ns() - start;
        if (!status && under_way && hooks->progress && !replica->recorder.recording)
            status = hooks->progress(hooks->context, replica);
        if (status)
            return status;
    }
    return LS_OK;
}

static enum ls_status run_stretch(void *context)
{
    const struct pass *pass = context;
    const enum ls_status status = run_range(pass);
    if (status || pass->bucket == pass->replica->buckets.count)
        return status;
    return ls_slicing_add(&pass->slicing, pass->replica, pass->bucket);
}

static enum ls_status run_recorded(struct ls_replica *replica, const struct ls_stretch *stretch)
{
    const bool replays = stretch->take->recording;
    const uint64_t start = ls_clock_ns();
    const enum ls_status status = ls_record_run(replica, stretch);
    if (replays)
        replica->times.compute_ns += ls_clock_ns() - start;
    return status;
}

// All stretches of a pass with the hooks between them.
static enum ls_status run_stretches(void *context)
{
    struct pass *pass = context;
    struct ls_replica *replica = pass->replica;
    const struct ls_replica_hooks *hooks = pass->hooks;
    const uint32_t count = replica->buckets.count;
    pass->from = 0;
    for (pass->bucket = 0; pass->bucket <= count; pass->bucket++) {
        const uint32_t end = pass->bucket < count ? pass->entry->bucket_ends[pass->bucket]
                                                  : pass->entry->program->step_count;
        const struct ls_stretch stretch = {
            .work = run_stretch, .context = pass, .take = &pass->takes[pass->bucket]};
        pass->to = end > pass->from ? end : pass->from;
        enum ls_status status = LS_OK;
        if (pass->to > pass->from || !(pass->slicing.first && pass->slicing.last))
            status = hooks->parameters_needed ? run_stretch(pass) : run_recorded(replica, &stretch);
        if (!status && pass->slicing.last && pass->bucket < count)
            status = hooks->bucket_ready(hooks->context, replica, pass->bucket);
        if (status)
            return status;
        pass->from = pass->to;
    }
    return pass->slicing.last && hooks->end ? hooks->end(hooks->context, replica) : LS_OK;
}

// A part that is not the last calls no hooks.
static enum ls_status run_pass(struct pass *pass)
{
    const struct ls_stretch whole = {.work = run_stretches,
                                     .context = pass,
                                     .take = pass->takes,
                                     .hooks = pass->slicing.last ? pass->hooks : NULL};
    const bool recorded = pass->hooks->capturable || !pass->slicing.last;
    return recorded && !pass->hooks->parameters_needed ? run_recorded(pass->replica, &whole)
                                                       : run_stretches(pass);
}

// ---- Shares ----

static enum ls_status run_zero(void *context)
{
    const struct pass *pass = context;
    struct ls_replica *replica = pass->replica;
    const struct ls_replica_hooks *hooks = pass->hooks;
    ls_trace_begin(&zero_slice, 0);
    int32_t status =
        replica->ops->zero(replica->device, replica->gradients, replica->plan->flat_bytes, NULL);
    ls_trace_end();
    for (uint32_t bucket = 0; !status && bucket < replica->buckets.count; bucket++)
        status = (int32_t)hooks->bucket_ready(hooks->context, replica, bucket);
    if (!status && hooks->end)
        status = (int32_t)hooks->end(hooks->context, replica);
    return (enum ls_status)status;
}

static enum ls_status run_empty(struct ls_replica *replica, const struct ls_replica_batch *batch,
                                float stop, const struct ls_replica_hooks *hooks)
{
    struct pass pass = {.replica = replica, .hooks = hooks};
    const float tail[LS_TAIL_FLOATS] = {[LS_TAIL_STOP] = stop};
    const struct ls_stretch whole = {.work = run_zero,
                                     .context = &pass,
                                     .take = &replica->empty_takes[replica->recorder.kind],
                                     .hooks = hooks};
    replica->current = NULL;
    enum ls_status status = ls_input_write(replica, NULL, batch, tail);
    // Nothing is read, but every replica makes the same calls in every step.
    for (uint32_t i = replica->buckets.count; !status && hooks->parameters_needed && i-- > 0;)
        status = hooks->parameters_needed(hooks->context, replica, i);
    if (status)
        return status;
    return hooks->capturable ? run_recorded(replica, &whole) : run_zero(&pass);
}

void ls_slice(uint64_t count, uint32_t slices, uint32_t index, uint64_t *offset, uint64_t *size)
{
    const uint64_t each = count / slices, more = count % slices;
    *offset = each * index + (index < more ? index : more);
    *size = each + (index < more);
}

static enum ls_record_role role_of(const struct ls_slicing *slicing)
{
    if (slicing->first)
        return slicing->last ? LS_ROLE_SHARE : LS_ROLE_FIRST_PART;
    return slicing->last ? LS_ROLE_LAST_PART : LS_ROLE_MIDDLE_PART;
}

static struct ls_take *find_takes(const struct ls_replica *replica,
                                  const struct ls_replica_program *entry,
                                  const struct ls_slicing *slicing)
{
    const uint32_t role = replica->recorder.kind * LS_ROLE_COUNT + role_of(slicing);
    return entry->takes + role * (replica->buckets.count + 1);
}

static enum ls_status run_slice(struct ls_replica *replica, const struct ls_replica_batch *slice,
                                float stop, const struct ls_replica_hooks *hooks,
                                const struct ls_slicing *slicing)
{
    struct ls_replica_program *entry = find_program(replica, slice->count, true);
    if (!entry) {
        ls_error("replica", "no program was prepared for a share of %llu examples",
                 (unsigned long long)slice->count);
        return LS_FAILED;
    }
    struct pass pass = {.replica = replica,
                        .entry = entry,
                        .hooks = hooks,
                        .slicing = *slicing,
                        .takes = find_takes(replica, entry, slicing)};
    const bool cold = replica->timing && replica->current != entry && entry->runs == 0;
    replica->current = entry;
    replica->host_record.example_offset = slice->example_offset;
    const float tail[LS_TAIL_FLOATS] = {[LS_TAIL_STOP] = slicing->last ? stop : 0};
    const bool replays = pass.takes->recording;
    enum ls_status status = ls_input_write(replica, entry, slice, tail);
    if (!status)
        status = run_pass(&pass);
    if (!cold && !replays)
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
    const uint64_t example = (uint64_t)ls_shape_elements(&replica->graph->inputs[0]->shape, 1) *
                             (batch->example_dtype == LS_U8 ? 1 : sizeof(float));
    const uint64_t parts = batch->count < replica->slices ? batch->count : replica->slices;
    for (uint32_t i = 0; i < parts; i++) {
        const struct ls_slicing slicing = {.first = i == 0, .last = i + 1 == parts};
        struct ls_replica_batch slice = *batch;
        uint64_t offset;
        ls_slice(batch->count, replica->slices, i, &offset, &slice.count);
        slice.example_offset += offset;
        slice.examples = (const char *)slice.examples + offset * example;
        slice.labels = (const char *)slice.labels + offset * replica->label_bytes;
        const enum ls_status status = run_slice(replica, &slice, stop, hooks, &slicing);
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
    record->step = record->update = step;
    record->example_offset = batch->example_offset;
    record->learning_rate = (float)learning_rate;
    record->gradient_scale = (float)(1.0 / (double)batch->global_count);
    ls_record_begin_step(replica, batch->global_count, hooks->capturable);
    const enum ls_status status = batch->count ? run_slices(replica, batch, stop, hooks)
                                               : run_empty(replica, batch, stop, hooks);
    ls_record_end_step(replica, hooks->capturable && replica->slices <= 1);
    return status;
}

struct update {
    struct ls_replica *replica;
    uint32_t bucket;
};

static enum ls_status launch_update(void *context)
{
    const struct update *update = context;
    struct ls_replica *replica = update->replica;
    const uint64_t at = replica->buckets.list[update->bucket].offset / sizeof(float);
    void *arguments[LS_MAX_ARGUMENTS] = {replica->gradients + at, replica->parameters + at};
    for (uint32_t i = 0; i < replica->optimizer.state_count; i++)
        arguments[2 + i] = replica->states[i] + at;
    const struct ls_launch launch = {.struct_size = sizeof(launch),
                                     .arguments = arguments,
                                     .scratch = replica->scratch,
                                     .record = replica->record};
    ls_inside_about("update");
    return (enum ls_status)replica->ops->launch(replica->device, replica->updates[update->bucket],
                                                &launch);
}

enum ls_status ls_replica_update(struct ls_replica *replica, uint32_t index)
{
    const uint64_t start = ls_clock_ns();
    if (replica->buckets.list[index].bytes == 0)
        return LS_OK;
    struct update update = {replica, index};
    const struct ls_stretch stretch = {
        .work = launch_update, .context = &update, .take = &replica->update_takes[index]};
    const enum ls_status status = ls_record_run(replica, &stretch);
    const uint64_t end = ls_clock_ns();
    replica->times.update_ns += end - start;
    ls_trace_slice(&update_slice, start, end, index);
    return status;
}

static enum ls_status launch_shadows(void *context)
{
    const struct ls_replica *replica = context;
    return ls_plan_refresh_shadows(replica->plan, replica->parameters, replica->shadows,
                                   replica->scratch);
}

enum ls_status ls_replica_refresh(struct ls_replica *replica)
{
    if (replica->plan->shadow_count == 0)
        return LS_OK;
    const uint64_t start = ls_clock_ns();
    const struct ls_stretch stretch = {
        .work = launch_shadows, .context = replica, .take = &replica->shadows_take};
    const enum ls_status status = ls_record_run(replica, &stretch);
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
    ls_inside_about("guard of the loss");
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

static enum ls_status run_forward(void *context)
{
    struct ls_program *program = context;
    return ls_program_run(program, 0, program->step_count, false);
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
    const struct ls_stretch stretch = {
        .work = run_forward, .context = entry->program, .take = entry->takes};
    if (!status)
        status = ls_record_run(replica, &stretch);
    return status ? status : read_sums(replica, sums);
}

enum ls_status ls_replica_find_not_finite(struct ls_replica *replica, char *text, size_t bytes)
{
    text[0] = '\0';
    if (!replica->current)
        return LS_OK;
    return ls_program_find_not_finite(replica->current->program, text, bytes);
}
