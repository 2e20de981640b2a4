// SPDX-License-Identifier: Apache-2.0
// What moves elements: concatenation, parts, transposition, upsampling.
#include "plugins/device/reference/reference.h"

#include <math.h>

// The element of `whole` that is element `index` of `part`, which begins at `from` (LS_MAX_DIMS).
static uint64_t element_of_part(const struct ls_tensor_desc *whole,
                                const struct ls_tensor_desc *part, const int64_t *from,
                                uint64_t index)
{
    uint64_t at = 0, stride = 1;
    for (uint32_t i = part->ndims; i > 0; i--) {
        const uint64_t size = (uint64_t)part->dims[i - 1];
        at += (index % size + (uint64_t)from[i - 1]) * stride;
        stride *= (uint64_t)whole->dims[i - 1];
        index /= size;
    }
    return at;
}

// ---- Concatenation ----

// Moves on to where the tensor behind `before` begins in y.
static void begin_behind(const struct reference_call *call, const struct ls_tensor_desc *before,
                         int64_t *from)
{
    for (uint32_t i = 0; i < LS_MAX_DIMS; i++)
        from[i] += call->attributes->axes[i] ? before->dims[i] : 0;
}

// a, b, ... -> y
void reference_concatenate(const struct reference_call *call)
{
    int64_t from[LS_MAX_DIMS] = {0};
    for (uint32_t k = 0; k < call->input_count; k++) {
        const struct ls_tensor_desc *part = &call->input_descs[k];
        const float *x = call->inputs[k];
        for (uint64_t i = 0; i < ls_tensor_elements(part); i++)
            call->results[0][element_of_part(call->output_descs, part, from, i)] = (double)x[i];
        begin_behind(call, part, from);
    }
}

// dy -> da, db, ...
void reference_concatenate_backward(const struct reference_call *call)
{
    const float *dy = call->inputs[0];
    int64_t from[LS_MAX_DIMS] = {0};
    for (uint32_t k = 0; k < call->output_count; k++) {
        const struct ls_tensor_desc *part = &call->output_descs[k];
        for (uint64_t i = 0; i < ls_tensor_elements(part); i++)
            call->results[k][i] = (double)dy[element_of_part(call->input_descs, part, from, i)];
        begin_behind(call, part, from);
    }
}

// ---- Parts ----

static void part_begins(const struct reference_call *call, int64_t *from)
{
    for (uint32_t i = 0; i < LS_MAX_DIMS; i++)
        from[i] = call->attributes->axes[i];
}

// whole -> part
void reference_take_part(const struct reference_call *call)
{
    const struct ls_tensor_desc *part = call->output_descs;
    int64_t from[LS_MAX_DIMS];
    part_begins(call, from);
    for (uint64_t i = 0; i < ls_tensor_elements(part); i++)
        call->results[0][i] =
            (double)((const float *)
                         call->inputs[0])[element_of_part(call->input_descs, part, from, i)];
}

// part -> whole
void reference_put_part(const struct reference_call *call)
{
    const struct ls_tensor_desc *part = call->input_descs;
    int64_t from[LS_MAX_DIMS];
    part_begins(call, from);
    for (uint64_t i = 0; i < ls_tensor_elements(part); i++)
        call->results[0][element_of_part(call->output_descs, part, from, i)] =
            (double)((const float *)call->inputs[0])[i];
}

// ---- Transposition ----

// The element of x that becomes element `index` of y.
static uint64_t element_before(const struct reference_call *call, const struct ls_tensor_desc *x,
                               uint64_t index)
{
    uint64_t strides[LS_MAX_DIMS], stride = 1, at = 0;
    for (uint32_t i = x->ndims; i > 0; i--) {
        strides[i - 1] = stride;
        stride *= (uint64_t)x->dims[i - 1];
    }
    for (uint32_t i = x->ndims; i > 0; i--) {
        const int32_t axis = call->attributes->axes[i - 1];
        at += index % (uint64_t)x->dims[axis] * strides[axis];
        index /= (uint64_t)x->dims[axis];
    }
    return at;
}

// x -> y
void reference_transpose(const struct reference_call *call)
{
    const float *x = call->inputs[0];
    for (uint64_t i = 0; i < ls_tensor_elements(call->output_descs); i++)
        call->results[0][i] = (double)x[element_before(call, call->input_descs, i)];
}

// dy -> dx
void reference_transpose_backward(const struct reference_call *call)
{
    const float *dy = call->inputs[0];
    for (uint64_t i = 0; i < ls_tensor_elements(call->input_descs); i++)
        call->results[0][element_before(call, call->output_descs, i)] = (double)dy[i];
}

// ---- Upsampling ----

// Of which two elements along an axis of `size`, and with which weight of the second, element `o`
// is made.
static double source(const struct ls_op_attributes *a, int axis, int64_t o, int64_t size,
                     int64_t *first, int64_t *second)
{
    const int64_t factor = a->strides[axis];
    if (a->function == LS_UPSAMPLE_NEAREST) {
        *first = *second = o / factor;
        return 0;
    }
    const double at = ((double)o + 0.5) / (double)factor - 0.5;
    const int64_t before = (int64_t)floor(at);
    *first = before < 0 ? 0 : before;
    *second = before + 1 > size - 1 ? size - 1 : before + 1;
    return at - floor(at);
}

// Walks all elements of y; forward adds up y of x, else dx of dy.
static void upsample(const struct reference_call *call, bool forward)
{
    const struct ls_op_attributes *a = call->attributes;
    const struct ls_tensor_desc *small = forward ? call->input_descs : call->output_descs;
    const struct ls_tensor_desc *large = forward ? call->output_descs : call->input_descs;
    const int64_t rows = small->dims[1], columns = small->dims[2], channels = small->dims[3];
    const float *from = call->inputs[0];

    for (int64_t i = 0; i < (int64_t)ls_tensor_elements(large); i++) {
        const int64_t c = i % channels, ow = i / channels % large->dims[2];
        const int64_t oh = i / channels / large->dims[2] % large->dims[1];
        const int64_t b = i / channels / large->dims[2] / large->dims[1];
        int64_t h[2], w[2];
        const double lower = source(a, 0, oh, rows, &h[0], &h[1]);
        const double right = source(a, 1, ow, columns, &w[0], &w[1]);
        for (int k = 0; k < 4; k++) {
            const double weight = (k / 2 ? lower : 1 - lower) * (k % 2 ? right : 1 - right);
            const int64_t at = ((b * rows + h[k / 2]) * columns + w[k % 2]) * channels + c;
            call->results[0][forward ? i : at] += weight * (double)from[forward ? at : i];
        }
    }
}

void reference_upsample2d(const struct reference_call *call)
{
    upsample(call, true);
}

void reference_upsample2d_backward(const struct reference_call *call)
{
    upsample(call, false);
}
