// SPDX-License-Identifier: Apache-2.0
// Conv3D: convolution of volumes with a kernel (planes, rows, columns, channels / groups, filters),
// then the activation.
#include "layers/convolution.h"

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    return ls_build_convolution(graph, call, 3, outputs);
}

const struct ls_layer_kind ls_layer_conv3d = {
    .class_name = "Conv3D",
    .summary = "convolution of volumes",
    .keys = ls_convolution_keys,
    .build = build,
};
