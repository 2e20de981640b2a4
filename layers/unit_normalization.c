// SPDX-License-Identifier: Apache-2.0
// UnitNormalization: each vector along the axes by its length. RMSNormalization: by the root of its
// mean square, then times a trained scale.
#include "layers/kinds.h"

static const char *const unit_keys[] = {"axis", NULL};
static const char *const rms_keys[] = {"axis", "epsilon", NULL};

static const double least_norm = 1e-12; // Keras's

static enum ls_status build_unit(struct ls_graph *graph, const struct ls_layer_call *call,
                                 struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *input = ls_call_input(call);
    const uint32_t axes = ls_config_axes(&c, "axis", input);

    if (c.status || !input)
        return c.status;
    return ls_add_unit(graph, axes, least_norm, input, outputs);
}

// The sizes along the axes. As in Keras the scale is broadcast from the last dimension on, whatever
// the axes are.
static struct ls_shape shape_of_scale(const struct ls_shape *x, uint32_t axes)
{
    struct ls_shape shape = {.ndims = 0};
    for (uint32_t i = 1; i < x->ndims; i++)
        if ((axes >> i & 1) != 0)
            shape.dims[shape.ndims++] = x->dims[i];
    return shape;
}

static enum ls_status build_rms(struct ls_graph *graph, const struct ls_layer_call *call,
                                struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call), *scale, *root;
    const double epsilon = ls_config_number(&c, "epsilon", 0, 1e30, 1e-6);
    const uint32_t axes = ls_config_axes(&c, "axis", x);
    const struct ls_initializer ones = {.kind = LS_ONES};
    const struct ls_op_attributes square = {.function = LS_SQUARE},
                                  square_root = {.function = LS_SQUARE_ROOT};
    if (c.status || !x)
        return c.status;
    const struct ls_shape shape = shape_of_scale(&x->shape, axes);
    enum ls_status status = ls_graph_parameter(graph, "scale", &shape, &ones, &scale);
    if (!status)
        status = ls_graph_add(graph, LS_OP_FUNCTION, &square, &x, 1, NULL, &root);
    if (!status)
        status = ls_add_reduction(graph, LS_REDUCE_TO_MEAN, axes, root, &root);
    if (!status)
        status = ls_add_scale(graph, 1, epsilon, root, &root);
    if (!status)
        status = ls_graph_add(graph, LS_OP_FUNCTION, &square_root, &root, 1, NULL, &root);
    if (!status)
        status = ls_add_pair(graph, LS_PAIR_DIVIDE, x, root, &x);
    return status ? status : ls_add_pair(graph, LS_PAIR_MULTIPLY, x, scale, outputs);
}

const struct ls_layer_kind ls_layer_unit_normalization = {
    .class_name = "UnitNormalization",
    .summary = "vectors of length 1",
    .mask = LS_MASK_PASSES,
    .keys = unit_keys,
    .build = build_unit,
};

const struct ls_layer_kind ls_layer_rms_normalization = {
    .class_name = "RMSNormalization",
    .summary = "divides by the root of the mean square",
    .keys = rms_keys,
    .build = build_rms,
};
