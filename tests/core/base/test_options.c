// SPDX-License-Identifier: Apache-2.0
// Options as users write them are read strictly, and slips get a suggestion.
#include "core/base/options.h"

#include "core/base/log.h"
#include "tests/support/suite.h"

#include <check.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char last_line[1024];

static void remember(void *context, uint32_t level, const char *line)
{
    (void)context;
    (void)level;
    snprintf(last_line, sizeof(last_line), "%s", line);
}

static void quiet(void)
{
    last_line[0] = '\0';
    ls_log_set_writer(remember, NULL);
}

static const struct ls_plugin_option table[] = {
    {"groups", "integer", "2", "how many groups"},
    {"rate", "number", NULL, "a rate"},
    {"overlap", "boolean", "on", "overlap"},
    {"order", "one of: first, last, middle", "first", "the order"},
    {"note", "text", NULL, "anything"},
    {NULL},
};

TEST(a_name_alone_is_a_specification)
{
    struct ls_spec spec = {0};
    ck_assert_int_eq(ls_spec_parse("--strategy", "ring", &spec), LS_OK);
    ck_assert_str_eq(spec.name, "ring");
    ck_assert_uint_eq(spec.option_count, 0);
    ck_assert_ptr_null(ls_spec_get(&spec, "groups"));
    ls_spec_finish(&spec);
    ck_assert_ptr_null(spec.name);
    ls_spec_finish(&spec);
    ls_spec_finish(NULL);
}

TEST(options_follow_a_colon_and_commas)
{
    struct ls_spec spec = {0};
    ck_assert_int_eq(ls_spec_parse("--x", "ring:groups=2,dir=/a:b/c=d,empty=", &spec), LS_OK);
    ck_assert_str_eq(spec.name, "ring");
    ck_assert_uint_eq(spec.option_count, 3);
    ck_assert_str_eq(ls_spec_get(&spec, "groups"), "2");
    ck_assert_str_eq(ls_spec_get(&spec, "dir"), "/a:b/c=d");
    ck_assert_str_eq(ls_spec_get(&spec, "empty"), "");
    ls_spec_finish(&spec);
}

TEST(signs_of_the_notation_may_be_part_of_a_name)
{
    static const struct {
        const char *text, *value;
    } rows[] = {
        {"x:a=Doe\\, J/x+y[1]*?.npy,b=2", "Doe, J/x+y[1]*?.npy"},
        {"x:a=\"Doe, J/\\\"x\\\".npy\",b=2", "Doe, J/\"x\".npy"},
        {"x:a=one\\+more,b=2", "one+more"},
        {"x:a=back\\slash\\\\n,b=2", "back\\slash\\n"},
        {"x:a=5\" disk,b=2", "5\" disk"},
        {"x:a=\"\",b=2", ""},
    };
    struct ls_spec spec = {0};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        ck_assert_int_eq(ls_spec_parse("--x", rows[i].text, &spec), LS_OK);
        ck_assert_str_eq(ls_spec_get(&spec, "a"), rows[i].value);
        ck_assert_str_eq(ls_spec_get(&spec, "b"), "2");
        ls_spec_finish(&spec);
    }
    ck_assert_int_eq(ls_spec_parse("--x", "\"./a:b/star.so\":b=2", &spec), LS_OK);
    ck_assert_str_eq(spec.name, "./a:b/star.so");
    ls_spec_finish(&spec);
    quiet();
    ck_assert_int_eq(ls_spec_parse("--x", "x:a=\"b,c=3", &spec), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(last_line, "none closes it"));
    ck_assert_int_eq(ls_spec_parse("--x", "x:a=no, such file", &spec), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(last_line, "written \\,"));
}

// Takes all files off option `files` of `text`, and compares them with `expected`, joined by '|'; of a
// pattern "~" is in front.
static void expect_files(const char *dir, const char *text, const char *expected)
{
    struct ls_spec spec = {0};
    char found[1024] = "";
    ck_assert_int_eq(ls_spec_parse("--x", text, &spec), LS_OK);
    for (const char *list = ls_spec_list(&spec, "files"); list;) {
        bool pattern;
        char *file = ls_list_take_file(dir, &list, &pattern);
        ck_assert_ptr_nonnull(file);
        strcat(strcat(strcat(found, *found ? "|" : ""), pattern ? "~" : ""), file);
        free(file);
    }
    ck_assert_str_eq(found, expected);
    ls_spec_finish(&spec);
}

TEST(a_file_that_exists_comes_before_a_list_and_a_pattern)
{
    static const char *const names[] = {"a+b", "c[1]", "Doe, J"};
    char folder[] = "options-XXXXXX", expected[256];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
    for (size_t i = 0; i < 3; i++)
        fclose(fopen(names[i], "w"));
    expect_files(NULL, "x:files=a+b", "a+b");
    expect_files(NULL, "x:files=a+b+c[1]+d[1]+e\\+f+\"g+h[2],i\"", "a+b|c[1]|~d[1]|e+f|g+h[2],i");
    expect_files(NULL, "x:files=a+d*+\\*e", "a|~d*|*e");
    expect_files(NULL, "x:files=Doe, J,b=2", "Doe, J");
    ck_assert_int_eq(chdir(".."), 0);
    snprintf(expected, sizeof(expected), "%s/a+b|%s/z|./y", folder, folder);
    expect_files(folder, "x:files=a+b+z+./y", expected);
    for (size_t i = 0; i < 3; i++) {
        snprintf(expected, sizeof(expected), "%s/%s", folder, names[i]);
        remove(expected);
    }
    ck_assert_int_eq(rmdir(folder), 0);
}

TEST(malformed_specifications_are_usage_errors_and_write_nothing)
{
    const char *const wrong[] = {
        "",        ":",         ":a=1",          "ring:",      "ring:a",      "ring:,",
        "ring:=1", "ring:a=1,", "ring:a=1,,b=2", "ring:a=1,b", "ring:a=1,a=2"};
    quiet();
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct ls_spec spec = {.name = (char *)"untouched"};
        last_line[0] = '\0';
        ck_assert_int_eq(ls_spec_parse("--strategy", wrong[i], &spec), LS_USAGE);
        ck_assert_str_eq(spec.name, "untouched");
        ck_assert_ptr_nonnull(strstr(last_line, "--strategy"));
    }
}

TEST(integers_are_whole_texts_in_range)
{
    int64_t value = 99;
    ck_assert(ls_parse_integer("0", &value) && value == 0);
    ck_assert(ls_parse_integer("-12", &value) && value == -12);
    ck_assert(ls_parse_integer("9223372036854775807", &value) && value == INT64_MAX);
    ck_assert(ls_parse_integer("-9223372036854775808", &value) && value == INT64_MIN);
    const char *const wrong[] = {
        "", "-", "+1", " 1", "1 ", "1.0", "1e3", "0x10", "9223372036854775808", "--1", "1-"};
    value = 99;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        ck_assert_msg(!ls_parse_integer(wrong[i], &value), "%s", wrong[i]);
    ck_assert_int_eq(value, 99);
}

TEST(numbers_are_whole_finite_decimals)
{
    double value = 99;
    ck_assert(ls_parse_number("0.001", &value) && value == 0.001);
    ck_assert(ls_parse_number("-1e-3", &value) && value == -1e-3);
    ck_assert(ls_parse_number("+.5", &value) && value == 0.5);
    ck_assert(ls_parse_number("5.", &value) && value == 5);
    ck_assert(ls_parse_number("1e-400", &value) && value == 0);
    const char *const wrong[] = {"",      ".",   "-",  "e5", "1e",    "1e+",   "nan", "inf",
                                 "0x1p3", "1,5", " 1", "1 ", "1e400", "1.2.3", "1f"};
    value = 99;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        ck_assert_msg(!ls_parse_number(wrong[i], &value), "%s", wrong[i]);
    ck_assert(value == 99);
}

TEST(numbers_do_not_depend_on_the_locale)
{
    const char *const comma[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"};
    bool set = false;
    for (size_t i = 0; i < sizeof(comma) / sizeof(*comma) && !set; i++)
        set = setlocale(LC_NUMERIC, comma[i]) != NULL;
    if (!set)
        printf("SKIP: no locale with a decimal comma is installed; checked under C alone\n");
    double value = 0;
    ck_assert(ls_parse_number("0.25", &value) && value == 0.25);
}

TEST(booleans_have_four_words_each)
{
    const char *const yes[] = {"on", "true", "yes", "1", "ON", "True"};
    const char *const no[] = {"off", "false", "no", "0", "Off"};
    bool value = false;
    for (size_t i = 0; i < sizeof(yes) / sizeof(*yes); i++)
        ck_assert(ls_parse_boolean(yes[i], &value) && value);
    for (size_t i = 0; i < sizeof(no) / sizeof(*no); i++)
        ck_assert(ls_parse_boolean(no[i], &value) && !value);
    ck_assert(!ls_parse_boolean("", &value) && !ls_parse_boolean("2", &value) &&
              !ls_parse_boolean("o", &value));
}

static enum ls_status check_text(const char *text)
{
    struct ls_spec spec = {0};
    ck_assert_int_eq(ls_spec_parse("--strategy", text, &spec), LS_OK);
    last_line[0] = '\0';
    const enum ls_status status = ls_spec_check("--strategy", &spec, table);
    ls_spec_finish(&spec);
    return status;
}

TEST(values_are_checked_against_their_type)
{
    quiet();
    ck_assert_int_eq(check_text("x:groups=2,rate=0.5,overlap=off,order=last,note=a b"), LS_OK);
    ck_assert_str_eq(last_line, "");
    ck_assert_int_eq(check_text("x:groups=two"), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(last_line, "groups must be a whole number, not 'two'"));
    ck_assert_int_eq(check_text("x:rate=fast"), LS_USAGE);
    ck_assert_int_eq(check_text("x:overlap=maybe"), LS_USAGE);
    ck_assert_int_eq(check_text("x:order=las"), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(last_line, "one of: first, last, middle"));
    ck_assert_int_eq(check_text("x:order="), LS_USAGE);
}

TEST(an_unknown_option_suggests_the_nearest)
{
    quiet();
    ck_assert_int_eq(check_text("ring:group=2"), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(
        last_line, "ring has no option group; did you mean groups? Available: groups, rate"));
    ck_assert_int_eq(check_text("ring:something=2"), LS_USAGE);
    ck_assert_ptr_null(strstr(last_line, "did you mean"));
    ck_assert_ptr_nonnull(strstr(
        last_line, "ring has no option something; available: groups, rate, overlap, order, note"));
    struct ls_spec spec = {0};
    ck_assert_int_eq(ls_spec_parse("--x", "ring:a=1", &spec), LS_OK);
    ck_assert_int_eq(ls_spec_check("--x", &spec, NULL), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(last_line, "ring has no options"));
    ls_spec_finish(&spec);
}

TEST(a_hint_is_found_by_any_spelling_of_a_name)
{
    static const struct ls_hint hints[] = {{"Two-Words other", "first", 1},
                                           {"TWOWORDS", "second", 2},
                                           {"", "none", 3},
                                           {NULL, NULL, 0}};
    ck_assert_str_eq(ls_hint_find(hints, 1, "two_words")->text, "first");
    ck_assert_str_eq(ls_hint_find(hints, 3, "a.b.TwoWords-")->text, "first");
    ck_assert_str_eq(ls_hint_find(hints, 2, "two-words")->text, "second");
    ck_assert_str_eq(ls_hint_find(hints, 3, "OTHER")->text, "first");
    static const char *const unknown[] = {"two", "words", "two-words-more", "two words", "",
                                          ".",   "-"};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(*unknown); i++)
        ck_assert_ptr_null(ls_hint_find(hints, 3, unknown[i]));
    ck_assert_ptr_null(ls_hint_find(hints, 4, "other"));
}

TEST(options_are_found_by_their_whole_name)
{
    ck_assert_ptr_eq(ls_option_find(table, "rate"), &table[1]);
    ck_assert_ptr_null(ls_option_find(table, "rat"));
    ck_assert_ptr_null(ls_option_find(NULL, "rate"));
}

TEST(the_nearest_name_is_one_slip_away)
{
    const char *const names[] = {"ring", "hierarchical-copy", "central-storage", "mirrored", NULL};
    ck_assert_str_eq(ls_nearest("rign", names), "ring");
    ck_assert_str_eq(ls_nearest("rin", names), "ring");
    ck_assert_str_eq(ls_nearest("rings", names), "ring");
    ck_assert_str_eq(ls_nearest("mirored", names), "mirrored");
    ck_assert_str_eq(ls_nearest("RING", names), "ring");
    ck_assert_str_eq(ls_nearest("Rign", names), "ring");
    ck_assert_str_eq(ls_nearest("hierarchicalcopy", names), "hierarchical-copy");
    ck_assert_str_eq(ls_nearest("heirarchical_copy", names), "hierarchical-copy");
    ck_assert_str_eq(ls_nearest("hc", names), "hierarchical-copy");
    ck_assert_str_eq(ls_nearest("HC", names), "hierarchical-copy");
    ck_assert_ptr_null(ls_nearest("h", names));
    ck_assert_ptr_null(ls_nearest("hcc", names));
    ck_assert_ptr_null(ls_nearest("nccl", names));
    ck_assert_ptr_null(ls_nearest("", names));
    ck_assert_ptr_null(ls_nearest("r", names));
    char huge[1000];
    memset(huge, 'r', sizeof(huge) - 1);
    huge[sizeof(huge) - 1] = '\0';
    ck_assert_ptr_null(ls_nearest(huge, names));
    const char *const none[] = {NULL};
    ck_assert_ptr_null(ls_nearest("ring", none));
}

TEST(of_two_near_names_the_nearer_wins)
{
    const char *const names[] = {"parameters", "parameter-server", NULL};
    ck_assert_str_eq(ls_nearest("parameter-servr", names), "parameter-server");
    ck_assert_str_eq(ls_nearest("paramters", names), "parameters");
}
