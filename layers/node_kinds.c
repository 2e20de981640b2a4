// SPDX-License-Identifier: Apache-2.0
// The table of operations as Keras 3 writes them among the layers of a functional model: x + y,
// ops.mean(x, ...), ops.relu(x). Their arguments come with the call; some also have options.
#include "layers/kinds.h"

const struct ls_layer_kind *const ls_node_kinds[] = {
    &ls_node_add,
    &ls_node_subtract,
    &ls_node_multiply,
    &ls_node_divide,
    &ls_node_true_divide,
    &ls_node_maximum,
    &ls_node_minimum,
    &ls_node_transpose,
    &ls_node_mean,
    &ls_node_sum,
    &ls_node_max,
    &ls_node_concatenate,
    &ls_node_relu,
    &ls_node_relu6,
    &ls_node_sigmoid,
    &ls_node_tanh,
    &ls_node_exp,
    &ls_node_softplus,
    &ls_node_silu,
    &ls_node_hard_silu,
    &ls_node_hard_sigmoid,
    &ls_node_gelu,
    &ls_node_square,
    &ls_node_sqrt,
    NULL,
};
