// SPDX-License-Identifier: Apache-2.0
// Pooling of images and of sequences to one number a channel. As in Keras, equal largest
// elements share the gradient here, where MaxPooling2D gives it to the first.
#include "layers/convolution.h"

static const char *const keys[] = {"data_format", "keepdims", NULL};

// x: (B, H, W, C) -> (B, C), or (B, 1, 1, C) with keepdims
static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
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
        call->kind->function == LS_REDUCE_TO_MAXIMUM
            ? ls_graph_add(graph, LS_OP_REDUCE, &reduction, &input, 1, NULL, &pooled)
            : ls_graph_add(graph, LS_OP_AVERAGE_POOL2D, &window, &input, 1, NULL, &pooled);
    if (status || keeps) {
        *outputs = status ? NULL : pooled;
        return status;
    }
    const struct ls_shape flat = {.ndims = 2, .dims = {input->shape.dims[0], input->shape.dims[3]}};
    return ls_graph_add(graph, LS_OP_RESHAPE, NULL, &pooled, 1, &flat, outputs);
}

static const char *const mask_arguments[] = {"inputs", "mask", NULL};

// The mean over the steps that count: the sum of these divided by their number.
static enum ls_status masked_mean(struct ls_graph *graph, struct ls_tensor *x,
                                  struct ls_tensor *mask, struct ls_tensor **out)
{
    const struct ls_op_attributes sum = {.function = LS_REDUCE_TO_SUM, .axes = {0, 1}};
    const struct ls_shape shape = {.ndims = 3, .dims = {LS_BATCH, x->shape.dims[1], 1}};
    struct ls_tensor *count;

    enum ls_status status = ls_add_reshape(graph, mask, &shape, &mask);
    if (!status)
        status = ls_add_pair(graph, LS_PAIR_MULTIPLY, x, mask, &x);
    if (!status)
        status = ls_graph_add(graph, LS_OP_REDUCE, &sum, &x, 1, NULL, &x);
    if (!status)
        status = ls_graph_add(graph, LS_OP_REDUCE, &sum, &mask, 1, NULL, &count);
    return status ? status : ls_add_pair(graph, LS_PAIR_DIVIDE, x, count, out);
}

// x: (B, T, C) -> (B, C), or (B, 1, C) with keepdims
static enum ls_status build_steps(struct ls_graph *graph, const struct ls_layer_call *call,
                                  struct ls_tensor **outputs)
{
    const uint32_t function = call->kind->function;
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call), *pooled;
    const struct ls_op_attributes reduction = {.function = function, .axes = {0, 1}};
    const bool keeps = ls_config_boolean(&c, "keepdims", false);

    ls_config_data_format(&c);
    if (c.status || !input)
        return c.status;
    if (input->shape.ndims != 3)
        return ls_graph_fail(graph, input, "expected 3 dimensions: batch, steps, channels");
    struct ls_tensor *mask = function == LS_REDUCE_TO_MEAN ? ls_call_mask(call, 1) : NULL;
    if (mask && (mask->shape.ndims != 2 || mask->shape.dims[1] != input->shape.dims[1]))
        return ls_graph_fail(graph, mask, "mask: expected a number for each step");
    const enum ls_status status =
        mask ? masked_mean(graph, input, mask, &pooled)
             : ls_graph_add(graph, LS_OP_REDUCE, &reduction, &input, 1, NULL, &pooled);
    if (status)
        return status;
    const struct ls_shape flat = {.ndims = 2, .dims = {LS_BATCH, input->shape.dims[2]}};
    return ls_add_reshape(graph, pooled, keeps ? &pooled->shape : &flat, outputs);
}

const struct ls_layer_kind ls_layer_global_average_pooling2d = {
    .class_name = "GlobalAveragePooling2D",
    .summary = "the mean of each channel",
    .keys = keys,
    .function = LS_REDUCE_TO_MEAN,
    .build = build,
};

const struct ls_layer_kind ls_layer_global_max_pooling2d = {
    .class_name = "GlobalMaxPooling2D",
    .summary = "the largest element of each channel",
    .keys = keys,
    .function = LS_REDUCE_TO_MAXIMUM,
    .build = build,
};

const struct ls_layer_kind ls_layer_global_average_pooling1d = {
    .class_name = "GlobalAveragePooling1D",
    .summary = "the mean of each channel of a sequence",
    .least_inputs = 1,
    .most_inputs = 2,
    .arguments = mask_arguments,
    .mask = LS_MASK_OWN,
    .keys = keys,
    .function = LS_REDUCE_TO_MEAN,
    .build = build_steps,
};

const struct ls_layer_kind ls_layer_global_max_pooling1d = {
    .class_name = "GlobalMaxPooling1D",
    .summary = "the largest element of each channel of a sequence",
    .keys = keys,
    .function = LS_REDUCE_TO_MAXIMUM,
    .build = build_steps,
};
