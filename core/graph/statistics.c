// SPDX-License-Identifier: Apache-2.0
// Batch normalization and its moving statistics, which a pass contributes to as if they had
// gradients; kernels that steps normalize.
#include "core/graph/append.h"

#include <math.h>
#include <stdlib.h>

// What the passes contribute to `moving`; made by the first use of its layer.
static enum ls_status contribution(struct ls_graph *graph, struct ls_tensor *moving,
                                   struct ls_tensor **out)
{
    for (uint32_t i = 0; i < graph->operation_count; i++)
        for (uint32_t k = 0; k < 2 && graph->operations[i].op == LS_OP_BATCH_STATISTICS; k++)
            if (graph->operations[i].outputs[k]->gradient_of == moving) {
                *out = graph->operations[i].outputs[k];
                return LS_OK;
            }
    const enum ls_status status = ls_graph_append_tensor(
        graph, LS_ROLE_PARAMETER_GRADIENT, moving->dtype, &moving->shape, moving->name, out);
    if (!status)
        (*out)->gradient_of = moving;
    return status;
}

// Keras moves the statistics once for each use: after n of them s is m^n s plus the sum over the
// uses i = 1 .. n of m^(n-i) (1 - m) times what use i found. One update with momentum m^n does the
// same with these factors, which add up to 1.
static void share_among_uses(struct ls_graph *graph, struct ls_tensor *const moving[2],
                             double momentum)
{
    uint32_t uses = 0, use = 0;
    for (uint32_t i = 0; i < graph->operation_count; i++)
        uses += graph->operations[i].op == LS_OP_BATCH_STATISTICS &&
                graph->operations[i].outputs[0]->gradient_of == moving[0];
    const double all = 1 - pow(momentum, uses);
    for (uint32_t i = 0; i < graph->operation_count; i++) {
        struct ls_operation *operation = &graph->operations[i];
        if (operation->op != LS_OP_BATCH_STATISTICS ||
            operation->outputs[0]->gradient_of != moving[0])
            continue;
        use++;
        operation->attributes.factor =
            all > 0 ? (float)(pow(momentum, uses - use) * (1 - momentum) / all)
                    : 1.0f / (float)uses;
    }
    for (int k = 0; k < 2; k++)
        moving[k]->momentum = pow(momentum, uses);
}

enum ls_status ls_graph_batch_normalization(struct ls_graph *graph,
                                            const struct ls_op_attributes *attributes,
                                            struct ls_tensor *const inputs[static 5],
                                            double momentum, bool synchronized,
                                            struct ls_tensor **out)
{
    struct ls_tensor *const moving[2] = {inputs[3], inputs[4]};
    struct ls_graph_layer *layer = &graph->layers[graph->layer];
    struct ls_tensor *found[4] = {inputs[0], inputs[1], inputs[2]};
    enum ls_status status = LS_OK;

    if (layer->frozen)
        return ls_graph_add(graph, LS_OP_BATCH_NORMALIZATION_INFERENCE, attributes, inputs, 5, NULL,
                            out);
    if (synchronized)
        status = ls_graph_add(graph, LS_OP_BATCH_MOMENTS, attributes, inputs, 1, NULL, &found[3]);
    if (!status)
        status = ls_graph_add(graph,
                              synchronized ? LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED
                                           : LS_OP_BATCH_NORMALIZATION,
                              attributes, found, synchronized ? 4 : 3, NULL, out);
    if (status)
        return status;
    // What is not computed in halves is followed by its cast.
    const struct ls_operation *normalization = &graph->operations[(*out)->producer];
    if (normalization->op == LS_OP_CONVERT)
        normalization = &graph->operations[normalization->inputs[0]->producer];
    struct ls_operation statistics = {
        .op = LS_OP_BATCH_STATISTICS,
        .input_count = 2,
        .output_count = 2,
        .inputs = {normalization->outputs[1], normalization->outputs[2]},
        .forward = -1,
        .layer = graph->layer,
    };
    for (int k = 0; k < 2 && !status; k++)
        status = contribution(graph, moving[k], &statistics.outputs[k]);
    if (!status)
        status = ls_graph_append_operation(graph, &statistics);
    if (status)
        return status;
    moving[0]->zone = moving[1]->zone = LS_ZONE_STATISTICS;
    share_among_uses(graph, moving, momentum);
    return LS_OK;
}

static uint32_t find_parameter(const struct ls_graph *graph, const struct ls_tensor *tensor)
{
    uint32_t index = 0;
    while (graph->parameters[index] != tensor)
        index++;
    return index;
}

enum ls_status ls_graph_add_spectral_norm(struct ls_graph *graph, const struct ls_tensor *kernel,
                                          const struct ls_tensor *vector, uint32_t iterations)
{
    const uint32_t count = graph->spectral_norm_count;
    struct ls_spectral_norm *more =
        realloc(graph->spectral_norms, ((size_t)count + 1) * sizeof(*more));
    if (!more)
        return LS_OUT_OF_MEMORY;
    more[count] = (struct ls_spectral_norm){.kernel = find_parameter(graph, kernel),
                                            .vector = find_parameter(graph, vector),
                                            .iterations = iterations};
    graph->spectral_norms = more;
    graph->spectral_norm_count = count + 1;
    return LS_OK;
}

static bool has_totals(const struct ls_graph *graph, bool of_layers)
{
    for (uint32_t i = 0; i < graph->operation_count; i++)
        for (uint32_t k = 0; k < graph->operations[i].output_count; k++)
            if (graph->operations[i].outputs[k]->role == LS_ROLE_TOTAL &&
                !(of_layers && graph->operations[i].layer == LS_NO_LAYER))
                return true;
    return false;
}

bool ls_graph_has_totals(const struct ls_graph *graph)
{
    return has_totals(graph, false);
}

bool ls_graph_has_layer_totals(const struct ls_graph *graph)
{
    return has_totals(graph, true);
}
