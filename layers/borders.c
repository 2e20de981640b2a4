// SPDX-License-Identifier: Apache-2.0
// ZeroPadding2D adds rows and columns of zeros around an image, Cropping2D takes some away.
#include "layers/kinds.h"

static const char *const padding_keys[] = {"padding", "data_format", NULL};
static const char *const cropping_keys[] = {"cropping", "data_format", NULL};

// x: (B, H, W, C) -> (B, H + top + bottom, W + left + right, C), or less of both
static enum ls_status build_borders(struct ls_graph *graph, const struct ls_layer_call *call,
                                    const char *key, int32_t missing, int sign,
                                    struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call);
    struct ls_op_attributes attributes = {0};
    int32_t borders[4]; // top, bottom, left, right

    ls_config_borders(&c, key, missing, borders);
    ls_config_data_format(&c);
    if (c.status || !input)
        return c.status;
    if (input->shape.ndims != 4)
        return ls_graph_fail(graph, input, "expected 4 dimensions: batch, rows, columns, channels");
    struct ls_shape shape = input->shape;
    for (int axis = 0; axis < 2; axis++) {
        attributes.axes[1 + axis] = borders[2 * axis];
        shape.dims[1 + axis] += sign * ((int64_t)borders[2 * axis] + borders[2 * axis + 1]);
        if (shape.dims[1 + axis] < 1)
            return ls_graph_fail(graph, input, "%s: nothing remains of %lld %s", key,
                                 (long long)input->shape.dims[1 + axis],
                                 axis == 0 ? "rows" : "columns");
    }
    if (ls_shape_equal(&shape, &input->shape)) {
        *outputs = input;
        return LS_OK;
    }
    return ls_graph_add(graph, sign > 0 ? LS_OP_PAD : LS_OP_SLICE, &attributes, &input, 1, &shape,
                        outputs);
}

static enum ls_status build_padding(struct ls_graph *graph, const struct ls_layer_call *call,
                                    struct ls_tensor **outputs)
{
    return build_borders(graph, call, "padding", 1, 1, outputs);
}

static enum ls_status build_cropping(struct ls_graph *graph, const struct ls_layer_call *call,
                                     struct ls_tensor **outputs)
{
    return build_borders(graph, call, "cropping", 0, -1, outputs);
}

const struct ls_layer_kind ls_layer_zero_padding2d = {
    .class_name = "ZeroPadding2D",
    .summary = "rows and columns of zeros around an image",
    .keys = padding_keys,
    .build = build_padding,
};

const struct ls_layer_kind ls_layer_cropping2d = {
    .class_name = "Cropping2D",
    .summary = "an image without its outer rows and columns",
    .keys = cropping_keys,
    .build = build_cropping,
};
