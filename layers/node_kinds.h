// SPDX-License-Identifier: Apache-2.0
// What the files of operation nodes share. Nodes of one file have one `build`, which looks up what
// it is called. [main thread]
#ifndef LS_LAYERS_NODE_KINDS_H
#define LS_LAYERS_NODE_KINDS_H

#include "layers/kinds.h"

typedef enum ls_status ls_node_build(struct ls_graph *graph, const struct ls_layer_call *call,
                                     struct ls_tensor **outputs);
ls_node_build ls_build_pair_node, ls_build_power_node, ls_build_clip_node; // node_pairs.c
ls_node_build ls_build_matmul_node; // node_pairs.c
ls_node_build ls_build_function_node; // node_functions.c
ls_node_build ls_build_reduce_node; // node_reductions.c
// node_shapes.c
ls_node_build ls_build_reshape_node, ls_build_transpose_node, ls_build_swap_node,
    ls_build_expand_node, ls_build_squeeze_node, ls_build_slice_node, ls_build_split_node,
    ls_build_join_node;

// "Add": the operation that is built.
const char *ls_node_class(const struct ls_graph *graph);

// enum ls_function, but LS_SCALE.
LS_STATUS ls_node_function(struct ls_graph *graph, uint32_t function, struct ls_tensor *x,
                           struct ls_tensor **out);
// The same elements in another shape; x itself where that is its shape.
LS_STATUS ls_node_reshape(struct ls_graph *graph, struct ls_tensor *x, const struct ls_shape *shape,
                          struct ls_tensor **out);

// A constant among the arguments: a number, a list, or an array as Keras writes it.
struct ls_node_constant {
    struct ls_shape shape; // of a number: ndims 0
    float *values; // freed by the caller
};
// Logs what it is when it is none: LS_BAD_INPUT.
LS_STATUS ls_node_read_constant(struct ls_config *config, const json_t *value,
                                struct ls_node_constant *out);
// As a variable that is neither trained nor saved.
LS_STATUS ls_node_add_constant(struct ls_graph *graph, const struct ls_node_constant *constant,
                               struct ls_tensor **out);

// An axis of x, from -ndims to ndims - 1, as an index behind the batch; else it is refused and 0.
// `more`: axes that the result has beyond those of x.
uint32_t ls_node_axis(struct ls_config *config, const char *key, const json_t *value,
                      const struct ls_tensor *x, uint32_t more);

#endif
