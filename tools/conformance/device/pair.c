// SPDX-License-Identifier: Apache-2.0
// Cases of pairs of tensors that are broadcast, and of sums, means and largest elements along
// dimensions.
#include "tools/conformance/device/suite.h"

#include "core/operation/operation.h"

#include <math.h>
#include <string.h>

#define RANK 5

static struct ls_tensor_desc desc_of(const int64_t *dims)
{
    uint32_t ndims = 0;
    while (ndims < RANK && dims[ndims] > 0)
        ndims++;
    return ls_device_desc(LS_F32, ndims, dims);
}

static const char *text_of(const struct ls_tensor_desc *desc, char *text, size_t bytes)
{
    size_t length = 0;
    for (uint32_t i = 0; i < desc->ndims && length < bytes; i++)
        length += (size_t)snprintf(text + length, bytes - length, "%s%lld", i ? "x" : "",
                                   (long long)desc->dims[i]);
    return text;
}

// ---- Pairs ----

// Each dimension repeated on either side; odd, prime and single sizes; blocks of channels that are
// full and not; and sums that are long enough to be divided.
static const struct {
    int64_t a[RANK], b[RANK];
} pairs[] = {
    {{1, 1}, {1, 1}},
    {{7, 33}, {7, 33}},
    {{5, 5, 5, 64}, {5, 1, 1, 64}},
    {{2, 13, 11, 17}, {2, 1, 1, 17}},
    {{2, 1, 1, 32}, {2, 9, 9, 32}},
    {{6, 9, 9, 1}, {6, 9, 9, 24}},
    {{3, 5, 7, 16}, {3, 5, 7, 1}},
    {{2, 7, 3, 24}, {24}},
    {{17}, {3, 4, 5, 17}},
    {{3, 2, 2, 8}, {1}},
    {{4, 6, 1}, {1, 6, 5}},
    {{5, 1}, {1, 7}},
    {{2, 3, 4, 5, 6}, {4, 1, 6}},
    {{64, 1000}, {1, 1000}},
    {{2, 41, 40, 96}, {96}},
    {{4, 129, 131}, {1, 1, 1}},
    {{301, 3}, {3}},
    {{2, 8, 4, 16}, {1, 8, 1, 16}},
};

static uint32_t add_input(struct ls_device_case *c, struct ls_tensor_desc desc,
                          enum ls_device_values values)
{
    const uint32_t index =
        ls_device_case_input(c, desc.ndims > 1 ? LS_DEVICE_ACTIVATION : LS_DEVICE_WEIGHTS, desc);
    ls_device_case_draw(c, index, values);
    return index;
}

static struct ls_tensor_desc broadcast(const struct ls_tensor_desc *a,
                                       const struct ls_tensor_desc *b)
{
    const struct ls_op_attributes none = {0};
    struct ls_shape_call call = {0};
    call.attributes = &none;
    call.input_count = 2;
    for (uint32_t i = 0; i < 2; i++) {
        const struct ls_tensor_desc *desc = i ? b : a;
        call.inputs[i].ndims = desc->ndims;
        memcpy(call.inputs[i].dims, desc->dims, sizeof(desc->dims));
    }
    if (!ls_operation_shapes(ls_operation_row(LS_OP_PAIR), &call))
        return *a; // the shapes above fit, so this is refused by the reference device
    return ls_device_desc(LS_F32, call.outputs[0].ndims, call.outputs[0].dims);
}

static void build_pair(struct ls_device_case *c, uint32_t op, uint32_t function, size_t shape)
{
    const struct ls_tensor_desc a = desc_of(pairs[shape].a), b = desc_of(pairs[shape].b);
    const struct ls_tensor_desc y = broadcast(&a, &b);
    const struct ls_op_attributes attributes = {.function = function};
    const bool compares = function == LS_PAIR_MAXIMUM || function == LS_PAIR_MINIMUM;
    const bool divides = function == LS_PAIR_DIVIDE;
    const enum ls_device_values values = compares && shape % 2 ? LS_DEVICE_TIES : LS_DEVICE_WIDE;
    char one[64] = "", other[64] = "";

    ls_device_case_start(c, op, "%s %s %s with %s", ls_op_name(op),
                         ls_operation_label(op, &attributes), text_of(&a, one, sizeof(one)),
                         text_of(&b, other, sizeof(other)));
    c->request.attributes = attributes;
    if (op != LS_OP_PAIR)
        add_input(c, y, LS_DEVICE_UNIFORM);
    add_input(c, a, values);
    add_input(c, b, divides ? LS_DEVICE_NEGATIVE : values);
    if (op == LS_OP_PAIR) {
        ls_device_case_output(c, LS_DEVICE_ACTIVATION, y,
                              compares ? LS_DEVICE_EXACT : LS_DEVICE_ROUNDED);
    } else {
        const struct ls_tensor_desc of = op == LS_OP_PAIR_BACKWARD_FIRST ? a : b;
        ls_device_case_output(c, of.ndims > 1 ? LS_DEVICE_ACTIVATION : LS_DEVICE_WEIGHTS, of,
                              LS_DEVICE_SUM);
        c->magnitude_inputs = compares ? 1 : divides ? 3 : 7;
    }
    if (shape % 3 == 1)
        ls_device_case_accumulate(c, 0);
}

// A function that the device lacks has one case, in which it says so.
void ls_device_pair_cases(struct ls_device_suite *suite, uint32_t op)
{
    const size_t count = sizeof(pairs) / sizeof(pairs[0]);
    for (uint32_t function = 0; function < LS_PAIR_COUNT; function++) {
        struct ls_device_case c;
        char name[64];
        build_pair(&c, op, function, 0);
        snprintf(name, sizeof(name), "%s %s", ls_op_name(op),
                 ls_operation_label(op, &c.request.attributes));
        for (size_t i = 0; i < count && (i || ls_device_case_offered(suite, &c, name)); i++) {
            build_pair(&c, op, function, i);
            ls_device_case_run(suite, &c);
        }
    }
}

// ---- Reductions ----

static const struct {
    int64_t x[RANK];
    int32_t axes[RANK];
} reductions[] = {
    {{1, 1}, {0, 1}},
    {{3, 33}, {0, 1}},
    {{5, 5, 5, 64}, {0, 1, 1}},
    {{2, 13, 11, 17}, {0, 1, 1}},
    {{2, 13, 11, 17}, {0, 0, 0, 1}},
    {{2, 9, 9, 32}, {0, 0, 0, 1}},
    {{3, 9, 7, 24}, {0, 1}},
    {{3, 9, 7, 24}, {0, 0, 1}},
    {{4, 40, 50, 3}, {0, 1, 1, 1}},
    {{2, 7, 10}, {0, 1}},
    {{2, 7, 10}, {0, 0, 1}},
    {{1, 200, 211, 8}, {0, 1, 1}},
    {{2, 3, 4, 5, 6}, {0, 1, 0, 1}},
    {{64, 1031}, {0, 1}},
    {{2, 5}, {0, 0}},
};

static struct ls_tensor_desc reduced(size_t shape)
{
    struct ls_tensor_desc y = desc_of(reductions[shape].x);
    for (uint32_t i = 0; i < y.ndims; i++)
        y.dims[i] = reductions[shape].axes[i] ? 1 : y.dims[i];
    return y;
}

// Makes y the largest elements of x, so that some of x are equal to it.
static void set_largest(struct ls_device_case *c)
{
    const struct ls_tensor_desc *x = &c->request.arguments[1], *y = &c->request.arguments[2];
    const float *from = c->values[1];
    float *to = c->values[2];
    for (uint64_t i = 0; from && to && i < ls_tensor_elements(y); i++)
        to[i] = -INFINITY;
    for (uint64_t i = 0; from && to && i < ls_tensor_elements(x); i++) {
        uint64_t at = 0, stride = 1, left = i;
        for (uint32_t d = x->ndims; d > 0; d--) {
            const uint64_t size = (uint64_t)x->dims[d - 1];
            at += y->dims[d - 1] == x->dims[d - 1] ? left % size * stride : 0;
            stride *= (uint64_t)y->dims[d - 1];
            left /= size;
        }
        to[at] = fmaxf(to[at], from[i]);
    }
}

static void build_reduction(struct ls_device_case *c, uint32_t op, uint32_t function, size_t shape)
{
    const struct ls_tensor_desc x = desc_of(reductions[shape].x), y = reduced(shape);
    const bool backward = op == LS_OP_REDUCE_BACKWARD, largest = function == LS_REDUCE_TO_MAXIMUM;
    struct ls_op_attributes attributes = {.function = function};
    char text[64] = "", axes[RANK + 1] = "";

    for (uint32_t i = 0, length = 0; i < x.ndims; i++) {
        attributes.axes[i] = reductions[shape].axes[i];
        if (attributes.axes[i])
            axes[length++] = (char)('0' + i);
    }
    ls_device_case_start(c, op, "%s %s %s over %s", ls_op_name(op),
                         ls_operation_label(op, &attributes), text_of(&x, text, sizeof(text)),
                         axes[0] ? axes : "none");
    c->request.attributes = attributes;
    if (backward)
        add_input(c, y, LS_DEVICE_UNIFORM);
    add_input(c, x, largest && shape % 2 ? LS_DEVICE_TIES : LS_DEVICE_WIDE);
    if (backward)
        add_input(c, y, LS_DEVICE_WIDE); // what it is follows from x
    ls_device_case_output(c, LS_DEVICE_ACTIVATION, backward ? x : y,
                          backward  ? LS_DEVICE_ROUNDED
                          : largest ? LS_DEVICE_EXACT
                                    : LS_DEVICE_SUM);
    c->magnitude_inputs = backward || largest ? 0 : 1;
    if (backward)
        c->derive = set_largest;
    if (shape % 3 == 1)
        ls_device_case_accumulate(c, 0);
}

// A function that the device lacks has one case, in which it says so.
void ls_device_reduction_operation_cases(struct ls_device_suite *suite, uint32_t op)
{
    const size_t count = sizeof(reductions) / sizeof(reductions[0]);
    for (uint32_t function = 0; function < LS_REDUCE_COUNT; function++) {
        struct ls_device_case c;
        char name[64];
        build_reduction(&c, op, function, 0);
        snprintf(name, sizeof(name), "%s %s", ls_op_name(op),
                 ls_operation_label(op, &c.request.attributes));
        for (size_t i = 0; i < count && (i || ls_device_case_offered(suite, &c, name)); i++) {
            build_reduction(&c, op, function, i);
            ls_device_case_run(suite, &c);
        }
    }
}
