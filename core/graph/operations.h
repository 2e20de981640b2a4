// SPDX-License-Identifier: Apache-2.0
// The table of operations: what each takes, what it makes, and how its gradients are made. Private to
// core/graph. [main thread]
#ifndef LS_GRAPH_OPERATIONS_H
#define LS_GRAPH_OPERATIONS_H

#include "core/graph/graph.h"

#define LS_NO_LAYER UINT32_MAX // `layer` of the loss operations

// Bounds that keep every product of dimensions far from overflow.
#define LS_MAX_DIM INT64_C(0x7fffffff)
#define LS_MAX_ELEMENTS (INT64_C(1) << 40)

// Gradient tensors found so far, by tensor id of what they are the gradient of; and which tensors
// need one.
struct ls_differentiation {
    struct ls_graph *graph;
    struct ls_tensor **gradients;
    bool *needed;
};

#define LS_MAX_INFERRED 3

// What `infer` answers about the outputs.
struct ls_inferred {
    uint32_t count;
    struct ls_shape shapes[LS_MAX_INFERRED]; // none where only `prepare` knows it
    uint32_t dtypes[LS_MAX_INFERRED];
    enum ls_tensor_role roles[LS_MAX_INFERRED];
};

struct ls_op_entry {
    const char *name;
    uint32_t activations; // leading inputs that are activations
    uint32_t parameters, more_parameters; // then required and optional parameters
    // NULL: not an operation that a model is written with.
    enum ls_status (*infer)(const struct ls_graph *graph, struct ls_op_attributes *attributes,
                            struct ls_tensor *const *inputs, uint32_t input_count,
                            const struct ls_shape *output_shape, struct ls_inferred *out);
    // Appends the backward operations of the operation with this index; `dy`: gradient of its first
    // output, NULL for a loss.
    enum ls_status (*gradient)(struct ls_differentiation *d, uint32_t operation,
                               struct ls_tensor *dy);
};

extern const struct ls_op_entry ls_op_entries[];
const struct ls_op_entry *ls_op_entry(uint32_t op); // NULL: no such operation

// The gradients, in gradients.c.
enum ls_status ls_gradient_of_weighted(struct ls_differentiation *d, uint32_t operation,
                                       struct ls_tensor *dy);
enum ls_status ls_gradient_of_max_pool(struct ls_differentiation *d, uint32_t operation,
                                       struct ls_tensor *dy);
enum ls_status ls_gradient_of_average_pool(struct ls_differentiation *d, uint32_t operation,
                                           struct ls_tensor *dy);
enum ls_status ls_gradient_through_output(struct ls_differentiation *d, uint32_t operation,
                                          struct ls_tensor *dy);
enum ls_status ls_gradient_of_same_op(struct ls_differentiation *d, uint32_t operation,
                                      struct ls_tensor *dy);
enum ls_status ls_gradient_of_add(struct ls_differentiation *d, uint32_t operation,
                                  struct ls_tensor *dy);
enum ls_status ls_gradient_of_batch_normalization(struct ls_differentiation *d, uint32_t operation,
                                                  struct ls_tensor *dy);
enum ls_status ls_gradient_of_cross_entropy(struct ls_differentiation *d, uint32_t operation,
                                            struct ls_tensor *dy);
enum ls_status ls_gradient_of_squared_error(struct ls_differentiation *d, uint32_t operation,
                                            struct ls_tensor *dy);

// Appends without checks. `name` is copied. [in graph.c]
LS_STATUS ls_graph_append_tensor(struct ls_graph *graph, enum ls_tensor_role role, uint32_t dtype,
                                 const struct ls_shape *shape, const char *name,
                                 struct ls_tensor **out);
LS_STATUS ls_graph_append_operation(struct ls_graph *graph, const struct ls_operation *operation);

// LS_BAD_INPUT, logged, when a dimension or the number of elements (batch counted as one) is below one
// or beyond the bounds.
LS_STATUS ls_graph_check_shape(const struct ls_graph *graph, const struct ls_tensor *input,
                               const struct ls_shape *shape);

#endif
