// SPDX-License-Identifier: Apache-2.0
// A finished program: its memory is bound, its steps are launched one after another.
#include "core/graph/build.h"

#include "core/base/clock.h"
#include "core/base/inside.h"
#include "core/base/log.h"

#include <stdlib.h>

// ---- Creating ----

static void find_ready(struct ls_program *program)
{
    for (uint32_t s = 0; s < program->step_count; s++) {
        const struct ls_program_step *step = &program->steps[s];
        for (uint32_t i = step->input_count; i < step->input_count + step->output_count; i++) {
            const struct ls_value *value =
                &program->buffers->values[program->buffers->plans[s].values[i]];
            if (value->home == LS_HOME_GRADIENTS)
                program->ready[value->place] = s;
        }
    }
}

static void fill_launches(struct ls_program *program)
{
    for (uint32_t s = 0; s < program->step_count; s++)
        program->buffers->launches[s] = (struct ls_launch){.struct_size = sizeof(struct ls_launch),
                                                           .arguments = program->steps[s].pointers};
}

static void name_slices(struct ls_program *program)
{
    for (uint32_t s = 0; s < program->step_count; s++) {
        struct ls_program_step *step = &program->steps[s];
        const struct ls_trace_label label = {
            .category = step->backward ? "backward" : "forward",
            .name = step->label,
            .details = {{.name = "implementation", .text = step->implementation},
                        {.name = "examples", .number = (uint64_t)program->options.batch}},
        };
        step->trace = ls_trace_keep(&label);
    }
}

static bool argument_used(const struct ls_program *program, uint32_t step, uint32_t argument)
{
    return argument >= program->steps[step].input_count ||
           (program->buffers->plans[step].used_inputs >> argument & 1) != 0;
}

static enum ls_home argument_home(const struct ls_program *program, uint32_t step,
                                  uint32_t argument)
{
    const struct ls_program_buffers *buffers = program->buffers;
    return buffers->values[ls_value_memory(buffers, buffers->plans[step].values[argument])].home;
}

// Where the pointers stand that change with the batch. Counts when `out` is NULL.
static uint32_t find_slots(struct ls_program *program, enum ls_home home, void ***out)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < program->step_count; s++) {
        struct ls_program_step *step = &program->steps[s];
        for (uint32_t i = 0; i < step->input_count; i++) {
            if (!argument_used(program, s, i) || argument_home(program, s, i) != home)
                continue;
            if (out)
                out[count] = &step->pointers[i];
            count++;
        }
    }
    return count;
}

static enum ls_status make_tables(struct ls_program *program)
{
    struct ls_program_buffers *buffers = program->buffers;

    buffers->input_slots = find_slots(program, LS_HOME_INPUT, NULL);
    buffers->label_slots = find_slots(program, LS_HOME_LABELS, NULL);
    buffers->batch_slots = calloc((size_t)buffers->input_slots + buffers->label_slots + 1,
                                  sizeof(*buffers->batch_slots));
    buffers->launches = calloc((size_t)program->step_count + 1, sizeof(*buffers->launches));
    program->ready = calloc((size_t)program->plan->place_count + 1, sizeof(*program->ready));
    if (!buffers->batch_slots || !buffers->launches || !program->ready)
        return LS_OUT_OF_MEMORY;

    find_slots(program, LS_HOME_INPUT, buffers->batch_slots);
    find_slots(program, LS_HOME_LABELS, buffers->batch_slots + buffers->input_slots);
    fill_launches(program);
    name_slices(program);
    find_ready(program);
    while (program->forward_count < program->step_count &&
           !program->steps[program->forward_count].backward)
        program->forward_count++;
    program->output_layout = buffers->values[buffers->predictions].layout;
    return LS_OK;
}

static enum ls_status check_graph(const struct ls_graph *graph,
                                  const struct ls_program_options *options)
{
    const char *reason = NULL;

    if (!graph->input || !graph->output)
        reason = "has no layers";
    else if (options->training && (graph->operation_count == 0 ||
                                   !graph->operations[graph->operation_count - 1].backward))
        reason = "was not differentiated, so it cannot be trained";
    if (!reason)
        return LS_OK;
    ls_error(graph->name, "the model %s", reason);
    return LS_BAD_INPUT;
}

enum ls_status ls_program_create(struct ls_parameter_plan *plan, const struct ls_graph *graph,
                                 const struct ls_program_options *options, struct ls_program **out)
{
    struct ls_program_options settled = *options;
    struct ls_program *program;

    enum ls_status status = check_graph(graph, options);
    if (status)
        return status;
    if (!graph->sums)
        settled.predictions = true; // else there would be nothing to compute
    status = ls_build_program(plan, graph, &settled, false, &program);
    if (status)
        return status;
    status = ls_tile_steps(program);
    if (!status)
        status = ls_plan_memory(program);
    if (!status)
        status = make_tables(program);
    if (status) {
        ls_program_destroy(program);
        return status;
    }
    *out = program;
    return LS_OK;
}

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
        free(buffers->batch_slots);
    }
    free(buffers);
}

void ls_program_destroy(struct ls_program *program)
{
    if (!program)
        return;
    for (uint32_t s = 0; s < program->step_count; s++) {
        program->plan->ops->release_kernel(program->plan->device, program->steps[s].kernel);
        ls_tile_destroy(program, program->buffers->plans[s].tile);
    }
    destroy_buffers(program->buffers);
    free(program->steps);
    free(program->ready);
    free(program);
}

// ---- Binding ----

static void *address(const struct ls_program *program, uint32_t id)
{
    const struct ls_program_buffers *buffers = program->buffers;
    const struct ls_value *value = &buffers->values[ls_value_memory(buffers, id)];
    const struct ls_bindings *bindings = &buffers->bindings;
    char *base = NULL;

    switch (value->home) {
    case LS_HOME_ARENA: base = bindings->arena; break;
    case LS_HOME_PARAMETERS: base = bindings->parameters; break;
    case LS_HOME_GRADIENTS: base = bindings->gradients; break;
    case LS_HOME_SHADOWS: base = bindings->shadows; break;
    case LS_HOME_SUMS: return bindings->sums;
    case LS_HOME_INPUT: return (void *)(uintptr_t)buffers->input;
    case LS_HOME_LABELS: return (void *)(uintptr_t)buffers->labels;
    case LS_HOME_NONE: break;
    }
    return base ? base + value->offset : NULL;
}

void ls_program_bind(struct ls_program *program, const struct ls_bindings *bindings)
{
    struct ls_program_buffers *buffers = program->buffers;

    buffers->bindings = *bindings;
    for (uint32_t s = 0; s < program->step_count; s++) {
        struct ls_program_step *step = &program->steps[s];
        struct ls_launch *launch = &buffers->launches[s];
        for (uint32_t i = 0; i < step->input_count + step->output_count; i++)
            step->pointers[i] =
                argument_used(program, s, i) ? address(program, buffers->plans[s].values[i]) : NULL;
        launch->record = bindings->record;
        launch->scratch = step->scratch_bytes > 0 && bindings->arena
                              ? (char *)bindings->arena + buffers->plans[s].scratch_offset
                              : NULL;
    }
}

void ls_program_set_batch(struct ls_program *program, const void *input, const void *labels)
{
    struct ls_program_buffers *buffers = program->buffers;
    void ***slot = buffers->batch_slots;

    buffers->input = input;
    buffers->labels = labels;
    for (uint32_t i = 0; i < buffers->input_slots; i++)
        **slot++ = (void *)(uintptr_t)input;
    for (uint32_t i = 0; i < buffers->label_slots; i++)
        **slot++ = (void *)(uintptr_t)labels;
}

const void *ls_program_predictions(const struct ls_program *program)
{
    return address(program, program->buffers->predictions);
}

// ---- Running ----

static enum ls_status run_step(struct ls_program *program, uint32_t s, bool timing)
{
    const struct ls_parameter_plan *plan = program->plan;
    struct ls_program_step *step = &program->steps[s];

    if (program->buffers->plans[s].tile)
        return ls_tile_first(program, s) == s ? ls_tile_run(program, s, timing) : LS_OK;
    const uint64_t before = timing ? ls_clock_ns() : 0;
    ls_inside_about(step->label);
    const int32_t status =
        plan->ops->launch(plan->device, step->kernel, &program->buffers->launches[s]);
    if (status || !timing)
        return (enum ls_status)status;
    const uint64_t after = ls_clock_ns();
    step->nanoseconds += after - before;
    ls_trace_slice(step->trace, before, after, 0);
    return LS_OK;
}

enum ls_status ls_program_run(struct ls_program *program, uint32_t from, uint32_t to, bool timing)
{
    const bool timed = timing || ls_trace_on();
    enum ls_status status = LS_OK;

    for (uint32_t s = from; s < to && !status; s++)
        status = run_step(program, s, timed);
    return status;
}
