// SPDX-License-Identifier: Apache-2.0
// A loss and its gradient as one step, where the device makes one kernel of both: predictions are
// read once, and what the loss saves for its gradient is nowhere in memory.
#include "core/graph/build.h"

#include <stdio.h>
#include <string.h>

#define KERNELS 2
#define MOST_VALUES (KERNELS * LS_MAX_ARGUMENTS)

struct segment {
    struct ls_kernel_request requests[KERNELS];
    struct ls_tensor_desc descs[KERNELS][LS_MAX_ARGUMENTS];
    uint32_t numbers[KERNELS][LS_MAX_ARGUMENTS];
    struct ls_segment_kernel kernels[KERNELS];
    struct ls_segment_value values[MOST_VALUES];
    uint32_t ids[MOST_VALUES]; // of the program's values
    uint32_t count;
};

// ---- Which steps ----

static const struct ls_step_plan *plan_of(const struct ls_program *program, uint32_t step)
{
    return &program->buffers->plans[step];
}

// The step that makes the gradient of the loss; step_count: none does.
static uint32_t find_gradient(const struct ls_program *program, uint32_t loss)
{
    const struct ls_operation *operations = program->graph->operations;
    uint32_t s = loss + 1;
    for (; s < program->step_count; s++) {
        const struct ls_operation *operation = program->steps[s].operation;
        if (operation && operation->backward && operation->forward >= 0 &&
            &operations[operation->forward] == program->steps[loss].operation)
            break;
    }
    return s;
}

static uint32_t find_loss(const struct ls_program *program)
{
    uint32_t s = 0;
    while (s < program->step_count &&
           !(program->steps[s].operation && !program->steps[s].backward &&
             ls_operation_has(program->steps[s].operation->op, LS_TRAIT_LOSS)))
        s++;
    return s;
}

// ---- What the device is asked for ----

// A value that flows between them, or in or out of both.
static uint32_t add_value(struct segment *segment, uint32_t id, const struct ls_tensor_desc *desc)
{
    uint32_t i = 0;
    while (i < segment->count && segment->ids[i] != id)
        i++;
    if (i < segment->count)
        return i;
    segment->ids[i] = id;
    segment->values[i] = (struct ls_segment_value){.desc = *desc, .argument = LS_SEGMENT_INSIDE};
    segment->count++;
    return i;
}

static void add_kernel(const struct ls_program *program, uint32_t s, uint32_t index,
                       struct segment *segment)
{
    const struct ls_program_step *step = &program->steps[s];
    const struct ls_step_plan *plan = plan_of(program, s);
    for (uint32_t i = 0; i < step->input_count + step->output_count; i++) {
        struct ls_tensor_desc *desc = &segment->descs[index][i];
        ls_describe_tensor(step->tensors[i], program->options.batch, desc);
        desc->layout = program->buffers->values[plan->values[i]].layout;
        segment->numbers[index][i] = add_value(segment, plan->values[i], desc);
    }
    segment->requests[index] =
        (struct ls_kernel_request){.struct_size = sizeof(segment->requests[index]),
                                   .op = step->operation->op,
                                   .attributes = step->attributes,
                                   .input_count = step->input_count,
                                   .output_count = step->output_count,
                                   .accumulate = plan->accumulate,
                                   .arguments = segment->descs[index]};
    segment->kernels[index] = (struct ls_segment_kernel){.request = &segment->requests[index],
                                                         .values = segment->numbers[index]};
}

// ---- The step of both ----

// Inputs of the loss, its sums, and the gradient.
static uint32_t arguments_of(const struct ls_program *program, uint32_t loss, uint32_t gradient,
                             uint32_t *out)
{
    const struct ls_program_step *steps = program->steps;
    const uint32_t count = steps[loss].input_count + 1;
    memcpy(out, plan_of(program, loss)->values, count * sizeof(*out));
    out[count] = plan_of(program, gradient)->values[steps[gradient].input_count];
    return count + 1;
}

static void join(struct ls_program *program, uint32_t loss, uint32_t gradient,
                 const struct ls_kernel_answer *answer)
{
    struct ls_program_step *steps = program->steps, *step = &steps[loss];
    struct ls_step_plan *plans = program->buffers->plans, *plan = &plans[loss];
    const uint32_t behind = program->step_count - gradient - 1;
    ls_device_release_kernel(program->plan->device, step->kernel);
    ls_device_release_kernel(program->plan->device, steps[gradient].kernel);
    const uint32_t count = arguments_of(program, loss, gradient, plan->values);
    step->kernel = answer->kernel;
    step->scratch_bytes = answer->scratch_bytes;
    step->output_count = 2;
    step->tensors[count - 1] = steps[gradient].tensors[steps[gradient].input_count];
    snprintf(step->implementation, sizeof(step->implementation), "%.*s",
             (int)sizeof(step->implementation) - 1, answer->implementation);
    const size_t length = strlen(step->label);
    snprintf(step->label + length, sizeof(step->label) - length, " + gradient");
    plan->used_inputs = (UINT32_C(1) << step->input_count) - 1;
    plan->in_place = 0;
    memmove(&steps[gradient], &steps[gradient + 1], behind * sizeof(*steps));
    memmove(&plans[gradient], &plans[gradient + 1], behind * sizeof(*plans));
    program->step_count--;
}

enum ls_status ls_join_loss(struct ls_program *program)
{
    struct segment segment = {.count = 0};
    uint32_t arguments[LS_MAX_ARGUMENTS];
    const uint32_t loss = find_loss(program), gradient = find_gradient(program, loss);
    if (gradient >= program->step_count || !ls_device_takes_segments(program->plan->device))
        return LS_OK;
    add_kernel(program, loss, 0, &segment);
    add_kernel(program, gradient, 1, &segment);
    const uint32_t count = arguments_of(program, loss, gradient, arguments);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t value = add_value(&segment, arguments[i], &segment.descs[0][0]);
        if (segment.values[value].argument != LS_SEGMENT_INSIDE)
            return LS_OK; // predictions that are their own targets
        segment.values[value].argument = i;
    }
    const struct ls_segment_request request = {.struct_size = sizeof(request),
                                               .kernel_count = KERNELS,
                                               .kernels = segment.kernels,
                                               .values = segment.values,
                                               .value_count = segment.count,
                                               .argument_count = count};
    struct ls_kernel_answer answer = {.layouts = NULL};
    const enum ls_status status = ls_device_prepare_segment(
        program->plan->device, "loss and its gradient", &request, &answer);
    if (!status)
        join(program, loss, gradient, &answer);
    return status == LS_UNSUPPORTED ? LS_OK : status;
}
