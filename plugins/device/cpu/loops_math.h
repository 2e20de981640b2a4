// SPDX-License-Identifier: Apache-2.0
// Functions that a compiler can vectorise: no branches, no calls. Relative error about 1e-7.
#ifndef LS_CPU_LOOPS_MATH_H
#define LS_CPU_LOOPS_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float float_of_bits(int32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline int32_t bits_of_float(float value)
{
    int32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

// exp(r) - 1 for |r| <= 0.35: the Taylor series to r^7
static inline float small_expm1(float r)
{
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    return p * r * r + r;
}

// exp(x) = 2^n exp(r), n the nearest integer to x / ln 2. Infinite and NaN as exp() does.
static inline float vector_exp(float x)
{
    const float rounder = 12582912.0f; // 1.5 * 2^23: adding it leaves an integer in the low bits
    float c = x < -104.0f ? -104.0f : x;
    c = c > 89.0f ? 89.0f : c;
    float shifted = c * 1.44269504f + rounder;
    float n = shifted - rounder;
    float r = (c - n * 0.693145752f) - n * 1.42860677e-6f;
    int32_t i = bits_of_float(shifted) - bits_of_float(rounder);
    int32_t half = i >> 1; // in two steps, so that neither factor overflows; of NaN it is anything
    float scale = float_of_bits((int32_t)((uint32_t)(half + 127) << 23));
    float rest = float_of_bits((int32_t)((uint32_t)(i - half + 127) << 23));
    return (small_expm1(r) + 1.0f) * scale * rest;
}

// exp(x) for x <= 0 or NaN: the same bits in fewer steps, as 2^64 2^n never overflows.
static inline float vector_exp_negative(float x)
{
    const float rounder = 12582912.0f; // as above
    float c = x < -104.0f ? -104.0f : x;
    float shifted = c * 1.44269504f + rounder;
    float n = shifted - rounder;
    float r = (c - n * 0.693145752f) - n * 1.42860677e-6f;
    uint32_t exponent = (uint32_t)bits_of_float(shifted) + 127 + 64;
    return (small_expm1(r) + 1.0f) * float_of_bits((int32_t)(exponent << 23)) * 0x1p-64f;
}

static inline float vector_expm1(float x)
{
    float small = small_expm1(x), large = vector_exp(x) - 1.0f;
    return fabsf(x) < 0.35f ? small : large;
}

static inline float vector_sigmoid(float x)
{
    return 1.0f / (1.0f + vector_exp(-x));
}

static inline float vector_hard_sigmoid(float x)
{
    float lower = x < -3.0f ? -3.0f : x;
    return ((lower > 3.0f ? 3.0f : lower) + 3.0f) / 6.0f;
}

// Through expm1 of -2|x|, so that small arguments keep their digits and large ones end at 1.
static inline float vector_tanh(float x)
{
    float e = vector_expm1(-2.0f * fabsf(x));
    float t = -e / (e + 2.0f);
    return x < 0.0f ? -t : t;
}

// log(1 + u) for 0 <= u <= 1, as 2 artanh(u / (2 + u))
static inline float small_log1p(float u)
{
    float s = u / (2.0f + u), q = s * s;
    float p = 1.0f / 15.0f;
    p = p * q + 1.0f / 13.0f;
    p = p * q + 1.0f / 11.0f;
    p = p * q + 1.0f / 9.0f;
    p = p * q + 1.0f / 7.0f;
    p = p * q + 1.0f / 5.0f;
    p = p * q + 1.0f / 3.0f;
    return 2.0f * (p * q * s + s);
}

static inline float vector_softplus(float x)
{
    float largest = x < 0.0f ? 0.0f : x;
    return largest + small_log1p(vector_exp(-fabsf(x)));
}

#endif
