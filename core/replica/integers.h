// SPDX-License-Identifier: Apache-2.0
// Sums of float32 in 64-bit integers over one exponent, so that neither the order of additions nor
// who makes them changes a bit. A value x becomes the integer nearest to x 2^k. With E the exponent
// of the largest magnitude of all addends (2^E <= max |x| < 2^(E + 1)) and P the number of addends
// rounded up to a power of two, k = 62 - log2 P - E: all integers are below 2^63 / P, so that no sum
// overflows. The only roundings are that of each addend, which is none above 2^-39 P of the largest,
// and the last one to float32. An addend is off by at most 2^-(k + 1), a sum by P^2 2^-63 of the
// largest magnitude.
#ifndef LS_REPLICA_INTEGERS_H
#define LS_REPLICA_INTEGERS_H

#include <stdbool.h>
#include <stdint.h>

// The bits of the largest magnitude among `largest` and `count` values, which are ordered as
// integers are; from 0. Infinities and NaN are above all numbers.
int32_t ls_integers_largest(const float *values, uint64_t count, int32_t largest);
bool ls_integers_finite(int32_t largest);
// The exponent k for so many addends.
int32_t ls_integers_exponent(int32_t largest, uint32_t addends);
// sums += values 2^k. The values are finite.
void ls_integers_add(const float *values, uint64_t count, int32_t exponent, int64_t *sums);
// out = sums 2^-k, rounded once to the nearest float32, ties to even.
void ls_integers_round(const int64_t *sums, uint64_t count, int32_t exponent, float *out);

#endif
