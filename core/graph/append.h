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

// What ls_graph_add does once inputs are cast; `converted` is the type of an output that may have
// any.
LS_STATUS ls_graph_add_uncast(struct ls_graph *graph, uint32_t op,
                              const struct ls_op_attributes *attributes,
                              struct ls_tensor *const *inputs, uint32_t input_count,
                              const struct ls_shape *output_shape, uint32_t converted,
                              struct ls_tensor **out);

static inline bool ls_is_floating(const struct ls_tensor *tensor)
{
    return tensor->role != LS_ROLE_PARAMETER &&
           (tensor->dtype == LS_F32 || ls_type_is_half(tensor->dtype));
}

// The type of the first floating input that is no parameter; LS_F32: there is none.
uint32_t ls_floating_type(struct ls_tensor *const *inputs, uint32_t count);

#endif
