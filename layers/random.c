// SPDX-License-Identifier: Apache-2.0
// What layers share that are random in training only.
#include "layers/kinds.h"

double ls_config_rate(struct ls_config *config, const char *key)
{
    const double rate = ls_config_number(config, key, 0, 1, 0);
    if (!json_object_get(config->object, key))
        ls_config_fail(config, key, "expected a number from 0 to 1, got nothing");
    if ((float)rate >= 1)
        ls_config_fail(config, key, "1 would drop everything; expected a number below 1");
    return rate;
}

enum ls_status ls_add_random(struct ls_graph *graph, uint32_t op, double rate, bool inference,
                             struct ls_op_attributes attributes, struct ls_tensor *x,
                             struct ls_tensor **out)
{
    if ((float)rate == 0 || inference) {
        *out = x;
        return LS_OK;
    }
    attributes.rate = (float)rate;
    attributes.key = graph->dropout_count++;
    return ls_graph_add(graph, op, &attributes, &x, 1, NULL, out);
}

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
