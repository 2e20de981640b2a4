// SPDX-License-Identifier: Apache-2.0
// ZeroPadding1D, 2D and 3D add zeros around a sequence, an image or a volume, Cropping1D, 2D and 3D
// take some away.
#include "layers/kinds.h"

static const char *const padding_keys[] = {"padding", "data_format", NULL};
static const char *const cropping_keys[] = {"cropping", "data_format", NULL};
static const char *const cropping_steps_keys[] = {"cropping", NULL};

// x: (B, H, W, C) -> (B, H + top + bottom, W + left + right, C), or less of both; likewise (B, T,
// C), (B, D, H, W, C)
static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    static const char *const names[3][3] = {
        {"steps"}, {"rows", "columns"}, {"planes", "rows", "columns"}};
    static const char *const dimensions[] = {"steps", "rows, columns", "three of space"};
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call);
    struct ls_op_attributes attributes = {0};
    const uint32_t axes = call->kind->axes, op = call->kind->function;
    const char *key = op == LS_OP_PAD ? "padding" : "cropping";
    const int32_t missing = op == LS_OP_PAD || axes != 2; // as in Keras
    int32_t borders[3][2] = {{0}}; // before and behind

    ls_config_borders(&c, key, axes, missing, borders);
    ls_config_data_format(&c);
    if (c.status || !input)
        return c.status;
    if (input->shape.ndims != axes + 2)
        return ls_graph_fail(graph, input, "expected %u dimensions: batch, %s, channels", axes + 2,
                             dimensions[axes - 1]);
    struct ls_shape shape = input->shape;
    for (uint32_t i = 0; i < axes; i++) {
        const int64_t both = (int64_t)borders[i][0] + borders[i][1];
        attributes.axes[1 + i] = borders[i][0];
        shape.dims[1 + i] += op == LS_OP_PAD ? both : -both;
        if (shape.dims[1 + i] < 1)
            return ls_graph_fail(graph, input, "%s: nothing remains of %lld %s", key,
                                 (long long)input->shape.dims[1 + i], names[axes - 1][i]);
    }
    *outputs = input;
    return ls_shape_equal(&shape, &input->shape)
               ? LS_OK
               : ls_graph_add(graph, op, &attributes, &input, 1, &shape, outputs);
}

const struct ls_layer_kind ls_layer_zero_padding2d = {
    .class_name = "ZeroPadding2D",
    .summary = "rows and columns of zeros around an image",
    .keys = padding_keys,
    .axes = 2,
    .function = LS_OP_PAD,
    .build = build,
};

const struct ls_layer_kind ls_layer_cropping2d = {
    .class_name = "Cropping2D",
    .summary = "an image without its outer rows and columns",
    .keys = cropping_keys,
    .axes = 2,
    .function = LS_OP_SLICE,
    .build = build,
};

const struct ls_layer_kind ls_layer_zero_padding1d = {
    .class_name = "ZeroPadding1D",
    .summary = "steps of zeros before and after a sequence",
    .keys = padding_keys,
    .axes = 1,
    .function = LS_OP_PAD,
    .build = build,
};

const struct ls_layer_kind ls_layer_cropping1d = {
    .class_name = "Cropping1D",
    .summary = "a sequence without its first and last steps",
    .keys = cropping_steps_keys,
    .axes = 1,
    .function = LS_OP_SLICE,
    .build = build,
};

const struct ls_layer_kind ls_layer_zero_padding3d = {
    .class_name = "ZeroPadding3D",
    .summary = "zeros around a volume",
    .keys = padding_keys,
    .axes = 3,
    .function = LS_OP_PAD,
    .build = build,
};

const struct ls_layer_kind ls_layer_cropping3d = {
    .class_name = "Cropping3D",
    .summary = "a volume without its outer elements",
    .keys = cropping_keys,
    .axes = 3,
    .function = LS_OP_SLICE,
    .build = build,
};
