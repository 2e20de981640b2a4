// SPDX-License-Identifier: Apache-2.0
// BatchNormalization over one axis, which ls_layer_build makes the last one. In training each
// replica takes the mean and variance of its own share, or with `synchronized` of the whole batch;
// evaluation, prediction and frozen layers take the moving ones.
#include "layers/kinds.h"

static const char *const keys[] = {
    "axis",
    "momentum",
    "epsilon",
    "center",
    "scale",
    "beta_initializer",
    "gamma_initializer",
    "moving_mean_initializer",
    "moving_variance_initializer",
    "beta_regularizer",
    "gamma_regularizer",
    "beta_constraint",
    "gamma_constraint",
    "synchronized",
    "renorm",
    "renorm_clipping",
    "renorm_momentum",
    NULL,
};

// Keras's order: gamma, beta, moving_mean, moving_variance. Without scale gamma is 1, without center
// beta is 0, for ever.
static enum ls_status add_parameters(struct ls_graph *graph, int64_t channels,
                                     const bool trained[static 2],
                                     const struct ls_initializer initializers[static 4],
                                     struct ls_tensor *out[static 4])
{
    const struct ls_shape vector = {.ndims = 1, .dims = {channels}};
    enum ls_status status =
        trained[0] ? ls_graph_parameter(graph, "gamma", &vector, &initializers[0], &out[0])
                   : ls_graph_constant(graph, "gamma", &vector, 1, &out[0]);
    if (!status)
        status = trained[1] ? ls_graph_parameter(graph, "beta", &vector, &initializers[1], &out[1])
                            : ls_graph_constant(graph, "beta", &vector, 0, &out[1]);
    if (!status)
        status = ls_graph_statistic(graph, "moving_mean", &vector, &initializers[2], &out[2]);
    if (!status)
        status = ls_graph_statistic(graph, "moving_variance", &vector, &initializers[3], &out[3]);
    return status;
}

// x: (B, ..., C) -> the same
static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *inputs[5] = {ls_call_input(call)};
    const double momentum = ls_config_number(&c, "momentum", 0, 1, 0.99);
    const struct ls_op_attributes attributes = {
        .epsilon = (float)ls_config_number(&c, "epsilon", 0, 1e6, 1e-3)};
    const bool trained[2] = {ls_config_boolean(&c, "scale", true),
                             ls_config_boolean(&c, "center", true)};
    const struct ls_initializer initializers[4] = {
        ls_config_initializer(&c, "gamma_initializer", "ones"),
        ls_config_initializer(&c, "beta_initializer", "zeros"),
        ls_config_initializer(&c, "moving_mean_initializer", "zeros"),
        ls_config_initializer(&c, "moving_variance_initializer", "ones")};

    const bool synchronized = ls_config_boolean(&c, "synchronized", false);
    if (ls_config_boolean(&c, "renorm", false))
        ls_config_fail(&c, "renorm", "batch renormalization is not supported; set it to false");
    ls_config_null(&c, "renorm_clipping"); // what these two say, only renorm reads
    if (ls_config_axis_count(&c) != 1)
        ls_config_fail(&c, "axis", "one dimension has the channels, not several");
    if (c.status || !inputs[0])
        return c.status;
    const enum ls_status status =
        add_parameters(graph, inputs[0]->shape.dims[inputs[0]->shape.ndims - 1], trained,
                       initializers, &inputs[1]);
    if (status)
        return status;
    if (call->inference)
        return ls_graph_add(graph, LS_OP_BATCH_NORMALIZATION_INFERENCE, &attributes, inputs, 5,
                            NULL, outputs);
    return ls_graph_batch_normalization(graph, &attributes, inputs, momentum, synchronized,
                                        outputs);
}

const struct ls_layer_kind ls_layer_batch_normalization = {
    .class_name = "BatchNormalization",
    .summary = "mean 0 and variance 1 in each channel of the batch, then scale and shift",
    .mask = LS_MASK_REFUSED,
    .moves_axes = true,
    .keys = keys,
    .build = build,
};
