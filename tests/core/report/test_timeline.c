// SPDX-License-Identifier: Apache-2.0
// The file of a timeline: valid JSON whatever the names hold, exact times, whole or untouched.
#include "core/report/timeline.h"

#include "core/base/clock.h"
#include "tests/support/suite.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];

static void set_up(void)
{
    snprintf(path, sizeof(path), "/tmp/lockstep-timeline-XXXXXX");
    const int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    close(file);
}

static void tear_down(void)
{
    unlink(path);
}

static struct ls_trace *create(void)
{
    struct ls_trace *trace = NULL;
    ck_assert_int_eq(ls_trace_create(&(struct ls_trace_options){0}, &trace), LS_OK);
    return trace;
}

static json_t *write_and_read(const struct ls_trace *trace)
{
    const struct ls_timeline timeline = {.model = "mlp", .replicas = 2, .global_batch = 64};
    ck_assert_int_eq(ls_timeline_write(path, &timeline, trace), LS_OK);
    json_error_t error;
    json_t *content = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(content != NULL, "%s at %d", error.text, error.position);
    return content;
}

// The only slice.
static json_t *find_slice(json_t *content)
{
    json_t *found = NULL, *event;
    size_t i;
    json_array_foreach(json_object_get(content, "traceEvents"), i, event)
    {
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0)
            continue;
        ck_assert_ptr_null(found);
        found = event;
    }
    ck_assert_ptr_nonnull(found);
    return found;
}

static const struct {
    const char *name, *shown;
} names[] = {
    {"dense", "dense"},
    {"", ""},
    {"say \"\\\"", "say \"\\\""},
    {"a\nb\tc\x01\x7f", "a\nb\tc\x01\x7f"},
    {"caf\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80"},
    {"\xff\xfe", "??"},
    {"cut \xc3", "cut ?"},
    {"cut \xf0\x9f\x98", "cut ???"},
    {"long \xc0\x80", "long ??"},
    {"long \xe0\x80\x80", "long ???"},
    {"half \xed\xa0\x80", "half ???"},
    {"beyond \xf4\x90\x80\x80", "beyond ????"},
};

START_TEST(a_name_may_hold_anything)
{
    const struct ls_trace_label label = {
        .category = names[_i].name,
        .name = names[_i].name,
        .value = "number",
        .details = {{.name = "text", .text = names[_i].name}, {.name = "bytes", .number = 7}}};
    struct ls_trace *trace = create();
    const uint64_t now = ls_clock_ns();
    ls_trace_slice(&label, now, now + 1, UINT64_C(1) << 40);
    json_t *content = write_and_read(trace);
    json_t *slice = find_slice(content), *arguments = json_object_get(slice, "args");
    ck_assert_str_eq(json_string_value(json_object_get(slice, "name")), names[_i].shown);
    ck_assert_str_eq(json_string_value(json_object_get(slice, "cat")), names[_i].shown);
    ck_assert_str_eq(json_string_value(json_object_get(arguments, "text")), names[_i].shown);
    ck_assert_int_eq(json_integer_value(json_object_get(arguments, "bytes")), 7);
    ck_assert_int_eq(json_integer_value(json_object_get(arguments, "number")), INT64_C(1) << 40);
    json_decref(content);
    ls_trace_destroy(trace);
}
END_TEST

START_TEST(times_are_exact_and_a_slice_needs_no_arguments)
{
    static const struct ls_trace_label label = {.category = "test", .name = "slice"};
    struct ls_trace *trace = create();
    const uint64_t now = ls_clock_ns();
    ls_trace_slice(&label, now, now + UINT64_C(3600000000001), 0);
    json_t *content = write_and_read(trace);
    json_t *slice = find_slice(content);
    ck_assert_double_eq_tol(json_real_value(json_object_get(slice, "dur")), 3600000000.001, 1e-6);
    ck_assert_ptr_null(json_object_get(slice, "args"));
    ck_assert_int_eq(json_integer_value(json_object_get(slice, "pid")), 1);
    json_t *facts = json_object_get(content, "otherData");
    ck_assert_str_eq(json_string_value(json_object_get(facts, "model")), "mlp");
    ck_assert_ptr_null(json_object_get(facts, "collective"));
    ck_assert_int_eq(json_integer_value(json_object_get(facts, "last_step")), 0);
    json_decref(content);
    ls_trace_destroy(trace);
}
END_TEST

START_TEST(an_empty_recording_is_a_file_too)
{
    struct ls_trace *trace = create();
    json_t *content = write_and_read(trace);
    ck_assert(json_is_array(json_object_get(content, "traceEvents")));
    json_decref(content);
    ls_trace_destroy(trace);
}
END_TEST

START_TEST(an_unwritable_path_fails)
{
    struct ls_trace *trace = create();
    ck_assert_int_eq(
        ls_timeline_write("/tmp/no-such-folder/t.json", &(struct ls_timeline){0}, trace),
        LS_FAILED);
    ls_trace_destroy(trace);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("timeline");
    TCase *tests = tcase_create("timeline");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, a_name_may_hold_anything, 0, sizeof(names) / sizeof(names[0]));
    tcase_add_test(tests, times_are_exact_and_a_slice_needs_no_arguments);
    tcase_add_test(tests, an_empty_recording_is_a_file_too);
    tcase_add_test(tests, an_unwritable_path_fails);
    suite_add_tcase(suite, tests);
    return test_suite_run(suite);
}
