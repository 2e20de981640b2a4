// SPDX-License-Identifier: Apache-2.0
#include "core/base/exact_sum.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define DIGIT_BITS 32
#define DIGIT_MASK INT64_C(0xffffffff)
#define UNIT (-149) // exponent of the smallest float32
#define MOST_ADDED (UINT64_C(1) << 30) // each adds less than 2^32 to a digit

// Afterwards all digits but the last one are from 0 to 2^32 - 1: equal sums have equal digits.
static void settle(struct ls_exact_sum *sum)
{
    int64_t carry = 0;
    for (int i = 0; i + 1 < LS_EXACT_DIGITS; i++) {
        const int64_t digit = sum->digits[i] + carry;
        sum->digits[i] = digit & DIGIT_MASK;
        carry = (digit - sum->digits[i]) / (DIGIT_MASK + 1);
    }
    sum->digits[LS_EXACT_DIGITS - 1] += carry;
    sum->added = 1;
}

void ls_exact_sum_add(struct ls_exact_sum *sum, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    const uint32_t exponent = bits >> 23 & 0xff;
    const uint64_t mantissa = (bits & 0x7fffff) | (exponent ? UINT32_C(1) << 23 : 0);
    const uint32_t shift = exponent ? exponent - 1 : 0;
    if (exponent == 0xff) {
        sum->not_finite++;
        return;
    }
    if (++sum->added >= MOST_ADDED)
        settle(sum);
    const uint64_t spread = mantissa << shift % DIGIT_BITS; // over two digits
    const int64_t low = (int64_t)(spread & (uint64_t)DIGIT_MASK);
    const int64_t high = (int64_t)(spread >> DIGIT_BITS);
    int64_t *digits = &sum->digits[shift / DIGIT_BITS];
    const bool negative = bits >> 31;
    digits[0] += negative ? -low : low;
    digits[1] += negative ? -high : high;
}

void ls_exact_sum_merge(struct ls_exact_sum *sum, const struct ls_exact_sum *other)
{
    struct ls_exact_sum more = *other;
    settle(sum);
    settle(&more);
    for (int i = 0; i < LS_EXACT_DIGITS; i++)
        sum->digits[i] += more.digits[i];
    sum->not_finite += more.not_finite;
    settle(sum);
}

double ls_exact_sum_value(const struct ls_exact_sum *sum)
{
    struct ls_exact_sum settled = *sum;
    double value = 0;
    settle(&settled);
    const bool negative = settled.digits[LS_EXACT_DIGITS - 1] < 0;
    for (int i = 0; negative && i < LS_EXACT_DIGITS; i++)
        settled.digits[i] = -settled.digits[i];
    if (negative)
        settle(&settled);
    if (settled.not_finite)
        return NAN;
    // The digits below are smaller than the last place of the three highest.
    int highest = LS_EXACT_DIGITS - 1;
    while (highest > 0 && !settled.digits[highest])
        highest--;
    for (int i = highest > 2 ? highest - 2 : 0; i <= highest; i++)
        value += ldexp((double)settled.digits[i], UNIT + DIGIT_BITS * i);
    return negative ? -value : value;
}
