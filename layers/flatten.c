// SPDX-License-Identifier: Apache-2.0
// Flatten: all dimensions of an example as one.
#include "layers/kinds.h"

static const char *const keys[] = {"data_format", NULL};

// x: (B, ...) -> (B, N)
static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call);
    ls_config_data_format(&c);
    if (c.status || !input)
        return c.status;

    const struct ls_shape flat = {.ndims = 2,
                                  .dims = {LS_BATCH, ls_shape_elements(&input->shape, 1)}};
    if (input->shape.ndims == 2) {
        *outputs = input;
        return LS_OK;
    }
    return ls_graph_add(graph, LS_OP_RESHAPE, NULL, &input, 1, &flat, outputs);
}

const struct ls_layer_kind ls_layer_flatten = {
    .class_name = "Flatten",
    .summary = "all dimensions of an example as one",
    .keys = keys,
    .build = build,
};
