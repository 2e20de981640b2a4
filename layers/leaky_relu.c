// SPDX-License-Identifier: Apache-2.0
// LeakyReLU: x above 0, negative_slope times x below. Keras 2 calls the slope alpha.
#include "layers/kinds.h"

#include <float.h>

#define DEFAULT_SLOPE 0.3

static const char *const keys[] = {"negative_slope", "alpha", NULL};

struct ls_layer_activation ls_read_leaky_relu(struct ls_config *config)
{
    const double alpha = ls_config_number(config, "alpha", 0, FLT_MAX, DEFAULT_SLOPE);
    const double slope = ls_config_number(config, "negative_slope", 0, FLT_MAX, alpha);

    if (json_object_get(config->object, "alpha") &&
        json_object_get(config->object, "negative_slope"))
        ls_config_fail(config, "alpha", "is the old name of negative_slope; give only one of them");
    if ((float)slope > 0)
        return (struct ls_layer_activation){.function = LS_LEAKY_RELU, .alpha = (float)slope};
    return (struct ls_layer_activation){.function = LS_RELU};
}

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    return ls_build_activation(graph, call, ls_read_leaky_relu, outputs);
}

const struct ls_layer_kind ls_layer_leaky_relu = {
    .class_name = "LeakyReLU",
    .summary = "x above 0, a fraction of it below",
    .keys = keys,
    .build = build,
};
