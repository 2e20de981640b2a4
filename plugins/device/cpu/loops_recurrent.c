// SPDX-License-Identifier: Apache-2.0
// Loops of recurrent layers; compiled for each instruction set. Products of a few rows with a
// matrix that is used again in each step, which is packed once: panels of columns that follow each
// other row by row. An element is added up in the order of its row, whatever other rows there are,
// so the bits depend on nothing else.
#include "plugins/device/cpu/loops.h"
#include "plugins/device/cpu/loops_vector.h"

#include <string.h>

// Rows at a time: two registers each.
#define MOST_ROWS (LANES == 16 ? 12 : LANES == 8 ? 6 : 4)
#define PANEL (2 * LANES)

static void pack(const float *w, int64_t depth, int64_t columns, int64_t row, int64_t column,
                 float *packed)
{
    for (int64_t first = 0; first < columns; first += PANEL)
        for (int64_t k = 0; k < depth; k++, packed += PANEL)
            for (int64_t j = 0; j < PANEL; j++)
                packed[j] = first + j < columns ? w[k * row + (first + j) * column] : 0.0f;
}

// `rows` rows, a constant in each call, of one panel of which `width` columns are there.
static inline __attribute__((always_inline)) void multiply_rows(const int rows, const float *x,
                                                                int64_t x_row, const float *panel,
                                                                int64_t depth, int64_t width,
                                                                uint32_t add, float *y,
                                                                int64_t y_row)
{
    vec sums[MOST_ROWS][2];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
        sums[r][0] = sums[r][1] = (vec){0};
    for (int64_t k = 0; k < depth; k++, panel += PANEL) {
        const vec low = load(panel), high = load(panel + LANES);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            sums[r][0] += x[r * x_row + k] * low;
            sums[r][1] += x[r * x_row + k] * high;
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        float *to = y + r * y_row, part[PANEL];
        if (width == PANEL) {
            store(to, add ? load(to) + sums[r][0] : sums[r][0]);
            store(to + LANES, add ? load(to + LANES) + sums[r][1] : sums[r][1]);
            continue;
        }
        store(part, sums[r][0]);
        store(part + LANES, sums[r][1]);
        for (int64_t j = 0; j < width; j++)
            to[j] = add ? to[j] + part[j] : part[j];
    }
}

#define ROWS(n) \
    case n: multiply_rows(n, x, x_row, panel, depth, width, add, y, y_row); break
static void multiply_panel(int64_t rows, const float *x, int64_t x_row, const float *panel,
                           int64_t depth, int64_t width, uint32_t add, float *y, int64_t y_row)
{
    switch (rows) {
        ROWS(1);
        ROWS(2);
        ROWS(3);
        ROWS(4);
#if MOST_ROWS > 4
        ROWS(5);
        ROWS(6);
#endif
#if MOST_ROWS > 6
        ROWS(7);
        ROWS(8);
        ROWS(9);
        ROWS(10);
        ROWS(11);
        ROWS(12);
#endif
    }
}

static void product(const float *x, int64_t x_row, const float *packed, int64_t depth,
                    int64_t columns, uint32_t add, float *y, int64_t y_row, int64_t rows)
{
    const int64_t groups = (rows + MOST_ROWS - 1) / MOST_ROWS;
    for (int64_t first = 0; first < columns; first += PANEL, packed += depth * PANEL) {
        const int64_t width = columns - first < PANEL ? columns - first : PANEL;
        for (int64_t i = 0; i < groups; i++) { // of sizes that differ by one at most
            const int64_t begin = rows * i / groups, end = rows * (i + 1) / groups;
            multiply_panel(end - begin, x + begin * x_row, x_row, packed, depth, width, add,
                           y + begin * y_row + first, y_row);
        }
    }
}

static void add_two(const float *a, const float *b, float *y, int64_t n)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        y[i] += a[i] + b[i];
}

static void multiply(const float *a, const float *b, float *y, int64_t n)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] * b[i];
}

static void multiply_add(const float *a, const float *b, float *y, int64_t n)
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        y[i] += a[i] * b[i];
}

static void lstm_state(const float *gates, const float *c, float *y, int64_t n)
{
    const float *in = gates, *forget = gates + n, *new = gates + 2 * n;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        y[i] = forget[i] * c[i] + in[i] * new[i];
}

static void gru_state(const float *gates, const float *h, float *y, int64_t n)
{
    const float *z = gates, *e = gates + 2 * n;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++)
        y[i] = z[i] * h[i] + (1.0f - z[i]) * e[i];
}

static void lstm_backward(const float *gates, const float *c, const float *shown, const float *dh,
                          const float *through, float *dc, float *d, int64_t n)
{
    const float *in = gates, *forget = gates + n, *new = gates + 2 * n;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        const float more = dc[i] + through[i];
        d[i] = more * new[i];
        d[n + i] = more * c[i];
        d[2 * n + i] = more * in[i];
        d[3 * n + i] = dh[i] * shown[i];
        dc[i] = more * forget[i];
    }
}

static void gru_backward(const float *gates, const float *h, float *dh, float *d, int64_t n)
{
    const float *z = gates, *e = gates + 2 * n;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        d[i] = dh[i] * (h[i] - e[i]);
        d[2 * n + i] = dh[i] * (1.0f - z[i]);
        dh[i] *= z[i];
    }
}

const struct cpu_recurrent_loops CPU_TABLE(recurrent) = {
    .panel = PANEL,
    .pack = pack,
    .product = product,
    .add_two = add_two,
    .multiply = multiply,
    .multiply_add = multiply_add,
    .lstm_state = lstm_state,
    .gru_state = gru_state,
    .lstm_backward = lstm_backward,
    .gru_backward = gru_backward,
};
