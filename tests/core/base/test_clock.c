// SPDX-License-Identifier: Apache-2.0
// Clocks go forward, and the age of the process begins when the kernel started it.
#include "core/base/clock.h"
#include "tests/support/suite.h"

#include <check.h>
#include <time.h>

TEST(the_clock_never_goes_back)
{
    uint64_t before = ls_clock_ns();
    ck_assert_uint_gt(before, 0);
    for (int i = 0; i < 10000; i++) {
        const uint64_t now = ls_clock_ns();
        ck_assert_uint_ge(now, before);
        before = now;
    }
}

TEST(age_grows_with_the_clock)
{
    const uint64_t age = ls_clock_since_start_ns(), clock = ls_clock_ns();
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    nanosleep(&pause, NULL);
    const uint64_t later = ls_clock_since_start_ns();
    ck_assert_uint_ge(later, age + 19 * 1000 * 1000);
    ck_assert_uint_le(later - age, ls_clock_ns() - clock + 1000 * 1000 * 1000);
}

TEST(a_new_process_is_less_than_an_hour_old)
{
    ck_assert_uint_lt(ls_clock_since_start_ns(), UINT64_C(3600) * 1000 * 1000 * 1000);
}
