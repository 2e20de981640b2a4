// SPDX-License-Identifier: Apache-2.0
// Values are counted before a text is parsed, whatever strings have in them.
#include "core/base/json_size.h"

#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

// `piece`, as often as it takes for that many bytes.
static char *repeat(const char *piece, size_t bytes)
{
    char *text = malloc(bytes);
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < bytes; i++)
        text[i] = piece[i % strlen(piece)];
    return text;
}

TEST(values_are_counted)
{
    static const struct {
        const char *piece;
        size_t bytes; // the most that fit
    } cases[] = {{",", 3999999}, {"[", 3999999}, {"{},", 5999999}, {"[\"a,b[\"", 27999993}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *text = repeat(cases[i].piece, cases[i].bytes + 8);
        ck_assert_msg(ls_json_fits(text, cases[i].bytes), "%s", cases[i].piece);
        ck_assert_msg(!ls_json_fits(text, cases[i].bytes + 8), "%s", cases[i].piece);
        free(text);
    }
}

TEST(strings_have_no_values)
{
    char *text = repeat(",", 8000000);
    text[0] = '"';
    ck_assert(ls_json_fits(text, 8000000));
    memcpy(text + 1, "\\\"", 2); // ends no string
    ck_assert(ls_json_fits(text, 8000000));
    memcpy(text + 1, "\\\\\"", 3); // ends it
    ck_assert(!ls_json_fits(text, 8000000));
    text[7999999] = '\\'; // the last letter of a string without an end
    memset(text + 1, ',', 7999998);
    ck_assert(ls_json_fits(text, 8000000));
    ck_assert(ls_json_fits("", 0));
    free(text);
}
