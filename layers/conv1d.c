// SPDX-License-Identifier: Apache-2.0
// Conv1D: convolution of sequences with a kernel (steps, channels / groups, filters), then the
// activation.
#include "layers/convolution.h"

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    return ls_build_convolution(graph, call, 1, outputs);
}

const struct ls_layer_kind ls_layer_conv1d = {
    .class_name = "Conv1D",
    .summary = "convolution of sequences",
    .keys = ls_convolution_keys,
    .build = build,
};
