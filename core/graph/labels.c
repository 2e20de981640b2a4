// SPDX-License-Identifier: Apache-2.0
// How steps are called in messages and tables: "conv2d_1 backward data", "max_pooling2d backward + relu".
#include "core/graph/build.h"

#include "core/graph/operations.h"

#include <stdio.h>

static const char *activation_name(uint32_t activation)
{
    static const char *const names[LS_ACTIVATION_COUNT] = {
        [LS_LINEAR] = "linear",         [LS_RELU] = "relu",
        [LS_LEAKY_RELU] = "leaky_relu", [LS_ELU] = "elu",
        [LS_SIGMOID] = "sigmoid",       [LS_TANH] = "tanh",
        [LS_SOFTPLUS] = "softplus",     [LS_EXPONENTIAL] = "exponential",
        [LS_RELU6] = "relu6",
    };
    return activation < LS_ACTIVATION_COUNT ? names[activation] : "activation";
}

static const char *direction(const struct ls_node *node)
{
    if (!node->source->backward)
        return "forward";
    switch (node->op) {
    case LS_OP_CONV2D_BACKWARD_DATA:
    case LS_OP_DENSE_BACKWARD_DATA: return "backward data";
    case LS_OP_CONV2D_BACKWARD_WEIGHTS:
    case LS_OP_DENSE_BACKWARD_WEIGHTS: return "backward weights";
    default: return "backward";
    }
}

// A layer's first operation goes by the layer's name alone; the others say which they are.
static const char *part(const struct ls_build *build, const struct ls_node *node)
{
    const struct ls_operation *operation = node->source;

    if (operation->backward && operation->forward < 0)
        return ls_op_name(operation->op);
    const int32_t forward =
        operation->backward ? operation->forward : (int32_t)(operation - build->graph->operations);
    if (forward == 0 || build->graph->operations[forward - 1].layer != operation->layer)
        return NULL;
    const struct ls_operation *first = &build->graph->operations[forward];
    return first->op == LS_OP_ACTIVATION ? activation_name(first->attributes.activation)
                                         : ls_op_name(first->op);
}

void ls_label_step(const struct ls_build *build, const struct ls_node *node, char *text,
                   size_t bytes)
{
    const struct ls_operation *operation = node->source;
    const struct ls_graph *graph = build->graph;
    const struct ls_operation *loss =
        operation->forward >= 0 ? &graph->operations[operation->forward] : operation;
    const bool of_layer = operation->layer != LS_NO_LAYER;
    const char *name = of_layer ? graph->layers[operation->layer].name : ls_op_name(loss->op);
    const char *which = of_layer ? part(build, node) : NULL;
    const bool fused = node->attributes.epilogue != LS_OP_NONE;

    // Long layer names give way, so that what the step does is always there.
    snprintf(text, bytes, "%.36s %s%s%s%s%s", name, direction(node), which ? " " : "",
             which ? which : "", fused ? " + " : "",
             fused ? activation_name(node->attributes.epilogue_activation) : "");
}
