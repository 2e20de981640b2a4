// SPDX-License-Identifier: Apache-2.0
// LayerNormalization over some axes, and GroupNormalization over groups of channels. ls_layer_build
// makes these axes the last ones.
#include "layers/convolution.h"

#define LAYER_KEYS                                                                 \
    "axis", "epsilon", "center", "scale", "beta_initializer", "gamma_initializer", \
        "beta_regularizer", "gamma_regularizer", "beta_constraint", "gamma_constraint"
static const char *const layer_keys[] = {LAYER_KEYS, "rms_scaling", NULL};
static const char *const group_keys[] = {LAYER_KEYS, "groups", NULL};

struct options {
    bool center, scale;
    struct ls_initializer gamma, beta;
    struct ls_op_attributes attributes;
};

static void read_options(struct ls_config *c, struct options *o)
{
    *o = (struct options){.attributes = {.groups = 0}};
    o->attributes.epsilon = (float)ls_config_number(c, "epsilon", 0, 1e30, 1e-3);
    o->center = ls_config_boolean(c, "center", true);
    o->scale = ls_config_boolean(c, "scale", true);
    o->gamma = ls_config_initializer(c, "gamma_initializer", "ones");
    o->beta = ls_config_initializer(c, "beta_initializer", "zeros");
    o->attributes.only_beta = o->center && !o->scale;
}

// Adds the variables, of shape `variable`, and the operation, over the last axis of `input`.
static enum ls_status add(struct ls_graph *graph, const struct options *o, struct ls_tensor *input,
                          const struct ls_shape *variable, struct ls_tensor **out)
{
    const struct ls_shape vector = {.ndims = 1, .dims = {ls_shape_elements(variable, 1)}};
    struct ls_tensor *arguments[3] = {input};
    uint32_t count = 1;
    enum ls_status status = LS_OK;

    if (o->scale)
        status = ls_add_variable(graph, "gamma", variable, &vector, &o->gamma, &arguments[count++]);
    if (!status && o->center)
        status = ls_add_variable(graph, "beta", variable, &vector, &o->beta, &arguments[count++]);
    if (status)
        return status;
    return ls_graph_add(graph, LS_OP_LAYER_NORMALIZATION, &o->attributes, arguments, count, NULL,
                        out);
}

// ---- LayerNormalization ----

// Keras has one element of gamma for each of the dimensions in the order in which they are given.
static bool is_ascending(const struct ls_config *c, const struct ls_tensor *input)
{
    const json_t *value = json_object_get(c->object, "axis");
    json_int_t before = 0;
    for (size_t i = 0; i < json_array_size(value); i++) {
        json_int_t axis = json_integer_value(json_array_get(value, i));
        axis += axis < 0 && input ? input->shape.ndims : 0;
        if (axis < before)
            return !input; // of a dimension from behind
        before = axis;
    }
    return true;
}

static enum ls_status build_layer(struct ls_graph *graph, const struct ls_layer_call *call,
                                  struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call), *y;
    struct options o;
    read_options(&c, &o);
    if (ls_config_boolean(&c, "rms_scaling", false))
        ls_config_fail(&c, "rms_scaling",
                       "not supported: Keras divides by the variance there; set it to false");
    const uint32_t count = ls_config_axis_count(&c);
    if (!is_ascending(&c, input))
        ls_config_fail(&c, "axis", "the dimensions must be in ascending order");
    if (c.status || !input)
        return c.status;

    // Several axes are seen as one, which the variables keep apart.
    const uint32_t first = input->shape.ndims - count;
    struct ls_shape variable = {.ndims = count}, rows = {.ndims = first + 1};
    for (uint32_t i = 0; i < count; i++)
        variable.dims[i] = input->shape.dims[first + i];
    for (uint32_t i = 0; i < first; i++)
        rows.dims[i] = input->shape.dims[i];
    rows.dims[first] = ls_shape_elements(&variable, 1);
    enum ls_status status = ls_add_reshape(graph, input, &rows, &y);
    if (!status)
        status = add(graph, &o, y, &variable, &y);
    if (status)
        return status;
    return ls_add_reshape(graph, y, &input->shape, outputs);
}

// ---- GroupNormalization ----

static enum ls_status build_group(struct ls_graph *graph, const struct ls_layer_call *call,
                                  struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call);
    struct options o;
    read_options(&c, &o);
    const int64_t groups = ls_config_integer(&c, "groups", -1, LS_CONFIG_LARGEST, 32);
    if (ls_config_axis_count(&c) != 1)
        ls_config_fail(&c, "axis", "one dimension can be split into groups, not several");
    if (groups == 0)
        ls_config_fail(&c, "groups", "expected a number from 1, or -1 for one a channel, got 0");
    if (c.status || !input)
        return c.status;
    const struct ls_shape vector = {.ndims = 1,
                                    .dims = {input->shape.dims[input->shape.ndims - 1]}};
    o.attributes.groups = (int32_t)(groups < 0 ? vector.dims[0] : groups);
    return add(graph, &o, input, &vector, outputs);
}

const struct ls_layer_kind ls_layer_layer_normalization = {
    .class_name = "LayerNormalization",
    .summary = "normalizes each example over some of its axes",
    .mask = LS_MASK_PASSES,
    .moves_axes = true,
    .keys = layer_keys,
    .build = build_layer,
};

const struct ls_layer_kind ls_layer_group_normalization = {
    .class_name = "GroupNormalization",
    .summary = "normalizes groups of channels of each example",
    .mask = LS_MASK_PASSES,
    .moves_axes = true,
    .keys = group_keys,
    .build = build_group,
};
