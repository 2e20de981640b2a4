// SPDX-License-Identifier: Apache-2.0
// Checks a request for a kernel against the table, so that a device gets none that makes no sense.
#include "core/operation/operation.h"

#include "core/plugin/half.h"

#include <stdio.h>

#define MAX_ELEMENTS (UINT64_C(1) << 48) // of one tensor: sizes in bytes stay far from overflow

// A request, taken apart.
struct check {
    const struct ls_kernel_request *request;
    const struct ls_operation_row *row;
    uint32_t input_count; // without that of an epilogue
    bool casts; // activations may be halves where they are float32 otherwise
    const char *why; // points into `text` or at a constant
    char text[256];
};

static bool refuse(struct check *check, const char *why)
{
    check->why = why;
    return false;
}

static bool refuse_argument(struct check *check, uint32_t index, const char *why)
{
    const bool output = index >= check->request->input_count;
    const uint32_t own = output ? index - check->request->input_count : index;
    const struct ls_argument argument = ls_operation_argument(check->row, own, output);
    const bool gradient =
        argument.source == LS_SOURCE_INPUT_GRADIENT || argument.source == LS_SOURCE_OUTPUT_GRADIENT;
    const bool extra = !output && index >= check->input_count;

    snprintf(check->text, sizeof(check->text), "%s %u (%s%s) %s", output ? "output" : "input", own,
             gradient ? "d" : "", extra || !argument.name ? "of the epilogue" : argument.name, why);
    return refuse(check, check->text);
}

// ---- Counts, epilogue ----

static bool counts_fit(struct check *check)
{
    const struct ls_kernel_request *request = check->request;
    const uint32_t extra = request->attributes.epilogue == LS_OP_ACTIVATION_BACKWARD;
    uint32_t least, most;

    if (request->input_count > LS_MAX_ARGUMENTS || request->output_count > LS_MAX_ARGUMENTS ||
        request->input_count + request->output_count > LS_MAX_ARGUMENTS)
        return refuse(check, "too many arguments");
    ls_operation_count(check->row, false, &least, &most);
    if (request->input_count < least + extra || request->input_count > most + extra)
        return refuse(check, "wrong number of inputs");
    ls_operation_count(check->row, true, &least, &most);
    if (request->output_count < least || request->output_count > most)
        return refuse(check, "wrong number of outputs");
    check->input_count = request->input_count - extra;
    return true;
}

static bool epilogue_fits(struct check *check)
{
    const struct ls_op_attributes *attributes = &check->request->attributes;
    const struct ls_operation_row *epilogue = ls_operation_row(attributes->epilogue);

    if (attributes->epilogue == LS_OP_NONE)
        return true;
    if (!epilogue || (epilogue->fusion != LS_FUSION_EPILOGUE &&
                      epilogue->fusion != LS_FUSION_EPILOGUE_OF_GRADIENT))
        return refuse(check, "an epilogue is an activation or its backward operation");
    if ((check->row->traits & LS_TRAIT_EPILOGUE) == 0)
        return refuse(check, "it has no epilogue");
    if (attributes->epilogue_activation >= LS_ACTIVATION_COUNT)
        return refuse(check, "there is no such activation for the epilogue");
    if (check->input_count < check->request->input_count &&
        ls_tensor_elements(&check->request->arguments[check->input_count]) !=
            ls_tensor_elements(&check->request->arguments[check->request->input_count]))
        return refuse(check, "the input of the epilogue has not as many elements as the output");
    return true;
}

// Only results of the examples and their losses can be added to.
static bool accumulation_fits(struct check *check)
{
    const struct ls_kernel_request *request = check->request;

    if (request->accumulate >> request->output_count != 0)
        return refuse(check, "adds into an output that it does not have");
    for (uint32_t i = 0; i < request->output_count; i++) {
        const uint8_t kind = ls_operation_argument(check->row, i, true).kind;
        if ((request->accumulate >> i & 1) != 0 && kind != LS_ARGUMENT_TENSOR &&
            kind != LS_ARGUMENT_PARAMETER && kind != LS_ARGUMENT_SUMS && kind != LS_ARGUMENT_EITHER)
            return refuse_argument(check, request->input_count + i, "cannot be added to");
    }
    return true;
}

// ---- Types ----

bool ls_type_is_half(uint32_t dtype)
{
    return ls_dtype_is_half(dtype);
}

static bool is_floating(uint32_t dtype)
{
    return dtype == LS_F32 || ls_type_is_half(dtype);
}

// The type of all activations of an operation whose casts the device takes: that of the first.
static uint32_t cast_dtype(const struct check *check)
{
    const struct ls_kernel_request *request = check->request;
    for (uint32_t i = 0; i < request->input_count + request->output_count; i++) {
        const bool output = i >= request->input_count;
        const struct ls_argument argument =
            ls_operation_argument(check->row, output ? i - request->input_count : i, output);
        if (ls_argument_is_cast(&argument))
            return is_floating(request->arguments[i].dtype) ? request->arguments[i].dtype : 0;
    }
    return 0;
}

// The type that an argument must have; 0: none fits.
static uint32_t expected_dtype(const struct check *check, const struct ls_argument *argument,
                               uint32_t own)
{
    const struct ls_kernel_request *request = check->request;
    const uint32_t first = request->arguments[0].dtype;

    switch ((enum ls_argument_type)argument->type) {
    case LS_TYPE_FLOATING: return is_floating(first) ? first : 0;
    case LS_TYPE_OWN_FLOATING: return is_floating(own) ? own : 0;
    case LS_TYPE_GRADIENT: // they begin with output 0
        return request->arguments[request->input_count].dtype == LS_F32 ? LS_F32 : first;
    case LS_TYPE_F32:
        return check->casts && ls_argument_is_cast(argument) ? cast_dtype(check) : LS_F32;
    case LS_TYPE_F64: return LS_F64;
    case LS_TYPE_I32: return LS_I32;
    case LS_TYPE_INDEX: return own == LS_I32 || own == LS_F32 ? own : 0;
    case LS_TYPE_U8: return LS_U8;
    }
    return 0;
}

static bool arguments_fit(struct check *check)
{
    const struct ls_kernel_request *request = check->request;

    for (uint32_t i = 0; i < request->input_count + request->output_count; i++) {
        const struct ls_tensor_desc *desc = &request->arguments[i];
        const bool output = i >= request->input_count;
        const struct ls_argument argument =
            i >= check->input_count && !output // of the epilogue: floating, as the others
                ? (struct ls_argument){.kind = LS_ARGUMENT_TENSOR}
                : ls_operation_argument(check->row, output ? i - request->input_count : i, output);
        const uint32_t dtype = expected_dtype(check, &argument, desc->dtype);
        uint64_t elements = 1;

        if (dtype == 0 || desc->dtype != dtype)
            return refuse_argument(check, i, "is not of the type that it has here");
        if (desc->layout.kind > LS_LAYOUT_OWN)
            return refuse_argument(check, i, "has a layout of no known kind");
        if (argument.opaque)
            continue;
        if (desc->ndims < 1 || desc->ndims > LS_MAX_DIMS)
            return refuse_argument(check, i, "has not one to six dimensions");
        for (uint32_t d = 0; d < desc->ndims; d++) {
            if (desc->dims[d] < 1)
                return refuse_argument(check, i, "is empty");
            if ((uint64_t)desc->dims[d] > MAX_ELEMENTS / elements)
                return refuse_argument(check, i, "is larger than any memory");
            elements *= (uint64_t)desc->dims[d];
        }
    }
    return true;
}

// ---- Shapes ----

static void copy_shape(const struct ls_tensor_desc *desc, struct ls_shape *out)
{
    *out = (struct ls_shape){.ndims = desc->ndims};
    for (uint32_t i = 0; i < desc->ndims; i++)
        out->dims[i] = desc->dims[i];
}

// Puts one argument where the forward operation has it. False: another argument says otherwise.
static bool place(struct check *check, uint32_t index, bool output, struct ls_shape_call *call,
                  struct ls_shape *outputs)
{
    const struct ls_kernel_request *request = check->request;
    const struct ls_argument argument = ls_operation_argument(check->row, index, output);
    const bool backward = argument.source != LS_SOURCE_SELF;
    const bool to_output = backward ? argument.source == LS_SOURCE_OUTPUT ||
                                          argument.source == LS_SOURCE_OUTPUT_GRADIENT
                                    : output;
    const uint32_t at = backward ? argument.source_index : index;
    const uint32_t position = output ? request->input_count + index : index;
    struct ls_shape *slot = to_output ? &outputs[at] : &call->inputs[at], shape;

    if (argument.opaque)
        return true;
    copy_shape(&request->arguments[position], &shape);
    if (slot->ndims > 0 && !ls_shape_equal(slot, &shape))
        return refuse_argument(check, position, "has not the shape of what it belongs to");
    *slot = shape;
    if (!to_output && call->input_count <= at)
        call->input_count = at + 1;
    return true;
}

// A backward operation fits where its forward operation would.
static bool shapes_fit(struct check *check)
{
    const struct ls_kernel_request *request = check->request;
    struct ls_shape outputs[LS_MAX_ARGUMENTS] = {{0}}; // as the request has them
    struct ls_shape_call call = {.attributes = &request->attributes};
    const struct ls_operation_row *row = check->row;

    for (uint32_t i = 0; i < check->input_count; i++)
        if (!place(check, i, false, &call, outputs))
            return false;
    for (uint32_t i = 0; i < request->output_count; i++)
        if (!place(check, i, true, &call, outputs))
            return false;
    if (row->backward_of != LS_OP_NONE)
        row = ls_operation_row(row->backward_of);
    call.asked = outputs[0];
    if (!ls_operation_shapes(row, &call)) {
        snprintf(check->text, sizeof(check->text), "%s", call.why);
        return refuse(check, check->text);
    }
    for (uint32_t i = 0; i < LS_MAX_ARGUMENTS; i++)
        if (outputs[i].ndims > 0 && !ls_shape_equal(&outputs[i], &call.outputs[i])) {
            char is[96], expected[96];
            snprintf(check->text, sizeof(check->text), "%s is %s, expected %s",
                     row->outputs[i].name, ls_shape_text(&outputs[i], is, sizeof(is)),
                     ls_shape_text(&call.outputs[i], expected, sizeof(expected)));
            return refuse(check, check->text);
        }
    return true;
}

enum ls_status ls_operation_check(const struct ls_kernel_request *request, bool casts, char *why,
                                  size_t bytes)
{
    struct check check = {.request = request, .row = ls_operation_row(request->op), .casts = casts};

    if (!check.row || request->op == LS_OP_NONE) {
        snprintf(why, bytes, "there is no operation %u", request->op);
        return LS_UNSUPPORTED;
    }
    if (counts_fit(&check) && arguments_fit(&check) && accumulation_fits(&check) &&
        epilogue_fits(&check) && shapes_fit(&check))
        return LS_OK;
    snprintf(why, bytes, "%s: %s", check.row->name, check.why);
    return LS_UNSUPPORTED;
}
