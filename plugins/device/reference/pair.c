// SPDX-License-Identifier: Apache-2.0
// Pairs of tensors, one of which may be repeated along some dimensions; and sums, means and largest
// elements along dimensions, which is the same seen from the other side.
#include "plugins/device/reference/reference.h"

#include <math.h>

// The element of `part` that belongs to element `index` of `whole`: part's dimensions are those of
// whole from the last one on, or 1.
static uint64_t element_of(const struct ls_tensor_desc *whole, const struct ls_tensor_desc *part,
                           uint64_t index)
{
    uint64_t at = 0, stride = 1;
    for (uint32_t i = 0; i < part->ndims; i++) {
        const uint64_t size = (uint64_t)whole->dims[whole->ndims - 1 - i];
        const uint64_t own = (uint64_t)part->dims[part->ndims - 1 - i];
        at += own > 1 ? index % size * stride : 0;
        stride *= own;
        index /= size;
    }
    return at;
}

static double pair_of(uint32_t function, double a, double b)
{
    switch (function) {
    case LS_PAIR_SUBTRACT: return a - b;
    case LS_PAIR_MULTIPLY: return a * b;
    case LS_PAIR_DIVIDE: return a / b;
    case LS_PAIR_MAXIMUM: return a >= b || isnan(a) ? a : b;
    case LS_PAIR_MINIMUM: return a <= b || isnan(a) ? a : b;
    default: return a + b;
    }
}

// The derivative by a, or by b.
static double pair_slope(uint32_t function, bool by_b, double a, double b)
{
    switch (function) {
    case LS_PAIR_SUBTRACT: return by_b ? -1 : 1;
    case LS_PAIR_MULTIPLY: return by_b ? a : b;
    case LS_PAIR_DIVIDE: return by_b ? -a / (b * b) : 1 / b;
    case LS_PAIR_MAXIMUM: return (a >= b) != by_b;
    case LS_PAIR_MINIMUM: return (a <= b) != by_b;
    default: return 1;
    }
}

// Whether the elements of a row, which is along the last dimension, are one after the other in
// `part`, or the same one.
static uint64_t step_of(const struct ls_tensor_desc *part)
{
    return part->dims[part->ndims - 1] > 1;
}

// a, b -> y
void reference_pair(const struct reference_call *call)
{
    const struct ls_tensor_desc *y = call->output_descs, *of = call->input_descs;
    const uint64_t count = ls_tensor_elements(y), row = (uint64_t)y->dims[y->ndims - 1];
    for (uint64_t first = 0; first < count; first += row) {
        const float *a = (const float *)call->inputs[0] + element_of(y, &of[0], first);
        const float *b = (const float *)call->inputs[1] + element_of(y, &of[1], first);
        for (uint64_t i = 0; i < row; i++)
            call->results[0][first + i] =
                pair_of(call->attributes->function, (double)a[i * step_of(&of[0])],
                        (double)b[i * step_of(&of[1])]);
    }
}

// dy, a, b -> da or db
static void pair_backward_run(const struct reference_call *call, bool by_b)
{
    const struct ls_tensor_desc *of = call->input_descs, *out = call->output_descs;
    const float *dy = call->inputs[0];
    const uint64_t count = ls_tensor_elements(of), row = (uint64_t)of->dims[of->ndims - 1];
    for (uint64_t first = 0; first < count; first += row) {
        const float *a = (const float *)call->inputs[1] + element_of(of, &of[1], first);
        const float *b = (const float *)call->inputs[2] + element_of(of, &of[2], first);
        double *result = call->results[0] + element_of(of, out, first);
        for (uint64_t i = 0; i < row; i++) {
            const double slope =
                pair_slope(call->attributes->function, by_b, (double)a[i * step_of(&of[1])],
                           (double)b[i * step_of(&of[2])]);
            result[i * step_of(out)] += (double)dy[first + i] * slope;
        }
    }
}

void reference_pair_backward_first(const struct reference_call *call)
{
    pair_backward_run(call, false);
}

void reference_pair_backward_second(const struct reference_call *call)
{
    pair_backward_run(call, true);
}

// Element `k` of those of x that become element `index` of y.
static uint64_t member_of(const struct ls_tensor_desc *x, const struct ls_tensor_desc *y,
                          uint64_t index, uint64_t k)
{
    uint64_t at = 0, stride = 1;
    for (uint32_t i = x->ndims; i > 0; i--) {
        const uint64_t size = (uint64_t)x->dims[i - 1];
        uint64_t *left = y->dims[i - 1] == x->dims[i - 1] ? &index : &k;
        at += *left % size * stride;
        *left /= size;
        stride *= size;
    }
    return at;
}

// x -> y
void reference_reduce(const struct reference_call *call)
{
    const struct ls_tensor_desc *x_desc = call->input_descs, *y_desc = call->output_descs;
    const uint64_t results = ls_tensor_elements(y_desc);
    const uint64_t each = ls_tensor_elements(x_desc) / results;
    const uint32_t function = call->attributes->function;
    const float *x = call->inputs[0];

    for (uint64_t i = 0; i < results; i++) {
        double y = function == LS_REDUCE_TO_MAXIMUM ? -INFINITY : 0;
        for (uint64_t k = 0; k < each; k++) {
            const double value = (double)x[member_of(x_desc, y_desc, i, k)];
            if (function != LS_REDUCE_TO_MAXIMUM)
                y += value;
            else if (value > y || isnan(value))
                y = value;
        }
        call->results[0][i] = function == LS_REDUCE_TO_MEAN ? y / (double)each : y;
    }
}

// dy, x, y -> dx
void reference_reduce_backward(const struct reference_call *call)
{
    const struct ls_tensor_desc *x_desc = &call->input_descs[1], *y_desc = &call->input_descs[2];
    const uint64_t results = ls_tensor_elements(y_desc);
    const uint64_t each = ls_tensor_elements(x_desc) / results;
    const uint32_t function = call->attributes->function;
    const float *dy = call->inputs[0], *x = call->inputs[1], *y = call->inputs[2];

    for (uint64_t i = 0; i < results; i++) {
        double equal = 0;
        for (uint64_t k = 0; k < each; k++)
            equal += x[member_of(x_desc, y_desc, i, k)] == y[i];
        for (uint64_t k = 0; k < each; k++) {
            const uint64_t at = member_of(x_desc, y_desc, i, k);
            double share = (double)dy[i];
            if (function == LS_REDUCE_TO_MEAN)
                share /= (double)each;
            if (function == LS_REDUCE_TO_MAXIMUM)
                share = x[at] == y[i] ? share / equal : 0;
            call->results[0][at] = share;
        }
    }
}
