// SPDX-License-Identifier: Apache-2.0
// Sequences of repeated steps: UpSampling1D, RepeatVector.
#include "layers/convolution.h"

static const char *const size_keys[] = {"size", NULL};
static const char *const repeat_keys[] = {"n", NULL};

// Each of `steps` rows of `channels` elements `times` over: an image of one column, upsampled.
static enum ls_status repeat(struct ls_graph *graph, struct ls_tensor *input, int64_t steps,
                             int64_t channels, int32_t times, struct ls_tensor **out)
{
    const struct ls_op_attributes attributes = {.function = LS_UPSAMPLE_NEAREST,
                                                .strides = {times, 1}};
    const struct ls_shape image = {.ndims = 4, .dims = {LS_BATCH, steps, 1, channels}};
    const struct ls_shape sequence = {.ndims = 3, .dims = {LS_BATCH, steps * times, channels}};
    struct ls_tensor *x;

    enum ls_status status = ls_add_reshape(graph, input, &image, &x);
    if (!status)
        status = ls_graph_add(graph, LS_OP_UPSAMPLE2D, &attributes, &x, 1, NULL, &x);
    return status ? status : ls_add_reshape(graph, x, &sequence, out);
}

// x: (B, T, C) -> (B, size T, C)
static enum ls_status build_up_sampling(struct ls_graph *graph, const struct ls_layer_call *call,
                                        struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call);
    int32_t size;

    ls_config_sizes(&c, "size", 1, 2, &size);
    if (c.status || !input)
        return c.status;
    if (input->shape.ndims != 3)
        return ls_graph_fail(graph, input, "expected 3 dimensions: batch, steps, channels");
    return repeat(graph, input, input->shape.dims[1], input->shape.dims[2], size, outputs);
}

// x: (B, C) -> (B, n, C)
static enum ls_status build_repeat(struct ls_graph *graph, const struct ls_layer_call *call,
                                   struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call);
    const int64_t n = ls_config_integer(&c, "n", 1, LS_CONFIG_WINDOW, LS_CONFIG_NONE);

    if (c.status || !input)
        return c.status;
    if (input->shape.ndims != 2)
        return ls_graph_fail(graph, input, "expected 2 dimensions: batch, elements");
    return repeat(graph, input, 1, input->shape.dims[1], (int32_t)n, outputs);
}

const struct ls_layer_kind ls_layer_up_sampling1d = {
    .class_name = "UpSampling1D",
    .summary = "a sequence with each step repeated",
    .keys = size_keys,
    .build = build_up_sampling,
};

const struct ls_layer_kind ls_layer_repeat_vector = {
    .class_name = "RepeatVector",
    .summary = "a sequence of one vector",
    .keys = repeat_keys,
    .build = build_repeat,
};
