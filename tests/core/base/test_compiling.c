// SPDX-License-Identifier: Apache-2.0
// Waits that a compiling device excuses: not for ever, and none that began later.
#include "core/base/clock.h"
#include "core/base/compiling.h"
#include "tests/support/suite.h"

#include <check.h>
#include <time.h>

#define DEADLINE_NS UINT64_C(20000000)
#define LONG_NS UINT64_C(1000000000000)

static void sleep_ns(uint64_t nanoseconds)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)(nanoseconds / 1000000000),
                                 .tv_nsec = (long)(nanoseconds % 1000000000)},
              NULL);
}

TEST(a_wait_for_nobody_that_compiles_is_late)
{
    ck_assert(!ls_compiling_excuses(ls_clock_ns(), LONG_NS));
}

TEST(the_deadline_counts_from_the_end_of_the_last)
{
    const uint64_t begin = ls_clock_ns();
    ls_compiling_begin();
    ls_compiling_begin();
    ls_compiling_end();
    ck_assert(ls_compiling_excuses(begin, LONG_NS));
    ls_compiling_end();
    ck_assert(ls_compiling_excuses(begin, LONG_NS));
    sleep_ns(DEADLINE_NS);
    ck_assert(!ls_compiling_excuses(begin, DEADLINE_NS));
    ck_assert(!ls_compiling_excuses(ls_clock_ns(), LONG_NS)); // which began after it
}

TEST(a_device_that_compiles_for_ever_excuses_no_wait)
{
    const uint64_t begin = ls_clock_ns();
    ls_compiling_begin();
    sleep_ns(LS_COMPILING_TIMES * DEADLINE_NS);
    ck_assert(!ls_compiling_excuses(begin, DEADLINE_NS));
    ls_compiling_end();
}

int main(void)
{
    return test_suite_run(suite_create("compiling"));
}
