// SPDX-License-Identifier: Apache-2.0
// The file of a timeline: valid JSON whatever the names hold, exact times, whole or untouched.
#include "core/report/timeline.h"

#include "core/base/clock.h"
#include "core/base/threads.h"
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

// The only span.
static json_t *find_span(json_t *content)
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

TABLE_TEST(a_name_may_hold_anything, names)
{
    const struct ls_trace_label label = {
        .category = names[_i].name,
        .name = names[_i].name,
        .value = "number",
        .details = {{.name = "text", .text = names[_i].name}, {.name = "bytes", .number = 7}}};
    struct ls_trace *trace = create();
    const uint64_t now = ls_clock_ns();
    ls_trace_span(&label, now, now + 1, UINT64_C(1) << 40);
    json_t *content = write_and_read(trace);
    json_t *span = find_span(content), *arguments = json_object_get(span, "args");
    ck_assert_str_eq(json_string_value(json_object_get(span, "name")), names[_i].shown);
    ck_assert_str_eq(json_string_value(json_object_get(span, "cat")), names[_i].shown);
    ck_assert_str_eq(json_string_value(json_object_get(arguments, "text")), names[_i].shown);
    ck_assert_int_eq(json_integer_value(json_object_get(arguments, "bytes")), 7);
    ck_assert_int_eq(json_integer_value(json_object_get(arguments, "number")), INT64_C(1) << 40);
    json_decref(content);
    ls_trace_destroy(trace);
}

TEST(times_are_exact_and_a_slice_needs_no_arguments)
{
    static const struct ls_trace_label label = {.category = "test", .name = "span"};
    struct ls_trace *trace = create();
    const uint64_t now = ls_clock_ns();
    ls_trace_span(&label, now, now + UINT64_C(3600000000001), 0);
    json_t *content = write_and_read(trace);
    json_t *span = find_span(content);
    ck_assert_double_eq_tol(json_real_value(json_object_get(span, "dur")), 3600000000.001, 1e-6);
    ck_assert_ptr_null(json_object_get(span, "args"));
    ck_assert_int_eq(json_integer_value(json_object_get(span, "pid")), 1);
    json_t *facts = json_object_get(content, "otherData");
    ck_assert_str_eq(json_string_value(json_object_get(facts, "model")), "mlp");
    ck_assert_ptr_null(json_object_get(facts, "collective"));
    ck_assert_int_eq(json_integer_value(json_object_get(facts, "last_step")), 0);
    json_decref(content);
    ls_trace_destroy(trace);
}

// ---- Messages ----

#define STEPS 1500

struct rank {
    uint32_t rank;
    uint64_t spans; // in each step, beside the messages
    pthread_barrier_t *both;
};

static const struct ls_trace_label kernel = {.category = "test", .name = "kernel"};

// Each rank sends the other one a message in each step; rank 0 sends one more, which nobody receives.
static void *exchange(void *argument)
{
    const struct rank *rank = argument;
    const uint32_t me = rank->rank, peer = 1 - me;
    const struct ls_trace_label sends = {
        .category = "message", .name = "send", .sends = {&kernel, me, peer, 7, 100 + me}};
    const struct ls_trace_label receives = {
        .category = "message", .name = "receive", .receives = {&kernel, peer, me, 7, 100 + peer}};
    const struct ls_trace_label lonely = {
        .category = "message", .name = "lonely", .sends = {&kernel, me, peer, 8, 1000}};
    const struct ls_trace_label *labels[] = {ls_trace_keep(&sends), ls_trace_keep(&receives),
                                             ls_trace_keep(&lonely)};
    ls_trace_move(1 + me, me ? "rank 1" : "rank 0", NULL);
    struct ls_trace_track *sending = ls_trace_open_track("send");
    struct ls_trace_track *receiving = ls_trace_open_track("receive");
    for (uint64_t step = 1; step <= STEPS; step++) {
        ls_trace_begin_step(step);
        ls_trace_examples(10);
        const uint64_t begin = ls_clock_ns();
        pthread_barrier_wait(rank->both); // so no message arrives before it was sent
        const uint64_t end = ls_clock_ns() + 1;
        ls_trace_slice_on(sending, labels[0], begin, end, step);
        ls_trace_slice_on(receiving, labels[1], begin, end, step);
        if (me == 0)
            ls_trace_slice_on(sending, labels[2], end, end + 1, step);
        for (uint64_t i = 0; i < rank->spans; i++)
            ls_trace_span(&kernel, end, end + 1, 0);
        ls_trace_end_step();
    }
    return NULL;
}

static void exchange_messages(uint64_t spans)
{
    pthread_barrier_t both;
    pthread_barrier_init(&both, NULL, 2);
    struct rank ranks[] = {{0, 0, &both}, {1, spans, &both}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(
            ls_thread_start(&threads[i], i ? "replica 1" : "replica 0", exchange, &ranks[i]),
            LS_OK);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&both);
}

static int64_t counted(json_t *event, const char *name, const char *unit)
{
    const char *found = json_string_value(json_object_get(event, "name"));
    if (strcmp(json_string_value(json_object_get(event, "ph")), "C") != 0 || strcmp(found, name))
        return -1;
    return json_integer_value(json_object_get(json_object_get(event, "args"), unit));
}

// Steps that the file holds; every message of theirs must have its arrow, and no other.
static int64_t check_messages(json_t *content)
{
    int64_t starts = 0, ends = 0, bytes = -1, rate = -1;
    json_t *event;
    size_t i;
    json_array_foreach(json_object_get(content, "traceEvents"), i, event)
    {
        const char *phase = json_string_value(json_object_get(event, "ph"));
        const int64_t id = json_integer_value(json_object_get(event, "id"));
        if (*phase == 's')
            ck_assert_int_eq(id, ++starts);
        if (*phase == 'f')
            ck_assert_int_eq(id, ++ends);
        const int64_t now = counted(event, "bytes", "in flight");
        ck_assert_int_lt(now, 1000); // nobody receives that one
        bytes = now >= 0 ? now : bytes;
        const int64_t speed = counted(event, "examples", "per second");
        rate = speed >= 0 ? speed : rate;
    }
    ck_assert_int_eq(starts, ends);
    ck_assert_int_eq(bytes, 0);
    ck_assert_int_eq(rate, 0);
    const int64_t last =
        json_integer_value(json_object_get(json_object_get(content, "otherData"), "last_step"));
    ck_assert_int_eq(starts, 2 * last);
    return last;
}

TEST(a_message_that_is_held_on_both_sides_is_an_arrow)
{
    struct ls_trace *trace = NULL;
    const struct ls_trace_options options = {.steppers = 2};
    ck_assert_int_eq(ls_trace_create(&options, &trace), LS_OK);
    exchange_messages(0);
    json_t *content = write_and_read(trace);
    ck_assert_int_eq(check_messages(content), STEPS);
    json_decref(content);
    ls_trace_destroy(trace);
}

// The two ranks run out of room at different steps, and within one.
TEST(where_slices_are_dropped_no_arrow_is_left_without_an_end)
{
    struct ls_trace *trace = NULL;
    const struct ls_trace_options options = {.steppers = 2, .most_spans = 30000};
    ck_assert_int_eq(ls_trace_create(&options, &trace), LS_OK);
    exchange_messages(10);
    json_t *content = write_and_read(trace);
    const int64_t held = check_messages(content);
    ck_assert_int_gt(held, 100);
    ck_assert_int_lt(held, STEPS);
    json_decref(content);
    ls_trace_destroy(trace);
}

TEST(an_empty_recording_is_a_file_too)
{
    struct ls_trace *trace = create();
    json_t *content = write_and_read(trace);
    ck_assert(json_is_array(json_object_get(content, "traceEvents")));
    json_decref(content);
    ls_trace_destroy(trace);
}

TEST(an_unwritable_path_fails)
{
    struct ls_trace *trace = create();
    ck_assert_int_eq(
        ls_timeline_write("/tmp/no-such-folder/t.json", &(struct ls_timeline){0}, trace),
        LS_FAILED);
    ls_trace_destroy(trace);
}

TEST_FIXTURE(set_up, tear_down);
