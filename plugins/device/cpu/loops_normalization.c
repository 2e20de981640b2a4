// SPDX-License-Identifier: Apache-2.0
// Batch normalization, forward and backward; compiled for each instruction set. The vectors are up to CPU_LANES neighbours
// in memory: the channels of a row, and where rows lie close together, several rows at once. A channel is then in several
// lanes, whose sums are added at the end.
#include "plugins/device/cpu/loops.h"

#include <stddef.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

// ---- How lanes lie over the rows ----

// Goes through rows of a block in panels: `count` times `lanes` neighbours, `stride` apart, from `at`.
struct walk {
    const struct cpu_normalization *n;
    int64_t left; // rows
    int64_t width, fold; // channels of the block, rows in one row of a panel
    int64_t plane, in_plane; // where the next one begins
    int64_t at, count, lanes, stride;
};

static struct walk walk_of(const struct cpu_normalization *n, struct cpu_rows rows)
{
    const int64_t width = rows.block + 1 == n->blocks ? n->last_width : n->width;
    return (struct walk){.n = n,
                         .left = rows.end - rows.begin,
                         .width = width,
                         .fold = n->row == width ? CPU_LANES / width : 1,
                         .plane = rows.begin / n->plane * n->example + rows.block * n->block,
                         .in_plane = rows.begin % n->plane};
}

// The next panel; 0: there is none. What is left over at the end of a plane is a panel of its own.
static int walk_next(struct walk *w)
{
    const struct cpu_normalization *n = w->n;
    if (w->left == 0)
        return 0;
    if (w->in_plane == n->plane) {
        w->plane += n->example;
        w->in_plane = 0;
    }
    int64_t rows = n->plane - w->in_plane;
    rows = rows < w->left ? rows : w->left;
    const int64_t fold = rows < w->fold ? rows : w->fold;
    w->at = w->plane + w->in_plane * n->row;
    w->count = rows < w->fold ? 1 : rows / w->fold;
    w->lanes = fold * w->width;
    w->stride = fold * n->row;
    w->left -= w->count * fold;
    w->in_plane += w->count * fold;
    return 1;
}

// Adds up the lanes of each channel.
static void fold_lanes(int64_t width, const float *lanes, double *out)
{
    for (int64_t i = 0; i < width; i++)
        out[i] = 0.0;
    for (int64_t first = 0; first + width <= CPU_LANES; first += width)
        for (int64_t i = 0; i < width; i++)
            out[i] += (double)lanes[first + i];
}

// A panel of all lanes is the common one: there the compiler knows how many and keeps the sums in registers.
#define FOR_EACH_PANEL(walk, call)     \
    while (walk_next(&(walk))) {       \
        if ((walk).lanes == CPU_LANES) \
            call(CPU_LANES);           \
        else                           \
            call((walk).lanes);        \
    }

// ---- Statistics ----

ALWAYS_INLINE void add_panel(const struct walk *w, int64_t lanes, const float *x,
                             float *restrict sums)
{
    float sum[CPU_LANES];
    for (int64_t l = 0; l < lanes; l++)
        sum[l] = sums[l];
    for (int64_t r = 0; r < w->count; r++, x += w->stride)
        for (int64_t l = 0; l < lanes; l++)
            sum[l] += x[l];
    for (int64_t l = 0; l < lanes; l++)
        sums[l] = sum[l];
}

// Distances from `mean`: their sum and the sum of their squares.
ALWAYS_INLINE void add_distances(const struct walk *w, int64_t lanes, const float *restrict mean,
                                 const float *x, float *restrict sums, float *restrict squares)
{
    float sum[CPU_LANES], square[CPU_LANES];
    for (int64_t l = 0; l < lanes; l++) {
        sum[l] = sums[l];
        square[l] = squares[l];
    }
    for (int64_t r = 0; r < w->count; r++, x += w->stride)
        for (int64_t l = 0; l < lanes; l++) {
            const float distance = x[l] - mean[l];
            sum[l] += distance;
            square[l] += distance * distance;
        }
    for (int64_t l = 0; l < lanes; l++) {
        sums[l] = sum[l];
        squares[l] = square[l];
    }
}

// Twice over the rows, which are few enough to stay in the cache: the mean of the first time is rounded; by how much, the
// distances of the second time say.
static void moments(const struct cpu_normalization *n, struct cpu_rows rows, const float *x,
                    double *mean, double *squares)
{
    float sums[CPU_LANES] = {0}, rounded[CPU_LANES], distances[CPU_LANES] = {0};
    float of_squares[CPU_LANES] = {0};
    double distance[CPU_LANES];
    const double count = (double)(rows.end - rows.begin);

    struct walk w = walk_of(n, rows);
#define ADD(lanes) add_panel(&w, lanes, x + w.at, sums)
    FOR_EACH_PANEL(w, ADD)
#undef ADD
    fold_lanes(w.width, sums, mean);
    for (int64_t l = 0; l < CPU_LANES; l++)
        rounded[l] = (float)(mean[l % w.width] / count);

    w = walk_of(n, rows);
#define ADD(lanes) add_distances(&w, lanes, rounded, x + w.at, distances, of_squares)
    FOR_EACH_PANEL(w, ADD)
#undef ADD
    fold_lanes(w.width, distances, distance);
    fold_lanes(w.width, of_squares, squares);
    for (int64_t i = 0; i < w.width; i++) {
        mean[i] = (double)rounded[i] + distance[i] / count;
        squares[i] -= distance[i] * distance[i] / count;
        squares[i] = squares[i] < 0.0 ? 0.0 : squares[i];
    }
}

// Chan, Golub and LeVeque 1983.
static void join_moments(int64_t width, double before, double count,
                         const double *restrict more_mean, const double *restrict more_squares,
                         double *restrict mean, double *restrict squares)
{
    const double share = count / (before + count), both = before * share;
    for (int64_t i = 0; i < width; i++) {
        const double distance = more_mean[i] - mean[i];
        mean[i] += distance * share;
        squares[i] += more_squares[i] + distance * distance * both;
    }
}

ALWAYS_INLINE void add_gradients(const struct walk *w, int64_t lanes, const float *restrict mean,
                                 const float *x, const float *dy, float *restrict sums,
                                 float *restrict products)
{
    float sum[CPU_LANES], product[CPU_LANES];
    for (int64_t l = 0; l < lanes; l++) {
        sum[l] = sums[l];
        product[l] = products[l];
    }
    for (int64_t r = 0; r < w->count; r++, x += w->stride, dy += w->stride)
        for (int64_t l = 0; l < lanes; l++) {
            sum[l] += dy[l];
            product[l] += dy[l] * (x[l] - mean[l]);
        }
    for (int64_t l = 0; l < lanes; l++) {
        sums[l] = sum[l];
        products[l] = product[l];
    }
}

static void gradient_sums(const struct cpu_normalization *n, struct cpu_rows rows,
                          const float *mean, const float *x, const float *dy, double *sum,
                          double *product)
{
    float sums[CPU_LANES] = {0}, products[CPU_LANES] = {0};
    struct walk w = walk_of(n, rows);
#define ADD(lanes) add_gradients(&w, lanes, mean, x + w.at, dy + w.at, sums, products)
    FOR_EACH_PANEL(w, ADD)
#undef ADD
    fold_lanes(w.width, sums, sum);
    fold_lanes(w.width, products, product);
}

// ---- Results: `added` is NULL or not where this is inlined ----

// Comparisons are written so that NaN passes through.
ALWAYS_INLINE void normalize_panel(const struct walk *w, int64_t lanes,
                                   const struct cpu_lanes *restrict by, const float *x,
                                   const float *added, float *y)
{
    const float low = w->n->low, high = w->n->high;
    for (int64_t r = 0; r < w->count; r++) {
        const int64_t at = r * w->stride;
        _Pragma("GCC ivdep") for (int64_t l = 0; l < lanes; l++)
        {
            float value = (x[at + l] - by->mean[l]) * by->scale[l] + by->shift[l];
            if (added)
                value += added[at + l];
            value = value < low ? low : value;
            y[at + l] = value > high ? high : value;
        }
    }
}

static void normalize(const struct cpu_normalization *n, struct cpu_rows rows,
                      const struct cpu_lanes *lanes, const float *x, const float *added, float *y)
{
    struct walk w = walk_of(n, rows);
#define WITH(count) normalize_panel(&w, count, lanes, x + w.at, added + w.at, y + w.at)
#define WITHOUT(count) normalize_panel(&w, count, lanes, x + w.at, NULL, y + w.at)
    if (added) {
        FOR_EACH_PANEL(w, WITH)
    } else {
        FOR_EACH_PANEL(w, WITHOUT)
    }
#undef WITH
#undef WITHOUT
    if (n->function.activation == LS_LINEAR)
        return;
    w = walk_of(n, rows);
    while (walk_next(&w))
        CPU_TABLE(elementwise)
            .bias_activate(n->function, NULL, y + w.at, w.count, w.lanes, w.stride);
}

ALWAYS_INLINE void gradient_panel(const struct walk *w, int64_t lanes,
                                  const struct cpu_lanes *restrict by, const float *x,
                                  const float *dy, const float *added, float *dx)
{
    for (int64_t r = 0; r < w->count; r++) {
        const int64_t at = r * w->stride;
        _Pragma("GCC ivdep") for (int64_t l = 0; l < lanes; l++)
        {
            const float value =
                dy[at + l] * by->scale[l] + by->shift[l] + (x[at + l] - by->mean[l]) * by->slope[l];
            dx[at + l] = added ? added[at + l] + value : value;
        }
    }
}

static void gradient(const struct cpu_normalization *n, struct cpu_rows rows,
                     const struct cpu_lanes *lanes, const float *x, const float *dy,
                     const float *added, float *dx)
{
    struct walk w = walk_of(n, rows);
#define WITH(count) gradient_panel(&w, count, lanes, x + w.at, dy + w.at, added + w.at, dx + w.at)
#define WITHOUT(count) gradient_panel(&w, count, lanes, x + w.at, dy + w.at, NULL, dx + w.at)
    if (added) {
        FOR_EACH_PANEL(w, WITH)
    } else {
        FOR_EACH_PANEL(w, WITHOUT)
    }
#undef WITH
#undef WITHOUT
}

const struct cpu_normalization_loops CPU_TABLE(normalization) = {
    .moments = moments,
    .join_moments = join_moments,
    .normalize = normalize,
    .gradient_sums = gradient_sums,
    .gradient = gradient,
};
