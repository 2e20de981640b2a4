// SPDX-License-Identifier: Apache-2.0
// Operations of keras.ops among the layers of a functional model: arithmetic of two tensors, or of a
// tensor and a number or an array; transposition; means, sums and largest elements along axes;
// concatenation.
#include "layers/kinds.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const no_keys[] = {NULL};

// ---- Arrays that a call has instead of a tensor ----

// The nested lists of an array that Keras wrote; NULL: it is none.
static const json_t *lists_of(const json_t *value)
{
    const char *class_name = json_string_value(json_object_get(value, "class_name"));
    const bool array = class_name && (strcmp(class_name, "__numpy__") == 0 ||
                                      strcmp(class_name, "__tensor__") == 0);
    return array                  ? json_object_get(json_object_get(value, "config"), "value")
           : json_is_array(value) ? value
                                  : NULL;
}

// The shape of nested lists; false: they are no array, or one of more dimensions than there can be.
static bool shape_of_lists(const json_t *lists, struct ls_shape *out)
{
    int64_t elements = 1;
    *out = (struct ls_shape){0};
    for (; json_is_array(lists); lists = json_array_get(lists, 0)) {
        const int64_t size = (int64_t)json_array_size(lists);
        if (out->ndims == LS_MAX_DIMS || size < 1 || size > INT32_MAX / elements)
            return false;
        elements *= size;
        out->dims[out->ndims++] = size;
    }
    return json_is_number(lists);
}

static bool read_lists(const json_t *lists, const struct ls_shape *shape, uint32_t depth,
                       float **next)
{
    if (depth == shape->ndims) {
        *(*next)++ = (float)json_number_value(lists);
        return json_is_number(lists) && fabs(json_number_value(lists)) <= (double)FLT_MAX;
    }
    bool right = (int64_t)json_array_size(lists) == shape->dims[depth];
    for (int64_t i = 0; i < shape->dims[depth] && right; i++)
        right = read_lists(json_array_get(lists, (size_t)i), shape, depth + 1, next);
    return right;
}

// A constant that the array becomes.
static enum ls_status add_array(struct ls_graph *graph, struct ls_tensor *beside,
                                const json_t *value, struct ls_tensor **out)
{
    const json_t *lists = lists_of(value);
    struct ls_shape shape;
    char text[64];

    if (json_is_number(value)) {
        const struct ls_shape one = {.ndims = 1, .dims = {1}};
        return ls_graph_constant(graph, "value", &one, json_number_value(value), out);
    }
    if (!shape_of_lists(lists, &shape) || shape.ndims == 0)
        return ls_graph_fail(graph, beside, "expected a tensor, a number or an array, got %s",
                             ls_json_text(value, text, sizeof(text)));
    float *values = malloc((size_t)ls_shape_elements(&shape, 1) * sizeof(*values)), *next = values;
    if (!values)
        return LS_OUT_OF_MEMORY;
    const enum ls_status status =
        read_lists(lists, &shape, 0, &next)
            ? ls_graph_constant_values(graph, "value", &shape, values, out)
            : ls_graph_fail(graph, beside, "the array has rows of different sizes, or no numbers");
    free(values);
    return status;
}

// ---- Two tensors, or a tensor and a constant ----

static const char *const pair_arguments[] = {"x1", "x2", NULL};

// With a number, where that is a scale; `*done` says whether it was.
static enum ls_status add_number(struct ls_graph *graph, uint32_t function, struct ls_tensor *x,
                                 double number, bool first, bool *done, struct ls_tensor **outputs)
{
    *done = true;
    switch (function) {
    case LS_PAIR_ADD: return ls_add_scale(graph, 1, number, x, outputs);
    case LS_PAIR_SUBTRACT:
        return first ? ls_add_scale(graph, -1, number, x, outputs)
                     : ls_add_scale(graph, 1, -number, x, outputs);
    case LS_PAIR_MULTIPLY: return ls_add_scale(graph, number, 0, x, outputs);
    case LS_PAIR_DIVIDE:
        if (!first && number != 0)
            return ls_add_scale(graph, 1 / number, 0, x, outputs);
        break;
    default: break;
    }
    *done = false;
    return LS_OK;
}

static enum ls_status build_pair(struct ls_graph *graph, const struct ls_layer_call *call,
                                 uint32_t function, struct ls_tensor **outputs)
{
    const json_t *arguments[2] = {ls_call_argument(call, 0, "x1"), ls_call_argument(call, 1, "x2")};
    struct ls_tensor *operands[2];
    bool done = false;

    if (!call->inputs)
        return LS_OK;
    for (int i = 0; i < 2; i++)
        operands[i] = ls_call_tensor(call, arguments[i]);
    if (!call->args && !call->kwargs && call->input_count == 2)
        for (int i = 0; i < 2; i++)
            operands[i] = call->inputs[i];
    enum ls_status status = LS_OK;
    for (int i = 0; i < 2 && !done && !status; i++) {
        if (operands[i])
            continue;
        if (json_is_number(arguments[i]) && operands[1 - i])
            status = add_number(graph, function, operands[1 - i], json_number_value(arguments[i]),
                                i == 0, &done, outputs);
        if (!done && !status)
            status = add_array(graph, call->inputs[0], arguments[i], &operands[i]);
    }
    if (done || status)
        return status;
    return ls_add_pair(graph, function, operands[0], operands[1], outputs);
}

#define PAIR(function_name, function)                                                             \
    static enum ls_status function_name(struct ls_graph *graph, const struct ls_layer_call *call, \
                                        struct ls_tensor **outputs)                               \
    {                                                                                             \
        return build_pair(graph, call, function, outputs);                                        \
    }
PAIR(build_add, LS_PAIR_ADD)
PAIR(build_subtract, LS_PAIR_SUBTRACT)
PAIR(build_multiply, LS_PAIR_MULTIPLY)
PAIR(build_divide, LS_PAIR_DIVIDE)
PAIR(build_maximum, LS_PAIR_MAXIMUM)
PAIR(build_minimum, LS_PAIR_MINIMUM)

#define PAIR_KIND(name, function)                                                                 \
    {                                                                                             \
        .class_name = name, .summary = "of two tensors, or of a tensor and a number or an array", \
        .least_inputs = 1, .most_inputs = 2, .keys = no_keys, .arguments = pair_arguments,        \
        .build = function,                                                                        \
    }
const struct ls_layer_kind ls_node_add = PAIR_KIND("Add", build_add),
                           ls_node_subtract = PAIR_KIND("Subtract", build_subtract),
                           ls_node_multiply = PAIR_KIND("Multiply", build_multiply),
                           ls_node_divide = PAIR_KIND("Divide", build_divide),
                           ls_node_true_divide = PAIR_KIND("TrueDivide", build_divide),
                           ls_node_maximum = PAIR_KIND("Maximum", build_maximum),
                           ls_node_minimum = PAIR_KIND("Minimum", build_minimum);

// ---- Axes ----

static const char *const transpose_keys[] = {"axes", NULL};
static const char *const reduce_keys[] = {"axis", "keepdims", NULL};

// An axis counted from the front; false: there is no such axis.
static bool axis_of(const json_t *value, uint32_t ndims, uint32_t *out)
{
    const json_int_t axis = json_integer_value(value);
    if (!json_is_integer(value) || axis < -(json_int_t)ndims || axis >= (json_int_t)ndims)
        return false;
    *out = (uint32_t)(axis < 0 ? axis + (json_int_t)ndims : axis);
    return true;
}

static enum ls_status build_transpose(struct ls_graph *graph, const struct ls_layer_call *call,
                                      struct ls_tensor **outputs)
{
    struct ls_tensor *input = ls_call_input(call);
    const json_t *axes = json_object_get(call->config, "axes");
    struct ls_op_attributes attributes = {0};
    bool right = json_is_array(axes);
    char text[64];

    if (!input)
        return LS_OK;
    right = right && json_array_size(axes) == input->shape.ndims;
    for (uint32_t i = 0; i < input->shape.ndims && right; i++) {
        uint32_t axis = 0;
        right = axis_of(json_array_get(axes, i), input->shape.ndims, &axis);
        attributes.axes[i] = (int32_t)axis;
    }
    if (!right)
        return ls_graph_fail(graph, input,
                             "axes: expected a list of %u axes that begins with 0, "
                             "got %s",
                             input->shape.ndims, ls_json_text(axes, text, sizeof(text)));
    return ls_graph_add(graph, LS_OP_TRANSPOSE, &attributes, &input, 1, NULL, outputs);
}

const struct ls_layer_kind ls_node_transpose = {
    .class_name = "Transpose",
    .summary = "the dimensions of an example in another order",
    .keys = transpose_keys,
    .build = build_transpose,
};

// Reads `axis`: an integer or a list.
static bool read_axes(const json_t *value, uint32_t ndims, int32_t *axes)
{
    const size_t count = json_is_array(value) ? json_array_size(value) : 1;
    for (size_t i = 0; i < count; i++) {
        uint32_t axis;
        if (!axis_of(json_is_array(value) ? json_array_get(value, i) : value, ndims, &axis) ||
            axis == 0)
            return false;
        axes[axis] = 1;
    }
    return count > 0;
}

static enum ls_status build_reduction(struct ls_graph *graph, const struct ls_layer_call *call,
                                      uint32_t function, struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call), *reduced;
    struct ls_op_attributes attributes = {.function = function};
    const bool keeps = ls_config_boolean(&c, "keepdims", false);
    const json_t *axis = json_object_get(call->config, "axis");
    struct ls_shape shape = {0};
    char text[64];

    if (c.status || !input)
        return c.status;
    if (!read_axes(axis, input->shape.ndims, attributes.axes))
        return ls_graph_fail(graph, input,
                             "axis: expected one or a list of those behind the first, got %s",
                             ls_json_text(axis, text, sizeof(text)));
    enum ls_status status =
        ls_graph_add(graph, LS_OP_REDUCE, &attributes, &input, 1, NULL, &reduced);
    if (status || keeps) {
        *outputs = status ? NULL : reduced;
        return status;
    }
    for (uint32_t i = 0; i < input->shape.ndims; i++)
        if (!attributes.axes[i])
            shape.dims[shape.ndims++] = input->shape.dims[i];
    if (shape.ndims == 1) // of an example one number, as Keras has (None,)
        return ls_graph_fail(graph, input, "keepdims: expected true where only examples remain");
    return ls_graph_add(graph, LS_OP_RESHAPE, NULL, &reduced, 1, &shape, outputs);
}

static enum ls_status build_mean(struct ls_graph *graph, const struct ls_layer_call *call,
                                 struct ls_tensor **outputs)
{
    return build_reduction(graph, call, LS_REDUCE_TO_MEAN, outputs);
}

static enum ls_status build_sum(struct ls_graph *graph, const struct ls_layer_call *call,
                                struct ls_tensor **outputs)
{
    return build_reduction(graph, call, LS_REDUCE_TO_SUM, outputs);
}

static enum ls_status build_max(struct ls_graph *graph, const struct ls_layer_call *call,
                                struct ls_tensor **outputs)
{
    return build_reduction(graph, call, LS_REDUCE_TO_MAXIMUM, outputs);
}

const struct ls_layer_kind ls_node_mean = {
    .class_name = "Mean", .summary = "along axes", .keys = reduce_keys, .build = build_mean};
const struct ls_layer_kind ls_node_sum = {
    .class_name = "Sum", .summary = "along axes", .keys = reduce_keys, .build = build_sum};

// ---- Largest, which may also have a smallest result ----

static const char *const max_keys[] = {"axis", "keepdims", "initial", NULL};

static enum ls_status build_max_without_initial(struct ls_graph *graph,
                                                const struct ls_layer_call *call,
                                                struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    ls_config_null(&c, "initial");
    return c.status ? c.status : build_max(graph, call, outputs);
}

const struct ls_layer_kind ls_node_max = {.class_name = "Max",
                                          .summary = "the largest along axes",
                                          .keys = max_keys,
                                          .build = build_max_without_initial};

// ---- Concatenation ----

static const char *const concatenate_keys[] = {"axis", NULL};

static enum ls_status build_concatenate(struct ls_graph *graph, const struct ls_layer_call *call,
                                        struct ls_tensor **outputs)
{
    struct ls_tensor *input = ls_call_input(call);
    const json_t *axis = json_object_get(call->config, "axis");
    uint32_t at = input ? input->shape.ndims - 1 : 0;
    char text[64];

    if (!input)
        return LS_OK;
    if ((axis && !axis_of(axis, input->shape.ndims, &at)) || at == 0)
        return ls_graph_fail(graph, input, "axis: expected one behind the first, got %s",
                             ls_json_text(axis, text, sizeof(text)));
    return ls_add_concatenation(graph, call->inputs, call->input_count, at, outputs);
}

const struct ls_layer_kind ls_node_concatenate = {
    .class_name = "Concatenate",
    .summary = "tensors one behind the other",
    .least_inputs = 1,
    .most_inputs = LS_LAYER_INPUTS,
    .keys = concatenate_keys,
    .build = build_concatenate,
};
