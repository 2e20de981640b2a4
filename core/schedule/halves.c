// SPDX-License-Identifier: Apache-2.0
// The loops are compiled for each type. What core/plugin/half.h says with branches is said with
// selections here, so that the compiler vectorises it; a test compares both for all halves.
#include "core/schedule/halves.h"

#include "core/plugin/half.h"

#define INFINITE UINT32_C(0x7f800000) // in float32
#define MAGNITUDE UINT32_C(0x7fffffff)

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

// `a` where the condition is 1, `b` where it is 0; a branch would keep loops from being vectorised.
static inline uint32_t choose(uint32_t condition, uint32_t a, uint32_t b)
{
    const uint32_t mask = UINT32_C(0) - condition;
    return (a & mask) | (b & ~mask);
}

static inline float widen(uint32_t dtype, uint16_t half)
{
    if (dtype == LS_BF16)
        return float_of((uint32_t)half << 16);
    const uint32_t magnitude = half & 0x7fff, sign = (uint32_t)(half & 0x8000) << 16;
    const uint32_t rebias = UINT32_C(112) << 23; // exponents of float32 begin 112 lower
    const uint32_t normal = (magnitude << 13) + rebias;
    const uint32_t large = choose(magnitude >= 0x7c00, normal + rebias, normal);
    const uint32_t tiny = bits_of((float)(int32_t)magnitude * 0x1p-24f);
    return float_of(choose(magnitude < 0x400, tiny, large) | sign);
}

static inline uint16_t narrow(uint32_t dtype, float value)
{
    const uint32_t bits = bits_of(value), magnitude = bits & MAGNITUDE, sign = bits >> 16 & 0x8000;
    const uint32_t is_nan = magnitude > INFINITE;
    if (dtype == LS_BF16) {
        const uint32_t rounded = (magnitude + UINT32_C(0x7fff) + (magnitude >> 16 & 1)) >> 16;
        return (uint16_t)(choose(is_nan, 0x7fc0, rounded) | sign);
    }
    // Below 2^-14: adding 0.5 leaves the half's bits, rounded, at the low end.
    const uint32_t tiny = bits_of(float_of(magnitude) + 0.5f) - UINT32_C(0x3f000000);
    const uint32_t rebased = magnitude - (UINT32_C(112) << 23);
    const uint32_t normal = (rebased + UINT32_C(0xfff) + (rebased >> 13 & 1)) >> 13;
    const uint32_t finite = choose(magnitude < UINT32_C(0x38800000), tiny, normal);
    const uint32_t bounded = choose(magnitude < UINT32_C(0x477ff000), finite, 0x7c00);
    return (uint16_t)(choose(is_nan, 0x7e00, bounded) | sign);
}

static inline bool round_all(uint32_t dtype, float *restrict values, uint16_t *restrict halves,
                             uint64_t count)
{
    // From here on to infinity it is lost.
    const uint32_t limit = dtype == LS_BF16 ? UINT32_C(0x7f7f8000) : UINT32_C(0x477ff000);
    uint32_t lost = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t magnitude = bits_of(values[i]) & MAGNITUDE;
        const uint16_t half = narrow(dtype, values[i]);
        lost |= magnitude - limit < INFINITE - limit;
        halves[i] = half;
        values[i] = widen(dtype, half);
    }
    return lost != 0;
}

static inline void narrow_all(uint32_t dtype, const float *restrict values,
                              uint16_t *restrict halves, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        halves[i] = narrow(dtype, values[i]);
}

static inline void widen_all(uint32_t dtype, const uint16_t *restrict halves,
                             float *restrict values, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        values[i] = widen(dtype, halves[i]);
}

static inline void add_all(uint32_t dtype, const uint16_t *restrict halves, float *restrict values,
                           uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        values[i] += widen(dtype, halves[i]);
}

bool ls_halves_round(uint32_t dtype, float *values, uint16_t *halves, uint64_t count)
{
    return dtype == LS_BF16 ? round_all(LS_BF16, values, halves, count)
                            : round_all(LS_F16, values, halves, count);
}

void ls_halves_narrow(uint32_t dtype, const float *values, uint16_t *halves, uint64_t count)
{
    if (dtype == LS_BF16)
        narrow_all(LS_BF16, values, halves, count);
    else
        narrow_all(LS_F16, values, halves, count);
}

void ls_halves_widen(uint32_t dtype, const uint16_t *halves, float *values, uint64_t count)
{
    if (dtype == LS_BF16)
        widen_all(LS_BF16, halves, values, count);
    else
        widen_all(LS_F16, halves, values, count);
}

void ls_halves_add(uint32_t dtype, const uint16_t *halves, float *values, uint64_t count)
{
    if (dtype == LS_BF16)
        add_all(LS_BF16, halves, values, count);
    else
        add_all(LS_F16, halves, values, count);
}
