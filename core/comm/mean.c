// SPDX-License-Identifier: Apache-2.0
// Means of types whose sums do not fit them: values become those of a wider type, the collective adds
// these up, and the sum is divided and rounded once.
#include "core/schedule/halves.h"
#include "core/comm/work.h"

#include <string.h>

#define BLOCK 1024 // values, that stay in a cache between two loops

struct ls_wide_mean ls_wide_mean_of(uint32_t dtype, uint32_t reduction, uint32_t world)
{
    static const struct ls_wide_mean rows[] = {[LS_F16] = {LS_F32, 1},
                                               [LS_BF16] = {LS_F32, 1},
                                               [LS_U8] = {LS_I32, 1},
                                               [LS_I32] = {LS_I64, 1},
                                               [LS_I64] = {LS_I64, 2}};
    const bool narrow = dtype < sizeof(rows) / sizeof(*rows) && rows[dtype].dtype;
    return narrow && reduction == LS_MEAN && world > 1 ? rows[dtype] : (struct ls_wide_mean){0, 1};
}

// A power of two, from 1 to 1 / world: bfloat16 has the range of float32, whose sum of all ranks is
// to stay finite.
static float scale_of(uint32_t world)
{
    float scale = 1;
    while (scale * (float)world > 1)
        scale /= 2;
    return scale;
}

// ---- Halves ----

static void widen_halves(uint32_t dtype, uint32_t world, const uint16_t *halves, uint64_t count,
                         float *wide)
{
    const float scale = scale_of(world);
    for (uint64_t at = 0; at < count; at += BLOCK) {
        const uint64_t n = count - at < BLOCK ? count - at : BLOCK;
        ls_halves_widen(dtype, halves + at, wide + at, n);
        for (uint64_t i = 0; i < n; i++)
            wide[at + i] *= scale;
    }
}

// What float32 holds of it, so that the next rounding, to a half, is the only one: what is not exact gets
// an odd last bit, which is no tie of halves. In integers, which compilers vectorise.
static inline float round_to_odd(double value)
{
    const uint64_t lower = (UINT64_C(1) << 29) - 1; // bits that float32 does not have
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    bits = (bits & ~lower) | (((bits & lower) + lower) & (lower + 1));
    memcpy(&value, &bits, sizeof(value));
    return (float)value;
}

static void narrow_halves(uint32_t dtype, uint32_t world, const float *wide, uint64_t count,
                          uint16_t *halves)
{
    const double divisor = (double)world * (double)scale_of(world);
    float means[BLOCK];
    for (uint64_t at = 0; at < count; at += BLOCK) {
        const uint64_t n = count - at < BLOCK ? count - at : BLOCK;
        for (uint64_t i = 0; divisor != 1 && i < n; i++)
            means[i] = round_to_odd((double)wide[at + i] / divisor);
        ls_halves_narrow(dtype, divisor != 1 ? means : wide + at, halves + at, n);
    }
}

// ---- Whole numbers ----

// The mean, towards zero, of values whose quotients and remainders were added up. Each quotient is
// at most 2^63 / world, so their sum fits; the remainders are below `world` each.
static int64_t join(int64_t quotient, int64_t remainder, int64_t world)
{
    quotient += remainder / world;
    remainder %= world;
    if (quotient > 0 && remainder < 0)
        return quotient - 1;
    return quotient < 0 && remainder > 0 ? quotient + 1 : quotient;
}

void ls_wide_mean_begin(uint32_t dtype, uint32_t world, const void *values, uint64_t count,
                        void *wide)
{
    if (dtype == LS_U8)
        for (uint64_t i = 0; i < count; i++)
            ((int32_t *)wide)[i] = ((const uint8_t *)values)[i];
    else if (dtype == LS_I32)
        for (uint64_t i = 0; i < count; i++)
            ((int64_t *)wide)[i] = ((const int32_t *)values)[i];
    else if (dtype == LS_I64)
        for (uint64_t i = 0; i < count; i++) {
            ((int64_t *)wide)[2 * i] = ((const int64_t *)values)[i] / world;
            ((int64_t *)wide)[2 * i + 1] = ((const int64_t *)values)[i] % world;
        }
    else
        widen_halves(dtype, world, values, count, wide);
}

void ls_wide_mean_end(uint32_t dtype, uint32_t world, const void *wide, uint64_t count,
                      void *values)
{
    if (dtype == LS_U8)
        for (uint64_t i = 0; i < count; i++)
            ((uint8_t *)values)[i] = (uint8_t)((uint32_t)((const int32_t *)wide)[i] / world);
    else if (dtype == LS_I32)
        for (uint64_t i = 0; i < count; i++)
            ((int32_t *)values)[i] = (int32_t)(((const int64_t *)wide)[i] / world);
    else if (dtype == LS_I64)
        for (uint64_t i = 0; i < count; i++)
            ((int64_t *)values)[i] =
                join(((const int64_t *)wide)[2 * i], ((const int64_t *)wide)[2 * i + 1], world);
    else
        narrow_halves(dtype, world, wide, count, values);
}
