// SPDX-License-Identifier: Apache-2.0
// Permute: the dimensions of an example in another order.
#include "layers/kinds.h"

static const char *const keys[] = {"dims", NULL};

// Reads 1, 2, ... in any order into axes[1], axes[2], ...; answers how many.
static uint32_t read_dims(struct ls_config *config, int32_t *axes)
{
    const json_t *list = json_object_get(config->object, "dims");
    const size_t count = json_array_size(list);
    uint32_t seen = 0;
    char text[64];

    for (size_t i = 0; i < count && count < LS_MAX_DIMS; i++) {
        const json_int_t dim = json_integer_value(json_array_get(list, i));
        if (dim < 1 || dim > (json_int_t)count)
            break;
        seen |= 1U << dim;
        axes[1 + i] = (int32_t)dim;
    }
    if (count == 0 || count >= LS_MAX_DIMS || seen != (1U << (count + 1)) - 2)
        ls_config_fail(config, "dims",
                       "expected a list of the numbers from 1 on, each once, at most %d, got %s",
                       LS_MAX_DIMS - 1, ls_json_text(list, text, sizeof(text)));
    return (uint32_t)count;
}

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call);
    struct ls_op_attributes attributes = {0};
    const uint32_t count = read_dims(&c, attributes.axes);

    if (c.status || !input)
        return c.status;
    if (input->shape.ndims != count + 1)
        return ls_graph_fail(graph, input, "dims: expected %u numbers, one a dimension, got %u",
                             input->shape.ndims - 1, count);
    return ls_graph_add(graph, LS_OP_TRANSPOSE, &attributes, &input, 1, NULL, outputs);
}

const struct ls_layer_kind ls_layer_permute = {
    .class_name = "Permute",
    .summary = "the dimensions of an example in another order",
    .keys = keys,
    .build = build,
};
