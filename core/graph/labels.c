// SPDX-License-Identifier: Apache-2.0
// How steps are called in messages and tables: "conv2d_1 backward data", "max_pooling2d backward +
// relu", "batch_normalization forward + add + relu".
#include "core/graph/build.h"

#include <stdio.h>
#include <string.h>

#define MOST_OF_NAME 36 // letters of a layer's name

// "forward", "backward weights"
static void describe_direction(const struct ls_node *node, char *text, size_t bytes)
{
    const struct ls_operation_row *row = ls_operation_row(node->op);

    snprintf(text, bytes, "%s", node->source->backward ? "backward" : "forward");
    if (row->backward_of == LS_OP_NONE)
        return;
    snprintf(text, bytes, "%s", row->name + strlen(ls_op_name(row->backward_of)) + 1);
    for (char *c = strchr(text, '_'); c; c = strchr(c, '_'))
        *c = ' ';
}

// A layer's first operation goes by the layer's name alone; the others say which they are.
static const char *part(const struct ls_build *build, const struct ls_node *node)
{
    const struct ls_operation *operation = node->source;

    if (operation->backward && operation->forward < 0)
        return ls_op_name(operation->op);
    const int32_t forward =
        operation->backward ? operation->forward : (int32_t)(operation - build->graph->operations);
    const struct ls_operation *operations = build->graph->operations, *first = &operations[forward];
    int32_t before = forward - 1;
    while (before >= 0 && operations[before].layer == operation->layer &&
           operations[before].op == LS_OP_CONVERT) // casts are not what the layer is there for
        before--;
    if (first->op != LS_OP_CONVERT && (before < 0 || operations[before].layer != operation->layer))
        return NULL;
    return ls_operation_label(first->op, &first->attributes);
}

// "forward relu + add", without the name; a node may do what other nodes were there for.
static void describe_work(const struct ls_build *build, const struct ls_node *node, char *text,
                          size_t bytes)
{
    const char *which = node->source->layer != LS_NO_LAYER ? part(build, node) : NULL;
    char direction[32];

    describe_direction(node, direction, sizeof(direction));
    size_t length =
        (size_t)snprintf(text, bytes, "%s%s%s", direction, which ? " " : "", which ? which : "");
    for (uint32_t i = 0; i < node->fused_count && length < bytes; i++) {
        const struct ls_node *fused = &build->nodes[node->fused[i]];
        length += (size_t)snprintf(text + length, bytes - length, " + %s",
                                   ls_operation_label(fused->op, &fused->attributes));
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
