// SPDX-License-Identifier: Apache-2.0
// Tests of what a step takes on another network: against figures that were added up by hand.
#include "tools/compare/elsewhere.h"

#include "core/base/clock.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS 1e-3
#define NEAR 1e-12 // sums of a few numbers of some milliseconds

static const struct compare_pace as_measured = {1, 1};

static struct compare_mark begins(uint32_t exchange, double kernels, double rest)
{
    return (struct compare_mark){{kernels * MS, rest * MS}, exchange, false};
}

static struct compare_mark waits(uint32_t exchange, double kernels, double rest)
{
    return (struct compare_mark){{kernels * MS, rest * MS}, exchange, true};
}

static struct compare_step_time replay(struct compare_recorded_step *steps, size_t step_count,
                                       size_t exchange_count, const double *seconds,
                                       const struct compare_pace *pace)
{
    const struct compare_recording cycle = {
        .exchange_count = exchange_count, .steps = steps, .step_count = step_count};
    return compare_replay(&cycle, seconds, pace);
}

static void is_near(double value, double milliseconds)
{
    ck_assert_double_eq_tol(value, milliseconds * MS, NEAR);
}

// 10 ms of kernels, the bucket's exchange begins, 4 ms more, wait, an update of 1 ms.
TEST(an_exchange_is_hidden_by_what_the_rank_does_meanwhile)
{
    struct compare_mark marks[] = {begins(0, 10, 0), waits(0, 4, 0)};
    struct compare_recorded_step step = {marks, 2, {0, 1 * MS}};
    struct compare_step_time time = replay(&step, 1, 1, (double[]){20 * MS}, &as_measured);
    is_near(time.seconds, 10 + 20 + 1);
    is_near(time.work, 15);
    is_near(time.exchanges, 20);
    time = replay(&step, 1, 1, (double[]){3 * MS}, &as_measured);
    is_near(time.seconds, 15);
    // Kernels twice as fast, and the rest four times.
    time = replay(&step, 1, 1, (double[]){20 * MS}, &(struct compare_pace){0.5, 0.25});
    is_near(time.seconds, 5 + 20 + 0.25);
    is_near(time.work, 7.25);
}

// Bucket 0 is ready after 2 ms and takes 10; bucket 1 is ready after 5, begins at 12 and takes 4.
TEST(exchanges_come_one_after_the_other)
{
    struct compare_mark marks[] = {begins(0, 2, 0), begins(1, 3, 0), waits(0, 1, 0),
                                   waits(1, 0, 2)};
    struct compare_recorded_step step = {marks, 4, {0, 1 * MS}};
    const struct compare_step_time time =
        replay(&step, 1, 2, (double[]){10 * MS, 4 * MS}, &as_measured);
    is_near(time.seconds, 2 + 10 + 4 + 1); // the update of bucket 0 is hidden by bucket 1
    is_near(time.exchanges, 14);
}

// Rounds of four steps of 5 ms: the exchange begins at the end of the second one and is waited for
// at the end of the fourth.
TEST(a_round_may_travel_while_the_ranks_go_on)
{
    struct compare_mark first[] = {begins(0, 5, 0)}, last[] = {waits(0, 5, 0)};
    struct compare_recorded_step steps[] = {
        {NULL, 0, {5 * MS, 0}}, {first, 1, {0, 0}}, {NULL, 0, {5 * MS, 0}}, {last, 1, {0, 0}}};
    is_near(replay(steps, 4, 1, (double[]){8 * MS}, &as_measured).seconds, 5);
    is_near(replay(steps, 4, 1, (double[]){14 * MS}, &as_measured).seconds, 6);
    is_near(replay(steps, 4, 1, (double[]){14 * MS}, &as_measured).exchanges, 3.5);
}

// Nobody waits for it, but its buffer is needed again.
TEST(an_exchange_begins_again_when_it_has_ended)
{
    struct compare_mark marks[] = {begins(0, 5, 0)};
    struct compare_recorded_step step = {marks, 1, {1 * MS, 0}};
    is_near(replay(&step, 1, 1, (double[]){20 * MS}, &as_measured).seconds, 20);
}

TEST(without_steps_nothing_is_known)
{
    ck_assert(isnan(replay(NULL, 0, 0, NULL, &as_measured).seconds));
}

// ---- What repeats ----

static struct compare_recorded_step made(const struct compare_mark *marks, size_t count)
{
    struct compare_recorded_step step = {calloc(count + 1, sizeof(*marks)), count, {0, 0}};
    ck_assert_ptr_nonnull(step.marks);
    if (count)
        memcpy(step.marks, marks, count * sizeof(*marks));
    return step;
}

static struct compare_recording of_steps(size_t count)
{
    struct compare_recording recording = {.exchanges = calloc(3, sizeof(*recording.exchanges)),
                                          .steps = calloc(count + 1, sizeof(*recording.steps))};
    ck_assert(recording.exchanges && recording.steps);
    for (; recording.exchange_count < 2; recording.exchange_count++)
        recording.exchanges[recording.exchange_count] =
            (struct compare_exchange){strdup("bucket"), strdup("all-reduce"), strdup("ring"), 8, 4};
    return recording;
}

static struct compare_recording cycle_of(struct compare_recording *recording)
{
    struct compare_recording cycle = {0};
    ck_assert_int_eq(compare_recording_cycle(recording, 0, recording->step_count, &cycle), LS_OK);
    compare_recording_finish(recording);
    return cycle;
}

// The first step is slow; of the others one in three is late, and after a pause one has no wait.
TEST(a_step_is_the_median_of_its_kind)
{
    struct compare_recording recording = of_steps(9);
    for (size_t i = 0; i < 9; i++) {
        const double late = i == 0 ? 500 : i % 3 == 0 ? 50 : (double)i / 1000;
        const struct compare_mark marks[] = {begins(0, 7 + late, 0), waits(0, 1, 0)};
        recording.steps[recording.step_count++] = made(marks, i == 4 ? 1 : 2);
    }
    struct compare_recording cycle = cycle_of(&recording);
    ck_assert_uint_eq(cycle.step_count, 1);
    ck_assert_uint_eq(cycle.steps[0].mark_count, 2);
    is_near(cycle.steps[0].marks[0].work.kernels,
            7.007); // of 7.001, .002, .005, .007, .008, 57, 57
    is_near(compare_mean_work(&cycle).kernels, 8.007);
    compare_recording_finish(&cycle);
}

TEST(rounds_are_as_long_as_it_takes_until_they_come_again)
{
    struct compare_recording recording = of_steps(17);
    for (size_t i = 0; i < 17; i++) { // exchange 1 in steps 4, 8, 12, 16
        const struct compare_mark marks[] = {begins(0, 1, 0), begins(1, 1, 0)};
        recording.steps[recording.step_count++] = made(marks, i % 4 == 3 ? 2 : 1);
    }
    struct compare_recording cycle = cycle_of(&recording);
    ck_assert_uint_eq(cycle.step_count, 4);
    size_t marks = 0;
    for (size_t i = 0; i < cycle.step_count; i++)
        marks += cycle.steps[i].mark_count;
    ck_assert_uint_eq(marks, 5);
    compare_recording_finish(&cycle);
}

TEST(what_was_not_seen_twice_is_no_cycle)
{
    struct compare_recording recording = of_steps(8);
    for (size_t i = 0; i < 8; i++) {
        const struct compare_mark marks[] = {begins(0, 1, 0), begins(1, 1, 0)};
        recording.steps[recording.step_count++] = made(marks, i == 6 ? 2 : 1);
    }
    struct compare_recording cycle = cycle_of(&recording);
    ck_assert_uint_eq(cycle.step_count, 0);
    compare_recording_finish(&cycle);
    recording = of_steps(1); // nor are too few steps
    recording.steps[recording.step_count++] = made(NULL, 0);
    cycle = cycle_of(&recording);
    ck_assert_uint_eq(cycle.step_count, 0);
    compare_recording_finish(&cycle);
}

// Twenty steps, of which the first ones begin exchange 0 and the others exchange 1.
static struct compare_recording changing_at(size_t change)
{
    struct compare_recording recording = of_steps(20);
    for (size_t i = 0; i < 20; i++) {
        const struct compare_mark marks[] = {begins(i < change ? 0 : 1, 1, 0)};
        recording.steps[recording.step_count++] = made(marks, 1);
    }
    return recording;
}

// What comes later counts: in the second half, or in the second half of that.
TEST(what_changes_late_is_seen)
{
    for (size_t change = 6; change <= 14; change += 4) {
        struct compare_recording recording = changing_at(change);
        struct compare_recording cycle = cycle_of(&recording);
        ck_assert_uint_eq(cycle.step_count, 1);
        ck_assert_uint_eq(cycle.steps[0].marks[0].exchange, 1);
        compare_recording_finish(&cycle);
    }
}

// As with PowerSGD's start.
TEST(steps_before_a_filter_and_with_it_are_told_apart)
{
    struct compare_recording recording = changing_at(17), cycle = {0};
    const struct {
        size_t first, end, steps;
    } parts[] = {{0, 17, 1}, {17, 20, 1}, {0, 2, 0}, {18, 20, 0}, {20, 20, 0}, {0, 0, 0}};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        ck_assert_int_eq(compare_recording_cycle(&recording, parts[i].first, parts[i].end, &cycle),
                         LS_OK);
        ck_assert_uint_eq(cycle.step_count, parts[i].steps);
        if (cycle.step_count)
            ck_assert_uint_eq(cycle.steps[0].marks[0].exchange, parts[i].first ? 1 : 0);
        compare_recording_finish(&cycle);
    }
    compare_recording_finish(&recording);
}

// ---- From a timeline ----

#define NAMED(text, operates, elements)                         \
    {                                                           \
        .category = "communication", .name = text, .details = { \
            {"operation", operates, 0},                         \
            {"algorithm", "ring", 0},                           \
            {"bytes", NULL, 4 * (elements)},                    \
            {"elements", NULL, elements}                        \
        }                                                       \
    }

// Sharded: a range is scattered and gathered under one name; and a shorter one, too.
TEST(exchanges_of_one_name_are_told_apart)
{
    static const struct ls_trace_label labels[] = {
        NAMED("range 0", "reduce-scatter", 64),
        NAMED("range 0", "all-gather", 64),
        NAMED("range 0", "all-gather", 32),
        NAMED("wait for range 0", "all-gather", 64),
        NAMED("wait for range 0", "all-gather", 32),
        NAMED("range 0", "reduce-scatter", 64),
        {.category = "communication", .name = "move buckets"},
    };
    static const struct {
        uint32_t exchange;
        bool waits;
    } expected[] = {{0, false}, {1, false}, {2, false}, {1, true}, {2, true}, {0, false}};
    char path[] = "/tmp/test-elsewhere-XXXXXX";
    const int file = mkstemp(path);
    struct ls_trace *trace = NULL;
    struct compare_recording recording = {0};
    ck_assert_int_ge(file, 0);
    close(file);
    ck_assert_int_eq(ls_trace_create(&(struct ls_trace_options){.steppers = 1}, &trace), LS_OK);
    ls_trace_move(1, "rank 0", NULL);
    ls_trace_begin_step(1);
    for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
        const uint64_t before = ls_clock_ns();
        while (ls_clock_ns() == before) // each has a time of its own
            ;
        ls_trace_begin(&labels[i], 0);
        ls_trace_end();
    }
    ls_trace_end_step();
    ck_assert_int_eq(compare_recording_write(trace, path), LS_OK);
    ls_trace_destroy(trace);
    ck_assert_int_eq(compare_recording_read(path, &recording), LS_OK);
    unlink(path);
    ck_assert_uint_eq(recording.exchange_count, 3);
    ck_assert_uint_eq(recording.step_count, 1);
    ck_assert_uint_eq(recording.steps[0].mark_count, sizeof(expected) / sizeof(expected[0]));
    for (size_t i = 0; i < recording.steps[0].mark_count; i++) {
        ck_assert_uint_eq(recording.steps[0].marks[i].exchange, expected[i].exchange);
        ck_assert_int_eq(recording.steps[0].marks[i].waits, expected[i].waits);
    }
    compare_recording_finish(&recording);
}
