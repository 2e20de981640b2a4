// SPDX-License-Identifier: Apache-2.0
// What every test program shares: how it marks its way, and how it ends.
#ifndef LS_TESTS_SUITE_H
#define LS_TESTS_SUITE_H

#include <check.h>
#include <stdlib.h>

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

// Runs `suite` and frees it; what `main` returns.
static inline int test_suite_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
