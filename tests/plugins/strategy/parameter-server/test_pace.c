// SPDX-License-Identifier: Apache-2.0
// The clock of the workers, and distributions of whole numbers.
#include "plugins/strategy/parameter-server/pace.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>

#define WORKERS 4

static uint64_t steps[WORKERS];
static uint32_t states[WORKERS];
static struct pace pace;

static void set_up(void)
{
    for (uint32_t i = 0; i < WORKERS; i++) {
        steps[i] = 0;
        states[i] = PACE_RUNNING;
    }
    pace = (struct pace){.steps = steps, .states = states, .workers = WORKERS};
}

TEST(the_lead_is_over_the_slowest_that_runs)
{
    ck_assert_uint_eq(pace_slowest(&pace), 0);
    steps[0] = 5, steps[1] = 3, steps[2] = 3, steps[3] = 9;
    ck_assert_uint_eq(pace_slowest(&pace), 1);
    ck_assert_uint_eq(pace_lead(&pace, 3), 6);
    ck_assert_uint_eq(pace_lead(&pace, 1), 0);
    states[1] = PACE_GONE; // lost
    ck_assert_uint_eq(pace_slowest(&pace), 2);
    states[2] = PACE_MEETING; // makes no step before all have met
    ck_assert_uint_eq(pace_slowest(&pace), 0);
    ck_assert_uint_eq(pace_lead(&pace, 3), 4);
    ck_assert_uint_eq(pace_living(&pace), 3);
}

TEST(all_meet_when_all_that_are_left_do)
{
    ck_assert(!pace_all_meet(&pace));
    for (uint32_t i = 0; i < 3; i++) {
        steps[i] = i;
        states[i] = PACE_MEETING;
        ck_assert(!pace_all_meet(&pace));
    }
    steps[3] = 8;
    states[3] = PACE_GONE;
    ck_assert(pace_all_meet(&pace));
    pace_restart(&pace);
    ck_assert(!pace_all_meet(&pace));
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(states[i], PACE_RUNNING);
        ck_assert_uint_eq(pace_lead(&pace, i), 0);
    }
    ck_assert_uint_eq(states[3], PACE_GONE);
}

TEST(who_rests_is_not_waited_for_and_joins_the_slowest)
{
    steps[0] = 5, steps[1] = 2, steps[2] = 4, steps[3] = 9;
    states[1] = PACE_RESTING;
    ck_assert_uint_eq(pace_slowest(&pace), 2);
    ck_assert_uint_eq(pace_lead(&pace, 3), 5);
    pace_run(&pace, 1);
    ck_assert_uint_eq(steps[1], 4);
    ck_assert_uint_eq(states[1], PACE_RUNNING);
    states[3] = PACE_RESTING;
    pace_run(&pace, 3); // who is ahead stays ahead
    ck_assert_uint_eq(steps[3], 9);
    pace_run(&pace, 0); // who runs is not moved
    ck_assert_uint_eq(steps[0], 5);
    for (uint32_t i = 0; i < 3; i++)
        states[i] = PACE_MEETING;
    states[3] = PACE_RESTING; // has not come yet
    ck_assert(!pace_all_meet(&pace));
    states[3] = PACE_MEETING;
    ck_assert(pace_all_meet(&pace));
}

TEST(when_all_are_gone_nobody_meets)
{
    for (uint32_t i = 0; i < WORKERS; i++)
        states[i] = PACE_GONE;
    ck_assert_uint_eq(pace_living(&pace), 0);
    ck_assert_uint_eq(pace_slowest(&pace), PACE_NOBODY);
    ck_assert(!pace_all_meet(&pace));
}

TEST(a_distribution_has_mean_maximum_and_histogram)
{
    struct distribution one = {0}, two = {0};
    ck_assert_double_eq(distribution_mean(&one), 0.0);
    ck_assert_uint_eq(distribution_bins(&one), 1);
    for (uint64_t i = 0; i < 3; i++)
        distribution_add(&one, i);
    ck_assert_double_eq(distribution_mean(&one), 1.0);
    ck_assert_uint_eq(distribution_bins(&one), 3);
    distribution_add(&two, 2);
    distribution_add(&two, 5);
    distribution_merge(&one, &two);
    ck_assert_uint_eq(one.count, 5);
    ck_assert_double_eq(distribution_mean(&one), 2.0);
    ck_assert_uint_eq(one.largest, 5);
    ck_assert_uint_eq(distribution_bins(&one), 6);
    ck_assert_uint_eq(one.bins[2], 2);
    ck_assert_uint_eq(one.bins[3], 0);
}

TEST(what_is_beyond_the_histogram_is_in_its_last_bin)
{
    struct distribution distribution = {0};
    distribution_add(&distribution, DISTRIBUTION_BINS - 1);
    distribution_add(&distribution, DISTRIBUTION_BINS);
    distribution_add(&distribution, 1000000);
    ck_assert_uint_eq(distribution.bins[DISTRIBUTION_BINS - 1], 3);
    ck_assert_uint_eq(distribution.largest, 1000000);
    ck_assert_uint_eq(distribution_bins(&distribution), DISTRIBUTION_BINS);
}

TEST_FIXTURE(set_up, NULL);
