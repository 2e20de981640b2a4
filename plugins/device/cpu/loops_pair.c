// SPDX-License-Identifier: Apache-2.0
// Two tensors element by element, what comes back to each of them, and sums and largest elements of
// rows; compiled for each instruction set. Rows lie at any distance, a column beside the one before
// or, where a tensor is repeated, at the same place.
#include "plugins/device/cpu/loops.h"

#include <math.h>

// `kind` is a constant wherever these are inlined. Comparisons are written so that NaN stays.
static inline float pair_of(uint32_t kind, float a, float b)
{
    switch (kind) {
    case LS_PAIR_SUBTRACT: return a - b;
    case LS_PAIR_MULTIPLY: return a * b;
    case LS_PAIR_DIVIDE: return a / b;
    case LS_PAIR_MAXIMUM: return (a >= b) | (a != a) ? a : b;
    case LS_PAIR_MINIMUM: return (a <= b) | (a != a) ? a : b;
    default: return a + b;
    }
}

static inline float term_of(uint32_t kind, float dy, float a, float b)
{
    switch (kind) {
    case CPU_TERM_MINUS: return -dy;
    case CPU_TERM_TIMES_A: return dy * a;
    case CPU_TERM_TIMES_B: return dy * b;
    case CPU_TERM_OVER_B: return dy / b;
    case CPU_TERM_QUOTIENT: return -(dy * a) / (b * b);
    case CPU_TERM_NOT_LESS: return a >= b ? dy : 0.0f;
    case CPU_TERM_LESS: return a >= b ? 0.0f : dy;
    case CPU_TERM_NOT_MORE: return a <= b ? dy : 0.0f;
    case CPU_TERM_MORE: return a <= b ? 0.0f : dy;
    case CPU_TERM_EQUAL: return a == b ? dy : 0.0f;
    case CPU_TERM_COUNT: return a == b ? 1.0f : 0.0f;
    default: return dy;
    }
}

#define FOR_EACH_PAIR(call)                               \
    switch (function) {                                   \
    case LS_PAIR_SUBTRACT: call(LS_PAIR_SUBTRACT); break; \
    case LS_PAIR_MULTIPLY: call(LS_PAIR_MULTIPLY); break; \
    case LS_PAIR_DIVIDE: call(LS_PAIR_DIVIDE); break;     \
    case LS_PAIR_MAXIMUM: call(LS_PAIR_MAXIMUM); break;   \
    case LS_PAIR_MINIMUM: call(LS_PAIR_MINIMUM); break;   \
    default: call(LS_PAIR_ADD); break;                    \
    }

#define FOR_EACH_TERM(call)                                 \
    switch (term) {                                         \
    case CPU_TERM_MINUS: call(CPU_TERM_MINUS); break;       \
    case CPU_TERM_TIMES_A: call(CPU_TERM_TIMES_A); break;   \
    case CPU_TERM_TIMES_B: call(CPU_TERM_TIMES_B); break;   \
    case CPU_TERM_OVER_B: call(CPU_TERM_OVER_B); break;     \
    case CPU_TERM_QUOTIENT: call(CPU_TERM_QUOTIENT); break; \
    case CPU_TERM_NOT_LESS: call(CPU_TERM_NOT_LESS); break; \
    case CPU_TERM_LESS: call(CPU_TERM_LESS); break;         \
    case CPU_TERM_NOT_MORE: call(CPU_TERM_NOT_MORE); break; \
    case CPU_TERM_MORE: call(CPU_TERM_MORE); break;         \
    case CPU_TERM_EQUAL: call(CPU_TERM_EQUAL); break;       \
    case CPU_TERM_COUNT: call(CPU_TERM_COUNT); break;       \
    default: call(CPU_TERM_SAME); break;                    \
    }

// The result may lie where an operand of the same distances lies.
static void pair(uint32_t function, int64_t rows, int64_t columns, struct cpu_operand a,
                 struct cpu_operand b, struct cpu_result y)
{
#define ROWS(kind, a_step, b_step)                                         \
    for (int64_t r = 0; r < rows; r++) {                                   \
        const float *ar = a.at + r * a.row, *br = b.at + r * b.row;        \
        float *yr = y.at + r * y.row;                                      \
        _Pragma("GCC ivdep") for (int64_t c = 0; c < columns; c++) yr[c] = \
            pair_of(kind, ar[c * (a_step)], br[c * (b_step)]);             \
    }
#define BOTH(kind) ROWS(kind, 1, 1)
#define FIRST(kind) ROWS(kind, 1, 0)
#define SECOND(kind) ROWS(kind, 0, 1)
#define NEITHER(kind) ROWS(kind, 0, 0)
    if (a.step && b.step) {
        FOR_EACH_PAIR(BOTH)
    } else if (a.step) {
        FOR_EACH_PAIR(FIRST)
    } else if (b.step) {
        FOR_EACH_PAIR(SECOND)
    } else {
        FOR_EACH_PAIR(NEITHER)
    }
#undef ROWS
#undef BOTH
#undef FIRST
#undef SECOND
#undef NEITHER
}

static void terms(uint32_t term, int64_t rows, int64_t columns, struct cpu_operand dy,
                  struct cpu_operand a, struct cpu_operand b, struct cpu_result out)
{
#define ROWS(kind, dy_step, a_step, b_step)                                       \
    for (int64_t r = 0; r < rows; r++) {                                          \
        const float *dr = dy.at + r * dy.row;                                     \
        const float *ar = a.at + r * a.row, *br = b.at + r * b.row;               \
        float *to = out.at + r * out.row;                                         \
        _Pragma("GCC ivdep") for (int64_t c = 0; c < columns; c++) to[c] =        \
            term_of(kind, dr[c * (dy_step)], ar[c * (a_step)], br[c * (b_step)]); \
    }
#define ALL(kind) ROWS(kind, 1, 1, 1)
#define FIRST(kind) ROWS(kind, 1, 1, 0)
#define SECOND(kind) ROWS(kind, 1, 0, 1)
#define REPEATED(kind) ROWS(kind, 0, 1, 0)
    if (!dy.step) {
        FOR_EACH_TERM(REPEATED)
    } else if (a.step && b.step) {
        FOR_EACH_TERM(ALL)
    } else if (a.step) {
        FOR_EACH_TERM(FIRST)
    } else {
        FOR_EACH_TERM(SECOND)
    }
#undef ROWS
#undef ALL
#undef FIRST
#undef SECOND
#undef REPEATED
}

enum { FLOAT_ROWS = 64, FLOAT_LANES = 32, FLOAT_RUN = 1024 }; // added in float32, then in double

// `count` columns, a constant in each call, so that their sums stay in registers.
static inline void add_group(const float *restrict x, int64_t rows, int64_t count, int64_t stride,
                             double *restrict sums)
{
    for (int64_t first = 0; first < rows; first += FLOAT_ROWS) {
        const int64_t end = first + FLOAT_ROWS < rows ? first + FLOAT_ROWS : rows;
        float group[64] = {0};
        for (int64_t r = first; r < end; r++)
            for (int64_t i = 0; i < count; i++)
                group[i] += x[r * stride + i];
        for (int64_t i = 0; i < count; i++)
            sums[i] += (double)group[i];
    }
}

static void add_rows(const float *x, int64_t rows, int64_t columns, int64_t stride, double *sums)
{
    int64_t c = 0;
    for (; c + 64 <= columns; c += 64)
        add_group(x + c, rows, 64, stride, sums + c);
    for (; c + 16 <= columns; c += 16)
        add_group(x + c, rows, 16, stride, sums + c);
    for (; c + 8 <= columns; c += 8)
        add_group(x + c, rows, 8, stride, sums + c);
    for (; c < columns; c++)
        add_group(x + c, rows, 1, stride, sums + c);
}

static double add_run(const float *x, int64_t n, double sum)
{
    int64_t i = 0;
    while (n - i >= FLOAT_LANES) {
        const int64_t end = n - i < FLOAT_RUN ? n : i + FLOAT_RUN;
        float lanes[FLOAT_LANES] = {0};
        for (; i + FLOAT_LANES <= end; i += FLOAT_LANES)
            for (int lane = 0; lane < FLOAT_LANES; lane++)
                lanes[lane] += x[i + lane];
        for (int lane = 0; lane < FLOAT_LANES; lane++)
            sum += (double)lanes[lane];
    }
    for (; i < n; i++)
        sum += (double)x[i];
    return sum;
}

static void largest_rows(const float *x, int64_t rows, int64_t columns, int64_t stride,
                         double *largest)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            const double value = (double)x[r * stride + c];
            largest[c] = (value > largest[c]) | (value != value) ? value : largest[c];
        }
}

static double largest_run(const float *x, int64_t n)
{
    float lanes[FLOAT_LANES], largest;
    int64_t i = 0;
    for (int lane = 0; lane < FLOAT_LANES; lane++)
        lanes[lane] = -INFINITY;
    for (; i + FLOAT_LANES <= n; i += FLOAT_LANES)
        for (int lane = 0; lane < FLOAT_LANES; lane++)
            lanes[lane] = (x[i + lane] > lanes[lane]) | (x[i + lane] != x[i + lane]) ? x[i + lane]
                                                                                     : lanes[lane];
    largest = lanes[0];
    for (int lane = 1; lane < FLOAT_LANES; lane++)
        largest = (lanes[lane] > largest) | (lanes[lane] != lanes[lane]) ? lanes[lane] : largest;
    for (; i < n; i++)
        largest = (x[i] > largest) | (x[i] != x[i]) ? x[i] : largest;
    return (double)largest;
}

const struct cpu_pair_loops CPU_TABLE(pair) = {
    .pair = pair,
    .terms = terms,
    .add_rows = add_rows,
    .add_run = add_run,
    .largest_rows = largest_rows,
    .largest_run = largest_run,
};
