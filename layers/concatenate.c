// SPDX-License-Identifier: Apache-2.0
// Concatenate: its inputs one behind the other along an axis, which is not that of the examples.
#include "layers/kinds.h"

static const char *const keys[] = {"axis", NULL};

enum ls_status ls_add_concatenation(struct ls_graph *graph, struct ls_tensor *const *inputs,
                                    uint32_t count, uint32_t axis, struct ls_tensor **out)
{
    struct ls_op_attributes attributes = {0};
    struct ls_tensor *joined = inputs[0], *parts[LS_CONCATENATE_INPUTS];
    enum ls_status status = LS_OK;

    attributes.axes[axis] = 1;
    for (uint32_t done = 1; done < count && !status;) { // as many at once as the operation takes
        uint32_t at_once = 1;
        for (parts[0] = joined; done < count && at_once < LS_CONCATENATE_INPUTS; done++)
            parts[at_once++] = inputs[done];
        status = ls_graph_add(graph, LS_OP_CONCATENATE, &attributes, parts, at_once, NULL, &joined);
    }
    *out = joined;
    return status;
}

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    int64_t axis = ls_config_integer(&c, "axis", -LS_MAX_DIMS, LS_MAX_DIMS, -1);

    if (c.status || !call->inputs)
        return c.status;
    const uint32_t ndims = call->inputs[0]->shape.ndims;
    axis += axis < 0 ? ndims : 0;
    if (axis < 1 || axis >= ndims)
        return ls_graph_fail(
            graph, call->inputs[0],
            "axis: expected one of %u dimensions, and not the first, got %lld", ndims,
            (long long)ls_config_integer(&c, "axis", -LS_MAX_DIMS, LS_MAX_DIMS, -1));
    return ls_add_concatenation(graph, call->inputs, call->input_count, (uint32_t)axis, outputs);
}

const struct ls_layer_kind ls_layer_concatenate = {
    .class_name = "Concatenate",
    .summary = "its inputs one behind the other",
    .mask = LS_MASK_PASSES,
    .least_inputs = 1,
    .most_inputs = LS_LAYER_INPUTS,
    .keys = keys,
    .build = build,
};
