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

// Each assertion of Check writes its line to a file, for the report of a crash or a time-out. In a loop over elements that
// takes longer than the test, so the same line again is not written.
static inline void test_mark_point(const char *file, int line)
{
    static _Thread_local int last;
    if (line == last)
        return;
    last = line;
    (_mark_point)(file, line);
}
#define _mark_point(file, line) test_mark_point(file, line)

// The tests of this program that register themselves; NULL: none does. `main` may give them a fixture or a time.
static TCase *test_registered;

static inline void test_register(const TTest *test)
{
    if (!test_registered)
        test_registered = tcase_create("registered");
    tcase_add_test(test_registered, test);
}

// A test that test_suite_run() finds without being told of it: TEST(sums_are_exact) { ... }
#define TEST(name)                                                 \
    static const TTest *name;                                      \
    __attribute__((constructor)) static void name##_register(void) \
    {                                                              \
        test_register(name);                                       \
    }                                                              \
    START_TEST(name)

// Whether this root lacks what `whom` needs, which is then said: a container may have no /sys.
static inline bool test_lacks(const char *path, const char *whom)
{
    if (!access(path, F_OK))
        return false;
    printf("SKIP: %s is not here, which %s needs\n", path, whom);
    return true;
}

// Runs `suite` and the tests that registered themselves, and frees it; what `main` returns.
static inline int test_suite_run(Suite *suite)
{
    if (test_registered)
        suite_add_tcase(suite, test_registered);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
