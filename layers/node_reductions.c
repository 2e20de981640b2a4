// SPDX-License-Identifier: Apache-2.0
// Operation nodes that reduce dimensions: mean, sum, largest and smallest element.
#include "layers/node_kinds.h"

#include <string.h>

// Fills axes[i] with 1 where dimension i is reduced.
static void read_axes(struct ls_config *c, const struct ls_tensor *x, int32_t *axes)
{
    const json_t *value = json_object_get(c->object, "axis"), *element;
    size_t i;

    if (!value || json_is_null(value))
        ls_config_fail(c, "axis", "without it the batch would be reduced, too; name the others");
    if (json_is_integer(value))
        axes[ls_node_axis(c, "axis", value, x, 0)] = 1;
    else if (json_array_size(value) == 0 && !c->status)
        ls_config_fail(c, "axis", "expected a dimension or a list of them");
    json_array_foreach((json_t *)value, i, element) axes[ls_node_axis(c, "axis", element, x, 0)] =
        1;
}

static enum ls_status reduce(struct ls_graph *graph, const struct ls_op_attributes *attributes,
                             bool smallest, struct ls_tensor *x, struct ls_tensor **out)
{
    struct ls_tensor *from = x, *reduced;
    enum ls_status status = LS_OK;
    if (smallest)
        status = ls_add_scale(graph, -1, 0, x, &from);
    if (!status)
        status = ls_graph_add(graph, LS_OP_REDUCE, attributes, &from, 1, NULL, &reduced);
    if (!status && smallest)
        return ls_add_scale(graph, -1, 0, reduced, out);
    if (!status)
        *out = reduced;
    return status;
}

enum ls_status ls_build_reduce_node(struct ls_graph *graph, const struct ls_layer_call *call,
                                    struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call), *reduced;
    const char *name = ls_node_class(graph);
    const bool keep = ls_config_boolean(&c, "keepdims", false);
    struct ls_op_attributes attributes = {.function = strcmp(name, "Mean") == 0 ? LS_REDUCE_TO_MEAN
                                                      : strcmp(name, "Sum") == 0
                                                          ? LS_REDUCE_TO_SUM
                                                          : LS_REDUCE_TO_MAXIMUM};
    struct ls_shape shape = {0};

    ls_config_null(&c, "initial");
    if (x)
        read_axes(&c, x, attributes.axes);
    if (c.status || !x)
        return c.status;
    enum ls_status status = reduce(graph, &attributes, strcmp(name, "Min") == 0, x, &reduced);
    if (status)
        return status;
    for (uint32_t i = 0; i < x->shape.ndims; i++)
        if (keep || attributes.axes[i] == 0)
            shape.dims[shape.ndims++] = reduced->shape.dims[i];
    return ls_node_reshape(graph, reduced, &shape, outputs);
}
