// SPDX-License-Identifier: Apache-2.0
// Operation nodes of two arguments, each a tensor or a constant: x + y, 2 * x, x ** 2, a @ b.
#include "layers/node_kinds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *class_name;
    uint32_t function; // enum ls_pair_function
} pairs[] = {
    {"Add", LS_PAIR_ADD},         {"Subtract", LS_PAIR_SUBTRACT}, {"Multiply", LS_PAIR_MULTIPLY},
    {"Divide", LS_PAIR_DIVIDE},   {"TrueDivide", LS_PAIR_DIVIDE}, {"Maximum", LS_PAIR_MAXIMUM},
    {"Minimum", LS_PAIR_MINIMUM},
};

static uint32_t pair_of(const char *class_name)
{
    size_t i = 0;
    while (strcmp(pairs[i].class_name, class_name) != 0)
        i++;
    return pairs[i].function;
}

// x and a number, as factor x + offset; false: that cannot be said so.
static bool as_scale(uint32_t function, bool first, float number, double *factor, double *offset)
{
    *factor = 1;
    *offset = 0;
    switch (function) {
    case LS_PAIR_ADD: *offset = number; return true;
    case LS_PAIR_MULTIPLY: *factor = number; return true;
    case LS_PAIR_SUBTRACT:
        *factor = first ? -1 : 1;
        *offset = first ? number : -number;
        return true;
    case LS_PAIR_DIVIDE: *factor = 1 / (double)number; return !first && isfinite((float)*factor);
    default: return false;
    }
}

// `first`: the constant is the first of both.
static enum ls_status add_with_constant(struct ls_graph *graph, uint32_t function, bool first,
                                        const struct ls_node_constant *constant,
                                        struct ls_tensor *x, struct ls_tensor **out)
{
    double factor, offset;
    struct ls_tensor *variable;

    if (constant->shape.ndims == 0 &&
        as_scale(function, first, constant->values[0], &factor, &offset))
        return ls_add_scale(graph, factor, offset, x, out);
    if (constant->shape.ndims > x->shape.ndims ||
        (constant->shape.ndims == x->shape.ndims && constant->shape.dims[0] != 1))
        return ls_graph_fail(graph, x, "the constant has more dimensions than an example");
    const enum ls_status status = ls_node_add_constant(graph, constant, &variable);
    if (status)
        return status;
    return ls_add_pair(graph, function, first ? variable : x, first ? x : variable, out);
}

enum ls_status ls_build_pair_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                  struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const uint32_t function = pair_of(ls_node_class(graph));
    const json_t *one = ls_call_argument(call, 0, "x1"), *other = ls_call_argument(call, 1, "x2");
    struct ls_tensor *a = ls_call_tensor(call, one), *b = ls_call_tensor(call, other);
    struct ls_node_constant constant = {0};

    if (!call->inputs)
        return LS_OK;
    if (a && b)
        return ls_add_pair(graph, function, a, b, outputs);
    if (!a && !b)
        return ls_graph_fail(graph, NULL, "expected two arguments, x1 and x2");
    enum ls_status status = ls_node_read_constant(&c, a ? other : one, &constant);
    if (!status)
        status = add_with_constant(graph, function, !a, &constant, a ? a : b, outputs);
    free(constant.values);
    return status;
}

static enum ls_status square(struct ls_graph *graph, struct ls_tensor *x, struct ls_tensor **out)
{
    return ls_node_function(graph, LS_SQUARE, x, out);
}

enum ls_status ls_build_power_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                   struct ls_tensor **outputs)
{
    const json_t *exponent = ls_call_argument(call, 1, "x2");
    struct ls_tensor *x = ls_call_tensor(call, ls_call_argument(call, 0, "x1")), *squared = NULL;
    const double power = json_number_value(exponent);
    const struct ls_node_constant one = {.values = &(float){1}};
    char text[64];

    if (!call->inputs)
        return LS_OK;
    if (!x || !json_is_number(exponent) ||
        !(power == -1 || power == 0.5 || power == 1 || power == 2 || power == 3 || power == 4))
        return ls_graph_fail(graph, x, "expected the exponent -1, 0.5, 1, 2, 3 or 4, got %s",
                             ls_json_text(exponent, text, sizeof(text)));
    if (power == -1)
        return add_with_constant(graph, LS_PAIR_DIVIDE, true, &one, x, outputs);
    if (power == 0.5)
        return ls_node_function(graph, LS_SQUARE_ROOT, x, outputs);
    if (power == 1) {
        *outputs = x;
        return LS_OK;
    }
    enum ls_status status = square(graph, x, power == 2 ? outputs : &squared);
    if (!status && power == 3)
        status = ls_add_pair(graph, LS_PAIR_MULTIPLY, squared, x, outputs);
    if (!status && power == 4)
        status = square(graph, squared, outputs);
    return status;
}

enum ls_status ls_build_clip_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                  struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call), *variables[2], *above;
    const float low = (float)ls_config_number(&c, "x_min", -3e38, 3e38, LS_CONFIG_NONE);
    const float high = (float)ls_config_number(&c, "x_max", -3e38, 3e38, LS_CONFIG_NONE);

    if (c.status || !x)
        return c.status;
    enum ls_status status = ls_graph_constant(
        graph, "x_min", &(struct ls_shape){.ndims = 1, .dims = {1}}, low, &variables[0]);
    if (!status)
        status = ls_graph_constant(graph, "x_max", &(struct ls_shape){.ndims = 1, .dims = {1}},
                                   high, &variables[1]);
    if (!status)
        status = ls_add_pair(graph, LS_PAIR_MAXIMUM, x, variables[0], &above);
    if (!status)
        status = ls_add_pair(graph, LS_PAIR_MINIMUM, above, variables[1], outputs);
    return status;
}

// x (B,...,K) and a constant (K,N)
static enum ls_status multiply_by_constant(struct ls_graph *graph, struct ls_config *c,
                                           const json_t *value, struct ls_tensor *x,
                                           struct ls_tensor **out)
{
    struct ls_node_constant constant = {0};
    struct ls_tensor *inputs[2] = {x};

    enum ls_status status = ls_node_read_constant(c, value, &constant);
    if (!status && (x->shape.ndims < 2 || constant.shape.ndims != 2 ||
                    constant.shape.dims[0] != x->shape.dims[x->shape.ndims - 1]))
        status = ls_graph_fail(graph, x,
                               "expected a constant matrix with as many rows as the tensor has "
                               "columns");
    if (!status)
        status = ls_node_add_constant(graph, &constant, &inputs[1]);
    free(constant.values);
    return status ? status : ls_graph_add(graph, LS_OP_DENSE, NULL, inputs, 2, NULL, out);
}

enum ls_status ls_build_matmul_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                    struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const json_t *one = ls_call_argument(call, 0, "x1"), *other = ls_call_argument(call, 1, "x2");
    struct ls_tensor *inputs[2] = {ls_call_tensor(call, one), ls_call_tensor(call, other)};

    if (!call->inputs)
        return LS_OK;
    if (!inputs[0])
        return ls_graph_fail(graph, NULL, "x1: expected a tensor; a constant may be x2 only");
    if (!inputs[1])
        return multiply_by_constant(graph, &c, other, inputs[0], outputs);
    return ls_graph_add(graph, LS_OP_MATMUL, NULL, inputs, 2, NULL, outputs);
}
