// SPDX-License-Identifier: Apache-2.0
// Dropout: in training a fraction of the elements, drawn anew for each example and step, becomes 0 and the
// rest grows by 1 / (1 - rate). With noise_shape one draw is for all elements along the dimensions
// that are 1 there: [null, 1, 1, 1] drops whole examples.
#include "layers/kinds.h"

static const char *const keys[] = {"rate", "seed", "noise_shape", NULL};

void ls_config_noise_shape(struct ls_config *config, const struct ls_tensor *input, int32_t *axes)
{
    const json_t *list = json_object_get(config->object, "noise_shape");
    char text[64];

    if (!list || json_is_null(list) || !input)
        return;
    bool right =
        json_array_size(list) == input->shape.ndims && json_is_null(json_array_get(list, 0));
    for (uint32_t i = 1; right && i < input->shape.ndims; i++) {
        const json_t *size = json_array_get(list, i);
        const bool own = json_is_null(size) || json_integer_value(size) == input->shape.dims[i];
        right = own || (json_is_integer(size) && json_integer_value(size) == 1);
        axes[i] = !own;
    }
    if (!right)
        ls_config_fail(config, "noise_shape",
                       "expected null, or a list of null (the batch) and %u sizes, each null, 1 or "
                       "that of the input, got %s",
                       input->shape.ndims - 1, ls_json_text(list, text, sizeof(text)));
}

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
