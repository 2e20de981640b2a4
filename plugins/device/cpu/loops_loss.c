// SPDX-License-Identifier: Apache-2.0
// Softmax and the losses, row by row; compiled for each instruction set. Rows are often short (ten
// classes), so the exponentials run over several rows at once.
#include "plugins/device/cpu/loops.h"
#include "plugins/device/cpu/loops_math.h"

static inline float largest_of(const float *x, int64_t n, int64_t *at)
{
    float best = x[0];
    *at = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > best) {
            best = x[i];
            *at = i;
        }
    return best;
}

static inline float largest_value(const float *x, int64_t n)
{
    float best = x[0];
    for (int64_t i = 1; i < n; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

static inline float sum_of(const float *x, int64_t n)
{
    enum { LANES = 16 };
    float lanes[LANES] = {0}, sum = 0.0f;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] += x[i + lane];
    if (i)
        for (int lane = 0; lane < LANES; lane++)
            sum += lanes[lane];
    for (; i < n; i++)
        sum += x[i];
    return sum;
}

// y = exp(x - largest of its row); all rows' exponentials in one loop
static void exponentials(const float *x, float *y, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++) {
        float best = largest_value(x + r * columns, columns);
        for (int64_t c = 0; c < columns; c++)
            y[r * columns + c] = x[r * columns + c] - best;
    }
    for (int64_t i = 0; i < rows * columns; i++)
        y[i] = vector_exp_negative(y[i]);
}

static void softmax(const float *x, float *y, int64_t rows, int64_t columns)
{
    exponentials(x, y, rows, columns);
    for (int64_t r = 0; r < rows; r++, y += columns) {
        float factor = 1.0f / sum_of(y, columns);
        for (int64_t c = 0; c < columns; c++)
            y[c] *= factor;
    }
}

static void softmax_backward(const float *dy, const float *y, float *dx, int64_t rows,
                             int64_t columns)
{
    for (int64_t r = 0; r < rows; r++, dy += columns, y += columns, dx += columns) {
        float sum = 0.0f;
        for (int64_t c = 0; c < columns; c++)
            sum += dy[c] * y[c];
        for (int64_t c = 0; c < columns; c++)
            dx[c] = y[c] * (dy[c] - sum);
    }
}

static void cross_entropy_logits(const float *x, const int32_t *labels,
                                 float *restrict probabilities, int64_t rows, int64_t columns,
                                 double *out)
{
    exponentials(x, probabilities, rows, columns);
    for (int64_t r = 0; r < rows; r++, x += columns, probabilities += columns) {
        int64_t at, label = labels[r];
        float best = largest_of(x, columns, &at);
        float sum = sum_of(probabilities, columns), factor = 1.0f / sum;
        for (int64_t c = 0; c < columns; c++)
            probabilities[c] *= factor;
        if (label < 0 || label >= columns) {
            out[0] += (double)NAN;
            continue;
        }
        out[0] += log((double)sum) - ((double)x[label] - (double)best);
        out[1] += at == label;
    }
}

static inline float clipped(float p, float epsilon)
{
    p = p < epsilon ? epsilon : p;
    return p > 1.0f - epsilon ? 1.0f - epsilon : p;
}

static inline double clipped_sum(const float *x, float epsilon, int64_t columns)
{
    double sum = 0.0;
    for (int64_t c = 0; c < columns; c++)
        sum += (double)clipped(x[c], epsilon);
    return sum;
}

static void cross_entropy_probabilities(const float *x, const int32_t *labels, float epsilon,
                                        int64_t rows, int64_t columns, double *out)
{
    for (int64_t r = 0; r < rows; r++, x += columns) {
        int64_t at, label = labels[r];
        largest_of(x, columns, &at);
        if (label < 0 || label >= columns) {
            out[0] += (double)NAN;
            continue;
        }
        out[0] += log(clipped_sum(x, epsilon, columns)) - log((double)clipped(x[label], epsilon));
        out[1] += at == label;
    }
}

// A label outside of the classes must not go unnoticed.
static void make_nan(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = NAN;
}

static void cross_entropy_logits_backward(const float *probabilities, const int32_t *labels,
                                          float scale, float *dx, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows * columns; i++)
        dx[i] = probabilities[i] * scale;
    for (int64_t r = 0; r < rows; r++)
        if (labels[r] >= 0 && labels[r] < columns)
            dx[r * columns + labels[r]] -= scale;
        else
            make_nan(dx + r * columns, columns);
}

// The loss is log(sum of q) - log(q of the label), q = clipped p; no gradient passes a clip.
static void cross_entropy_probabilities_backward(const float *x, const int32_t *labels,
                                                 float epsilon, float scale, float *dx,
                                                 int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++, x += columns, dx += columns) {
        int64_t label = labels[r];
        if (label < 0 || label >= columns) {
            make_nan(dx, columns);
            continue;
        }
        float inverse = (float)(1.0 / clipped_sum(x, epsilon, columns));
        float at_label = 1.0f / clipped(x[label], epsilon);
        for (int64_t c = 0; c < columns; c++) {
            float gradient = (inverse - (c == label ? at_label : 0.0f)) * scale;
            dx[c] = (x[c] < epsilon) | (x[c] > 1.0f - epsilon) ? 0.0f : gradient;
        }
    }
}

static double squared_error(const float *x, const float *target, int64_t n)
{
    enum { LANES = 16 };
    double lanes[LANES] = {0}, sum = 0.0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            float difference = x[i + lane] - target[i + lane];
            lanes[lane] += (double)(difference * difference);
        }
    for (; i < n; i++)
        sum += (double)((x[i] - target[i]) * (x[i] - target[i]));
    for (int lane = 0; lane < LANES; lane++)
        sum += lanes[lane];
    return sum;
}

static void squared_error_backward(const float *x, const float *target, float factor, float *dx,
                                   int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dx[i] = (x[i] - target[i]) * factor;
}

const struct cpu_loss_loops CPU_TABLE(loss) = {
    .softmax = softmax,
    .softmax_backward = softmax_backward,
    .cross_entropy_logits = cross_entropy_logits,
    .cross_entropy_probabilities = cross_entropy_probabilities,
    .cross_entropy_logits_backward = cross_entropy_logits_backward,
    .cross_entropy_probabilities_backward = cross_entropy_probabilities_backward,
    .squared_error = squared_error,
    .squared_error_backward = squared_error_backward,
};
