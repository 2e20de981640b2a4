// SPDX-License-Identifier: Apache-2.0
// DepthwiseConv2D: each channel by itself, with depth_multiplier filters; a convolution of as many
// groups as channels. SeparableConv2D mixes the channels after that, with a kernel of one row and
// column. DepthwiseConv1D, SeparableConv1D: the same of sequences.
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

static void read_options(struct ls_config *c, uint32_t axes, struct options *o)
{
    ls_read_convolution(c, axes, &o->convolution);
    o->multiplier = ls_config_integer(c, "depth_multiplier", 1, LS_CONFIG_LARGEST, 1);
    ls_config_integer(c, "groups", 1, 1, 1); // Keras 2 writes 1
    o->depthwise = ls_config_initializer(c, "depthwise_initializer", "glorot_uniform");
}

// The kernel (KH, KW, C, multiplier), of which filter c multiplier + m is [.., .., c, m].
static enum ls_status add_depthwise(struct ls_graph *graph, const char *name, struct options *o,
                                    const struct ls_tensor *image, struct ls_tensor **out)
{
    const int64_t channels = image->shape.dims[3];
    const struct ls_shape variable = ls_kernel_shape(&o->convolution, channels, o->multiplier),
                          seen = ls_kernel_shape(&o->convolution, 1, channels * o->multiplier);

    o->convolution.attributes.groups = (int32_t)channels;
    ls_pad_convolution(&o->convolution, &image->shape);
    return ls_add_kernel(graph, name, &o->convolution, &variable, &seen, &o->depthwise, out);
}

// x: (B, H, W, C) -> (B, OH, OW, C multiplier), or (B, T, C) -> (B, OT, C multiplier)
static enum ls_status build_depthwise(struct ls_graph *graph, const struct ls_layer_call *call,
                                      struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct options o;
    read_options(&c, call->kind->axes, &o);
    struct ls_tensor *arguments[3] = {ls_call_input(call)}, *y;
    if (c.status || !arguments[0])
        return c.status;
    enum ls_status status = ls_add_image(graph, &o.convolution, arguments[0], &arguments[0]);
    if (!status)
        status = add_depthwise(graph, "kernel", &o, arguments[0], &arguments[1]);
    if (!status)
        status = ls_finish_convolution(graph, &o.convolution, LS_OP_CONV2D, arguments,
                                       arguments[0]->shape.dims[3] * o.multiplier, NULL, &y);
    return status ? status : ls_add_image_end(graph, &o.convolution, y, outputs);
}

// x: (B, H, W, C) -> (B, OH, OW, filters), or (B, T, C) -> (B, OT, filters)
static enum ls_status build_separable(struct ls_graph *graph, const struct ls_layer_call *call,
                                      struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct options o;
    read_options(&c, call->kind->axes, &o);
    o.filters = ls_config_integer(&c, "filters", 1, LS_CONFIG_LARGEST, LS_CONFIG_NONE);
    o.pointwise = ls_config_initializer(&c, "pointwise_initializer", "glorot_uniform");
    struct ls_tensor *arguments[3] = {ls_call_input(call)}, *y;
    if (c.status || !arguments[0])
        return c.status;
    enum ls_status status = ls_add_image(graph, &o.convolution, arguments[0], &arguments[0]);
    if (!status)
        status = add_depthwise(graph, "depthwise_kernel", &o, arguments[0], &arguments[1]);
    if (!status)
        status = ls_graph_add(graph, LS_OP_CONV2D, &o.convolution.attributes, arguments, 2, NULL,
                              &arguments[0]);
    if (status)
        return status;
    const struct ls_shape pointwise = {.ndims = 4,
                                       .dims = {1, 1, arguments[0]->shape.dims[3], o.filters}};
    status = ls_add_kernel(graph, "pointwise_kernel", &o.convolution, &pointwise, &pointwise,
                           &o.pointwise, &arguments[1]);
    if (status)
        return status;
    o.convolution.attributes =
        (struct ls_op_attributes){.strides = {1, 1}, .dilation = {1, 1}, .groups = 1};
    status =
        ls_finish_convolution(graph, &o.convolution, LS_OP_CONV2D, arguments, o.filters, NULL, &y);
    return status ? status : ls_add_image_end(graph, &o.convolution, y, outputs);
}

const struct ls_layer_kind ls_layer_depthwise_conv2d = {
    .class_name = "DepthwiseConv2D",
    .summary = "convolution of each channel by itself",
    .keys = depthwise_keys,
    .axes = 2,
    .build = build_depthwise,
};

const struct ls_layer_kind ls_layer_separable_conv2d = {
    .class_name = "SeparableConv2D",
    .summary = "convolution of each channel by itself, then of the channels",
    .keys = separable_keys,
    .axes = 2,
    .build = build_separable,
};

const struct ls_layer_kind ls_layer_depthwise_conv1d = {
    .class_name = "DepthwiseConv1D",
    .summary = "convolution of each channel of a sequence by itself",
    .keys = depthwise_keys,
    .axes = 1,
    .build = build_depthwise,
};

const struct ls_layer_kind ls_layer_separable_conv1d = {
    .class_name = "SeparableConv1D",
    .summary = "convolution of each channel of a sequence by itself, then of the channels",
    .keys = separable_keys,
    .axes = 1,
    .build = build_separable,
};
