// SPDX-License-Identifier: Apache-2.0
// Scales and shifts: Rescaling; LayerScale and CustomScaleLayer of keras.applications.
#include "layers/kinds.h"

#include <float.h>
#include <stdlib.h>

static const char *const rescaling_keys[] = {"scale", "offset", NULL};
static const char *const layer_scale_keys[] = {"init_values", "projection_dim", NULL};
static const char *const custom_keys[] = {"scale", NULL};

// ---- Rescaling: x scale + offset ----

// One number for all, or one for each element of the last dimension.
static void check_count(struct ls_config *config, const char *key, const struct ls_numbers *numbers,
                        const struct ls_tensor *input)
{
    const int64_t channels = input->shape.dims[input->shape.ndims - 1];
    if (numbers->count > 1 && numbers->count != channels)
        ls_config_fail(config, key, "expected a number or %lld, one a channel, got %lld",
                       (long long)channels, (long long)numbers->count);
}

static enum ls_status rescale(struct ls_graph *graph, struct ls_tensor *input,
                              const struct ls_numbers *scale, const struct ls_numbers *offset,
                              struct ls_tensor **outputs)
{
    const bool one_scale = scale->count <= 1, one_offset = offset->count <= 1;
    const double factor = scale->count == 1 ? (double)scale->values[0] : 1;
    const double shift = offset->count == 1 ? (double)offset->values[0] : 0;
    struct ls_tensor *y = input;
    enum ls_status status = LS_OK;

    if (one_scale && one_offset)
        return ls_add_scale(graph, factor, shift, y, outputs);
    status = one_scale ? ls_add_scale(graph, factor, 0, y, &y)
                       : ls_add_pair_with_numbers(graph, LS_PAIR_MULTIPLY, y, "scale", scale, &y);
    if (!status)
        status = one_offset ? ls_add_scale(graph, 1, shift, y, &y)
                            : ls_add_pair_with_numbers(graph, LS_PAIR_ADD, y, "offset", offset, &y);
    *outputs = status ? NULL : y;
    return status;
}

static enum ls_status build_rescaling(struct ls_graph *graph, const struct ls_layer_call *call,
                                      struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call);
    struct ls_numbers scale, offset;
    enum ls_status status = LS_OK;

    ls_config_numbers(&c, "scale", &scale);
    ls_config_numbers(&c, "offset", &offset);
    if (!c.status && scale.count == 0)
        ls_config_fail(&c, "scale", "expected a number or a list of numbers, got nothing");
    if (!c.status && input) {
        check_count(&c, "scale", &scale, input);
        check_count(&c, "offset", &offset, input);
    }
    if (!c.status && input)
        status = rescale(graph, input, &scale, &offset, outputs);
    free(scale.values);
    free(offset.values);
    return c.status ? c.status : status;
}

const struct ls_layer_kind ls_layer_rescaling = {
    .class_name = "Rescaling",
    .summary = "times a scale, plus an offset",
    .mask = LS_MASK_PASSES,
    .keys = rescaling_keys,
    .build = build_rescaling,
};

// ---- LayerScale: x gamma, one a channel ----

static enum ls_status build_layer_scale(struct ls_graph *graph, const struct ls_layer_call *call,
                                        struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call), *gamma;
    const struct ls_initializer initializer = {
        .kind = LS_CONSTANT,
        .value = ls_config_number(&c, "init_values", -(double)FLT_MAX, (double)FLT_MAX, 0)};
    const int64_t channels =
        ls_config_integer(&c, "projection_dim", 1, LS_CONFIG_LARGEST, LS_CONFIG_NONE);

    if (c.status || !input)
        return c.status;
    if (input->shape.dims[input->shape.ndims - 1] != channels)
        return ls_graph_fail(graph, input, "projection_dim: expected %lld, as many as channels",
                             (long long)input->shape.dims[input->shape.ndims - 1]);
    const struct ls_shape vector = {.ndims = 1, .dims = {channels}};
    enum ls_status status = ls_graph_parameter(graph, "variable", &vector, &initializer, &gamma);
    return status ? status : ls_add_pair(graph, LS_PAIR_MULTIPLY, input, gamma, outputs);
}

const struct ls_layer_kind ls_layer_layer_scale = {
    .class_name = "LayerScale",
    .summary = "times a trained factor in each channel",
    .keys = layer_scale_keys,
    .build = build_layer_scale,
};

// ---- CustomScaleLayer: the first input plus the second one times a scale ----

static enum ls_status build_custom_scale(struct ls_graph *graph, const struct ls_layer_call *call,
                                         struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const double scale = ls_config_number(&c, "scale", -(double)FLT_MAX, (double)FLT_MAX, 1);
    struct ls_tensor *scaled;

    if (!json_object_get(call->config, "scale"))
        ls_config_fail(&c, "scale", "expected a number, got nothing");
    if (c.status || !call->inputs)
        return c.status;
    enum ls_status status = ls_add_scale(graph, scale, 0, call->inputs[1], &scaled);
    return status ? status : ls_add_pair(graph, LS_PAIR_ADD, call->inputs[0], scaled, outputs);
}

const struct ls_layer_kind ls_layer_custom_scale_layer = {
    .class_name = "CustomScaleLayer",
    .summary = "the first input plus the second one times a scale",
    .least_inputs = 2,
    .most_inputs = 2,
    .keys = custom_keys,
    .build = build_custom_scale,
};
