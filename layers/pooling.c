// SPDX-License-Identifier: Apache-2.0
// Pooling by windows that move over images, and over sequences as images of one row. Of the mean, padding is not counted.
#include "layers/convolution.h"

static const char *const keys[] = {"pool_size", "strides", "padding", "data_format", NULL};

// x: (B, H, W, C) -> (B, OH, OW, C), or (B, T, C) -> (B, OT, C)
static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call), *pooled;
    const uint32_t axes = call->kind->axes, first = 2 - axes;
    const json_t *given = json_object_get(call->config, "strides");
    struct ls_op_attributes attributes = {.kernel = {1, 1}};
    int32_t *window = attributes.kernel, *strides = attributes.strides;

    ls_config_sizes(&c, "pool_size", axes, 2, &window[first]);
    strides[0] = window[0], strides[1] = window[1];
    if (given && !json_is_null(given))
        ls_config_sizes(&c, "strides", axes, 1, &strides[first]);
    const bool same = ls_config_padding_same(&c);
    ls_config_data_format(&c);
    if (c.status || !input)
        return c.status;

    if (input->shape.ndims != axes + 2)
        return ls_graph_fail(graph, input, "expected %u dimensions: batch, %s, channels", axes + 2,
                             axes == 1 ? "steps" : "rows, columns");
    const int64_t *dims = input->shape.dims;
    const struct ls_shape row = {.ndims = 4, .dims = {LS_BATCH, 1, dims[1], dims[2]}};
    enum ls_status status = ls_add_reshape(graph, input, axes == 1 ? &row : &input->shape, &pooled);
    for (uint32_t axis = first; axis < 2 && !status; axis++) {
        const int64_t size = dims[1 + axis - first];
        if (same)
            ls_same_padding(size, window[axis], strides[axis], 1, &attributes.padding[2 * axis],
                            &attributes.padding[2 * axis + 1]);
        else if (size < window[axis])
            return ls_graph_fail(graph, input,
                                 "pool_size: expected at least %d %s with padding \"valid\"",
                                 window[axis],
                                 axes == 1   ? "steps"
                                 : axis == 0 ? "rows"
                                             : "columns");
    }
    if (!status)
        status = ls_graph_add(graph, call->kind->function, &attributes, &pooled, 1, NULL, &pooled);
    if (status)
        return status;
    const struct ls_shape sequence = {.ndims = 3,
                                      .dims = {LS_BATCH, pooled->shape.dims[2], dims[2]}};
    return ls_add_reshape(graph, pooled, axes == 1 ? &sequence : &pooled->shape, outputs);
}

const struct ls_layer_kind ls_layer_max_pooling2d = {
    .class_name = "MaxPooling2D",
    .summary = "the largest element of each window",
    .keys = keys,
    .axes = 2,
    .function = LS_OP_MAX_POOL2D,
    .build = build,
};

const struct ls_layer_kind ls_layer_average_pooling2d = {
    .class_name = "AveragePooling2D",
    .summary = "the mean of each window",
    .keys = keys,
    .axes = 2,
    .function = LS_OP_AVERAGE_POOL2D,
    .build = build,
};

const struct ls_layer_kind ls_layer_max_pooling1d = {
    .class_name = "MaxPooling1D",
    .summary = "the largest element of each window of a sequence",
    .keys = keys,
    .axes = 1,
    .function = LS_OP_MAX_POOL2D,
    .build = build,
};

const struct ls_layer_kind ls_layer_average_pooling1d = {
    .class_name = "AveragePooling1D",
    .summary = "the mean of each window of a sequence",
    .keys = keys,
    .axes = 1,
    .function = LS_OP_AVERAGE_POOL2D,
    .build = build,
};
