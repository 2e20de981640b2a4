// SPDX-License-Identifier: Apache-2.0
// DepthwiseConv2D: each channel by itself, with depth_multiplier filters; a convolution of as many
// groups as channels. SeparableConv2D mixes the channels after that, with a kernel of one row and
// column.
#include "layers/convolution.h"

static const char *const depthwise_keys[] = {
    "kernel_size",
    "strides",
    "padding",
    "depth_multiplier",
    "data_format",
    "dilation_rate",
    "groups",
    "activation",
    "use_bias",
    "depthwise_initializer",
    "bias_initializer",
    "depthwise_regularizer",
    "bias_regularizer",
    "bias_constraint",
    "depthwise_constraint",
    NULL,
};
static const char *const separable_keys[] = {
    "filters",
    "kernel_size",
    "strides",
    "padding",
    "data_format",
    "dilation_rate",
    "depth_multiplier",
    "groups",
    "activation",
    "use_bias",
    "depthwise_initializer",
    "pointwise_initializer",
    "bias_initializer",
    "depthwise_regularizer",
    "pointwise_regularizer",
    "bias_regularizer",
    "depthwise_constraint",
    "pointwise_constraint",
    "bias_constraint",
    NULL,
};

struct options {
    struct ls_convolution convolution;
    int64_t multiplier, filters;
    struct ls_initializer depthwise, pointwise;
};

static void read_options(struct ls_config *c, struct options *o)
{
    ls_read_convolution(c, 2, &o->convolution);
    o->multiplier = ls_config_integer(c, "depth_multiplier", 1, LS_CONFIG_LARGEST, 1);
    ls_config_integer(c, "groups", 1, 1, 1); // Keras 2 writes 1
    o->depthwise = ls_config_initializer(c, "depthwise_initializer", "glorot_uniform");
}

// The kernel (KH, KW, C, multiplier), of which filter c multiplier + m is [.., .., c, m].
static enum ls_status add_depthwise(struct ls_graph *graph, const char *name, struct options *o,
                                    const struct ls_tensor *input, struct ls_tensor **out)
{
    const int64_t channels = input->shape.dims[3];
    const int32_t *kernel = o->convolution.kernel;
    const struct ls_shape variable = {.ndims = 4,
                                      .dims = {kernel[0], kernel[1], channels, o->multiplier}};
    const struct ls_shape seen = {.ndims = 4,
                                  .dims = {kernel[0], kernel[1], 1, channels * o->multiplier}};

    o->convolution.attributes.groups = (int32_t)channels;
    ls_pad_convolution(&o->convolution, &input->shape);
    return ls_add_variable(graph, name, &variable, &seen, &o->depthwise, out);
}

// x: (B, H, W, C) -> (B, OH, OW, C multiplier)
static enum ls_status build_depthwise(struct ls_graph *graph, const struct ls_layer_call *call,
                                      struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct options o;
    read_options(&c, &o);
    struct ls_tensor *arguments[3] = {ls_call_input(call)};
    if (c.status || !arguments[0])
        return c.status;
    enum ls_status status = ls_check_convolution(graph, arguments[0], &o.convolution);
    if (!status)
        status = add_depthwise(graph, "kernel", &o, arguments[0], &arguments[1]);
    if (status)
        return status;
    return ls_finish_convolution(graph, &o.convolution, LS_OP_CONV2D, arguments,
                                 arguments[0]->shape.dims[3] * o.multiplier, NULL, outputs);
}

// x: (B, H, W, C) -> (B, OH, OW, filters)
static enum ls_status build_separable(struct ls_graph *graph, const struct ls_layer_call *call,
                                      struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct options o;
    read_options(&c, &o);
    o.filters = ls_config_integer(&c, "filters", 1, LS_CONFIG_LARGEST, LS_CONFIG_NONE);
    o.pointwise = ls_config_initializer(&c, "pointwise_initializer", "glorot_uniform");
    struct ls_tensor *arguments[3] = {ls_call_input(call)};
    if (c.status || !arguments[0])
        return c.status;
    enum ls_status status = ls_check_convolution(graph, arguments[0], &o.convolution);
    if (!status)
        status = add_depthwise(graph, "depthwise_kernel", &o, arguments[0], &arguments[1]);
    if (!status)
        status = ls_graph_add(graph, LS_OP_CONV2D, &o.convolution.attributes, arguments, 2, NULL,
                              &arguments[0]);
    if (status)
        return status;
    const struct ls_shape pointwise = {.ndims = 4,
                                       .dims = {1, 1, arguments[0]->shape.dims[3], o.filters}};
    status = ls_graph_parameter(graph, "pointwise_kernel", &pointwise, &o.pointwise, &arguments[1]);
    if (status)
        return status;
    o.convolution.attributes =
        (struct ls_op_attributes){.strides = {1, 1}, .dilation = {1, 1}, .groups = 1};
    return ls_finish_convolution(graph, &o.convolution, LS_OP_CONV2D, arguments, o.filters, NULL,
                                 outputs);
}

const struct ls_layer_kind ls_layer_depthwise_conv2d = {
    .class_name = "DepthwiseConv2D",
    .summary = "convolution of each channel by itself",
    .keys = depthwise_keys,
    .build = build_depthwise,
};

const struct ls_layer_kind ls_layer_separable_conv2d = {
    .class_name = "SeparableConv2D",
    .summary = "convolution of each channel by itself, then of the channels",
    .keys = separable_keys,
    .build = build_separable,
};
