// SPDX-License-Identifier: Apache-2.0
// Sums of float32 in integers: the same bits however addends are grouped, and an error that is bounded.
#include "core/replica/integers.h"
#include "core/base/random.h"
#include "tests/support/suite.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define COUNT 257 // a prime
#define MOST 13

static float values[MOST][COUNT];

// Magnitudes around 2^middle, over `spread` powers of two.
static void fill(uint32_t addends, int middle, int spread)
{
    for (uint32_t i = 0; i < addends; i++)
        for (int k = 0; k < COUNT; k++) {
            const uint64_t random = ls_random_u64(ls_random_key(7, i), (uint64_t)k);
            const float one = 1 + (float)(random & 0x7fffff) / 8388608;
            const int exponent = middle + (int)(random >> 24 & 0xffff) % spread - spread / 2;
            values[i][k] = (random >> 63 ? -1 : 1) * ldexpf(one, exponent);
        }
}

// Addends of each group are added by themselves, as a replica does, and then the groups.
static void add_up(uint32_t addends, uint32_t groups, float *out)
{
    int64_t sums[COUNT] = {0};
    int32_t largest = 0;
    for (uint32_t i = 0; i < addends; i++)
        largest = ls_integers_largest(values[i], COUNT, largest);
    const int32_t exponent = ls_integers_exponent(largest, addends);
    for (uint32_t group = groups; group-- > 0;) {
        int64_t own[COUNT] = {0};
        for (uint32_t i = 0; i < addends; i++)
            if (i % groups == group)
                ls_integers_add(values[i], COUNT, exponent, own);
        for (int k = 0; k < COUNT; k++)
            sums[k] += own[k];
    }
    ls_integers_round(sums, COUNT, exponent, out);
}

TEST(every_grouping_gives_the_same_bits_near_the_sum)
{
    const int middles[] = {0, -30, 100, -120, -140};
    for (uint32_t addends = 1; addends <= MOST; addends++)
        for (size_t m = 0; m < sizeof(middles) / sizeof(middles[0]); m++) {
            float one[COUNT], other[COUNT];
            fill(addends, middles[m], 40);
            add_up(addends, 1, one);
            double largest = 0, power = 1;
            for (uint32_t i = 0; i < addends; i++)
                for (int k = 0; k < COUNT; k++)
                    largest = fmax(largest, fabs((double)values[i][k]));
            while (power < addends)
                power *= 2;
            for (int k = 0; k < COUNT; k++) {
                double wanted =
                    0; // of 13 floats over 40 powers of two: exact to 2^-52 of the largest
                for (uint32_t i = 0; i < addends; i++)
                    wanted += (double)values[i][k];
                const double bound = power * power * ldexp(largest, -63) + ldexp(largest, -50) +
                                     ldexp(fabs(wanted), -24) + ldexp(1, -150);
                ck_assert_double_le(fabs((double)one[k] - wanted), bound);
            }
            for (uint32_t groups = 2; groups <= addends; groups++) {
                add_up(addends, groups, other);
                ck_assert_mem_eq(one, other, sizeof(one));
            }
        }
}

TEST(what_float32_has_exactly_stays_exact)
{
    const float numbers[] = {0,       -0.0f,   1, -3.25f, 1e-45f, FLT_MIN, -1.17549421e-38f,
                             FLT_MAX, -FLT_MAX};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        const int32_t largest = ls_integers_largest(&numbers[i], 1, 0);
        for (uint32_t addends = 1; addends <= 1024; addends *= 2) {
            int64_t sum = 0;
            float out = 5;
            ls_integers_add(&numbers[i], 1, ls_integers_exponent(largest, addends), &sum);
            ls_integers_round(&sum, 1, ls_integers_exponent(largest, addends), &out);
            ck_assert_float_eq(out, numbers[i]);
        }
    }
}

TEST(as_many_of_the_largest_as_there_may_be_do_not_overflow)
{
    const float largest = nextafterf(2, 0); // all bits set
    for (uint32_t addends = 1; addends <= 1024; addends++) {
        const int32_t exponent = ls_integers_exponent(ls_integers_largest(&largest, 1, 0), addends);
        int64_t sum = 0;
        float out;
        for (uint32_t i = 0; i < addends; i++)
            ls_integers_add(&largest, 1, exponent, &sum);
        ls_integers_round(&sum, 1, exponent, &out);
        ck_assert_float_eq(out, (float)((double)largest * addends));
    }
}

TEST(what_is_not_finite_is_above_all_numbers)
{
    const float list[][3] = {{1, INFINITY, 2}, {-INFINITY, FLT_MAX, 0}, {NAN, 1, 1}, {3, -NAN, 0}};
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
        ck_assert(!ls_integers_finite(ls_integers_largest(list[i], 3, 0)));
    const float numbers[] = {-FLT_MAX, FLT_MAX, 0};
    ck_assert(ls_integers_finite(ls_integers_largest(numbers, 3, 0)));
}
