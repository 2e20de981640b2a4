// SPDX-License-Identifier: Apache-2.0
// ReLU: max(x, 0); with negative_slope a leaky one, with max_value 6 a bounded one.
#include "layers/kinds.h"

#include <float.h>

static const char *const keys[] = {"max_value", "negative_slope", "threshold", NULL};

struct ls_layer_activation ls_read_relu(struct ls_config *config)
{
    const bool bounded = json_object_get(config->object, "max_value") &&
                         !json_is_null(json_object_get(config->object, "max_value"));
    const double bound = bounded ? ls_config_number(config, "max_value", 0, FLT_MAX, 0) : 0;
    const double slope = ls_config_number(config, "negative_slope", 0, FLT_MAX, 0);
    const double threshold = ls_config_number(config, "threshold", 0, FLT_MAX, 0);

    if (threshold != 0)
        ls_config_fail(config, "threshold", "only 0 is supported, got %g", threshold);
    if (!config->status && bounded && bound != 6)
        ls_config_fail(config, "max_value", "only null and 6 are supported, got %g", bound);
    if (bounded && slope != 0)
        ls_config_fail(config, "negative_slope", "must be 0 together with max_value, got %g",
                       slope);
    if (bounded)
        return (struct ls_layer_activation){.function = LS_RELU6};
    if ((float)slope > 0)
        return (struct ls_layer_activation){.function = LS_LEAKY_RELU, .alpha = (float)slope};
    return (struct ls_layer_activation){.function = LS_RELU};
}

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    return ls_build_activation(graph, call, ls_read_relu, outputs);
}

const struct ls_layer_kind ls_layer_relu = {
    .class_name = "ReLU",
    .summary = "rectified linear unit: max(x, 0)",
    .keys = keys,
    .build = build,
};
