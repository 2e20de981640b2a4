// SPDX-License-Identifier: Apache-2.0
// Dropout: in training a fraction of the elements, drawn anew for each example and step, becomes 0 and the
// rest grows by 1 / (1 - rate). With noise_shape one draw is for all elements along the dimensions
// that are 1 there: [null, 1, 1, 1] drops whole examples.
#include "layers/kinds.h"

static const char *const keys[] = {"rate", "seed", "noise_shape", NULL};

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call);
    const double rate = ls_config_rate(&c, "rate");
    struct ls_op_attributes attributes = {0};

    ls_config_seed(&c);
    ls_config_noise_shape(&c, input, attributes.axes);
    if (c.status || !input)
        return c.status;
    return ls_add_random(graph, LS_OP_DROPOUT, rate, call->inference, attributes, input, outputs);
}

const struct ls_layer_kind ls_layer_dropout = {
    .class_name = "Dropout",
    .summary = "drops a fraction of the elements in training",
    .mask = LS_MASK_PASSES,
    .keys = keys,
    .build = build,
};
