// SPDX-License-Identifier: Apache-2.0
// Add, Subtract, Multiply, Average, Maximum and Minimum: several tensors element by element, with
// numpy's broadcasting. As in Keras, one with fewer dimensions gets more of size 1 behind the first.
#include "layers/kinds.h"

static const char *const keys[] = {NULL};

static enum ls_status with_dims(struct ls_graph *graph, struct ls_tensor *x, uint32_t ndims,
                                struct ls_tensor **out)
{
    struct ls_shape shape = {.ndims = ndims, .dims = {x->shape.dims[0]}};
    const uint32_t more = ndims - x->shape.ndims;

    *out = x;
    if (more == 0)
        return LS_OK;
    for (uint32_t i = 1; i < ndims; i++)
        shape.dims[i] = i <= more ? 1 : x->shape.dims[i - more];
    return ls_graph_add(graph, LS_OP_RESHAPE, NULL, &x, 1, &shape, out);
}

static enum ls_status merge(struct ls_graph *graph, const struct ls_layer_call *call,
                            uint32_t function, struct ls_tensor **outputs)
{
    struct ls_tensor *merged = NULL, *next;
    uint32_t ndims = 0;
    enum ls_status status = LS_OK;

    if (!call->inputs)
        return LS_OK;
    for (uint32_t i = 0; i < call->input_count; i++)
        if (call->inputs[i]->shape.ndims > ndims)
            ndims = call->inputs[i]->shape.ndims;
    for (uint32_t i = 0; i < call->input_count && !status; i++) {
        status = with_dims(graph, call->inputs[i], ndims, &next);
        if (!status && merged)
            status = ls_add_pair(graph, function, merged, next, &next);
        merged = next;
    }
    *outputs = merged;
    return status;
}

static enum ls_status build_add(struct ls_graph *graph, const struct ls_layer_call *call,
                                struct ls_tensor **outputs)
{
    return merge(graph, call, LS_PAIR_ADD, outputs);
}

static enum ls_status build_subtract(struct ls_graph *graph, const struct ls_layer_call *call,
                                     struct ls_tensor **outputs)
{
    return merge(graph, call, LS_PAIR_SUBTRACT, outputs);
}

static enum ls_status build_multiply(struct ls_graph *graph, const struct ls_layer_call *call,
                                     struct ls_tensor **outputs)
{
    return merge(graph, call, LS_PAIR_MULTIPLY, outputs);
}

static enum ls_status build_average(struct ls_graph *graph, const struct ls_layer_call *call,
                                    struct ls_tensor **outputs)
{
    struct ls_tensor *sum = NULL;
    enum ls_status status = merge(graph, call, LS_PAIR_ADD, &sum);
    if (status || !sum)
        return status;
    return ls_add_scale(graph, 1.0 / call->input_count, 0, sum, outputs);
}

static enum ls_status build_maximum(struct ls_graph *graph, const struct ls_layer_call *call,
                                    struct ls_tensor **outputs)
{
    return merge(graph, call, LS_PAIR_MAXIMUM, outputs);
}

static enum ls_status build_minimum(struct ls_graph *graph, const struct ls_layer_call *call,
                                    struct ls_tensor **outputs)
{
    return merge(graph, call, LS_PAIR_MINIMUM, outputs);
}

#define MERGE(name, text, least, most, function)                                         \
    {                                                                                    \
        .class_name = name, .summary = text, .least_inputs = least, .most_inputs = most, \
        .mask = LS_MASK_PASSES, .keys = keys, .build = function,                         \
    }
const struct ls_layer_kind ls_layer_add =
    MERGE("Add", "the sum of its inputs", 1, LS_LAYER_INPUTS, build_add);
const struct ls_layer_kind ls_layer_subtract =
    MERGE("Subtract", "the first input less the second", 2, 2, build_subtract);
const struct ls_layer_kind ls_layer_multiply =
    MERGE("Multiply", "the product of its inputs", 1, LS_LAYER_INPUTS, build_multiply);
const struct ls_layer_kind ls_layer_average =
    MERGE("Average", "the mean of its inputs", 1, LS_LAYER_INPUTS, build_average);
const struct ls_layer_kind ls_layer_maximum =
    MERGE("Maximum", "the largest of its inputs", 1, LS_LAYER_INPUTS, build_maximum);
const struct ls_layer_kind ls_layer_minimum =
    MERGE("Minimum", "the smallest of its inputs", 1, LS_LAYER_INPUTS, build_minimum);
