// SPDX-License-Identifier: Apache-2.0
// Operations as Keras 3 writes them among the layers of a functional model: x + y, ops.reshape(x,
// ...), ops.relu(x). Their arguments come with the call; some also have options.
#include "layers/kinds.h"

#include <string.h>

static const char *const no_keys[] = {NULL};

// ---- Two tensors ----

static const char *const pair_arguments[] = {"x1", "x2", NULL};

static enum ls_status build_pair(struct ls_graph *graph, const struct ls_layer_call *call,
                                 uint32_t op, struct ls_tensor **outputs)
{
    if (!call->inputs)
        return LS_OK;
    if (call->input_count != 2)
        return ls_graph_fail(graph, call->inputs[0], "a constant is not supported here yet");
    return ls_graph_add(graph, op, NULL, call->inputs, 2, NULL, outputs);
}

static enum ls_status build_add(struct ls_graph *graph, const struct ls_layer_call *call,
                                struct ls_tensor **outputs)
{
    return build_pair(graph, call, LS_OP_ADD, outputs);
}

static enum ls_status build_maximum(struct ls_graph *graph, const struct ls_layer_call *call,
                                    struct ls_tensor **outputs)
{
    return build_pair(graph, call, LS_OP_MAXIMUM, outputs);
}

static enum ls_status build_matmul(struct ls_graph *graph, const struct ls_layer_call *call,
                                   struct ls_tensor **outputs)
{
    return build_pair(graph, call, LS_OP_MATMUL, outputs);
}

#define PAIR(name, function)                                                                  \
    {                                                                                         \
        .class_name = name, .summary = "of two tensors", .least_inputs = 1, .most_inputs = 2, \
        .keys = no_keys, .arguments = pair_arguments, .build = function,                      \
    }
static const struct ls_layer_kind add = PAIR("Add", build_add),
                                  maximum = PAIR("Maximum", build_maximum),
                                  matmul = PAIR("Matmul", build_matmul);

const struct ls_layer_kind *const ls_node_kinds[] = {&add, &maximum, &matmul, NULL};
