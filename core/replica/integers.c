// SPDX-License-Identifier: Apache-2.0
#include "core/replica/integers.h"

#include <math.h>
#include <string.h>

#define MANTISSA_BITS 23
#define LEAST_EXPONENT (-149) // of the smallest float32
#define BIAS 127
#define MAGNITUDE 0x7fffffff
#define INFINITE 0x7f800000 // bits of infinity

int32_t ls_integers_largest(const float *values, uint64_t count, int32_t largest)
{
    for (uint64_t i = 0; i < count; i++) {
        int32_t bits;
        memcpy(&bits, &values[i], sizeof(bits));
        bits &= MAGNITUDE;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

bool ls_integers_finite(int32_t largest)
{
    return largest < INFINITE;
}

// The exponent of a magnitude that is not 0.
static int32_t exponent_of(int32_t bits)
{
    int32_t exponent = LEAST_EXPONENT;
    if (bits >> MANTISSA_BITS)
        return (bits >> MANTISSA_BITS) - BIAS;
    while (bits >>= 1)
        exponent++;
    return exponent;
}

int32_t ls_integers_exponent(int32_t largest, uint32_t addends)
{
    int32_t bits = 0;
    while (addends > 1 && (addends - 1) >> bits)
        bits++;
    return largest ? 62 - bits - exponent_of(largest) : 0;
}

// A float32 times a power of two is a double without rounding. One of 2^24 and more is a whole
// number; below, adding and taking away 1.5 2^52 rounds to the nearest, ties to even.
static int64_t nearest(double value)
{
    const double magic = 6755399441055744.0;
    return (int64_t)(fabs(value) < 16777216.0 ? (value + magic) - magic : value);
}

void ls_integers_add(const float *values, uint64_t count, int32_t exponent, int64_t *sums)
{
    const double scale = ldexp(1, exponent);
    for (uint64_t i = 0; i < count; i++)
        sums[i] += nearest((double)values[i] * scale);
}

// To float32 with all of its bits first: a result below the normal numbers has so few that neither
// this nor the scale rounds it, as all addends are multiples of 2^-149 and of 2^-k.
void ls_integers_round(const int64_t *sums, uint64_t count, int32_t exponent, float *out)
{
    const double scale = ldexp(1, -exponent);
    for (uint64_t i = 0; i < count; i++)
        out[i] = (float)((double)(float)sums[i] * scale);
}
