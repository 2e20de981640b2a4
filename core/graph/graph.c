// SPDX-License-Identifier: Apache-2.0
// Building a graph: its layers, tensors and forward operations.
#include "core/graph/graph.h"

#include "core/base/log.h"
#include "core/graph/operations.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Makes room for one more element. Arrays double when their count is a power of two, so that no
// capacity needs to be kept.
static enum ls_status make_room(void *array, uint32_t count, size_t size)
{
    if ((count & (count - 1)) != 0)
        return LS_OK;

    void *old = *(void **)array;
    void *larger = realloc(old, (count > 0 ? (size_t)count * 2 : 1) * size);
    if (!larger)
        return LS_OUT_OF_MEMORY;
    *(void **)array = larger;
    return LS_OK;
}

enum ls_status ls_graph_create(const char *name, struct ls_graph **out)
{
    struct ls_graph *graph = calloc(1, sizeof(*graph));
    if (!graph)
        return LS_OUT_OF_MEMORY;
    graph->name = strdup(name);
    if (!graph->name) {
        free(graph);
        return LS_OUT_OF_MEMORY;
    }
    *out = graph;
    return LS_OK;
}

void ls_graph_destroy(struct ls_graph *graph)
{
    if (!graph)
        return;
    for (uint32_t i = 0; i < graph->tensor_count; i++) {
        free(graph->tensors[i]->name);
        free(graph->tensors[i]);
    }
    for (uint32_t i = 0; i < graph->layer_count; i++) {
        free(graph->layers[i].name);
        free(graph->layers[i].class_name);
    }
    free(graph->tensors);
    free(graph->operations);
    free(graph->layers);
    free(graph->parameters);
    free(graph->name);
    free(graph->source);
    free(graph);
}

static bool is_logged(const struct ls_graph *graph)
{
    return !graph->problems || ++*graph->problems <= LS_GRAPH_PROBLEMS;
}

enum ls_status ls_graph_begin_layer(struct ls_graph *graph, const char *name,
                                    const char *class_name)
{
    for (uint32_t i = 0; i < graph->layer_count; i++) {
        if (strcmp(graph->layers[i].name, name) == 0) {
            if (is_logged(graph))
                ls_error(graph->source ? graph->source : graph->name,
                         "two layers are called '%s'; give one another name", name);
            return LS_BAD_INPUT;
        }
    }
    enum ls_status status = make_room(&graph->layers, graph->layer_count, sizeof(*graph->layers));
    if (status)
        return status;

    struct ls_graph_layer layer = {.name = strdup(name), .class_name = strdup(class_name)};
    if (!layer.name || !layer.class_name) {
        free(layer.name);
        free(layer.class_name);
        return LS_OUT_OF_MEMORY;
    }
    graph->layers[graph->layer_count++] = layer;
    return LS_OK;
}

void ls_graph_end_layer(struct ls_graph *graph, const struct ls_tensor *output)
{
    assert(graph->layer_count > 0);
    graph->layers[graph->layer_count - 1].output = output->shape;
    graph->output = graph->tensors[output->id];
}

enum ls_status ls_graph_fail(const struct ls_graph *graph, const struct ls_tensor *input,
                             const char *format, ...)
{
    char message[512], shape[128];
    va_list list;
    if (!is_logged(graph))
        return LS_BAD_INPUT;
    va_start(list, format);
    vsnprintf(message, sizeof(message), format, list);
    va_end(list);

    const char *scope = graph->source ? graph->source : graph->name;
    const struct ls_graph_layer *layer =
        graph->layer_count > 0 ? &graph->layers[graph->layer_count - 1] : NULL;
    if (layer && input)
        ls_error(scope, "layer '%s' (%s): input shape %s: %s", layer->name, layer->class_name,
                 ls_shape_text(&input->shape, shape, sizeof(shape)), message);
    else if (layer)
        ls_error(scope, "layer '%s' (%s): %s", layer->name, layer->class_name, message);
    else
        ls_error(scope, "%s", message);
    return LS_BAD_INPUT;
}

enum ls_status ls_graph_check_shape(const struct ls_graph *graph, const struct ls_tensor *input,
                                    const struct ls_shape *shape)
{
    char text[128];
    int64_t elements = 1;

    if (shape->ndims < 1 || shape->ndims > LS_MAX_DIMS)
        return ls_graph_fail(graph, input, "a tensor has 1 to %d dimensions, not %u", LS_MAX_DIMS,
                             shape->ndims);
    for (uint32_t i = 0; i < shape->ndims; i++) {
        const int64_t dim = shape->dims[i];
        if (dim == LS_BATCH && i == 0)
            continue;
        if (dim < 1 || dim > LS_MAX_DIM)
            return ls_graph_fail(graph, input, "every dimension of %s must be between 1 and %lld",
                                 ls_shape_text(shape, text, sizeof(text)), (long long)LS_MAX_DIM);
        if (elements > LS_MAX_ELEMENTS / dim)
            return ls_graph_fail(graph, input, "%s has more than %lld elements",
                                 ls_shape_text(shape, text, sizeof(text)),
                                 (long long)LS_MAX_ELEMENTS);
        elements *= dim;
    }
    return LS_OK;
}

enum ls_status ls_graph_append_tensor(struct ls_graph *graph, enum ls_tensor_role role,
                                      uint32_t dtype, const struct ls_shape *shape,
                                      const char *name, struct ls_tensor **out)
{
    enum ls_status status =
        make_room(&graph->tensors, graph->tensor_count, sizeof(*graph->tensors));
    if (status)
        return status;

    struct ls_tensor *tensor = calloc(1, sizeof(*tensor));
    if (!tensor)
        return LS_OUT_OF_MEMORY;
    tensor->name = strdup(name);
    if (!tensor->name) {
        free(tensor);
        return LS_OUT_OF_MEMORY;
    }
    tensor->id = graph->tensor_count;
    tensor->role = role;
    tensor->dtype = dtype;
    if (shape)
        tensor->shape = *shape;
    tensor->producer = -1;
    graph->tensors[graph->tensor_count++] = tensor;
    *out = tensor;
    return LS_OK;
}

enum ls_status ls_graph_append_operation(struct ls_graph *graph,
                                         const struct ls_operation *operation)
{
    enum ls_status status =
        make_room(&graph->operations, graph->operation_count, sizeof(*graph->operations));
    if (status)
        return status;

    for (uint32_t i = 0; i < operation->output_count; i++)
        operation->outputs[i]->producer = (int32_t)graph->operation_count;
    graph->operations[graph->operation_count++] = *operation;
    return LS_OK;
}

enum ls_status ls_graph_input(struct ls_graph *graph, const struct ls_shape *example,
                              struct ls_tensor **out)
{
    if (graph->input)
        return ls_graph_fail(graph, graph->input, "the model has an input already; remove one");
    if (example->ndims + 1 > LS_MAX_DIMS)
        return ls_graph_fail(graph, NULL, "an example has at most %d dimensions, not %u",
                             LS_MAX_DIMS - 1, example->ndims);

    struct ls_shape shape = {.ndims = example->ndims + 1, .dims = {LS_BATCH}};
    memcpy(&shape.dims[1], example->dims, example->ndims * sizeof(example->dims[0]));
    for (uint32_t i = 1; i < shape.ndims; i++)
        if (shape.dims[i] == LS_BATCH)
            shape.dims[i] = 0; // only the first may be open; the check names this one
    enum ls_status status = ls_graph_check_shape(graph, NULL, &shape);
    if (status)
        return status;
    status = ls_graph_append_tensor(graph, LS_ROLE_INPUT, LS_F32, &shape, "input", &graph->input);
    if (status)
        return status;
    graph->output = graph->input;
    *out = graph->input;
    return LS_OK;
}

enum ls_status ls_graph_parameter(struct ls_graph *graph, const char *name,
                                  const struct ls_shape *shape,
                                  const struct ls_initializer *initializer, struct ls_tensor **out)
{
    assert(graph->layer_count > 0);
    struct ls_graph_layer *layer = &graph->layers[graph->layer_count - 1];
    char full_name[512];
    snprintf(full_name, sizeof(full_name), "%s/%s", layer->name, name);

    for (uint32_t i = 0; i < graph->parameter_count; i++)
        if (strcmp(graph->parameters[i]->name, full_name) == 0)
            return ls_graph_fail(graph, NULL, "two variables are called '%s'", full_name);
    if (shape->ndims > 0 && shape->dims[0] == LS_BATCH)
        return ls_graph_fail(graph, NULL, "variable '%s' must not depend on the batch size", name);
    enum ls_status status = ls_graph_check_shape(graph, NULL, shape);
    if (status)
        return status;

    status = make_room(&graph->parameters, graph->parameter_count, sizeof(*graph->parameters));
    if (status)
        return status;
    struct ls_tensor *tensor;
    status = ls_graph_append_tensor(graph, LS_ROLE_PARAMETER, LS_F32, shape, full_name, &tensor);
    if (status)
        return status;
    tensor->initializer = *initializer;
    graph->parameters[graph->parameter_count++] = tensor;
    layer->parameters += (uint64_t)ls_shape_elements(shape, 1);
    *out = tensor;
    return LS_OK;
}

static bool is_activation(const struct ls_tensor *tensor)
{
    return tensor->role == LS_ROLE_ACTIVATION || tensor->role == LS_ROLE_INPUT;
}

// Whether number and kinds of the inputs are those of the table.
static enum ls_status check_inputs(const struct ls_graph *graph, const struct ls_op_entry *entry,
                                   struct ls_tensor *const *inputs, uint32_t count)
{
    const uint32_t least = entry->activations + entry->parameters;
    const struct ls_tensor *first = count > 0 ? inputs[0] : NULL;

    if (count < least || count > least + entry->more_parameters)
        return ls_graph_fail(graph, first, "operation %s takes %u to %u tensors, not %u",
                             entry->name, least, least + entry->more_parameters, count);
    for (uint32_t i = 0; i < count; i++) {
        const bool fits = i < entry->activations ? is_activation(inputs[i])
                                                 : inputs[i]->role == LS_ROLE_PARAMETER;
        if (!fits)
            return ls_graph_fail(
                graph, first, "argument %u of operation %s must be %s, '%s' is not", i + 1,
                entry->name, i < entry->activations ? "the output of an operation" : "a variable",
                inputs[i]->name);
    }
    return LS_OK;
}

static enum ls_status append_outputs(struct ls_graph *graph, const struct ls_inferred *inferred,
                                     struct ls_operation *operation)
{
    const char *name =
        graph->layer_count > 0 ? graph->layers[graph->layer_count - 1].name : graph->name;

    for (uint32_t i = 0; i < inferred->count; i++) {
        enum ls_status status =
            ls_graph_append_tensor(graph, inferred->roles[i], inferred->dtypes[i],
                                   &inferred->shapes[i], name, &operation->outputs[i]);
        if (status)
            return status;
    }
    operation->output_count = inferred->count;
    return LS_OK;
}

enum ls_status ls_graph_add(struct ls_graph *graph, uint32_t op,
                            const struct ls_op_attributes *attributes,
                            struct ls_tensor *const *inputs, uint32_t input_count,
                            const struct ls_shape *output_shape, struct ls_tensor **out)
{
    const struct ls_op_entry *entry = ls_op_entry(op);
    if (!entry || !entry->infer)
        return ls_graph_fail(graph, input_count > 0 ? inputs[0] : NULL,
                             "operation %u is not one that a layer adds", op);
    enum ls_status status = check_inputs(graph, entry, inputs, input_count);
    if (status)
        return status;

    struct ls_operation operation = {
        .op = op,
        .input_count = input_count,
        .forward = -1,
        .layer = graph->layer_count > 0 ? graph->layer_count - 1 : LS_NO_LAYER,
    };
    if (attributes)
        operation.attributes = *attributes;
    memcpy(operation.inputs, inputs, input_count * sizeof(*inputs));

    struct ls_inferred inferred = {.count = 1, .roles = {LS_ROLE_ACTIVATION}, .dtypes = {LS_F32}};
    status =
        entry->infer(graph, &operation.attributes, inputs, input_count, output_shape, &inferred);
    if (status)
        return status;
    status = ls_graph_check_shape(graph, inputs[0], &inferred.shapes[0]);
    if (status)
        return status;
    status = append_outputs(graph, &inferred, &operation);
    if (status)
        return status;
    status = ls_graph_append_operation(graph, &operation);
    if (status)
        return status;
    *out = operation.outputs[0];
    return LS_OK;
}
