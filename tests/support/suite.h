// SPDX-License-Identifier: Apache-2.0
// How every test program ends.
#ifndef LS_TESTS_SUITE_H
#define LS_TESTS_SUITE_H

#include <check.h>
#include <stdlib.h>

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
