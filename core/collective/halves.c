// SPDX-License-Identifier: Apache-2.0
// The loops are compiled for each type, without branches, so that the compiler vectorises them.
#include "core/collective/halves.h"

#include "core/plugin/half.h"

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline bool round_all(uint32_t dtype, float *restrict values, uint16_t *restrict halves,
                             uint64_t count)
{
    uint32_t lost = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint16_t half = ls_half_of(dtype, values[i]);
        const float rounded = ls_half_get(dtype, half);
        const uint32_t infinity = UINT32_C(0x7f800000), magnitude = UINT32_C(0x7fffffff);
        lost |= ((bits_of(rounded) & magnitude) == infinity) &
                ((bits_of(values[i]) & magnitude) < infinity);
        halves[i] = half;
        values[i] = rounded;
    }
    return lost != 0;
}

static inline void widen_all(uint32_t dtype, const uint16_t *restrict halves,
                             float *restrict values, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        values[i] = ls_half_get(dtype, halves[i]);
}

static inline void add_all(uint32_t dtype, const uint16_t *restrict halves, float *restrict values,
                           uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        values[i] += ls_half_get(dtype, halves[i]);
}

bool ls_halves_round(uint32_t dtype, float *values, uint16_t *halves, uint64_t count)
{
    return dtype == LS_BF16 ? round_all(LS_BF16, values, halves, count)
                            : round_all(LS_F16, values, halves, count);
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
