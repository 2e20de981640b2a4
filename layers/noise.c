// SPDX-License-Identifier: Apache-2.0
// What is random in training only: SpatialDropout drops whole channels, StochasticDepth (of
// keras.applications) whole examples, AlphaDropout keeps mean and variance of what SELU makes;
// GaussianNoise adds normal numbers, GaussianDropout multiplies by them. What is drawn for an
// example depends on nothing but its place in the global batch, the step and the seed of the run.
#include "layers/kinds.h"

#include <float.h>
#include <math.h>

static const char *const spatial_keys[] = {"rate", "seed", "noise_shape", "data_format", NULL};
static const char *const depth_keys[] = {"drop_path_rate", NULL};
static const char *const noise_keys[] = {"stddev", "seed", NULL};
static const char *const gaussian_keys[] = {"rate", "seed", NULL};
static const char *const alpha_keys[] = {"rate", "seed", "noise_shape", NULL};

// One draw for each example and channel, whatever the number of dimensions between them.
static enum ls_status build_spatial_dropout(struct ls_graph *graph,
                                            const struct ls_layer_call *call,
                                            struct ls_tensor **outputs)
{
    static const char *const dimensions[] = {"steps", "rows, columns", "three dimensions"};
    const uint32_t axes = call->kind->axes;
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call);
    struct ls_op_attributes attributes = {0};
    const double rate = ls_config_rate(&c, "rate");

    ls_config_seed(&c);
    ls_config_null(&c, "noise_shape");
    ls_config_data_format(&c);
    if (c.status || !input)
        return c.status;
    if (input->shape.ndims != axes + 2)
        return ls_graph_fail(graph, input, "expected %u dimensions: batch, %s, channels", axes + 2,
                             dimensions[axes - 1]);
    for (uint32_t i = 1; i <= axes; i++)
        attributes.axes[i] = 1;
    return ls_add_random(graph, LS_OP_DROPOUT, rate, call->inference, attributes, input, outputs);
}

static enum ls_status build_stochastic_depth(struct ls_graph *graph,
                                             const struct ls_layer_call *call,
                                             struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call);
    struct ls_op_attributes attributes = {0};
    const double rate = ls_config_rate(&c, "drop_path_rate");

    if (c.status || !input)
        return c.status;
    for (uint32_t i = 1; i < input->shape.ndims; i++)
        attributes.axes[i] = 1;
    return ls_add_random(graph, LS_OP_DROPOUT, rate, call->inference, attributes, input, outputs);
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
    return ls_add_random(graph, LS_OP_NOISE, deviation, call->inference,
                         (struct ls_op_attributes){0}, call->inputs[0], outputs);
}

// x times numbers of mean 1 and variance rate / (1 - rate): noise on a one for each element
static enum ls_status build_gaussian_dropout(struct ls_graph *graph,
                                             const struct ls_layer_call *call,
                                             struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call), *factors;
    const double rate = ls_config_rate(&c, "rate");

    ls_config_seed(&c);
    if (c.status || !input)
        return c.status;
    if ((float)rate == 0 || call->inference) {
        *outputs = input;
        return LS_OK;
    }
    enum ls_status status = ls_add_scale(graph, 0, 1, input, &factors);
    if (!status)
        status = ls_add_random(graph, LS_OP_NOISE, sqrt(rate / (1 - rate)), false,
                               (struct ls_op_attributes){0}, factors, &factors);
    return status ? status : ls_add_pair(graph, LS_PAIR_MULTIPLY, input, factors, outputs);
}

// Dropped elements become `least`, SELU's limit, and all are scaled (Klambauer et al. 2017):
// a (kept ? x : least) + b, where a dropout of x - least has (kept ? x - least : 0) / (1 - rate).
static enum ls_status build_alpha_dropout(struct ls_graph *graph, const struct ls_layer_call *call,
                                          struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call), *y;
    struct ls_op_attributes attributes = {0};
    const double rate = ls_config_rate(&c, "rate"), least = -LS_SELU_ALPHA * LS_SELU_SCALE;
    const double a = 1 / sqrt((1 - rate) * (1 + rate * least * least)), b = -a * least * rate;

    ls_config_seed(&c);
    ls_config_noise_shape(&c, input, attributes.axes);
    if (c.status || !input)
        return c.status;
    if ((float)rate == 0 || call->inference) {
        *outputs = input;
        return LS_OK;
    }
    enum ls_status status = ls_add_scale(graph, 1, -least, input, &y);
    if (!status)
        status = ls_add_random(graph, LS_OP_DROPOUT, rate, false, attributes, y, &y);
    return status ? status : ls_add_scale(graph, a * (1 - rate), a * least + b, y, outputs);
}

const struct ls_layer_kind ls_layer_spatial_dropout1d = {
    .class_name = "SpatialDropout1D",
    .summary = "drops a fraction of the channels in training",
    .mask = LS_MASK_PASSES,
    .keys = spatial_keys,
    .axes = 1,
    .build = build_spatial_dropout,
};

const struct ls_layer_kind ls_layer_spatial_dropout2d = {
    .class_name = "SpatialDropout2D",
    .summary = "drops a fraction of the channels in training",
    .mask = LS_MASK_PASSES,
    .keys = spatial_keys,
    .axes = 2,
    .build = build_spatial_dropout,
};

const struct ls_layer_kind ls_layer_spatial_dropout3d = {
    .class_name = "SpatialDropout3D",
    .summary = "drops a fraction of the channels in training",
    .mask = LS_MASK_PASSES,
    .keys = spatial_keys,
    .axes = 3,
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

const struct ls_layer_kind ls_layer_gaussian_dropout = {
    .class_name = "GaussianDropout",
    .summary = "times normal numbers of mean 1 in training",
    .mask = LS_MASK_PASSES,
    .keys = gaussian_keys,
    .build = build_gaussian_dropout,
};

const struct ls_layer_kind ls_layer_alpha_dropout = {
    .class_name = "AlphaDropout",
    .summary = "drops elements in training, and keeps mean and variance behind a SELU",
    .mask = LS_MASK_PASSES,
    .keys = alpha_keys,
    .build = build_alpha_dropout,
};
