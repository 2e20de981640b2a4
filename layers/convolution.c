// SPDX-License-Identifier: Apache-2.0
// What the convolutions share, and Conv1D, Conv2D and Conv3D: convolution with a kernel ([[planes,] rows,] columns,
// channels / groups, filters), then the activation.
#include "layers/convolution.h"

static const char *const keys[] = {
    "filters",          "kernel_size",
    "strides",          "padding",
    "data_format",      "dilation_rate",
    "groups",           "activation",
    "use_bias",         "kernel_initializer",
    "bias_initializer", "kernel_regularizer",
    "bias_regularizer", "kernel_constraint",
    "bias_constraint",  "lora_rank",
    "lora_alpha",       NULL,
};
// Written as null where they are not used.
static const char *const unsupported[] = {"lora_rank", "lora_alpha", NULL};

void ls_read_convolution(struct ls_config *config, uint32_t axes, struct ls_convolution *out)
{
    const uint32_t space = axes > 2 ? axes : 2, first = space - axes;
    int32_t strides[3] = {1}, dilation[3] = {1};
    bool strided = false, dilated = false;

    *out = (struct ls_convolution){.axes = axes, .space = space, .kernel = {1}};
    out->attributes.groups = 1;
    ls_config_sizes(config, "kernel_size", axes, 0, &out->kernel[first]);
    ls_config_sizes(config, "strides", axes, 1, &strides[first]);
    ls_config_sizes(config, "dilation_rate", axes, 1, &dilation[first]);
    if (axes == 1)
        ls_config_padding_steps(config, &out->same, &out->causal);
    else
        out->same = ls_config_padding_same(config);
    for (uint32_t axis = 0; axis < space; axis++) {
        const struct ls_moves moves = {.stride = strides[axis], .dilation = dilation[axis]};
        ls_set_moves(&out->attributes, space, axis, &moves);
        strided = strided || moves.stride > 1;
        dilated = dilated || moves.dilation > 1;
    }
    ls_config_data_format(config);
    out->use_bias = ls_config_boolean(config, "use_bias", true);
    out->activation = ls_config_activation(config, "activation");
    out->bias_initializer = ls_config_initializer(config, "bias_initializer", "zeros");
    if (strided && dilated)
        ls_config_fail(config, "strides",
                       "must be 1 together with dilation_rate above 1, as in Keras");
}

int64_t ls_window_extent(const struct ls_convolution *o, uint32_t axis)
{
    const int64_t dilation = ls_moves_along(&o->attributes, o->space, axis).dilation;
    return (o->kernel[axis] - 1) * dilation + 1;
}

enum ls_status ls_add_image(struct ls_graph *graph, const struct ls_convolution *o,
                            struct ls_tensor *input, struct ls_tensor **out)
{
    static const char *const names[] = {"planes", "rows", "columns"};
    static const char *const dimensions[] = {"steps", "rows, columns", "planes, rows, columns"};
    const int64_t *dims = input->shape.dims;

    if (input->shape.ndims != o->axes + 2)
        return ls_graph_fail(graph, input, "expected %u dimensions: batch, %s, channels",
                             o->axes + 2, dimensions[o->axes - 1]);
    for (uint32_t i = 0; i < o->axes && !o->same && !o->causal; i++) {
        const int64_t extent = ls_window_extent(o, i + o->space - o->axes);
        if (dims[1 + i] < extent)
            return ls_graph_fail(
                graph, input, "kernel_size: expected at least %lld %s with padding \"valid\"",
                (long long)extent, o->axes == 1 ? "steps" : names[i + 3 - o->axes]);
    }
    const struct ls_shape row = {.ndims = 4, .dims = {LS_BATCH, 1, dims[1], dims[2]}};
    return ls_add_reshape(graph, input, o->axes == 1 ? &row : &input->shape, out);
}

enum ls_status ls_add_image_end(struct ls_graph *graph, const struct ls_convolution *o,
                                struct ls_tensor *image, struct ls_tensor **out)
{
    const int64_t *dims = image->shape.dims;
    const struct ls_shape sequence = {.ndims = 3, .dims = {LS_BATCH, dims[2], dims[3]}};
    return ls_add_reshape(graph, image, o->axes == 1 ? &sequence : &image->shape, out);
}

void ls_pad_convolution(struct ls_convolution *o, const struct ls_shape *image)
{
    const uint32_t last = o->space - 1;

    for (uint32_t axis = 0; axis < o->space && (o->same || o->causal); axis++) {
        struct ls_moves moves = ls_moves_along(&o->attributes, o->space, axis);
        if (o->same)
            ls_same_padding(image->dims[1 + axis], o->kernel[axis], moves.stride, moves.dilation,
                            &moves.before, &moves.after);
        else if (axis == last)
            moves.before = (int32_t)ls_window_extent(o, last) - 1;
        ls_set_moves(&o->attributes, o->space, axis, &moves);
    }
}

struct ls_shape ls_kernel_shape(const struct ls_convolution *o, int64_t before_last, int64_t last)
{
    struct ls_shape shape = {.ndims = o->space + 2};
    for (uint32_t axis = 0; axis < o->space; axis++)
        shape.dims[axis] = o->kernel[axis];
    shape.dims[o->space] = before_last;
    shape.dims[o->space + 1] = last;
    return shape;
}

enum ls_status ls_add_variable(struct ls_graph *graph, const char *name,
                               const struct ls_shape *variable, const struct ls_shape *seen,
                               const struct ls_initializer *initializer, struct ls_tensor **out)
{
    const enum ls_status status = ls_graph_parameter(graph, name, seen, initializer, out);
    if (!status)
        ls_graph_set_variable_shape(*out, variable);
    return status;
}

enum ls_status ls_add_kernel(struct ls_graph *graph, const char *name,
                             const struct ls_convolution *o, const struct ls_shape *variable,
                             const struct ls_shape *seen, const struct ls_initializer *initializer,
                             struct ls_tensor **out)
{
    const int64_t *dims = variable->dims;
    const struct ls_shape row = {.ndims = 3, .dims = {dims[1], dims[2], dims[3]}};
    if (o->axes > 1 && ls_shape_equal(variable, seen))
        return ls_graph_parameter(graph, name, seen, initializer, out);
    return ls_add_variable(graph, name, o->axes == 1 ? &row : variable, seen, initializer, out);
}

enum ls_status ls_add_reshape(struct ls_graph *graph, struct ls_tensor *input,
                              const struct ls_shape *shape, struct ls_tensor **out)
{
    if (ls_shape_equal(&input->shape, shape)) {
        *out = input;
        return LS_OK;
    }
    return ls_graph_add(graph, LS_OP_RESHAPE, NULL, &input, 1, shape, out);
}

enum ls_status ls_finish_convolution(struct ls_graph *graph, const struct ls_convolution *o,
                                     uint32_t op, struct ls_tensor *arguments[3], int64_t size,
                                     const struct ls_shape *shape, struct ls_tensor **out)
{
    const struct ls_shape bias = {.ndims = 1, .dims = {size}};
    enum ls_status status = LS_OK;

    if (o->use_bias)
        status = ls_graph_parameter(graph, "bias", &bias, &o->bias_initializer, &arguments[2]);
    if (!status)
        status =
            ls_graph_add(graph, op, &o->attributes, arguments, o->use_bias ? 3 : 2, shape, out);
    if (status)
        return status;
    return ls_activation_add(graph, &o->activation, *out, out);
}

// ---- Conv1D, Conv2D, Conv3D ----

struct kernel_options {
    struct ls_convolution convolution;
    int64_t filters;
    struct ls_initializer initializer;
};

static enum ls_status read_options(const struct ls_graph *graph, const json_t *object,
                                   uint32_t axes, struct kernel_options *o)
{
    struct ls_config c = {.graph = graph, .object = object};

    o->filters = ls_config_integer(&c, "filters", 1, LS_CONFIG_LARGEST, LS_CONFIG_NONE);
    ls_read_convolution(&c, axes, &o->convolution);
    const int32_t groups = (int32_t)ls_config_integer(&c, "groups", 1, LS_CONFIG_LARGEST, 1);
    o->convolution.attributes.groups = groups;
    o->initializer = ls_config_initializer(&c, "kernel_initializer", "glorot_uniform");
    for (const char *const *key = unsupported; *key; key++)
        ls_config_null(&c, *key);
    if (!c.status && o->filters % groups != 0)
        ls_config_fail(&c, "filters", "%lld cannot be split into %d groups", (long long)o->filters,
                       groups);
    return c.status;
}

// x: (B, [D], H, W, C) -> (B, [OD], OH, OW, filters); (B, T, C) -> (B, OT, filters) as one row of
// an image
static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct kernel_options o = {.filters = 0};
    struct ls_tensor *input = ls_call_input(call), *arguments[3], *y;
    enum ls_status status = read_options(graph, call->config, call->kind->axes, &o);
    if (status || !input)
        return status;
    status = ls_add_image(graph, &o.convolution, input, &arguments[0]);
    if (status)
        return status;

    const struct ls_shape *image = &arguments[0]->shape;
    const int32_t groups = o.convolution.attributes.groups;
    const int64_t channels = image->dims[image->ndims - 1];
    if (channels % groups != 0)
        return ls_graph_fail(graph, input, "groups: %lld channels cannot be split into %d groups",
                             (long long)channels, groups);
    const struct ls_shape shape = ls_kernel_shape(&o.convolution, channels / groups, o.filters);
    status = ls_add_kernel(graph, "kernel", &o.convolution, &shape, &shape, &o.initializer,
                           &arguments[1]);
    if (status)
        return status;
    ls_pad_convolution(&o.convolution, image);
    status =
        ls_finish_convolution(graph, &o.convolution, LS_OP_CONV2D, arguments, o.filters, NULL, &y);
    return status ? status : ls_add_image_end(graph, &o.convolution, y, outputs);
}

const struct ls_layer_kind ls_layer_conv1d = {
    .class_name = "Conv1D",
    .summary = "convolution of sequences",
    .keys = keys,
    .axes = 1,
    .build = build,
};

const struct ls_layer_kind ls_layer_conv2d = {
    .class_name = "Conv2D",
    .summary = "convolution of images",
    .keys = keys,
    .axes = 2,
    .build = build,
};

const struct ls_layer_kind ls_layer_conv3d = {
    .class_name = "Conv3D",
    .summary = "convolution of volumes",
    .keys = keys,
    .axes = 3,
    .build = build,
};
