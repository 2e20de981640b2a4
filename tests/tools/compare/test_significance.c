// SPDX-License-Identifier: Apache-2.0
// Equal strategies are not called different, and one that is a tenth slower is found: on noise of known kinds, and on
// speeds that were measured.
#include "tools/compare/comparison.h"
#include "tools/compare/significance.h"

#include "core/base/random.h"
#include "tests/tools/compare/recorded_speeds.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 8
#define TURNS 4
#define STRATEGIES 3
#define EXPERIMENTS 500
#define EXCHANGES 50 // of each recorded comparison

// Of all comparisons of equal strategies, those that may be called different: a hundredth of the experiments has any by
// design, and counting them over EXPERIMENTS adds a little.
#define WRONG_MOST 0.02

// ---- Student and Holm ----

// The limits of tables, which have four digits.
TEST(limits_are_those_of_students_table)
{
    static const struct {
        double p, freedom, limit;
    } rows[] = {{0.05, 1, 12.706},  {0.05, 2, 4.3027},  {0.05, 7, 2.3646}, {0.01, 7, 3.4995},
                {0.001, 7, 5.4079}, {0.05, 30, 2.0423}, {0.5, 5, 0.7267},  {0.01, 1000, 2.5808}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ck_assert_double_eq_tol(ls_student_limit(rows[i].p, rows[i].freedom), rows[i].limit,
                                6e-5 * rows[i].limit);
        ck_assert_double_eq_tol(ls_student_two_sided(-rows[i].limit, rows[i].freedom), rows[i].p,
                                1e-4 * rows[i].p + 1e-5);
    }
    ck_assert_double_eq(ls_student_two_sided(0, 7), 1);
    ck_assert(ls_student_two_sided(1e9, 7) < 1e-30);
}

TEST(the_interval_is_that_of_the_formula)
{
    // Differences of the logarithms: 0.1, 0.2, 0.3; mean 0.2, deviation 0.1, t = 0.2 / (0.1 / sqrt(3)) with 2 degrees.
    const double a[] = {exp(1.1), exp(2.2), exp(3.3), NAN, 5};
    const double b[] = {exp(1), exp(2), exp(3), 7, 0};
    struct ls_paired paired;
    ck_assert(ls_paired_test(a, b, 5, &paired));
    ck_assert_uint_eq(paired.blocks, 3);
    ck_assert_double_eq_tol(paired.difference, 0.2, 1e-12);
    ck_assert_double_eq_tol(paired.deviation, 0.1, 1e-12);
    ck_assert_double_eq_tol(paired.high, 0.2 + 4.30265 * 0.1 / sqrt(3), 1e-5);
    ck_assert_double_eq_tol(paired.low, 0.2 - 4.30265 * 0.1 / sqrt(3), 1e-5);
    ck_assert_double_eq_tol(paired.p, 0.0741799, 1e-6);
    ck_assert(!ls_paired_test(a, b, 2, &paired));
    ck_assert_double_eq_tol(paired.difference, 0.15, 1e-12);
    ck_assert(isnan(paired.p));
    ck_assert(!ls_paired_test(a, b, 0, &paired));
    ck_assert(isnan(paired.difference));
}

TEST(speeds_without_noise_are_equal_or_not)
{
    const double a[] = {10, 10, 10, 10}, b[] = {9, 9, 9, 9};
    struct ls_paired paired;
    ck_assert(ls_paired_test(a, a, 4, &paired));
    ck_assert_double_eq(paired.p, 1);
    ck_assert(ls_paired_test(a, b, 4, &paired));
    ck_assert(paired.p < 1e-6);
}

TEST(several_comparisons_make_each_harder)
{
    double p[] = {0.01, 0.04, 0.03, 0.005};
    const double expected[] = {0.03, 0.06, 0.06, 0.02};
    size_t order[4];
    ls_correct_by_holm(p, 4, order);
    for (size_t i = 0; i < 4; i++)
        ck_assert_double_eq_tol(p[i], expected[i], 1e-12);
    double large[] = {0.9, 0.8};
    ls_correct_by_holm(large, 2, order);
    ck_assert_double_eq(large[0], 1);
    ck_assert_double_eq(large[1], 1);
    ls_correct_by_holm(NULL, 0, NULL);
}

// ---- Noise ----

struct noise {
    const char *name;
    double process,
        turn; // deviations of the logarithm of a speed, between processes and between turns
    double tail; // of a turn: how much of one in ten is lost to other work
    double memory; // of the noise of one turn in the next one
    double drift; // of the whole machine, from the first block to the last one
};

// A tenth is well above the first of them.
#define QUIET_NOISES 3
static const struct noise noises[] = {
    {"quiet", 0.01, 0.01, 0, 0, 0},
    {"the machine gets slower", 0.02, 0.03, 0, 0, 1.5},
    {"some turns lose half", 0.02, 0.03, 0.7, 0, 0},
    {"processes differ", 0.05, 0.01, 0, 0, 0},
    {"turns differ", 0.01, 0.1, 0, 0, 0},
    {"turns resemble the one before", 0.02, 0.05, 0, 0.9, 0},
    {"all of it", 0.05, 0.08, 0.7, 0.8, -1},
};

static uint64_t draws;

static double normal(void)
{
    return ls_random_normal(2024, draws++);
}

static double chance(void)
{
    return ls_random_uniform(2025, draws++);
}

static int compare_numbers(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The speed of one process: the median of its turns.
static double draw_process(const struct noise *noise, double speed, size_t block)
{
    double turns[TURNS], lasting = normal();
    const double own = noise->process * normal();
    for (size_t i = 0; i < TURNS; i++) {
        const double drift = noise->drift * ((double)block + (double)i / TURNS) / BLOCKS;
        const double lost = chance() < 0.1 ? noise->tail * chance() : 0;
        turns[i] = speed * exp(own + noise->turn * lasting + drift - lost);
        lasting = noise->memory * lasting + sqrt(1 - noise->memory * noise->memory) * normal();
    }
    qsort(turns, TURNS, sizeof(turns[0]), compare_numbers);
    return (turns[TURNS / 2 - 1] + turns[TURNS / 2]) / 2;
}

static double draw_geometric(const double *rates)
{
    double sum = 0;
    for (size_t i = 0; i < BLOCKS; i++)
        sum += log(rates[i]);
    return exp(sum / BLOCKS);
}

// How many pairs are called different.
static size_t count_different(double rates[STRATEGIES][BLOCKS], size_t strategies)
{
    struct ls_compared_run runs[STRATEGIES] = {0};
    struct ls_comparison comparison = {
        .runs = runs, .run_count = strategies, .reference = LS_COMPARISON_NONE};
    size_t different = 0;
    for (size_t i = 0; i < strategies; i++)
        runs[i] = (struct ls_compared_run){.status = LS_COMPARED_DONE,
                                           .rate = draw_geometric(rates[i]),
                                           .process_rates = rates[i],
                                           .process_count = BLOCKS,
                                           .timed_steps = 4000};
    ck_assert_int_eq(ls_comparison_measure(&comparison), LS_OK);
    for (size_t i = 0; i < comparison.difference_count; i++) {
        const struct ls_difference *difference = &comparison.differences[i];
        different += difference->different;
        ck_assert(difference->different || difference->needed_steps > 4000);
        ck_assert(!difference->different || difference->low > 1 || difference->high < 1);
    }
    free(comparison.differences);
    return different;
}

TABLE_TEST(equal_strategies_are_not_called_different, noises)
{
    const struct noise *noise = &noises[_i];
    size_t different = 0;
    draws = (uint64_t)_i << 32;
    for (size_t experiment = 0; experiment < EXPERIMENTS; experiment++) {
        double rates[STRATEGIES][BLOCKS];
        for (size_t block = 0; block < BLOCKS; block++)
            for (size_t i = 0; i < STRATEGIES; i++)
                rates[i][block] = draw_process(noise, 1000, block);
        different += count_different(rates, STRATEGIES);
    }
    ck_assert_msg((double)different <= WRONG_MOST * EXPERIMENTS * STRATEGIES,
                  "%s: %zu of %d comparisons", noise->name, different, EXPERIMENTS * STRATEGIES);
}

LOOP_TEST(a_tenth_slower_is_found, 0, QUIET_NOISES)
{
    const struct noise *noise = &noises[_i];
    size_t found = 0;
    draws = (uint64_t)_i << 32;
    for (size_t experiment = 0; experiment < EXPERIMENTS; experiment++) {
        double rates[STRATEGIES][BLOCKS];
        for (size_t block = 0; block < BLOCKS; block++)
            for (size_t i = 0; i < 2; i++)
                rates[i][block] = draw_process(noise, i ? 900 : 1000, block);
        found += count_different(rates, 2);
    }
    ck_assert_msg((double)found >= LS_POWER * EXPERIMENTS, "%s: %zu of %d", noise->name, found,
                  EXPERIMENTS);
}

// What is said to be needed is enough, and not much more than that.
TEST(the_blocks_that_are_said_to_be_needed_are_enough)
{
    static const double effects[] = {0.02, 0.05, 0.1};
    for (size_t i = 0; i < sizeof(effects) / sizeof(effects[0]); i++) {
        const double deviation = 0.05;
        const size_t blocks = (size_t)ls_blocks_needed(effects[i], deviation, 1);
        size_t found = 0;
        for (size_t experiment = 0; experiment < 500; experiment++) {
            double a[256], b[256];
            struct ls_paired paired;
            ck_assert_uint_lt(blocks, 256);
            for (size_t k = 0; k < blocks; k++) {
                a[k] = exp(effects[i] + deviation * normal());
                b[k] = 1;
            }
            ck_assert(ls_paired_test(a, b, blocks, &paired));
            found += paired.p <= LS_SIGNIFICANT;
        }
        ck_assert_msg(found >= 370 && found <= 460, "%g: %zu of 500 with %zu blocks", effects[i],
                      found, blocks);
    }
    ck_assert(ls_blocks_needed(0.05, 0.05, 10) > ls_blocks_needed(0.05, 0.05, 1));
    ck_assert_double_eq(ls_blocks_needed(0.5, 0, 1), LS_LEAST_BLOCKS);
}

// ---- What was measured ----

// Speeds of three spellings of one strategy: as they were, and with the names exchanged at random within each block, for
// a name makes no process faster.
TEST(equal_strategies_that_were_measured_are_not_called_different)
{
    const size_t count = sizeof(recorded_speeds) / sizeof(recorded_speeds[0]);
    size_t as_measured = 0, exchanged = 0;
    for (size_t i = 0; i < count; i++) {
        double rates[STRATEGIES][BLOCKS];
        memcpy(rates, recorded_speeds[i], sizeof(rates));
        as_measured += count_different(rates, STRATEGIES);
        for (size_t n = 0; n < EXCHANGES; n++) {
            for (size_t block = 0; block < BLOCKS; block++) {
                uint32_t order[STRATEGIES];
                ls_random_permutation(draws++, order, STRATEGIES);
                for (size_t k = 0; k < STRATEGIES; k++)
                    rates[k][block] = recorded_speeds[i][order[k]][block];
            }
            exchanged += count_different(rates, STRATEGIES);
        }
    }
    ck_assert_uint_le(20 * as_measured, STRATEGIES * count);
    ck_assert_msg((double)exchanged <= WRONG_MOST * EXCHANGES * (double)(STRATEGIES * count),
                  "%zu of %zu", exchanged, EXCHANGES * STRATEGIES * count);
}

// The first ones were measured beside little other work.
TEST(a_tenth_less_than_was_measured_is_found)
{
    for (size_t i = 0; i < RECORDED_QUIET; i++) {
        double rates[STRATEGIES][BLOCKS];
        memcpy(rates, recorded_speeds[i], sizeof(rates));
        for (size_t block = 0; block < BLOCKS; block++)
            rates[2][block] *= 0.9;
        ck_assert_uint_eq(count_different(rates, STRATEGIES), 2);
    }
}
