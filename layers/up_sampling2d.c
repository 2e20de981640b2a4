// SPDX-License-Identifier: Apache-2.0
// UpSampling2D: more rows and columns, each repeated or between its neighbours.
#include "layers/kinds.h"

#include <string.h>
#include <strings.h>

static const char *const keys[] = {"size", "data_format", "interpolation", NULL};

static uint32_t read_interpolation(struct ls_config *config)
{
    const json_t *value = json_object_get(config->object, "interpolation");
    const char *name = value ? json_string_value(value) : "nearest";
    char text[64];

    if (name && strcasecmp(name, "nearest") == 0)
        return LS_UPSAMPLE_NEAREST;
    if (name && strcasecmp(name, "bilinear") == 0)
        return LS_UPSAMPLE_BILINEAR;
    ls_config_fail(config, "interpolation", "expected \"nearest\" or \"bilinear\", got %s",
                   ls_json_text(value, text, sizeof(text)));
    return LS_UPSAMPLE_NEAREST;
}

// x: (B, H, W, C) -> (B, size[0] H, size[1] W, C)
static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call);
    struct ls_op_attributes attributes = {.function = read_interpolation(&c)};

    ls_config_sizes(&c, "size", 2, 2, attributes.strides);
    ls_config_data_format(&c);
    if (c.status || !input)
        return c.status;
    if (input->shape.ndims != 4)
        return ls_graph_fail(graph, input, "expected 4 dimensions: batch, rows, columns, channels");
    return ls_graph_add(graph, LS_OP_UPSAMPLE2D, &attributes, &input, 1, NULL, outputs);
}

const struct ls_layer_kind ls_layer_up_sampling2d = {
    .class_name = "UpSampling2D",
    .summary = "more rows and columns, repeated or interpolated",
    .keys = keys,
    .build = build,
};
