// SPDX-License-Identifier: Apache-2.0
// Batch normalization. What is found out about a channel is found by blocks of threads: each goes over its rows, then one half of
// those that are left takes over what the other half has, until one has all. All orders of adding follow from the shape.
//
// Statistics without E(x^2) - E(x)^2, which leaves nothing where the mean is large: a thread adds differences to its first value,
// and what threads and parts have found is merged by Chan, Golub and LeVeque 1983: count, mean, sum of squares around it.
#ifndef LS_DEVICE_CUDA_NORMALIZATION_CUH
#define LS_DEVICE_CUDA_NORMALIZATION_CUH

#include "plugins/device/cuda/engine/store_body.h"

namespace {

// Rows whose numbers a thread asks for before it waits for the first, and adds in float32: where it reads one tensor, and where
// it reads two.
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
    cell.column = ((block - cell.part * t->tiles) * t->across + thread - cell.y * t->across) * t->pack;
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

// The threads of a column hand what they have to the first of them. `take` adds what thread `other` has to what `thread` has.
template <void (*take)(struct cuda_together *together, int32_t thread, int32_t other, int pack)>
__device__ void cuda_gather(struct cuda_together *together, const struct cuda_tiles *t, const struct cuda_cell *cell)
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
    return {count, a.mean + apart * weight, a.squares + b.squares + apart * apart * a.count * weight};
}

__device__ inline struct cuda_moments cuda_found(const struct cuda_together *together, int k, int32_t thread)
{
    return {together->counts[thread], together->first[k][thread], together->second[k][thread]};
}

__device__ inline void cuda_merge_threads(struct cuda_together *together, int32_t thread, int32_t other, int pack)
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

// Adds some rows from `row` on, which are read at once; they are float32 sums of few terms, which are then added as doubles.
template <uint32_t type, int pack, int rows>
__device__ void cuda_add_moments(const struct cuda_normalization *n, const struct cuda_cell *cell, int64_t row,
                                 struct cuda_four shift, double *sums, double *squares)
{
    struct cuda_four x[rows];
    for (int u = 0; u < rows; u++)
        x[u] = cuda_take(n->x, type, (row + u * cell->step) * n->tiles.columns + cell->column, pack);
    for (int k = 0; k < pack; k++) {
        float sum = 0, square = 0;
        for (int u = 0; u < rows; u++) {
            const float apart = x[u].v[k] - shift.v[k];
            sum += apart;
            square += apart * apart;
        }
        sums[k] += (double)sum;
        squares[k] += (double)square;
    }
}

template <uint32_t type, int pack>
__device__ void cuda_find_moments(const struct cuda_normalization *n, struct cuda_together *together,
                                  const struct cuda_cell *cell)
{
    const int64_t rows = n->tiles.rows, step = cell->step;
    struct cuda_four shift = {{0}};
    double sums[4] = {0}, squares[4] = {0};
    int64_t row = cell->row;
    if (row < rows)
        shift = cuda_take(n->x, type, row * n->tiles.columns + cell->column, pack);
    for (; row + (CUDA_BATCH - 1) * step < rows; row += CUDA_BATCH * step)
        cuda_add_moments<type, pack, CUDA_BATCH>(n, cell, row, shift, sums, squares);
    for (; row < rows; row += step)
        cuda_add_moments<type, pack, 1>(n, cell, row, shift, sums, squares);

    const double count = (double)cuda_quotient(row - cell->row, step);
    const double share = count > 0 ? 1 / count : 0;
    for (int k = 0; k < pack; k++) {
        const double mean = sums[k] * share, rest = squares[k] - sums[k] * mean;
        together->first[k][threadIdx.x] = (double)shift.v[k] + mean;
        together->second[k][threadIdx.x] = rest < 0 ? 0 : rest;
    }
    together->counts[threadIdx.x] = count;
}

// What a part has found of the columns of the calling thread, which has all of it.
__device__ inline void cuda_keep_part(const struct cuda_normalization *n, const struct cuda_together *together,
                                      const struct cuda_cell *cell)
{
    for (int k = 0; k < n->tiles.pack; k++) {
        double *out = n->parts + 2 * (cell->part * n->tiles.columns + cell->column + k);
        out[0] = together->first[k][threadIdx.x];
        out[1] = together->second[k][threadIdx.x];
    }
}

#define CUDA_BLOCK_KERNEL(name) \
    __global__ void __launch_bounds__(CUDA_BLOCK, CUDA_BLOCKS_BESIDE) name(const __grid_constant__ struct cuda_normalization n)

template <uint32_t type>
CUDA_BLOCK_KERNEL(cuda_moments_of_parts)
{
    __shared__ struct cuda_together together;
    for (int64_t block = blockIdx.x; block < n.tiles.parts * n.tiles.tiles; block += gridDim.x) {
        const struct cuda_cell cell = cuda_cell_of(&n.tiles, block);
        if (cell.inside && n.tiles.pack == 4)
            cuda_find_moments<type, 4>(&n, &together, &cell);
        else if (cell.inside)
            cuda_find_moments<type, 1>(&n, &together, &cell);
        cuda_gather<cuda_merge_threads>(&together, &n.tiles, &cell);
        if (cell.inside && cell.y == 0)
            cuda_keep_part(&n, &together, &cell);
        __syncthreads(); // before the next block's threads write
    }
}

// Gives the two sums of a channel to the sum over all replicas.
__device__ inline void cuda_give_moments(const struct cuda_normalization *n, int64_t c, double first, double second)
{
    n->moments[c] = first;
    n->moments[n->channels + c] = second;
    if (c == 0)
        n->moments[2 * n->channels] = (double)cuda_quotient(n->tiles.rows * n->tiles.columns, n->channels);
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
                mine = cuda_merge(mine, {cuda_part_rows(&n.tiles, cuda_quotient(row, beside)), part[0], part[1]});
            }
            together.first[0][threadIdx.x] = mine.mean;
            together.second[0][threadIdx.x] = mine.squares;
            together.counts[threadIdx.x] = mine.count;
        }
        cuda_gather<cuda_merge_threads>(&together, &n.merged, &cell);
        if (cell.inside && cell.y == 0 && n.moments) {
            const struct cuda_moments all = cuda_found(&together, 0, (int32_t)threadIdx.x);
            cuda_give_moments(&n, c, all.mean * all.count, all.squares + all.mean * all.mean * all.count);
        } else if (cell.inside && cell.y == 0) {
            n.totals[2 * c] = together.first[0][threadIdx.x];
            n.totals[2 * c + 1] = together.second[0][threadIdx.x] * n.share;
            n.mean[c] = (float)n.totals[2 * c];
            n.variance[c] = (float)n.totals[2 * c + 1];
        }
        __syncthreads();
    }
}

// ---- Sums of dy (x - mean) and dy ----

__device__ inline void cuda_add_threads(struct cuda_together *together, int32_t thread, int32_t other, int pack)
{
    for (int k = 0; k < pack; k++) {
        together->first[k][thread] += together->first[k][other];
        together->second[k][thread] += together->second[k][other];
    }
}

template <uint32_t type, int pack, int rows>
__device__ void cuda_add_products(const struct cuda_normalization *n, const struct cuda_cell *cell, int64_t row,
                                  struct cuda_four mean, double *products, double *sums)
{
    struct cuda_four x[rows], dy[rows];
    for (int u = 0; u < rows; u++) {
        const int64_t at = (row + u * cell->step) * n->tiles.columns + cell->column;
        x[u] = cuda_take(n->x, type, at, pack);
        dy[u] = cuda_take(n->other, type, at, pack);
    }
    for (int k = 0; k < pack; k++) {
        float product = 0, sum = 0;
        for (int u = 0; u < rows; u++) {
            product += dy[u].v[k] * (x[u].v[k] - mean.v[k]);
            sum += dy[u].v[k];
        }
        products[k] += (double)product;
        sums[k] += (double)sum;
    }
}

template <uint32_t type, int pack>
__device__ void cuda_find_products(const struct cuda_normalization *n, struct cuda_together *together,
                                   const struct cuda_cell *cell)
{
    const int64_t rows = n->tiles.rows, step = cell->step;
    struct cuda_four mean = {{0}};
    double products[4] = {0}, sums[4] = {0};
    for (int k = 0; k < pack; k++)
        mean.v[k] = n->mean[cuda_remainder(cell->column + k, n->channels)];
    int64_t row = cell->row;
    for (; row + (CUDA_BATCH_OF_TWO - 1) * step < rows; row += CUDA_BATCH_OF_TWO * step)
        cuda_add_products<type, pack, CUDA_BATCH_OF_TWO>(n, cell, row, mean, products, sums);
    for (; row < rows; row += step)
        cuda_add_products<type, pack, 1>(n, cell, row, mean, products, sums);
    for (int k = 0; k < pack; k++) {
        together->first[k][threadIdx.x] = products[k];
        together->second[k][threadIdx.x] = sums[k];
    }
}

template <uint32_t type>
CUDA_BLOCK_KERNEL(cuda_products_of_parts)
{
    __shared__ struct cuda_together together;
    for (int64_t block = blockIdx.x; block < n.tiles.parts * n.tiles.tiles; block += gridDim.x) {
        const struct cuda_cell cell = cuda_cell_of(&n.tiles, block);
        if (cell.inside && n.tiles.pack == 4)
            cuda_find_products<type, 4>(&n, &together, &cell);
        else if (cell.inside)
            cuda_find_products<type, 1>(&n, &together, &cell);
        cuda_gather<cuda_add_threads>(&together, &n.tiles, &cell);
        if (cell.inside && cell.y == 0)
            cuda_keep_part(&n, &together, &cell);
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
            const double product = together.first[0][threadIdx.x], sum = together.second[0][threadIdx.x];
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

// What comes after the result of a thread by itself. There are kernels for each of these, but for a ReLU only where an activation
// may follow, as it does forward (`activated`).
enum cuda_follower { CUDA_NOTHING, CUDA_RELU, CUDA_ANYTHING };

inline enum cuda_follower cuda_follower_of(const struct cuda_store *store, bool activated)
{
    if (!store->epilogue && !store->add)
        return CUDA_NOTHING;
    const bool relu = store->epilogue == 1 && store->activation == 1 && !store->add;
    return activated && relu ? CUDA_RELU : CUDA_ANYTHING;
}

// Whether rows are read CUDA_BATCH_OF_TWO at a time (`several`), else one by one, which needs fewer registers.
__device__ inline bool cuda_reads_several(enum cuda_follower known)
{
    return known != CUDA_ANYTHING;
}

#define CUDA_THREAD_BODY(name) \
    __device__ inline void cuda_body_##name(const struct cuda_normalization *n, int64_t i, bool several)

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

// The mean of a training is known to more bits than `center` has: what is left goes into the shift. A gradient through given
// statistics has neither mean nor beta.
__device__ inline void cuda_forward_columns(const struct cuda_normalization *n,
                                      struct cuda_columns_of *of, int pack)
{
    for (int k = 0; k < pack; k++) {
        const int64_t c = cuda_remainder(of->column + k, n->channels);
        const double mean = n->totals ? n->totals[2 * c] : n->mean ? (double)n->mean[c] : 0;
        const double variance = n->totals ? n->totals[2 * c + 1] : (double)n->variance[c];
        of->center.v[k] = (float)mean;
        of->scale.v[k] = n->gamma[c] * cuda_scale(n, variance);
        of->shift.v[k] = (n->beta ? n->beta[c] : 0) - (float)(mean - (double)of->center.v[k]) * of->scale.v[k];
    }
}

__device__ inline void cuda_forward_rows(const struct cuda_normalization *n,
                                   const struct cuda_columns_of *of, int64_t row, int rows,
                                   int pack)
{
    struct cuda_four x[CUDA_BATCH_OF_TWO], addend[CUDA_BATCH_OF_TWO];
    const int64_t first = row * n->tiles.columns + of->column;
    const int64_t step = n->lanes * n->tiles.columns;
    for (int u = 0; u < rows; u++)
        x[u] = cuda_take(n->x, n->type, first - u * step, pack);
    for (int u = 0; n->other && u < rows; u++)
        addend[u] = cuda_take(n->other, n->type, first - u * step, pack);
    for (int u = 0; u < rows; u++) {
        struct cuda_four y = {{0}};
        for (int k = 0; k < pack; k++) {
            y.v[k] = (x[u].v[k] - of->center.v[k]) * of->scale.v[k] + of->shift.v[k];
            y.v[k] += n->other ? addend[u].v[k] : 0;
        }
        cuda_give(&n->store, first - u * step, y, pack);
    }
}

__device__ inline void cuda_forward(const struct cuda_normalization *n, int64_t i, bool several, int pack)
{
    struct cuda_columns_of of = cuda_item(n, i, pack);
    int64_t row = of.row;
    cuda_forward_columns(n, &of, pack);
    for (; several && row >= (CUDA_BATCH_OF_TWO - 1) * n->lanes;
         row -= CUDA_BATCH_OF_TWO * n->lanes)
        cuda_forward_rows(n, &of, row, CUDA_BATCH_OF_TWO, pack);
    for (; row >= 0; row -= n->lanes)
        cuda_forward_rows(n, &of, row, 1, pack);
}

CUDA_THREAD_BODY(normalize)
{
    if (n->tiles.pack == 4)
        cuda_forward(n, i, several, 4);
    else
        cuda_forward(n, i, several, 1);
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

__device__ inline void cuda_backward_rows(const struct cuda_normalization *n,
                                    const struct cuda_columns_of *of, int64_t row, int rows,
                                    int pack)
{
    struct cuda_four x[CUDA_BATCH_OF_TWO], dy[CUDA_BATCH_OF_TWO];
    const int64_t first = row * n->tiles.columns + of->column;
    const int64_t step = n->lanes * n->tiles.columns;
    for (int u = 0; u < rows; u++) {
        x[u] = cuda_take(n->x, n->type, first - u * step, pack);
        dy[u] = cuda_take(n->other, n->type, first - u * step, pack);
    }
    for (int u = 0; u < rows; u++) {
        struct cuda_four dx = {{0}};
        for (int k = 0; k < pack; k++)
            dx.v[k] = of->scale.v[k] * (dy[u].v[k] - of->shift.v[k] -
                                        (x[u].v[k] - of->center.v[k]) * of->slope.v[k]);
        cuda_give(&n->store, first - u * step, dx, pack);
    }
}

__device__ inline void cuda_backward(const struct cuda_normalization *n, int64_t i, bool several, int pack)
{
    struct cuda_columns_of of = cuda_item(n, i, pack);
    int64_t row = of.row;
    cuda_backward_columns(n, &of, pack);
    for (; several && row >= (CUDA_BATCH_OF_TWO - 1) * n->lanes;
         row -= CUDA_BATCH_OF_TWO * n->lanes)
        cuda_backward_rows(n, &of, row, CUDA_BATCH_OF_TWO, pack);
    for (; row >= 0; row -= n->lanes)
        cuda_backward_rows(n, &of, row, 1, pack);
}

CUDA_THREAD_BODY(normalize_backward)
{
    if (n->tiles.pack == 4)
        cuda_backward(n, i, several, 4);
    else
        cuda_backward(n, i, several, 1);
}

} // namespace

#endif
