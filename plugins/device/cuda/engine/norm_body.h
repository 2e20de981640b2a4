// SPDX-License-Identifier: Apache-2.0
// Batch normalization, as C that is also CUDA C++. What is found out about a channel is found by blocks of threads: a body of a
// block is called in steps, and between two of them all threads wait for each other. In step 0 each thread goes over its rows;
// in each later one half of those that are left take over what the other half has. In a step a thread writes what no other
// thread reads or writes in it, so that their order does not matter: kernels.cu runs them on a GPU, the fake of the tests in
// loops. All orders of adding follow from the shape.
//
// Statistics without E(x^2) - E(x)^2, which leaves nothing where the mean is large: a thread adds differences to its first value,
// and what threads and parts have found is merged by Chan, Golub and LeVeque 1983: count, mean, sum of squares around it.
#ifndef LS_DEVICE_CUDA_NORM_BODY_H
#define LS_DEVICE_CUDA_NORM_BODY_H

#include "plugins/device/cuda/engine/store_body.h"

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
    int inside; // whether it has a column
};

CUDA_SHARED struct cuda_cell cuda_cell_of(const struct cuda_tiles *t, int64_t block, int32_t thread)
{
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

// The thread whose findings this one takes over in this step; -1: none.
CUDA_SHARED int32_t cuda_partner(const struct cuda_tiles *t, const struct cuda_cell *cell,
                                 int32_t thread, int32_t step)
{
    if (!cell->inside || step == 0)
        return -1;
    const int32_t left = (t->down + (1 << (step - 1)) - 1) >> (step - 1), half = (left + 1) / 2;
    return cell->y + half < left ? thread + half * t->across : -1;
}

CUDA_SHARED int cuda_has_all(const struct cuda_tiles *t, const struct cuda_cell *cell, int32_t step)
{
    return cell->inside && step + 1 == t->steps && cell->y == 0;
}

// Rows that a part of n->tiles has.
CUDA_SHARED double cuda_part_rows(const struct cuda_tiles *t, int64_t part)
{
    const int64_t turns = cuda_quotient(t->rows, t->parts * t->down);
    const int64_t rest = t->rows - (turns * t->parts + part) * t->down;
    return (double)(turns * t->down + (rest < 0 ? 0 : rest > t->down ? t->down : rest));
}

// ---- One element or four ----

CUDA_SHARED struct cuda_four cuda_take(const void *values, uint32_t type, int64_t i, int pack)
{
    if (pack == 4)
        return cuda_load_four(values, type, i);
    const struct cuda_four one = {{cuda_load(values, type, i)}};
    return one;
}

CUDA_SHARED void cuda_give(const struct cuda_store *store, int64_t i, struct cuda_four four,
                           int pack)
{
    if (pack == 4)
        cuda_put_four(store, i, four);
    else
        cuda_put(store, i, four.v[0]);
}

// ---- Statistics ----

struct cuda_moments {
    double count, mean, squares; // squares: sum of (x - mean)^2
};

CUDA_SHARED struct cuda_moments cuda_merge(struct cuda_moments a, struct cuda_moments b)
{
    const double count = a.count + b.count, weight = count > 0 ? b.count / count : 0;
    const double apart = b.mean - a.mean;
    const struct cuda_moments out = {count, a.mean + apart * weight,
                                     a.squares + b.squares + apart * apart * a.count * weight};
    return out;
}

CUDA_SHARED struct cuda_moments cuda_found(const struct cuda_together *together, int k,
                                           int32_t thread)
{
    const struct cuda_moments out = {together->counts[thread], together->first[k][thread],
                                     together->second[k][thread]};
    return out;
}

CUDA_SHARED void cuda_merge_threads(struct cuda_together *together, int32_t thread, int32_t other,
                                    int pack)
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

// Rows from `row` on that are read at once. How many, and of how many columns each, is known where this is compiled.
struct cuda_batch {
    int64_t row;
    int rows, pack;
};

// Adds the rows of a batch; they are float32 sums of few terms, which are then added as doubles.
CUDA_SHARED void cuda_add_moments(const struct cuda_normalization *n, const struct cuda_cell *cell,
                                  struct cuda_batch batch, struct cuda_four shift, double *sums,
                                  double *squares)
{
    struct cuda_four x[CUDA_BATCH];
    for (int u = 0; u < batch.rows; u++)
        x[u] =
            cuda_take(n->x, n->type, (batch.row + u * cell->step) * n->tiles.columns + cell->column,
                      batch.pack);
    for (int k = 0; k < batch.pack; k++) {
        float sum = 0, square = 0;
        for (int u = 0; u < batch.rows; u++) {
            const float apart = x[u].v[k] - shift.v[k];
            sum += apart;
            square += apart * apart;
        }
        sums[k] += (double)sum;
        squares[k] += (double)square;
    }
}

CUDA_SHARED void cuda_gather_moments(const struct cuda_normalization *n,
                                     struct cuda_together *together, const struct cuda_cell *cell,
                                     int32_t thread, int pack)
{
    const int64_t rows = n->tiles.rows, step = cell->step;
    struct cuda_four shift = {{0}};
    double sums[4] = {0}, squares[4] = {0};
    int64_t row = cell->row;
    if (row < rows)
        shift = cuda_take(n->x, n->type, row * n->tiles.columns + cell->column, pack);
    for (; row + (CUDA_BATCH - 1) * step < rows; row += CUDA_BATCH * step) {
        const struct cuda_batch batch = {row, CUDA_BATCH, pack};
        cuda_add_moments(n, cell, batch, shift, sums, squares);
    }
    for (; row < rows; row += step) {
        const struct cuda_batch batch = {row, 1, pack};
        cuda_add_moments(n, cell, batch, shift, sums, squares);
    }

    const double count = (double)cuda_quotient(row - cell->row, step);
    const double share = count > 0 ? 1 / count : 0;
    for (int k = 0; k < pack; k++) {
        const double mean = sums[k] * share, rest = squares[k] - sums[k] * mean;
        together->first[k][thread] = (double)shift.v[k] + mean;
        together->second[k][thread] = rest < 0 ? 0 : rest;
    }
    together->counts[thread] = count;
}

// What a part has found of the columns of this thread.
CUDA_SHARED void cuda_keep_part(const struct cuda_normalization *n,
                                const struct cuda_together *together, const struct cuda_cell *cell,
                                int32_t thread)
{
    for (int k = 0; k < n->tiles.pack; k++) {
        double *out = n->parts + 2 * (cell->part * n->tiles.columns + cell->column + k);
        out[0] = together->first[k][thread];
        out[1] = together->second[k][thread];
    }
}

#define CUDA_BLOCK_BODY(name)                                                        \
    CUDA_SHARED void cuda_body_##name(const struct cuda_normalization *n,            \
                                      struct cuda_together *together, int64_t block, \
                                      int32_t thread, int32_t step)

CUDA_BLOCK_BODY(moments)
{
    const struct cuda_cell cell = cuda_cell_of(&n->tiles, block, thread);
    const int32_t other = cuda_partner(&n->tiles, &cell, thread, step);
    if (cell.inside && step == 0 && n->tiles.pack == 4)
        cuda_gather_moments(n, together, &cell, thread, 4);
    else if (cell.inside && step == 0)
        cuda_gather_moments(n, together, &cell, thread, 1);
    else if (other >= 0)
        cuda_merge_threads(together, thread, other, n->tiles.pack);
    if (cuda_has_all(&n->tiles, &cell, step))
        cuda_keep_part(n, together, &cell, thread);
}

CUDA_BLOCK_BODY(statistics)
{
    const struct cuda_cell cell = cuda_cell_of(&n->merged, block, thread);
    const int32_t other = cuda_partner(&n->merged, &cell, thread, step);
    const int64_t c = cell.column, beside = cuda_quotient(n->tiles.columns, n->channels);
    if (cell.inside && step == 0) {
        struct cuda_moments mine = {0, 0, 0};
        for (int64_t row = cell.row; row < n->merged.rows; row += cell.step) {
            const double *part = n->parts + 2 * (row * n->channels + c);
            const struct cuda_moments its = {cuda_part_rows(&n->tiles, cuda_quotient(row, beside)),
                                             part[0], part[1]};
            mine = cuda_merge(mine, its);
        }
        together->first[0][thread] = mine.mean;
        together->second[0][thread] = mine.squares;
        together->counts[thread] = mine.count;
    } else if (other >= 0) {
        cuda_merge_threads(together, thread, other, 1);
    }
    if (cuda_has_all(&n->merged, &cell, step)) {
        n->totals[2 * c] = together->first[0][thread];
        n->totals[2 * c + 1] = together->second[0][thread] * n->share;
        n->mean[c] = (float)n->totals[2 * c];
        n->variance[c] = (float)n->totals[2 * c + 1];
    }
}

// ---- Sums of dy (x - mean) and dy ----

CUDA_SHARED void cuda_add_threads(struct cuda_together *together, int32_t thread, int32_t other,
                                  int pack)
{
    for (int k = 0; k < pack; k++) {
        together->first[k][thread] += together->first[k][other];
        together->second[k][thread] += together->second[k][other];
    }
}

CUDA_SHARED void cuda_add_products(const struct cuda_normalization *n, const struct cuda_cell *cell,
                                   struct cuda_batch batch, struct cuda_four mean, double *products,
                                   double *sums)
{
    struct cuda_four x[CUDA_BATCH_OF_TWO], dy[CUDA_BATCH_OF_TWO];
    for (int u = 0; u < batch.rows; u++) {
        const int64_t at = (batch.row + u * cell->step) * n->tiles.columns + cell->column;
        x[u] = cuda_take(n->x, n->type, at, batch.pack);
        dy[u] = cuda_take(n->other, n->type, at, batch.pack);
    }
    for (int k = 0; k < batch.pack; k++) {
        float product = 0, sum = 0;
        for (int u = 0; u < batch.rows; u++) {
            product += dy[u].v[k] * (x[u].v[k] - mean.v[k]);
            sum += dy[u].v[k];
        }
        products[k] += (double)product;
        sums[k] += (double)sum;
    }
}

CUDA_SHARED void cuda_gather_products(const struct cuda_normalization *n,
                                      struct cuda_together *together, const struct cuda_cell *cell,
                                      int32_t thread, int pack)
{
    const int64_t rows = n->tiles.rows, step = cell->step;
    struct cuda_four mean = {{0}};
    double products[4] = {0}, sums[4] = {0};
    for (int k = 0; k < pack; k++)
        mean.v[k] = n->mean[cuda_remainder(cell->column + k, n->channels)];
    int64_t row = cell->row;
    for (; row + (CUDA_BATCH_OF_TWO - 1) * step < rows; row += CUDA_BATCH_OF_TWO * step) {
        const struct cuda_batch batch = {row, CUDA_BATCH_OF_TWO, pack};
        cuda_add_products(n, cell, batch, mean, products, sums);
    }
    for (; row < rows; row += step) {
        const struct cuda_batch batch = {row, 1, pack};
        cuda_add_products(n, cell, batch, mean, products, sums);
    }
    for (int k = 0; k < pack; k++) {
        together->first[k][thread] = products[k];
        together->second[k][thread] = sums[k];
    }
}

CUDA_BLOCK_BODY(products)
{
    const struct cuda_cell cell = cuda_cell_of(&n->tiles, block, thread);
    const int32_t other = cuda_partner(&n->tiles, &cell, thread, step);
    if (cell.inside && step == 0 && n->tiles.pack == 4)
        cuda_gather_products(n, together, &cell, thread, 4);
    else if (cell.inside && step == 0)
        cuda_gather_products(n, together, &cell, thread, 1);
    else if (other >= 0)
        cuda_add_threads(together, thread, other, n->tiles.pack);
    if (cuda_has_all(&n->tiles, &cell, step))
        cuda_keep_part(n, together, &cell, thread);
}

// 1 / sqrt(variance + epsilon)
CUDA_SHARED float cuda_scale(const struct cuda_normalization *n, double variance)
{
    return 1 / sqrtf((float)(variance + (double)n->epsilon));
}

CUDA_BLOCK_BODY(gradients)
{
    const struct cuda_cell cell = cuda_cell_of(&n->merged, block, thread);
    const int32_t other = cuda_partner(&n->merged, &cell, thread, step);
    const int64_t c = cell.column;
    if (cell.inside && step == 0) {
        double product = 0, sum = 0;
        for (int64_t row = cell.row; row < n->merged.rows; row += cell.step) {
            product += n->parts[2 * (row * n->channels + c)];
            sum += n->parts[2 * (row * n->channels + c) + 1];
        }
        together->first[0][thread] = product;
        together->second[0][thread] = sum;
    } else if (other >= 0) {
        cuda_add_threads(together, thread, other, 1);
    }
    if (cuda_has_all(&n->merged, &cell, step)) {
        const double product = together->first[0][thread], sum = together->second[0][thread];
        const float dgamma = (float)(product * (double)cuda_scale(n, (double)n->variance[c]));
        n->totals[2 * c] = product;
        n->totals[2 * c + 1] = sum;
        n->dgamma[c] = n->add[0] ? n->dgamma[c] + dgamma : dgamma;
        n->dbeta[c] = n->add[1] ? n->dbeta[c] + (float)sum : (float)sum;
    }
}

// ---- Element by element: an item is one column, or four, on every n->lanes-th row ----
// From the last row to the first: those that were read last before may still lie in the cache.

// What comes after the result of a thread by itself. There are kernels for each of these, but for a ReLU only where an activation
// may follow, as it does forward (`activated`).
enum cuda_follower { CUDA_NOTHING, CUDA_RELU, CUDA_ANYTHING };

static inline enum cuda_follower cuda_follower_of(const struct cuda_store *store, int activated)
{
    if (!store->epilogue && !store->add)
        return CUDA_NOTHING;
    const int relu = store->epilogue == 1 && store->activation == 1 && !store->add;
    return activated && relu ? CUDA_RELU : CUDA_ANYTHING;
}

// Whether rows are read CUDA_BATCH_OF_TWO at a time (`several`), else one by one, which needs fewer registers.
CUDA_SHARED int cuda_reads_several(enum cuda_follower known)
{
    return known != CUDA_ANYTHING;
}

#define CUDA_THREAD_BODY(name) \
    CUDA_SHARED void cuda_body_##name(const struct cuda_normalization *n, int64_t i, int several)

// Per column: out = (x - center) * scale + shift [+ addend], or the gradient of that.
struct cuda_columns_of {
    struct cuda_four center, scale, shift, slope;
    int64_t column, row;
};

CUDA_SHARED struct cuda_columns_of cuda_item(const struct cuda_normalization *n, int64_t i,
                                             int pack)
{
    struct cuda_columns_of out;
    const int64_t across = n->tiles.columns / pack, lane = cuda_quotient(i, across);
    out.column = (i - lane * across) * pack;
    out.row = n->tiles.rows - 1 - lane;
    return out;
}

// The mean of a training is known to more bits than `center` has: what is left goes into the shift.
CUDA_SHARED void cuda_forward_columns(const struct cuda_normalization *n,
                                      struct cuda_columns_of *of, int pack)
{
    for (int k = 0; k < pack; k++) {
        const int64_t c = cuda_remainder(of->column + k, n->channels);
        const double mean = n->totals ? n->totals[2 * c] : (double)n->mean[c];
        const double variance = n->totals ? n->totals[2 * c + 1] : (double)n->variance[c];
        of->center.v[k] = (float)mean;
        of->scale.v[k] = n->gamma[c] * cuda_scale(n, variance);
        of->shift.v[k] = n->beta[c] - (float)(mean - (double)of->center.v[k]) * of->scale.v[k];
    }
}

CUDA_SHARED void cuda_forward_rows(const struct cuda_normalization *n,
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

CUDA_SHARED void cuda_forward(const struct cuda_normalization *n, int64_t i, int several, int pack)
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
CUDA_SHARED void cuda_backward_columns(const struct cuda_normalization *n,
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

CUDA_SHARED void cuda_backward_rows(const struct cuda_normalization *n,
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

CUDA_SHARED void cuda_backward(const struct cuda_normalization *n, int64_t i, int several, int pack)
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

#endif
