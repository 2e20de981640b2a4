// SPDX-License-Identifier: Apache-2.0
// Softmax over the last dimension.
#include "layers/kinds.h"

static const char *const keys[] = {"axis", NULL};

struct ls_layer_activation ls_read_softmax(struct ls_config *config)
{
    const json_t *axis = json_object_get(config->object, "axis");
    char text[64];

    if (json_is_array(axis) && json_array_size(axis) == 1)
        axis = json_array_get(axis, 0);
    if (axis && !(json_is_integer(axis) && json_integer_value(axis) == -1))
        ls_config_fail(config, "axis", "only -1, the last one, is supported, got %s",
                       ls_json_text(axis, text, sizeof(text)));
    return (struct ls_layer_activation){.softmax = true};
}

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    return ls_build_activation(graph, call, ls_read_softmax, outputs);
}

const struct ls_layer_kind ls_layer_softmax = {
    .class_name = "Softmax",
    .summary = "probabilities over the last dimension",
    .keys = keys,
    .build = build,
};
