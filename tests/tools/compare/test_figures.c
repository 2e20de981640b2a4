// SPDX-License-Identifier: Apache-2.0
// What `lockstep compare` reads and reckons.
#include "tools/compare/figures.h"
#include "tools/compare/list.h"

#include "core/base/log.h"
#include "tests/support/errors.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void refused(const char *text, const char *says)
{
    struct compare_list list = {0};
    forget_errors();
    ck_assert_int_eq(compare_list_parse(text, &list), LS_USAGE);
    ls_log_set_writer(NULL, NULL);
    ck_assert_msg(strstr(message, says), "%s", message);
    ck_assert_uint_eq(list.count, 0);
}

TEST(options_continue_the_item_before_them)
{
    struct compare_list list;
    ck_assert_int_eq(compare_list_parse("a,b:x=1,y=2,c,d,z=3,mirrored:collective=tree", &list),
                     LS_OK);
    ck_assert_uint_eq(list.count, 5);
    ck_assert_str_eq(list.items[0], "a");
    ck_assert_str_eq(list.items[1], "b:x=1,y=2");
    ck_assert_str_eq(list.items[2], "c");
    ck_assert_str_eq(list.items[3], "d:z=3");
    ck_assert_str_eq(list.items[4], "mirrored:collective=tree");
    compare_list_finish(&list);
}

TEST(a_colon_in_a_value_begins_no_item)
{
    struct compare_list list;
    ck_assert_int_eq(compare_list_parse("a:x=1,path=here:there,b", &list), LS_OK);
    ck_assert_uint_eq(list.count, 2);
    ck_assert_str_eq(list.items[0], "a:x=1,path=here:there");
    compare_list_finish(&list);
}

TEST(an_item_may_have_a_filter)
{
    static const struct {
        const char *item, *strategy, *filter;
    } rows[] = {
        {"ring", "ring", NULL},
        {"ring+int8", "ring", "int8"},
        {"a:x=1,y=2+topk:fraction=0.01,z=3", "a:x=1,y=2", "topk:fraction=0.01,z=3"},
        {"d:rate=1e+5", "d:rate=1e+5", NULL},
        {"d:rate=1e+5+int8", "d:rate=1e+5", "int8"},
        {"ring+", "ring", ""},
    };
    struct compare_list list;
    ck_assert_int_eq(compare_list_parse("ring+int8,ring+topk,fraction=0.01,z=3,a:x=1,y=2+int8,"
                                        "b+topk:fraction=0.1",
                                        &list),
                     LS_OK);
    ck_assert_uint_eq(list.count, 4);
    ck_assert_str_eq(list.items[0], "ring+int8");
    ck_assert_str_eq(list.items[1], "ring+topk:fraction=0.01,z=3");
    ck_assert_str_eq(list.items[2], "a:x=1,y=2+int8");
    ck_assert_str_eq(list.items[3], "b+topk:fraction=0.1");
    compare_list_finish(&list);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *strategy = compare_item_strategy(rows[i].item);
        ck_assert_str_eq(strategy, rows[i].strategy);
        ck_assert_pstr_eq(compare_item_filter(rows[i].item), rows[i].filter);
        free(strategy);
    }
}

TEST(the_best_loss_is_a_mean_and_is_reached_at_a_step)
{
    struct compare_step steps[40]; // a tenth is 4 steps
    for (size_t i = 0; i < 40; i++)
        steps[i] = (struct compare_step){.loss = i < 20 ? 40.0 - (double)i : 20, .examples = 1};
    steps[5].loss = 1; // one step alone is no mean
    ck_assert_double_eq_tol(compare_best_loss(steps, 40), 20, 1e-12);
    ck_assert_uint_eq(compare_step_of_loss(steps, 40, 20), 24);
    ck_assert_uint_eq(compare_step_of_loss(steps, 40, 19), 0);
    for (size_t i = 0; i < 40; i++)
        steps[i].loss = NAN;
    ck_assert(isnan(compare_best_loss(steps, 40)));
    ck_assert_uint_eq(compare_step_of_loss(steps, 40, 20), 0);
    ck_assert(isnan(compare_best_loss(steps, 0)));
    ck_assert_uint_eq(compare_step_of_loss(steps, 0, 20), 0);
}

TEST(broken_lists_are_refused)
{
    refused("", "the list is empty");
    refused("a,,b", "empty item");
    refused("a,", "empty item");
    refused(",a", "empty item");
    refused("x=1,a", "no strategy precedes it");
    refused("a,b,a", "'a' is given twice");
    refused("a:x=1,y=2,b,a:x=1,y=2", "twice");
    char many[4 * COMPARE_STRATEGIES_MOST + 8] = "";
    for (int i = 0; i <= COMPARE_STRATEGIES_MOST; i++)
        sprintf(many + strlen(many), "%s%d", i ? "," : "", i);
    refused(many, "more than");
}

TEST(one_item_is_a_list)
{
    struct compare_list list = {0};
    ck_assert_int_eq(compare_list_parse("ring", &list), LS_OK);
    ck_assert_uint_eq(list.count, 1);
    compare_list_finish(&list);
    ck_assert_uint_eq(list.count, 0);
    compare_list_finish(&list);
}

TEST(targets_are_metrics_with_values)
{
    struct compare_target target;
    ck_assert_int_eq(compare_target_parse("val_accuracy:0.88", &target), LS_OK);
    ck_assert_int_eq(target.metric, COMPARE_VAL_ACCURACY);
    ck_assert_double_eq(target.value, 0.88);
    ck_assert(compare_target_reached(&target, 0.88));
    ck_assert(!compare_target_reached(&target, 0.87));
    ck_assert(!compare_target_reached(&target, NAN));
    ck_assert_int_eq(compare_target_parse("loss:2.5", &target), LS_OK);
    ck_assert(compare_target_reached(&target, 2.4));
    ck_assert(!compare_target_reached(&target, 2.6));
    ck_assert(!compare_target_reached(&target, NAN));
}

TEST(targets_that_cannot_be_are_refused)
{
    static const char *const texts[] = {
        "val_acc:0.8", "",        "val_accuracy", "val_accuracy:", "accuracy:88",
        "accuracy:x",  "loss:-1", "loss:inf",     "loss:nan"};
    forget_errors();
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct compare_target target = {COMPARE_LOSS, 7};
        ck_assert_msg(compare_target_parse(texts[i], &target) == LS_USAGE, "%s", texts[i]);
        ck_assert_double_eq(target.value, 7);
    }
    struct compare_target target;
    ck_assert_int_eq(compare_target_parse("val_acuracy:0.8", &target), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(message, "did you mean val_accuracy"));
    ls_log_set_writer(NULL, NULL);
}

// ---- Figures ----

#define STEPS 12

// Steps of 10 ms and 100 examples, but the first of each turn, which takes twice as long.
static void make_steps(struct compare_step *steps, size_t count, size_t turn_steps)
{
    double seconds = 0;
    for (size_t i = 0; i < count; i++) {
        seconds += i % turn_steps == 0 && turn_steps > 1 ? 0.02 : 0.01;
        steps[i] = (struct compare_step){.seconds = seconds,
                                         .loss = 2 - 0.1 * (double)i,
                                         .accuracy = 0.05 * (double)i,
                                         .examples = 100,
                                         .turn = 1 + i / turn_steps};
    }
}

TEST(the_first_step_of_a_turn_is_not_timed)
{
    struct compare_step steps[STEPS];
    double rates[STEPS];
    make_steps(steps, STEPS, 4);
    ck_assert_uint_eq(compare_rates(steps, STEPS, rates), 3);
    for (size_t i = 0; i < 3; i++)
        ck_assert_double_eq_tol(rates[i], 10000, 1e-6);
}

// Pairs of runs of which one is ahead by its speed, and behind by the time of a step or of the
// curve.
static unsigned contradictions(const struct ls_compared_run *runs, size_t count)
{
    unsigned found = 0;
    for (size_t a = 0; a < count; a++)
        for (size_t b = 0; b < count; b++)
            found += runs[a].rate > runs[b].rate &&
                     (runs[a].times.median >= runs[b].times.median ||
                      runs[a].curve[0].seconds >= runs[b].curve[0].seconds ||
                      runs[a].target_seconds >= runs[b].target_seconds);
    return found;
}

// While they trained, the machine was busiest with something else for the fastest.
TEST(times_rank_runs_as_their_speeds_do)
{
    struct ls_compared_point curves[3];
    struct ls_compared_run runs[3];
    for (size_t i = 0; i < 3; i++) {
        const double step = 0.03 - 0.005 * (double)i;
        curves[i] = (struct ls_compared_point){.examples = 1280, .seconds = 10 * step};
        runs[i] = (struct ls_compared_run){
            .global_batch = 128,
            .rate = 12800 / (1 + (double)i),
            .times = {step, 0, 0.5 * step, 0.4 * step, 0.25 * step, 0.15 * step, NAN, 0.2 * step},
            .target_seconds = 10 * step,
            .target_examples = 1280,
            .curve = &curves[i],
            .curve_count = 1};
    }
    ck_assert_uint_eq(contradictions(runs, 3), 3);
    for (size_t i = 0; i < 3; i++)
        compare_set_times(&runs[i]);
    ck_assert_uint_eq(contradictions(runs, 3), 0);
    const struct ls_compared_times *times = &runs[1].times;
    ck_assert_double_eq_tol(times->median, 0.02, 1e-12);
    ck_assert_double_eq_tol(runs[1].curve[0].seconds, 0.2, 1e-12);
    ck_assert_double_eq_tol(times->exposed_communication / times->compute, 0.5, 1e-12);
    ck_assert_double_eq_tol(times->input + times->compute + times->exposed_communication +
                                times->update + times->other,
                            times->median, 1e-12);
}

TEST(turns_of_one_step_count_but_for_the_first)
{
    struct compare_step steps[STEPS];
    double rates[STEPS];
    make_steps(steps, STEPS, 1);
    ck_assert_uint_eq(compare_rates(steps, STEPS, rates), STEPS - 1);
    ck_assert_double_eq_tol(rates[STEPS - 2], 10000, 1e-6);
    ck_assert_uint_eq(compare_rates(steps, 1, rates), 0);
    ck_assert_uint_eq(compare_rates(steps, 0, rates), 0);
}

TEST(quantiles_lie_between_values)
{
    double values[] = {4, 1, 3, 2};
    compare_sort(values, 4);
    ck_assert_double_eq(compare_quantile(values, 4, 0.5), 2.5);
    ck_assert_double_eq(compare_quantile(values, 4, 0.25), 1.75);
    ck_assert_double_eq(compare_quantile(values, 4, 1), 4);
    ck_assert_double_eq(compare_quantile(values, 1, 0.75), 1);
    ck_assert(isnan(compare_quantile(values, 0, 0.5)));
}

TEST(losses_are_compared_relatively_and_as_far_as_both_go)
{
    struct compare_step a[STEPS], b[STEPS];
    make_steps(a, STEPS, 4);
    make_steps(b, STEPS, 4);
    ck_assert_double_eq(compare_losses(a, STEPS, b, STEPS, SIZE_MAX), 0);
    a[11].loss = 1.1 * b[11].loss;
    a[3].loss = 0.99 * b[3].loss;
    ck_assert_double_eq_tol(compare_losses(a, STEPS, b, STEPS, SIZE_MAX), 0.1, 1e-12);
    ck_assert_double_eq_tol(compare_losses(a, STEPS, b, STEPS, 10), 0.01, 1e-12);
    ck_assert_double_eq(compare_losses(a, STEPS, b, 3, SIZE_MAX), 0);
    ck_assert(isnan(compare_losses(a, 0, b, STEPS, 10)));
    b[0].loss = 0;
    ck_assert(compare_losses(a, STEPS, b, STEPS, 10) > 1);
    a[11].loss = b[11].loss = NAN;
    ck_assert(isnan(compare_losses(a, STEPS, b, STEPS, SIZE_MAX)));
    ck_assert(isfinite(compare_losses(a, STEPS, b, STEPS, 11)));
}

// Of losses of 1 with these deviations.
static void deviate(struct compare_step *steps, const double *deviations)
{
    for (size_t i = 0; i < STEPS; i++)
        steps[i].loss = 1 + deviations[i];
}

TEST(each_step_is_held_against_the_growth_of_rounding)
{
    static const double none[STEPS];
    struct compare_step truth[STEPS], twin[STEPS], run[STEPS];
    double growth[STEPS];
    deviate(truth, none);
    // Rounding jumps at the seventh loss.
    deviate(twin, (double[STEPS]){0, 1e-7, -2e-7, 1e-7, 0, 3e-7, 1e-3, -2e-2, 1e-3, 4e-2, 0, 0});
    ck_assert_uint_eq(compare_growth(twin, STEPS, truth, STEPS, growth), STEPS);
    ck_assert_double_eq(growth[0], 0);
    ck_assert_double_eq_tol(growth[3], 2e-7, 1e-12);
    ck_assert_double_eq_tol(growth[11], 4e-2, 1e-12);
    ck_assert_double_eq(compare_excess(truth, STEPS, truth, STEPS, growth, STEPS), 0);
    // A run in which it jumps earlier, and further, is no mistake.
    deviate(run, (double[STEPS]){0, 2e-7, 5e-3, 8e-2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1});
    ck_assert_double_le(compare_excess(run, STEPS, truth, STEPS, growth, STEPS), 1);
    // But the first update is the same under each strategy.
    deviate(run, (double[STEPS]){0, 1e-4});
    ck_assert_double_eq_tol(compare_excess(run, STEPS, truth, STEPS, growth, STEPS), 20, 1e-6);
    deviate(run, (double[STEPS]){1e-4});
    ck_assert_double_eq_tol(compare_excess(run, STEPS, truth, STEPS, growth, STEPS), 20, 1e-6);
    // Nor does a jump at the end excuse what was wrong long before.
    deviate(twin, (double[STEPS]){0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.1});
    ck_assert_uint_eq(compare_growth(twin, STEPS, truth, STEPS, growth), STEPS);
    deviate(run, (double[STEPS]){0, 0, 1e-4});
    ck_assert_double_eq_tol(compare_excess(run, STEPS, truth, STEPS, growth, STEPS), 20, 1e-6);
    // Where rounding is not known, no more than the least is explained.
    ck_assert_double_eq_tol(compare_excess(run, STEPS, truth, STEPS, NULL, 0), 20, 1e-6);
    run[STEPS - 1].loss = NAN;
    ck_assert(isnan(compare_excess(run, STEPS, truth, STEPS, growth, STEPS)));
    ck_assert_uint_eq(compare_growth(run, STEPS, truth, STEPS, growth), STEPS - 1);
    ck_assert(isnan(compare_excess(run, 0, truth, STEPS, growth, STEPS)));
}

TEST(the_end_is_a_mean_over_the_last_tenth)
{
    static struct compare_step steps[2000];
    make_steps(steps, 2000, 4);
    for (size_t i = 0; i < 2000; i++)
        steps[i].loss = i < 1900 ? 5 : 1;
    ck_assert_double_eq(compare_mean(steps, 2000).loss, 1);
    ck_assert_double_eq(compare_mean(steps, 1).loss, 5);
    ck_assert(isnan(compare_mean(steps, 0).loss));
}

TEST(curves_are_short_and_have_the_ends_of_epochs)
{
    static struct compare_step steps[5000];
    struct ls_compared_point *points = NULL;
    size_t count = 0;
    make_steps(steps, 5000, 4);
    ck_assert_int_eq(compare_curve(steps, 5000, 1333, true, &points, &count), LS_OK);
    ck_assert_uint_le(count, 210);
    size_t ends = 0;
    for (size_t i = 0; i < count; i++) {
        ends += points[i].step % 1333 == 0;
        ck_assert(i == 0 || points[i].step > points[i - 1].step);
        ck_assert_uint_eq(points[i].examples, 100 * points[i].step);
    }
    ck_assert_uint_eq(ends, 3);
    ck_assert_uint_eq(points[count - 1].step, 5000);
    free(points);
    // An epoch may be one step.
    ck_assert_int_eq(compare_curve(steps, 5000, 1, true, &points, &count), LS_OK);
    ck_assert_uint_le(count, 402);
    free(points);
    ck_assert_int_eq(compare_curve(steps, 1, 469, false, &points, &count), LS_OK);
    ck_assert_uint_eq(count, 1);
    ck_assert(isnan(points[0].accuracy));
    free(points);
    ck_assert_int_eq(compare_curve(steps, 0, 469, false, &points, &count), LS_OK);
    ck_assert_uint_eq(count, 0);
    free(points);
}
