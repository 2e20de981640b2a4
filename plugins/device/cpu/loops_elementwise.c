// SPDX-License-Identifier: Apache-2.0
// Element-wise loops, sums and optimizer updates; compiled for each instruction set.
#include "plugins/device/cpu/loops.h"
#include "plugins/device/cpu/loops_math.h"

// A function of `kind`, which is a constant wherever this is inlined. Comparisons are written so
// that NaN passes through.
static inline float apply(uint32_t kind, float alpha, float x)
{
    switch (kind) {
    case LS_RELU: return x < 0.0f ? 0.0f : x;
    case LS_LEAKY_RELU: return x > 0.0f ? x : alpha * x;
    case LS_ELU: return x > 0.0f ? x : alpha * vector_expm1(x > 0.0f ? 0.0f : x);
    case LS_SIGMOID: return vector_sigmoid(x);
    case LS_TANH: return vector_tanh(x);
    case LS_SOFTPLUS: return vector_softplus(x);
    case LS_EXPONENTIAL: return vector_exp(x);
    case LS_RELU6: {
        float lower = x < 0.0f ? 0.0f : x;
        return lower > 6.0f ? 6.0f : lower;
    }
    case LS_SOFTSIGN: return x / (1.0f + fabsf(x));
    case LS_SELU: {
        const float scale = (float)LS_SELU_SCALE, below = (float)(LS_SELU_SCALE * LS_SELU_ALPHA);
        return x > 0.0f ? scale * x : below * vector_expm1(x > 0.0f ? 0.0f : x);
    }
    case LS_HARD_SIGMOID: return vector_hard_sigmoid(x);
    default: return x;
    }
}

// dy times the derivative, expressed through the output y.
static inline float apply_backward(uint32_t kind, float alpha, float dy, float y)
{
    switch (kind) {
    case LS_RELU: return y > 0.0f ? dy : 0.0f;
    case LS_LEAKY_RELU: return y > 0.0f ? dy : alpha * dy;
    case LS_ELU: return y > 0.0f ? dy : dy * (y + alpha);
    case LS_SIGMOID: return dy * (y * (1.0f - y));
    case LS_TANH: return dy * (1.0f - y * y);
    case LS_SOFTPLUS: return dy * -vector_expm1(-y);
    case LS_EXPONENTIAL: return dy * y;
    case LS_RELU6: return (y > 0.0f) & (y < 6.0f) ? dy : 0.0f;
    case LS_SOFTSIGN: return dy * ((1.0f - fabsf(y)) * (1.0f - fabsf(y)));
    case LS_SELU: {
        const float scale = (float)LS_SELU_SCALE, below = (float)(LS_SELU_SCALE * LS_SELU_ALPHA);
        return y > 0.0f ? dy * scale : dy * (y + below);
    }
    case LS_HARD_SIGMOID: return (y > 0.0f) & (y < 1.0f) ? dy * (1.0f / 6.0f) : 0.0f;
    default: return dy;
    }
}

#define FOR_EACH_KIND(call)                             \
    switch (function.activation) {                      \
    case LS_SELU: call(LS_SELU); break;                 \
    case LS_HARD_SIGMOID: call(LS_HARD_SIGMOID); break; \
    case LS_RELU: call(LS_RELU); break;                 \
    case LS_LEAKY_RELU: call(LS_LEAKY_RELU); break;     \
    case LS_ELU: call(LS_ELU); break;                   \
    case LS_SIGMOID: call(LS_SIGMOID); break;           \
    case LS_TANH: call(LS_TANH); break;                 \
    case LS_SOFTPLUS: call(LS_SOFTPLUS); break;         \
    case LS_EXPONENTIAL: call(LS_EXPONENTIAL); break;   \
    case LS_RELU6: call(LS_RELU6); break;               \
    case LS_SOFTSIGN: call(LS_SOFTSIGN); break;         \
    default: call(LS_LINEAR); break;                    \
    }

// x and y may be the same memory, so no `restrict`: iterations are independent all the same.
static void activate(struct cpu_function function, const float *x, float *y, int64_t n)
{
#define ACTIVATE(kind) \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = apply(kind, function.alpha, x[i])
    FOR_EACH_KIND(ACTIVATE)
#undef ACTIVATE
}

static void activate_backward(struct cpu_function function, const float *dy, const float *y,
                              float *dx, int64_t n)
{
#define ACTIVATE_BACKWARD(kind)                                  \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) dx[i] = \
        apply_backward(kind, function.alpha, dy[i], y[i])
    FOR_EACH_KIND(ACTIVATE_BACKWARD)
#undef ACTIVATE_BACKWARD
}

static inline void bias_rows(uint32_t kind, float alpha, const float *restrict bias,
                             float *restrict y, int64_t rows, int64_t columns, int64_t stride)
{
    for (int64_t r = 0; r < rows; r++, y += stride)
        for (int64_t c = 0; c < columns; c++)
            y[c] = apply(kind, alpha, y[c] + bias[c]);
}

static inline void activate_rows(uint32_t kind, float alpha, float *y, int64_t rows,
                                 int64_t columns, int64_t stride)
{
    for (int64_t r = 0; r < rows; r++, y += stride)
        for (int64_t c = 0; c < columns; c++)
            y[c] = apply(kind, alpha, y[c]);
}

static void bias_activate(struct cpu_function function, const float *bias, float *y, int64_t rows,
                          int64_t columns, int64_t stride)
{
#define WITH_BIAS(kind) bias_rows(kind, function.alpha, bias, y, rows, columns, stride)
#define WITHOUT_BIAS(kind) activate_rows(kind, function.alpha, y, rows, columns, stride)
    if (bias) {
        FOR_EACH_KIND(WITH_BIAS)
    } else if (function.activation != LS_LINEAR) {
        FOR_EACH_KIND(WITHOUT_BIAS)
    }
#undef WITH_BIAS
#undef WITHOUT_BIAS
}

static void activate_backward_rows(struct cpu_function function, const float *y, int64_t y_stride,
                                   float *dx, int64_t dx_stride, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++)
        activate_backward(function, dx + r * dx_stride, y + r * y_stride, dx + r * dx_stride,
                          columns);
}

// `count` columns, a constant in each call, so that their sums stay in registers while all rows pass.
static inline void sum_columns(const float *restrict x, int64_t rows, int64_t count, int64_t stride,
                               uint32_t add, float *restrict sums)
{
    float group[64] = {0};
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < count; i++)
            group[i] += x[r * stride + i];
    for (int64_t i = 0; i < count; i++)
        sums[i] = group[i] + (add ? sums[i] : 0.0f);
}

static void column_sums(const float *restrict x, int64_t rows, int64_t columns, int64_t stride,
                        uint32_t add, float *restrict sums)
{
    int64_t c = 0;
    for (; c + 64 <= columns; c += 64)
        sum_columns(x + c, rows, 64, stride, add, sums + c);
    for (; c + 32 <= columns; c += 32)
        sum_columns(x + c, rows, 32, stride, add, sums + c);
    for (; c + 16 <= columns; c += 16)
        sum_columns(x + c, rows, 16, stride, add, sums + c);
    for (; c + 8 <= columns; c += 8)
        sum_columns(x + c, rows, 8, stride, add, sums + c);
    for (; c < columns; c++)
        sum_columns(x + c, rows, 1, stride, add, sums + c);
}

static void add(const float *a, const float *b, float *y, int64_t n)
{
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

static void maximum(const float *a, const float *b, float *y, int64_t n)
{
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] =
        (a[i] >= b[i]) | (a[i] != a[i]) ? a[i] : b[i];
}

static void maximum_backward(const float *dy, const float *a, const float *b, float *da, float *db,
                             int64_t n)
{
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)
    {
        const float gradient = dy[i];
        const int first = a[i] >= b[i];
        da[i] = first ? gradient : 0.0f;
        db[i] = first ? 0.0f : gradient;
    }
}

static void from_bytes(float divisor, const uint8_t *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)x[i] / divisor;
}

static void dropout(uint64_t key, uint32_t first, float rate, const float *x, float *y, int64_t n)
{
    const float kept = 1.0f - rate;
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)
    {
        float value = x[i] / kept;
        y[i] = ls_dropout_keep(key, first + (uint32_t)i, rate) ? value : 0.0f;
    }
}

static void dropout_shared(uint64_t key, uint32_t element, float rate, const float *x, float *y,
                           int64_t n)
{
    const float kept = 1.0f - rate;
    const uint32_t keep = ls_dropout_keep(key, element, rate);
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)
    {
        float value = x[i] / kept;
        y[i] = keep ? value : 0.0f;
    }
}

static void noise(uint64_t key, uint64_t first, float deviation, const float *x, float *y,
                  int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint64_t bits = ls_noise_bits(key, first + (uint64_t)i);
        const double u = ((double)(bits >> 32) + 1) * 0x1p-32;
        const float v =
            (float)((double)(bits & UINT32_MAX) * 0x1p-32 - 0.5); // cos(t) = -cos(t - pi)
        const float radius = sqrtf(-2.0f * (float)log(u));
        y[i] = x[i] - deviation * radius * cosf(6.28318531f * v);
    }
}

static void sgd(float rate, float momentum, uint32_t nesterov, const float *restrict g,
                float *restrict w, float *restrict v, int64_t n)
{
    if (!v) {
        for (int64_t i = 0; i < n; i++)
            w[i] -= rate * g[i];
    } else if (nesterov) {
        for (int64_t i = 0; i < n; i++) {
            v[i] = momentum * v[i] - rate * g[i];
            w[i] += momentum * v[i] - rate * g[i];
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            v[i] = momentum * v[i] - rate * g[i];
            w[i] += v[i];
        }
    }
}

static void measure(const float *x, int64_t n, double *out)
{
    enum { LANES = 16 };
    double squares[LANES] = {0}, others[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            double value = (double)x[i + lane];
            double square = value * value;
            int finite = x[i + lane] - x[i + lane] == 0.0f;
            squares[lane] += finite ? square : 0.0;
            others[lane] += finite ? 0.0 : 1.0;
        }
    for (; i < n; i++) {
        int finite = x[i] - x[i] == 0.0f;
        squares[0] += finite ? (double)x[i] * (double)x[i] : 0.0;
        others[0] += finite ? 0.0 : 1.0;
    }
    out[0] = out[1] = 0.0;
    for (int lane = 0; lane < LANES; lane++) {
        out[0] += squares[lane];
        out[1] += others[lane];
    }
}

const struct cpu_elementwise_loops CPU_TABLE(elementwise) = {
    .activate = activate,
    .activate_backward = activate_backward,
    .bias_activate = bias_activate,
    .activate_backward_rows = activate_backward_rows,
    .column_sums = column_sums,
    .add = add,
    .maximum = maximum,
    .maximum_backward = maximum_backward,
    .from_bytes = from_bytes,
    .dropout = dropout,
    .dropout_shared = dropout_shared,
    .noise = noise,
    .sgd = sgd,
    .measure = measure,
};
