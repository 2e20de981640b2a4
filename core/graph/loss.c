// SPDX-License-Identifier: Apache-2.0
// The loss operation at the end of a graph.
#include "core/graph/append.h"

#include "core/base/log.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define KERAS_EPSILON 1e-7f // keras.config.epsilon()

// The operation that computes a loss; its function, where it has several. `masked`: the output has a
// mask.
static uint32_t operation_of(const struct ls_loss *loss, bool masked, uint32_t *function)
{
    *function = loss->kind == LS_LOSS_COMPOSED ? LS_LOSS_VALUES : loss->function;
    if (loss->kind == LS_LOSS_OTHER || loss->kind == LS_LOSS_COMPOSED)
        return LS_OP_LOSS;
    const bool sparse = loss->kind == LS_LOSS_SPARSE_CROSS_ENTROPY;
    *function = sparse ? LS_LOSS_SPARSE : LS_LOSS_SQUARED;
    return loss->weighted || masked ? LS_OP_LOSS
           : sparse                 ? LS_OP_SPARSE_CROSS_ENTROPY
                                    : LS_OP_MEAN_SQUARED_ERROR;
}

// The loss of what the softmax or sigmoid was made of, not of its output: no probability is ever
// rounded to zero.
static struct ls_tensor *find_logits(const struct ls_graph *graph, const struct ls_loss *loss,
                                     const struct ls_tensor *output)
{
    const struct ls_operation *operation =
        output->producer < 0 ? NULL : &graph->operations[output->producer];
    uint32_t function;
    (void)operation_of(loss, false, &function);
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

static enum ls_status add_label(struct ls_graph *graph, const struct ls_loss *loss, uint32_t output,
                                const struct ls_tensor *predictions)
{
    struct ls_tensor **label = &graph->labels[graph->label_count];
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
    const enum ls_status status = ls_graph_append_tensor(
        graph, LS_ROLE_LABEL, sparse ? LS_I32 : LS_F32, &shape, "label", label);
    if (!status) {
        graph->label_of[output] = *label;
        graph->label_count++;
    }
    return status;
}

enum ls_status ls_graph_compose(struct ls_graph *graph, const struct ls_composed *composed,
                                uint32_t output, struct ls_tensor **out)
{
    const uint32_t layer = graph->layer, compute = graph->compute;
    graph->layer = LS_NO_LAYER;
    graph->compute = LS_F32;
    const enum ls_status status =
        composed->compose(composed, graph, graph->outputs[output], graph->label_of[output], out);
    graph->layer = layer;
    graph->compute = compute;
    return status;
}

// The loss of one output.
struct term {
    const struct ls_loss *loss;
    uint32_t output;
    struct ls_tensor *mask; // NULL: none
    struct ls_tensor
        *predictions; // or its logits; of a loss that was composed: the values themselves
    bool from_logits;
};

static struct ls_op_attributes attributes_of(const struct term *term, bool any, uint32_t function)
{
    const bool probabilities = function == LS_LOSS_SPARSE || any;
    return (struct ls_op_attributes){.from_logits = probabilities && term->from_logits,
                                     .epsilon = probabilities ? KERAS_EPSILON : 0,
                                     .function = any ? function : 0,
                                     .threshold = any ? term->loss->delta : 0,
                                     .smoothing = any ? term->loss->smoothing : 0};
}

// ---- The mask of the output ----

static enum ls_status refuse_mask(struct ls_graph *graph, const struct ls_tensor *output,
                                  const char *why)
{
    uint32_t index = 0;
    while (index + 1 < graph->output_count && graph->outputs[index] != output)
        index++;
    graph->layer = LS_NO_LAYER; // the last one that was built, which need not be this output's
    return ls_graph_fail(graph, output,
                         "output '%s' of the model has a mask (mask_zero or Masking), %s; end the "
                         "mask with a layer that has none, such as Flatten or Reshape",
                         ls_graph_output_name(graph, index), why);
}

static enum ls_status reshape(struct ls_graph *graph, struct ls_tensor *x, uint32_t ndims,
                              struct ls_tensor **out)
{
    struct ls_shape shape = x->shape;
    for (shape.ndims = ndims; ndims > x->shape.ndims; ndims--)
        shape.dims[ndims - 1] = 1;
    return ls_graph_add(graph, LS_OP_RESHAPE, NULL, &x, 1, &shape, out);
}

bool ls_graph_masks_losses(const struct ls_graph *graph, const struct ls_loss *losses,
                           uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (losses[i].kind != LS_LOSS_NONE && graph->outputs[i]->mask)
            return true;
    return false;
}

bool ls_graph_loss_is_masked(const struct ls_graph *graph)
{
    for (uint32_t i = 0; i < LS_GRAPH_LOSSES; i++)
        if (graph->moments_of[i])
            return true;
    return false;
}

// The weights of the positions: the mask times the weight of the example, if it has one.
static enum ls_status weigh_positions(struct ls_graph *graph, struct ls_tensor *mask,
                                      struct ls_tensor **out)
{
    const struct ls_op_attributes multiply = {.function = LS_PAIR_MULTIPLY};
    struct ls_tensor *pair[2] = {mask, NULL};
    *out = mask;
    if (!graph->weights)
        return LS_OK;
    const enum ls_status status = reshape(graph, graph->weights, mask->shape.ndims, &pair[1]);
    return status ? status : ls_graph_add(graph, LS_OP_PAIR, &multiply, pair, 2, NULL, out);
}

// Outputs of one mask have its moments together.
static enum ls_status add_moments(struct ls_graph *graph, uint32_t output)
{
    struct ls_tensor *mask = graph->outputs[output]->mask, **moments = graph->moments_of;
    for (uint32_t i = 0; i < graph->output_count && !moments[output]; i++)
        if (moments[i] && graph->outputs[i]->mask == mask)
            moments[output] = moments[i];
    if (moments[output])
        return LS_OK;
    const enum ls_status status = reshape(graph, mask, mask->shape.ndims + 1, &mask);
    return status
               ? status
               : ls_graph_add(graph, LS_OP_BATCH_MOMENTS, NULL, &mask, 1, NULL, &moments[output]);
}

// The weights of positions and the moments of the mask are the last inputs of an LS_OP_LOSS.
// `factor`: how often each position counts.
static enum ls_status add_mask(struct ls_graph *graph, struct ls_operation *loss, uint32_t output,
                               float factor)
{
    const uint32_t layer = graph->layer, compute = graph->compute;
    const struct ls_op_attributes scale = {.function = LS_SCALE, .factor = factor};
    struct ls_tensor *weights = graph->outputs[output]->mask;
    graph->layer = LS_NO_LAYER;
    graph->compute = LS_F32;
    enum ls_status status = weigh_positions(graph, weights, &weights);
    if (!status && factor != 1)
        status = ls_graph_add(graph, LS_OP_FUNCTION, &scale, &weights, 1, NULL, &weights);
    if (!status)
        status = add_moments(graph, output);
    graph->layer = layer;
    graph->compute = compute;
    loss->inputs[2] = weights;
    loss->inputs[3] = graph->moments_of[output];
    loss->input_count = 4;
    return status;
}

// Whether there is an element of the mask for each position of the loss, (B,...) of `values`
// (B,...,C). A loss that was composed has a value for each position.
static enum ls_status fit_mask(struct ls_graph *graph, const struct ls_tensor *output,
                               bool composed, struct ls_tensor **values)
{
    struct ls_shape shape = (*values)->shape;
    shape.ndims -= !composed;
    if (!ls_shape_equal(&shape, &output->mask->shape))
        return refuse_mask(graph, output, "which has not one element for each value of the loss");
    return composed ? reshape(graph, *values, shape.ndims + 1, values) : LS_OK;
}

// ---- A loss ----

// The operation that sums up a loss over the examples. `label` NULL: of values.
static enum ls_status add_loss_operation(struct ls_graph *graph, const struct term *term,
                                         struct ls_tensor *label)
{
    const struct ls_shape sums = {.ndims = 1, .dims = {4}};
    const struct ls_shape examples = {.ndims = 1, .dims = {LS_BATCH}};
    uint32_t function;
    const uint32_t op = operation_of(term->loss, term->mask, &function);
    const bool any = op == LS_OP_LOSS, saves = op == LS_OP_SPARSE_CROSS_ENTROPY;
    struct ls_operation operation = {
        .op = op,
        .attributes = attributes_of(term, any, function),
        .input_count = 2,
        .output_count = saves ? 2 : 1,
        .inputs = {term->predictions, label ? label : term->predictions},
        .forward = -1,
        .layer = LS_NO_LAYER,
    };
    enum ls_status status =
        ls_graph_append_tensor(graph, LS_ROLE_SUMS, LS_F32, &sums, "sums", &operation.outputs[0]);
    if (!status && saves)
        status = ls_graph_append_tensor(graph, LS_ROLE_SAVED, LS_F32, &term->predictions->shape,
                                        "loss", &operation.outputs[1]);
    if (!status && term->loss->weighted) {
        status = ls_graph_append_tensor(graph, LS_ROLE_WEIGHT, LS_F32, &examples, "weights",
                                        &graph->weights);
        operation.inputs[operation.input_count++] = graph->weights;
    }
    if (!status && term->mask)
        status = add_mask(graph, &operation, term->output,
                          term->loss->scaled ? term->loss->factor : 1.0f);
    if (!status)
        status = ls_graph_append_operation(graph, &operation);
    if (!status)
        graph->sums = operation.outputs[0];
    return status;
}

// ---- A loss that is made of several ----

// (B,...,1): the loss of each position.
static enum ls_status add_positions(struct ls_graph *graph, const struct term *term,
                                    struct ls_tensor **out)
{
    struct ls_shape shape = term->predictions->shape;
    uint32_t function;
    (void)operation_of(term->loss, false, &function);
    struct ls_operation operation = {
        .op = LS_OP_POSITION_LOSS,
        .attributes = attributes_of(term, true, function),
        .input_count = 2,
        .output_count = 1,
        .inputs = {term->predictions, graph->label_of[term->output]},
        .forward = -1,
        .layer = LS_NO_LAYER,
    };
    shape.dims[shape.ndims - 1] = 1;
    enum ls_status status = ls_graph_append_tensor(graph, LS_ROLE_ACTIVATION, LS_F32, &shape,
                                                   "losses", &operation.outputs[0]);
    if (!status)
        status = ls_graph_append_operation(graph, &operation);
    *out = operation.outputs[0];
    return status;
}

// Of losses of positions (B,...,1): the loss of each example.
static enum ls_status add_masked_mean(struct ls_graph *graph, const struct term *term,
                                      struct ls_tensor *positions, struct ls_tensor **out)
{
    const enum ls_status status = add_moments(graph, term->output);
    struct ls_tensor *inputs[3] = {positions, term->mask, graph->moments_of[term->output]};
    return status ? status : ls_graph_add(graph, LS_OP_MASKED_MEAN, NULL, inputs, 3, NULL, out);
}

// (B,1): the loss of each example, the mean over its positions.
static enum ls_status add_values(struct ls_graph *graph, const struct term *term,
                                 struct ls_tensor **out)
{
    const struct ls_shape each = {.ndims = 2, .dims = {LS_BATCH, 1}};
    struct ls_op_attributes mean = {.function = LS_REDUCE_TO_MEAN};
    struct ls_tensor *values = term->predictions;
    enum ls_status status = LS_OK;
    if (!term->loss->composed)
        status = add_positions(graph, term, &values);
    graph->loss_of[term->output] = values;
    if (!status && term->mask)
        return add_masked_mean(graph, term, values, out);
    for (uint32_t i = 1; !status && i < values->shape.ndims; i++)
        mean.axes[i] = 1;
    if (!status && ls_shape_elements(&values->shape, 1) > 1)
        status = ls_graph_add(graph, LS_OP_REDUCE, &mean, &values, 1, NULL, &values);
    if (!status && values->shape.ndims != 2)
        status = ls_graph_add(graph, LS_OP_RESHAPE, NULL, &values, 1, &each, &values);
    *out = graph->loss_of[term->output] = values;
    return status;
}

// The sum of the losses of the outputs, each by its factor, is a loss of values.
static enum ls_status add_total(struct ls_graph *graph, const struct term *terms, uint32_t count)
{
    const struct ls_loss loss = {
        .kind = LS_LOSS_OTHER, .function = LS_LOSS_VALUES, .weighted = terms[0].loss->weighted};
    const uint32_t layer = graph->layer, compute = graph->compute;
    struct ls_tensor *total = NULL;
    enum ls_status status = LS_OK;
    graph->layer = LS_NO_LAYER;
    graph->compute = LS_F32;
    for (uint32_t i = 0; !status && i < count; i++) {
        const struct ls_op_attributes by = {.function = LS_SCALE, .factor = terms[i].loss->factor};
        struct ls_tensor *pair[2] = {total, NULL};
        status = add_values(graph, &terms[i], &pair[1]);
        if (!status && terms[i].loss->scaled)
            status = ls_graph_add(graph, LS_OP_FUNCTION, &by, &pair[1], 1, NULL, &pair[1]);
        if (!status && total)
            status = ls_graph_add(graph, LS_OP_ADD, NULL, pair, 2, NULL, &total);
        else
            total = pair[1];
    }
    graph->layer = layer;
    graph->compute = compute;
    const struct term sum = {.loss = &loss, .predictions = total};
    return status ? status : add_loss_operation(graph, &sum, NULL);
}

// What the examples or positions count.
static enum ls_status add_weights(struct ls_graph *graph, struct ls_count *count,
                                  struct ls_operation *operation)
{
    struct ls_tensor *mask = count->masked ? graph->outputs[count->output]->mask : NULL;
    count->masked = mask;
    if (mask && count->weighted)
        return add_mask(graph, operation, count->output, 1);
    if (mask)
        operation->inputs[operation->input_count++] = mask;
    else if (count->weighted && graph->weights)
        operation->inputs[operation->input_count++] = graph->weights;
    return LS_OK;
}

static enum ls_status add_count(struct ls_graph *graph, struct ls_count *count)
{
    const struct ls_shape shape = {.ndims = 1, .dims = {(int64_t)count->slots}};
    struct ls_operation operation = {
        .op = count->op,
        .attributes = count->attributes,
        .input_count = 2,
        .output_count = 1,
        .inputs = {count->of ? count->of : graph->outputs[count->output],
                   count->of ? count->of : graph->label_of[count->output]},
        .forward = -1,
        .layer = LS_NO_LAYER,
    };
    enum ls_status status = ls_graph_append_tensor(graph, LS_ROLE_COUNTS, LS_F32, &shape, "counts",
                                                   &operation.outputs[0]);
    if (!status)
        status = add_weights(graph, count, &operation);
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

// What a regularized parameter, or what a layer has made, adds to the loss. As in Keras a frozen
// parameter adds nothing.
static enum ls_status add_penalty(struct ls_graph *graph, struct ls_tensor *predictions,
                                  struct ls_tensor *regularized)
{
    const struct ls_operation operation = {
        .op = LS_OP_PENALTY,
        .attributes = {.l1 = regularized->l1, .l2 = regularized->l2},
        .input_count = 2,
        .output_count = 1,
        .inputs = {predictions, regularized},
        .outputs = {graph->sums},
        .forward = -1,
        .layer = LS_NO_LAYER,
    };
    const bool frozen =
        regularized->role == LS_ROLE_PARAMETER && regularized->zone != LS_ZONE_TRAINED;
    if (frozen || (regularized->l1 <= 0 && regularized->l2 <= 0))
        return LS_OK;
    return ls_graph_append_operation(graph, &operation);
}

// The sum over all examples already has a part of each of them, so the operation is asked for one
// example. The loss then has the mean of the parts, whatever the shares of a batch, as in Keras,
// which divides by the batch.
static enum ls_status add_activity_penalty(struct ls_graph *graph, struct ls_tensor *activity)
{
    const struct ls_shape one = {.ndims = 1, .dims = {1}};
    struct ls_tensor *example;
    char name[32];

    snprintf(name, sizeof(name), "example_%u", activity->id);
    const enum ls_status status = ls_graph_constant(graph, name, &one, 1, &example);
    return status ? status : add_penalty(graph, example, activity);
}

// Finds what the loss of an output is computed of, and adds its labels.
static enum ls_status begin_term(struct ls_graph *graph, const struct ls_loss *loss,
                                 uint32_t output, struct term *out)
{
    struct ls_tensor *of = graph->outputs[output];
    struct ls_tensor *logits = find_logits(graph, loss, of);
    *out = (struct term){.loss = loss,
                         .output = output,
                         .mask = of->mask,
                         .predictions = logits ? logits : of,
                         .from_logits = logits || loss->from_logits};
    if (of->shape.ndims < 2)
        return ls_graph_fail(graph, of, "a loss expects at least 2 dimensions: batch, classes");
    enum ls_status status = add_label(graph, loss, output, out->predictions);
    if (!status && loss->composed)
        status = ls_graph_compose(graph, loss->composed, output, &out->predictions);
    if (!status && of->mask)
        status = fit_mask(graph, of, loss->composed, &out->predictions);
    return status;
}

// Where an output has no loss, what only it depends on is not trained, as in Keras. `says`: warns
// of it.
static enum ls_status freeze_unread(struct ls_graph *graph, bool says)
{
    bool *read = calloc((size_t)graph->tensor_count + 1, sizeof(*read));
    uint32_t count = 0;
    const char *first = NULL;
    if (!read)
        return LS_OUT_OF_MEMORY;
    read[graph->sums->id] = true;
    for (uint32_t i = graph->operation_count; i-- > 0;) {
        const struct ls_operation *operation = &graph->operations[i];
        bool reaches = false;
        for (uint32_t k = 0; k < operation->output_count; k++)
            reaches = reaches || read[operation->outputs[k]->id];
        for (uint32_t k = 0; reaches && k < operation->input_count; k++)
            read[operation->inputs[k]->id] = true;
    }
    for (uint32_t i = 0; i < graph->parameter_count; i++) {
        struct ls_tensor *parameter = graph->parameters[i];
        if (parameter->zone != LS_ZONE_TRAINED || read[parameter->id])
            continue;
        parameter->zone = LS_ZONE_FROZEN;
        first = first ? first : parameter->name;
        count++;
    }
    free(read);
    if (count && says)
        ls_warn(graph->name, "%u variable%s not trained, such as '%s': no loss depends on %s",
                count, count == 1 ? " is" : "s are", first, count == 1 ? "it" : "them");
    return LS_OK;
}

// What layers make is penalized by the example, and not by what a mask leaves, so the loss of the
// output is a part of its own (loss_of), of which evaluation counts the mask.
static bool penalizes_activities(const struct ls_graph *graph)
{
    for (uint32_t i = 0; i < graph->tensor_count; i++) {
        const struct ls_tensor *tensor = graph->tensors[i];
        if (tensor->role != LS_ROLE_PARAMETER && (tensor->l1 > 0 || tensor->l2 > 0))
            return true;
    }
    return false;
}

enum ls_status ls_graph_add_losses(struct ls_graph *graph, const struct ls_loss *losses,
                                   uint32_t count)
{
    struct term terms[LS_GRAPH_LOSSES];
    uint32_t found = 0;
    enum ls_status status = LS_OK;
    if (graph->sums)
        return ls_graph_fail(graph, NULL, "the model has a loss already");
    if (graph->output_count == 0)
        return ls_graph_fail(graph, NULL,
                             "the model has no output to compute a loss of; add layers");
    assert(count == graph->output_count && count <= LS_GRAPH_LOSSES);
    for (uint32_t i = 0; !status && i < count; i++)
        if (losses[i].kind != LS_LOSS_NONE)
            status = begin_term(graph, &losses[i], i, &terms[found++]);
    if (!status && found == 1 &&
        (terms[0].mask ? !penalizes_activities(graph) : !terms[0].loss->scaled))
        status = add_loss_operation(
            graph, &terms[0], terms[0].loss->composed ? NULL : graph->label_of[terms[0].output]);
    else if (!status)
        status = add_total(graph, terms, found);
    const uint32_t tensors = graph->tensor_count; // of the layers, and of the loss
    for (uint32_t i = 0; i < tensors && !status; i++) {
        struct ls_tensor *tensor = graph->tensors[i];
        if (tensor->role == LS_ROLE_PARAMETER)
            status = add_penalty(graph, terms[0].predictions, tensor);
        else if (tensor->l1 > 0 || tensor->l2 > 0)
            status = add_activity_penalty(graph, tensor);
    }
    // A graph with weights is built after one without, which has said it.
    return !status && found < count ? freeze_unread(graph, !losses[0].weighted) : status;
}
