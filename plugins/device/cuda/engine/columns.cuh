// SPDX-License-Identifier: Apache-2.0
// Sums of the columns of a matrix, as a kernel: threads of a block are beside each other over the columns, and each has several
// rows, which it asks memory for at once; then the block adds what its threads have, by halves. The order is that of the shape.
#ifndef LS_DEVICE_CUDA_COLUMNS_CUH
#define LS_DEVICE_CUDA_COLUMNS_CUH

#include "plugins/device/cuda/engine/grid.cuh"
#include "plugins/device/cuda/engine/store_body.h"

template <uint32_t type> struct cuda_number {
    using in_memory = float;
};
template <> struct cuda_number<CUDA_DOUBLES> {
    using in_memory = double;
};

template <uint32_t type, int pack, typename number>
__device__ inline void cuda_get_columns(const void *values, int64_t i, number (&out)[pack])
{
    if constexpr (pack == 4) {
        const cuda_four four = cuda_load_four(values, type, i);
        for (int k = 0; k < pack; k++)
            out[k] = four.v[k];
    } else if constexpr (type == CUDA_DOUBLES)
        out[0] = ((const double *)values)[i];
    else
        out[0] = cuda_load(values, type, i);
}

// The last rows first: the end of what was just written may still be in the cache.
template <uint32_t type, int pack>
__device__ inline void cuda_add_rows(const cuda_column_sums &c, int64_t first, int64_t column,
                                     double (&sums)[pack])
{
    const int64_t step = c.parts * c.down;
    for (int64_t k = c.turns; k > 0; k -= CUDA_ROWS_AHEAD) {
        typename cuda_number<type>::in_memory x[CUDA_ROWS_AHEAD][pack];
        bool inside[CUDA_ROWS_AHEAD];
        for (int e = 0; e < CUDA_ROWS_AHEAD; e++) { // row 0 instead of a branch between loads
            const int64_t row = first + (k - 1 - e) * step;
            inside[e] = k > e && row < c.rows;
            cuda_get_columns<type>(c.values, (inside[e] ? row : 0) * c.columns + column, x[e]);
        }
        for (int e = 0; e < CUDA_ROWS_AHEAD; e++)
            for (int p = 0; p < pack; p++)
                sums[p] += inside[e] ? (double)x[e][p] : 0;
    }
}

template <uint32_t type, int pack>
__global__ void __launch_bounds__(CUDA_BLOCK, 3) cuda_add_columns(const __grid_constant__ struct cuda_column_sums c)
{
    __shared__ double shared[pack][CUDA_BLOCK];
    const uint32_t thread = threadIdx.x, down = thread / c.across;
    const uint32_t part = blockIdx.x / c.tiles, tile = blockIdx.x - part * c.tiles;
    const int64_t column = ((int64_t)tile * c.across + thread - down * c.across) * pack;
    double sums[pack] = {0};
    if (down < c.down && column < c.columns)
        cuda_add_rows<type>(c, (int64_t)part * c.down + down, column, sums);
    for (int p = 0; p < pack; p++)
        shared[p][thread] = sums[p];
    for (uint32_t left = c.down; left > 1;) {
        const uint32_t half = (left + 1) / 2;
        __syncthreads();
        for (int p = 0; p < pack && down + half < left; p++)
            shared[p][thread] += shared[p][thread + half * c.across];
        left = half;
    }
    cuda_store store = c.store;
    store.epilogue = 0; // known
    for (int p = 0; p < pack && down == 0 && column < c.columns; p++)
        if (c.sums)
            c.sums[part * c.columns + column + p] = shared[p][thread];
        else
            cuda_put(&store, column + p, (float)shared[p][thread]);
}

extern "C" unsigned cuda_column_sums_launch(const struct cuda_column_sums *c, struct CUstream_st *stream)
{
    const dim3 blocks(c->tiles * (unsigned)c->parts);
    if (c->type == CUDA_DOUBLES)
        return launch<cuda_add_columns<CUDA_DOUBLES, 1>>(blocks, CUDA_BLOCK, stream, *c);
    return for_type(c->type, [&](auto type) {
        return for_pack(c->pack, [&](auto pack) { return launch<cuda_add_columns<type, pack>>(blocks, CUDA_BLOCK, stream, *c); });
    });
}

#endif
