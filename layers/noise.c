// SPDX-License-Identifier: Apache-2.0
// What is random in training only: SpatialDropout2D drops whole channels, StochasticDepth (of
// keras.applications) whole examples, GaussianNoise adds normal numbers. What is drawn for an
// example depends on nothing but its place in the global batch, the step and the seed of the run.
#include "layers/kinds.h"

#include <float.h>

static const char *const spatial_keys[] = {"rate", "seed", "noise_shape", "data_format", NULL};
static const char *const depth_keys[] = {"drop_path_rate", NULL};
static const char *const noise_keys[] = {"stddev", "seed", NULL};

static double read_rate(struct ls_config *config, const char *key)
{
    const double rate = ls_config_number(config, key, 0, 1, 0);
    if (!json_object_get(config->object, key))
        ls_config_fail(config, key, "expected a number from 0 to 1, got nothing");
    if ((float)rate >= 1)
        ls_config_fail(config, key, "1 would drop everything; expected a number below 1");
    return rate;
}

// `attributes` say what is shared.
static enum ls_status add_random(struct ls_graph *graph, const struct ls_layer_call *call,
                                 uint32_t op, double rate, struct ls_op_attributes attributes,
                                 struct ls_tensor **outputs)
{
    struct ls_tensor *input = ls_call_input(call);
    if ((float)rate == 0 || call->inference) {
        *outputs = input;
        return LS_OK;
    }
    attributes.rate = (float)rate;
    attributes.key = graph->dropout_count++;
    return ls_graph_add(graph, op, &attributes, &input, 1, NULL, outputs);
}

static enum ls_status build_spatial_dropout(struct ls_graph *graph,
                                            const struct ls_layer_call *call,
                                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const struct ls_tensor *input = ls_call_input(call);
    const struct ls_op_attributes attributes = {.axes = {0, 1, 1}};
    const double rate = read_rate(&c, "rate");

    ls_config_seed(&c);
    ls_config_null(&c, "noise_shape");
    ls_config_data_format(&c);
    if (c.status || !input)
        return c.status;
    if (input->shape.ndims != 4)
        return ls_graph_fail(graph, input, "expected 4 dimensions: batch, rows, columns, channels");
    return add_random(graph, call, LS_OP_DROPOUT, rate, attributes, outputs);
}

static enum ls_status build_stochastic_depth(struct ls_graph *graph,
                                             const struct ls_layer_call *call,
                                             struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const struct ls_tensor *input = ls_call_input(call);
    struct ls_op_attributes attributes = {0};
    const double rate = read_rate(&c, "drop_path_rate");

    if (c.status || !input)
        return c.status;
    for (uint32_t i = 1; i < input->shape.ndims; i++)
        attributes.axes[i] = 1;
    return add_random(graph, call, LS_OP_DROPOUT, rate, attributes, outputs);
}

static enum ls_status build_gaussian_noise(struct ls_graph *graph, const struct ls_layer_call *call,
                                           struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    const double deviation = ls_config_number(&c, "stddev", 0, FLT_MAX, 0);

    if (!json_object_get(call->config, "stddev"))
        ls_config_fail(&c, "stddev", "expected a number, got nothing");
    ls_config_seed(&c);
    if (c.status || !call->inputs)
        return c.status;
    return add_random(graph, call, LS_OP_NOISE, deviation, (struct ls_op_attributes){0}, outputs);
}

const struct ls_layer_kind ls_layer_spatial_dropout2d = {
    .class_name = "SpatialDropout2D",
    .summary = "drops a fraction of the channels in training",
    .mask = LS_MASK_PASSES,
    .keys = spatial_keys,
    .build = build_spatial_dropout,
};

const struct ls_layer_kind ls_layer_stochastic_depth = {
    .class_name = "StochasticDepth",
    .summary = "drops a fraction of the examples in training",
    .keys = depth_keys,
    .build = build_stochastic_depth,
};

const struct ls_layer_kind ls_layer_gaussian_noise = {
    .class_name = "GaussianNoise",
    .summary = "adds normal noise in training",
    .mask = LS_MASK_PASSES,
    .keys = noise_keys,
    .build = build_gaussian_noise,
};
