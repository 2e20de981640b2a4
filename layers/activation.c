// SPDX-License-Identifier: Apache-2.0
// Activation: an element-wise function, or softmax, by name.
#include "layers/kinds.h"

static const char *const keys[] = {"activation", NULL};

struct ls_layer_activation ls_read_activation(struct ls_config *config)
{
    if (!json_object_get(config->object, "activation"))
        ls_config_fail(config, "activation", "expected the name of an activation, got nothing");
    return ls_config_activation(config, "activation");
}

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    return ls_build_activation(graph, call, ls_read_activation, outputs);
}

const struct ls_layer_kind ls_layer_activation = {
    .class_name = "Activation",
    .summary = "an activation function by name",
    .keys = keys,
    .build = build,
};
