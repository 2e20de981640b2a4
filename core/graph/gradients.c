// SPDX-License-Identifier: Apache-2.0
// Differentiation: walks the operations from the loss back and appends, for each, the operations that make
// the gradients of its inputs. Fusion and reshapes are of no concern here; a program rewrites them later.
#include "core/graph/operations.h"

#include "core/base/log.h"

#include <stdlib.h>
#include <string.h>

// A backward operation of `forward`, with its attributes and one output, which is not there yet.
static struct ls_operation backward_of(const struct ls_differentiation *d, uint32_t forward,
                                       uint32_t op)
{
    const struct ls_operation *source = &d->graph->operations[forward];

    return (struct ls_operation){.op = op,
                                 .attributes = source->attributes,
                                 .output_count = 1,
                                 .backward = true,
                                 .forward = (int32_t)forward,
                                 .layer = source->layer};
}

// The gradient of an activation made by `operation`, whose inputs and further outputs are set. It is added to what other users
// of `x` have contributed; where nobody needs it, it is only what the operation writes.
static enum ls_status add_gradient(struct ls_differentiation *d, struct ls_operation *operation,
                                   struct ls_tensor *x);

static enum ls_status contribute(struct ls_differentiation *d, const struct ls_operation *why,
                                 struct ls_tensor *gradient, struct ls_tensor *x)
{
    struct ls_tensor *before = d->gradients[x->id];
    if (!before) {
        d->gradients[x->id] = gradient;
        return LS_OK;
    }
    struct ls_operation sum = {.op = LS_OP_ADD,
                               .backward = true,
                               .forward = -1,
                               .layer = why->layer,
                               .input_count = 2,
                               .output_count = 1,
                               .inputs = {before, gradient}};
    d->gradients[x->id] = NULL;
    return add_gradient(d, &sum, x);
}

static enum ls_status add_gradient(struct ls_differentiation *d, struct ls_operation *operation,
                                   struct ls_tensor *x)
{
    enum ls_status status = ls_graph_append_tensor(d->graph, LS_ROLE_GRADIENT, x->dtype, &x->shape,
                                                   x->name, &operation->outputs[0]);
    if (status)
        return status;
    operation->outputs[0]->gradient_of = x;
    status = ls_graph_append_operation(d->graph, operation);
    if (status || !d->needed[x->id])
        return status;
    return contribute(d, operation, operation->outputs[0], x);
}

// The one gradient tensor of a parameter: who writes it first overwrites, further users add to it.
static enum ls_status parameter_gradient(struct ls_differentiation *d, struct ls_tensor *parameter,
                                         struct ls_tensor **out)
{
    struct ls_tensor **slot = &d->gradients[parameter->id];
    if (!*slot) {
        enum ls_status status =
            ls_graph_append_tensor(d->graph, LS_ROLE_PARAMETER_GRADIENT, parameter->dtype,
                                   &parameter->shape, parameter->name, slot);
        if (status)
            return status;
        (*slot)->gradient_of = parameter;
    }
    *out = *slot;
    return LS_OK;
}

// Convolution and dense: x, dy -> dw, [db] and then dy, w -> dx, so that the weights' gradient can
// travel while the rest is computed.
enum ls_status ls_gradient_of_weighted(struct ls_differentiation *d, uint32_t operation,
                                       struct ls_tensor *dy)
{
    const struct ls_operation source = d->graph->operations[operation];
    const bool conv = source.op == LS_OP_CONV2D;
    struct ls_tensor *x = source.inputs[0];

    struct ls_operation weights = backward_of(
        d, operation, conv ? LS_OP_CONV2D_BACKWARD_WEIGHTS : LS_OP_DENSE_BACKWARD_WEIGHTS);
    weights.input_count = 2;
    weights.inputs[0] = x;
    weights.inputs[1] = dy;
    weights.output_count = source.input_count - 1;
    for (uint32_t i = 0; i < weights.output_count; i++) {
        enum ls_status status = parameter_gradient(d, source.inputs[1 + i], &weights.outputs[i]);
        if (status)
            return status;
    }
    enum ls_status status = ls_graph_append_operation(d->graph, &weights);
    if (status || !d->needed[x->id])
        return status;

    struct ls_operation data =
        backward_of(d, operation, conv ? LS_OP_CONV2D_BACKWARD_DATA : LS_OP_DENSE_BACKWARD_DATA);
    data.input_count = 2;
    data.inputs[0] = dy;
    data.inputs[1] = source.inputs[1];
    return add_gradient(d, &data, x);
}

// dy, x, y, saved -> dx
enum ls_status ls_gradient_of_max_pool(struct ls_differentiation *d, uint32_t operation,
                                       struct ls_tensor *dy)
{
    const struct ls_operation source = d->graph->operations[operation];
    struct ls_operation backward = backward_of(d, operation, LS_OP_MAX_POOL2D_BACKWARD);

    backward.input_count = 4;
    backward.inputs[0] = dy;
    backward.inputs[1] = source.inputs[0];
    backward.inputs[2] = source.outputs[0];
    backward.inputs[3] = source.outputs[1];
    return add_gradient(d, &backward, source.inputs[0]);
}

// dy -> dx
enum ls_status ls_gradient_of_average_pool(struct ls_differentiation *d, uint32_t operation,
                                           struct ls_tensor *dy)
{
    struct ls_operation backward = backward_of(d, operation, LS_OP_AVERAGE_POOL2D_BACKWARD);

    backward.input_count = 1;
    backward.inputs[0] = dy;
    return add_gradient(d, &backward, d->graph->operations[operation].inputs[0]);
}

// Activation and softmax: dy, y -> dx
enum ls_status ls_gradient_through_output(struct ls_differentiation *d, uint32_t operation,
                                          struct ls_tensor *dy)
{
    const struct ls_operation source = d->graph->operations[operation];
    struct ls_operation backward = backward_of(
        d, operation,
        source.op == LS_OP_SOFTMAX ? LS_OP_SOFTMAX_BACKWARD : LS_OP_ACTIVATION_BACKWARD);

    backward.input_count = 2;
    backward.inputs[0] = dy;
    backward.inputs[1] = source.outputs[0];
    return add_gradient(d, &backward, source.inputs[0]);
}

// Dropout and reshape, which undo themselves: dy -> dx
enum ls_status ls_gradient_of_same_op(struct ls_differentiation *d, uint32_t operation,
                                      struct ls_tensor *dy)
{
    const struct ls_operation source = d->graph->operations[operation];
    struct ls_operation backward = backward_of(d, operation, source.op);

    backward.input_count = 1;
    backward.inputs[0] = dy;
    return add_gradient(d, &backward, source.inputs[0]);
}

// Both terms have the gradient of the sum.
enum ls_status ls_gradient_of_add(struct ls_differentiation *d, uint32_t operation,
                                  struct ls_tensor *dy)
{
    const struct ls_operation source = d->graph->operations[operation];

    for (uint32_t i = 0; i < 2; i++) {
        if (!d->needed[source.inputs[i]->id])
            continue;
        enum ls_status status = contribute(d, &source, dy, source.inputs[i]);
        if (status)
            return status;
    }
    return LS_OK;
}

// x, gamma, mean, variance, dy -> dx, dgamma, dbeta
enum ls_status ls_gradient_of_batch_normalization(struct ls_differentiation *d, uint32_t operation,
                                                  struct ls_tensor *dy)
{
    const struct ls_operation source = d->graph->operations[operation];
    struct ls_operation backward = backward_of(d, operation, LS_OP_BATCH_NORMALIZATION_BACKWARD);
    struct ls_tensor *const inputs[] = {source.inputs[0], source.inputs[1], source.outputs[1],
                                        source.outputs[2], dy};

    backward.input_count = sizeof(inputs) / sizeof(inputs[0]);
    memcpy(backward.inputs, inputs, sizeof(inputs));
    backward.output_count = 3;
    for (uint32_t i = 1; i < backward.output_count; i++) {
        enum ls_status status = parameter_gradient(d, source.inputs[i], &backward.outputs[i]);
        if (status)
            return status;
    }
    return add_gradient(d, &backward, source.inputs[0]);
}

// predictions, labels, saved -> dpredictions
enum ls_status ls_gradient_of_cross_entropy(struct ls_differentiation *d, uint32_t operation,
                                            struct ls_tensor *dy)
{
    const struct ls_operation source = d->graph->operations[operation];
    struct ls_operation backward = backward_of(d, operation, LS_OP_SPARSE_CROSS_ENTROPY_BACKWARD);

    (void)dy;
    backward.input_count = 3;
    backward.inputs[0] = source.inputs[0];
    backward.inputs[1] = source.inputs[1];
    backward.inputs[2] = source.outputs[1];
    return add_gradient(d, &backward, source.inputs[0]);
}

// predictions, targets -> dpredictions
enum ls_status ls_gradient_of_squared_error(struct ls_differentiation *d, uint32_t operation,
                                            struct ls_tensor *dy)
{
    const struct ls_operation source = d->graph->operations[operation];
    struct ls_operation backward = backward_of(d, operation, LS_OP_MEAN_SQUARED_ERROR_BACKWARD);

    (void)dy;
    backward.input_count = 2;
    backward.inputs[0] = source.inputs[0];
    backward.inputs[1] = source.inputs[1];
    return add_gradient(d, &backward, source.inputs[0]);
}

// A tensor needs a gradient when a parameter has part in it.
static void mark_needed(const struct ls_graph *graph, bool *needed)
{
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        needed[graph->parameters[i]->id] = true;
    for (uint32_t i = 0; i < graph->operation_count; i++) {
        const struct ls_operation *operation = &graph->operations[i];
        bool any = false;
        for (uint32_t k = 0; k < operation->input_count; k++)
            any |= needed[operation->inputs[k]->id];
        needed[operation->outputs[0]->id] = any;
    }
}

static enum ls_status differentiate_operation(struct ls_differentiation *d, uint32_t index)
{
    const struct ls_operation *operation = &d->graph->operations[index];
    const struct ls_tensor *y = operation->outputs[0];
    const bool loss = y == d->graph->sums;

    if (!d->needed[y->id] || (!loss && !d->gradients[y->id]))
        return LS_OK;
    return ls_op_entries[operation->op].gradient(d, index, loss ? NULL : d->gradients[y->id]);
}

static enum ls_status check_every_parameter(const struct ls_differentiation *d)
{
    for (uint32_t i = 0; i < d->graph->parameter_count; i++) {
        const struct ls_tensor *parameter = d->graph->parameters[i];
        if (d->gradients[parameter->id])
            continue;
        ls_error(d->graph->name, "the loss does not depend on variable '%s'; use it or remove it",
                 parameter->name);
        return LS_BAD_INPUT;
    }
    return LS_OK;
}

static enum ls_status check_differentiable(const struct ls_graph *graph)
{
    const char *reason = NULL;

    if (!graph->sums)
        reason = "cannot be trained without a loss";
    else if (graph->operations[graph->operation_count - 1].backward)
        reason = "has its backward operations already";
    else if (graph->parameter_count == 0)
        reason = "has no variables to train; add a layer that has";
    if (!reason)
        return LS_OK;
    ls_error(graph->name, "the model %s", reason);
    return LS_BAD_INPUT;
}

enum ls_status ls_graph_differentiate(struct ls_graph *graph)
{
    enum ls_status status = check_differentiable(graph);
    if (status)
        return status;

    // Only tensors that exist now get a gradient.
    struct ls_differentiation d = {
        .graph = graph,
        .gradients = calloc(graph->tensor_count, sizeof(struct ls_tensor *)),
        .needed = calloc(graph->tensor_count, sizeof(bool)),
    };
    if (!d.gradients || !d.needed) {
        status = LS_OUT_OF_MEMORY;
        goto out;
    }
    mark_needed(graph, d.needed);
    for (uint32_t i = graph->operation_count; i > 0 && !status; i--)
        status = differentiate_operation(&d, i - 1);
    if (!status)
        status = check_every_parameter(&d);

out:
    free(d.gradients);
    free(d.needed);
    return status;
}
