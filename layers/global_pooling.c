// SPDX-License-Identifier: Apache-2.0
// GlobalAveragePooling2D and GlobalMaxPooling2D: one number a channel. As in Keras, equal largest
// elements share the gradient here, where MaxPooling2D gives it to the first.
#include "layers/kinds.h"

static const char *const keys[] = {"data_format", "keepdims", NULL};

// x: (B, H, W, C) -> (B, C), or (B, 1, 1, C) with keepdims
static enum ls_status pool(struct ls_graph *graph, const struct ls_layer_call *call, bool largest,
                           struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call), *pooled;
    const bool keeps = ls_config_boolean(&c, "keepdims", false);

    ls_config_data_format(&c);
    if (c.status || !input)
        return c.status;
    if (input->shape.ndims != 4)
        return ls_graph_fail(graph, input, "expected 4 dimensions: batch, rows, columns, channels");
    const int64_t rows = input->shape.dims[1], columns = input->shape.dims[2];
    const struct ls_op_attributes reduction = {.function = LS_REDUCE_TO_MAXIMUM, .axes = {0, 1, 1}};
    const struct ls_op_attributes window = {.kernel = {(int32_t)rows, (int32_t)columns},
                                            .strides = {1, 1}};
    if (rows > INT32_MAX || columns > INT32_MAX)
        return ls_graph_fail(graph, input, "the image is too large");
    enum ls_status status =
        largest ? ls_graph_add(graph, LS_OP_REDUCE, &reduction, &input, 1, NULL, &pooled)
                : ls_graph_add(graph, LS_OP_AVERAGE_POOL2D, &window, &input, 1, NULL, &pooled);
    if (status || keeps) {
        *outputs = status ? NULL : pooled;
        return status;
    }
    const struct ls_shape flat = {.ndims = 2, .dims = {input->shape.dims[0], input->shape.dims[3]}};
    return ls_graph_add(graph, LS_OP_RESHAPE, NULL, &pooled, 1, &flat, outputs);
}

static enum ls_status build_average(struct ls_graph *graph, const struct ls_layer_call *call,
                                    struct ls_tensor **outputs)
{
    return pool(graph, call, false, outputs);
}

static enum ls_status build_max(struct ls_graph *graph, const struct ls_layer_call *call,
                                struct ls_tensor **outputs)
{
    return pool(graph, call, true, outputs);
}

const struct ls_layer_kind ls_layer_global_average_pooling2d = {
    .class_name = "GlobalAveragePooling2D",
    .summary = "the mean of each channel",
    .keys = keys,
    .build = build_average,
};

const struct ls_layer_kind ls_layer_global_max_pooling2d = {
    .class_name = "GlobalMaxPooling2D",
    .summary = "the largest element of each channel",
    .keys = keys,
    .build = build_max,
};
