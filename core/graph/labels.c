// SPDX-License-Identifier: Apache-2.0
// How steps are called in messages and tables: "conv2d_1 backward data", "max_pooling2d backward + relu",
// "batch_normalization forward + add + relu".
#include "core/graph/build.h"

#include "core/graph/operations.h"

#include <stdio.h>
#include <string.h>

#define MOST_OF_NAME 36 // letters of a layer's name

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

// "forward relu + add", without the name; a node may do what other nodes were there for.
static void describe_work(const struct ls_build *build, const struct ls_node *node, char *text,
                          size_t bytes)
{
    const char *which = node->source->layer != LS_NO_LAYER ? part(build, node) : NULL;
    size_t length = (size_t)snprintf(text, bytes, "%s%s%s", direction(node), which ? " " : "",
                                     which ? which : "");
    for (uint32_t i = 0; i < node->fused_count && length < bytes; i++) {
        const struct ls_node *fused = &build->nodes[node->fused[i]];
        length += (size_t)snprintf(text + length, bytes - length, " + %s",
                                   fused->op == LS_OP_ADD
                                       ? ls_op_name(fused->op)
                                       : activation_name(fused->attributes.activation));
    }
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
    char work[64];

    // Long layer names give way, so that what the step does is always there.
    describe_work(build, node, work, sizeof(work));
    const size_t room = bytes > strlen(work) + 2 ? bytes - strlen(work) - 2 : 0;
    snprintf(text, bytes, "%.*s %s", (int)(room < MOST_OF_NAME ? room : MOST_OF_NAME), name, work);
}
