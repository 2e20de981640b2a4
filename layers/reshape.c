// SPDX-License-Identifier: Apache-2.0
// Reshape: the same elements, in the same order, in another shape; one size may be -1, what remains.
#include "layers/kinds.h"

static const char *const keys[] = {"target_shape", NULL};

// Reads the sizes; `open` is the index of the one that is -1, else -1.
static void read_target(struct ls_config *config, struct ls_shape *shape, int *open)
{
    const json_t *list = json_object_get(config->object, "target_shape");
    const size_t count = json_array_size(list);
    char text[64];

    *open = -1;
    shape->dims[0] = LS_BATCH;
    bool right = count >= 1 && count < LS_MAX_DIMS;
    for (size_t i = 0; right && i < count; i++) {
        const json_t *value = json_array_get(list, i);
        const json_int_t size = json_integer_value(value);
        right = json_is_integer(value) && size <= LS_CONFIG_LARGEST &&
                (size >= 1 || (size == -1 && *open < 0));
        if (size == -1)
            *open = (int)i + 1;
        shape->dims[i + 1] = size;
    }
    shape->ndims = (uint32_t)count + 1;
    if (!right)
        ls_config_fail(config, "target_shape",
                       "expected a list of 1 to %d positive integers, one of them may be "
                       "-1, got %s",
                       LS_MAX_DIMS - 1, ls_json_text(list, text, sizeof(text)));
}

// x: (B, ...) -> (B, target_shape...)
static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call);
    struct ls_shape shape;
    int open;
    int64_t known = 1;
    char text[64];

    read_target(&c, &shape, &open);
    if (c.status || !input)
        return c.status;
    const int64_t elements = ls_shape_elements(&input->shape, 1);
    for (uint32_t i = 1; i < shape.ndims && known <= elements; i++)
        known *= (int)i == open ? 1 : shape.dims[i];
    if (open < 0 ? known != elements : known > elements || elements % known != 0)
        return ls_graph_fail(
            graph, input, "target_shape: %lld elements do not make %s", (long long)elements,
            ls_json_text(json_object_get(call->config, "target_shape"), text, sizeof(text)));
    if (open > 0)
        shape.dims[open] = elements / known;
    return ls_graph_add(graph, LS_OP_RESHAPE, NULL, &input, 1, &shape, outputs);
}

const struct ls_layer_kind ls_layer_reshape = {
    .class_name = "Reshape",
    .summary = "the same elements in another shape",
    .keys = keys,
    .build = build,
};
