// SPDX-License-Identifier: Apache-2.0
// Draws are functions of key and index, spread as they should, and permutations are permutations.
#include "core/base/random.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DRAWS 200000

TEST(a_draw_is_a_function_of_key_and_index)
{
    const uint64_t key = ls_random_key(7, 3);
    const uint64_t tenth = ls_random_u64(key, 10);
    ls_random_u64(key, 11);
    ck_assert_uint_eq(ls_random_u64(key, 10), tenth);
    ck_assert_uint_ne(ls_random_u64(key, 11), tenth);
    ck_assert_uint_ne(ls_random_u64(ls_random_key(7, 4), 10), tenth);
    ck_assert_uint_ne(ls_random_u64(ls_random_key(8, 3), 10), tenth);
}

TEST(keys_of_texts_differ_in_text_and_seed)
{
    const uint64_t kernel = ls_random_key_text(1, "dense/kernel");
    ck_assert_uint_eq(ls_random_key_text(1, "dense/kernel"), kernel);
    ck_assert_uint_ne(ls_random_key_text(1, "dense/bias"), kernel);
    ck_assert_uint_ne(ls_random_key_text(2, "dense/kernel"), kernel);
    ck_assert_uint_ne(ls_random_key_text(1, ""), ls_random_key_text(2, ""));
    ck_assert_uint_ne(ls_random_key_text(1, "ab"), ls_random_key_text(1, "ba"));
}

TEST(related_keys_are_not_shifted_streams)
{
    const uint64_t a = ls_random_key(0, 0), b = ls_random_key(0, 1);
    for (uint64_t i = 0; i < 300; i++)
        for (uint64_t j = 0; j < 300; j++)
            ck_assert_uint_ne(ls_random_u64(a, i), ls_random_u64(b, j));
}

// Bounds are five standard errors; the draws are fixed, so this is no game of chance.
TEST(uniform_numbers_fill_their_range)
{
    const uint64_t key = ls_random_key(42, 1);
    double sum = 0, square = 0;
    uint64_t cells[10] = {0};
    for (uint64_t i = 0; i < DRAWS; i++) {
        const double x = ls_random_uniform(key, i);
        ck_assert(x >= 0 && x < 1);
        sum += x;
        square += x * x;
        cells[(int)(x * 10)]++;
    }
    ck_assert_double_eq_tol(sum / DRAWS, 0.5, 5 * sqrt(1.0 / 12 / DRAWS));
    ck_assert_double_eq_tol(square / DRAWS, 1.0 / 3, 5 * sqrt(4.0 / 45 / DRAWS));
    for (int i = 0; i < 10; i++)
        ck_assert_double_eq_tol((double)cells[i] / DRAWS, 0.1, 5 * sqrt(0.09 / DRAWS));
}

TEST(normal_numbers_have_mean_deviation_and_tails)
{
    const uint64_t key = ls_random_key(42, 2);
    double sum = 0, square = 0, neighbours = 0, previous = 0;
    uint64_t beyond_two = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        const double x = ls_random_normal(key, i);
        ck_assert(isfinite(x));
        sum += x;
        square += x * x;
        neighbours += x * previous;
        previous = x;
        beyond_two += fabs(x) > 2;
    }
    ck_assert_double_eq_tol(sum / DRAWS, 0, 5 / sqrt(DRAWS));
    ck_assert_double_eq_tol(square / DRAWS, 1, 5 * sqrt(2.0 / DRAWS));
    ck_assert_double_eq_tol(neighbours / DRAWS, 0, 5 / sqrt(DRAWS));
    const double tail = 0.0455002638963584; // erfc(sqrt(2))
    ck_assert_double_eq_tol((double)beyond_two / DRAWS, tail, 5 * sqrt(tail / DRAWS));
}

static void assert_permutation(const uint32_t *order, uint64_t count)
{
    char *seen = calloc(count + 1, 1);
    ck_assert_ptr_nonnull(seen);
    for (uint64_t i = 0; i < count; i++) {
        ck_assert_uint_lt(order[i], count);
        ck_assert_int_eq(seen[order[i]], 0);
        seen[order[i]] = 1;
    }
    free(seen);
}

TEST(a_permutation_has_each_number_once)
{
    const uint64_t counts[] = {0, 1, 2, 3, 7, 64, 1003, 60000};
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
        uint32_t *order = malloc((counts[i] + 1) * sizeof(*order));
        ck_assert_ptr_nonnull(order);
        order[counts[i]] = 12345; // must stay
        ls_random_permutation(ls_random_key(5, i), order, counts[i]);
        ck_assert_uint_eq(order[counts[i]], 12345);
        assert_permutation(order, counts[i]);
        free(order);
    }
}

TEST(a_permutation_depends_on_its_key_alone)
{
    uint32_t a[100], b[100], c[100];
    ls_random_permutation(ls_random_key(1, 1), a, 100);
    ls_random_permutation(ls_random_key(1, 1), b, 100);
    ls_random_permutation(ls_random_key(1, 2), c, 100);
    ck_assert_mem_eq(a, b, sizeof(a));
    ck_assert_mem_ne(a, c, sizeof(a));
}

TEST(all_orders_of_four_are_equally_likely)
{
    enum { ROUNDS = 24000 };
    uint32_t counts[256] = {0};
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint32_t order[4];
        ls_random_permutation(ls_random_key(9, i), order, 4);
        counts[order[0] | order[1] << 2 | order[2] << 4 | order[3] << 6]++;
    }
    int orders = 0;
    for (int i = 0; i < 256; i++) {
        if (!counts[i])
            continue;
        orders++;
        ck_assert_double_eq_tol(counts[i], ROUNDS / 24.0, 5 * sqrt(ROUNDS / 24.0));
    }
    ck_assert_int_eq(orders, 24);
}
