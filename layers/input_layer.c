// SPDX-License-Identifier: Apache-2.0
// InputLayer: the shape of the examples. Keras 2 calls it batch_input_shape.
#include "layers/kinds.h"

static const char *const keys[] = {"batch_shape", "sparse", "ragged", "optional", NULL};

static void refuse(struct ls_config *config, const char *key)
{
    if (ls_config_boolean(config, key, false))
        ls_config_fail(config, key, "not supported; set it to false");
}

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_shape example;
    const bool keras2 = !json_object_get(call->config, "batch_shape") &&
                        json_object_get(call->config, "batch_input_shape");

    ls_config_shape(&c, keras2 ? "batch_input_shape" : "batch_shape", &example);
    refuse(&c, "sparse");
    refuse(&c, "ragged");
    refuse(&c, "optional");
    if (c.status)
        return c.status;
    if (graph->input_count > 0)
        return ls_graph_fail(graph, graph->inputs[0], "the model has an input already; remove one");
    return ls_graph_input(graph, &example, outputs);
}

const struct ls_layer_kind ls_layer_input = {
    .class_name = "InputLayer",
    .summary = "the shape of the examples",
    .keys = keys,
    .build = build,
};
