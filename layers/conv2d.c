// SPDX-License-Identifier: Apache-2.0
// Conv2D: convolution of images with a kernel (rows, columns, channels / groups, filters), then the
// activation.
#include "layers/convolution.h"

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    return ls_build_convolution(graph, call, 2, outputs);
}

const struct ls_layer_kind ls_layer_conv2d = {
    .class_name = "Conv2D",
    .summary = "convolution of images",
    .keys = ls_convolution_keys,
    .build = build,
};
