// SPDX-License-Identifier: Apache-2.0
// Conv2DTranspose: what a convolution does to gradients, with a kernel (rows, columns, filters,
// channels), then the activation. Conv1DTranspose, Conv3DTranspose: of sequences and volumes.
#include "layers/convolution.h"

static const char *const keys[] = {
    "filters",
    "kernel_size",
    "strides",
    "padding",
    "output_padding",
    "data_format",
    "dilation_rate",
    "groups",
    "activation",
    "use_bias",
    "kernel_initializer",
    "bias_initializer",
    "kernel_regularizer",
    "bias_regularizer",
    "kernel_constraint",
    "bias_constraint",
    NULL,
};

// As Keras: "same" multiplies each dimension of space by the stride; "valid" keeps the whole of
// each window, and at least the stride.
static int64_t size_of(const struct ls_convolution *o, uint32_t axis, int64_t size)
{
    const int64_t stride = ls_moves_along(&o->attributes, o->space, axis).stride;
    const int64_t kernel = ls_window_extent(o, axis);

    return o->same ? size * stride : (size - 1) * stride + (kernel > stride ? kernel : stride);
}

// x: (B, [D], H, W, C) -> (B, [OD], OH, OW, filters); (B, T, C) -> (B, OT, filters) as one row of
// an image
static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_convolution o;
    struct ls_tensor *arguments[3] = {ls_call_input(call)}, *made;
    const int64_t filters = ls_config_integer(&c, "filters", 1, LS_CONFIG_LARGEST, LS_CONFIG_NONE);
    ls_read_convolution(&c, call->kind->axes, &o);
    if (o.causal)
        ls_config_fail(&c, "padding", "expected \"valid\" or \"same\", got \"causal\"");
    ls_config_null(&c, "output_padding");
    ls_config_integer(&c, "groups", 1, 1, 1); // Keras 2 writes 1
    const struct ls_initializer initializer =
        ls_config_initializer(&c, "kernel_initializer", "glorot_uniform");
    if (c.status || !arguments[0])
        return c.status;

    const bool same = o.same;
    o.same = true; // for the input may be smaller than the window
    enum ls_status status = ls_add_image(graph, &o, arguments[0], &arguments[0]);
    o.same = same;
    if (status)
        return status;
    struct ls_shape y = arguments[0]->shape;
    const struct ls_shape kernel = ls_kernel_shape(&o, filters, y.dims[y.ndims - 1]);
    for (uint32_t axis = 0; axis < o.space; axis++)
        y.dims[1 + axis] = size_of(&o, axis, y.dims[1 + axis]);
    y.dims[y.ndims - 1] = filters;
    status = ls_add_kernel(graph, "kernel", &o, &kernel, &kernel, &initializer, &arguments[1]);
    if (status)
        return status;
    ls_pad_convolution(&o, &y); // of the convolution from y to x
    status =
        ls_finish_convolution(graph, &o, LS_OP_CONV2D_TRANSPOSE, arguments, filters, &y, &made);
    return status ? status : ls_add_image_end(graph, &o, made, outputs);
}

const struct ls_layer_kind ls_layer_conv2d_transpose = {
    .class_name = "Conv2DTranspose",
    .summary = "transposed convolution of images",
    .keys = keys,
    .axes = 2,
    .build = build,
};

const struct ls_layer_kind ls_layer_conv3d_transpose = {
    .class_name = "Conv3DTranspose",
    .summary = "transposed convolution of volumes",
    .keys = keys,
    .axes = 3,
    .build = build,
};

const struct ls_layer_kind ls_layer_conv1d_transpose = {
    .class_name = "Conv1DTranspose",
    .summary = "transposed convolution of sequences",
    .keys = keys,
    .axes = 1,
    .build = build,
};
