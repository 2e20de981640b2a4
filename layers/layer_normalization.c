// SPDX-License-Identifier: Apache-2.0
// LayerNormalization over the last axes, and GroupNormalization over groups of channels.
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

// How many of the last axes "axis" names: an integer or a list. 0: not the last ones, and logged.
static uint32_t count_axes(struct ls_config *c, const struct ls_shape *shape)
{
    const json_t *value = json_object_get(c->object, "axis");
    const size_t count = json_is_array(value) ? json_array_size(value) : 1;
    uint32_t seen = 0;
    char text[64];

    for (size_t i = 0; i < count; i++) {
        const json_t *axis = json_is_array(value) ? json_array_get(value, i) : value;
        const int64_t ndims = shape->ndims;
        int64_t at = axis ? json_integer_value(axis) : -1;
        at = at < 0 ? at + ndims : at;
        if ((!axis || json_is_integer(axis)) && at >= 1 && at < ndims)
            seen |= 1u << (ndims - 1 - at);
        else
            seen |= UINT32_C(1) << 31;
    }
    if (count > 0 && count < shape->ndims && seen == (UINT32_C(1) << count) - 1)
        return (uint32_t)count;
    ls_config_fail(c, "axis", "only the last axes can be normalized, got %s",
                   ls_json_text(value, text, sizeof(text)));
    return 0;
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
    if (c.status || !input)
        return c.status;
    if (input->shape.ndims < 2)
        return ls_graph_fail(graph, input, "expected at least 2 dimensions: batch, features");
    const uint32_t count = count_axes(&c, &input->shape);
    if (c.status)
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
    const int64_t axis = ls_config_integer(&c, "axis", -1, LS_MAX_DIMS, -1);
    if (groups == 0)
        ls_config_fail(&c, "groups", "expected a number from 1, or -1 for one a channel, got 0");
    if (c.status || !input)
        return c.status;
    if (input->shape.ndims < 2)
        return ls_graph_fail(graph, input, "expected at least 2 dimensions: batch, channels");
    if (axis != -1 && axis != (int64_t)input->shape.ndims - 1)
        return ls_graph_fail(graph, input, "axis: only the last axis can be split into groups");

    const struct ls_shape vector = {.ndims = 1,
                                    .dims = {input->shape.dims[input->shape.ndims - 1]}};
    o.attributes.groups = (int32_t)(groups < 0 ? vector.dims[0] : groups);
    return add(graph, &o, input, &vector, outputs);
}

const struct ls_layer_kind ls_layer_layer_normalization = {
    .class_name = "LayerNormalization",
    .summary = "normalizes each example over its last axes",
    .mask = LS_MASK_PASSES,
    .keys = layer_keys,
    .build = build_layer,
};

const struct ls_layer_kind ls_layer_group_normalization = {
    .class_name = "GroupNormalization",
    .summary = "normalizes groups of channels of each example",
    .mask = LS_MASK_PASSES,
    .keys = group_keys,
    .build = build_group,
};
