// SPDX-License-Identifier: Apache-2.0
// The loss operation at the end of a graph.
#include "core/graph/append.h"

#include "core/base/log.h"

#define KERAS_EPSILON 1e-7f // keras.config.epsilon()

// The operation that computes a loss; its function, where it has several.
static uint32_t operation_of(const struct ls_loss *loss, uint32_t *function)
{
    *function = loss->kind == LS_LOSS_COMPOSED ? LS_LOSS_VALUES : loss->function;
    if (loss->kind == LS_LOSS_OTHER || loss->kind == LS_LOSS_COMPOSED)
        return LS_OP_LOSS;
    const bool sparse = loss->kind == LS_LOSS_SPARSE_CROSS_ENTROPY;
    *function = sparse ? LS_LOSS_SPARSE : LS_LOSS_SQUARED;
    return loss->weighted ? LS_OP_LOSS
           : sparse       ? LS_OP_SPARSE_CROSS_ENTROPY
                          : LS_OP_MEAN_SQUARED_ERROR;
}

// The loss of what the softmax or sigmoid was made of, not of its output: no probability is ever
// rounded to zero.
static struct ls_tensor *find_logits(const struct ls_graph *graph, const struct ls_loss *loss)
{
    const struct ls_tensor *output = graph->outputs[0];
    const struct ls_operation *operation =
        output->producer < 0 ? NULL : &graph->operations[output->producer];
    uint32_t function;
    (void)operation_of(loss, &function);
    const bool softmax = function == LS_LOSS_SPARSE || function == LS_LOSS_CATEGORICAL;
    const bool makes_softmax = operation && ls_operation_has(operation->op, LS_TRAIT_PROBABILITIES);
    const bool makes_sigmoid = operation && ls_operation_has(operation->op, LS_TRAIT_ACTIVATION) &&
                               operation->attributes.activation == LS_SIGMOID;
    if (!(softmax && makes_softmax) && !(function == LS_LOSS_BINARY && makes_sigmoid))
        return NULL;
    if (loss->from_logits)
        ls_warn(graph->name,
                "the loss was told from_logits, but the model ends in a %s; "
                "its input is taken for the logits",
                softmax ? "softmax" : "sigmoid");
    return operation->inputs[0];
}

static enum ls_status add_label(struct ls_graph *graph, const struct ls_loss *loss,
                                const struct ls_tensor *predictions)
{
    const struct ls_composed *composed = loss->composed;
    const bool sparse = composed ? composed->classes : loss->kind == LS_LOSS_SPARSE_CROSS_ENTROPY;
    struct ls_shape shape = predictions->shape;
    if (sparse)
        shape.dims[--shape.ndims] = 0;
    else if (composed && composed->label_shape) {
        const enum ls_status status = composed->label_shape(composed, &predictions->shape, &shape);
        if (status)
            return status;
    }
    return ls_graph_append_tensor(graph, LS_ROLE_LABEL, sparse ? LS_I32 : LS_F32, &shape, "label",
                                  &graph->label);
}

enum ls_status ls_graph_compose(struct ls_graph *graph, const struct ls_composed *composed,
                                struct ls_tensor **out)
{
    const uint32_t layer = graph->layer, compute = graph->compute;
    graph->layer = LS_NO_LAYER;
    graph->compute = LS_F32;
    const enum ls_status status =
        composed->compose(composed, graph, graph->outputs[0], graph->label, out);
    graph->layer = layer;
    graph->compute = compute;
    return status;
}

// `predictions` are the values themselves of a loss that was composed.
static enum ls_status add_loss_operation(struct ls_graph *graph, const struct ls_loss *loss,
                                         struct ls_tensor *predictions, bool from_logits)
{
    const struct ls_shape sums = {.ndims = 1, .dims = {4}};
    const struct ls_shape examples = {.ndims = 1, .dims = {LS_BATCH}};
    uint32_t function;
    const uint32_t op = operation_of(loss, &function);
    const bool any = op == LS_OP_LOSS, saves = op == LS_OP_SPARSE_CROSS_ENTROPY;
    const bool probabilities = function == LS_LOSS_SPARSE || any;
    struct ls_operation operation = {
        .op = op,
        .attributes = {.from_logits = probabilities && from_logits,
                       .epsilon = probabilities ? KERAS_EPSILON : 0,
                       .function = any ? function : 0,
                       .threshold = any ? loss->delta : 0,
                       .smoothing = any ? loss->smoothing : 0},
        .input_count = 2,
        .output_count = saves ? 2 : 1,
        .inputs = {predictions, loss->composed ? predictions : graph->label},
        .forward = -1,
        .layer = LS_NO_LAYER,
    };
    enum ls_status status =
        ls_graph_append_tensor(graph, LS_ROLE_SUMS, LS_F32, &sums, "sums", &operation.outputs[0]);
    if (!status && saves)
        status = ls_graph_append_tensor(graph, LS_ROLE_SAVED, LS_F32, &predictions->shape, "loss",
                                        &operation.outputs[1]);
    if (!status && loss->weighted) {
        status = ls_graph_append_tensor(graph, LS_ROLE_WEIGHT, LS_F32, &examples, "weights",
                                        &graph->weights);
        operation.inputs[operation.input_count++] = graph->weights;
    }
    if (!status)
        status = ls_graph_append_operation(graph, &operation);
    if (!status)
        graph->sums = operation.outputs[0];
    return status;
}

static enum ls_status add_count(struct ls_graph *graph, struct ls_count *count)
{
    const struct ls_shape shape = {.ndims = 1, .dims = {(int64_t)count->slots}};
    struct ls_operation operation = {
        .op = count->op,
        .attributes = count->attributes,
        .input_count = 2,
        .output_count = 1,
        .inputs = {count->of ? count->of : graph->outputs[0], count->of ? count->of : graph->label},
        .forward = -1,
        .layer = LS_NO_LAYER,
    };
    const enum ls_status status = ls_graph_append_tensor(graph, LS_ROLE_COUNTS, LS_F32, &shape,
                                                         "counts", &operation.outputs[0]);
    if (status)
        return status;
    const uint32_t line = LS_ALIGNMENT / sizeof(float);
    count->slot = operation.outputs[0]->slot = graph->count_slots;
    graph->count_slots += (count->slots + line - 1) / line * line;
    return ls_graph_append_operation(graph, &operation);
}

enum ls_status ls_graph_add_counts(struct ls_graph *graph, struct ls_count *counts, uint32_t count)
{
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < count; i++) {
        if (counts[i].op == LS_OP_LOSS)
            counts[i].attributes.epsilon = KERAS_EPSILON;
        status = add_count(graph, &counts[i]);
    }
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
    if (graph->outputs[0]->mask)
        return ls_graph_fail(
            graph, graph->outputs[0],
            "the model's output has a mask (mask_zero or Masking), by which Keras "
            "weights the loss of each step; this is not supported: end the mask "
            "with a layer that has none, such as return_sequences=False or Reshape");

    struct ls_tensor *logits = find_logits(graph, loss);
    struct ls_tensor *predictions = logits ? logits : graph->outputs[0];
    if (predictions->shape.ndims < 2)
        return ls_graph_fail(graph, predictions,
                             "a loss expects at least 2 dimensions: batch, classes");

    struct ls_tensor *values = predictions;
    enum ls_status status = add_label(graph, loss, predictions);
    if (!status && loss->composed)
        status = ls_graph_compose(graph, loss->composed, &values);
    if (!status)
        status = add_loss_operation(graph, loss, values, logits || loss->from_logits);
    for (uint32_t i = 0; i < graph->parameter_count && !status; i++)
        status = add_penalty(graph, predictions, graph->parameters[i]);
    return status;
}
