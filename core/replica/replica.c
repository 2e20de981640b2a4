// SPDX-License-Identifier: Apache-2.0
// Runs steps on one device.
#include "core/replica/input.h"
#include "core/replica/programs.h"
#include "core/replica/record.h"
#include "core/replica/microbatches.h"

#include "core/base/clock.h"
#include "core/base/inside.h"
#include "core/base/log.h"

#include <stdatomic.h>
#include <string.h>

static const struct ls_trace_label zero_span = {.category = "backward", .name = "zero gradients"};
static const struct ls_trace_label shadows_span = {.category = "update", .name = "shadows"};

// An empty share has weight 0 in averages over the global batch. One that is averaged with nothing
// else (`own`) finds the moving statistics as they are, so that they stay.
static enum ls_status zero_gradients(struct ls_replica *replica, bool own)
{
    const uint64_t start = ls_clock_ns(), statistics = replica->plan->statistics_bytes;
    enum ls_status status =
        ls_device_zero(replica->device, replica->gradients, replica->plan->reduced_bytes, NULL);
    if (!status && own && statistics)
        status = ls_device_copy(replica->device, replica->gradients, replica->parameters,
                                statistics, NULL);
    ls_trace_span(&zero_span, start, ls_clock_ns(), 0);
    return status;
}

// The hook for the buckets that `step` reads first; forward reads the last bucket first. An empty block reads nothing,
// but every replica makes the same calls in every step.
static enum ls_status need_parameters(const struct ls_pass *pass, uint32_t step)
{
    const struct ls_replica_hooks *hooks = pass->hooks;
    enum ls_status status = LS_OK;
    if (!hooks->parameters_needed || pass->block > 0)
        return LS_OK;
    for (uint32_t i = pass->replica->buckets.count; !status && i-- > 0;)
        if (!pass->entry->program || pass->entry->bucket_needs[i] == step)
            status = hooks->parameters_needed(hooks->context, pass->replica, i);
    return status;
}

// An empty share takes part with zeros, up to where others complete the bucket: libraries want the same order of totals
// and buckets on all replicas.
static enum ls_status add_up_zeros(struct ls_pass *pass)
{
    struct ls_replica *replica = pass->replica;
    const struct ls_parameter_plan *plan = replica->plan;
    uint32_t end = UINT32_MAX;
    enum ls_status status = LS_OK;
    if (!pass->hooks->add_up || !plan->total_count)
        return LS_OK;
    if (pass->bucket < replica->buckets.count) {
        const struct ls_bucket *bucket = &replica->buckets.list[pass->bucket];
        end = bucket->first_place + bucket->place_count;
    }
    if (pass->bucket == 0 && pass->total == 0)
        status = ls_device_zero(replica->device, replica->totals, plan->total_bytes, NULL);
    while (!status && pass->total < plan->total_count && plan->totals[pass->total].place < end)
        status = pass->hooks->add_up(pass->hooks->context, replica, pass->total++);
    return status;
}

// The same up to where others end their forward pass: they wait for the totals that it makes.
static enum ls_status add_up_forward_zeros(struct ls_pass *pass)
{
    struct ls_replica *replica = pass->replica;
    const struct ls_parameter_plan *plan = replica->plan;
    enum ls_status status = LS_OK;
    if (!pass->hooks->add_up || !plan->total_count)
        return LS_OK;
    status = ls_device_zero(replica->device, replica->totals, plan->total_bytes, NULL);
    while (!status && pass->total < plan->total_count) {
        const int32_t producer = plan->totals[pass->total].tensor->producer;
        if (producer >= 0 && replica->graph->operations[producer].backward)
            break;
        status = pass->hooks->add_up(pass->hooks->context, replica, pass->total++);
    }
    return status;
}

// The end of the steps from `step` on that run in one go: `stride` of them, but no further than to one that makes a total.
static uint32_t end_of_stride(const struct ls_pass *pass, uint32_t step, uint32_t stride)
{
    const uint32_t end = stride < pass->to - step ? step + stride : pass->to;
    if (!pass->hooks->add_up || pass->total == pass->replica->plan->total_count)
        return end;
    const uint32_t next = pass->entry->program->totals[pass->total] + 1;
    return next < end ? next : end;
}

// Steps pass->from to pass->to: kernel by kernel once something is under way, so that communication moves on between kernels.
static enum ls_status run_steps(struct ls_pass *pass, bool under_way)
{
    struct ls_replica *replica = pass->replica;
    const struct ls_replica_hooks *hooks = pass->hooks;
    const uint32_t stride = under_way || hooks->parameters_needed ? 1 : pass->to - pass->from;
    enum ls_status status = LS_OK;
    for (uint32_t step = pass->from, end; !status && step < pass->to; step = end) {
        end = end_of_stride(pass, step, stride);
        status = need_parameters(pass, step);
        if (status)
            return status;
        const uint64_t start = ls_clock_ns();
        status = ls_program_run(pass->entry->program, step, end, replica->timing);
        replica->times.compute_ns += ls_clock_ns() - start;
        if (!status && hooks->add_up && pass->total < replica->plan->total_count &&
            pass->entry->program->totals[pass->total] + 1 == end)
            status = hooks->add_up(hooks->context, replica, pass->total++);
        if (!status && under_way && hooks->progress && !replica->recorder.recording)
            status = hooks->progress(hooks->context, replica);
    }
    return status;
}

// From the end of one bucket to the end of the next. An empty block has zeros.
static enum ls_status run_section(void *context)
{
    struct ls_pass *pass = context;
    struct ls_replica *replica = pass->replica;
    enum ls_status status = run_steps(pass, pass->last && pass->bucket > 0);
    if (status || pass->bucket == replica->buckets.count)
        return status;
    if (!pass->entry->program && pass->bucket == 0)
        status = zero_gradients(replica, pass->own);
    return status ? status : ls_microbatches_add(replica, pass->block, pass->bucket);
}

// A replay has no kernels whose times would be added.
static enum ls_status run_timed(struct ls_replica *replica, const struct ls_section *section)
{
    const bool replays = section->capture->recording && !replica->recorder.within;
    const uint64_t start = ls_clock_ns();
    const enum ls_status status = ls_record_run(replica, section);
    if (replays)
        replica->times.compute_ns += ls_clock_ns() - start;
    return status;
}

// All sections of a pass with the hooks between them. A block that is not the last calls no hooks.
static enum ls_status run_sections(void *context)
{
    struct ls_pass *pass = context;
    struct ls_replica *replica = pass->replica;
    const struct ls_replica_hooks *hooks = pass->hooks;
    const uint32_t count = replica->buckets.count;
    const struct ls_program *program = pass->entry->program;
    // What cannot be recorded runs without the detour; a section has no hooks of its own.
    const bool records = !hooks->parameters_needed && !hooks->add_up &&
                         !replica->recorder.refusal && !pass->in_parts;
    enum ls_status status = program || pass->in_parts ? LS_OK : need_parameters(pass, 0);
    pass->from = pass->in_parts && program ? program->forward_count : 0;
    for (pass->bucket = 0; !status && pass->bucket <= count; pass->bucket++) {
        const uint32_t end = pass->bucket < count ? pass->entry->bucket_ends[pass->bucket]
                             : program            ? program->step_count
                                                  : 0;
        const struct ls_section section = {
            .work = run_section, .context = pass, .capture = &pass->captures[pass->bucket]};
        const bool zeroes = !program && pass->bucket == 0;
        if (!program)
            status = add_up_zeros(pass);
        if (status)
            break;
        pass->to = end > pass->from ? end : pass->from;
        if (pass->to > pass->from || zeroes || (pass->bucket < count && replica->microbatches > 1))
            status = records ? run_timed(replica, &section) : run_section(pass);
        if (!status && pass->last && pass->bucket < count)
            status = hooks->bucket_ready(hooks->context, replica, pass->bucket);
        pass->from = pass->to;
    }
    return !status && pass->last && hooks->end ? hooks->end(hooks->context, replica) : status;
}

// ---- Shares ----

void ls_microbatch(uint64_t count, uint32_t microbatches, uint32_t index, uint64_t *offset,
                   uint64_t *size)
{
    const uint64_t each = count / microbatches, more = count % microbatches;
    *offset = each * index + (index < more ? index : more);
    *size = each + (index < more);
}

static enum ls_status read_counts(const struct ls_replica *replica)
{
    return ls_device_copy(replica->device, ls_host_memory(replica->found), replica->counts,
                          replica->graph->count_slots * sizeof(float), NULL);
}

// Others may read the sums meanwhile.
enum ls_status ls_replica_count(struct ls_replica *replica)
{
    const uint32_t slots = replica->graph->count_slots;
    if (slots == 0)
        return LS_OK;
    const enum ls_status status = read_counts(replica);
    for (uint32_t i = 0; !status && i < slots; i++)
        atomic_store_explicit(&replica->counted[i],
                              atomic_load_explicit(&replica->counted[i], memory_order_relaxed) +
                                  (double)replica->found[i],
                              memory_order_relaxed);
    return status;
}

// An empty block counts nothing. The blocks of a step count when it is made, with the last of them.
static enum ls_status count_block(struct ls_replica *replica, bool last)
{
    const uint32_t slots = replica->graph->count_slots;
    const bool nothing = !replica->current->program && !replica->counts_whole;
    const enum ls_status status = slots == 0 || nothing ? LS_OK : read_counts(replica);
    for (uint32_t i = 0; !status && i < slots; i++) {
        replica->found_before[i] += nothing ? 0 : (double)replica->found[i];
        if (last)
            atomic_store_explicit(&replica->counted[i],
                                  atomic_load_explicit(&replica->counted[i], memory_order_relaxed) +
                                      replica->found_before[i],
                                  memory_order_relaxed);
    }
    return status;
}

uint32_t ls_replica_count_slots(const struct ls_replica *replica)
{
    return replica->graph->count_slots;
}

enum ls_status ls_replica_step_counts(struct ls_replica *replica)
{
    const uint32_t slots = replica->graph->count_slots;
    const bool nothing = !replica->current->program;
    enum ls_status status = LS_OK;
    if (slots == 0 || replica->counts_whole)
        return LS_OK;
    if (!nothing)
        status = read_counts(replica);
    for (uint32_t i = 0; !status && i < slots; i++) {
        replica->found[i] =
            (float)(replica->found_before[i] + (nothing ? 0 : (double)replica->found[i]));
        replica->found_before[i] = 0;
    }
    if (!status)
        status = ls_device_copy(replica->device, replica->counts, ls_host_memory(replica->found),
                                slots * sizeof(float), NULL);
    replica->counts_whole = !status;
    return status;
}

void ls_replica_clear_counts(struct ls_replica *replica)
{
    for (uint32_t i = 0; i < replica->graph->count_slots; i++)
        atomic_store_explicit(&replica->counted[i], 0.0, memory_order_relaxed);
}

void ls_replica_add_counts(const struct ls_replica *replica, double *sums)
{
    for (uint32_t i = 0; i < replica->graph->count_slots; i++)
        sums[i] += atomic_load_explicit(&replica->counted[i], memory_order_relaxed);
}

// The pass over a block, whose input is brought to the device.
static enum ls_status begin_pass(struct ls_replica *replica, const struct ls_replica_batch *block,
                                 uint32_t index, float stop, const struct ls_replica_hooks *hooks,
                                 struct ls_pass *out)
{
    const double all = (double)block->global_count;
    struct ls_replica_program *entry =
        block->count ? ls_programs_find(replica, block->count, LS_PURPOSE_TRAIN) : &replica->empty;
    if (!entry || !entry->captures) {
        ls_error("replica", "no program was prepared for a share of %llu examples",
                 (unsigned long long)block->count);
        return LS_FAILED;
    }
    const bool last = index + 1 == replica->microbatches;
    const uint32_t which =
        replica->recorder.kind * LS_PASS_COUNT + ls_microbatches_pass(index, replica->microbatches);
    const float step_stats[LS_STEP_STATS] = {[LS_STEP_STATS_STOP] = last ? stop : 0};
    *out = (struct ls_pass){.replica = replica,
                            .entry = entry,
                            .hooks = hooks,
                            .block = index,
                            .last = last,
                            .own = last && block->global_count == 0,
                            .captures = entry->captures + which * (replica->buckets.count + 1)};
    replica->host_record.example_offset = block->example_offset;
    replica->host_record.share_weight = all > 0 ? (float)((double)block->count / all) : 0;
    replica->current = entry;
    return ls_input_write(replica, entry->program ? entry : NULL, block, step_stats);
}

static enum ls_status run_block(struct ls_replica *replica, const struct ls_replica_batch *block,
                                uint32_t index, float stop, const struct ls_replica_hooks *hooks)
{
    const struct ls_replica_program *before = replica->current;
    struct ls_pass pass;
    enum ls_status status = begin_pass(replica, block, index, stop, hooks, &pass);
    if (status)
        return status;
    struct ls_replica_program *entry = pass.entry;
    const struct ls_section whole = {.work = run_sections,
                                     .context = &pass,
                                     .capture = pass.captures,
                                     .hooks = pass.last ? hooks : NULL};
    const bool cold = replica->timing && before != entry && entry->runs == 0;
    const bool replays = pass.captures->recording;
    status = (hooks->capturable || !pass.last) && !hooks->parameters_needed && !hooks->add_up
                 ? run_timed(replica, &whole)
                 : run_sections(&pass);
    if (!status)
        status = count_block(replica, pass.last);
    if (!cold && !replays)
        entry->runs++;
    for (uint32_t i = 0; cold && entry->program && i < entry->program->step_count; i++)
        entry->program->steps[i].nanoseconds = 0;
    return status;
}

static void begin_step(struct ls_replica *replica, const struct ls_replica_batch *batch,
                       uint64_t step, double learning_rate, bool together)
{
    struct ls_step_record *record = &replica->host_record;
    const double scale = (double)replica->scale.scale; // 1: none
    record->step = record->update = step;
    if (ls_optimizer_scales(&replica->optimizer))
        record->update = replica->scale.updates + 1;
    record->learning_rate = (float)learning_rate;
    record->gradient_scale = batch->global_count ? (float)(scale / (double)batch->global_count) : 0;
    record->loss_scale = replica->scale.scale;
    replica->scale_before = replica->scale;
    replica->overflow = replica->decided = false;
    replica->counts_whole = false;
    for (uint32_t i = 0; i < replica->graph->count_slots; i++)
        replica->found_before[i] = 0;
    ls_record_begin_step(replica, batch->global_count, together);
}

enum ls_status ls_replica_run(struct ls_replica *replica, const struct ls_replica_batch *batch,
                              uint64_t step, double learning_rate, float stop,
                              const struct ls_replica_hooks *hooks)
{
    enum ls_status status = LS_OK;
    begin_step(replica, batch, step, learning_rate, hooks->capturable);
    uint64_t offset = 0; // in the share
    for (uint32_t i = 0; !status && i < replica->microbatches; i++) {
        struct ls_replica_batch block = *batch;
        if (batch->block_counts) {
            block.count = batch->block_counts[i];
            block.example_offset = batch->block_offsets[i];
        } else {
            ls_microbatch(batch->count, replica->microbatches, i, &offset, &block.count);
            block.example_offset += offset;
        }
        if (block.count) {
            for (uint32_t input = 0; input < replica->graph->input_count; input++)
                block.inputs[input] = (const char *)batch->inputs[input] +
                                      offset * ls_input_example_bytes(replica, input);
            block.labels = (const char *)batch->labels + offset * replica->label_bytes;
            block.weights = batch->weights ? batch->weights + offset : NULL;
        }
        offset += block.count;
        status = run_block(replica, &block, i, stop, hooks);
    }
    ls_record_end_step(replica, hooks->capturable && replica->microbatches == 1);
    return status;
}

// ---- A step in parts ----

enum ls_status ls_replica_forward(struct ls_replica *replica, const struct ls_replica_batch *batch,
                                  uint64_t step, double learning_rate,
                                  const struct ls_replica_hooks *hooks)
{
    struct ls_pass *pass = &replica->parts;
    begin_step(replica, batch, step, learning_rate, false);
    enum ls_status status = begin_pass(replica, batch, 0, 0, hooks, pass);
    if (status)
        return status;
    pass->in_parts = true;
    pass->to = pass->entry->program ? pass->entry->program->forward_count : 0;
    if (pass->entry->program)
        return run_steps(pass, false);
    status = need_parameters(pass, 0);
    return status ? status : add_up_forward_zeros(pass);
}

enum ls_status ls_replica_backward(struct ls_replica *replica)
{
    struct ls_pass *pass = &replica->parts;
    const enum ls_status status = run_sections(pass);
    pass->entry->runs++;
    ls_record_end_step(replica, false);
    return status;
}

static enum ls_status launch_shadows(void *context)
{
    const struct ls_replica *replica = context;
    return ls_plan_refresh_shadows(replica->plan, replica->parameters, replica->shadows.memory,
                                   replica->scratch.memory);
}

enum ls_status ls_replica_refresh(struct ls_replica *replica)
{
    if (replica->plan->shadow_count == 0)
        return LS_OK;
    const uint64_t start = ls_clock_ns();
    const struct ls_section section = {
        .work = launch_shadows, .context = replica, .capture = &replica->shadows_capture};
    const enum ls_status status = ls_record_run(replica, &section);
    const uint64_t end = ls_clock_ns();
    replica->times.update_ns += end - start;
    ls_trace_span(&shadows_span, start, end, 0);
    return status;
}

enum ls_status ls_replica_read_step_stats(struct ls_replica *replica, float *out)
{
    return ls_device_copy(replica->device, ls_host_memory(out), replica->reduced,
                          LS_STEP_STATS_BYTES, NULL);
}

bool ls_replica_may_defer(const struct ls_replica *replica)
{
    return replica->guard && ls_deferred_offered(&replica->deferred);
}

enum ls_status ls_replica_put_step_stats(struct ls_replica *replica, uint64_t step)
{
    return ls_deferred_put(&replica->deferred, replica->reduced, step);
}

uint64_t ls_replica_pending_step_stats(const struct ls_replica *replica, uint64_t *step)
{
    const uint64_t pending = ls_deferred_pending(&replica->deferred);
    if (step && pending)
        *step = ls_deferred_next(&replica->deferred);
    return pending;
}

enum ls_status ls_replica_take_step_stats(struct ls_replica *replica, uint64_t deadline_ns,
                                          enum ls_status (*poll)(void *context), void *context,
                                          float *out)
{
    const enum ls_status status = ls_deferred_wait(&replica->deferred, deadline_ns, poll, context);
    if (!status)
        memcpy(out, ls_deferred_take(&replica->deferred), LS_STEP_STATS_BYTES);
    return status;
}

enum ls_status ls_replica_guard(struct ls_replica *replica)
{
    const struct ls_memory arguments[3] = {
        replica->reduced, replica->failed,
        ls_memory_at(replica->record, offsetof(struct ls_step_record, skip))};
    const struct ls_launch launch = {.struct_size = sizeof(launch),
                                     .argument_count = 3,
                                     .arguments = arguments,
                                     .scratch = replica->scratch.memory,
                                     .record = replica->record};
    ls_inside_about("guard of the loss");
    return ls_device_launch(replica->device, replica->guard, &launch);
}

static void add_sums(double *sums, const float *found)
{
    for (int i = 0; sums && i < LS_SUMS; i++)
        sums[i] += (double)found[i];
}

static enum ls_status take_sums(struct ls_replica *replica, double *sums)
{
    const enum ls_status status =
        ls_deferred_wait(&replica->deferred, replica->deadline_ns, NULL, NULL);
    if (status == LS_PEER_LOST)
        ls_error("replica",
                 "the device has not done a batch of an evaluation after %.1f s; it hangs, or "
                 "--deadline is too short for it",
                 (double)replica->deadline_ns * 1e-9);
    if (!status)
        add_sums(sums, ls_deferred_take(&replica->deferred));
    return status;
}

enum ls_status ls_replica_evaluate_end(struct ls_replica *replica, double *sums)
{
    enum ls_status status = LS_OK;
    while (!status && sums && ls_deferred_pending(&replica->deferred))
        status = take_sums(replica, sums);
    replica->deferred.taken = replica->deferred.put;
    return status;
}

// The sums of a batch, or where the device works on: of an earlier one.
static enum ls_status read_sums(struct ls_replica *replica, double *sums)
{
    float found[LS_STEP_STATS];
    if (ls_deferred_offered(&replica->deferred)) {
        const enum ls_status status =
            ls_deferred_put(&replica->deferred, replica->evaluation_sums, 0);
        if (status || ls_deferred_pending(&replica->deferred) <= LS_DEFERRED_STEPS)
            return status;
        return take_sums(replica, sums);
    }
    const enum ls_status status =
        ls_device_copy(replica->device, ls_host_memory(found), replica->evaluation_sums,
                       LS_SUMS * sizeof(float), NULL);
    if (!status)
        add_sums(sums, found);
    return status;
}

static enum ls_status run_forward(void *context)
{
    struct ls_program *program = context;
    return ls_program_run(program, 0, program->step_count, false);
}

// The program of a share that is not empty, on the stream.
static enum ls_status forward(struct ls_replica *replica, const struct ls_replica_batch *batch,
                              enum ls_purpose purpose, struct ls_replica_program **out)
{
    struct ls_replica_program *entry = ls_programs_find(replica, batch->count, purpose);
    if (!entry) {
        ls_error("replica", "no %s program was prepared for a share of %llu examples",
                 purpose == LS_PURPOSE_PREDICT ? "prediction" : "evaluation",
                 (unsigned long long)batch->count);
        return LS_FAILED;
    }
    *out = entry;
    const enum ls_status status = ls_input_write(replica, entry, batch, NULL);
    const struct ls_section section = {
        .work = run_forward, .context = entry->program, .capture = entry->captures};
    return status ? status : ls_record_run(replica, &section);
}

enum ls_status ls_replica_evaluate(struct ls_replica *replica, const struct ls_replica_batch *batch,
                                   double *sums)
{
    struct ls_replica_program *entry;
    if (batch->count == 0)
        return LS_OK;
    enum ls_status status = forward(replica, batch, LS_PURPOSE_EVALUATE, &entry);
    if (!status)
        status = ls_replica_count(replica);
    return status ? status : read_sums(replica, sums);
}

enum ls_status ls_replica_predict(struct ls_replica *replica, const struct ls_replica_batch *batch,
                                  float *out)
{
    const struct ls_shape *shape = &replica->graph->outputs[0]->shape;
    struct ls_replica_program *entry;
    if (batch->count == 0)
        return LS_OK;
    const enum ls_status status = forward(replica, batch, LS_PURPOSE_PREDICT, &entry);
    if (status)
        return status;
    const int64_t elements = ls_shape_elements(shape, (int64_t)batch->count);
    return ls_device_copy(replica->device, ls_host_memory(out),
                          ls_program_output(entry->program, 0), (uint64_t)elements * sizeof(float),
                          NULL);
}

enum ls_status ls_replica_find_not_finite(struct ls_replica *replica, char *text, size_t bytes)
{
    text[0] = '\0';
    if (!replica->current || !replica->current->program)
        return LS_OK;
    return ls_program_find_not_finite(replica->current->program, text, bytes);
}
