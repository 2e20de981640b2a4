// SPDX-License-Identifier: Apache-2.0
// Categories: a thread has an element of the result. Tables and boundaries are in ascending order,
// so it halves them; of ids as zeros and ones it reads all that its row is made of. What they do
// with numbers that are none (NaN, or outside of the categories) is in core/plugin/operations.h.
#ifndef LS_DEVICE_CUDA_CATEGORIES_CUH
#define LS_DEVICE_CUDA_CATEGORIES_CUH

#include "plugins/device/cuda/engine/grid.cuh"
#include "plugins/device/cuda/engine/store_body.h"

namespace categories {

// The first of `count` from which on `reached` says yes.
template <typename function>
__device__ inline int64_t first_of(int64_t count, const function &reached)
{
    int64_t low = 0, high = count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (reached(middle))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

// The integer part. False: no int64 holds it, or it is NaN.
__device__ inline bool whole_of(const struct cuda_categories *c, int64_t i, int64_t *out)
{
    if (!c->whole && !(c->floats[i] >= -0x1p63f && c->floats[i] < 0x1p63f))
        return false;
    *out = c->whole ? (int64_t)c->whole[i] : (int64_t)c->floats[i];
    return true;
}

__device__ inline void bucket(const struct cuda_categories *c, int64_t i)
{
    const float x = c->whole ? (float)c->whole[i] : c->floats[i];
    const int64_t below = first_of(c->table_rows, [&](int64_t k) { return x < c->table[k]; });
    cuda_put(&c->store, i, (float)below);
}

__device__ inline int64_t key_at(const struct cuda_categories *c, int64_t row)
{
    return (int64_t)c->table[3 * row] * 65536 + (int64_t)c->table[3 * row + 1];
}

__device__ inline void lookup(const struct cuda_categories *c, int64_t i)
{
    const int64_t count = c->count;
    int64_t x;
    float found = NAN;
    if (whole_of(c, i, &x)) {
        const int64_t row = first_of(c->table_rows, [&](int64_t k) { return key_at(c, k) >= x; });
        if (row < c->table_rows && key_at(c, row) == x) {
            found = c->table[3 * row + 2];
        } else if (count > 0) {
            const int64_t remainder = x % count; // of a negative one negative
            found = c->offset + (float)(remainder < 0 ? remainder + count : remainder);
        }
    }
    cuda_put(&c->store, i, found);
}

// Whether an id makes all that it would count in NaN.
__device__ inline bool is_wrong(const struct cuda_categories *c, int64_t i)
{
    if (c->whole)
        return c->whole[i] < 0 && c->function != LS_ENCODE_ONE_HOT;
    return isnan(c->floats[i]) || (c->floats[i] <= -1 && c->function != LS_ENCODE_ONE_HOT);
}

// ids (B,together,rest) -> y (B,rest,count)
__device__ inline void encode(const struct cuda_categories *c, int64_t i)
{
    const int64_t row = cuda_quotient(i, c->count), category = i - row * c->count;
    const int64_t example = cuda_quotient(row, c->rest);
    int64_t id, at = example * c->together * c->rest + (row - example * c->rest);
    float found = 0;
    for (int64_t t = 0; t < c->together; t++, at += c->rest) {
        if (is_wrong(c, at))
            found = NAN;
        else if (whole_of(c, at, &id) && id == category)
            found = c->function == LS_ENCODE_COUNTS || isnan(found) ? found + 1 : 1;
    }
    cuda_put(&c->store, i, found);
}

} // namespace categories

extern "C" unsigned cuda_categories_launch(uint32_t kernel, const struct cuda_categories *c,
                                           struct CUstream_st *stream)
{
    using namespace categories;
    switch (kernel) {
    case cuda_categories_bucket: return start<struct cuda_categories, bucket>(c, c->items, stream);
    case cuda_categories_lookup: return start<struct cuda_categories, lookup>(c, c->items, stream);
    default: return start<struct cuda_categories, encode>(c, c->items, stream);
    }
}

#endif
