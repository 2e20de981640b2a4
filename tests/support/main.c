// SPDX-License-Identifier: Apache-2.0
// The `main` of test programs that have none, because their tests need nothing before they run.
#include "tests/support/suite.h"

#include <string.h>

int main(int count, char **words)
{
    const char *slash = count ? strrchr(words[0], '/') : NULL;
    return test_suite_run(slash ? slash + 1 : "tests");
}
