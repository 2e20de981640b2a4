// SPDX-License-Identifier: Apache-2.0
// Transpositions, of which adjacent ones cancel: a network whose channels come first then has one
// at each end.
#include "layers/kinds.h"

#include <string.h>

// The transposition that makes x; NULL: none.
static const struct ls_operation *transposition_of(const struct ls_graph *graph,
                                                   const struct ls_tensor *x)
{
    const struct ls_operation *maker = x->producer < 0 ? NULL : &graph->operations[x->producer];
    return maker && maker->op == LS_OP_TRANSPOSE ? maker : NULL;
}

enum ls_status ls_add_transposition(struct ls_graph *graph, const int32_t order[LS_MAX_DIMS],
                                    struct ls_tensor *x, struct ls_tensor **out)
{
    const struct ls_operation *before = transposition_of(graph, x);
    struct ls_op_attributes attributes = {0};
    bool same = true;
    for (uint32_t i = 0; i < x->shape.ndims; i++) {
        attributes.axes[i] = before ? before->attributes.axes[order[i]] : order[i];
        same = same && attributes.axes[i] == (int32_t)i;
    }
    *out = x = before ? before->inputs[0] : x;
    return same ? LS_OK : ls_graph_add(graph, LS_OP_TRANSPOSE, &attributes, &x, 1, NULL, out);
}

enum ls_status ls_add_elementwise(struct ls_graph *graph, uint32_t op,
                                  const struct ls_op_attributes *attributes,
                                  struct ls_tensor *const *inputs, uint32_t count,
                                  struct ls_tensor **out)
{
    struct ls_tensor *sources[LS_MAX_ARGUMENTS];
    int32_t order[LS_MAX_DIMS] = {0};
    for (uint32_t i = 0; i < count; i++) {
        const struct ls_operation *maker = transposition_of(graph, inputs[i]);
        if (!maker || (i > 0 && memcmp(order, maker->attributes.axes, sizeof(order)) != 0))
            return ls_graph_add(graph, op, attributes, inputs, count, NULL, out);
        memcpy(order, maker->attributes.axes, sizeof(order));
        sources[i] = maker->inputs[0];
    }
    const enum ls_status status = ls_graph_add(graph, op, attributes, sources, count, NULL, out);
    return status ? status : ls_add_transposition(graph, order, *out, out);
}
