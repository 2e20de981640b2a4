// SPDX-License-Identifier: Apache-2.0
// Normalization: (x - mean) / max(sqrt(variance), 1e-7) in each channel, or back with invert. Mean
// and variance stand in the configuration, or are variables that no training changes.
#include "layers/kinds.h"

#include <math.h>
#include <stdlib.h>

static const char *const keys[] = {"axis", "mean", "variance", "invert", NULL};

static const double epsilon = 1e-7; // keras.backend.epsilon()

// Whether one number holds for all (axis null), rather than one for each channel.
static bool read_axis(struct ls_config *config, const struct ls_tensor *input)
{
    const json_t *axis = json_object_get(config->object, "axis");
    char text[64];

    if (axis && (json_is_null(axis) || (json_is_array(axis) && json_array_size(axis) == 0)))
        return true;
    if (json_is_array(axis) && json_array_size(axis) == 1)
        axis = json_array_get(axis, 0);
    const json_int_t value = axis ? json_integer_value(axis) : -1;
    if ((axis && !json_is_integer(axis)) ||
        (value != -1 && input && value != (json_int_t)input->shape.ndims - 1))
        ls_config_fail(config, "axis", "expected -1, the last axis, or null, got %s",
                       ls_json_text(json_object_get(config->object, "axis"), text, sizeof(text)));
    return false;
}

static enum ls_status apply(struct ls_graph *graph, bool invert, struct ls_tensor *x,
                            struct ls_tensor *mean, struct ls_tensor *deviation,
                            struct ls_tensor **out)
{
    struct ls_tensor *y;
    enum ls_status status = invert ? ls_add_pair(graph, LS_PAIR_MULTIPLY, x, deviation, &y)
                                   : ls_add_pair(graph, LS_PAIR_SUBTRACT, x, mean, &y);
    if (status)
        return status;
    return invert ? ls_add_pair(graph, LS_PAIR_ADD, y, mean, out)
                  : ls_add_pair(graph, LS_PAIR_DIVIDE, y, deviation, out);
}

// Mean and variance of the configuration.
static enum ls_status apply_given(struct ls_graph *graph, bool invert, struct ls_tensor *x,
                                  const struct ls_numbers *mean, const struct ls_numbers *variance,
                                  struct ls_tensor **out)
{
    const struct ls_shape vector = {.ndims = 1, .dims = {mean->count}};
    struct ls_tensor *means, *deviations;

    for (int64_t i = 0; i < variance->count; i++)
        variance->values[i] = fmaxf(sqrtf(variance->values[i]), (float)epsilon);
    enum ls_status status = ls_graph_constant_values(graph, "mean", &vector, mean->values, &means);
    if (!status)
        status =
            ls_graph_constant_values(graph, "deviation", &vector, variance->values, &deviations);
    return status ? status : apply(graph, invert, x, means, deviations, out);
}

// Variables, which come with the weights.
static enum ls_status apply_variables(struct ls_graph *graph, bool invert, struct ls_tensor *x,
                                      struct ls_tensor **out)
{
    const struct ls_shape vector = {.ndims = 1, .dims = {x->shape.dims[x->shape.ndims - 1]}};
    const struct ls_initializer zeros = {.kind = LS_ZEROS}, ones = {.kind = LS_ONES};
    const struct ls_op_attributes root = {.function = LS_SQUARE_ROOT, .offset = (float)epsilon};
    struct ls_tensor *mean, *variance, *deviation;

    enum ls_status status = ls_graph_statistic(graph, "mean", &vector, &zeros, &mean);
    if (!status)
        status = ls_graph_statistic(graph, "variance", &vector, &ones, &variance);
    if (!status)
        status = ls_graph_add(graph, LS_OP_FUNCTION, &root, &variance, 1, NULL, &deviation);
    return status ? status : apply(graph, invert, x, mean, deviation, out);
}

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call);
    const bool invert = ls_config_boolean(&c, "invert", false);
    const bool all = read_axis(&c, input);
    struct ls_numbers mean, variance;
    enum ls_status status = LS_OK;

    ls_config_numbers(&c, "mean", &mean);
    ls_config_numbers(&c, "variance", &variance);
    if (!c.status && mean.count != variance.count)
        ls_config_fail(&c, "variance", "expected as many numbers as mean has");
    if (!c.status && input && mean.count > 1 &&
        (all || mean.count != input->shape.dims[input->shape.ndims - 1]))
        ls_config_fail(&c, "mean", "expected one number, or one a channel, got %lld",
                       (long long)mean.count);
    for (int64_t i = 0; i < variance.count && !c.status; i++)
        if (variance.values[i] < 0)
            ls_config_fail(&c, "variance", "must not be negative");
    if (!c.status && all && mean.count == 0)
        ls_config_fail(&c, "axis", "null needs mean and variance in the configuration");
    if (!c.status && input)
        status = mean.count > 0 ? apply_given(graph, invert, input, &mean, &variance, outputs)
                                : apply_variables(graph, invert, input, outputs);
    free(mean.values);
    free(variance.values);
    return c.status ? c.status : status;
}

const struct ls_layer_kind ls_layer_normalization = {
    .class_name = "Normalization",
    .summary = "less a given mean, by a given deviation, in each channel",
    .mask = LS_MASK_PASSES,
    .keys = keys,
    .build = build,
};
