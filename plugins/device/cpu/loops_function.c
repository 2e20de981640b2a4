// SPDX-License-Identifier: Apache-2.0
// The functions of LS_OP_FUNCTION and their derivatives; compiled for each instruction set.
#include "plugins/device/cpu/loops.h"
#include "plugins/device/cpu/loops_math.h"

#define INVERSE_ROOT_2 0.70710678f
#define INVERSE_ROOT_2PI 0.39894228f
#define FAR 14.5f // exp(-FAR^2 / 2) is less than half of the least float32
#define ROOT_2_BY_PI 0.79788456f
#define GELU_CUBE 0.044715f

// The share of a normal distribution beyond a >= 0, and 2^64 exp(-a^2 / 2), which is never
// denormal. With z = a / sqrt(2) the share is erfc(z) / 2 = exp(-z^2) P(1 / (1 + 0.4 z)) / 2; P was
// fitted for z from 0 to 10 to a relative error of 3e-8, so that nothing cancels. The exponential
// is that of vector_exp() in fewer steps, for a <= FAR.
static inline float normal_tail(float a, float *bell)
{
    const float rounder = 12582912.0f, power = -0.5f * a * a, share = 0x1p-65f;
    const float shifted = power * 1.44269504f + rounder, n = shifted - rounder;
    const float r = (power - n * 0.693145752f) - n * 1.42860677e-6f;
    const uint32_t exponent = (uint32_t)bits_of_float(shifted) + 127 + 64;
    const float t = 1.0f / (1.0f + 0.4f * INVERSE_ROOT_2 * a);
    float e = 1.0f / 5040.0f, p = share * 0.0286957454f;
    e = e * r + 1.0f / 720.0f;
    e = e * r + 1.0f / 120.0f;
    e = e * r + 1.0f / 24.0f;
    e = e * r + 1.0f / 6.0f;
    e = e * r + 0.5f;
    e = e * r + 1.0f;
    e = e * r + 1.0f;
    p = p * t - share * 0.0747488737f;
    p = p * t - share * 0.0636867136f;
    p = p * t + share * 0.275788993f;
    p = p * t - share * 0.0685675144f;
    p = p * t + share * 0.268638045f;
    p = p * t + share * 0.177416191f;
    p = p * t + share * 0.231355175f;
    p = p * t + share * 0.225082576f;
    p = p * t + share * 2.64053124e-5f;
    *bell = e * float_of_bits((int32_t)(exponent << 23));
    return *bell * p;
}

// |x|, but where all that is beyond is 0 in float32. NaN stays NaN.
static inline float distance_of(float x)
{
    const float a = fabsf(x);
    return a > FAR ? FAR : a;
}

// tanh(log(1 + exp(x))) = n / (n + 2) with n = exp(x) (exp(x) + 2); above 20 it is 1.
static inline float mish_n(float x, float *e)
{
    *e = vector_exp(x > 20.0f ? 20.0f : x);
    return *e * (*e + 2.0f);
}

// (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), in which nothing cancels.
static inline float gelu_share(float x, float *e)
{
    const float u = -2.0f * ROOT_2_BY_PI * (x + GELU_CUBE * x * x * x);
    *e = vector_exp(u > 80.0f ? 80.0f : u);
    return 1.0f / (1.0f + *e);
}

// `kind` is a constant wherever this is inlined. NaN stays NaN.
static inline float apply(uint32_t kind, struct cpu_map map, float x)
{
    float e;
    switch (kind) {
    case LS_GELU: {
        const float a = distance_of(x);
        return (x > 0.0f ? x : 0.0f) - a * normal_tail(a, &e);
    }
    case LS_GELU_TANH: return x * gelu_share(x, &e);
    case LS_SILU: return x * vector_sigmoid(x);
    case LS_HARD_SILU: return x * vector_hard_sigmoid(x);
    case LS_MISH: {
        const float n = mish_n(x, &e);
        return x * (n / (n + 2.0f));
    }
    case LS_LOG_SIGMOID: return -vector_softplus(-x);
    case LS_SQUARE: return x * x;
    case LS_SQUARE_ROOT: {
        const float root = sqrtf(x);
        return root < map.offset ? map.offset : root;
    }
    case LS_LOGARITHM: return logf(x);
    default: return map.factor * x + map.offset;
    }
}

static inline float slope(uint32_t kind, struct cpu_map map, float x)
{
    float e;
    switch (kind) {
    case LS_GELU: {
        const float a = distance_of(x), tail = normal_tail(a, &e);
        const float lower = a * (0x1p-64f * INVERSE_ROOT_2PI * e) - tail;
        return x < 0.0f ? -lower : 1.0f + lower;
    }
    case LS_GELU_TANH: {
        const float share = gelu_share(x, &e);
        const float inner = 2.0f * ROOT_2_BY_PI * (1.0f + 3.0f * GELU_CUBE * x * x);
        return share + x * (e * share * share) * inner;
    }
    case LS_SILU: {
        const float s = vector_sigmoid(x);
        return s + x * (s * (1.0f - s));
    }
    case LS_HARD_SILU:
        return vector_hard_sigmoid(x) + ((x > -3.0f) & (x < 3.0f) ? x * (1.0f / 6.0f) : 0.0f);
    case LS_MISH: {
        const float n = mish_n(x, &e), rest = 1.0f / (n + 2.0f);
        return n * rest + x * (4.0f * (n + 1.0f) * rest * rest) * (e / (1.0f + e));
    }
    case LS_LOG_SIGMOID: return vector_sigmoid(-x);
    case LS_SQUARE: return 2.0f * x;
    case LS_SQUARE_ROOT: {
        const float root = sqrtf(x);
        return root > map.offset ? 0.5f / root : 0.0f;
    }
    case LS_LOGARITHM: return 1.0f / x;
    default: return map.factor;
    }
}

#define FOR_EACH_FUNCTION(call)                       \
    switch (map.function) {                           \
    case LS_GELU: call(LS_GELU); break;               \
    case LS_GELU_TANH: call(LS_GELU_TANH); break;     \
    case LS_SILU: call(LS_SILU); break;               \
    case LS_HARD_SILU: call(LS_HARD_SILU); break;     \
    case LS_MISH: call(LS_MISH); break;               \
    case LS_LOG_SIGMOID: call(LS_LOG_SIGMOID); break; \
    case LS_SQUARE: call(LS_SQUARE); break;           \
    case LS_SQUARE_ROOT: call(LS_SQUARE_ROOT); break; \
    case LS_LOGARITHM: call(LS_LOGARITHM); break;     \
    default: call(LS_SCALE); break;                   \
    }

// y may be x, so no `restrict`: iterations are independent all the same.
static void map_forward(struct cpu_map map, const float *x, float *y, int64_t n)
{
#define MAP(kind) _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) y[i] = apply(kind, map, x[i])
    FOR_EACH_FUNCTION(MAP)
#undef MAP
}

static void map_backward(struct cpu_map map, const float *dy, const float *x, float *dx, int64_t n)
{
#define MAP_BACKWARD(kind) \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * slope(kind, map, x[i])
    FOR_EACH_FUNCTION(MAP_BACKWARD)
#undef MAP_BACKWARD
}

const struct cpu_function_loops CPU_TABLE(function) = {
    .map = map_forward,
    .map_backward = map_backward,
};
