// SPDX-License-Identifier: Apache-2.0
// The loss operation at the end of a graph.
#include "core/graph/append.h"

#include "core/base/log.h"

#define KERAS_EPSILON 1e-7f // keras.config.epsilon()

// The loss of what the softmax was made of, not of its output: no probability is ever rounded to
// zero.
static struct ls_tensor *find_logits(const struct ls_graph *graph, const struct ls_loss *loss)
{
    const struct ls_tensor *output = graph->outputs[0];
    if (output->producer < 0 ||
        !ls_operation_has(graph->operations[output->producer].op, LS_TRAIT_PROBABILITIES))
        return NULL;
    if (loss->from_logits)
        ls_warn(graph->name, "the loss was told from_logits, but the model ends in a softmax; "
                             "its input is taken for the logits");
    return graph->operations[output->producer].inputs[0];
}

static enum ls_status add_label(struct ls_graph *graph, enum ls_loss_kind kind,
                                const struct ls_tensor *predictions)
{
    struct ls_shape shape = predictions->shape;
    const bool sparse = kind == LS_LOSS_SPARSE_CROSS_ENTROPY;

    if (sparse)
        shape.dims[--shape.ndims] = 0;
    return ls_graph_append_tensor(graph, LS_ROLE_LABEL, sparse ? LS_I32 : LS_F32, &shape, "label",
                                  &graph->label);
}

static enum ls_status add_loss_operation(struct ls_graph *graph, const struct ls_loss *loss,
                                         struct ls_tensor *predictions, bool from_logits)
{
    const bool sparse = loss->kind == LS_LOSS_SPARSE_CROSS_ENTROPY;
    const struct ls_shape sums = {.ndims = 1, .dims = {4}};
    struct ls_operation operation = {
        .op = sparse ? LS_OP_SPARSE_CROSS_ENTROPY : LS_OP_MEAN_SQUARED_ERROR,
        .attributes = {.from_logits = sparse && from_logits, .epsilon = sparse ? KERAS_EPSILON : 0},
        .input_count = 2,
        .output_count = sparse ? 2 : 1,
        .inputs = {predictions, graph->label},
        .forward = -1,
        .layer = LS_NO_LAYER,
    };
    enum ls_status status =
        ls_graph_append_tensor(graph, LS_ROLE_SUMS, LS_F32, &sums, "sums", &operation.outputs[0]);
    if (!status && sparse)
        status = ls_graph_append_tensor(graph, LS_ROLE_SAVED, LS_F32, &predictions->shape, "loss",
                                        &operation.outputs[1]);
    if (!status)
        status = ls_graph_append_operation(graph, &operation);
    if (!status)
        graph->sums = operation.outputs[0];
    return status;
}

// What a regularized parameter adds to the loss. As in Keras a frozen one adds nothing.
static enum ls_status add_penalty(struct ls_graph *graph, struct ls_tensor *predictions,
                                  struct ls_tensor *parameter)
{
    const struct ls_operation operation = {
        .op = LS_OP_PENALTY,
        .attributes = {.l1 = parameter->l1, .l2 = parameter->l2},
        .input_count = 2,
        .output_count = 1,
        .inputs = {predictions, parameter},
        .outputs = {graph->sums},
        .forward = -1,
        .layer = LS_NO_LAYER,
    };
    if (parameter->zone != LS_ZONE_TRAINED || (parameter->l1 <= 0 && parameter->l2 <= 0))
        return LS_OK;
    return ls_graph_append_operation(graph, &operation);
}

enum ls_status ls_graph_add_loss(struct ls_graph *graph, const struct ls_loss *loss)
{
    if (graph->sums)
        return ls_graph_fail(graph, NULL, "the model has a loss already");
    if (graph->output_count == 0)
        return ls_graph_fail(graph, NULL,
                             "the model has no output to compute a loss of; add layers");

    const bool sparse = loss->kind == LS_LOSS_SPARSE_CROSS_ENTROPY;
    struct ls_tensor *logits = sparse ? find_logits(graph, loss) : NULL;
    struct ls_tensor *predictions = logits ? logits : graph->outputs[0];
    if (predictions->shape.ndims < 2)
        return ls_graph_fail(graph, predictions,
                             "a loss wants at least 2 dimensions: batch, classes");

    enum ls_status status = add_label(graph, loss->kind, predictions);
    if (!status)
        status = add_loss_operation(graph, loss, predictions, logits || loss->from_logits);
    for (uint32_t i = 0; i < graph->parameter_count && !status; i++)
        status = add_penalty(graph, predictions, graph->parameters[i]);
    return status;
}
