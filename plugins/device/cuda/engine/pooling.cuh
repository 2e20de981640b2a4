// SPDX-License-Identifier: Apache-2.0
// Max-pooling as kernels: a thread has one or four channels of one place, and all that it asks
// memory for at once. Channels of four are counted as one, so that no index is above 2^31. Types
// and shapes that are usual are known to the compiler.
#ifndef LS_DEVICE_CUDA_POOLING_CUH
#define LS_DEVICE_CUDA_POOLING_CUH

#include "plugins/device/cuda/engine/division.h"
#include "plugins/device/cuda/engine/grid.cuh"
#include "plugins/device/cuda/engine/store_body.h"

// What comes behind: nothing, or the derivative of a ReLU whose result is x: at the element that
// won, x is what the window gave.
enum cuda_pooled { CUDA_POOLED_PLAIN, CUDA_POOLED_RELU, CUDA_POOLED_ANYTHING };

struct cuda_pooled_place {
    uint32_t b, h, w, c;
};

__device__ inline cuda_pooled_place cuda_pooled_place_of(uint32_t i, cuda_divisor rows,
                                                         cuda_divisor columns,
                                                         cuda_divisor channels)
{
    cuda_pooled_place p;
    uint32_t rest = cuda_divide(i, channels);
    p.c = i - rest * channels.by;
    i = cuda_divide(rest, columns);
    p.w = rest - i * columns.by;
    p.b = cuda_divide(i, rows);
    p.h = i - p.b * rows.by;
    return p;
}

// ---- `pack` channels in memory: number i of them ----

template <uint32_t type, int pack>
__device__ inline cuda_four cuda_get(const void *values, uint32_t i)
{
    return cuda_take(values, type, (int64_t)i * pack, pack);
}

template <uint32_t type, int pack, cuda_pooled known>
__device__ inline void cuda_set(const cuda_store &store, uint32_t i, const cuda_four &values)
{
    cuda_store to = store;
    to.type = type;
    if (known != CUDA_POOLED_ANYTHING)
        to.epilogue = to.add = 0;
    cuda_give(&to, (int64_t)i * pack, values, pack);
}

// Which element of its window won.
template <int pack>
__device__ inline void cuda_get_winners(const cuda_pooling &p, uint32_t i, int32_t (&out)[pack])
{
    if constexpr (pack == 4) {
        const uchar4 four = ((const uchar4 *)p.saved)[i];
        out[0] = four.x, out[1] = four.y, out[2] = four.z, out[3] = four.w;
    } else
        out[0] = p.wide ? ((const int32_t *)p.saved)[i] : ((const uint8_t *)p.saved)[i];
}

template <int pack>
__device__ inline void cuda_set_winners(const cuda_pooling &p, uint32_t i,
                                        const int32_t (&values)[pack])
{
    if constexpr (pack == 4)
        ((uchar4 *)p.saved)[i] = make_uchar4((uint8_t)values[0], (uint8_t)values[1],
                                             (uint8_t)values[2], (uint8_t)values[3]);
    else if (p.wide)
        ((int32_t *)p.saved)[i] = values[0];
    else
        ((uint8_t *)p.saved)[i] = (uint8_t)values[0];
}

// ---- Forward ----

// Item: `pack` channels of y. `side` x `side` elements are read before they are compared.
template <uint32_t type, int pack, int side, cuda_pooled known>
__device__ void cuda_max_pool(const cuda_pooling &p, uint32_t i)
{
    const cuda_pooled_place at = cuda_pooled_place_of(i, p.out_rows, p.out_columns, p.channels);
    const int32_t top = (int32_t)at.h * (int32_t)p.strides[0].by - p.before[0];
    const int32_t left = (int32_t)at.w * (int32_t)p.strides[1].by - p.before[1];
    const int32_t rows = side > 1 ? side : p.size[0], columns = side > 1 ? side : p.size[1];
    cuda_four best = {{0}};
    int32_t winners[pack];
    for (int k = 0; k < pack; k++)
        winners[k] = -1;
    for (int32_t kh = 0; kh < rows; kh += side)
        for (int32_t kw = 0; kw < columns; kw += side) {
            cuda_four x[side * side];
            bool inside[side * side];
            for (int e = 0; e < side * side; e++) {
                const uint32_t h = (uint32_t)(top + kh + e / side);
                const uint32_t w = (uint32_t)(left + kw + e % side);
                inside[e] = h < p.rows.by && w < p.columns.by;
                const uint32_t from =
                    ((at.b * p.rows.by + h) * p.columns.by + w) * p.channels.by + at.c;
                x[e] = cuda_get<type, pack>(p.in, inside[e] ? from : 0); // no branch between loads
            }
            for (int e = 0; e < side * side; e++)
                for (int k = 0; k < pack; k++) {
                    const float found = x[e].v[k];
                    const bool wins = inside[e] & ((winners[k] < 0) | (found > best.v[k]));
                    best.v[k] = wins ? found : best.v[k];
                    winners[k] = wins ? (kh + e / side) * columns + kw + e % side : winners[k];
                }
        }
    if (p.saved)
        cuda_set_winners(p, i, winners);
    cuda_set<type, pack, known>(p.store, i, best);
}

// ---- Backward ----

// What the gradient of a window becomes by the derivative of the ReLU.
template <uint32_t type, int pack>
__device__ inline cuda_four cuda_get_slopes(const cuda_pooling &p, uint32_t i)
{
    cuda_four y = cuda_get<type, pack>(p.largest, i);
    for (int k = 0; k < pack; k++)
        y.v[k] = cuda_slope(p.store.activation == LS_RELU6 ? LS_RELU6 : LS_RELU, 0, y.v[k]);
    return y;
}

// Windows that do not overlap. Item: `pack` channels of a row of dx, as many columns as windows are
// apart: those of one window, and those behind it that belong to none.
template <uint32_t type, int pack, cuda_pooled known>
__device__ void cuda_max_pool_apart(const cuda_pooling &p, uint32_t i)
{
    const cuda_pooled_place at = cuda_pooled_place_of(i, p.rows, p.steps, p.channels);
    const uint32_t row = at.h + (uint32_t)p.before[0], oh = cuda_divide(row, p.strides[0]);
    const int32_t kh = (int32_t)(row - oh * p.strides[0].by);
    cuda_four dx = {{0}}, slopes;
    int32_t winners[pack]; // columns of the window
    for (int k = 0; k < pack; k++)
        winners[k] = -1;
    if (kh < p.size[0] && oh < p.out_rows.by && at.w < p.out_columns.by) {
        const uint32_t from =
            ((at.b * p.out_rows.by + oh) * p.out_columns.by + at.w) * p.channels.by + at.c;
        const cuda_four dy = cuda_get<type, pack>(p.in, from);
        cuda_get_winners(p, from, winners);
        if (known == CUDA_POOLED_RELU)
            slopes = cuda_get_slopes<type, pack>(p, from);
        for (int k = 0; k < pack; k++) {
            dx.v[k] += dy.v[k];
            if (known == CUDA_POOLED_RELU)
                dx.v[k] *= slopes.v[k];
            winners[k] -= kh * p.size[1];
            winners[k] = winners[k] < p.size[1] ? winners[k] : -1;
        }
    }
    const int32_t stride = (int32_t)p.strides[1].by, left = (int32_t)at.w * stride - p.before[1];
    const int32_t right = (int32_t)p.columns.by - left;
    const uint32_t start = (at.b * p.rows.by + at.h) * p.columns.by;
    for (int32_t kw = left < 0 ? -left : 0; kw < stride && kw < right; kw++) {
        cuda_four out = {{0}};
        for (int k = 0; k < pack; k++)
            out.v[k] = winners[k] == kw ? dx.v[k] : 0;
        cuda_set<type, pack, known>(p.store, (start + (uint32_t)(left + kw)) * p.channels.by + at.c,
                                    out);
    }
}

// The first window that reads this row (d = 0) or column (1), and the one behind the last.
struct cuda_windows {
    uint32_t first, end;
};

__device__ inline cuda_windows cuda_windows_over(const cuda_pooling &p, int d, uint32_t at,
                                                 uint32_t most)
{
    const uint32_t size = (uint32_t)p.size[d];
    cuda_windows out;
    out.first = at < size ? 0 : cuda_divide(at - size, p.strides[d]) + 1;
    out.end = cuda_divide(at, p.strides[d]) + 1;
    out.end = out.end < most ? out.end : most;
    return out;
}

// Any windows. Item: `pack` channels of dx, which adds what its windows have for it, in row order.
template <uint32_t type, int pack, cuda_pooled known>
__device__ void cuda_max_pool_overlapping(const cuda_pooling &p, uint32_t i)
{
    const cuda_pooled_place at = cuda_pooled_place_of(i, p.rows, p.columns, p.channels);
    const uint32_t row = at.h + (uint32_t)p.before[0], column = at.w + (uint32_t)p.before[1];
    const cuda_windows rows = cuda_windows_over(p, 0, row, p.out_rows.by);
    const cuda_windows columns = cuda_windows_over(p, 1, column, p.out_columns.by);
    cuda_four dx = {{0}}, factors = {{0}}, slopes;
    for (uint32_t oh = rows.first; oh < rows.end; oh++)
        for (uint32_t ow = columns.first; ow < columns.end; ow++) {
            const uint32_t from =
                ((at.b * p.out_rows.by + oh) * p.out_columns.by + ow) * p.channels.by + at.c;
            const int32_t own = (int32_t)((row - oh * p.strides[0].by) * (uint32_t)p.size[1] +
                                          column - ow * p.strides[1].by);
            int32_t winners[pack];
            const cuda_four dy = cuda_get<type, pack>(p.in, from);
            cuda_get_winners(p, from, winners);
            if (known == CUDA_POOLED_RELU)
                slopes = cuda_get_slopes<type, pack>(p, from);
            for (int k = 0; k < pack; k++) {
                const bool won = winners[k] == own;
                dx.v[k] += won ? dy.v[k] : 0;
                if (known == CUDA_POOLED_RELU)
                    factors.v[k] = won ? slopes.v[k] : factors.v[k];
            }
        }
    for (int k = 0; k < pack && known == CUDA_POOLED_RELU; k++)
        dx.v[k] *= factors.v[k];
    cuda_set<type, pack, known>(p.store, i, dx);
}

// ---- Launches: by what each is, by channels of an item, by what it knows of the window and of
// what comes behind ----

template <void (*body)(const cuda_pooling &, uint32_t)>
__global__ void __launch_bounds__(threads)
    cuda_run_pooling(const __grid_constant__ struct cuda_pooling p)
{
    const uint32_t i = blockIdx.x * threads + threadIdx.x;
    if (i < p.items)
        body(p, i);
}

template <void (*body)(const cuda_pooling &, uint32_t)>
unsigned cuda_start_pooling(const struct cuda_pooling *p, cudaStream_t stream)
{
    const dim3 blocks((p->items + threads - 1) / threads);
    return launch<cuda_run_pooling<body>>(blocks, threads, stream, *p);
}

extern "C" unsigned cuda_pooling_launch(uint32_t kernel, const struct cuda_pooling *p,
                                        struct CUstream_st *stream)
{
    const bool plain = !p->store.epilogue && !p->store.add;
    const bool small = p->size[0] == 2 && p->size[1] == 2;
    return for_type(p->store.type, [&](auto type) {
        return for_pack(p->pack, [&](auto pack) {
            if (kernel == cuda_pooling_forward)
                return !plain
                           ? cuda_start_pooling<cuda_max_pool<type, pack, 1, CUDA_POOLED_ANYTHING>>(
                                 p, stream)
                       : small
                           ? cuda_start_pooling<cuda_max_pool<type, pack, 2, CUDA_POOLED_PLAIN>>(
                                 p, stream)
                           : cuda_start_pooling<cuda_max_pool<type, pack, 1, CUDA_POOLED_PLAIN>>(
                                 p, stream);
            return for_flag(kernel == cuda_pooling_apart, [&](auto apart) {
                const auto backward = [&](auto known) {
                    if constexpr (apart)
                        return cuda_start_pooling<
                            cuda_max_pool_apart<type, pack, (cuda_pooled)(uint32_t)known>>(p,
                                                                                           stream);
                    else
                        return cuda_start_pooling<
                            cuda_max_pool_overlapping<type, pack, (cuda_pooled)(uint32_t)known>>(
                            p, stream);
                };
                return p->largest ? backward(constant<CUDA_POOLED_RELU>())
                       : plain    ? backward(constant<CUDA_POOLED_PLAIN>())
                                  : backward(constant<CUDA_POOLED_ANYTHING>());
            });
        });
    });
}

#endif
