// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers from the finaliser of splitmix64 (Steele, Lea, Flood 2014).
#include "core/base/random.h"

#include <math.h>

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)
#define TAU 6.283185307179586476925286766559

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t ls_random_key(uint64_t seed, uint64_t purpose)
{
    return mix(mix(seed + GOLDEN) + GOLDEN * (purpose + 1));
}

uint64_t ls_random_key_text(uint64_t seed, const char *purpose)
{
    uint64_t key = mix(seed + GOLDEN);
    for (; *purpose; purpose++)
        key = mix(key ^ (unsigned char)*purpose) + GOLDEN;
    return mix(key);
}

// Mixed twice with the key between, so that streams of related keys are not shifts of each other.
uint64_t ls_random_u64(uint64_t key, uint64_t index)
{
    return mix(mix(key + GOLDEN * (index + 1)) ^ key);
}

double ls_random_uniform(uint64_t key, uint64_t index)
{
    return (double)(ls_random_u64(key, index) >> 11) * 0x1p-53;
}

// Each draw uses two uniform numbers of its own and drops the second of the pair, so that it stays a
// function of (key, index).
double ls_random_normal(uint64_t key, uint64_t index)
{
    const double radius = 1.0 - ls_random_uniform(key, 2 * index); // (0, 1]
    const double angle = ls_random_uniform(key, 2 * index + 1);
    return sqrt(-2.0 * log(radius)) * cos(TAU * angle);
}

// A number below `bound` (at most 2^32): the upper word of bits * bound.
static uint64_t below(uint64_t bits, uint64_t bound)
{
    const uint64_t high = bits >> 32, low = bits & UINT32_MAX;
    return (high * bound + ((low * bound) >> 32)) >> 32;
}

void ls_random_permutation(uint64_t key, uint32_t *order, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        order[i] = (uint32_t)i;
    for (uint64_t i = count; i > 1; i--) {
        const uint64_t other = below(ls_random_u64(key, i), i);
        const uint32_t kept = order[i - 1];
        order[i - 1] = order[other];
        order[other] = kept;
    }
}
