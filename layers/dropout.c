// SPDX-License-Identifier: Apache-2.0
// Dropout: in training a fraction of the elements, drawn anew for each example and step, becomes 0 and the
// rest grows by 1 / (1 - rate).
#include "layers/kinds.h"

static const char *const keys[] = {"rate", "seed", "noise_shape", NULL};

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call);
    const double rate = ls_config_number(&c, "rate", 0, 1, 0);

    if (!json_object_get(call->config, "rate"))
        ls_config_fail(&c, "rate", "expected a number from 0 to 1, got nothing");
    if ((float)rate >= 1)
        ls_config_fail(&c, "rate", "1 would drop everything; expected a number below 1");
    ls_config_seed(&c);
    ls_config_null(&c, "noise_shape");
    if (c.status || !input)
        return c.status;
    if ((float)rate == 0 || call->inference) {
        *outputs = input;
        return LS_OK;
    }

    const struct ls_op_attributes attributes = {.rate = (float)rate, .key = graph->dropout_count++};
    return ls_graph_add(graph, LS_OP_DROPOUT, &attributes, &input, 1, NULL, outputs);
}

const struct ls_layer_kind ls_layer_dropout = {
    .class_name = "Dropout",
    .summary = "drops a fraction of the elements in training",
    .keys = keys,
    .build = build,
};
