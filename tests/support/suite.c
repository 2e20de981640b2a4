// SPDX-License-Identifier: Apache-2.0
// The tests that registered themselves, and how they are run.
#include "tests/support/suite.h"

#define USUAL_SECONDS 60 // four, as Check has it, are too short on a machine with other work

TCase *test_registered(void)
{
    static TCase *registered;
    if (!registered) {
        registered = tcase_create("registered");
        tcase_set_timeout(registered, USUAL_SECONDS);
    }
    return registered;
}

int test_suite_run(const char *name)
{
    Suite *suite = suite_create(name);
    suite_add_tcase(suite, test_registered());
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const bool none = !srunner_ntests_run(runner), failed = none || srunner_ntests_failed(runner);
    if (none)
        fprintf(stderr, "%s: no test registered itself\n", name);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
