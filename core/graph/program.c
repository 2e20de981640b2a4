// SPDX-License-Identifier: Apache-2.0
// A finished program: its memory is bound, its steps are launched one after another.
#include "core/graph/build.h"

#include "core/base/clock.h"
#include "core/base/inside.h"

#include <stdlib.h>

// ---- Destroying ----

static void destroy_buffers(struct ls_program_buffers *buffers)
{
    for (uint32_t i = 0; buffers && i < buffers->value_count; i++) {
        if (!buffers->values[i].owned)
            continue;
        free(buffers->values[i].tensor->name);
        free(buffers->values[i].tensor);
    }
    if (buffers) {
        free(buffers->values);
        free(buffers->plans);
        free(buffers->launches);
        free(buffers->outputs);
        free(buffers->given);
        free(buffers->slots);
    }
    free(buffers);
}

void ls_program_destroy(struct ls_program *program)
{
    if (!program)
        return;
    for (uint32_t s = 0; s < program->step_count; s++) {
        ls_device_release_kernel(program->plan->device, program->steps[s].kernel);
        ls_tile_destroy(program, program->buffers->plans[s].tile);
        if (program->buffers->plans[s].over)
            ls_device_event_close(program->plan->device, program->buffers->plans[s].over);
    }
    destroy_buffers(program->buffers);
    free(program->steps);
    free(program->ready);
    free(program->written);
    free(program->needed);
    free(program->reads);
    free(program->totals);
    free(program);
}

// ---- Binding ----

static bool argument_used(const struct ls_program *program, uint32_t step, uint32_t argument)
{
    return argument >= program->steps[step].input_count ||
           (program->buffers->plans[step].used_inputs >> argument & 1) != 0;
}

// Which of the given tensors is in the memory of this value; UINT32_MAX: none does.
static uint32_t given_of(const struct ls_program *program, uint32_t value)
{
    const struct ls_program_buffers *buffers = program->buffers;
    const struct ls_value *root = &buffers->values[ls_value_memory(buffers, value)];
    const uint32_t labels = program->graph->input_count;
    const uint32_t weights = labels + program->graph->label_count;

    switch (root->home) {
    case LS_HOME_INPUT: return root->place;
    case LS_HOME_LABELS: return labels + root->place;
    case LS_HOME_WEIGHTS: return weights;
    case LS_HOME_SEED: return weights + 1 + root->place;
    default: return UINT32_MAX;
    }
}

// Lists the arguments that change with the batch; only counts them while there is no list.
static void find_slots(struct ls_program *program)
{
    struct ls_program_buffers *buffers = program->buffers;

    buffers->slot_count = 0;
    for (uint32_t s = 0; s < program->step_count; s++) {
        struct ls_program_step *step = &program->steps[s];
        for (uint32_t i = 0; i < step->input_count; i++) {
            const uint32_t given = given_of(program, buffers->plans[s].values[i]);
            if (!argument_used(program, s, i) || given == UINT32_MAX)
                continue;
            if (buffers->slots)
                buffers->slots[buffers->slot_count] =
                    (struct ls_batch_slot){&step->memory[i], given};
            buffers->slot_count++;
        }
    }
}

enum ls_status ls_program_list_slots(struct ls_program *program)
{
    struct ls_program_buffers *buffers = program->buffers;
    const struct ls_graph *graph = program->graph;
    const uint32_t given = graph->input_count + graph->label_count + 1 + graph->seed_count;

    find_slots(program);
    buffers->given = calloc(given, sizeof(*buffers->given));
    buffers->slots = calloc((size_t)buffers->slot_count + 1, sizeof(*buffers->slots));
    if (!buffers->given || !buffers->slots)
        return LS_OUT_OF_MEMORY;
    find_slots(program);
    return LS_OK;
}

static struct ls_memory memory_of(const struct ls_program *program, uint32_t id)
{
    const struct ls_program_buffers *buffers = program->buffers;
    const struct ls_value *value = &buffers->values[ls_value_memory(buffers, id)];
    const struct ls_bindings *bindings = &buffers->bindings;
    const struct ls_memory nowhere = {NULL, 0};
    struct ls_memory base = nowhere;

    switch (value->home) {
    case LS_HOME_ARENA: base = bindings->arena; break;
    case LS_HOME_PARAMETERS:
        base = bindings->parameters;
        if (bindings->parameters_at)
            return ls_memory_at(base, bindings->parameters_at[value->place]);
        break;
    case LS_HOME_GRADIENTS:
        base = bindings->gradients;
        if (bindings->gradients_at)
            return ls_memory_is_null(base)
                       ? nowhere
                       : ls_memory_at(base, bindings->gradients_at[value->place]);
        break;
    case LS_HOME_SHADOWS:
        base = bindings->shadows;
        for (uint32_t i = 0; bindings->shadows_at && i < program->plan->shadow_count; i++)
            if (program->plan->shadows[i].offset == value->offset)
                return ls_memory_at(base, bindings->shadows_at[i]);
        break;
    case LS_HOME_SUMS: return bindings->sums;
    case LS_HOME_TOTALS: base = bindings->totals; break;
    case LS_HOME_COUNTS: return ls_memory_at(bindings->counts, value->tensor->slot * sizeof(float));
    case LS_HOME_INPUT:
    case LS_HOME_LABELS:
    case LS_HOME_WEIGHTS:
    case LS_HOME_SEED: return buffers->given[given_of(program, id)];
    case LS_HOME_NONE: break;
    }
    return ls_memory_is_null(base) ? nowhere : ls_memory_at(base, value->offset);
}

void ls_program_bind(struct ls_program *program, const struct ls_bindings *bindings)
{
    struct ls_program_buffers *buffers = program->buffers;
    const struct ls_memory nowhere = {NULL, 0};

    buffers->bindings = *bindings;
    for (uint32_t s = 0; s < program->step_count; s++) {
        struct ls_program_step *step = &program->steps[s];
        struct ls_launch *launch = &buffers->launches[s];
        for (uint32_t i = 0; i < step->input_count + step->output_count; i++)
            step->memory[i] = argument_used(program, s, i)
                                  ? memory_of(program, buffers->plans[s].values[i])
                                  : nowhere;
        launch->record = bindings->record;
        launch->scratch = step->scratch_bytes > 0 && !ls_memory_is_null(bindings->arena)
                              ? ls_memory_at(bindings->arena, buffers->plans[s].scratch_offset)
                              : nowhere;
    }
}

// Tensors [first, first + count) of those that are given anew with each batch.
static void give(struct ls_program *program, uint32_t first, const struct ls_memory *from,
                 uint32_t count)
{
    const struct ls_program_buffers *buffers = program->buffers;

    for (uint32_t i = 0; i < count; i++)
        buffers->given[first + i] = from[i];
    for (uint32_t i = 0; i < buffers->slot_count; i++) {
        const struct ls_batch_slot *slot = &buffers->slots[i];
        if (slot->given >= first && slot->given - first < count)
            *slot->memory = buffers->given[slot->given];
    }
}

void ls_program_set_batch(struct ls_program *program, const struct ls_memory *inputs,
                          const struct ls_memory *labels)
{
    give(program, 0, inputs, program->graph->input_count);
    give(program, program->graph->input_count, labels, program->graph->label_count);
}

void ls_program_set_weights(struct ls_program *program, struct ls_memory weights)
{
    give(program, program->graph->input_count + program->graph->label_count, &weights, 1);
}

void ls_program_set_record(struct ls_program *program, struct ls_memory record)
{
    program->buffers->bindings.record = record;
    for (uint32_t s = 0; s < program->step_count; s++)
        program->buffers->launches[s].record = record;
}

void ls_program_set_seeds(struct ls_program *program, const struct ls_memory *seeds)
{
    const struct ls_graph *graph = program->graph;
    give(program, graph->input_count + graph->label_count + 1, seeds, graph->seed_count);
}

struct ls_memory ls_program_output(const struct ls_program *program, uint32_t index)
{
    return memory_of(program, program->buffers->outputs[index]);
}

// ---- Running ----

enum ls_status ls_program_run(struct ls_program *program, uint32_t from, uint32_t to, bool timing)
{
    const struct ls_parameter_plan *plan = program->plan;
    const bool timed = timing || ls_trace_on();
    int32_t status = LS_OK;

    program->buffers->branch_follows = false; // others may have put work on the own stream
    for (uint32_t s = from; s < to && !status; s++) {
        struct ls_program_step *step = &program->steps[s];
        status = program->branch_count ? ls_branch_before(program, s) : LS_OK;
        if (status)
            break;
        if (program->buffers->plans[s].tile) {
            status = ls_tile_first(program, s) == s ? ls_tile_run(program, s, timed) : LS_OK;
            continue;
        }
        const uint64_t before = timed ? ls_clock_ns() : 0;
        ls_inside_about(step->label);
        status = ls_device_launch(plan->device, step->kernel, &program->buffers->launches[s]);
        if (!status && program->branch_count)
            status = ls_branch_after(program, s);
        if (status || !timed)
            continue;
        const uint64_t after = ls_clock_ns();
        step->nanoseconds += after - before;
        ls_trace_span(step->trace, before, after, 0);
    }
    return (enum ls_status)status;
}
