// SPDX-License-Identifier: Apache-2.0
// MaxPooling2D: the largest element of each window.
#include "layers/kinds.h"

static enum ls_status build(struct ls_graph *graph, const json_t *config, struct ls_tensor *input,
                            struct ls_tensor **out)
{
    return ls_build_pooling(graph, LS_OP_MAX_POOL2D, config, input, out);
}

const struct ls_layer_kind ls_layer_max_pooling2d = {
    .class_name = "MaxPooling2D",
    .summary = "the largest element of each window",
    .keys = ls_pooling_keys,
    .build = build,
};
