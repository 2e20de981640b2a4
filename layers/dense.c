// SPDX-License-Identifier: Apache-2.0
// Dense: x times kernel plus bias over the last dimension, then the activation.
#include "layers/kinds.h"

static const char *const keys[] = {
    "units",
    "activation",
    "use_bias",
    "kernel_initializer",
    "bias_initializer",
    "kernel_regularizer",
    "bias_regularizer",
    "kernel_constraint",
    "bias_constraint",
    "lora_rank",
    "lora_alpha",
    "quantization_config",
    NULL,
};
// Written as null where they are not used.
static const char *const unsupported[] = {"lora_rank", "lora_alpha", "quantization_config", NULL};

// x: (B, ..., K) -> (B, ..., units)
static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call);
    const int64_t units = ls_config_integer(&c, "units", 1, LS_CONFIG_LARGEST, LS_CONFIG_NONE);
    const bool use_bias = ls_config_boolean(&c, "use_bias", true);
    const struct ls_layer_activation activation = ls_config_activation(&c, "activation");
    const struct ls_initializer kernel_initializer =
        ls_config_initializer(&c, "kernel_initializer", "glorot_uniform");
    const struct ls_initializer bias_initializer =
        ls_config_initializer(&c, "bias_initializer", "zeros");
    for (const char *const *key = unsupported; *key; key++)
        ls_config_null(&c, *key);
    if (c.status || !input)
        return c.status;
    if (input->shape.ndims < 2)
        return ls_graph_fail(graph, input, "expected at least 2 dimensions: batch, features");

    const struct ls_shape kernel = {.ndims = 2,
                                    .dims = {input->shape.dims[input->shape.ndims - 1], units}};
    const struct ls_shape bias = {.ndims = 1, .dims = {units}};
    struct ls_tensor *arguments[3] = {input}, *dense;
    enum ls_status status =
        ls_graph_parameter(graph, "kernel", &kernel, &kernel_initializer, &arguments[1]);
    if (status)
        return status;
    if (use_bias)
        status = ls_graph_parameter(graph, "bias", &bias, &bias_initializer, &arguments[2]);
    if (status)
        return status;
    status = ls_graph_add(graph, LS_OP_DENSE, NULL, arguments, use_bias ? 3 : 2, NULL, &dense);
    if (status)
        return status;
    return ls_activation_add(graph, &activation, dense, outputs);
}

const struct ls_layer_kind ls_layer_dense = {
    .class_name = "Dense",
    .summary = "x times kernel plus bias over the last dimension",
    .mask = LS_MASK_PASSES,
    .keys = keys,
    .build = build,
};
