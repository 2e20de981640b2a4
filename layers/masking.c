// SPDX-License-Identifier: Apache-2.0
// Masking: steps of which all features have a given value do not count, and become 0.
#include "layers/convolution.h"

#include <float.h>

static const char *const keys[] = {"mask_value", NULL};

// x: (B, T, ..., C) -> the same, with a mask (B, T, ...)
static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call), *mask, *factor;
    struct ls_op_attributes attributes = {
        .offset = (float)ls_config_number(&c, "mask_value", -FLT_MAX, FLT_MAX, 0)};

    if (c.status || !input)
        return c.status;
    if (input->shape.ndims != 3)
        return ls_graph_fail(graph, input, "expected 3 dimensions: batch, steps, features");
    attributes.axes[2] = 1;
    enum ls_status status = ls_graph_add(graph, LS_OP_DIFFERS, &attributes, &input, 1, NULL, &mask);
    const struct ls_shape shape = {.ndims = 3, .dims = {LS_BATCH, input->shape.dims[1], 1}};
    if (!status)
        status = ls_add_reshape(graph, mask, &shape, &factor);
    if (!status)
        status = ls_add_pair(graph, LS_PAIR_MULTIPLY, input, factor, outputs);
    if (!status)
        outputs[0]->mask = mask;
    return status;
}

const struct ls_layer_kind ls_layer_masking = {
    .class_name = "Masking",
    .summary = "leaves out steps of a given value",
    .mask = LS_MASK_OWN,
    .keys = keys,
    .build = build,
};
