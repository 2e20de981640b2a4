// SPDX-License-Identifier: Apache-2.0
// Two tensors element by element, as layers and operations need them: equal shapes where they have
// an operation of their own, broadcasting elsewhere; and numbers instead of one of them.
#include "layers/kinds.h"

static bool is_activation(const struct ls_tensor *tensor)
{
    return tensor->role != LS_ROLE_PARAMETER;
}

enum ls_status ls_add_pair(struct ls_graph *graph, uint32_t function, struct ls_tensor *a,
                           struct ls_tensor *b, struct ls_tensor **out)
{
    struct ls_tensor *inputs[2] = {a, b};
    const struct ls_op_attributes attributes = {.function = function};
    const bool alike = ls_shape_equal(&a->shape, &b->shape) && is_activation(a) && is_activation(b);

    if (alike && function == LS_PAIR_ADD)
        return ls_add_elementwise(graph, LS_OP_ADD, NULL, inputs, 2, out);
    if (alike && function == LS_PAIR_MAXIMUM)
        return ls_add_elementwise(graph, LS_OP_MAXIMUM, NULL, inputs, 2, out);
    return ls_graph_add(graph, LS_OP_PAIR, &attributes, inputs, 2, NULL, out);
}

enum ls_status ls_add_scale(struct ls_graph *graph, double factor, double offset,
                            struct ls_tensor *x, struct ls_tensor **out)
{
    const struct ls_op_attributes attributes = {
        .function = LS_SCALE, .factor = (float)factor, .offset = (float)offset};
    if (attributes.factor == 1 && attributes.offset == 0) {
        *out = x;
        return LS_OK;
    }
    return ls_graph_add(graph, LS_OP_FUNCTION, &attributes, &x, 1, NULL, out);
}

enum ls_status ls_add_pair_with_numbers(struct ls_graph *graph, uint32_t function,
                                        struct ls_tensor *x, const char *name,
                                        const struct ls_numbers *numbers, struct ls_tensor **out)
{
    const struct ls_shape shape = {.ndims = 1, .dims = {numbers->count}};
    struct ls_tensor *constant;

    enum ls_status status =
        ls_graph_constant_values(graph, name, &shape, numbers->values, &constant);
    return status ? status : ls_add_pair(graph, function, x, constant, out);
}
