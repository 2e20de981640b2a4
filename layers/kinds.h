// SPDX-License-Identifier: Apache-2.0
// What the files of this folder share: one struct ls_layer_kind each, and the activations that are layers.
#ifndef LS_LAYERS_KINDS_H
#define LS_LAYERS_KINDS_H

#include "layers/config.h"

extern const struct ls_layer_kind ls_layer_input, ls_layer_dense, ls_layer_conv2d,
    ls_layer_max_pooling2d, ls_layer_average_pooling2d, ls_layer_flatten, ls_layer_reshape,
    ls_layer_dropout, ls_layer_activation, ls_layer_relu, ls_layer_softmax, ls_layer_leaky_relu,
    ls_layer_elu, ls_layer_batch_normalization;
extern const struct ls_layer_kind ls_layer_conv1d, ls_layer_depthwise_conv2d,
    ls_layer_separable_conv2d, ls_layer_conv2d_transpose, ls_layer_layer_normalization,
    ls_layer_group_normalization, ls_layer_embedding, ls_layer_multi_head_attention, ls_layer_prelu;

// Operations of Keras 3 that a functional model has among its layers: keras.ops.add and others. Ends
// with NULL.
extern const struct ls_layer_kind *const ls_node_kinds[];

// The activation that the configuration of such a layer stands for; also for one given as an object.
struct ls_layer_activation ls_read_activation(struct ls_config *config);
struct ls_layer_activation ls_read_relu(struct ls_config *config);
struct ls_layer_activation ls_read_softmax(struct ls_config *config);
struct ls_layer_activation ls_read_leaky_relu(struct ls_config *config);
struct ls_layer_activation ls_read_elu(struct ls_config *config);

// Reads with `read` and adds the operation.
LS_STATUS ls_build_activation(struct ls_graph *graph, const struct ls_layer_call *call,
                              struct ls_layer_activation (*read)(struct ls_config *config),
                              struct ls_tensor **outputs);

// Keys and operation of the two pooling layers.
extern const char *const ls_pooling_keys[];
LS_STATUS ls_build_pooling(struct ls_graph *graph, uint32_t op, const struct ls_layer_call *call,
                           struct ls_tensor **outputs);

#endif
