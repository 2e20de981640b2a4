// SPDX-License-Identifier: Apache-2.0
// What threads do is recorded, span by span, within the steps that are held, and costs nothing where it is not.
#include "core/base/trace.h"

#include "core/base/clock.h"
#include "core/base/threads.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ls_trace_label outer = {.category = "test", .name = "outer"};
static const struct ls_trace_label inner = {.category = "test", .name = "inner", .value = "index"};

// ---- What a recording holds, as a visitor hears it ----

#define SEEN 4096

struct seen {
    struct seen_span {
        uint32_t process, track;
        char name[32];
        struct ls_trace_span span;
    } spans[SEEN];
    uint32_t count;
    uint32_t process, track;
    char processes[256], tracks[256];
};

static void see_process(void *context, uint32_t process, const char *name, const char *remark)
{
    struct seen *seen = context;
    seen->process = process;
    const size_t length = strlen(seen->processes);
    snprintf(seen->processes + length, sizeof(seen->processes) - length, "%u %s (%s);", process,
             name, remark ? remark : "");
}

static void see_track(void *context, uint32_t process, uint32_t track, const char *name)
{
    struct seen *seen = context;
    ck_assert_uint_eq(process, seen->process);
    seen->track = track;
    const size_t length = strlen(seen->tracks);
    snprintf(seen->tracks + length, sizeof(seen->tracks) - length, "%s;", name);
}

static void see_span(void *context, const struct ls_trace_span *span)
{
    struct seen *seen = context;
    ck_assert_uint_lt(seen->count, SEEN);
    ck_assert_uint_le(span->begin_ns, span->end_ns);
    struct seen_span *kept = &seen->spans[seen->count++];
    *kept = (struct seen_span){.process = seen->process, .track = seen->track, .span = *span};
    snprintf(kept->name, sizeof(kept->name), "%s", span->label->name);
}

static struct seen *read_trace(const struct ls_trace *trace)
{
    struct seen *seen = calloc(1, sizeof(*seen));
    ck_assert_ptr_nonnull(seen);
    const struct ls_trace_visitor visitor = {
        .context = seen, .process = see_process, .track = see_track, .span = see_span};
    ls_trace_visit(trace, &visitor);
    return seen;
}

static uint32_t count_of(const struct seen *seen, const char *name)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < seen->count; i++)
        count += strcmp(seen->spans[i].name, name) == 0;
    return count;
}

static struct ls_trace *create(const struct ls_trace_options *options)
{
    struct ls_trace *trace = NULL;
    ck_assert_int_eq(ls_trace_create(options, &trace), LS_OK);
    return trace;
}

static void note(const struct ls_trace_label *label)
{
    const uint64_t now = ls_clock_ns();
    ls_trace_span(label, now, now + 1, 0);
}

// ---- Threads that do something ----

struct worker {
    uint32_t rank;
    uint64_t first, last; // steps
    uint32_t spans; // in each
};

static void *work(void *argument)
{
    const struct worker *worker = argument;
    char name[16];
    snprintf(name, sizeof(name), "rank %u", worker->rank);
    ls_trace_move(1 + worker->rank, name, "cpu");
    ls_trace_begin(&outer, 0);
    for (uint64_t step = worker->first; step <= worker->last; step++) {
        ls_trace_begin_step(step);
        for (uint32_t i = 0; i < worker->spans; i++) {
            ls_trace_begin(&inner, i);
            ls_trace_end();
        }
        ls_trace_end_step();
    }
    ls_trace_end();
    return NULL;
}

static void run_workers(struct worker *workers, uint32_t count)
{
    pthread_t threads[8];
    for (uint32_t i = 0; i < count; i++)
        ck_assert_int_eq(ls_thread_start(&threads[i], "worker", work, &workers[i]), LS_OK);
    for (uint32_t i = 0; i < count; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}

// ---- Tests ----

TEST(without_a_recording_every_call_is_without_effect)
{
    ck_assert(!ls_trace_on());
    ls_trace_begin(&outer, 1);
    ls_trace_end();
    ls_trace_end();
    ls_trace_span(&outer, 1, 2, 3);
    ls_trace_begin_step(1);
    ls_trace_end_step();
    ls_trace_move(1, "rank 0", NULL);
    ls_trace_slice_on(NULL, &outer, 1, 2, 3);
    ck_assert_ptr_null(ls_trace_keep(&outer));
    ck_assert_ptr_null(ls_trace_open_track("lane"));
    ck_assert_ptr_null(ls_trace_fork("thread"));
    ls_trace_attach(NULL);
    ls_trace_detach(NULL);
    ls_trace_destroy(NULL);
    ck_assert(!ls_trace_on());
}

TEST(messages_are_recorded_unless_somebody_says_no)
{
    struct ls_trace *trace = NULL;
    ck_assert(!ls_trace_has_messages());
    for (int without = 0; without < 2; without++) {
        const struct ls_trace_options options = {.steppers = 1, .without_messages = without};
        ck_assert_int_eq(ls_trace_create(&options, &trace), LS_OK);
        ck_assert_int_eq(ls_trace_has_messages(), !without);
        ls_trace_destroy(trace);
    }
}

TEST(slices_keep_label_number_and_times)
{
    struct ls_trace *trace = create(&(struct ls_trace_options){0});
    ck_assert(ls_trace_on());
    ls_trace_begin(&outer, 0);
    const uint64_t begin = ls_clock_ns();
    ls_trace_span(&inner, begin, begin + 5, 7);
    ls_trace_span(NULL, begin, begin + 5, 7);
    ls_trace_begin(NULL, 0);
    ls_trace_end();
    ls_trace_end();
    struct seen *seen = read_trace(trace);
    ck_assert_str_eq(seen->processes, "0 worker ();");
    ck_assert_str_eq(seen->tracks, "main;");
    ck_assert_uint_eq(seen->count, 2);
    ck_assert_ptr_eq(seen->spans[0].span.label, &outer);
    ck_assert_ptr_eq(seen->spans[1].span.label, &inner);
    ck_assert_uint_eq(seen->spans[1].span.number, 7);
    ck_assert_uint_eq(seen->spans[1].span.end_ns - seen->spans[1].span.begin_ns, 5);
    ck_assert_uint_ge(seen->spans[1].span.begin_ns, seen->spans[0].span.begin_ns);
    ck_assert(!seen->spans[0].span.unfinished);
    free(seen);
    ls_trace_destroy(trace);
    ck_assert(!ls_trace_on());
}

TEST(a_slice_without_its_end_is_shown_up_to_the_last_time_and_marked)
{
    struct ls_trace *trace = create(&(struct ls_trace_options){0});
    ls_trace_begin(&outer, 0);
    const uint64_t end = ls_clock_ns() + 1000;
    ls_trace_span(&inner, end - 10, end, 0);
    struct seen *seen = read_trace(trace);
    ck_assert_uint_eq(seen->count, 2);
    ck_assert(seen->spans[0].span.unfinished);
    ck_assert_uint_eq(seen->spans[0].span.end_ns, seen->spans[1].span.end_ns);
    ck_assert(!seen->spans[1].span.unfinished);
    free(seen);
    ls_trace_destroy(trace);
}

TEST(ends_without_a_begin_and_slices_too_deep_do_no_harm)
{
    struct ls_trace *trace = create(&(struct ls_trace_options){0});
    ls_trace_end();
    for (uint32_t i = 0; i < 100; i++)
        ls_trace_begin(&inner, i);
    for (uint32_t i = 0; i < 100; i++)
        ls_trace_end();
    ls_trace_end();
    ls_trace_begin(&outer, 0);
    ls_trace_end();
    struct seen *seen = read_trace(trace);
    ck_assert_uint_eq(count_of(seen, "outer"), 1);
    ck_assert_uint_ge(count_of(seen, "inner"), 8);
    ck_assert_uint_lt(count_of(seen, "inner"), 100);
    for (uint32_t i = 0; i < seen->count; i++)
        ck_assert(!seen->spans[i].span.unfinished);
    free(seen);
    ls_trace_destroy(trace);
}

TEST(each_thread_has_a_track_in_the_process_it_moved_to)
{
    struct ls_trace *trace = create(&(struct ls_trace_options){.steppers = 3});
    struct worker workers[3] = {{0, 1, 5, 2}, {1, 1, 5, 2}, {2, 1, 5, 2}};
    run_workers(workers, 3);
    struct seen *seen = read_trace(trace);
    ck_assert_str_eq(seen->processes, "0 worker ();1 rank 0 (cpu);2 rank 1 (cpu);3 rank 2 (cpu);");
    ck_assert_uint_eq(count_of(seen, "step"), 15);
    ck_assert_uint_eq(count_of(seen, "inner"), 30);
    ck_assert_uint_eq(count_of(seen, "outer"), 3);
    for (uint32_t i = 1; i < seen->count; i++)
        ck_assert((seen->spans[i].process == seen->spans[i - 1].process) ==
                  (seen->spans[i].track == seen->spans[i - 1].track));
    struct ls_trace_steps steps;
    ls_trace_find_steps(trace, &steps);
    ck_assert_uint_eq(steps.first, 1);
    ck_assert_uint_eq(steps.last, 5);
    ck_assert_uint_eq(steps.begun, 5);
    free(seen);
    ls_trace_destroy(trace);
}

static void *note_once(void *argument)
{
    ls_trace_begin(&inner, 0);
    ls_trace_end();
    return argument;
}

TEST(a_thread_that_ended_leaves_its_track_to_the_next_of_its_name)
{
    struct ls_trace *trace = create(&(struct ls_trace_options){.steppers = 1});
    for (uint32_t i = 0; i < 5; i++) {
        pthread_t thread;
        ck_assert_int_eq(ls_thread_start(&thread, i % 2 ? "odd" : "even", note_once, NULL), LS_OK);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
    }
    struct seen *seen = read_trace(trace);
    ck_assert_str_eq(seen->tracks, "even;odd;");
    ck_assert_uint_eq(count_of(seen, "inner"), 5);
    free(seen);
    ls_trace_destroy(trace);
}

// Only these steps, and main no longer than the workers.
static void check_window(const struct seen *seen, uint64_t first, uint64_t last)
{
    uint64_t begin = UINT64_MAX, end = 0;
    for (uint32_t i = 0; i < seen->count; i++) {
        const struct ls_trace_span *span = &seen->spans[i].span;
        if (strcmp(seen->spans[i].name, "step") == 0) {
            ck_assert_uint_ge(span->number, first);
            ck_assert_uint_le(span->number, last);
        }
        if (seen->spans[i].process == 0)
            continue;
        begin = span->begin_ns < begin ? span->begin_ns : begin;
        end = span->end_ns > end ? span->end_ns : end;
    }
    for (uint32_t i = 0; i < seen->count; i++) {
        ck_assert_uint_ge(seen->spans[i].span.begin_ns, begin);
        ck_assert_uint_le(seen->spans[i].span.end_ns, end);
    }
}

TEST(a_window_of_steps_is_held_and_nothing_else)
{
    const struct ls_trace_options options = {.first_step = 11, .last_step = 20, .steppers = 2};
    struct ls_trace *trace = create(&options);
    struct worker workers[2] = {{0, 1, 200, 3}, {1, 1, 200, 3}};
    ls_trace_begin(&outer, 0);
    run_workers(workers, 2);
    ls_trace_end();
    struct seen *seen = read_trace(trace);
    ck_assert_uint_eq(count_of(seen, "step"), 20);
    ck_assert_uint_eq(count_of(seen, "inner"), 60);
    ck_assert_uint_eq(count_of(seen, "outer"), 3); // of the workers and of main, cut
    check_window(seen, 11, 20);
    struct ls_trace_steps steps;
    ls_trace_find_steps(trace, &steps);
    ck_assert_uint_eq(steps.first, 11);
    ck_assert_uint_eq(steps.last, 20);
    ck_assert_uint_eq(steps.begun, 200);
    free(seen);
    ls_trace_destroy(trace);
}

TEST(a_window_behind_the_run_holds_nothing)
{
    const struct ls_trace_options options = {.first_step = 100, .last_step = 200, .steppers = 1};
    struct ls_trace *trace = create(&options);
    struct worker worker = {0, 1, 10, 3};
    run_workers(&worker, 1);
    struct seen *seen = read_trace(trace);
    ck_assert_uint_eq(seen->count, 0);
    struct ls_trace_steps steps;
    ls_trace_find_steps(trace, &steps);
    ck_assert_uint_eq(steps.last, 0);
    ck_assert_uint_eq(steps.begun, 10);
    free(seen);
    ls_trace_destroy(trace);
}

TEST(when_the_slices_are_used_up_the_first_steps_are_kept_whole)
{
    const struct ls_trace_options options = {.most_spans = 4000, .steppers = 2};
    struct ls_trace *trace = create(&options);
    struct worker workers[2] = {{0, 1, 1000, 9}, {1, 1, 1000, 9}};
    run_workers(workers, 2);
    struct ls_trace_steps steps;
    ls_trace_find_steps(trace, &steps);
    ck_assert_uint_eq(steps.first, 1);
    ck_assert_uint_gt(steps.last, 10);
    ck_assert_uint_lt(steps.last, 500);
    ck_assert_uint_eq(steps.begun, 1000);
    struct seen *seen = read_trace(trace);
    ck_assert_uint_eq(count_of(seen, "step"), 2 * steps.last);
    ck_assert_uint_eq(count_of(seen, "inner"), 18 * steps.last);
    ck_assert_uint_eq(count_of(seen, "outer"), 2);
    for (uint32_t i = 0; i < seen->count; i++)
        ck_assert(!seen->spans[i].span.unfinished);
    free(seen);
    ls_trace_destroy(trace);
}

TEST(without_room_for_a_step_there_is_none)
{
    const struct ls_trace_options options = {.most_spans = 1, .steppers = 1};
    struct ls_trace *trace = create(&options);
    struct worker worker = {0, 1, 3, 2000};
    run_workers(&worker, 1);
    struct ls_trace_steps steps;
    ls_trace_find_steps(trace, &steps);
    ck_assert_uint_eq(steps.last, 0);
    struct seen *seen = read_trace(trace);
    ck_assert_uint_eq(count_of(seen, "inner"), 0);
    free(seen);
    ls_trace_destroy(trace);
}

static void *overlap(void *argument)
{
    struct ls_trace_track *track = ls_trace_open_track("transfers");
    ls_trace_begin_step(1);
    const uint64_t now = ls_clock_ns();
    ls_trace_slice_on(track, &inner, now + 10, now + 20, 1); // within the next
    ls_trace_slice_on(track, &inner, now, now + 30, 2);
    ls_trace_slice_on(track, &inner, now + 5, now + 35, 3); // overlaps both
    ls_trace_slice_on(track, &inner, now + 35, now + 40, 4); // begins where one ended
    ls_trace_end_step();
    return argument;
}

TEST(slices_that_overlap_are_drawn_on_tracks_of_their_own)
{
    struct ls_trace *trace = create(&(struct ls_trace_options){.steppers = 1});
    pthread_t thread;
    ck_assert_int_eq(ls_thread_start(&thread, "worker", overlap, NULL), LS_OK);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    struct seen *seen = read_trace(trace);
    ck_assert_str_eq(seen->tracks, "worker;transfers;transfers;transfers;");
    ck_assert_uint_eq(count_of(seen, "inner"), 4);
    for (uint32_t i = 0; i < seen->count; i++)
        for (uint32_t j = i + 1; j < seen->count; j++)
            if (seen->spans[i].track == seen->spans[j].track)
                ck_assert(seen->spans[i].span.end_ns <= seen->spans[j].span.begin_ns ||
                          seen->spans[j].span.end_ns <= seen->spans[i].span.begin_ns);
    free(seen);
    ls_trace_destroy(trace);
}

TEST(a_kept_label_outlives_its_texts)
{
    struct ls_trace *trace = create(&(struct ls_trace_options){0});
    char name[16] = "dense", text[16] = "sgemm";
    const struct ls_trace_label label = {
        .category = "forward",
        .name = name,
        .details = {{.name = "implementation", .text = text}, {.name = "bytes", .number = 12}}};
    const struct ls_trace_label *kept = ls_trace_keep(&label);
    ck_assert_ptr_nonnull(kept);
    memset(name, 'x', sizeof(name) - 1);
    memset(text, 'x', sizeof(text) - 1);
    ck_assert_str_eq(kept->name, "dense");
    ck_assert_str_eq(kept->category, "forward");
    ck_assert_ptr_null(kept->value);
    ck_assert_str_eq(kept->details[0].text, "sgemm");
    ck_assert_str_eq(kept->details[1].name, "bytes");
    ck_assert_ptr_null(kept->details[1].text);
    ck_assert_uint_eq(kept->details[1].number, 12);
    ls_trace_destroy(trace);
}

TEST(a_recording_within_a_recording_has_the_thread_for_its_time)
{
    struct ls_trace *first = create(&(struct ls_trace_options){0});
    struct ls_trace *second = create(&(struct ls_trace_options){0});
    note(&inner);
    struct seen *seen = read_trace(second);
    ck_assert_uint_eq(seen->count, 1);
    free(seen);
    ls_trace_destroy(second);
    note(&outer);
    seen = read_trace(first);
    ck_assert_uint_eq(seen->count, 1);
    ck_assert_str_eq(seen->spans[0].name, "outer");
    free(seen);
    ls_trace_destroy(first);
}

static void *record_until_told(void *argument)
{
    uint32_t *word = argument;
    while (!__atomic_load_n(word, __ATOMIC_ACQUIRE)) {
        ls_trace_begin(&inner, 0);
        ls_trace_end();
    }
    return NULL;
}

TEST(a_thread_that_still_records_is_left_out_and_does_no_harm)
{
    struct ls_trace *trace = create(&(struct ls_trace_options){.steppers = 1});
    uint32_t told = 0;
    pthread_t thread;
    ck_assert_int_eq(ls_thread_start(&thread, "late", record_until_told, &told), LS_OK);
    note(&outer);
    struct seen *seen = read_trace(trace);
    ck_assert_uint_eq(seen->count, 1);
    free(seen);
    ls_trace_destroy(trace);
    __atomic_store_n(&told, 1, __ATOMIC_RELEASE);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
