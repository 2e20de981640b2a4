// SPDX-License-Identifier: Apache-2.0
// Batch normalization. What is found out about a channel is found by blocks of threads: each goes
// over its rows, then one half of those that are left takes over what the other half has, until one
// has all. All orders of adding follow from the shape.
//
// Statistics without E(x^2) - E(x)^2, which leaves nothing where the mean is large: a thread adds
// differences to its first value, and what threads and parts have found is merged by Chan, Golub
// and LeVeque 1983: count, mean, sum of squares around it.
#ifndef LS_DEVICE_CUDA_NORMALIZATION_CUH
#define LS_DEVICE_CUDA_NORMALIZATION_CUH

#include "plugins/device/cuda/engine/grid.cuh"
#include "plugins/device/cuda/engine/store_body.h"

namespace
{

// Rows whose numbers a thread asks for before it waits for the first, and adds in float32: where it
// reads one tensor, and where it reads two.
#define CUDA_BATCH 4
#define CUDA_BATCH_OF_TWO 2

// What the threads of a block hand to each other.
struct cuda_together {
    double first[4][CUDA_BLOCK], second[4][CUDA_BLOCK]; // mean, squares around it; or two sums
    double counts[CUDA_BLOCK]; // rows
};

// ---- Where a thread is ----

struct cuda_cell {
    int64_t column, row; // its first ones
    int64_t step; // to its next row
    int64_t part;
    int32_t y;
    bool inside; // whether it has a column
};

__device__ inline struct cuda_cell cuda_cell_of(const struct cuda_tiles *t, int64_t block)
{
    const int32_t thread = (int32_t)threadIdx.x;
    struct cuda_cell cell;
    cell.part = cuda_quotient(block, t->tiles);
    cell.y = thread / t->across;
    cell.column =
        ((block - cell.part * t->tiles) * t->across + thread - cell.y * t->across) * t->pack;
    cell.row = cell.part * t->down + cell.y;
    cell.step = t->parts * t->down;
    cell.inside = cell.y < t->down && cell.column < t->columns;
    return cell;
}

// Rows that a part of n->tiles has.
__device__ inline double cuda_part_rows(const struct cuda_tiles *t, int64_t part)
{
    const int64_t turns = cuda_quotient(t->rows, t->parts * t->down);
    const int64_t rest = t->rows - (turns * t->parts + part) * t->down;
    return (double)(turns * t->down + (rest < 0 ? 0 : rest > t->down ? t->down : rest));
}

// The threads of a column hand what they have to the first of them. `take` adds what thread `other`
// has to what `thread` has.
template <void (*take)(struct cuda_together *together, int32_t thread, int32_t other, int pack)>
__device__ void cuda_gather(struct cuda_together *together, const struct cuda_tiles *t,
                            const struct cuda_cell *cell)
{
    const int32_t thread = (int32_t)threadIdx.x;
    for (int32_t left = t->down, half; left > 1; left = half) {
        half = (left + 1) / 2;
        __syncthreads();
        if (cell->inside && cell->y + half < left)
            take(together, thread, thread + half * t->across, t->pack);
    }
}

// ---- Statistics ----

struct cuda_moments {
    double count, mean, squares; // squares: sum of (x - mean)^2
};

__device__ inline struct cuda_moments cuda_merge(struct cuda_moments a, struct cuda_moments b)
{
    const double count = a.count + b.count, weight = count > 0 ? b.count / count : 0;
    const double apart = b.mean - a.mean;
    return {count, a.mean + apart * weight,
            a.squares + b.squares + apart * apart * a.count * weight};
}

__device__ inline struct cuda_moments cuda_found(const struct cuda_together *together, int k,
                                                 int32_t thread)
{
    return {together->counts[thread], together->first[k][thread], together->second[k][thread]};
}

__device__ inline void cuda_merge_threads(struct cuda_together *together, int32_t thread,
                                          int32_t other, int pack)
{
    double count = 0;
    for (int k = 0; k < pack; k++) {
        const struct cuda_moments both =
            cuda_merge(cuda_found(together, k, thread), cuda_found(together, k, other));
        together->first[k][thread] = both.mean;
        together->second[k][thread] = both.squares;
        count = both.count;
    }
    together->counts[thread] = count;
}

// ---- Sums of parts: of x less the thread's first value and of its square; or of dy (x - mean) and
// of dy ----

// Adds some rows from `row` on, which are read at once; they are float32 sums of few terms, which
// are then added as doubles.
template <uint32_t type, bool products, int pack, int rows>
__device__ void cuda_add_turn(const struct cuda_normalization *n, const struct cuda_cell *cell,
                              int64_t row, struct cuda_four center, double *first, double *second)
{
    struct cuda_four x[rows], dy[rows];
    for (int u = 0; u < rows; u++) {
        const int64_t at = (row + u * cell->step) * n->tiles.columns + cell->column;
        x[u] = cuda_take(n->x, type, at, pack);
        if (products)
            dy[u] = cuda_take(n->other, type, at, pack);
    }
    for (int k = 0; k < pack; k++) {
        float one = 0, two = 0;
        for (int u = 0; u < rows; u++) {
            const float apart = x[u].v[k] - center.v[k];
            one += products ? dy[u].v[k] * apart : apart;
            two += products ? dy[u].v[k] : apart * apart;
        }
        first[k] += (double)one;
        second[k] += (double)two;
    }
}

template <uint32_t type, bool products, int pack>
__device__ void cuda_find(const struct cuda_normalization *n, struct cuda_together *together,
                          const struct cuda_cell *cell)
{
    constexpr int batch = products ? CUDA_BATCH_OF_TWO : CUDA_BATCH;
    const int64_t rows = n->tiles.rows, step = cell->step;
    struct cuda_four center = {{0}};
    double first[4] = {0}, second[4] = {0};
    int64_t row = cell->row;
    for (int k = 0; products && k < pack; k++)
        center.v[k] = n->mean[cuda_remainder(cell->column + k, n->channels)];
    if (!products && row < rows)
        center = cuda_take(n->x, type, row * n->tiles.columns + cell->column, pack);
    for (; row + (batch - 1) * step < rows; row += batch * step)
        cuda_add_turn<type, products, pack, batch>(n, cell, row, center, first, second);
    for (; row < rows; row += step)
        cuda_add_turn<type, products, pack, 1>(n, cell, row, center, first, second);

    const double count = (double)cuda_quotient(row - cell->row, step);
    const double share = count > 0 ? 1 / count : 0;
    for (int k = 0; k < pack; k++) {
        const double mean = first[k] * share, rest = second[k] - first[k] * mean;
        together->first[k][threadIdx.x] = products ? first[k] : (double)center.v[k] + mean;
        together->second[k][threadIdx.x] = products ? second[k] : rest < 0 ? 0 : rest;
    }
    if (!products)
        together->counts[threadIdx.x] = count;
}

__device__ inline void cuda_add_threads(struct cuda_together *together, int32_t thread,
                                        int32_t other, int pack)
{
    for (int k = 0; k < pack; k++) {
        together->first[k][thread] += together->first[k][other];
        together->second[k][thread] += together->second[k][other];
    }
}

#define CUDA_BLOCK_KERNEL(name)                                       \
    __global__ void __launch_bounds__(CUDA_BLOCK, CUDA_BLOCKS_BESIDE) \
        name(const __grid_constant__ struct cuda_normalization n)

template <uint32_t type, bool products> CUDA_BLOCK_KERNEL(cuda_sums_of_parts)
{
    __shared__ struct cuda_together together;
    for (int64_t block = blockIdx.x; block < n.tiles.parts * n.tiles.tiles; block += gridDim.x) {
        const struct cuda_cell cell = cuda_cell_of(&n.tiles, block);
        if (cell.inside && n.tiles.pack == 4)
            cuda_find<type, products, 4>(&n, &together, &cell);
        else if (cell.inside)
            cuda_find<type, products, 1>(&n, &together, &cell);
        cuda_gather<products ? cuda_add_threads : cuda_merge_threads>(&together, &n.tiles, &cell);
        for (int k = 0; cell.inside && cell.y == 0 && k < n.tiles.pack; k++) {
            double *out = n.parts + 2 * (cell.part * n.tiles.columns + cell.column + k);
            out[0] = together.first[k][threadIdx.x];
            out[1] = together.second[k][threadIdx.x];
        }
        __syncthreads(); // before the next block's threads write
    }
}

// ---- What the parts of a channel say together ----

// Gives the two sums of a channel to the sum over all replicas.
__device__ inline void cuda_give_moments(const struct cuda_normalization *n, int64_t c,
                                         double first, double second)
{
    n->moments[c] = first;
    n->moments[n->channels + c] = second;
    if (c == 0)
        n->moments[2 * n->channels] =
            (double)cuda_quotient(n->tiles.rows * n->tiles.columns, n->channels);
}

// Into `moments` where there are such, else mean and variance.
CUDA_BLOCK_KERNEL(cuda_statistics_of_channels)
{
    __shared__ struct cuda_together together;
    const int64_t beside = cuda_quotient(n.tiles.columns, n.channels);
    for (int64_t block = blockIdx.x; block < n.merged.parts * n.merged.tiles; block += gridDim.x) {
        const struct cuda_cell cell = cuda_cell_of(&n.merged, block);
        const int64_t c = cell.column;
        if (cell.inside) {
            struct cuda_moments mine = {0, 0, 0};
            for (int64_t row = cell.row; row < n.merged.rows; row += cell.step) {
                const double *part = n.parts + 2 * (row * n.channels + c);
                mine = cuda_merge(
                    mine, {cuda_part_rows(&n.tiles, cuda_quotient(row, beside)), part[0], part[1]});
            }
            together.first[0][threadIdx.x] = mine.mean;
            together.second[0][threadIdx.x] = mine.squares;
            together.counts[threadIdx.x] = mine.count;
        }
        cuda_gather<cuda_merge_threads>(&together, &n.merged, &cell);
        if (cell.inside && cell.y == 0 && n.moments) {
            const struct cuda_moments all = cuda_found(&together, 0, (int32_t)threadIdx.x);
            cuda_give_moments(&n, c, all.mean * all.count,
                              all.squares + all.mean * all.mean * all.count);
        } else if (cell.inside && cell.y == 0) {
            n.totals[2 * c] = together.first[0][threadIdx.x];
            n.totals[2 * c + 1] = together.second[0][threadIdx.x] * n.share;
            n.mean[c] = (float)n.totals[2 * c];
            n.variance[c] = (float)n.totals[2 * c + 1];
        }
        __syncthreads();
    }
}

// 1 / sqrt(variance + epsilon)
__device__ inline float cuda_scale(const struct cuda_normalization *n, double variance)
{
    return 1 / sqrtf((float)(variance + (double)n->epsilon));
}

CUDA_BLOCK_KERNEL(cuda_gradients_of_channels)
{
    __shared__ struct cuda_together together;
    for (int64_t block = blockIdx.x; block < n.merged.parts * n.merged.tiles; block += gridDim.x) {
        const struct cuda_cell cell = cuda_cell_of(&n.merged, block);
        const int64_t c = cell.column;
        if (cell.inside) {
            double product = 0, sum = 0;
            for (int64_t row = cell.row; row < n.merged.rows; row += cell.step) {
                product += n.parts[2 * (row * n.channels + c)];
                sum += n.parts[2 * (row * n.channels + c) + 1];
            }
            together.first[0][threadIdx.x] = product;
            together.second[0][threadIdx.x] = sum;
        }
        cuda_gather<cuda_add_threads>(&together, &n.merged, &cell);
        if (cell.inside && cell.y == 0) {
            const double product = together.first[0][threadIdx.x],
                         sum = together.second[0][threadIdx.x];
            const double scaled = product * (double)cuda_scale(&n, (double)n.variance[c]);
            const float dgamma = (float)scaled;
            if (n.moments) {
                cuda_give_moments(&n, c, scaled, sum);
            } else {
                n.totals[2 * c] = product;
                n.totals[2 * c + 1] = sum;
            }
            n.dgamma[c] = n.add[0] ? n.dgamma[c] + dgamma : dgamma;
            n.dbeta[c] = n.add[1] ? n.dbeta[c] + (float)sum : (float)sum;
        }
        __syncthreads();
    }
}

// ---- What the moments of all replicas say of a channel, which is an item ----

__device__ inline void cuda_shared_statistics(const struct cuda_normalization *n, int64_t c)
{
    const double count = n->moments[2 * n->channels], mean = n->moments[c] / count;
    const double variance = n->moments[n->channels + c] / count - mean * mean;
    n->totals[2 * c] = mean;
    n->totals[2 * c + 1] = variance < 0 ? 0 : variance;
    n->mean[c] = (float)mean;
    n->variance[c] = (float)n->totals[2 * c + 1];
}

// Totals are divided by the values of this share later, so they are made those of such a share.
__device__ inline void cuda_shared_gradients(const struct cuda_normalization *n, int64_t c)
{
    const double share = 1 / (n->moments[2 * n->channels] * n->share);
    n->totals[2 * c] = n->moments[c] / (double)cuda_scale(n, (double)n->variance[c]) * share;
    n->totals[2 * c + 1] = n->moments[n->channels + c] * share;
}

// ---- Element by element: an item is one column, or four, on every n->lanes-th row ----
// From the last row to the first: those that were read last before may still lie in the cache.

// What comes after the result of a thread by itself. There are kernels for each of these, but for a
// ReLU only where an activation may follow, as it does forward (`activated`).
enum cuda_follower { CUDA_NOTHING, CUDA_RELU, CUDA_ANYTHING };

inline enum cuda_follower cuda_follower_of(const struct cuda_store *store, bool activated)
{
    if (!store->epilogue && !store->add)
        return CUDA_NOTHING;
    const bool relu = store->epilogue == 1 && store->activation == LS_RELU && !store->add;
    return activated && relu ? CUDA_RELU : CUDA_ANYTHING;
}

// Whether rows are read CUDA_BATCH_OF_TWO at a time (`several`), else one by one, which needs fewer
// registers.
__device__ inline bool cuda_reads_several(enum cuda_follower known)
{
    return known != CUDA_ANYTHING;
}

// Per column: out = (x - center) * scale + shift [+ addend], or the gradient of that.
struct cuda_columns_of {
    struct cuda_four center, scale, shift, slope;
    int64_t column, row;
};

__device__ inline struct cuda_columns_of cuda_item(const struct cuda_normalization *n, int64_t i,
                                                   int pack)
{
    struct cuda_columns_of out;
    const int64_t across = n->tiles.columns / pack, lane = cuda_quotient(i, across);
    out.column = (i - lane * across) * pack;
    out.row = n->tiles.rows - 1 - lane;
    return out;
}

// The mean of a training is known to more bits than `center` has: what is left goes into the shift.
// A gradient through given statistics has neither mean nor beta.
__device__ inline void cuda_forward_columns(const struct cuda_normalization *n,
                                            struct cuda_columns_of *of, int pack)
{
    for (int k = 0; k < pack; k++) {
        const int64_t c = cuda_remainder(of->column + k, n->channels);
        const double mean = n->totals ? n->totals[2 * c] : n->mean ? (double)n->mean[c] : 0;
        const double variance = n->totals ? n->totals[2 * c + 1] : (double)n->variance[c];
        of->center.v[k] = (float)mean;
        of->scale.v[k] = n->gamma[c] * cuda_scale(n, variance);
        of->shift.v[k] =
            (n->beta ? n->beta[c] : 0) - (float)(mean - (double)of->center.v[k]) * of->scale.v[k];
    }
}

// dx = scale (dy - shift - (x - center) slope)
__device__ inline void cuda_backward_columns(const struct cuda_normalization *n,
                                             struct cuda_columns_of *of, int pack)
{
    for (int k = 0; k < pack; k++) {
        const int64_t c = cuda_remainder(of->column + k, n->channels);
        const float scale = cuda_scale(n, (double)n->variance[c]);
        of->center.v[k] = n->mean[c];
        of->scale.v[k] = n->gamma[c] * scale;
        of->shift.v[k] = (float)(n->totals[2 * c + 1] * n->share);
        of->slope.v[k] = (float)(n->totals[2 * c] * n->share * (double)scale * (double)scale);
    }
}

template <bool backward, int pack>
__device__ inline void cuda_put_rows(const struct cuda_normalization *n,
                                     const struct cuda_columns_of *of, int64_t row, int rows)
{
    struct cuda_four x[CUDA_BATCH_OF_TWO], other[CUDA_BATCH_OF_TWO];
    const int64_t first = row * n->tiles.columns + of->column, step = n->lanes * n->tiles.columns;
    for (int u = 0; u < rows; u++)
        x[u] = cuda_take(n->x, n->type, first - u * step, pack);
    for (int u = 0; (backward || n->other) && u < rows; u++)
        other[u] = cuda_take(n->other, n->type, first - u * step, pack);
    for (int u = 0; u < rows; u++) {
        struct cuda_four out = {{0}};
        for (int k = 0; k < pack; k++) {
            const float apart = x[u].v[k] - of->center.v[k];
            if (backward) {
                out.v[k] =
                    of->scale.v[k] * (other[u].v[k] - of->shift.v[k] - apart * of->slope.v[k]);
                continue;
            }
            out.v[k] = apart * of->scale.v[k] + of->shift.v[k];
            out.v[k] += n->other ? other[u].v[k] : 0;
        }
        cuda_give(&n->store, first - u * step, out, pack);
    }
}

template <bool backward, int pack>
__device__ inline void cuda_put_columns(const struct cuda_normalization *n, int64_t i, bool several)
{
    struct cuda_columns_of of = cuda_item(n, i, pack);
    int64_t row = of.row;
    if (backward)
        cuda_backward_columns(n, &of, pack);
    else
        cuda_forward_columns(n, &of, pack);
    for (; several && row >= (CUDA_BATCH_OF_TWO - 1) * n->lanes;
         row -= CUDA_BATCH_OF_TWO * n->lanes)
        cuda_put_rows<backward, pack>(n, &of, row, CUDA_BATCH_OF_TWO);
    for (; row >= 0; row -= n->lanes)
        cuda_put_rows<backward, pack>(n, &of, row, 1);
}

// The type is known at compile time, so that a thread asks for several elements before it waits for
// the first; and what follows, where that is nothing or a ReLU.
template <uint32_t type, enum cuda_follower known, bool backward>
__device__ void cuda_put_item(const struct cuda_normalization *n, int64_t i)
{
    struct cuda_normalization typed = *n;
    typed.type = typed.store.type = type;
    if (known != CUDA_ANYTHING) {
        typed.store.epilogue = known == CUDA_RELU;
        typed.store.activation = LS_RELU;
        typed.store.add = 0;
    }
    if (n->tiles.pack == 4)
        cuda_put_columns<backward, 4>(&typed, i, cuda_reads_several(known));
    else
        cuda_put_columns<backward, 1>(&typed, i, cuda_reads_several(known));
}

// ---- Launches ----

template <uint32_t type, enum cuda_follower known, bool backward>
unsigned cuda_start_items(const struct cuda_normalization *n, cudaStream_t stream)
{
    return start<struct cuda_normalization, cuda_put_item<type, known, backward>,
                 CUDA_BLOCKS_BESIDE>(n, n->tiles.columns / n->tiles.pack * n->lanes, stream);
}

template <bool backward>
unsigned cuda_start_items(const struct cuda_normalization *n, cudaStream_t stream)
{
    const enum cuda_follower known = cuda_follower_of(&n->store, !backward);
    return for_type(n->type, [&](auto type) {
        if constexpr (!backward)
            if (known == CUDA_RELU)
                return cuda_start_items<type, CUDA_RELU, false>(n, stream);
        return known == CUDA_NOTHING ? cuda_start_items<type, CUDA_NOTHING, backward>(n, stream)
                                     : cuda_start_items<type, CUDA_ANYTHING, backward>(n, stream);
    });
}

template <bool products>
unsigned cuda_start_parts(const struct cuda_normalization *n, cudaStream_t stream)
{
    return for_type(n->type, [&](auto type) {
        return start_blocks<cuda_sums_of_parts<type, products>>(n, n->tiles.parts * n->tiles.tiles,
                                                                stream);
    });
}

} // namespace

extern "C" unsigned cuda_normalization_launch(uint32_t kernel, const struct cuda_normalization *n,
                                              struct CUstream_st *stream)
{
    const int64_t merged = n->merged.parts * n->merged.tiles;
    switch (kernel) {
    case cuda_normalization_moments: return cuda_start_parts<false>(n, stream);
    case cuda_normalization_products: return cuda_start_parts<true>(n, stream);
    case cuda_normalization_statistics:
        return start_blocks<cuda_statistics_of_channels>(n, merged, stream);
    case cuda_normalization_gradients:
        return start_blocks<cuda_gradients_of_channels>(n, merged, stream);
    case cuda_normalization_shared_statistics:
        return start<struct cuda_normalization, cuda_shared_statistics>(n, n->channels, stream);
    case cuda_normalization_shared_gradients:
        return start<struct cuda_normalization, cuda_shared_gradients>(n, n->channels, stream);
    case cuda_normalization_normalize: return cuda_start_items<false>(n, stream);
    case cuda_normalization_normalize_backward: return cuda_start_items<true>(n, stream);
    default: return cudaErrorInvalidValue;
    }
}

#endif
