// SPDX-License-Identifier: Apache-2.0
// Steps that no operation of the graph asks for: conversions between layouts, shadows of
// parameters, and the addition of a parameter's second gradient.
#include "core/graph/build.h"

#include "core/base/inside.h"
#include "core/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum ls_status ls_prepare_fixed(const struct ls_parameter_plan *plan, uint32_t op,
                                const struct ls_tensor_desc *arguments, uint32_t input_count,
                                uint32_t output_count, struct ls_kernel_answer *out)
{
    const struct ls_kernel_request request = {.struct_size = sizeof(request),
                                              .op = op,
                                              .input_count = input_count,
                                              .output_count = output_count,
                                              .arguments = arguments};

    out->layouts = NULL;
    return ls_device_prepare(plan->device, ls_op_name(op), &request, out);
}

enum ls_status ls_prepare_convert(const struct ls_parameter_plan *plan, const char *name,
                                  const struct ls_tensor_desc *from,
                                  const struct ls_tensor_desc *to, struct ls_kernel_answer *out)
{
    const struct ls_tensor_desc arguments[2] = {*from, *to};
    enum ls_status status = ls_prepare_fixed(plan, LS_OP_CONVERT, arguments, 1, 1, out);
    if (status)
        ls_error("device", "'%s' cannot be converted into the layout that a kernel wants: %s", name,
                 ls_status_text(status));
    return status;
}

static void describe_value(const struct ls_build *build, uint32_t id, struct ls_tensor_desc *out)
{
    const struct ls_value *value = &build->buffers->values[id];

    ls_describe_tensor(value->tensor, build->options.batch, out);
    out->layout = value->layout;
}

// A step beside the node's own; takes the answer's kernel over, also on failure.
static enum ls_status add_step(struct ls_build *build, const struct ls_node *node, const char *what,
                               const uint32_t *values, uint32_t input_count,
                               const struct ls_kernel_answer *answer)
{
    enum ls_status status = ls_build_step(build);
    if (status) {
        ls_device_release_kernel(build->plan->device, answer->kernel);
        return status;
    }
    const uint32_t last = build->program->step_count - 1;
    struct ls_program_step *step = &build->program->steps[last];
    struct ls_step_plan *plan = &build->buffers->plans[last];
    char label[64];

    step->kernel = answer->kernel;
    step->input_count = input_count;
    step->output_count = 1;
    step->scratch_bytes = answer->scratch_bytes;
    step->backward = node->source->backward;
    step->slow = answer->slow != 0;
    ls_label_step(build, node, label, sizeof(label));
    snprintf(step->label, sizeof(step->label), "%.*s %s",
             (int)(sizeof(step->label) - 1 - strlen(what) - 1), label, what);
    snprintf(step->implementation, sizeof(step->implementation), "%.*s",
             (int)sizeof(step->implementation) - 1, answer->implementation);
    for (uint32_t i = 0; i <= input_count; i++) {
        step->tensors[i] = build->buffers->values[values[i]].tensor;
        plan->values[i] = values[i];
    }
    plan->used_inputs = answer->used_inputs;
    plan->in_place = answer->in_place;
    return LS_OK;
}

enum ls_status ls_insert_convert(struct ls_build *build, const struct ls_node *node, uint32_t from,
                                 uint32_t to)
{
    const struct ls_tensor *tensor = build->buffers->values[to].tensor;
    const uint32_t values[2] = {from, to};
    struct ls_tensor_desc source, target;
    struct ls_kernel_answer answer;

    describe_value(build, from, &source);
    describe_value(build, to, &target);
    enum ls_status status =
        ls_prepare_convert(build->plan, tensor->name, &source, &target, &answer);
    if (!status)
        status = add_step(build, node, "convert", values, 1, &answer);
    if (status)
        return status;
    struct ls_program_step *step = &build->program->steps[build->program->step_count - 1];
    step->converts_activation =
        build->buffers->values[from].home != LS_HOME_PARAMETERS &&
        (!tensor->gradient_of || tensor->gradient_of->role != LS_ROLE_PARAMETER);
    return LS_OK;
}

enum ls_status ls_convert_value(struct ls_build *build, const struct ls_node *node, uint32_t value,
                                const struct ls_layout *layout, uint32_t dtype, uint32_t *out)
{
    for (uint32_t i = 0; i < build->buffers->value_count; i++) {
        const struct ls_value *other = &build->buffers->values[i];
        if (other->converted_from == value && other->tensor->dtype == dtype &&
            ls_layout_equal(&other->layout, layout)) {
            *out = i;
            return LS_OK;
        }
    }
    const enum ls_tensor_role role = build->buffers->values[value].tensor->role;
    const bool is_given =
        role == LS_ROLE_INPUT || role == LS_ROLE_SEED || role == LS_ROLE_PARAMETER;
    uint32_t converted;
    enum ls_status status =
        ls_build_value(build, value, is_given ? LS_ROLE_ACTIVATION : role, layout, &converted);
    if (status)
        return status;
    build->buffers->values[converted].tensor->dtype = dtype;
    status = ls_insert_convert(build, node, value, converted);
    if (status)
        return status;
    build->buffers->values[converted].converted_from = value;
    *out = converted;
    return LS_OK;
}

// ---- Shadows ----

static enum ls_status add_shadow(struct ls_parameter_plan *plan, uint32_t place,
                                 const struct ls_layout *layout, uint32_t dtype)
{
    struct ls_shadow *larger =
        realloc(plan->shadows, ((size_t)plan->shadow_count + 1) * sizeof(*plan->shadows));
    if (!larger)
        return LS_OUT_OF_MEMORY;
    plan->shadows = larger;

    const struct ls_parameter_place *master = &plan->places[place];
    struct ls_tensor_desc from, to;
    struct ls_kernel_answer answer;
    ls_describe_tensor(master->parameter, 1, &from);
    to = from;
    to.dtype = dtype;
    from.layout = master->layout;
    to.layout = *layout;
    enum ls_status status = ls_prepare_convert(plan, master->parameter->name, &from, &to, &answer);
    if (status)
        return status;
    // Behind the others of the same parameter, which is still in the cache when they are made.
    uint32_t at = plan->shadow_count;
    for (uint32_t i = 0; i < plan->shadow_count; i++)
        if (plan->shadows[i].place == place)
            at = i + 1;
    memmove(&plan->shadows[at + 1], &plan->shadows[at],
            (plan->shadow_count - at) * sizeof(*plan->shadows));
    plan->shadow_count++;
    plan->shadows[at] = (struct ls_shadow){.place = place,
                                           .layout = *layout,
                                           .dtype = dtype,
                                           .offset = plan->shadow_bytes,
                                           .convert = answer.kernel,
                                           .scratch_bytes = answer.scratch_bytes};
    plan->shadow_bytes += ls_align(layout->bytes);
    return LS_OK;
}

static enum ls_status find_shadow(struct ls_parameter_plan *plan, uint32_t place,
                                  const struct ls_layout *layout, uint32_t dtype, uint64_t *offset)
{
    for (uint32_t i = 0; i < plan->shadow_count; i++) {
        if (plan->shadows[i].place == place && plan->shadows[i].dtype == dtype &&
            ls_layout_equal(&plan->shadows[i].layout, layout)) {
            *offset = plan->shadows[i].offset;
            return LS_OK;
        }
    }
    *offset = plan->shadow_bytes;
    return add_shadow(plan, place, layout, dtype);
}

enum ls_status ls_shadow_value(struct ls_build *build, uint32_t parameter,
                               const struct ls_layout *layout, uint32_t dtype, uint32_t *out)
{
    const uint32_t place = build->buffers->values[parameter].place;
    uint64_t offset = 0;

    // While master layouts are chosen a shadow's place is not: the program itself will ask again.
    enum ls_status status =
        build->choosing ? LS_OK : find_shadow(build->plan, place, layout, dtype, &offset);
    if (!status)
        status = ls_build_value(build, parameter, LS_ROLE_PARAMETER, layout, out);
    if (status)
        return status;
    struct ls_value *value = &build->buffers->values[*out];
    value->tensor->dtype = dtype;
    value->home = LS_HOME_SHADOWS;
    value->place = place;
    value->offset = offset;
    return LS_OK;
}

// ---- Adding a second gradient ----

// Padding is zero in both, so the buffers are added as plain vectors.
static void describe_flat(const struct ls_build *build, uint32_t value, struct ls_tensor_desc *out)
{
    const uint64_t bytes = build->buffers->values[value].layout.bytes;

    *out = (struct ls_tensor_desc){.dtype = LS_F32,
                                   .ndims = 1,
                                   .dims = {(int64_t)(bytes / sizeof(float))},
                                   .layout = {.kind = LS_LAYOUT_PLAIN, .bytes = bytes}};
}

// Through a third buffer, where the device cannot add in place.
static enum ls_status insert_copy(struct ls_build *build, const struct ls_node *node, uint32_t from,
                                  uint32_t to)
{
    const uint32_t values[2] = {from, to};
    struct ls_tensor_desc flat[2];
    struct ls_kernel_answer answer;

    describe_flat(build, from, &flat[0]);
    flat[1] = flat[0];
    enum ls_status status =
        ls_prepare_convert(build->plan, "gradient", &flat[0], &flat[1], &answer);
    if (status)
        return status;
    return add_step(build, node, "copy", values, 1, &answer);
}

enum ls_status ls_insert_add(struct ls_build *build, const struct ls_node *node, uint32_t from,
                             uint32_t to)
{
    struct ls_tensor_desc flat[3];
    struct ls_kernel_answer answer;
    uint32_t values[3] = {to, from, to};

    describe_flat(build, to, &flat[0]);
    flat[1] = flat[2] = flat[0];
    enum ls_status status = ls_prepare_fixed(build->plan, LS_OP_ADD, flat, 2, 1, &answer);
    if (status) {
        ls_error(build->graph->name, "the device cannot add the gradients of '%s': %s",
                 build->buffers->values[to].tensor->name, ls_status_text(status));
        return status;
    }
    const bool in_place = (answer.in_place & 1) != 0;
    if (!in_place) {
        const struct ls_layout layout = build->buffers->values[to].layout;
        status = ls_build_value(build, to, LS_ROLE_GRADIENT, &layout, &values[2]);
        if (status) {
            ls_device_release_kernel(build->plan->device, answer.kernel);
            return status;
        }
    }
    answer.in_place = 0; // the memory plan has no part in it
    status = add_step(build, node, "add", values, 2, &answer);
    if (status || in_place)
        return status;
    return insert_copy(build, node, values[2], to);
}
