// SPDX-License-Identifier: Apache-2.0
// Functions of keras.ops among the layers of a functional model: ops.relu(x), ops.gelu(x).
#include "layers/kinds.h"

static const char *const no_keys[] = {NULL};
static const char *const gelu_keys[] = {"approximate", NULL};

static enum ls_status apply(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_layer_activation activation, struct ls_tensor **outputs)
{
    struct ls_tensor *input = ls_call_input(call);
    return input ? ls_activation_add(graph, &activation, input, outputs) : LS_OK;
}

#define FUNCTION(name, ...)                                                                      \
    static enum ls_status build_##name(struct ls_graph *graph, const struct ls_layer_call *call, \
                                       struct ls_tensor **outputs)                               \
    {                                                                                            \
        return apply(graph, call, (struct ls_layer_activation){__VA_ARGS__}, outputs);           \
    }
FUNCTION(relu, .function = LS_RELU)
FUNCTION(relu6, .function = LS_RELU6)
FUNCTION(sigmoid, .function = LS_SIGMOID)
FUNCTION(tanh, .function = LS_TANH)
FUNCTION(exp, .function = LS_EXPONENTIAL)
FUNCTION(softplus, .function = LS_SOFTPLUS)
FUNCTION(silu, .needs_input = true, .function = LS_SILU)
FUNCTION(hard_silu, .needs_input = true, .function = LS_HARD_SILU)
FUNCTION(hard_sigmoid, .function = LS_HARD_SIGMOID)
FUNCTION(square, .needs_input = true, .function = LS_SQUARE)
FUNCTION(sqrt, .needs_input = true, .function = LS_SQUARE_ROOT)

static const char *const softmax_keys[] = {"axis", NULL};

static enum ls_status build_softmax(struct ls_graph *graph, const struct ls_layer_call *call,
                                    struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const struct ls_tensor *input = ls_call_input(call);
    const int64_t axis = ls_config_integer(&c, "axis", -1, LS_MAX_DIMS, -1);

    if (!c.status && input && axis != -1 && axis != (int64_t)input->shape.ndims - 1)
        ls_config_fail(&c, "axis", "expected -1, the last axis, got %lld", (long long)axis);
    return c.status ? c.status
                    : apply(graph, call, (struct ls_layer_activation){.softmax = true}, outputs);
}

static enum ls_status build_negative(struct ls_graph *graph, const struct ls_layer_call *call,
                                     struct ls_tensor **outputs)
{
    struct ls_tensor *input = ls_call_input(call);
    return input ? ls_add_scale(graph, -1, 0, input, outputs) : LS_OK;
}

// The function of keras.ops approximates unless told otherwise; the activation "gelu" does not.
static enum ls_status build_gelu(struct ls_graph *graph, const struct ls_layer_call *call,
                                 struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const struct ls_layer_activation gelu = {
        .needs_input = true,
        .function = ls_config_boolean(&c, "approximate", true) ? LS_GELU_TANH : LS_GELU};
    return c.status ? c.status : apply(graph, call, gelu, outputs);
}

#define KIND(name, keys_, function)                                                        \
    {                                                                                      \
        .class_name = name, .summary = "of each element", .keys = keys_, .build = function \
    }
const struct ls_layer_kind ls_node_relu = KIND("Relu", no_keys, build_relu),
                           ls_node_relu6 = KIND("Relu6", no_keys, build_relu6),
                           ls_node_sigmoid = KIND("Sigmoid", no_keys, build_sigmoid),
                           ls_node_tanh = KIND("Tanh", no_keys, build_tanh),
                           ls_node_exp = KIND("Exp", no_keys, build_exp),
                           ls_node_softplus = KIND("Softplus", no_keys, build_softplus),
                           ls_node_silu = KIND("Silu", no_keys, build_silu),
                           ls_node_hard_silu = KIND("HardSilu", no_keys, build_hard_silu),
                           ls_node_hard_sigmoid = KIND("HardSigmoid", no_keys, build_hard_sigmoid),
                           ls_node_gelu = KIND("Gelu", gelu_keys, build_gelu),
                           ls_node_negative = KIND("Negative", no_keys, build_negative),
                           ls_node_softmax = KIND("Softmax", softmax_keys, build_softmax),
                           ls_node_square = KIND("Square", no_keys, build_square),
                           ls_node_sqrt = KIND("Sqrt", no_keys, build_sqrt);
