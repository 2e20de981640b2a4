// SPDX-License-Identifier: Apache-2.0
// A replica: its life, the blocks of a step, evaluations and predictions.
#include "core/replica/input.h"
#include "core/replica/programs.h"
#include "core/replica/microbatches.h"
#include "core/replica/shard_sums.h"

#include "core/base/clock.h"
#include "core/base/inside.h"
#include "core/base/log.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const struct ls_trace_label zero_span = {
    .category = "backward", .name = "zero gradients", .value = "bucket"};

// ---- Life ----

static enum ls_status open_device(struct ls_replica *replica,
                                  const struct ls_replica_options *options)
{
    const struct ls_device_options device = {.interface = options->ops,
                                             .host = options->host,
                                             .index = options->device_index,
                                             .threads = options->threads,
                                             .deadline_ns = options->deadline_ns,
                                             .lack = options->lack};
    return ls_device_open(&device, &replica->device);
}

// Events between two streams cost the host time, so what is not recorded uses the branch only where
// the user says so.
static enum ls_status open_branch(struct ls_replica *replica)
{
    if (!ls_device_takes_branches(replica->device))
        return LS_OK;
    const char *wanted = replica->host->option(replica->host, LS_BRANCHES_OPTION);
    const bool on = wanted ? strcmp(wanted, "off") != 0 : ls_replica_may_record(replica);
    const enum ls_status status = on ? ls_branch_open(replica->device, &replica->branch) : LS_OK;
    replica->branch_always = wanted && on;
    if (replica->branch)
        ls_branch_set(replica->branch, replica->branch_always);
    return status;
}

// A device without the operation is waited for in every step.
static enum ls_status prepare_guard(struct ls_replica *replica)
{
    struct ls_tensor_desc arguments[3];
    const struct ls_kernel_request request = {.struct_size = sizeof(request),
                                              .op = LS_OP_GUARD,
                                              .input_count = 1,
                                              .output_count = 2,
                                              .arguments = arguments};
    struct ls_kernel_answer answer = {.layouts = NULL};
    if (!ls_deferred_offered(&replica->deferred))
        return LS_OK;
    for (uint32_t i = 0; i < 3; i++)
        arguments[i] =
            (struct ls_tensor_desc){.dtype = i == 0 ? LS_F32 : LS_I32,
                                    .ndims = 1,
                                    .dims = {1},
                                    .layout = {.kind = LS_LAYOUT_PLAIN, .bytes = sizeof(float)}};
    const enum ls_status status =
        ls_device_prepare(replica->device, "guard of the loss", &request, &answer);
    if (status)
        return status == LS_UNSUPPORTED ? LS_OK : status;
    replica->guard = answer.kernel;
    ls_replica_need_scratch(replica, answer.scratch_bytes);
    return LS_OK;
}

enum ls_status ls_replica_open(const struct ls_replica_options *options, struct ls_replica **out)
{
    struct ls_replica *replica = calloc(1, sizeof(*replica));
    if (!replica)
        return LS_OUT_OF_MEMORY;
    replica->host = options->host;
    replica->rank = options->rank;
    replica->device_name = options->device_name ? options->device_name : "?";
    replica->graph = options->graph;
    replica->timing = options->timing;
    replica->deadline_ns = options->deadline_ns;
    replica->microbatches = 1;
    replica->host_record.seed = options->seed;
    if (options->optimizer)
        replica->optimizer = *options->optimizer;
    replica->scale = ls_loss_scale_begin(&replica->optimizer.loss_scale);
    for (uint32_t i = 0; i < options->graph->label_count; i++)
        replica->label_bytes += ls_input_label_bytes(options->graph, i);

    enum ls_status status = open_device(replica, options);
    if (!status) {
        ls_recorder_init(replica, options->host);
        status = ls_deferred_init(&replica->deferred, replica->device);
    }
    if (!status)
        status = open_branch(replica);
    if (!status)
        status = ls_plan_create(options->graph, replica->device, options->plan_batch,
                                options->plain, &replica->plan);
    if (!status)
        status = ls_buckets_create(replica->plan, options->first_bucket_bytes,
                                   options->bucket_bytes, &replica->buckets);
    if (!status)
        status = ls_updates_prepare(replica);
    // With a loss scale the host decides in each step whether it is skipped, so it waits for it.
    if (!status && replica->optimizer.op != LS_OP_NONE && !ls_optimizer_scales(&replica->optimizer))
        status = prepare_guard(replica);
    if (!status)
        status = ls_input_open(replica, options->byte_divisors);
    if (status) {
        ls_replica_destroy(replica);
        return status;
    }
    *out = replica;
    return LS_OK;
}

void ls_replica_destroy(struct ls_replica *replica)
{
    if (!replica)
        return;
    ls_replica_forget_recordings(replica);
    ls_shard_sums_destroy(replica);
    ls_programs_destroy(replica);
    ls_updates_release(replica);
    for (uint32_t i = 0; replica->adds && i < replica->buckets.count; i++)
        ls_device_release_kernel(replica->device, replica->adds[i]);
    free(replica->adds);
    free(replica->found);
    free(replica->found_before);
    free((void *)replica->counted);
    free(replica->measured);
    if (replica->guard)
        ls_device_release_kernel(replica->device, replica->guard);
    ls_deferred_finish(&replica->deferred);
    ls_buckets_finish(&replica->buckets);
    ls_plan_destroy(replica->plan);
    if (replica->device) {
        ls_input_close(replica);
        ls_branch_close(replica->branch);
        ls_seed_release(replica);
        ls_buffers_release(replica);
        ls_device_close(replica->device);
    }
    free(replica);
}

enum ls_status ls_replica_same_layouts(const struct ls_replica *replica, int64_t batch, bool *out)
{
    struct ls_parameter_plan *plan = NULL;
    const enum ls_status status =
        ls_plan_create(replica->graph, replica->device, batch, false, &plan);
    if (!status)
        *out = ls_plan_fingerprint(plan) == ls_plan_fingerprint(replica->plan);
    ls_plan_destroy(plan);
    return status;
}

void ls_replica_abandon(struct ls_replica *replica)
{
    if (replica)
        ls_device_abandon(replica->device);
}

// ---- Blocks and their sums ----

// An empty share has weight 0 in averages over the global batch. One that is averaged with nothing
// else (`own`) finds the moving statistics as they are, so that they stay.
static enum ls_status zero_gradients(struct ls_replica *replica, uint32_t bucket, bool own)
{
    const struct ls_bucket *range = &replica->buckets.list[bucket];
    const struct ls_memory gradients =
        ls_replica_bucket_memory(replica, LS_BUFFER_GRADIENTS, bucket);
    const uint64_t start = ls_clock_ns(), all = replica->plan->statistics_bytes;
    const uint64_t left = all > range->offset ? all - range->offset : 0;
    const uint64_t statistics = left < range->bytes ? left : range->bytes;
    enum ls_status status =
        range->bytes ? ls_device_zero(replica->device, gradients, range->bytes, NULL) : LS_OK;
    if (!status && own && statistics)
        status = ls_device_copy(replica->device, gradients,
                                ls_replica_bucket_memory(replica, LS_BUFFER_PARAMETERS, bucket),
                                statistics, NULL);
    ls_trace_span(&zero_span, start, ls_clock_ns(), bucket);
    return status;
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

enum ls_status ls_replica_count_block(struct ls_replica *replica, const struct ls_pass *pass)
{
    const uint32_t slots = replica->graph->count_slots;
    const bool nothing = !pass->program && !replica->counts_whole; // of an empty block
    if (replica->shard_sums && !pass->last) // the last has those of all shards
        return LS_OK;
    const enum ls_status status = slots == 0 || nothing ? LS_OK : read_counts(replica);
    for (uint32_t i = 0; !status && i < slots; i++) {
        replica->found_before[i] += nothing ? 0 : (double)replica->found[i];
        if (pass->last)
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

// ---- A step ----

void ls_replica_begin_step(struct ls_replica *replica, const struct ls_replica_batch *batch,
                           uint64_t step, double learning_rate, enum ls_step_recording recording)
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
    ls_recorder_begin_step(replica, batch->global_count, recording);
}

uint32_t ls_replica_block_count(const struct ls_replica *replica)
{
    return replica->microbatches;
}

struct ls_replica_batch ls_replica_block(const struct ls_replica *replica,
                                         const struct ls_replica_batch *batch, uint32_t index)
{
    struct ls_replica_batch block = *batch;
    uint64_t offset = 0; // in the share
    if (batch->block_counts) {
        for (uint32_t i = 0; i < index; i++)
            offset += batch->block_counts[i];
        block.count = batch->block_counts[index];
        block.example_offset = batch->block_offsets[index];
    } else {
        ls_microbatch(batch->count, replica->microbatches, index, &offset, &block.count);
        block.example_offset += offset;
    }
    if (block.count == 0)
        return block;
    for (uint32_t i = 0; i < replica->graph->input_count; i++)
        block.inputs[i] =
            (const char *)batch->inputs[i] + offset * ls_input_example_bytes(replica, i);
    for (uint32_t i = 0; i < replica->graph->label_count; i++)
        block.labels[i] =
            (const char *)batch->labels[i] + offset * ls_input_label_bytes(replica->graph, i);
    block.weights = batch->weights ? batch->weights + offset : NULL;
    return block;
}

// The caches of the first step of a program in a fit were cold: the times of its kernels are
// forgotten when the second begins.
static void warm_up(const struct ls_replica *replica, struct ls_replica_program *entry)
{
    if (!entry->first_step)
        entry->first_step = replica->steps;
    if (entry->warm || entry->first_step == replica->steps)
        return;
    entry->warm = true;
    ls_programs_forget_times(entry);
}

enum ls_status ls_replica_begin_block(struct ls_replica *replica,
                                      const struct ls_replica_batch *batch, uint32_t index,
                                      bool stop, const struct ls_wait *wait, struct ls_pass *out)
{
    const struct ls_replica_batch block = ls_replica_block(replica, batch, index);
    const struct ls_recorder *recorder = &replica->recorder;
    const double all = (double)block.global_count;
    struct ls_replica_program *entry =
        block.count ? ls_programs_find(replica, block.count, LS_PURPOSE_TRAIN) : &replica->empty;
    if (!entry || !entry->captures) {
        ls_error("replica", "no program was prepared for a share of %llu examples",
                 (unsigned long long)block.count);
        return LS_FAILED;
    }
    const bool last = index + 1 == replica->microbatches;
    const uint32_t which =
        recorder->kind * LS_PASS_COUNT + ls_microbatches_pass(index, replica->microbatches);
    struct ls_capture *captures = entry->captures + which * (replica->buckets.count + 1);
    replica->steps += index == 0;
    warm_up(replica, entry);
    // By numbers that all replicas see alike, because they record together.
    enum ls_status status =
        ls_input_choose(replica, replica->host_record.step * replica->microbatches + index);
    if (status)
        return status;
    *out = (struct ls_pass){
        .program = entry->program,
        .ends = entry->bucket_ends,
        .needs = entry->bucket_needs,
        .writes = entry->bucket_writes,
        .walk = replica->slots[LS_HELD_PARAMETERS].count ? &replica->walks[0] : NULL,
        .walk_starts = entry->walk_starts,
        .walk_needs = entry->walk_needs,
        .captures = recorder->as_it_is ? NULL : captures,
        .block = index,
        .first = index == 0,
        .last = last,
        .own = last && block.global_count == 0,
        .timed = replica->timing,
        .replays = !recorder->as_it_is && captures->recordings[replica->set],
    };
    replica->host_record.example_offset = block.example_offset;
    replica->host_record.share_weight = all > 0 ? (float)((double)block.count / all) : 0;
    replica->current = entry;
    const float step_stats[LS_STEP_STATS] = {[LS_STEP_STATS_STOP] = last && stop ? 1 : 0};
    status = ls_input_write(replica, entry->program ? entry : NULL, &block, step_stats, wait);
    if (status || entry->program || !replica->plan->total_count)
        return status;
    return ls_device_zero(replica->device, replica->totals, replica->plan->total_bytes, NULL);
}

enum ls_status ls_replica_end_bucket(struct ls_replica *replica, const struct ls_pass *pass,
                                     uint32_t bucket)
{
    const enum ls_status status =
        pass->program ? LS_OK : zero_gradients(replica, bucket, pass->own);
    return status || replica->shard_sums ? status
                                         : ls_microbatches_add(replica, pass->block, bucket);
}

void ls_replica_end_block(struct ls_replica *replica, const struct ls_pass *pass)
{
    replica->current->runs += !pass->replays;
}

// Others wrote the stop, perhaps, which is in `reduced` now.
static void note_stop(struct ls_replica *replica, const float *step_stats)
{
    replica->may_stop = replica->may_stop || step_stats[LS_STEP_STATS_STOP] > 0;
}

enum ls_status ls_replica_read_step_stats(struct ls_replica *replica, float *out)
{
    const enum ls_status status = ls_device_copy(replica->device, ls_host_memory(out),
                                                 replica->reduced, LS_STEP_STATS_BYTES, NULL);
    if (!status)
        note_stop(replica, out);
    return status;
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

enum ls_status ls_replica_take_step_stats(struct ls_replica *replica, const struct ls_wait *wait,
                                          float *out)
{
    const enum ls_status status = ls_deferred_wait(&replica->deferred, wait);
    if (status)
        return status;
    memcpy(out, ls_deferred_take(&replica->deferred), LS_STEP_STATS_BYTES);
    note_stop(replica, out);
    return LS_OK;
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

static enum ls_status say_late(const struct ls_replica *replica, enum ls_status status)
{
    if (status == LS_PEER_LOST)
        ls_error("replica",
                 "the device has not done a batch of an evaluation after %.1f s; it hangs, or "
                 "--deadline is too short for it",
                 (double)replica->deadline_ns * 1e-9);
    return status;
}

static enum ls_status take_sums(struct ls_replica *replica, double *sums)
{
    const struct ls_wait wait = {.deadline_ns = replica->deadline_ns};
    const enum ls_status status = say_late(replica, ls_deferred_wait(&replica->deferred, &wait));
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

enum ls_status ls_replica_begin_forward(struct ls_replica *replica,
                                        const struct ls_replica_batch *batch,
                                        enum ls_purpose purpose, struct ls_pass *out)
{
    const struct ls_walk *walk =
        replica->slots[LS_HELD_PARAMETERS].count ? &replica->walks[1] : NULL;
    *out = (struct ls_pass){.walk = walk, .first = true, .last = true};
    if (batch->count == 0)
        return LS_OK;
    struct ls_replica_program *entry = ls_programs_find(replica, batch->count, purpose);
    if (!entry) {
        ls_error("replica", "no %s program was prepared for a share of %llu examples",
                 purpose == LS_PURPOSE_PREDICT ? "prediction" : "evaluation",
                 (unsigned long long)batch->count);
        return LS_FAILED;
    }
    out->program = entry->program;
    out->walk_starts = entry->walk_starts;
    out->walk_needs = entry->walk_needs;
    out->captures = entry->captures;
    const struct ls_wait wait = {.deadline_ns = replica->deadline_ns};
    const enum ls_status status = ls_input_choose(replica, replica->set + 1);
    return status ? status : say_late(replica, ls_input_write(replica, entry, batch, NULL, &wait));
}

enum ls_status ls_replica_end_evaluate(struct ls_replica *replica, double *sums)
{
    const enum ls_status status = ls_replica_count(replica);
    return status ? status : read_sums(replica, sums);
}

enum ls_status ls_replica_end_predict(struct ls_replica *replica, const struct ls_pass *pass,
                                      uint64_t count, float *out)
{
    const struct ls_graph *graph = replica->graph;
    const uint64_t row = ls_graph_output_elements(graph);
    enum ls_status status = LS_OK;
    if (graph->output_count == 1)
        return ls_device_copy(replica->device, ls_host_memory(out),
                              ls_program_output(pass->program, 0), count * row * sizeof(float),
                              NULL);
    // Each output by itself, then to its place in the rows.
    float *values = malloc(count * row * sizeof(*values));
    if (!values)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0, at = 0; !status && i < graph->output_count; i++) {
        const uint64_t elements = (uint64_t)ls_shape_elements(&graph->outputs[i]->shape, 1);
        status = ls_device_copy(replica->device, ls_host_memory(values),
                                ls_program_output(pass->program, i),
                                count * elements * sizeof(float), NULL);
        for (uint64_t k = 0; !status && k < count; k++)
            memcpy(out + k * row + at, values + k * elements, elements * sizeof(float));
        at += (uint32_t)elements;
    }
    free(values);
    return status;
}

// The program of a share that is not empty, on the stream.
static enum ls_status forward(struct ls_replica *replica, const struct ls_replica_batch *batch,
                              enum ls_purpose purpose, struct ls_pass *pass)
{
    const enum ls_status status = ls_replica_begin_forward(replica, batch, purpose, pass);
    return status ? status : ls_capture_run(replica, pass->captures, run_forward, pass->program);
}

enum ls_status ls_replica_evaluate(struct ls_replica *replica, const struct ls_replica_batch *batch,
                                   double *sums)
{
    struct ls_pass pass;
    if (batch->count == 0)
        return LS_OK;
    const enum ls_status status = forward(replica, batch, LS_PURPOSE_EVALUATE, &pass);
    return status ? status : ls_replica_end_evaluate(replica, sums);
}

enum ls_status ls_replica_predict(struct ls_replica *replica, const struct ls_replica_batch *batch,
                                  float *out)
{
    struct ls_pass pass;
    if (batch->count == 0)
        return LS_OK;
    const enum ls_status status = forward(replica, batch, LS_PURPOSE_PREDICT, &pass);
    return status ? status : ls_replica_end_predict(replica, &pass, batch->count, out);
}

enum ls_status ls_replica_output(const struct ls_replica *replica, uint64_t count,
                                 enum ls_purpose purpose, struct ls_memory *out)
{
    const struct ls_replica_program *entry = ls_programs_find(replica, count, purpose);
    if (!entry) {
        ls_error("replica", "no program was prepared for a share of %llu examples",
                 (unsigned long long)count);
        return LS_FAILED;
    }
    *out = ls_program_output(entry->program, 0);
    return LS_OK;
}

enum ls_status ls_replica_find_not_finite(struct ls_replica *replica, char *text, size_t bytes)
{
    text[0] = '\0';
    if (!replica->current || !replica->current->program ||
        replica->slots[LS_HELD_PARAMETERS].count) // what the program reads is there no more
        return LS_OK;
    return ls_program_find_not_finite(replica->current->program, text, bytes);
}

// ---- What it is made of ----

struct ls_device *ls_replica_device(const struct ls_replica *replica)
{
    return replica->device;
}

const char *ls_replica_device_name(const struct ls_replica *replica)
{
    return replica->device_name;
}

const struct ls_parameter_plan *ls_replica_plan(const struct ls_replica *replica)
{
    return replica->plan;
}

const struct ls_buckets *ls_replica_buckets(const struct ls_replica *replica)
{
    return &replica->buckets;
}

uint32_t ls_replica_rank(const struct ls_replica *replica)
{
    return replica->rank;
}

struct ls_memory ls_replica_step_record(const struct ls_replica *replica)
{
    return replica->record;
}

uint64_t ls_replica_update_ns(const struct ls_replica *replica)
{
    return replica->update_ns;
}

void ls_replica_bytes(const struct ls_replica *replica, uint64_t *all, uint64_t *activations)
{
    *all = replica->device_bytes;
    *activations = replica->arena_bytes;
}
