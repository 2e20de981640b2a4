// SPDX-License-Identifier: Apache-2.0
// Exact sums: equal bits in every order, against sums that are known.
#include "core/base/exact_sum.h"
#include "core/base/random.h"
#include "tests/support/suite.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define COUNT 2000

// Of all exponents and signs.
static float any_float(uint64_t index)
{
    const uint64_t random = ls_random_u64(ls_random_key(3, 4), index);
    const float magnitude =
        ldexpf(1 + (float)(random & 0x7fffff) / 8388608, (int)(random >> 23 & 0xff) % 250 - 149);
    return random >> 63 ? -magnitude : magnitude;
}

TEST(every_order_and_every_grouping_gives_the_same_bits)
{
    struct ls_exact_sum forward = {0}, backward = {0}, parts[7] = {{{0}}}, merged = {0};
    for (uint64_t i = 0; i < COUNT; i++) {
        ls_exact_sum_add(&forward, any_float(i));
        ls_exact_sum_add(&backward, any_float(COUNT - 1 - i));
        ls_exact_sum_add(&parts[i * i % 7], any_float(i));
    }
    for (int i = 6; i >= 0; i--)
        ls_exact_sum_merge(&merged, &parts[i]);
    const double one = ls_exact_sum_value(&forward), two = ls_exact_sum_value(&backward),
                 three = ls_exact_sum_value(&merged);
    ck_assert(isfinite(one) && one != 0);
    ck_assert_mem_eq(&one, &two, sizeof(one));
    ck_assert_mem_eq(&one, &three, sizeof(one));
}

TEST(what_cancels_is_gone_and_what_is_small_stays)
{
    struct ls_exact_sum sum = {0};
    ls_exact_sum_add(&sum, FLT_MAX);
    ls_exact_sum_add(&sum, 1.40129846e-45f);
    ls_exact_sum_add(&sum, FLT_MAX);
    ck_assert_double_eq(ls_exact_sum_value(&sum), 2 * (double)FLT_MAX);
    ls_exact_sum_add(&sum, -FLT_MAX);
    ls_exact_sum_add(&sum, -FLT_MAX);
    ck_assert_double_eq(ls_exact_sum_value(&sum), ldexp(1, -149));
    ls_exact_sum_add(&sum, -1.40129846e-45f);
    ck_assert_double_eq(ls_exact_sum_value(&sum), 0);
    ls_exact_sum_add(&sum, -3.5f);
    ck_assert_double_eq(ls_exact_sum_value(&sum), -3.5);
}

TEST(sums_of_integers_are_those_of_integers)
{
    struct ls_exact_sum sum = {0};
    double wanted = 0;
    for (int i = 0; i < COUNT; i++) {
        const float value = (float)((i * 7919) % 10007 - 5000);
        ls_exact_sum_add(&sum, value);
        wanted += (double)value;
    }
    ck_assert_double_eq(ls_exact_sum_value(&sum), wanted);
}

TEST(what_is_not_finite_stays_so)
{
    struct ls_exact_sum sum = {0}, other = {0};
    ls_exact_sum_add(&sum, 1);
    ls_exact_sum_add(&other, INFINITY);
    ls_exact_sum_merge(&sum, &other);
    ck_assert(isnan(ls_exact_sum_value(&sum)));
    struct ls_exact_sum third = {0};
    ls_exact_sum_add(&third, NAN);
    ck_assert(isnan(ls_exact_sum_value(&third)));
}
