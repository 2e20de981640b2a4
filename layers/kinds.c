// SPDX-License-Identifier: Apache-2.0
// The table of all layers. A new layer is a file and a line here.
#include "layers/kinds.h"

const struct ls_layer_kind *const ls_layer_kinds[] = {
    &ls_layer_input,
    &ls_layer_dense,
    &ls_layer_conv2d,
    &ls_layer_max_pooling2d,
    &ls_layer_average_pooling2d,
    &ls_layer_flatten,
    &ls_layer_reshape,
    &ls_layer_dropout,
    &ls_layer_activation,
    &ls_layer_relu,
    &ls_layer_softmax,
    &ls_layer_leaky_relu,
    &ls_layer_elu,
    &ls_layer_batch_normalization,
    &ls_layer_conv1d,
    &ls_layer_depthwise_conv2d,
    &ls_layer_separable_conv2d,
    &ls_layer_conv2d_transpose,
    &ls_layer_layer_normalization,
    &ls_layer_group_normalization,
    &ls_layer_embedding,
    &ls_layer_multi_head_attention,
    &ls_layer_prelu,
    NULL,
};
