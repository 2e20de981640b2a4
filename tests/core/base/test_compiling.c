// SPDX-License-Identifier: Apache-2.0
// Waits that a compiling device excuses: not for ever, and none that began later.
#include "core/base/clock.h"
#include "core/base/compiling.h"
#include "tests/support/suite.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define DEADLINE_NS UINT64_C(20000000)
#define LOOKS 200000
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

static atomic_bool over;

static void *compile_again_and_again(void *argument)
{
    while (!atomic_load(&over)) {
        ls_compiling_begin();
        ls_compiling_end();
    }
    return argument;
}

TEST(a_wait_goes_on_at_whatever_moment_it_looks)
{
    const uint64_t begin = ls_clock_ns();
    pthread_t thread;
    uint32_t late = 0;
    sleep_ns(1);
    ls_compiling_begin();
    ls_compiling_end();
    atomic_store(&over, false);
    ck_assert_int_eq(pthread_create(&thread, NULL, compile_again_and_again, NULL), 0);
    for (uint32_t i = 0; i < LOOKS; i++)
        late += !ls_compiling_excuses(begin, LONG_NS);
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(late, 0);
}
