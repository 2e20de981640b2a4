// SPDX-License-Identifier: Apache-2.0
// Tensors that are walked together, some of them repeated along some dimensions: element by element, or folded into sums and largest
// elements. What becomes of an element of each is a term, the same for all threads.
#ifndef LS_DEVICE_CUDA_WALK_CUH
#define LS_DEVICE_CUDA_WALK_CUH

#include "plugins/device/cuda/engine/grid.cuh"
#include "plugins/device/cuda/engine/random_body.h"
#include "plugins/device/cuda/engine/store_body.h"

namespace walks {

// Adds where each tensor has the element with this index.
template <int tensors>
__device__ inline void go_to(const struct cuda_walk &walk, int64_t index, int64_t (&at)[tensors])
{
    for (int d = walk.dims - 1; d >= 0; d--) {
        const int64_t above = d ? cuda_quotient(index, walk.size[d]) : 0;
        for (int t = 0; t < tensors; t++)
            at[t] += (index - above * walk.size[d]) * walk.step[t][d];
        index = above;
    }
}

// The same by divisors, for indices below 2^31.
template <int tensors>
__device__ inline void go_to(const struct cuda_walk &walk, const struct cuda_divisor *by, uint32_t index, int64_t (&at)[tensors])
{
    for (int d = walk.dims - 1; d >= 0; d--) {
        const uint32_t above = d ? cuda_divide(index, by[d]) : 0;
        for (int t = 0; t < tensors; t++)
            at[t] += (int64_t)(index - above * (d ? by[d].by : 0)) * walk.step[t][d];
        index = above;
    }
}

__device__ inline bool repeats(const struct cuda_walk &walk, int tensor)
{
    return walk.dims == 0 || walk.step[tensor][walk.dims - 1] == 0;
}

// ---- Terms ----

// NaN where one is.
__device__ inline float pair_of(uint32_t function, float a, float b)
{
    switch (function) {
    case LS_PAIR_SUBTRACT: return a - b;
    case LS_PAIR_MULTIPLY: return a * b;
    case LS_PAIR_DIVIDE: return a / b;
    case LS_PAIR_MAXIMUM: return a >= b || a != a ? a : b;
    case LS_PAIR_MINIMUM: return a <= b || a != a ? a : b;
    default: return a + b;
    }
}

__device__ inline float pair_gradient(uint32_t function, bool by_b, float dy, float a, float b)
{
    switch (function) {
    case LS_PAIR_SUBTRACT: return by_b ? -dy : dy;
    case LS_PAIR_MULTIPLY: return dy * (by_b ? a : b);
    case LS_PAIR_DIVIDE: return by_b ? -dy * (a / b / b) : dy / b;
    case LS_PAIR_MAXIMUM: return (a >= b) != by_b ? dy : 0;
    case LS_PAIR_MINIMUM: return (a <= b) != by_b ? dy : 0;
    default: return dy;
    }
}

template <int tensors>
__device__ inline float term_of(uint32_t term, uint32_t function, const float (&x)[tensors])
{
    constexpr int second = tensors > 1 ? 1 : 0, third = tensors > 2 ? 2 : 0, fourth = tensors > 3 ? 3 : 0;
    switch (term) {
    case cuda_term_pair: return pair_of(function, x[0], x[second]);
    case cuda_term_pair_first: return pair_gradient(function, false, x[0], x[second], x[third]);
    case cuda_term_pair_second: return pair_gradient(function, true, x[0], x[second], x[third]);
    case cuda_term_equal: return x[0] == x[second] ? 1.0f : 0.0f;
    case cuda_term_share: return x[second] == x[third] ? x[0] / x[fourth] : 0;
    case cuda_term_prelu: return x[0] > 0 ? x[0] : x[second] * x[0];
    case cuda_term_prelu_data: return x[second] > 0 ? x[0] : x[second] < 0 ? x[third] * x[0] : 0;
    case cuda_term_prelu_slope: return x[second] < 0 ? x[second] * x[0] : 0;
    default: return x[0];
    }
}

// The terms of a pack. repeated: bit t is 1 where tensor t has one element for all of them.
template <int tensors, int pack>
__device__ inline struct cuda_four terms_of(const void *const *values, uint32_t type, uint32_t term, uint32_t function,
                                            uint32_t repeated, const int64_t (&at)[tensors])
{
    struct cuda_four x[tensors], out = {{0}};
    for (int t = 0; t < tensors; t++) {
        const bool one = pack == 1 || (repeated >> t & 1);
        x[t] = cuda_take(values[t], t == 3 ? (uint32_t)CUDA_FLOAT : type, at[t], one ? 1 : pack);
        for (int k = 1; one && k < pack; k++)
            x[t].v[k] = x[t].v[0];
    }
    for (int k = 0; k < pack; k++) {
        float element[tensors];
        for (int t = 0; t < tensors; t++)
            element[t] = x[t].v[k];
        out.v[k] = term_of<tensors>(term, function, element);
    }
    return out;
}

template <int tensors>
__device__ inline uint32_t repeated_in(const struct cuda_walk &walk)
{
    uint32_t bits = 0;
    for (int t = 0; t < tensors; t++)
        bits |= (uint32_t)repeats(walk, t) << t;
    return bits;
}

// ---- Element by element ----

template <int tensors, int pack>
__device__ void elements(const struct cuda_broadcast *b, int64_t i)
{
    int64_t at[tensors] = {0};
    go_to<tensors>(b->walk, i * pack, at);
    struct cuda_four out = terms_of<tensors, pack>(b->values, b->type, b->term, b->function, repeated_in<tensors>(b->walk), at);
    for (int k = 0; k < pack && b->term == cuda_term_value; k++)
        out.v[k] *= b->factor;
    cuda_give(&b->store, i * pack, out, pack);
}

// Draws that elements share. The first tensor is x, the others are no tensors.
__device__ inline void dropout(const struct cuda_broadcast *b, int64_t i)
{
    int64_t at[3] = {0};
    go_to<3>(b->walk, i, at);
    const uint64_t key = cuda_draw_key(b->record, b->key, at[2]);
    const float x = cuda_load(b->values[0], b->type, at[0]);
    cuda_put(&b->store, i, cuda_keep(key, (uint32_t)at[1], b->rate) ? x / (1 - b->rate) : 0);
}

// ---- Folded ----

__device__ inline double joined(bool largest, double a, double b)
{
    if (!largest)
        return a + b;
    return b > a || b != b ? b : a; // a NaN stays
}

// What a thread has of its outputs, whose elements begin at `from`.
template <int tensors, int pack>
__device__ inline void fold_elements(const struct cuda_fold &f, uint32_t first, uint32_t step, const int64_t (&from)[tensors],
                                     double (&sums)[pack])
{
    constexpr int ahead = pack == 4 ? 2 : 4; // more would not fit into registers
    const uint32_t repeated = repeated_in<tensors>(f.rows ? f.folded : f.kept);
    const uint32_t unit = f.rows ? pack : 1, count = (uint32_t)f.each / unit;
    for (uint32_t k = first; k < count; k += ahead * step) {
        struct cuda_four terms[ahead];
#pragma unroll
        for (int e = 0; e < ahead; e++) { // the first again instead of a branch between loads
            int64_t at[tensors];
            for (int t = 0; t < tensors; t++)
                at[t] = from[t];
            go_to<tensors>(f.folded, f.folded_by, (k + e * step < count ? k + e * step : k) * unit, at);
            terms[e] = terms_of<tensors, pack>(f.values, f.type, f.term, f.function, repeated, at);
        }
#pragma unroll
        for (int e = 0; e < ahead; e++)
            for (int p = 0; p < pack; p++)
                if (k + e * step < count)
                    sums[p] = joined(f.largest, sums[p], (double)terms[e].v[p]);
    }
}

__device__ inline void fold_doubles(const struct cuda_fold &f, uint32_t first, uint32_t step, uint32_t output, double (&sums)[1])
{
    for (uint32_t k = first; k < f.each; k += step)
        sums[0] = joined(f.largest, sums[0], ((const double *)f.values[0])[k * f.outputs + output]);
}

// tensors: 0 where what is folded are the parts of an earlier one.
template <int tensors, int pack>
__global__ void __launch_bounds__(threads) fold(const __grid_constant__ struct cuda_fold f)
{
    __shared__ double shared[pack][threads];
    const int thread = (int)threadIdx.x;
    const int side = f.rows ? thread / f.down : thread % f.across, down = f.rows ? thread % f.down : thread / f.across;
    const int next = f.rows ? 1 : f.across; // thread of the same output
    const uint32_t outputs = f.rows ? 1 : pack; // of a thread
    for (uint32_t block = blockIdx.x; block < (uint32_t)(f.tiles * f.part_count); block += gridDim.x) {
        const uint32_t part = block / (uint32_t)f.tiles, tile = block - part * (uint32_t)f.tiles;
        const uint32_t output = (tile * (uint32_t)f.across + (uint32_t)side) * outputs;
        double sums[pack];
        for (int p = 0; p < pack; p++)
            sums[p] = f.largest ? -INFINITY : 0;
        if (output < f.outputs) {
            const uint32_t first = part * (uint32_t)f.down + (uint32_t)down, step = (uint32_t)(f.part_count * f.down);
            if constexpr (tensors == 0) {
                fold_doubles(f, first, step, output, sums);
            } else {
                int64_t from[tensors] = {0};
                go_to<tensors>(f.kept, f.kept_by, output, from);
                fold_elements<tensors, pack>(f, first, step, from, sums);
            }
        }
        for (int p = 1; f.rows && p < pack; p++)
            sums[0] = joined(f.largest, sums[0], sums[p]);
        for (int p = 0; p < pack; p++)
            shared[p][thread] = sums[p];
        for (int half = f.down / 2; half > 0; half /= 2) {
            __syncthreads();
            for (uint32_t p = 0; p < outputs && down < half; p++)
                shared[p][thread] = joined(f.largest, shared[p][thread], shared[p][thread + half * next]);
        }
        for (uint32_t p = 0; p < outputs && down == 0 && output < f.outputs; p++)
            if (f.parts)
                f.parts[part * f.outputs + output + p] = shared[p][thread];
            else
                cuda_put(&f.store, output + p, (float)(shared[p][thread] * f.share));
        __syncthreads(); // the next turn writes what is read here
    }
}

} // namespace walks

extern "C" unsigned cuda_broadcast_launch(const struct cuda_broadcast *b, struct CUstream_st *stream)
{
    if (b->term == cuda_term_dropout)
        return start<struct cuda_broadcast, walks::dropout>(b, b->count, stream);
    return for_pack(b->pack, [&](auto pack) {
        const int64_t items = b->count / pack;
        switch (b->tensors) {
        case 1: return start<struct cuda_broadcast, walks::elements<1, pack>>(b, items, stream);
        case 2: return start<struct cuda_broadcast, walks::elements<2, pack>>(b, items, stream);
        case 3: return start<struct cuda_broadcast, walks::elements<3, pack>>(b, items, stream);
        default: return start<struct cuda_broadcast, walks::elements<4, pack>>(b, items, stream);
        }
    });
}

extern "C" unsigned cuda_fold_launch(const struct cuda_fold *f, struct CUstream_st *stream)
{
    const int64_t blocks = f->tiles * f->part_count;
    if (f->type == CUDA_DOUBLES)
        return start_blocks<walks::fold<0, 1>>(f, blocks, stream);
    return for_pack(f->pack, [&](auto pack) {
        return f->tensors == 1   ? start_blocks<walks::fold<1, pack>>(f, blocks, stream)
               : f->tensors == 2 ? start_blocks<walks::fold<2, pack>>(f, blocks, stream)
                                 : start_blocks<walks::fold<3, pack>>(f, blocks, stream);
    });
}

#endif
