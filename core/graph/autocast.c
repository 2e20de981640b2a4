// SPDX-License-Identifier: Apache-2.0
// Mixed precision: which floating type a layer computes in, and the casts around its operations.
// Parameters stay float32; an operation on halves reads a half of them, which the program keeps
// beside them (shadows in convert.c).
#include "core/graph/append.h"

#include <string.h>

static const char *precision_name(enum ls_precision precision)
{
    switch (precision) {
    case LS_PRECISION_MIXED_BFLOAT16: return "mixed_bfloat16";
    case LS_PRECISION_MIXED_FLOAT16: return "mixed_float16";
    case LS_PRECISION_FLOAT32: return "float32";
    case LS_PRECISION_OF_FILE: break;
    }
    return "";
}

enum ls_precision ls_precision_find(const char *name)
{
    for (enum ls_precision i = LS_PRECISION_FLOAT32; i <= LS_PRECISION_MIXED_FLOAT16; i++)
        if (strcmp(name, precision_name(i)) == 0)
            return i;
    return LS_PRECISION_OF_FILE;
}

uint32_t ls_precision_dtype(enum ls_precision precision)
{
    return precision == LS_PRECISION_MIXED_BFLOAT16  ? LS_BF16
           : precision == LS_PRECISION_MIXED_FLOAT16 ? LS_F16
                                                     : LS_F32;
}

bool ls_graph_computes_in(const struct ls_graph *graph, uint32_t dtype)
{
    for (uint32_t i = 0; i < graph->tensor_count; i++)
        if (graph->tensors[i]->dtype == dtype)
            return true;
    return false;
}

const char *ls_graph_precision(const struct ls_graph *graph)
{
    const bool bfloat16 = ls_graph_computes_in(graph, LS_BF16);
    const bool float16 = ls_graph_computes_in(graph, LS_F16);
    return bfloat16 && float16 ? "mixed_bfloat16 and mixed_float16"
           : bfloat16          ? precision_name(LS_PRECISION_MIXED_BFLOAT16)
           : float16           ? precision_name(LS_PRECISION_MIXED_FLOAT16)
                               : precision_name(LS_PRECISION_FLOAT32);
}

// That of the layer; of an operation without a policy that of its inputs, where they differ
// float32.
static uint32_t computed_type(const struct ls_graph *graph, struct ls_tensor *const *inputs,
                              uint32_t count)
{
    if (graph->compute != LS_COMPUTE_AS_INPUTS)
        return graph->compute;
    const uint32_t type = ls_floating_type(inputs, count);
    for (uint32_t i = 0; i < count; i++)
        if (ls_is_floating(inputs[i]) && inputs[i]->dtype != type)
            return LS_F32;
    return type;
}

// `x` as another floating type; a cast that is there is used again.
static enum ls_status cast_to(struct ls_graph *graph, struct ls_tensor *x, uint32_t dtype,
                              struct ls_tensor **out)
{
    *out = x;
    if (x->dtype == dtype)
        return LS_OK;
    for (uint32_t i = 0; i < graph->operation_count; i++) {
        const struct ls_operation *operation = &graph->operations[i];
        if (operation->op == LS_OP_CONVERT && operation->inputs[0] == x &&
            operation->outputs[0]->dtype == dtype) {
            *out = operation->outputs[0];
            return LS_OK;
        }
    }
    return ls_graph_convert(graph, x, dtype, out);
}

static bool has_halves(const struct ls_operation_row *row)
{
    for (uint32_t i = 0; i < LS_MAX_ARGUMENTS; i++) {
        const struct ls_argument argument = ls_operation_argument(row, i, false);
        if (argument.kind != LS_ARGUMENT_NONE && argument.type == LS_TYPE_FLOATING)
            return true;
    }
    return false;
}

// `inputs` in the types that the operation has where the layer computes in graph->compute, and the
// type that its result is to have.
static enum ls_status cast_inputs(struct ls_graph *graph, const struct ls_operation_row *row,
                                  struct ls_tensor *const *inputs, uint32_t count,
                                  struct ls_tensor **cast, uint32_t *result)
{
    const uint32_t type = computed_type(graph, inputs, count);
    const uint32_t inside = has_halves(row) ? type : LS_F32;

    *result = type;
    for (uint32_t i = 0; i < count; i++) {
        const struct ls_argument argument = ls_operation_argument(row, i, false);
        const bool any = argument.type == LS_TYPE_INDEX && inputs[i]->dtype == LS_F32;
        enum ls_status status = LS_OK;
        cast[i] = inputs[i];
        if (ls_is_floating(inputs[i]) && !any)
            status = cast_to(graph, inputs[i], inside, &cast[i]);
        if (status)
            return status;
    }
    return LS_OK;
}

enum ls_status ls_graph_add(struct ls_graph *graph, uint32_t op,
                            const struct ls_op_attributes *attributes,
                            struct ls_tensor *const *inputs, uint32_t input_count,
                            const struct ls_shape *output_shape, struct ls_tensor **out)
{
    if (!ls_operation_has(op, LS_TRAIT_LAYER))
        return ls_graph_fail(graph, input_count > 0 ? inputs[0] : NULL,
                             "operation %u is not one that a layer adds", op);
    if (graph->compute == LS_COMPUTE_UNCAST || input_count > LS_MAX_ARGUMENTS)
        return ls_graph_add_uncast(graph, op, attributes, inputs, input_count, output_shape, LS_F32,
                                   out);

    struct ls_tensor *cast[LS_MAX_ARGUMENTS] = {NULL}, *made = NULL;
    uint32_t type;
    enum ls_status status =
        cast_inputs(graph, ls_operation_row(op), inputs, input_count, cast, &type);
    if (!status)
        status = ls_graph_add_uncast(graph, op, attributes, cast, input_count, output_shape, LS_F32,
                                     &made);
    if (!status && made->role == LS_ROLE_ACTIVATION)
        status = cast_to(graph, made, type, &made);
    if (!status)
        *out = made;
    return status;
}

// ---- The model's outputs ----

// The operation once more, on `x`.
static enum ls_status again(struct ls_graph *graph, const struct ls_operation *operation,
                            struct ls_tensor *x, struct ls_tensor **out)
{
    const struct ls_op_attributes attributes = operation->attributes;
    const struct ls_shape shape = operation->outputs[0]->shape;
    const bool view = ls_operation_has(operation->op, LS_TRAIT_VIEW);

    graph->layer = operation->layer;
    return ls_graph_add(graph, operation->op, &attributes, &x, 1, view ? &shape : NULL, out);
}

// The float32 of a half: of the last softmax or activation what it makes of a float32 input.
static enum ls_status make_float32(struct ls_graph *graph, struct ls_tensor *half,
                                   struct ls_tensor **out)
{
    const struct ls_operation none = {.layer = LS_NO_LAYER};
    const struct ls_operation operation =
        half->producer < 0 ? none : graph->operations[half->producer];
    struct ls_tensor *x = NULL;

    graph->layer = operation.layer;
    if (operation.op != LS_OP_NONE && ls_operation_has(operation.op, LS_TRAIT_VIEW)) {
        enum ls_status status = make_float32(graph, operation.inputs[0], &x);
        return status ? status : again(graph, &operation, x, out);
    }
    if (operation.op == LS_OP_NONE || !(ls_operation_has(operation.op, LS_TRAIT_PROBABILITIES) ||
                                        ls_operation_has(operation.op, LS_TRAIT_ACTIVATION)))
        return cast_to(graph, half, LS_F32, out);
    enum ls_status status = cast_to(graph, operation.inputs[0], LS_F32, &x);
    return status ? status : again(graph, &operation, x, out);
}

enum ls_status ls_graph_float32_outputs(struct ls_graph *graph)
{
    const uint32_t layer = graph->layer;
    enum ls_status status = LS_OK;

    graph->compute = LS_F32;
    for (uint32_t i = 0; i < graph->output_count && !status; i++) {
        struct ls_tensor *output = graph->outputs[i], *mask = output->mask;
        if (ls_type_is_half(output->dtype))
            status = make_float32(graph, output, &graph->outputs[i]);
        if (!status && mask)
            status = cast_to(graph, mask, LS_F32, &mask);
        graph->outputs[i]->mask = mask;
    }
    graph->layer = layer;
    return status;
}
