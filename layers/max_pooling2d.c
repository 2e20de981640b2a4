// SPDX-License-Identifier: Apache-2.0
// MaxPooling2D: the largest element of each window.
#include "layers/kinds.h"

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    return ls_build_pooling(graph, LS_OP_MAX_POOL2D, call, outputs);
}

const struct ls_layer_kind ls_layer_max_pooling2d = {
    .class_name = "MaxPooling2D",
    .summary = "the largest element of each window",
    .keys = ls_pooling_keys,
    .build = build,
};
