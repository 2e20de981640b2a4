// SPDX-License-Identifier: Apache-2.0
// Normalization of rows and of groups of channels, the softmax of attention, and PReLU; compiled
// for each instruction set. Sums are made in lanes, so that the order of additions is the same for
// every instruction set's width.
#include "plugins/device/cpu/loops.h"
#include "plugins/device/cpu/loops_math.h"

#include <stddef.h>

enum { LANES = 16 };

static inline float fold(float *lanes)
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++)
            lanes[lane] += lanes[lane + half];
    return lanes[0];
}

// What is left over at the end of a row is added by itself, so that the lanes stay in registers.
static inline float sum_of(const float *x, int64_t n)
{
    float lanes[LANES] = {0}, rest = 0.0f;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] += x[i + lane];
    for (; i < n; i++)
        rest += x[i];
    return fold(lanes) + rest;
}

// Of the distances from `mean`: their sum and the sum of their squares.
static inline void sum_distances(const float *x, float mean, int64_t n, float *sum, float *squares)
{
    float lanes[LANES] = {0}, square[LANES] = {0}, rest = 0.0f, rest_square = 0.0f;
    int64_t i = 0;
    // In two loops: one over both is not vectorised.
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] += x[i + lane] - mean;
    for (i = 0; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            square[lane] += (x[i + lane] - mean) * (x[i + lane] - mean);
    for (; i < n; i++) {
        const float distance = x[i] - mean;
        rest += distance;
        rest_square += distance * distance;
    }
    *sum = fold(lanes) + rest;
    *squares = fold(square) + rest_square;
}

// The mean of n values of which `rounded` is nearly the mean, and 1 / deviation, from sums of the
// distances.
static inline void finish_moments(double rounded, double sum, double squares, double n,
                                  double epsilon, float *mean, float *inverse)
{
    const double variance = (squares - sum * sum / n) / n;
    *mean = (float)(rounded + sum / n);
    *inverse = (float)(1.0 / sqrt((variance < 0.0 ? 0.0 : variance) + epsilon));
}

// ---- Rows ----

static inline void scale_row(const float *restrict x, const float *gamma, const float *beta,
                             float mean, float inverse, float *restrict y, int64_t n)
{
    if (gamma && beta)
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * inverse * gamma[i] + beta[i];
    else if (gamma)
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * inverse * gamma[i];
    else if (beta)
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * inverse + beta[i];
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * inverse;
}

static void normalize_rows(const float *x, const float *gamma, const float *beta, float epsilon,
                           float *y, float *saved, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++, x += columns, y += columns) {
        const float rounded = sum_of(x, columns) / (float)columns;
        float sum, squares, mean, inverse;
        sum_distances(x, rounded, columns, &sum, &squares);
        finish_moments((double)rounded, (double)sum, (double)squares, (double)columns,
                       (double)epsilon, &mean, &inverse);
        if (saved) {
            saved[2 * r] = mean;
            saved[2 * r + 1] = inverse;
        }
        scale_row(x, gamma, beta, mean, inverse, y, columns);
    }
}

// Sums of g = gamma dy, and of g (x - mean).
static inline void sum_gradients(const float *dy, const float *x, const float *gamma, float mean,
                                 int64_t n, float *sum, float *product)
{
    float lanes[LANES] = {0}, with[LANES] = {0}, rest = 0.0f, rest_with = 0.0f;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            const float g = gamma ? gamma[i + lane] * dy[i + lane] : dy[i + lane];
            lanes[lane] += g;
            with[lane] += g * (x[i + lane] - mean);
        }
    for (; i < n; i++) {
        const float g = gamma ? gamma[i] * dy[i] : dy[i];
        rest += g;
        rest_with += g * (x[i] - mean);
    }
    *sum = fold(lanes) + rest;
    *product = fold(with) + rest_with;
}

static void normalize_rows_backward(const float *dy, const float *x, const float *saved,
                                    const float *gamma, float *dx, float *restrict dgamma,
                                    float *restrict dbeta, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++, x += columns, dy += columns, dx += columns) {
        const float mean = saved[2 * r], inverse = saved[2 * r + 1];
        float sum, product;
        sum_gradients(dy, x, gamma, mean, columns, &sum, &product);
        const float shift = sum / (float)columns;
        const float slope = product * inverse * inverse / (float)columns;
        if (dgamma)
            for (int64_t i = 0; i < columns; i++)
                dgamma[i] += dy[i] * ((x[i] - mean) * inverse);
        if (dbeta)
            for (int64_t i = 0; i < columns; i++)
                dbeta[i] += dy[i];
        if (gamma)
            _Pragma("GCC ivdep") for (int64_t i = 0; i < columns; i++) dx[i] =
                (gamma[i] * dy[i] - shift - (x[i] - mean) * slope) * inverse;
        else
            _Pragma("GCC ivdep") for (int64_t i = 0; i < columns; i++) dx[i] =
                (dy[i] - shift - (x[i] - mean) * slope) * inverse;
    }
}

// ---- Groups of channels, one example (rows, channels) ----

static void normalize_groups(const struct cpu_groups *g, const float *x, const float *gamma,
                             const float *beta, float epsilon, float *restrict y, float *saved,
                             float *room)
{
    const int64_t channels = g->groups * g->width;
    float *restrict mean = room, *restrict sums = room + channels;
    float *restrict squares = room + 2 * channels, *restrict shift = room + 3 * channels;
    const double n = (double)(g->rows * g->width);

    for (int64_t c = 0; c < channels; c++)
        sums[c] = 0.0f;
    for (int64_t r = 0; r < g->rows; r++)
        for (int64_t c = 0; c < channels; c++)
            sums[c] += x[r * channels + c];
    for (int64_t group = 0; group < g->groups; group++) {
        double sum = 0.0;
        for (int64_t i = 0; i < g->width; i++)
            sum += (double)sums[group * g->width + i];
        for (int64_t i = 0; i < g->width; i++)
            mean[group * g->width + i] = (float)(sum / n);
    }
    for (int64_t c = 0; c < channels; c++)
        sums[c] = squares[c] = 0.0f;
    for (int64_t r = 0; r < g->rows; r++)
        for (int64_t c = 0; c < channels; c++) {
            const float distance = x[r * channels + c] - mean[c];
            sums[c] += distance;
            squares[c] += distance * distance;
        }
    for (int64_t group = 0; group < g->groups; group++) {
        const int64_t first = group * g->width;
        double sum = 0.0, square = 0.0;
        float found, inverse;
        for (int64_t i = 0; i < g->width; i++) {
            sum += (double)sums[first + i];
            square += (double)squares[first + i];
        }
        finish_moments((double)mean[first], sum, square, n, (double)epsilon, &found, &inverse);
        if (saved) {
            saved[2 * group] = found;
            saved[2 * group + 1] = inverse;
        }
        for (int64_t c = first; c < first + g->width; c++) {
            mean[c] = found;
            sums[c] = gamma ? inverse * gamma[c] : inverse;
            shift[c] = beta ? beta[c] : 0.0f;
        }
    }
    for (int64_t r = 0; r < g->rows; r++)
        for (int64_t c = 0; c < channels; c++)
            y[r * channels + c] = (x[r * channels + c] - mean[c]) * sums[c] + shift[c];
}

static void normalize_groups_backward(const struct cpu_groups *g, const float *dy, const float *x,
                                      const float *saved, const float *gamma, float *dx,
                                      float *restrict dgamma, float *restrict dbeta, float *room)
{
    const int64_t channels = g->groups * g->width;
    float *restrict mean = room, *restrict scale = room + channels;
    float *restrict shift = room + 2 * channels, *restrict slope = room + 3 * channels;
    const double n = (double)(g->rows * g->width);

    for (int64_t c = 0; c < channels; c++) {
        mean[c] = saved[2 * (c / g->width)];
        dgamma[c] = dbeta[c] = 0.0f;
    }
    for (int64_t r = 0; r < g->rows; r++)
        for (int64_t c = 0; c < channels; c++) {
            const float gradient = dy[r * channels + c];
            dbeta[c] += gradient;
            dgamma[c] += gradient * (x[r * channels + c] - mean[c]);
        }
    for (int64_t group = 0; group < g->groups; group++) {
        const int64_t first = group * g->width;
        const double inverse = (double)saved[2 * group + 1];
        double sum = 0.0, product = 0.0;
        for (int64_t c = first; c < first + g->width; c++) {
            const double factor = gamma ? (double)gamma[c] : 1.0;
            sum += factor * (double)dbeta[c];
            product += factor * (double)dgamma[c];
        }
        for (int64_t c = first; c < first + g->width; c++) {
            scale[c] = (float)(gamma ? (double)gamma[c] * inverse : inverse);
            shift[c] = (float)(-sum * inverse / n);
            slope[c] = (float)(-product * inverse * inverse * inverse / n);
            dgamma[c] *= (float)inverse;
        }
    }
    for (int64_t r = 0; r < g->rows; r++)
        _Pragma("GCC ivdep") for (int64_t c = 0; c < channels; c++)
        {
            const int64_t i = r * channels + c;
            dx[i] = dy[i] * scale[c] + shift[c] + (x[i] - mean[c]) * slope[c];
        }
}

// ---- Attention ----

static inline float largest_of(const float *x, int64_t n)
{
    float lanes[LANES], best = x[0];
    int64_t i = 0;
    if (n >= LANES) {
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] = x[lane];
        for (i = LANES; i + LANES <= n; i += LANES)
            for (int lane = 0; lane < LANES; lane++)
                lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
        for (int lane = 0; lane < LANES; lane++)
            best = lanes[lane] > best ? lanes[lane] : best;
    }
    for (; i < n; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

static void attention_softmax(float *p, int64_t stride, int64_t rows, int64_t columns,
                              int64_t visible)
{
    for (int64_t r = 0; r < rows; r++, p += stride) {
        const int64_t n = visible + r < columns ? visible + r : columns;
        const float best = largest_of(p, n);
        for (int64_t i = 0; i < n; i++)
            p[i] = vector_exp_negative(p[i] - best);
        const float factor = 1.0f / sum_of(p, n);
        for (int64_t i = 0; i < n; i++)
            p[i] *= factor;
        for (int64_t i = n; i < columns; i++)
            p[i] = 0.0f;
    }
}

static void attention_softmax_backward(const float *restrict p, int64_t p_stride,
                                       float *restrict dp, int64_t stride, int64_t rows,
                                       int64_t columns, float scale)
{
    for (int64_t r = 0; r < rows; r++, p += p_stride, dp += stride) {
        float lanes[LANES] = {0}, rest = 0.0f;
        int64_t i = 0;
        for (; i + LANES <= columns; i += LANES)
            for (int lane = 0; lane < LANES; lane++)
                lanes[lane] += p[i + lane] * dp[i + lane];
        for (; i < columns; i++)
            rest += p[i] * dp[i];
        const float mean = fold(lanes) + rest;
        for (i = 0; i < columns; i++)
            dp[i] = p[i] * (dp[i] - mean) * scale;
    }
}

// ---- PReLU ----

static void prelu(const float *x, const float *alpha, int64_t step, float *y, int64_t n)
{
    if (step)
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] =
            x[i] > 0.0f ? x[i] : alpha[i] * x[i];
    else
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] =
            x[i] > 0.0f ? x[i] : alpha[0] * x[i];
}

static inline float prelu_slope(float x, float alpha)
{
    const float negative = x < 0.0f ? alpha : 0.0f;
    return x > 0.0f ? 1.0f : negative;
}

static void prelu_backward(const float *dy, const float *x, const float *alpha, int64_t step,
                           float *dx, float *restrict dalpha, int64_t n)
{
    if (step) {
        for (int64_t i = 0; i < n; i++)
            dalpha[i] += (x[i] < 0.0f ? x[i] : 0.0f) * dy[i];
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) dx[i] =
            dy[i] * prelu_slope(x[i], alpha[i]);
        return;
    }
    float lanes[LANES] = {0}, rest = 0.0f;
    int64_t i = 0;
    // gcc 12 makes wrong code for AVX2 where the product is conditional instead of its factor.
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] += (x[i + lane] < 0.0f ? x[i + lane] : 0.0f) * dy[i + lane];
    for (; i < n; i++)
        rest += (x[i] < 0.0f ? x[i] : 0.0f) * dy[i];
    dalpha[0] += fold(lanes) + rest;
    _Pragma("GCC ivdep") for (i = 0; i < n; i++) dx[i] = dy[i] * prelu_slope(x[i], alpha[0]);
}

// ---- Penalties ----

static void norms(const float *w, int64_t n, double *out)
{
    double magnitudes[LANES] = {0}, squares[LANES] = {0}, sums[2] = {0.0, 0.0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            magnitudes[lane] += (double)fabsf(w[i + lane]);
            squares[lane] += (double)(w[i + lane] * w[i + lane]);
        }
    for (; i < n; i++) {
        sums[0] += (double)fabsf(w[i]);
        sums[1] += (double)(w[i] * w[i]);
    }
    for (int lane = 0; lane < LANES; lane++) {
        sums[0] += magnitudes[lane];
        sums[1] += squares[lane];
    }
    out[0] = sums[0];
    out[1] = sums[1];
}

static void norms_backward(const float *w, float l1, float l2, float *dw, int64_t n)
{
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)
    {
        const float negative = w[i] < 0.0f ? -l1 : 0.0f;
        dw[i] = (w[i] > 0.0f ? l1 : negative) + l2 * w[i];
    }
}

const struct cpu_layer_loops CPU_TABLE(layers) = {
    .normalize_rows = normalize_rows,
    .normalize_rows_backward = normalize_rows_backward,
    .normalize_groups = normalize_groups,
    .normalize_groups_backward = normalize_groups_backward,
    .attention_softmax = attention_softmax,
    .attention_softmax_backward = attention_softmax_backward,
    .prelu = prelu,
    .prelu_backward = prelu_backward,
    .norms = norms,
    .norms_backward = norms_backward,
};
