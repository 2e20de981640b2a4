// SPDX-License-Identifier: Apache-2.0
// What the text of the libraries says of this process.
#include "core/base/libraries.h"
#include "tests/support/suite.h"

#include <math.h>
#include <string.h>

TEST(libm_is_named_with_an_identity_and_the_text_is_the_same_twice)
{
    char text[256], again[256];
    ls_libraries_text(text, sizeof(text));
    ls_libraries_text(again, sizeof(again));
    ck_assert_str_eq(text, again);
    const char *libm = strstr(text, "libm.so");
    ck_assert_msg(libm, "'%s'", text);
    const char *id = strchr(libm, ' ');
    ck_assert(id);
    ck_assert_msg(strspn(id + 1, "0123456789abcdef") == 8 || strncmp(id + 1, "none", 4) == 0,
                  "'%s'", text);
}

TEST(a_short_text_is_cut)
{
    char text[6] = "xxxxx";
    ls_libraries_text(text, sizeof(text));
    ck_assert_uint_lt(strlen(text), sizeof(text));
}

int main(void)
{
    volatile double one = 1; // so that libm is needed
    return test_suite_run("core/base/libraries") + (sin(one) > 2);
}
