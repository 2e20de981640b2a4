// SPDX-License-Identifier: Apache-2.0
// Cases of the dense layer: forward, backward to the data, backward to the weights. x may have any
// dimensions: (B,H,W,C) is the flatten before it, in a device's own layout too; (B,T,C) has M = B T.
#include "tools/conformance/device/suite.h"

struct shape {
    uint32_t ndims;
    int64_t x[4];
    int64_t k, n;
};

static const struct shape shapes[] = {
    {2, {1, 1}, 1, 1},
    {2, {5, 784}, 784, 128},
    {2, {32, 784}, 784, 256},
    {2, {7, 128}, 128, 10},
    {2, {2, 17}, 17, 100},
    {2, {64, 33}, 33, 17},
    {2, {1, 1600}, 1600, 128},
    {4, {5, 5, 5, 64}, 1600, 128},
    {4, {2, 13, 13, 24}, 4056, 10},
    {4, {7, 3, 5, 17}, 255, 100},
    {4, {1, 7, 7, 33}, 1617, 17},
    {4, {2, 1, 1, 8}, 8, 256},
    {4, {3, 2, 3, 1}, 6, 10},
    {3, {2, 7, 33}, 33, 17},
    {3, {5, 3, 16}, 16, 128},
    {3, {2, 9, 10}, 90, 10},
    {2, {128, 16}, 16, 1},
    {2, {100, 256}, 256, 10},
    {2, {150, 3}, 3, 259},
    {2, {6, 2}, 2, 1028},
};

#define SHAPE_COUNT (sizeof(shapes) / sizeof(shapes[0]))

// y has the dimensions of x up to where K begins, then N.
static struct ls_device_linear linear_of(const struct shape *s)
{
    int64_t dims[LS_MAX_DIMS], rest = 1;
    uint32_t kept = s->ndims;
    char x[64] = "";
    size_t length = 0;

    while (rest < s->k)
        rest *= s->x[--kept];
    if (kept == s->ndims) // K is 1 and not a dimension of its own only when the last one is 1
        kept--;
    for (uint32_t i = 0; i < kept; i++)
        dims[i] = s->x[i];
    dims[kept] = s->n;
    for (uint32_t i = 1; i < s->ndims; i++)
        length += (size_t)snprintf(x + length, sizeof(x) - length, "%s%lld", i > 1 ? "x" : "",
                                   (long long)s->x[i]);
    struct ls_device_linear linear = {
        .name = "dense",
        .forward = LS_OP_DENSE,
        .backward_data = LS_OP_DENSE_BACKWARD_DATA,
        .backward_weights = LS_OP_DENSE_BACKWARD_WEIGHTS,
        .data_as_forward = true,
        .x = ls_device_desc(LS_F32, s->ndims, s->x),
        .w = LS_DEVICE_DESC(LS_F32, s->k, s->n),
        .b = LS_DEVICE_DESC(LS_F32, s->n),
        .y = ls_device_desc(LS_F32, kept + 1, dims),
    };
    snprintf(linear.shape, sizeof(linear.shape), "B=%lld %s K=%lld -> %lld", (long long)s->x[0], x,
             (long long)s->k, (long long)s->n);
    return linear;
}

void ls_device_dense_cases(struct ls_device_suite *suite, uint32_t op,
                           const struct ls_device_epilogue *epilogue)
{
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        if (epilogue && i % 3 != 1)
            continue;
        const struct ls_device_linear linear = linear_of(&shapes[i]);
        ls_device_linear_case(suite, &linear, op, i, epilogue);
    }
}
