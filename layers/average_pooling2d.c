// SPDX-License-Identifier: Apache-2.0
// AveragePooling2D: the mean of each window; padding is not counted.
#include "layers/kinds.h"

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    return ls_build_pooling(graph, LS_OP_AVERAGE_POOL2D, call, outputs);
}

const struct ls_layer_kind ls_layer_average_pooling2d = {
    .class_name = "AveragePooling2D",
    .summary = "the mean of each window",
    .keys = ls_pooling_keys,
    .build = build,
};
