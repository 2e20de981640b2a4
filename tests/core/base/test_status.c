// SPDX-License-Identifier: Apache-2.0
// Each outcome has a text and the exit code that scripts rely on.
#include "core/base/status.h"
#include "tests/support/suite.h"

#include <check.h>

TEST(exit_codes_are_those_of_the_contract)
{
    ck_assert_int_eq(ls_status_exit_code(LS_OK), 0);
    ck_assert_int_eq(ls_status_exit_code(LS_FAILED), 1);
    ck_assert_int_eq(ls_status_exit_code(LS_USAGE), 2);
    ck_assert_int_eq(ls_status_exit_code(LS_BAD_INPUT), 3);
    ck_assert_int_eq(ls_status_exit_code(LS_UNAVAILABLE), 4);
    ck_assert_int_eq(ls_status_exit_code(LS_PEER_LOST), 5);
    ck_assert_int_eq(ls_status_exit_code(LS_OUT_OF_MEMORY), 1);
    ck_assert_int_eq(ls_status_exit_code(LS_ABORTED), 1);
    ck_assert_int_eq(ls_status_exit_code(LS_UNSUPPORTED), 1);
    ck_assert_int_eq(ls_status_exit_code(LS_INTERRUPTED), 130);
}

TEST(a_status_that_a_plugin_made_up_has_a_text_and_fails)
{
    ck_assert_str_eq(ls_status_text((enum ls_status)77), "unknown status");
    ck_assert_int_eq(ls_status_exit_code((enum ls_status)77), 1);
}

TEST(texts_differ)
{
    const enum ls_status all[] = {LS_OK,          LS_FAILED,    LS_USAGE,         LS_BAD_INPUT,
                                  LS_UNAVAILABLE, LS_PEER_LOST, LS_OUT_OF_MEMORY, LS_ABORTED,
                                  LS_UNSUPPORTED, LS_AGAIN,     LS_INTERRUPTED};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        for (size_t j = 0; j < i; j++)
            ck_assert_str_ne(ls_status_text(all[i]), ls_status_text(all[j]));
}
