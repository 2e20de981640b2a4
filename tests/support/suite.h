// SPDX-License-Identifier: Apache-2.0
// What every test program shares: how it marks its way, and how it ends.
#ifndef LS_TESTS_SUITE_H
#define LS_TESTS_SUITE_H

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TEST_SKIPPED 77 // exit code that meson counts as a skip
#define TEST_NETWORKS "/sys/class/net" // where UCX looks for devices

// Each assertion of Check writes its line to a file, for the report of a crash or a time-out. In a
// loop over elements that takes longer than the test, so the same line again is not written.
static inline void test_mark_point(const char *file, int line)
{
    static _Thread_local int last;
    if (line == last)
        return;
    last = line;
    (_mark_point)(file, line);
}
#define _mark_point(file, line) test_mark_point(file, line)

// The tests that registered themselves. `main` may add more to them.
TCase *test_registered(void);

#define TEST_BEFORE_MAIN(name, statement)               \
    __attribute__((constructor)) static void name(void) \
    {                                                   \
        statement;                                      \
    }

// A test that runs without being listed: TEST(sums_are_exact) { ... }
#define TEST(name)                                                             \
    static const TTest *name;                                                  \
    TEST_BEFORE_MAIN(name##_register, tcase_add_test(test_registered(), name)) \
    START_TEST(name)

// The same for each `_i` from `first` to `end` - 1.
#define LOOP_TEST(name, first, end)                                                             \
    static const TTest *name;                                                                   \
    TEST_BEFORE_MAIN(name##_register, tcase_add_loop_test(test_registered(), name, first, end)) \
    START_TEST(name)

// The same for each row `_i` of an array.
#define TABLE_TEST(name, table) LOOP_TEST(name, 0, (int)(sizeof(table) / sizeof((table)[0])))

// What runs before and after each test of the program; NULL: nothing.
#define TEST_FIXTURE(set_up, clean_up)                                               \
    TEST_BEFORE_MAIN(test_set_fixture,                                               \
                     tcase_add_checked_fixture(test_registered(), set_up, clean_up)) \
    _Static_assert(1, "takes a semicolon")

// After how long a test of the program is killed, where the usual minute is too short.
#define TEST_SECONDS(seconds)                                                         \
    TEST_BEFORE_MAIN(test_set_seconds, tcase_set_timeout(test_registered(), seconds)) \
    _Static_assert(1, "takes a semicolon")

// Whether this root lacks what `whom` needs, which is then said: a container may have no /sys.
static inline bool test_lacks(const char *path, const char *whom)
{
    if (!access(path, F_OK))
        return false;
    printf("SKIP: %s is not here, which %s needs\n", path, whom);
    return true;
}

// Runs the registered tests; what `main` returns. A program without `main` gets one that only does
// this.
int test_suite_run(const char *name);

#endif
