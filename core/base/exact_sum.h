// SPDX-License-Identifier: Apache-2.0
// A sum of float32 that is never rounded, so its bits do not depend on the order of what is added:
// a fixed-point number that reaches from the smallest float32 to 2^31 times the largest.
#ifndef LS_BASE_EXACT_SUM_H
#define LS_BASE_EXACT_SUM_H

#include <stdint.h>

#define LS_EXACT_DIGITS 10

// Zeroed: 0. It can be copied and sent as bytes.
struct ls_exact_sum {
    int64_t digits[LS_EXACT_DIGITS]; // of 32 bits, in units of 2^-149; carries may wait in them
    uint64_t added; // since carries were settled, at most
    uint64_t not_finite; // values that were infinite or no numbers
};

void ls_exact_sum_add(struct ls_exact_sum *sum, float value);
void ls_exact_sum_merge(struct ls_exact_sum *sum, const struct ls_exact_sum *other);
// Within one unit in the last place, and equal for equal sums. NaN where a value was not finite.
double ls_exact_sum_value(const struct ls_exact_sum *sum);

#endif
