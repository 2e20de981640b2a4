// SPDX-License-Identifier: Apache-2.0
// Rows of a table by index, and their gradient: no atomics, and an order of adding that the indices
// alone decide. Positions are sorted by row: tiles of one block each, then runs that are merged,
// twice as long each time, where a key finds its place by looking up how many of the other run are
// before it. Then a block adds what belongs to one row: threads over the columns, and groups of
// threads with parts of the positions, one after the other.
#ifndef LS_DEVICE_CUDA_GATHER_CUH
#define LS_DEVICE_CUDA_GATHER_CUH

#include "plugins/device/cuda/engine/grid.cuh"
#include "plugins/device/cuda/engine/store_body.h"

namespace gathering
{

static_assert(CUDA_GATHER_TILE == threads, "a thread has one key");

// The row of a position; that behind the last one: none.
__device__ inline int64_t row_of(const struct cuda_gather &g, int64_t i)
{
    if (g.float_ids) {
        const float id = truncf(((const float *)g.ids)[i]);
        return id >= 0 && id < (float)g.rows && (int64_t)id < g.rows ? (int64_t)id : g.rows;
    }
    const int32_t id = ((const int32_t *)g.ids)[i];
    return id >= 0 && id < g.rows ? id : g.rows;
}

// ---- Forward: an item is one column, or four, of a position ----

__device__ inline void take_row(const struct cuda_gather *g, int64_t i)
{
    const int64_t position = cuda_quotient(i, g->packs), row = row_of(*g, position);
    const int64_t column = i - position * g->packs;
    if (g->pack == 4) {
        struct cuda_four four = {{NAN, NAN, NAN, NAN}};
        if (row < g->rows)
            four = cuda_load_four(g->from, CUDA_FLOAT, row * g->width + 4 * column);
        cuda_put_four(&g->store, 4 * i, four);
    } else {
        const int64_t from = row * g->width + column;
        cuda_put(&g->store, i, row < g->rows ? cuda_load(g->from, CUDA_FLOAT, from) : NAN);
    }
}

// ---- Backward: sorting ----

__device__ inline uint64_t key_of(int64_t row, int64_t position)
{
    return (uint64_t)row << 32 | (uint64_t)position;
}

// How many of the sorted keys are smaller.
__device__ inline int64_t count_before(const uint64_t *keys, int64_t count, uint64_t key)
{
    int64_t first = 0;
    while (first < count) {
        const int64_t middle = (first + count) / 2;
        if (keys[middle] < key)
            first = middle + 1;
        else
            count = middle;
    }
    return first;
}

__global__ void __launch_bounds__(threads) sort_tiles(const __grid_constant__ struct cuda_gather g)
{
    __shared__ uint64_t tile[threads];
    for (int64_t first = (int64_t)blockIdx.x * threads; first < g.count;
         first += (int64_t)gridDim.x * threads) {
        const int64_t i = first + threadIdx.x;
        const uint64_t key = i < g.count ? key_of(row_of(g, i), i) : UINT64_MAX;
        tile[threadIdx.x] = key;
        __syncthreads();
        int before = 0;
        for (unsigned k = 0; k < threads; k++)
            before += tile[k] < key;
        if (i < g.count)
            g.sorted[first + before] = key;
        __syncthreads();
    }
}

// An item is a key of g->keys, where runs of g->run keys are sorted.
__device__ inline void merge_runs(const struct cuda_gather *g, int64_t i)
{
    const int64_t mine = cuda_quotient(i, g->run), other = (mine ^ 1) * g->run;
    const int64_t left = g->count - other;
    const uint64_t key = g->keys[i];
    const int64_t before =
        left > 0 ? count_before(g->keys + other, left < g->run ? left : g->run, key) : 0;
    g->sorted[i - (mine & 1) * g->run + before] = key;
}

// An item is a row, or that behind the last one.
__device__ inline void find_row(const struct cuda_gather *g, int64_t i)
{
    g->starts[i] = (int32_t)count_before(g->sorted, g->count, key_of(i, 0));
}

// ---- Backward: adding ----

template <int pack>
__global__ void __launch_bounds__(threads) add_rows(const __grid_constant__ struct cuda_gather g)
{
    __shared__ struct cuda_four parts[threads];
    const int down = (int)threads / g.across, y = (int)threadIdx.x / g.across,
              x = (int)threadIdx.x - y * g.across;
    for (int64_t block = blockIdx.x; block < g.rows * g.tiles; block += gridDim.x) {
        const int64_t row = cuda_quotient(block, g.tiles);
        const int64_t column = (block - row * g.tiles) * g.across + x;
        const int32_t first = g.starts[row], count = g.starts[row + 1] - first;
        const int32_t share = (count + down - 1) / down;
        const int32_t mine = y * share, end = min(mine + share, count);
        struct cuda_four sum = {{0}};
        for (int32_t k = mine; column < g.packs && k < end; k++) {
            const int64_t at = (int64_t)(uint32_t)g.sorted[first + k] * g.packs + column;
            const struct cuda_four dy = cuda_take(g.from, g.type, pack * at, pack);
            for (int e = 0; e < pack; e++)
                sum.v[e] += dy.v[e];
        }
        if (count > 1) { // alike for the whole block
            __syncthreads(); // for the row before
            parts[threadIdx.x] = sum;
            __syncthreads();
            for (int part = 1; y == 0 && part < down; part++)
                for (int e = 0; e < pack; e++)
                    sum.v[e] += parts[part * g.across + x].v[e];
        }
        if (y == 0 && column < g.packs)
            cuda_give(&g.store, pack * (row * g.packs + column), sum, pack);
    }
}

} // namespace gathering

extern "C" unsigned cuda_gather_launch(uint32_t kernel, const struct cuda_gather *g,
                                       struct CUstream_st *stream)
{
    using namespace gathering;
    switch (kernel) {
    case cuda_gather_forward:
        return start<struct cuda_gather, take_row>(g, g->count * g->packs, stream);
    case cuda_gather_sort:
        return start_blocks<sort_tiles>(g, (g->count + threads - 1) / threads, stream);
    case cuda_gather_merge: return start<struct cuda_gather, merge_runs>(g, g->count, stream);
    case cuda_gather_find: return start<struct cuda_gather, find_row>(g, g->rows + 1, stream);
    case cuda_gather_add:
        return for_pack(g->pack, [&](auto pack) {
            return start_blocks<add_rows<pack>>(g, g->rows * g->tiles, stream);
        });
    default: return cudaErrorInvalidValue;
    }
}

#endif
