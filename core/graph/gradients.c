// SPDX-License-Identifier: Apache-2.0
// Differentiation: walks the operations from the loss back and appends, for each, the operations
// that make the gradients of its inputs, as the table of operations says. Fusion and reshapes are
// of no concern here; a program rewrites them later.
#include "core/graph/append.h"

#include "core/base/log.h"

#include <stdlib.h>
#include <string.h>

// Gradient tensors found so far, by tensor id of what they are the gradient of; and which tensors
// need one.
struct differentiation {
    struct ls_graph *graph;
    struct ls_tensor **gradients;
    bool *needed;
};

// A backward operation of `forward`, with its attributes and one output, which is not there yet.
static struct ls_operation backward_of(const struct differentiation *d, uint32_t forward,
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

static enum ls_status gradient_tensor(struct differentiation *d, struct ls_tensor *x,
                                      struct ls_tensor **out)
{
    const enum ls_tensor_role role =
        x->role == LS_ROLE_TOTAL ? LS_ROLE_TOTAL : LS_ROLE_GRADIENT; // of a total: added up, too
    enum ls_status status =
        ls_graph_append_tensor(d->graph, role, x->dtype, &x->shape, x->name, out);
    if (!status)
        (*out)->gradient_of = x;
    return status;
}

// Adds to what other users of `x` have contributed to its gradient.
static enum ls_status contribute(struct differentiation *d, uint32_t layer,
                                 struct ls_tensor *gradient, struct ls_tensor *x)
{
    struct ls_tensor **sum = &d->gradients[x->id];
    struct ls_operation add = {.op = LS_OP_ADD,
                               .backward = true,
                               .forward = -1,
                               .layer = layer,
                               .input_count = 2,
                               .output_count = 1,
                               .inputs = {*sum, gradient}};
    if (!d->needed[x->id])
        return LS_OK;
    if (!*sum) {
        *sum = gradient;
        return LS_OK;
    }
    enum ls_status status = gradient_tensor(d, x, &add.outputs[0]);
    if (!status)
        status = ls_graph_append_operation(d->graph, &add);
    if (!status)
        *sum = add.outputs[0];
    return status;
}

// The one gradient tensor of a parameter: who writes it first overwrites, further users add to it.
static enum ls_status parameter_gradient(struct differentiation *d, struct ls_tensor *parameter,
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

// Inputs of the backward operation, as its row says.
static void fill_inputs(const struct differentiation *d, const struct ls_operation_row *row,
                        const struct ls_operation *source, struct ls_operation *backward)
{
    for (uint32_t i = 0; i < LS_MAX_ARGUMENTS; i++) {
        const struct ls_argument argument = ls_operation_argument(row, i, false);
        if (argument.source == LS_SOURCE_SELF)
            break;
        if (argument.source == LS_SOURCE_INPUT && argument.source_index >= source->input_count)
            break; // optional, and not there
        const bool input =
            argument.source == LS_SOURCE_INPUT || argument.source == LS_SOURCE_INPUT_GRADIENT;
        struct ls_tensor *tensor =
            input ? source->inputs[argument.source_index] : source->outputs[argument.source_index];
        if (argument.source == LS_SOURCE_OUTPUT_GRADIENT ||
            argument.source == LS_SOURCE_INPUT_GRADIENT)
            tensor = d->gradients[tensor->id];
        backward->inputs[backward->input_count++] = tensor;
    }
}

static bool is_trained(const struct ls_tensor *tensor)
{
    return tensor->role == LS_ROLE_PARAMETER && tensor->zone == LS_ZONE_TRAINED;
}

// Tensors for the outputs: those of parameters first. What an operation writes for a parameter that
// is not trained, nobody reads.
static enum ls_status fill_outputs(struct differentiation *d, struct ls_tensor *const *of,
                                   struct ls_operation *backward)
{
    enum ls_status status = LS_OK;

    for (uint32_t i = 0; i < backward->output_count && !status; i++)
        if (is_trained(of[i]))
            status = parameter_gradient(d, of[i], &backward->outputs[i]);
    for (uint32_t i = 0; i < backward->output_count && !status; i++)
        if (!is_trained(of[i]))
            status = gradient_tensor(d, of[i], &backward->outputs[i]);
    return status;
}

// Appends one backward operation, unless nobody needs what it makes. Its outputs are the gradients
// of `of`.
static enum ls_status append_backward(struct differentiation *d, struct ls_operation *backward,
                                      struct ls_tensor *const *of)
{
    bool any = false;
    for (uint32_t i = 0; i < backward->output_count; i++)
        any |= d->needed[of[i]->id];
    if (!any)
        return LS_OK;
    enum ls_status status = fill_outputs(d, of, backward);
    if (!status)
        status = ls_graph_append_operation(d->graph, backward);
    for (uint32_t i = 0; i < backward->output_count && !status; i++)
        if (of[i]->role != LS_ROLE_PARAMETER)
            status = contribute(d, backward->layer, backward->outputs[i], of[i]);
    return status;
}

static enum ls_status gradient_by_operation(struct differentiation *d, uint32_t index, uint32_t op)
{
    const struct ls_operation source = d->graph->operations[index];
    const struct ls_operation_row *row = ls_operation_row(op);
    struct ls_operation backward = backward_of(d, index, op);
    struct ls_tensor *of[LS_MAX_ARGUMENTS];

    fill_inputs(d, row, &source, &backward);
    for (uint32_t i = 0; i < LS_MAX_ARGUMENTS; i++) {
        const struct ls_argument argument = ls_operation_argument(row, i, true);
        if (argument.source == LS_SOURCE_SELF || argument.source_index >= source.input_count)
            break; // an optional input that is not there has no gradient
        of[i] = source.inputs[argument.source_index];
        backward.output_count = i + 1;
    }
    return append_backward(d, &backward, of);
}

static enum ls_status gradient_by_same_operation(struct differentiation *d, uint32_t index)
{
    const struct ls_operation source = d->graph->operations[index];
    struct ls_operation backward = backward_of(d, index, source.op);

    backward.input_count = 1;
    backward.inputs[0] = d->gradients[source.outputs[0]->id];
    return append_backward(d, &backward, source.inputs);
}

static enum ls_status pass_gradient_on(struct differentiation *d, uint32_t index)
{
    const struct ls_operation source = d->graph->operations[index];
    enum ls_status status = LS_OK;

    for (uint32_t i = 0; i < source.input_count && !status; i++)
        status = contribute(d, source.layer, d->gradients[source.outputs[0]->id], source.inputs[i]);
    return status;
}

static enum ls_status apply_rule(struct differentiation *d, uint32_t index)
{
    const struct ls_operation_row *row = ls_operation_row(d->graph->operations[index].op);
    enum ls_status status = LS_OK;

    for (uint32_t i = 0; i < LS_MAX_BACKWARD && row->backward[i] && !status; i++)
        status = gradient_by_operation(d, index, row->backward[i]);
    if (row->backward[0])
        return status;
    switch (row->gradient) {
    case LS_GRADIENT_SAME_OPERATION: return gradient_by_same_operation(d, index);
    case LS_GRADIENT_PASSED_ON: return pass_gradient_on(d, index);
    case LS_GRADIENT_OF_READER:
    case LS_GRADIENT_ZERO: break;
    case LS_GRADIENT_NONE:
        return ls_graph_fail(d->graph, NULL, "operation %s cannot be trained through", row->name);
    }
    return status;
}

// Whether the gradient rule reads the gradient of this output.
static bool reads_gradient(const struct ls_operation_row *row, uint32_t output)
{
    if (!row->backward[0])
        return output == 0;
    for (uint32_t i = 0; i < LS_MAX_BACKWARD && row->backward[i]; i++)
        for (uint32_t k = 0; k < LS_MAX_ARGUMENTS; k++) {
            const struct ls_argument argument =
                ls_operation_argument(ls_operation_row(row->backward[i]), k, false);
            if (argument.source == LS_SOURCE_OUTPUT_GRADIENT && argument.source_index == output)
                return true;
        }
    return false;
}

// A tensor needs a gradient when a trained parameter has part in it.
static void mark_needed(const struct ls_graph *graph, bool *needed)
{
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        needed[graph->parameters[i]->id] = is_trained(graph->parameters[i]);
    for (uint32_t i = 0; i < graph->operation_count; i++) {
        const struct ls_operation *operation = &graph->operations[i];
        bool any = false;
        const bool zero = ls_operation_row(operation->op)->gradient == LS_GRADIENT_ZERO;
        for (uint32_t k = 0; k < operation->input_count && !zero; k++)
            any |= needed[operation->inputs[k]->id];
        for (uint32_t k = 0; k < operation->output_count; k++)
            needed[operation->outputs[k]->id] = any;
    }
}

// A gradient that arrives at an output must go on, and one that the rule reads must be there.
static enum ls_status differentiate_operation(struct differentiation *d, uint32_t index)
{
    const struct ls_operation *operation = &d->graph->operations[index];
    const struct ls_operation_row *row = ls_operation_row(operation->op);
    const bool loss = (row->traits & LS_TRAIT_LOSS) != 0;
    uint32_t arrived = 0, missing = 0;

    if (!d->needed[operation->outputs[0]->id] || operation->outputs[0]->role == LS_ROLE_COUNTS)
        return LS_OK;
    for (uint32_t i = 0; i < operation->output_count && !loss; i++) {
        const bool read = reads_gradient(row, i);
        const struct ls_tensor *gradient = d->gradients[operation->outputs[i]->id];
        arrived += gradient != NULL;
        missing += read && !gradient;
        if (gradient && !read)
            return ls_graph_fail(d->graph, NULL,
                                 "operation %s cannot be trained through its output '%s'",
                                 row->name, ls_operation_argument(row, i, true).name);
    }
    if (!loss && arrived == 0)
        return LS_OK;
    if (missing > 0)
        return ls_graph_fail(d->graph, NULL, "the loss must depend on every output of operation %s",
                             row->name);
    return apply_rule(d, index);
}

static enum ls_status check_every_parameter(const struct differentiation *d)
{
    for (uint32_t i = 0; i < d->graph->parameter_count; i++) {
        const struct ls_tensor *parameter = d->graph->parameters[i];
        if (d->gradients[parameter->id] || !is_trained(parameter))
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
    uint32_t trained = 0;

    for (uint32_t i = 0; i < graph->parameter_count; i++)
        trained += is_trained(graph->parameters[i]);
    if (!graph->sums && graph->seed_count == 0)
        reason = "cannot be trained without a loss";
    else if (graph->operations[graph->operation_count - 1].backward)
        reason = "has its backward operations already";
    else if (graph->parameter_count == 0)
        reason = "has no variables to train; add a layer that has";
    else if (trained == 0)
        reason = "has only variables that are frozen; set trainable to true in a layer";
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
    struct differentiation d = {
        .graph = graph,
        .gradients = calloc(graph->tensor_count, sizeof(struct ls_tensor *)),
        .needed = calloc(graph->tensor_count, sizeof(bool)),
    };
    if (!d.gradients || !d.needed) {
        status = LS_OUT_OF_MEMORY;
        goto out;
    }
    mark_needed(graph, d.needed);
    for (uint32_t i = 0; i < graph->seed_count && !status; i++) {
        struct ls_tensor *of = graph->tensors[graph->seeds[i]->gradient_of->id];
        status = contribute(&d, LS_NO_LAYER, graph->seeds[i], of);
    }
    for (uint32_t i = graph->operation_count; i > 0 && !status; i--)
        status = differentiate_operation(&d, i - 1);
    if (!status)
        status = check_every_parameter(&d);

out:
    free(d.gradients);
    free(d.needed);
    return status;
}
