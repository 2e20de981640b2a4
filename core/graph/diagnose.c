// SPDX-License-Identifier: Apache-2.0
// Finding where a value stopped being finite: measures parameters, then every output of a forward
// run.
#include "core/graph/build.h"

#include <stdio.h>

// Reads a result of LS_OP_MEASURE: sum of squares, number of elements that are not finite.
static enum ls_status launch_measure(const struct ls_parameter_plan *plan,
                                     const struct ls_kernel_answer *answer, struct ls_memory data,
                                     struct ls_memory record, double *not_finite)
{
    double result[2] = {0, 0};
    struct ls_memory scratch = {NULL, 0};
    const struct ls_memory measured = ls_device_allocate(plan->device, sizeof(result));
    if (answer->scratch_bytes > 0)
        scratch = ls_device_allocate(plan->device, answer->scratch_bytes);
    enum ls_status status = LS_OUT_OF_MEMORY;

    if (!ls_memory_is_null(measured) &&
        (!ls_memory_is_null(scratch) || answer->scratch_bytes == 0)) {
        const struct ls_memory arguments[2] = {data, measured};
        const struct ls_launch launch = {.struct_size = sizeof(launch),
                                         .argument_count = 2,
                                         .arguments = arguments,
                                         .scratch = scratch,
                                         .record = record};
        status = ls_device_launch(plan->device, answer->kernel, &launch);
        if (!status)
            status = ls_device_copy(plan->device, ls_host_memory(result), measured, sizeof(result),
                                    NULL);
    }
    ls_device_release(plan->device, measured);
    ls_device_release(plan->device, scratch);
    if (!status)
        *not_finite = result[1];
    return status;
}

// Padding is zero, so the buffer is measured as it is.
static enum ls_status is_finite(const struct ls_program *program, struct ls_memory data,
                                uint64_t bytes, bool *out)
{
    const struct ls_parameter_plan *plan = program->plan;
    const struct ls_tensor_desc arguments[2] = {
        {.dtype = LS_F32,
         .ndims = 1,
         .dims = {(int64_t)(bytes / sizeof(float))},
         .layout = {.kind = LS_LAYOUT_PLAIN, .bytes = bytes}},
        {.dtype = LS_F64,
         .ndims = 1,
         .dims = {2},
         .layout = {.kind = LS_LAYOUT_PLAIN, .bytes = 16}},
    };
    struct ls_kernel_answer answer;
    double not_finite = 0;

    *out = true;
    if (ls_memory_is_null(data) || bytes < sizeof(float))
        return LS_OK;
    enum ls_status status = ls_prepare_fixed(plan, LS_OP_MEASURE, arguments, 1, 1, &answer);
    if (status)
        return status;
    status = launch_measure(plan, &answer, data, program->buffers->bindings.record, &not_finite);
    ls_device_release_kernel(plan->device, answer.kernel);
    *out = not_finite == 0;
    return status;
}

// Through a float32 copy.
static enum ls_status halves_finite(const struct ls_program *program, uint32_t dtype,
                                    struct ls_memory data, uint64_t bytes, bool *out)
{
    const struct ls_parameter_plan *plan = program->plan;
    struct ls_tensor_desc half = {
        .dtype = dtype, .ndims = 1, .dims = {(int64_t)(bytes / ls_dtype_bytes(dtype))}};
    struct ls_tensor_desc wide = half;
    struct ls_kernel_answer answer;

    *out = true;
    if (half.dims[0] == 0)
        return LS_OK;
    wide.dtype = LS_F32;
    half.layout = ls_plain_layout(&half);
    wide.layout = ls_plain_layout(&wide);
    enum ls_status status = ls_prepare_convert(plan, "diagnosis", &half, &wide, &answer);
    if (status)
        return status;
    struct ls_memory scratch = {NULL, 0};
    const struct ls_memory copy = ls_device_allocate(plan->device, wide.layout.bytes);
    if (answer.scratch_bytes > 0)
        scratch = ls_device_allocate(plan->device, answer.scratch_bytes);
    const struct ls_memory arguments[2] = {data, copy};
    const struct ls_launch launch = {.struct_size = sizeof(launch),
                                     .argument_count = 2,
                                     .arguments = arguments,
                                     .scratch = scratch,
                                     .record = program->buffers->bindings.record};
    status = LS_OUT_OF_MEMORY;
    if (!ls_memory_is_null(copy) && (!ls_memory_is_null(scratch) || answer.scratch_bytes == 0))
        status = ls_device_launch(plan->device, answer.kernel, &launch);
    if (!status)
        status = is_finite(program, copy, wide.layout.bytes, out);
    ls_device_release_kernel(plan->device, answer.kernel);
    ls_device_release(plan->device, copy);
    ls_device_release(plan->device, scratch);
    return status;
}

// In the order in which layers added them.
static enum ls_status find_parameter(const struct ls_program *program, const char **out)
{
    const struct ls_parameter_plan *plan = program->plan;
    const struct ls_memory flat = program->buffers->bindings.parameters;

    *out = NULL;
    for (uint32_t i = 0; i < program->graph->parameter_count; i++) {
        const uint32_t id = program->graph->parameters[i]->id;
        const struct ls_parameter_place *place = &plan->places[program->buffers->values[id].place];
        bool finite;
        enum ls_status status =
            is_finite(program, ls_memory_at(flat, place->offset), place->bytes, &finite);
        if (status)
            return status;
        if (!finite) {
            *out = place->parameter->name;
            return LS_OK;
        }
    }
    return LS_OK;
}

static enum ls_status find_input(const struct ls_program *program, const char **out)
{
    const struct ls_graph *graph = program->graph;
    enum ls_status status = LS_OK;
    bool finite = true;

    *out = NULL;
    for (uint32_t i = 0; i < graph->input_count && !status && finite; i++) {
        const uint64_t bytes = program->buffers->values[graph->inputs[i]->id].layout.bytes;
        if (graph->inputs[i]->dtype != LS_F32)
            continue;
        status = is_finite(program, program->buffers->given[i], bytes, &finite);
        *out = finite ? NULL : graph->inputs[i]->name;
    }
    return status;
}

static enum ls_status outputs_finite(const struct ls_program *program, uint32_t s, bool *out)
{
    const struct ls_program_step *step = &program->steps[s];

    *out = true;
    for (uint32_t i = step->input_count; i < step->input_count + step->output_count && *out; i++) {
        const struct ls_value *value =
            &program->buffers->values[program->buffers->plans[s].values[i]];
        const uint32_t dtype = value->tensor->dtype;
        const bool half = ls_type_is_half(dtype);
        if ((dtype != LS_F32 && !half) || value->tensor->role == LS_ROLE_SAVED ||
            value->tile_bytes > 0)
            continue;
        enum ls_status status =
            half ? halves_finite(program, dtype, step->memory[i], value->layout.bytes, out)
                 : is_finite(program, step->memory[i], value->layout.bytes, out);
        if (status)
            return status;
    }
    return LS_OK;
}

// What its first input has in it: the second one is a parameter, and those are finite.
static const char *why_not_finite(uint32_t op)
{
    switch (op) {
    case LS_OP_GATHER_ROWS: return ": an id in the data is not a row of the table";
    case LS_OP_LOOKUP: return ": a number in the data is not in the vocabulary";
    case LS_OP_ENCODE: return ": an id in the data is negative";
    default: return "";
    }
}

// `text` stays as it is where all are finite.
static enum ls_status find_step(struct ls_program *program, char *text, size_t bytes)
{
    for (uint32_t s = 0; s < program->forward_count; s++) {
        bool finite;
        enum ls_status status = ls_program_join(program, ls_program_run(program, s, s + 1, false));
        if (!status)
            status = outputs_finite(program, s, &finite);
        if (status)
            return status;
        if (!finite) {
            const struct ls_program_step *step = &program->steps[s];
            snprintf(text, bytes, "%s%s", step->label,
                     step->operation ? why_not_finite(step->operation->op) : "");
            return LS_OK;
        }
    }
    return LS_OK;
}

enum ls_status ls_program_find_not_finite(struct ls_program *program, char *text, size_t bytes)
{
    const char *found;
    enum ls_status status = find_parameter(program, &found);

    if (!status && !found)
        status = find_input(program, &found);
    if (status)
        return status;
    snprintf(text, bytes, "%s", found ? found : "");
    return found ? LS_OK : find_step(program, text, bytes);
}
