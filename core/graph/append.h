// SPDX-License-Identifier: Apache-2.0
// Appending to a graph without checks. Private to core/graph. [main thread]
#ifndef LS_GRAPH_APPEND_H
#define LS_GRAPH_APPEND_H

#include "core/graph/graph.h"

// Bounds that keep every product of dimensions far from overflow.
#define LS_MAX_DIM INT64_C(0x7fffffff)
#define LS_MAX_ELEMENTS (INT64_C(1) << 40)

// `name` is copied.
LS_STATUS ls_graph_append_tensor(struct ls_graph *graph, enum ls_tensor_role role, uint32_t dtype,
                                 const struct ls_shape *shape, const char *name,
                                 struct ls_tensor **out);
LS_STATUS ls_graph_append_operation(struct ls_graph *graph, const struct ls_operation *operation);

// LS_BAD_INPUT, logged, when a dimension or the number of elements (batch counted as one) is below
// one or beyond the bounds.
LS_STATUS ls_graph_check_shape(const struct ls_graph *graph, const struct ls_tensor *input,
                               const struct ls_shape *shape);

// ---- autocast.c ----

// The type of the first floating input that is no parameter; LS_F32: there is none.
uint32_t ls_floating_type(struct ls_tensor *const *inputs, uint32_t count);
// `x` as another floating type; a cast that is there is used again.
LS_STATUS ls_graph_cast(struct ls_graph *graph, struct ls_tensor *x, uint32_t dtype,
                        struct ls_tensor **out);
// `inputs` in the types that the operation has where the layer computes in graph->compute, and the
// type that its result is to have.
LS_STATUS ls_graph_cast_inputs(struct ls_graph *graph, const struct ls_operation_row *row,
                               struct ls_tensor *const *inputs, uint32_t count,
                               struct ls_tensor **cast, uint32_t *result);

#endif
