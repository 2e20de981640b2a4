// SPDX-License-Identifier: Apache-2.0
// Operation nodes: functions of elements, and softmax.
#include "layers/node_kinds.h"

#include <float.h>
#include <string.h>

static const struct {
    const char *class_name;
    struct ls_layer_activation function;
} functions[] = {
    {"Square", {.needs_input = true, .function = LS_SQUARE}},
    {"Sqrt", {.needs_input = true, .function = LS_SQUARE_ROOT}},
    {"Exp", {.function = LS_EXPONENTIAL}},
    {"Tanh", {.function = LS_TANH}},
    {"Sigmoid", {.function = LS_SIGMOID}},
    {"LogSigmoid", {.needs_input = true, .function = LS_LOG_SIGMOID}},
    {"Relu", {.function = LS_RELU}},
    {"Relu6", {.function = LS_RELU6}},
    {"Selu", {.function = LS_SELU}},
    {"Silu", {.needs_input = true, .function = LS_SILU}},
    {"HardSigmoid", {.function = LS_HARD_SIGMOID}},
    {"HardSilu", {.needs_input = true, .function = LS_HARD_SILU}},
    {"Softplus", {.function = LS_SOFTPLUS}},
    {"Softsign", {.function = LS_SOFTSIGN}},
};

enum ls_status ls_node_function(struct ls_graph *graph, uint32_t function, struct ls_tensor *x,
                                struct ls_tensor **out)
{
    const struct ls_layer_activation activation = {.needs_input = true, .function = function};
    return ls_activation_add(graph, &activation, x, out);
}

static enum ls_status add_absolute(struct ls_graph *graph, struct ls_tensor *x,
                                   struct ls_tensor **out)
{
    struct ls_tensor *negative;
    const enum ls_status status = ls_add_scale(graph, -1, 0, x, &negative);
    return status ? status : ls_add_pair(graph, LS_PAIR_MAXIMUM, x, negative, out);
}

static enum ls_status add_reciprocal(struct ls_graph *graph, struct ls_tensor *x,
                                     struct ls_tensor **out)
{
    const struct ls_shape one = {.ndims = 1, .dims = {1}};
    struct ls_tensor *numerator;
    const enum ls_status status = ls_graph_constant(graph, "constant", &one, 1, &numerator);
    return status ? status : ls_add_pair(graph, LS_PAIR_DIVIDE, numerator, x, out);
}

static enum ls_status add_reciprocal_root(struct ls_graph *graph, struct ls_tensor *x,
                                          struct ls_tensor **out)
{
    struct ls_tensor *root;
    const enum ls_status status = ls_node_function(graph, LS_SQUARE_ROOT, x, &root);
    return status ? status : add_reciprocal(graph, root, out);
}

static enum ls_status add_softmax(struct ls_graph *graph, struct ls_config *c, struct ls_tensor *x,
                                  struct ls_tensor **out)
{
    const json_t *axis = json_object_get(c->object, "axis");
    const struct ls_layer_activation softmax = {.softmax = true};
    if (axis && !json_is_null(axis) && ls_node_axis(c, "axis", axis, x, 0) != x->shape.ndims - 1 &&
        !c->status)
        ls_config_fail(c, "axis", "only the last dimension is supported");
    return c->status ? c->status : ls_activation_add(graph, &softmax, x, out);
}

static enum ls_status add_cast(struct ls_graph *graph, struct ls_config *c, struct ls_tensor *x,
                               struct ls_tensor **out)
{
    const char *name = ls_json_dtype(json_object_get(c->object, "dtype"));
    uint32_t dtype = strcmp(name, "float32") == 0    ? LS_F32
                     : strcmp(name, "bfloat16") == 0 ? LS_BF16
                     : strcmp(name, "float16") == 0  ? LS_F16
                                                     : 0;
    if (!dtype || x->dtype == LS_I32)
        return ls_graph_fail(c->graph, x,
                             "only float32, bfloat16 and float16 are cast, to one another");
    if (graph->compute == LS_F32)
        dtype = LS_F32; // all is computed in float32
    *out = x;
    return x->dtype == dtype ? LS_OK : ls_graph_convert(graph, x, dtype, out);
}

// Those with options, or made of several operations.
static enum ls_status build_own(struct ls_graph *graph, struct ls_config *c, struct ls_tensor *x,
                                struct ls_tensor **out)
{
    const char *name = ls_node_class(graph);
    const float slope = (float)ls_config_number(c, "negative_slope", 0, FLT_MAX, 0.2);
    const float alpha = (float)ls_config_number(c, "alpha", 0, FLT_MAX, 1);
    const bool approximate = ls_config_boolean(c, "approximate", true);
    const struct ls_layer_activation leaky = {.function = slope > 0 ? LS_LEAKY_RELU : LS_RELU,
                                              .alpha = slope};
    const struct ls_layer_activation elu = {.function = alpha > 0 ? LS_ELU : LS_RELU,
                                            .alpha = alpha};

    if (c->status || !x)
        return c->status;
    if (strcmp(name, "LeakyRelu") == 0)
        return ls_activation_add(graph, &leaky, x, out);
    if (strcmp(name, "Elu") == 0)
        return ls_activation_add(graph, &elu, x, out);
    if (strcmp(name, "Gelu") == 0)
        return ls_node_function(graph, approximate ? LS_GELU_TANH : LS_GELU, x, out);
    if (strcmp(name, "Negative") == 0)
        return ls_add_scale(graph, -1, 0, x, out);
    if (strcmp(name, "Absolute") == 0)
        return add_absolute(graph, x, out);
    if (strcmp(name, "Reciprocal") == 0)
        return add_reciprocal(graph, x, out);
    if (strcmp(name, "Rsqrt") == 0)
        return add_reciprocal_root(graph, x, out);
    return strcmp(name, "Softmax") == 0 ? add_softmax(graph, c, x, out)
                                        : add_cast(graph, c, x, out);
}

enum ls_status ls_build_function_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                      struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call);

    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
        if (strcmp(functions[i].class_name, ls_node_class(graph)) == 0)
            return x ? ls_activation_add(graph, &functions[i].function, x, outputs) : LS_OK;
    return build_own(graph, &c, x, outputs);
}
