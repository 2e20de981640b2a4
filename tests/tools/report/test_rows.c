// SPDX-License-Identifier: Apache-2.0
// Rows and charts as other programs read them.
#include "tools/report/chart.h"
#include "tools/report/rows.h"

#include "core/base/log.h"
#include "tests/support/suite.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64], path[128];
static unsigned errors;

static void keep(void *context, uint32_t level, const char *line)
{
    (void)context;
    (void)level;
    errors += strstr(line, "--json") != NULL;
}

static void set_up(void)
{
    snprintf(folder, sizeof(folder), "/tmp/lockstep-rows-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/file", folder);
    errors = 0;
    ls_log_set_writer(keep, NULL);
}

static void tear_down(void)
{
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0); // nothing else was left behind
    ls_log_set_writer(NULL, NULL);
}

TEST(rows_are_a_list_of_objects_and_a_verdict)
{
    struct ls_rows *rows = NULL;
    ck_assert_int_eq(ls_rows_create(&rows), LS_OK);
    ls_rows_begin(rows);
    ls_rows_text(rows, "name", "ring \"1\"");
    ls_rows_text(rows, "reason", NULL);
    ls_rows_count(rows, "bytes", UINT64_C(1) << 40);
    ls_rows_number(rows, "seconds", 1.0 / 3);
    ls_rows_number(rows, "share", NAN);
    ls_rows_boolean(rows, "held", false);
    ls_rows_begin(rows);
    ls_rows_number(rows, "seconds", -INFINITY);
    ck_assert_int_eq(ls_rows_write(rows, "--json", path, "verify", true), LS_OK);
    ls_rows_destroy(rows);

    json_t *root = json_load_file(path, 0, NULL);
    ck_assert_str_eq(json_string_value(json_object_get(root, "command")), "verify");
    ck_assert(json_is_string(json_object_get(root, "lockstep")));
    ck_assert(json_is_true(json_object_get(root, "passed")));
    ck_assert_uint_eq(json_array_size(json_object_get(root, "rows")), 2);
    const json_t *row = json_array_get(json_object_get(root, "rows"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(row, "name")), "ring \"1\"");
    ck_assert(json_is_null(json_object_get(row, "reason")));
    ck_assert_int_eq(json_integer_value(json_object_get(row, "bytes")), INT64_C(1) << 40);
    ck_assert_double_eq_tol(json_real_value(json_object_get(row, "seconds")), 1.0 / 3, 1e-9);
    ck_assert(json_is_null(json_object_get(row, "share")));
    ck_assert(json_is_false(json_object_get(row, "held")));
    row = json_array_get(json_object_get(root, "rows"), 1);
    ck_assert(json_is_null(json_object_get(row, "seconds")));
    json_decref(root);
}

TEST(no_rows_are_an_empty_list)
{
    struct ls_rows *rows = NULL;
    ck_assert_int_eq(ls_rows_create(&rows), LS_OK);
    ck_assert_int_eq(ls_rows_write(rows, "--json", path, "bench", false), LS_OK);
    ls_rows_destroy(rows);
    ls_rows_destroy(NULL);
    json_t *root = json_load_file(path, 0, NULL);
    ck_assert(json_is_array(json_object_get(root, "rows")));
    ck_assert(json_is_false(json_object_get(root, "passed")));
    json_decref(root);
}

TEST(a_file_that_cannot_be_written_is_told_once)
{
    struct ls_rows *rows = NULL;
    ck_assert_int_eq(ls_rows_create(&rows), LS_OK);
    ck_assert_int_eq(ls_rows_write(rows, "--json", "/nonexistent/rows", "bench", true), LS_FAILED);
    ck_assert_uint_eq(errors, 1);
    ls_rows_destroy(rows);
}

// ---- Charts ----

static char *drawn(const struct ls_chart *chart)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    ck_assert_ptr_nonnull(out);
    ls_chart_print(chart, out);
    fclose(out);
    return text;
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    while ((text = strstr(text, part))) {
        count++;
        text += strlen(part);
    }
    return count;
}

TEST(a_chart_has_a_line_and_a_name_for_each_series)
{
    const double x[] = {1024, 65536, 1 << 20}, a[] = {1e-6, 2e-5, 3e-3}, b[] = {2e-6, NAN, 1e-3};
    const struct ls_chart_series series[] = {{"ring & <co>", x, a, 3}, {"tree", x, b, 3}};
    const struct ls_chart chart = {.title = "a \"b\"",
                                   .x = {"size", LS_CHART_BYTES, true},
                                   .y = {"time", LS_CHART_SECONDS, true},
                                   .series = series,
                                   .series_count = 2};
    char *text = drawn(&chart);
    ck_assert_uint_eq(count_of(text, "<svg "), 1);
    ck_assert_uint_eq(count_of(text, "</svg>"), 1);
    ck_assert_ptr_nonnull(strstr(text, "<title>a &quot;b&quot;</title>"));
    ck_assert_ptr_nonnull(strstr(text, "ring &amp; &lt;co&gt;</text>"));
    ck_assert_uint_eq(count_of(text, "<circle"), 5);
    ck_assert_uint_eq(count_of(text, "class=\"line\""), 4); // and two in the legend
    ck_assert_ptr_nonnull(strstr(text, ">64 KiB</text>"));
    ck_assert_ptr_nonnull(strstr(text, ">1 ms</text>"));
    ck_assert_ptr_nonnull(strstr(text, "prefers-color-scheme:dark"));
    ck_assert_ptr_null(strstr(text, "nan"));
    ck_assert_ptr_null(
        strstr(text, "http://w3.org")); // nothing is fetched: the one address is the namespace
    ck_assert_uint_eq(count_of(text, "http"), 1);
    free(text);
}

// A larger value is further up, a later one further right.
TEST(points_stand_where_their_values_are)
{
    const double x[] = {1, 2, 3}, y[] = {10, 20, 40};
    const struct ls_chart_series series = {"s", x, y, 3};
    for (int logarithmic = 0; logarithmic < 2; logarithmic++) {
        const struct ls_chart chart = {.title = "t",
                                       .x = {"x", LS_CHART_PLAIN, logarithmic},
                                       .y = {"y", LS_CHART_PLAIN, logarithmic},
                                       .series = &series,
                                       .series_count = 1};
        char *text = drawn(&chart);
        double at[3][2];
        const char *next = text;
        for (int i = 0; i < 3; i++) {
            next = strstr(next, "<circle cx=");
            ck_assert_int_eq(sscanf(next, "<circle cx=\"%lf\" cy=\"%lf\"", &at[i][0], &at[i][1]),
                             2);
            next++;
        }
        ck_assert(at[0][0] < at[1][0] && at[1][0] < at[2][0]);
        ck_assert(at[0][1] > at[1][1] && at[1][1] > at[2][1]);
        const double first = at[0][1] - at[1][1], second = at[1][1] - at[2][1];
        ck_assert_double_eq_tol(second / first, logarithmic ? 1 : 2, 0.01);
        free(text);
    }
}

TEST(charts_of_nothing_and_of_odd_values_are_drawn)
{
    const double odd[] = {0, -1, INFINITY, NAN, 1e300, 1e-300}, one[] = {5}, zero[] = {0};
    const struct ls_chart_series cases[] = {{"none", NULL, NULL, 0},
                                            {"odd", odd, odd, 6},
                                            {"one", one, one, 1},
                                            {"zero", zero, zero, 1}};
    for (size_t i = 0; i < 4; i++)
        for (int logarithmic = 0; logarithmic < 2; logarithmic++)
            for (int unit = LS_CHART_PLAIN; unit <= LS_CHART_SECONDS; unit++) {
                const struct ls_chart chart = {.title = "t",
                                               .x = {"x", unit, logarithmic},
                                               .y = {"y", unit, logarithmic},
                                               .series = &cases[i],
                                               .series_count = i ? 1 : 0};
                char *text = drawn(&chart);
                ck_assert_ptr_null(strstr(text, "nan"));
                ck_assert_ptr_null(strstr(text, "inf"));
                ck_assert_ptr_nonnull(strstr(text, "</svg>"));
                free(text);
            }
}

TEST(a_chart_becomes_a_file)
{
    const struct ls_chart chart = {.title = "t", .x = {.label = "x"}, .y = {.label = "y"}};
    ck_assert_int_eq(ls_chart_write(&chart, "--svg", path), LS_OK);
    FILE *file = fopen(path, "r");
    char begin[5] = "";
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fread(begin, 1, 4, file), 4);
    ck_assert_str_eq(begin, "<svg");
    fclose(file);
}

TEST_FIXTURE(set_up, tear_down);
