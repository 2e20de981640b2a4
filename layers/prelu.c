// SPDX-License-Identifier: Apache-2.0
// PReLU: a slope for negative x that is trained, and shared along shared_axes.
#include "layers/kinds.h"

static const char *const keys[] = {"alpha_initializer", "alpha_regularizer", "alpha_constraint",
                                   "shared_axes", NULL};

static enum ls_status share(struct ls_config *c, const json_t *axis, struct ls_shape *alpha)
{
    const json_int_t at = json_integer_value(axis);
    char text[64];

    if (at >= 1 && at <= (json_int_t)alpha->ndims)
        alpha->dims[at - 1] = 1;
    else
        ls_config_fail(c, "shared_axes", "expected axes from 1 to %u, got %s", alpha->ndims,
                       ls_json_text(axis, text, sizeof(text)));
    return c->status;
}

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const json_t *shared = json_object_get(call->config, "shared_axes");
    const struct ls_initializer initializer =
        ls_config_initializer(&c, "alpha_initializer", "zeros");
    struct ls_tensor *arguments[2] = {ls_call_input(call)};
    if (c.status || !arguments[0])
        return c.status;
    if (arguments[0]->shape.ndims < 2)
        return ls_graph_fail(graph, arguments[0], "expected at least 2 dimensions");

    struct ls_shape alpha = {.ndims = arguments[0]->shape.ndims - 1};
    for (uint32_t i = 0; i < alpha.ndims; i++)
        alpha.dims[i] = arguments[0]->shape.dims[i + 1];
    enum ls_status status = LS_OK;
    for (size_t i = 0; i < json_array_size(shared) && !status; i++)
        status = share(&c, json_array_get(shared, i), &alpha);
    if (!status && shared && !json_is_array(shared) && !json_is_null(shared))
        status = share(&c, shared, &alpha);
    if (!status)
        status = ls_graph_parameter(graph, "alpha", &alpha, &initializer, &arguments[1]);
    if (status)
        return status;
    return ls_graph_add(graph, LS_OP_PRELU, NULL, arguments, 2, NULL, outputs);
}

const struct ls_layer_kind ls_layer_prelu = {
    .class_name = "PReLU",
    .summary = "a trained slope for negative x",
    .mask = LS_MASK_PASSES,
    .keys = keys,
    .build = build,
};
