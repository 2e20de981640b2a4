// SPDX-License-Identifier: Apache-2.0
// Pooling of sequences, as images of one row: windows, and one number a channel.
#include "layers/convolution.h"

static const char *const keys[] = {"pool_size", "strides", "padding", "data_format", NULL};
static const char *const global_keys[] = {"data_format", "keepdims", NULL};

// x: (B, T, C) as (B, 1, T, C)
static enum ls_status add_image(struct ls_graph *graph, struct ls_tensor *input,
                                struct ls_tensor **out)
{
    const int64_t *dims = input->shape.dims;
    const struct ls_shape image = {.ndims = 4, .dims = {LS_BATCH, 1, dims[1], dims[2]}};

    if (input->shape.ndims != 3)
        return ls_graph_fail(graph, input, "expected 3 dimensions: batch, steps, channels");
    return ls_add_reshape(graph, input, &image, out);
}

// x: (B, T, C) -> (B, OT, C)
static enum ls_status pool(struct ls_graph *graph, uint32_t op, const struct ls_layer_call *call,
                           struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call), *image, *pooled;
    const json_t *strides = json_object_get(call->config, "strides");
    struct ls_op_attributes attributes = {.kernel = {1, 1}, .strides = {1, 1}};

    ls_config_sizes(&c, "pool_size", 1, 2, &attributes.kernel[1]);
    attributes.strides[1] = attributes.kernel[1];
    if (strides && !json_is_null(strides))
        ls_config_sizes(&c, "strides", 1, 1, &attributes.strides[1]);
    const bool same = ls_config_padding_same(&c);
    ls_config_data_format(&c);
    if (c.status || !input)
        return c.status;
    enum ls_status status = add_image(graph, input, &image);
    if (status)
        return status;
    const int64_t steps = input->shape.dims[1];
    if (same)
        ls_same_padding(steps, attributes.kernel[1], attributes.strides[1], 1,
                        &attributes.padding[2], &attributes.padding[3]);
    else if (steps < attributes.kernel[1])
        return ls_graph_fail(graph, input,
                             "pool_size: expected at least %d steps with padding \"valid\"",
                             attributes.kernel[1]);
    status = ls_graph_add(graph, op, &attributes, &image, 1, NULL, &pooled);
    if (status)
        return status;
    const struct ls_shape sequence = {
        .ndims = 3, .dims = {LS_BATCH, pooled->shape.dims[2], input->shape.dims[2]}};
    return ls_add_reshape(graph, pooled, &sequence, outputs);
}

static enum ls_status build_max(struct ls_graph *graph, const struct ls_layer_call *call,
                                struct ls_tensor **outputs)
{
    return pool(graph, LS_OP_MAX_POOL2D, call, outputs);
}

static enum ls_status build_average(struct ls_graph *graph, const struct ls_layer_call *call,
                                    struct ls_tensor **outputs)
{
    return pool(graph, LS_OP_AVERAGE_POOL2D, call, outputs);
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
static enum ls_status pool_all(struct ls_graph *graph, uint32_t function,
                               const struct ls_layer_call *call, struct ls_tensor **outputs)
{
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

static enum ls_status build_global_max(struct ls_graph *graph, const struct ls_layer_call *call,
                                       struct ls_tensor **outputs)
{
    return pool_all(graph, LS_REDUCE_TO_MAXIMUM, call, outputs);
}

static enum ls_status build_global_average(struct ls_graph *graph, const struct ls_layer_call *call,
                                           struct ls_tensor **outputs)
{
    return pool_all(graph, LS_REDUCE_TO_MEAN, call, outputs);
}

const struct ls_layer_kind ls_layer_max_pooling1d = {
    .class_name = "MaxPooling1D",
    .summary = "the largest element of each window of a sequence",
    .keys = keys,
    .build = build_max,
};

const struct ls_layer_kind ls_layer_average_pooling1d = {
    .class_name = "AveragePooling1D",
    .summary = "the mean of each window of a sequence",
    .keys = keys,
    .build = build_average,
};

const struct ls_layer_kind ls_layer_global_average_pooling1d = {
    .class_name = "GlobalAveragePooling1D",
    .summary = "the mean of each channel of a sequence",
    .least_inputs = 1,
    .most_inputs = 2,
    .arguments = mask_arguments,
    .mask = LS_MASK_OWN,
    .keys = global_keys,
    .build = build_global_average,
};

const struct ls_layer_kind ls_layer_global_max_pooling1d = {
    .class_name = "GlobalMaxPooling1D",
    .summary = "the largest element of each channel of a sequence",
    .keys = global_keys,
    .build = build_global_max,
};
