// SPDX-License-Identifier: Apache-2.0
// Add, Subtract, Multiply, Average, Maximum and Minimum: several tensors element by element, with
// numpy's broadcasting. As in Keras, one with fewer dimensions gets more of size 1 behind the
// first, and steps that a mask leaves out are 1 in Multiply and ignored in Maximum and Minimum.
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

// The mask of an input as a column (B,T,1), where `function` obeys masks; NULL: none.
static enum ls_status column_of_mask(struct ls_graph *graph, uint32_t function,
                                     struct ls_tensor *input, struct ls_tensor **out)
{
    const bool obeys =
        function == LS_PAIR_MULTIPLY || function == LS_PAIR_MAXIMUM || function == LS_PAIR_MINIMUM;

    *out = NULL;
    if (!obeys || !input->mask)
        return LS_OK;
    if (input->shape.ndims != 3 || input->mask->shape.ndims != 2)
        return ls_graph_fail(graph, input,
                             "the input has a mask (mask_zero or Masking), which Keras obeys here "
                             "in sequences, (batch, steps, features), alone; remove the mask");
    const struct ls_shape shape = {
        .ndims = 3, .dims = {input->mask->shape.dims[0], input->mask->shape.dims[1], 1}};
    return ls_graph_add(graph, LS_OP_RESHAPE, NULL, &input->mask, 1, &shape, out);
}

// a where the mask is 1, b where it is 0; b NULL: 1.
static enum ls_status choose(struct ls_graph *graph, struct ls_tensor *mask, struct ls_tensor *a,
                             struct ls_tensor *b, struct ls_tensor **out)
{
    struct ls_tensor *rest;

    enum ls_status status = ls_add_scale(graph, -1, 1, mask, &rest);
    if (!status && b)
        status = ls_add_pair(graph, LS_PAIR_MULTIPLY, b, rest, &rest);
    if (!status)
        status = ls_add_pair(graph, LS_PAIR_MULTIPLY, a, mask, out);
    return status ? status : ls_add_pair(graph, LS_PAIR_ADD, *out, rest, out);
}

// Merges the next input into what is merged; their masks, or NULL, likewise.
static enum ls_status merge_next(struct ls_graph *graph, uint32_t function, struct ls_tensor *next,
                                 struct ls_tensor *next_mask, struct ls_tensor **merged,
                                 struct ls_tensor **mask)
{
    struct ls_tensor *before = *merged;
    enum ls_status status = LS_OK;

    if (next_mask && function != LS_PAIR_MULTIPLY)
        status = choose(graph, next_mask, next, before, &next);
    if (!status && *mask && function != LS_PAIR_MULTIPLY)
        status = choose(graph, *mask, before, next, &before);
    if (!status)
        status = ls_add_pair(graph, function, before, next, merged);
    if (!next_mask || !*mask)
        *mask = NULL;
    else if (!status && next_mask != *mask)
        status = ls_add_pair(graph, LS_PAIR_MAXIMUM, *mask, next_mask, mask);
    return status;
}

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    const uint32_t function = call->kind->function;
    struct ls_tensor *merged = NULL, *next, *mask = NULL, *own = NULL;
    uint32_t ndims = 0;
    enum ls_status status = LS_OK;

    if (!call->inputs)
        return LS_OK;
    for (uint32_t i = 0; i < call->input_count; i++)
        if (call->inputs[i]->shape.ndims > ndims)
            ndims = call->inputs[i]->shape.ndims;
    for (uint32_t i = 0; i < call->input_count && !status; i++) {
        status = column_of_mask(graph, function, call->inputs[i], &own);
        if (!status)
            status = with_dims(graph, call->inputs[i], ndims, &next);
        if (!status && own && function == LS_PAIR_MULTIPLY)
            status = choose(graph, own, next, NULL, &next);
        if (!status && merged) {
            status = merge_next(graph, function, next, own, &merged, &mask);
        } else {
            merged = next;
            mask = own;
        }
    }
    if (!status && mask && function == LS_PAIR_MULTIPLY)
        status = ls_add_pair(graph, LS_PAIR_MULTIPLY, merged, mask, &merged);
    *outputs = merged;
    return status;
}

static enum ls_status build_average(struct ls_graph *graph, const struct ls_layer_call *call,
                                    struct ls_tensor **outputs)
{
    struct ls_tensor *sum = NULL;
    enum ls_status status = build(graph, call, &sum);
    if (status || !sum)
        return status;
    return ls_add_scale(graph, 1.0 / call->input_count, 0, sum, outputs);
}

#define MERGE(name, text, least, most, function_, build_)                                \
    {                                                                                    \
        .class_name = name, .summary = text, .least_inputs = least, .most_inputs = most, \
        .mask = LS_MASK_PASSES, .keys = keys, .function = function_, .build = build_,    \
    }
const struct ls_layer_kind ls_layer_add =
    MERGE("Add", "the sum of its inputs", 1, LS_LAYER_INPUTS, LS_PAIR_ADD, build);
const struct ls_layer_kind ls_layer_subtract =
    MERGE("Subtract", "the first input less the second", 2, 2, LS_PAIR_SUBTRACT, build);
const struct ls_layer_kind ls_layer_multiply =
    MERGE("Multiply", "the product of its inputs", 1, LS_LAYER_INPUTS, LS_PAIR_MULTIPLY, build);
const struct ls_layer_kind ls_layer_average =
    MERGE("Average", "the mean of its inputs", 1, LS_LAYER_INPUTS, LS_PAIR_ADD, build_average);
const struct ls_layer_kind ls_layer_maximum =
    MERGE("Maximum", "the largest of its inputs", 1, LS_LAYER_INPUTS, LS_PAIR_MAXIMUM, build);
const struct ls_layer_kind ls_layer_minimum =
    MERGE("Minimum", "the smallest of its inputs", 1, LS_LAYER_INPUTS, LS_PAIR_MINIMUM, build);
