// SPDX-License-Identifier: Apache-2.0
// What the pooling layers share: a window that moves over images.
#include "layers/kinds.h"

const char *const ls_pooling_keys[] = {"pool_size", "strides", "padding", "data_format", NULL};

// x: (B, H, W, C) -> (B, OH, OW, C)
enum ls_status ls_build_pooling(struct ls_graph *graph, uint32_t op,
                                const struct ls_layer_call *call, struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call);
    struct ls_op_attributes attributes = {0};
    int32_t *window = attributes.kernel, *strides = attributes.strides;

    ls_config_sizes(&c, "pool_size", 2, 2, window);
    if (!json_object_get(call->config, "strides") ||
        json_is_null(json_object_get(call->config, "strides")))
        strides[0] = window[0], strides[1] = window[1];
    else
        ls_config_sizes(&c, "strides", 2, 1, strides);
    const bool same = ls_config_padding_same(&c);
    ls_config_data_format(&c);
    if (c.status || !input)
        return c.status;

    if (input->shape.ndims != 4)
        return ls_graph_fail(graph, input, "expected 4 dimensions: batch, rows, columns, channels");
    for (int axis = 0; axis < 2; axis++) {
        const int64_t size = input->shape.dims[1 + axis];
        if (same)
            ls_same_padding(size, window[axis], strides[axis], 1, &attributes.padding[2 * axis],
                            &attributes.padding[2 * axis + 1]);
        else if (size < window[axis])
            return ls_graph_fail(graph, input,
                                 "pool_size: expected at least %d %s with padding \"valid\"",
                                 window[axis], axis == 0 ? "rows" : "columns");
    }
    return ls_graph_add(graph, op, &attributes, &input, 1, NULL, outputs);
}
