// SPDX-License-Identifier: Apache-2.0
// Cases of what moves elements: concatenation, parts of tensors, transposition, upsampling.
#include "tools/conformance/device/suite.h"

#include "core/operation/operation.h"

#include <string.h>

#define RANK 5
#define MOST_PARTS 8

static struct ls_tensor_desc desc_of(const int64_t *dims)
{
    uint32_t ndims = 0;
    while (ndims < RANK && dims[ndims] > 0)
        ndims++;
    return ls_device_desc(LS_F32, ndims, dims);
}

// Runs the cases from `build` on; a device that lacks the operation has one case, in which it says
// so.
static void run_all(struct ls_device_suite *suite, uint32_t op, size_t count,
                    void (*build)(struct ls_device_case *c, uint32_t op, size_t index))
{
    struct ls_device_case c;
    build(&c, op, 0);
    for (size_t i = 0; i < count && (i || ls_device_case_offered(suite, &c, ls_op_name(op))); i++) {
        build(&c, op, i);
        ls_device_case_run(suite, &c);
    }
}

// What reads `x` and writes `y`, and is added to now and then.
static void add_arguments(struct ls_device_case *c, struct ls_tensor_desc x,
                          struct ls_tensor_desc y, struct ls_device_tolerance tolerance,
                          size_t index)
{
    ls_device_case_draw(c, ls_device_case_input(c, LS_DEVICE_ACTIVATION, x), LS_DEVICE_UNIFORM);
    ls_device_case_output(c, LS_DEVICE_ACTIVATION, y, tolerance);
    if (index % 3 == 1)
        ls_device_case_accumulate(c, 0);
}

// ---- Concatenation ----

static const struct {
    int64_t dims[RANK];
    int axis;
    int64_t sizes[MOST_PARTS + 1]; // along the axis
} concatenations[] = {
    {{1, 1}, 1, {1, 1}},
    {{3, 7}, 1, {5, 1, 33}},
    {{2, 9, 9, 1}, 3, {64, 32}},
    {{2, 7, 5, 1}, 3, {16, 17, 3}},
    {{2, 5, 5, 1}, 3, {8, 16, 24, 8, 40, 16, 8, 8}},
    {{2, 1, 11, 24}, 1, {3, 4}},
    {{2, 6, 1, 17}, 2, {5, 2, 2}},
    {{3, 4, 1}, 2, {10, 3}},
    {{2, 3, 1, 5, 7}, 2, {2, 1}},
    {{64, 1}, 1, {1000, 31}},
    {{4, 28, 28, 1}, 3, {96, 32}},
};

static void build_concatenation(struct ls_device_case *c, uint32_t op, size_t index)
{
    const int axis = concatenations[index].axis;
    const int64_t *sizes = concatenations[index].sizes;
    struct ls_tensor_desc whole = desc_of(concatenations[index].dims), part = whole;
    uint32_t count = 0;

    for (whole.dims[axis] = 0; sizes[count] > 0; count++)
        whole.dims[axis] += sizes[count];
    ls_device_case_start(c, op, "%s %u parts of %llu along %d", ls_op_name(op), count,
                         (unsigned long long)ls_tensor_elements(&whole), axis);
    c->request.attributes.axes[axis] = 1;
    if (op == LS_OP_CONCATENATE_BACKWARD)
        ls_device_case_draw(c, ls_device_case_input(c, LS_DEVICE_ACTIVATION, whole),
                            LS_DEVICE_UNIFORM);
    for (uint32_t k = 0; k < count; k++) {
        part.dims[axis] = sizes[k];
        if (op == LS_OP_CONCATENATE)
            ls_device_case_draw(c, ls_device_case_input(c, LS_DEVICE_ACTIVATION, part),
                                LS_DEVICE_UNIFORM);
        else
            ls_device_case_output(c, LS_DEVICE_ACTIVATION, part, LS_DEVICE_EXACT);
    }
    if (op == LS_OP_CONCATENATE)
        ls_device_case_output(c, LS_DEVICE_ACTIVATION, whole, LS_DEVICE_EXACT);
    if (index % 3 == 1)
        ls_device_case_accumulate(c, op == LS_OP_CONCATENATE ? 0 : 1);
}

// ---- Parts ----

static const struct {
    int64_t whole[RANK], part[RANK];
    int32_t from[RANK];
} parts[] = {
    {{1, 1}, {1, 1}, {0}},
    {{5, 33}, {5, 7}, {0, 11}},
    {{2, 9, 11, 64}, {2, 7, 9, 64}, {0, 1, 1}},
    {{2, 9, 11, 17}, {2, 9, 4, 17}, {0, 0, 7}},
    {{2, 5, 6, 48}, {2, 5, 6, 16}, {0, 0, 0, 16}},
    {{2, 5, 6, 48}, {2, 4, 5, 9}, {0, 1, 0, 13}},
    {{3, 7, 10}, {3, 1, 10}, {0, 6}},
    {{2, 3, 4, 5, 6}, {2, 2, 3, 4, 5}, {0, 1, 1, 1, 1}},
    {{4, 57, 59, 24}, {4, 56, 56, 24}, {0, 0, 1}},
};

static void build_part(struct ls_device_case *c, uint32_t op, size_t index)
{
    const struct ls_tensor_desc whole = desc_of(parts[index].whole);
    const struct ls_tensor_desc part = desc_of(parts[index].part);
    const bool take = op == LS_OP_SLICE || op == LS_OP_PAD_BACKWARD;

    ls_device_case_start(c, op, "%s %llu of %llu dims %u from %d,%d,%d", ls_op_name(op),
                         (unsigned long long)ls_tensor_elements(&part),
                         (unsigned long long)ls_tensor_elements(&whole), whole.ndims,
                         parts[index].from[1], parts[index].from[2], parts[index].from[3]);
    memcpy(c->request.attributes.axes, parts[index].from, sizeof(parts[index].from));
    add_arguments(c, take ? whole : part, take ? part : whole, LS_DEVICE_EXACT, index);
}

// ---- Transposition ----

static const struct {
    int64_t x[RANK];
    int32_t axes[RANK];
} transpositions[] = {
    {{1, 1}, {0, 1}},
    {{3, 5, 7}, {0, 2, 1}},
    {{2, 33, 65}, {0, 2, 1}},
    {{2, 13, 11, 17}, {0, 3, 1, 2}},
    {{2, 13, 11, 17}, {0, 2, 1, 3}},
    {{2, 5, 6, 64}, {0, 3, 2, 1}},
    {{2, 3, 4, 5, 6}, {0, 4, 2, 1, 3}},
    {{2, 3, 1, 5, 6}, {0, 1, 2, 3, 4}},
    {{1, 200, 300}, {0, 2, 1}},
    {{7, 64}, {0, 1}},
};

static void build_transposition(struct ls_device_case *c, uint32_t op, size_t index)
{
    const struct ls_tensor_desc x = desc_of(transpositions[index].x);
    const int32_t *axes = transpositions[index].axes;
    struct ls_tensor_desc y = x;
    char order[RANK + 1] = "";

    for (uint32_t i = 0; i < x.ndims; i++) {
        y.dims[i] = x.dims[axes[i]];
        order[i] = (char)('0' + axes[i]);
    }
    ls_device_case_start(c, op, "%s %llu as %s", ls_op_name(op),
                         (unsigned long long)ls_tensor_elements(&x), order);
    memcpy(c->request.attributes.axes, axes, sizeof(transpositions[index].axes));
    if (op == LS_OP_TRANSPOSE)
        add_arguments(c, x, y, LS_DEVICE_EXACT, index);
    else
        add_arguments(c, y, x, LS_DEVICE_EXACT, index);
}

// ---- Upsampling ----

static const struct {
    int64_t x[RANK];
    int32_t factors[2];
} upsamplings[] = {
    {{1, 1, 1, 1}, {1, 1}},   {{2, 3, 5, 7}, {2, 2}},  {{2, 4, 4, 64}, {2, 2}},
    {{1, 5, 3, 24}, {3, 1}},  {{2, 1, 6, 17}, {2, 5}}, {{3, 2, 1, 16}, {4, 3}},
    {{2, 28, 28, 8}, {2, 2}},
};

enum { UPSAMPLINGS = sizeof(upsamplings) / sizeof(upsamplings[0]) };

// Each shape to the nearest, then each bilinear.
static void build_upsampling(struct ls_device_case *c, uint32_t op, size_t index)
{
    const size_t shape = index % UPSAMPLINGS;
    const struct ls_tensor_desc x = desc_of(upsamplings[shape].x);
    const int32_t *factors = upsamplings[shape].factors;
    const bool forward = op == LS_OP_UPSAMPLE2D;
    const struct ls_op_attributes attributes = {.function = (uint32_t)(index / UPSAMPLINGS),
                                                .strides = {factors[0], factors[1]}};
    struct ls_tensor_desc y = x;

    for (int i = 0; i < 2; i++)
        y.dims[1 + i] *= factors[i];
    ls_device_case_start(c, op, "%s %s %lldx%lldx%lld by %dx%d", ls_op_name(op),
                         attributes.function == LS_UPSAMPLE_NEAREST ? "nearest" : "bilinear",
                         (long long)x.dims[1], (long long)x.dims[2], (long long)x.dims[3],
                         factors[0], factors[1]);
    c->request.attributes = attributes;
    // A few products and sums of numbers up to 1, which can cancel.
    add_arguments(c, forward ? x : y, forward ? y : x,
                  attributes.function == LS_UPSAMPLE_NEAREST && forward ? LS_DEVICE_EXACT
                                                                        : LS_DEVICE_FUNCTION,
                  index);
}

void ls_device_move_cases(struct ls_device_suite *suite, uint32_t op)
{
    switch (op) {
    case LS_OP_CONCATENATE:
    case LS_OP_CONCATENATE_BACKWARD:
        run_all(suite, op, sizeof(concatenations) / sizeof(concatenations[0]), build_concatenation);
        break;
    case LS_OP_TRANSPOSE:
    case LS_OP_TRANSPOSE_BACKWARD:
        run_all(suite, op, sizeof(transpositions) / sizeof(transpositions[0]), build_transposition);
        break;
    case LS_OP_UPSAMPLE2D:
    case LS_OP_UPSAMPLE2D_BACKWARD:
        run_all(suite, op, UPSAMPLINGS * LS_UPSAMPLE_COUNT, build_upsampling);
        break;
    default: run_all(suite, op, sizeof(parts) / sizeof(parts[0]), build_part); break;
    }
}
