// SPDX-License-Identifier: Apache-2.0
// Cases of categories: buckets, tables, ids as zeros and ones; products with a transposed kernel.
#include "core/operation/operation.h"

#include "tools/conformance/device/suite.h"

static const struct {
    int64_t b, t, r; // ids (B,T,R); R 0: (B,T)
    int64_t n; // boundaries, rows of a table, categories
    bool floats;
} shapes[] = {
    {1, 1, 0, 1, false},  {5, 7, 0, 3, true},    {3, 4, 5, 17, false},   {2, 1, 3, 64, true},
    {64, 3, 0, 9, false}, {4, 129, 0, 65, true}, {1, 1031, 0, 7, false}, {7, 2, 11, 1000, true},
};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static bool start(struct ls_device_case *c, uint32_t op, size_t number, uint32_t function,
                  struct ls_tensor_desc *out)
{
    const size_t s = number % SHAPES;
    struct ls_tensor_desc ids = LS_DEVICE_DESC(LS_I32, shapes[s].b, shapes[s].t, shapes[s].r);
    ids.ndims = shapes[s].r ? 3 : 2;
    ids.dtype = shapes[s].floats ? LS_F32 : LS_I32;
    ls_device_case_start(c, op, "%s B=%lld %lldx%lld of %lld%s function %u", ls_op_name(op),
                         (long long)shapes[s].b, (long long)shapes[s].t, (long long)shapes[s].r,
                         (long long)shapes[s].n, shapes[s].floats ? " floats" : "", function);
    c->request.attributes.function = function;
    *out = ids;
    return true;
}

// With memory for its values, which the case fills.
static void draw_input(struct ls_device_case *c, struct ls_tensor_desc desc)
{
    ls_device_case_draw(c, ls_device_case_input(c, LS_DEVICE_PLAIN, desc), LS_DEVICE_UNIFORM);
}

// Numbers from -2 to below `below`, some floats a little above; two may be bad.
static void fill_ids(struct ls_device_case *c, size_t number, int64_t below, bool bad)
{
    const size_t s = number % SHAPES;
    const int64_t count = shapes[s].b * shapes[s].t * (shapes[s].r ? shapes[s].r : 1);
    int32_t *ids = c->values[0];

    for (int64_t i = 0; ids && i < count; i++) {
        const int32_t id = (int32_t)((double)(below + 2) * ls_device_case_random(c)) - 2;
        ids[i] = id;
        if (shapes[s].floats)
            ((float *)c->values[0])[i] = (float)id + (i % 3 == 1 && id >= 0 ? 0.75f : 0.0f);
    }
    if (!ids || !bad)
        return;
    if (shapes[s].floats)
        ((float *)c->values[0])[count - 1] = 0x1p100f;
    else
        ids[count - 1] = INT32_MIN;
    if (shapes[s].floats)
        ids[0] = 0x7fc00000; // NaN
}

bool ls_device_bucket_case(struct ls_device_case *c, uint32_t op, size_t number)
{
    struct ls_tensor_desc x;
    if (number >= SHAPES || !start(c, op, number, 0, &x))
        return false;
    const int64_t n = shapes[number].n;
    const struct ls_tensor_desc boundaries = LS_DEVICE_DESC(LS_F32, n);
    draw_input(c, x);
    draw_input(c, boundaries);
    ls_device_case_values(c);
    fill_ids(c, number, n, true);
    float *values = c->values[1];
    for (int64_t i = 0; values && i < n; i++) // some of them equal
        values[i] = (float)(i / 2 * 2) - 1.0f + (i % 5 == 0 ? 0.0f : 0.5f);
    for (int64_t i = 1; values && i < n; i++)
        values[i] = values[i] < values[i - 1] ? values[i - 1] : values[i];
    x.dtype = LS_F32;
    ls_device_case_output(c, LS_DEVICE_ACTIVATION, x, LS_DEVICE_EXACT);
    return true;
}

// Every other number of a range, around a multiple of 65536; then ids far away, which are no key.
bool ls_device_lookup_case(struct ls_device_case *c, uint32_t op, size_t number)
{
    const size_t s = number % SHAPES;
    struct ls_tensor_desc x;
    if (number >= 2 * (size_t)SHAPES || !start(c, op, number, 0, &x))
        return false;
    const int64_t n = shapes[s].n, first = number < SHAPES ? -1 : 131072 - n;
    const struct ls_tensor_desc table = LS_DEVICE_DESC(LS_F32, n, 3);
    c->request.attributes.count = (uint32_t)(number % 4);
    c->request.attributes.offset = 2;
    draw_input(c, x);
    draw_input(c, table);
    ls_device_case_values(c);
    fill_ids(c, number, 2 * n, true);
    for (int64_t i = 0; c->values[0] && number >= SHAPES && i < x.dims[0] * x.dims[1]; i++)
        if (shapes[s].floats)
            ((float *)c->values[0])[i] += (float)first;
        else if (i % 7 != 3)
            ((int32_t *)c->values[0])[i] += (int32_t)first;
    float *values = c->values[1];
    for (int64_t i = 0; values && i < n; i++) {
        const int64_t key = first + 2 * i, low = (key % 65536 + 65536) % 65536;
        values[3 * i] = (float)((key - low) / 65536);
        values[3 * i + 1] = (float)low;
        values[3 * i + 2] = (float)(7 * i);
    }
    x.dtype = LS_F32;
    ls_device_case_output(c, LS_DEVICE_ACTIVATION, x, LS_DEVICE_EXACT);
    return true;
}

bool ls_device_encode_case(struct ls_device_case *c, uint32_t op, size_t number)
{
    const size_t s = number % SHAPES;
    const uint32_t function = (uint32_t)(number / SHAPES);
    struct ls_tensor_desc ids;
    if (function >= LS_ENCODE_COUNT || !start(c, op, number, function, &ids))
        return false;
    struct ls_tensor_desc y = {.dtype = LS_F32, .ndims = 1, .dims = {ids.dims[0]}};
    for (uint32_t i = function >= LS_ENCODE_MULTI_HOT ? 2 : 1; i < ids.ndims; i++)
        y.dims[y.ndims++] = ids.dims[i];
    if (function < LS_ENCODE_MULTI_HOT && y.dims[y.ndims - 1] == 1)
        y.ndims--;
    y.dims[y.ndims++] = shapes[s].n;
    c->request.attributes.count = (uint32_t)shapes[s].n;
    draw_input(c, ids);
    ls_device_case_values(c);
    fill_ids(c, number, shapes[s].n + 2, s % 2 == 1);
    ls_device_case_output(c, LS_DEVICE_ACTIVATION, y, LS_DEVICE_EXACT);
    if (s == 2)
        ls_device_case_accumulate(c, 0);
    return true;
}

// ---- Products with a transposed kernel ----

static const struct {
    uint32_t ndims;
    int64_t leading[3], k, n;
} products[] = {
    {2, {1}, 1, 1},          {2, {5}, 7, 3},      {3, {4, 33}, 17, 9}, {2, {300}, 64, 129},
    {4, {2, 3, 16}, 31, 16}, {3, {7, 1}, 2, 128}, {2, {65}, 3, 1031},
};

bool ls_device_transposed_case(struct ls_device_case *c, uint32_t op, size_t number)
{
    if (number >= sizeof(products) / sizeof(products[0]))
        return false;
    const uint32_t ndims = products[number].ndims;
    const int64_t k = products[number].k, n = products[number].n;
    const struct ls_tensor_desc w = LS_DEVICE_DESC(LS_F32, n, k);
    struct ls_tensor_desc x = {.dtype = LS_F32, .ndims = ndims}, y;
    for (uint32_t i = 0; i + 1 < ndims; i++)
        x.dims[i] = products[number].leading[i];
    y = x;
    x.dims[ndims - 1] = k;
    y.dims[ndims - 1] = n;
    const bool weights = op == LS_OP_DENSE_TRANSPOSED_BACKWARD_WEIGHTS,
               data = op == LS_OP_DENSE_TRANSPOSED_BACKWARD_DATA;

    ls_device_case_start(c, op, "%s B=%lld %u dimensions %lldx%lld", ls_op_name(op),
                         (long long)x.dims[0], ndims, (long long)k, (long long)n);
    for (int i = 0; i < 2; i++) { // x, w -> y; dy, w -> dx; x, dy -> dw
        const bool parameter = i == 1 && !weights;
        const struct ls_tensor_desc desc = parameter ? w : i == 1 || data ? y : x;
        const uint32_t index =
            ls_device_case_input(c, parameter ? LS_DEVICE_WEIGHTS : LS_DEVICE_ACTIVATION, desc);
        ls_device_case_draw(c, index, LS_DEVICE_UNIFORM);
    }
    c->magnitude_inputs = 3;
    ls_device_case_output(c, weights ? LS_DEVICE_WEIGHTS : LS_DEVICE_ACTIVATION,
                          weights ? w
                          : data  ? x
                                  : y,
                          LS_DEVICE_SUM);
    if (number % 3 == 1)
        ls_device_case_accumulate(c, 0);
    return true;
}
