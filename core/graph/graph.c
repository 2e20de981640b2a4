// SPDX-License-Identifier: Apache-2.0
// Building a graph: its layers, tensors and forward operations.
#include "core/graph/graph.h"

#include "core/base/log.h"
#include "core/graph/append.h"

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
    graph->layer = LS_NO_LAYER;
    *out = graph;
    return LS_OK;
}

static void forget_output_names(struct ls_graph *graph)
{
    for (uint32_t i = 0; graph->output_names && i < graph->output_count; i++)
        free(graph->output_names[i]);
    free(graph->output_names);
    graph->output_names = NULL;
}

void ls_graph_destroy(struct ls_graph *graph)
{
    if (!graph)
        return;
    for (uint32_t i = 0; i < graph->tensor_count; i++) {
        free(graph->tensors[i]->name);
        free(graph->tensors[i]->initializer.values);
        free(graph->tensors[i]);
    }
    for (uint32_t i = 0; i < graph->layer_count; i++) {
        free(graph->layers[i].name);
        free(graph->layers[i].class_name);
        free(graph->layers[i].connected);
    }
    free(graph->tensors);
    free(graph->operations);
    free(graph->layers);
    free(graph->parameters);
    free(graph->spectral_norms);
    free(graph->inputs);
    forget_output_names(graph);
    free(graph->outputs);
    free(graph->seeds);
    free(graph->name);
    free(graph->source);
    free(graph);
}

static bool is_logged(const struct ls_graph *graph)
{
    return !graph->problems || ++*graph->problems <= LS_GRAPH_PROBLEMS;
}

// The layer of this name, else NULL.
static struct ls_graph_layer *find_layer(const struct ls_graph *graph, const char *name)
{
    for (uint32_t i = 0; i < graph->layer_count; i++)
        if (strcmp(graph->layers[i].name, name) == 0)
            return &graph->layers[i];
    return NULL;
}

enum ls_status ls_graph_begin_layer(struct ls_graph *graph, const char *name,
                                    const char *class_name)
{
    if (find_layer(graph, name)) {
        if (is_logged(graph))
            ls_error(graph->source ? graph->source : graph->name,
                     "two layers are called '%s'; give one another name", name);
        return LS_BAD_INPUT;
    }
    enum ls_status status = make_room(&graph->layers, graph->layer_count, sizeof(*graph->layers));
    if (status)
        return status;

    struct ls_graph_layer layer = {.name = strdup(name),
                                   .class_name = strdup(class_name),
                                   .first_parameter = graph->parameter_count};
    if (!layer.name || !layer.class_name) {
        free(layer.name);
        free(layer.class_name);
        return LS_OUT_OF_MEMORY;
    }
    graph->layer = graph->layer_count;
    graph->reusing = false;
    graph->layers[graph->layer_count++] = layer;
    return LS_OK;
}

enum ls_status ls_graph_connect_layer(struct ls_graph *graph, const char *from)
{
    assert(graph->layer != LS_NO_LAYER);
    struct ls_graph_layer *layer = &graph->layers[graph->layer];
    const size_t length = layer->connected_length, needed = length + strlen(from) + 3;
    if (needed > layer->connected_room) {
        char *longer = realloc(layer->connected, 2 * needed);
        if (!longer)
            return LS_OUT_OF_MEMORY;
        layer->connected = longer;
        layer->connected_room = 2 * needed;
    }
    layer->connected_length +=
        (size_t)sprintf(layer->connected + length, "%s%s", length ? ", " : "", from);
    return LS_OK;
}

enum ls_status ls_graph_reuse_layer(struct ls_graph *graph, const char *name)
{
    const struct ls_graph_layer *layer = find_layer(graph, name);
    if (!layer)
        return ls_graph_fail(graph, NULL, "there is no layer '%s' to use again", name);
    graph->layer = (uint32_t)(layer - graph->layers);
    graph->reusing = true;
    graph->reused = 0;
    return LS_OK;
}

void ls_graph_freeze_layer(struct ls_graph *graph)
{
    assert(graph->layer != LS_NO_LAYER && graph->layers[graph->layer].parameter_count == 0);
    graph->layers[graph->layer].frozen = true;
}

void ls_graph_end_layer(struct ls_graph *graph, const struct ls_tensor *output)
{
    assert(graph->layer != LS_NO_LAYER && graph->output_count > 0);
    if (!graph->reusing)
        graph->layers[graph->layer].output = output->shape;
    forget_output_names(graph);
    graph->outputs[0] = graph->tensors[output->id];
    graph->output_count = 1;
}

enum ls_status ls_graph_set_outputs(struct ls_graph *graph, struct ls_tensor *const *outputs,
                                    uint32_t count)
{
    struct ls_tensor **copy = calloc((size_t)count + 1, sizeof(struct ls_tensor *));
    if (!copy)
        return LS_OUT_OF_MEMORY;
    memcpy(copy, outputs, count * sizeof(struct ls_tensor *));
    forget_output_names(graph);
    free(graph->outputs);
    graph->outputs = copy;
    graph->output_count = count;
    return LS_OK;
}

enum ls_status ls_graph_name_outputs(struct ls_graph *graph, const char *const *names)
{
    forget_output_names(graph);
    graph->output_names = calloc((size_t)graph->output_count + 1, sizeof(*graph->output_names));
    for (uint32_t i = 0; graph->output_names && i < graph->output_count; i++) {
        char name[256]; // of a layer whose outputs are several of the model's: dense, dense_1
        uint32_t before = 0;
        for (uint32_t k = 0; k < i; k++)
            before += strcmp(names[k], names[i]) == 0;
        snprintf(name, sizeof(name), before ? "%s_%u" : "%s", names[i], before);
        graph->output_names[i] = strdup(name);
        if (!graph->output_names[i])
            forget_output_names(graph);
    }
    return graph->output_names ? LS_OK : LS_OUT_OF_MEMORY;
}

uint64_t ls_graph_output_elements(const struct ls_graph *graph)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < graph->output_count; i++)
        elements += (uint64_t)ls_shape_elements(&graph->outputs[i]->shape, 1);
    return elements;
}

const char *ls_graph_output_name(const struct ls_graph *graph, uint32_t output)
{
    return graph->output_names ? graph->output_names[output] : graph->outputs[output]->name;
}

enum ls_status ls_graph_fail(const struct ls_graph *graph, const struct ls_tensor *input,
                             const char *format, ...)
{
    char message[1200], shape[128];
    va_list list;
    if (!is_logged(graph))
        return LS_BAD_INPUT;
    va_start(list, format);
    vsnprintf(message, sizeof(message), format, list);
    va_end(list);

    const char *scope = graph->source ? graph->source : graph->name;
    const struct ls_graph_layer *layer =
        graph->layer != LS_NO_LAYER ? &graph->layers[graph->layer] : NULL;
    if (layer && input)
        ls_error(scope, "layer '%s' (%s): input shape %s: %s", layer->name, layer->class_name,
                 ls_shape_text(&input->shape, shape, sizeof(shape)), message);
    else if (layer)
        ls_error(scope, "layer '%s' (%s): %s", layer->name, layer->class_name, message);
    else
        ls_error(scope, "%s", message);
    return LS_BAD_INPUT;
}

// LS_BAD_INPUT, logged, when a dimension or the number of elements (batch counted as one) is below
// one or beyond the bounds. `variable`: the name of the one that has this shape, or NULL.
static enum ls_status check_shape(const struct ls_graph *graph, const struct ls_tensor *input,
                                  const char *variable, const struct ls_shape *shape)
{
    char text[128], who[160] = "";
    int64_t elements = 1;

    if (variable)
        snprintf(who, sizeof(who), "variable '%.120s': ", variable);
    if (shape->ndims < 1 || shape->ndims > LS_MAX_DIMS)
        return ls_graph_fail(graph, input, "%sa tensor has 1 to %d dimensions, not %u", who,
                             LS_MAX_DIMS, shape->ndims);
    for (uint32_t i = 0; i < shape->ndims; i++) {
        const int64_t dim = shape->dims[i];
        if (dim == LS_BATCH && i == 0)
            continue;
        if (dim < 1 || dim > LS_MAX_DIM)
            return ls_graph_fail(graph, input, "%severy dimension of %s must be between 1 and %lld",
                                 who, ls_shape_text(shape, text, sizeof(text)),
                                 (long long)LS_MAX_DIM);
        if (elements > LS_MAX_ELEMENTS / dim)
            return ls_graph_fail(graph, input, "%s%s has more than %lld elements", who,
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

enum ls_status ls_graph_typed_input(struct ls_graph *graph, uint32_t dtype,
                                    const struct ls_shape *example, struct ls_tensor **out)
{
    char name[32] = "input";
    if (dtype != LS_F32 && dtype != LS_I32)
        return ls_graph_fail(graph, NULL, "an input is float32 or int32");
    if (example->ndims + 1 > LS_MAX_DIMS)
        return ls_graph_fail(graph, NULL, "an example has at most %d dimensions, not %u",
                             LS_MAX_DIMS - 1, example->ndims);

    struct ls_shape shape = {.ndims = example->ndims + 1, .dims = {LS_BATCH}};
    memcpy(&shape.dims[1], example->dims, example->ndims * sizeof(example->dims[0]));
    for (uint32_t i = 1; i < shape.ndims; i++)
        if (shape.dims[i] == LS_BATCH)
            shape.dims[i] = 0; // only the first may be open; the check names this one
    enum ls_status status = check_shape(graph, NULL, NULL, &shape);
    if (status)
        return status;
    status = make_room(&graph->inputs, graph->input_count, sizeof(*graph->inputs));
    if (status)
        return status;
    struct ls_tensor *input;
    if (graph->input_count > 0)
        snprintf(name, sizeof(name), "input_%u", graph->input_count);
    status = ls_graph_append_tensor(graph, LS_ROLE_INPUT, dtype, &shape, name, &input);
    if (status)
        return status;
    graph->inputs[graph->input_count++] = input;
    *out = input;
    return graph->output_count > 0 ? LS_OK : ls_graph_set_outputs(graph, &input, 1);
}

enum ls_status ls_graph_input(struct ls_graph *graph, const struct ls_shape *example,
                              struct ls_tensor **out)
{
    return ls_graph_typed_input(graph, LS_F32, example, out);
}

// The next parameter of a layer that is used again.
static enum ls_status reuse_parameter(struct ls_graph *graph, const char *full_name,
                                      const struct ls_shape *shape, struct ls_tensor **out)
{
    const struct ls_graph_layer *layer = &graph->layers[graph->layer];
    char text[128];

    if (graph->reused == layer->parameter_count)
        return ls_graph_fail(graph, NULL, "used again, it has no variable '%s'", full_name);
    struct ls_tensor *parameter = graph->parameters[layer->first_parameter + graph->reused];
    if (strcmp(parameter->name, full_name) != 0)
        return ls_graph_fail(graph, NULL, "used again, its next variable is '%s', not '%s'",
                             parameter->name, full_name);
    if (!ls_shape_equal(&parameter->shape, shape))
        return ls_graph_fail(graph, NULL, "used again, variable '%s' cannot be %s", full_name,
                             ls_shape_text(shape, text, sizeof(text)));
    graph->reused++;
    *out = parameter;
    return LS_OK;
}

static enum ls_status add_parameter(struct ls_graph *graph, const char *name,
                                    const struct ls_shape *shape,
                                    const struct ls_initializer *initializer, enum ls_zone zone,
                                    bool constant, struct ls_tensor **out)
{
    assert(graph->layer != LS_NO_LAYER || constant); // losses have constants
    struct ls_graph_layer *layer =
        graph->layer != LS_NO_LAYER ? &graph->layers[graph->layer] : NULL;
    char full_name[512];
    snprintf(full_name, sizeof(full_name), "%s%s%s%s%s", layer ? layer->name : "", layer ? "/" : "",
             graph->part ? graph->part : "", graph->part ? "/" : "", name);

    if (layer && graph->reusing)
        return reuse_parameter(graph, full_name, shape, out);
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        if (strcmp(graph->parameters[i]->name, full_name) == 0)
            return ls_graph_fail(graph, NULL, "two variables are called '%s'", full_name);
    if (shape->ndims > 0 && shape->dims[0] == LS_BATCH)
        return ls_graph_fail(graph, NULL, "variable '%s' must not depend on the batch size", name);
    enum ls_status status = check_shape(graph, NULL, name, shape);
    if (status)
        return status;

    status = make_room(&graph->parameters, graph->parameter_count, sizeof(*graph->parameters));
    if (status)
        return status;
    struct ls_tensor *tensor;
    status = ls_graph_append_tensor(graph, LS_ROLE_PARAMETER, LS_F32, shape, full_name, &tensor);
    if (status)
        return status;
    const uint64_t elements = constant ? 0 : (uint64_t)ls_shape_elements(shape, 1);
    tensor->initializer = *initializer;
    tensor->zone = layer && layer->frozen ? LS_ZONE_FROZEN : zone;
    tensor->constant = constant;
    graph->parameters[graph->parameter_count++] = tensor;
    if (layer) {
        layer->parameter_count++;
        layer->parameters += elements;
        layer->untrained += tensor->zone == LS_ZONE_TRAINED ? 0 : elements;
    }
    *out = tensor;
    return LS_OK;
}

enum ls_status ls_graph_parameter(struct ls_graph *graph, const char *name,
                                  const struct ls_shape *shape,
                                  const struct ls_initializer *initializer, struct ls_tensor **out)
{
    return add_parameter(graph, name, shape, initializer, LS_ZONE_TRAINED, false, out);
}

enum ls_status ls_graph_statistic(struct ls_graph *graph, const char *name,
                                  const struct ls_shape *shape,
                                  const struct ls_initializer *initializer, struct ls_tensor **out)
{
    return add_parameter(graph, name, shape, initializer, LS_ZONE_FROZEN, false, out);
}

enum ls_status ls_graph_constant(struct ls_graph *graph, const char *name,
                                 const struct ls_shape *shape, double value, struct ls_tensor **out)
{
    const struct ls_initializer initializer = {.kind = LS_CONSTANT, .value = value};
    return add_parameter(graph, name, shape, &initializer, LS_ZONE_FROZEN, true, out);
}

void ls_graph_set_variable_shape(struct ls_tensor *parameter, const struct ls_shape *variable)
{
    assert(parameter->role == LS_ROLE_PARAMETER);
    assert(ls_shape_elements(variable, 1) == ls_shape_elements(&parameter->shape, 1));
    parameter->variable = *variable;
    parameter->scalar = variable->ndims == 0;
}

enum ls_status ls_graph_constant_values(struct ls_graph *graph, const char *name,
                                        const struct ls_shape *shape, const float *values,
                                        struct ls_tensor **out)
{
    const uint64_t count = (uint64_t)ls_shape_elements(shape, 1);
    struct ls_initializer initializer = {.kind = LS_VALUES,
                                         .values = malloc(count * sizeof(*values))};
    if (!initializer.values)
        return LS_OUT_OF_MEMORY;
    memcpy(initializer.values, values, count * sizeof(*values));
    const enum ls_status status =
        add_parameter(graph, name, shape, &initializer, LS_ZONE_FROZEN, true, out);
    if (status || (*out)->initializer.values != initializer.values)
        free(initializer.values); // the layer had it already
    return status;
}

static bool is_activation(const struct ls_tensor *tensor)
{
    return tensor->role == LS_ROLE_ACTIVATION || tensor->role == LS_ROLE_INPUT ||
           tensor->role == LS_ROLE_LABEL || // of losses and metrics that are composed
           tensor->role == LS_ROLE_WEIGHT; // times the mask of an output
}

uint32_t ls_floating_type(struct ls_tensor *const *inputs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (ls_is_floating(inputs[i]))
            return inputs[i]->dtype;
    return LS_F32;
}

// Whether number, kinds and types of the inputs are those of the table. An addend is left to
// fusion.
static enum ls_status check_inputs(const struct ls_graph *graph, const struct ls_operation_row *row,
                                   struct ls_tensor *const *inputs, uint32_t count)
{
    const uint32_t addend = ls_operation_input(row, LS_ARGUMENT_ADDEND);
    const struct ls_tensor *first = count > 0 ? inputs[0] : NULL;
    const uint32_t floating = ls_floating_type(inputs, count);
    uint32_t least, most;

    ls_operation_count(row, false, &least, &most);
    most = most > addend ? addend : most;
    if (count < least || count > most)
        return ls_graph_fail(graph, first, "operation %s takes %u to %u tensors, not %u", row->name,
                             least, most, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct ls_argument argument = ls_operation_argument(row, i, false);
        const bool parameter = argument.kind == LS_ARGUMENT_PARAMETER;
        const bool either =
            argument.kind == LS_ARGUMENT_EITHER && inputs[i]->role == LS_ROLE_PARAMETER;
        const bool total = argument.kind == LS_ARGUMENT_TOTAL && inputs[i]->role == LS_ROLE_TOTAL;
        if (either || total)
            ; // a parameter where an activation may stand, too
        else if (parameter ? inputs[i]->role != LS_ROLE_PARAMETER : !is_activation(inputs[i]))
            return ls_graph_fail(graph, first,
                                 "argument %u of operation %s must be %s, '%s' is not", i + 1,
                                 row->name, parameter ? "a variable" : "the output of an operation",
                                 inputs[i]->name);
        if (inputs[i]->dtype == LS_I32 &&
            (argument.type == LS_TYPE_FLOATING || argument.type == LS_TYPE_F32))
            return ls_graph_fail(graph, inputs[i],
                                 "expected floating-point numbers, but '%s' is int32, which only "
                                 "Embedding, CategoryEncoding and IntegerLookup take; for others "
                                 "declare it float32 (dtype of Input)",
                                 inputs[i]->name);
        if (argument.type == LS_TYPE_F32 && inputs[i]->dtype != LS_F32)
            return ls_graph_fail(graph, first, "argument %u of operation %s, '%s', must be float32",
                                 i + 1, row->name, inputs[i]->name);
        const bool master = inputs[i]->role == LS_ROLE_PARAMETER; // of which halves are made
        if (argument.type == LS_TYPE_FLOATING && !master && inputs[i]->dtype != floating)
            return ls_graph_fail(
                graph, first,
                "argument %u of operation %s, '%s', is not of the same type as the "
                "first; convert one of them",
                i + 1, row->name, inputs[i]->name);
    }
    return LS_OK;
}

static enum ls_tensor_role role_of(const struct ls_argument *argument)
{
    return argument->kind == LS_ARGUMENT_SAVED   ? LS_ROLE_SAVED
           : argument->kind == LS_ARGUMENT_TOTAL ? LS_ROLE_TOTAL
                                                 : LS_ROLE_ACTIVATION;
}

static uint32_t dtype_of(const struct ls_argument *argument, uint32_t floating, uint32_t converted)
{
    switch ((enum ls_argument_type)argument->type) {
    case LS_TYPE_U8: return LS_U8;
    case LS_TYPE_F64: return LS_F64;
    case LS_TYPE_OWN_FLOATING: return converted;
    case LS_TYPE_FLOATING: return floating;
    default: return LS_F32;
    }
}

static enum ls_status append_outputs(struct ls_graph *graph, const struct ls_operation_row *row,
                                     const struct ls_shape *shapes, uint32_t converted,
                                     struct ls_operation *operation)
{
    const struct ls_shape unknown = {0};
    const char *name = graph->layer != LS_NO_LAYER ? graph->layers[graph->layer].name : graph->name;
    const uint32_t floating = ls_floating_type(operation->inputs, operation->input_count);
    uint32_t least;

    ls_operation_count(row, true, &least, &operation->output_count);
    for (uint32_t i = 0; i < operation->output_count; i++) {
        const struct ls_argument argument = ls_operation_argument(row, i, true);
        enum ls_status status = ls_graph_append_tensor(
            graph, role_of(&argument), dtype_of(&argument, floating, converted),
            argument.opaque ? &unknown : &shapes[i], name, &operation->outputs[i]);
        if (status)
            return status;
    }
    return LS_OK;
}

enum ls_status ls_graph_add_uncast(struct ls_graph *graph, uint32_t op,
                                   const struct ls_op_attributes *attributes,
                                   struct ls_tensor *const *inputs, uint32_t input_count,
                                   const struct ls_shape *output_shape, uint32_t converted,
                                   struct ls_tensor **out)
{
    const struct ls_operation_row *row = ls_operation_row(op);
    struct ls_operation operation = {
        .op = op, .input_count = input_count, .forward = -1, .layer = graph->layer};
    struct ls_shape_call call = {.attributes = &operation.attributes, .input_count = input_count};

    enum ls_status status = check_inputs(graph, row, inputs, input_count);
    if (status)
        return status;
    if (attributes)
        operation.attributes = *attributes;
    for (uint32_t i = 0; i < input_count; i++) {
        operation.inputs[i] = inputs[i];
        call.inputs[i] = inputs[i]->shape;
    }
    if (output_shape) {
        status = check_shape(graph, inputs[0], NULL, output_shape);
        if (status)
            return status;
        call.asked = *output_shape;
    }
    if (!ls_operation_shapes(row, &call))
        return ls_graph_fail(graph, inputs[0], "%s", call.why);
    if (ls_operation_has(op, LS_TRAIT_TRAINING_ONLY) &&
        !ls_shape_equal(&call.outputs[0], &call.inputs[input_count > 2 ? 2 : 0]))
        return ls_graph_fail(graph, inputs[0],
                             "%s: what stands for the result where nothing is trained must have "
                             "its shape",
                             row->name);
    status = check_shape(graph, inputs[0], NULL, &call.outputs[0]);
    if (!status)
        status = append_outputs(graph, row, call.outputs, converted, &operation);
    if (!status)
        status = ls_graph_append_operation(graph, &operation);
    if (status)
        return status;
    *out = operation.outputs[0];
    return LS_OK;
}

enum ls_status ls_graph_convert(struct ls_graph *graph, struct ls_tensor *x, uint32_t dtype,
                                struct ls_tensor **out)
{
    if (dtype != LS_F32 && dtype != LS_BF16 && dtype != LS_F16)
        return ls_graph_fail(graph, x, "cannot be converted to type %u", dtype);
    return ls_graph_add_uncast(graph, LS_OP_CONVERT, NULL, &x, 1, NULL, dtype, out);
}

enum ls_status ls_graph_add_seed(struct ls_graph *graph, struct ls_tensor *of,
                                 struct ls_tensor **out)
{
    enum ls_status status = make_room(&graph->seeds, graph->seed_count, sizeof(*graph->seeds));
    struct ls_tensor *seed;

    if (!status)
        status =
            ls_graph_append_tensor(graph, LS_ROLE_SEED, of->dtype, &of->shape, of->name, &seed);
    if (status)
        return status;
    seed->gradient_of = of;
    graph->seeds[graph->seed_count++] = seed;
    *out = seed;
    return LS_OK;
}
