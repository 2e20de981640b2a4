// SPDX-License-Identifier: Apache-2.0
// What a fit remembers: losses of the first steps, medians of the latest times, epochs.
#include "core/train/history.h"
#include "core/model/model.h"
#include "tests/support/suite.h"

#include <check.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>

static struct ls_history history;

static void tear_down(void)
{
    ls_history_finish(&history);
    ls_history_finish(&history); // may be done twice
}

// Times of a step in nanoseconds: the step itself, and a tenth of it as input.
static void add(double loss, uint64_t step_ns)
{
    const struct ls_step_result step = {.compute_ns = step_ns / 2,
                                        .update_ns = step_ns / 4,
                                        .communication_ns = step_ns / 5,
                                        .exposed_ns = step_ns / 8};
    ls_history_add_times(&history, &step, step_ns, step_ns / 10);
    ls_history_add_loss(&history, loss);
}

static struct ls_report_times times(void)
{
    struct ls_report_times result;
    ck_assert_int_eq(ls_history_times(&history, &result), LS_OK);
    return result;
}

// What a fit of `steps` steps tells its history.
static void tell(const struct ls_callbacks *client, struct ls_fit_state *state, uint64_t steps)
{
    for (uint64_t i = 1; i <= steps; i++) {
        state->step_metrics = (struct ls_metrics){1, {{"loss", 1.0 / (double)i}}};
        ck_assert_int_eq(client->on_train_batch_end(client->context, state), LS_OK);
    }
    state->epoch = (struct ls_epoch){.epoch = 1, .steps = steps};
    ck_assert_int_eq(client->on_epoch_end(client->context, state), LS_OK);
    ck_assert_int_eq(client->on_train_end(client->context, state), LS_OK);
}

TEST(losses_and_epochs_are_the_models_in_the_end)
{
    struct ls_model model = {0};
    struct ls_fit_state state = {.model = &model};
    for (uint64_t fit = 1; fit <= 2; fit++) { // the second takes the place of the first
        ck_assert_int_eq(ls_history_init(&history), LS_OK);
        const struct ls_client client = ls_history_client(&history);
        tell(&client.callbacks, &state, 2 * fit);
        ls_history_finish(&history);
        ck_assert_uint_eq(model.loss_count, 2 * fit);
        ck_assert_float_eq(model.losses[1], 0.5f);
        ck_assert_uint_eq(model.epoch_count, 1);
        ck_assert_uint_eq(model.epochs[0].steps, 2 * fit);
    }
    free(model.losses);
    free(model.epochs);
}

TEST(what_was_waited_at_the_end_belongs_to_the_steps_before)
{
    ck_assert_int_eq(ls_history_init(&history), LS_OK);
    for (int i = 0; i < 4; i++)
        add(1, 1000);
    ls_history_add_wait(&history, 2, 4000);
    double means[LS_PART_COUNT];
    ls_history_means(&history, 0, means); // without the first step
    ck_assert_double_eq_tol(means[LS_PART_STEP], (1000 + 3000 + 3000) / 3.0 * 1e-9, 1e-12);
    ck_assert_double_eq_tol(means[LS_PART_DEVICE], (0 + 2000 + 2000) / 3.0 * 1e-9, 1e-12);
    ls_history_add_wait(&history, 0, 1000);
    ck_assert_double_eq_tol(times().median, 3000e-9, 1e-12);
}

static double mean(uint64_t examples)
{
    double means[LS_PART_COUNT];
    ls_history_means(&history, examples, means);
    ck_assert_double_eq_tol(means[LS_PART_INPUT], means[LS_PART_STEP] / 10, 1e-12);
    return means[LS_PART_STEP];
}

TEST(means_are_of_steps_of_one_size_but_for_the_first_of_several)
{
    ck_assert_int_eq(ls_history_init(&history), LS_OK);
    ck_assert_double_eq(mean(16), 0);
    const struct {
        uint64_t examples, ns;
        double whole, rest; // of 16, of 5
    } steps[] = {{16, 9000, 9000e-9, 0},
                 {5, 500, 9000e-9, 500e-9},
                 {16, 1000, 1000e-9, 500e-9},
                 {5, 300, 1000e-9, 300e-9},
                 {16, 2000, 1500e-9, 300e-9}};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        const struct ls_step_result step = {.examples = steps[i].examples};
        ls_history_add_times(&history, &step, steps[i].ns, steps[i].ns / 10);
        ck_assert_double_eq_tol(mean(16), steps[i].whole, 1e-12);
        ck_assert_double_eq_tol(mean(5), steps[i].rest, 1e-12);
    }
    for (uint64_t i = 0; i < LS_HISTORY_STEPS; i++) // the first step leaves the ring
        ls_history_add_times(&history, &(struct ls_step_result){.examples = 16},
                             1000 + i % 2 * 1000, 100 + i % 2 * 100);
    ck_assert_double_eq_tol(mean(16), 1500e-9, 1e-12);
}

TEST(a_step_takes_no_memory_however_many_there_are)
{
    ck_assert_int_eq(ls_history_init(&history), LS_OK);
    const size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    for (uint32_t i = 0; i < 1000000; i++)
        add((double)i, 10);
    ck_assert_uint_eq(mallinfo2().uordblks + mallinfo2().hblkhd, before);
    ck_assert_uint_eq(history.loss_count, LS_HISTORY_LOSSES);
    for (uint32_t i = 0; i < LS_HISTORY_LOSSES; i++)
        ck_assert_float_eq(history.losses[i], (float)i);
}

TEST(without_steps_there_are_no_times)
{
    ck_assert_int_eq(ls_history_init(&history), LS_OK);
    const struct ls_report_times found = times();
    const double all[] = {found.median,
                          found.p90,
                          found.input,
                          found.compute,
                          found.update,
                          found.communication,
                          found.exposed_communication};
    for (int i = 0; i < 7; i++)
        ck_assert(isnan(all[i]));
}

TEST(one_step_is_median_and_ninetieth_percentile)
{
    ck_assert_int_eq(ls_history_init(&history), LS_OK);
    add(1, 40000);
    const struct ls_report_times found = times();
    ck_assert_double_eq_tol(found.median, 40e-6, 1e-11);
    ck_assert_double_eq_tol(found.p90, 40e-6, 1e-11);
    ck_assert_double_eq_tol(found.input, 4e-6, 1e-11);
    ck_assert_double_eq_tol(found.compute, 20e-6, 1e-11);
    ck_assert_double_eq_tol(found.update, 10e-6, 1e-11);
    ck_assert_double_eq_tol(found.communication, 8e-6, 1e-11);
    ck_assert_double_eq_tol(found.exposed_communication, 5e-6, 1e-11);
}

TEST(quantiles_are_those_of_the_values)
{
    ck_assert_int_eq(ls_history_init(&history), LS_OK);
    for (uint64_t i = 0; i <= 100; i++)
        add(1, 1000 * (1 + i * 37 % 101)); // 1 to 101 us, each once, in no order
    const struct ls_report_times found = times();
    ck_assert_double_eq_tol(found.median, 51e-6, 1e-11);
    ck_assert_double_eq_tol(found.p90, 91e-6, 1e-11);
}

TEST(only_the_latest_times_count)
{
    ck_assert_int_eq(ls_history_init(&history), LS_OK);
    for (uint32_t i = 0; i < 1000; i++)
        add(1, 9000000);
    for (uint32_t i = 0; i < LS_HISTORY_STEPS; i++)
        add(1, 2000);
    ck_assert_double_eq_tol(times().p90, 2e-6, 1e-11);
    ck_assert_uint_eq(history.loss_count, 1000 + LS_HISTORY_STEPS);
}

TEST(epochs_are_kept_in_order)
{
    ck_assert_int_eq(ls_history_init(&history), LS_OK);
    for (uint64_t i = 1; i <= 1000; i++) {
        const struct ls_epoch epoch = {.epoch = i, .seconds = 1.0 / (double)i};
        ck_assert_int_eq(ls_history_add_epoch(&history, &epoch), LS_OK);
    }
    ck_assert_uint_eq(history.epoch_count, 1000);
    for (uint64_t i = 1; i <= 1000; i++) {
        ck_assert_uint_eq(history.epochs[i - 1].epoch, i);
        ck_assert_double_eq(history.epochs[i - 1].seconds, 1.0 / (double)i);
    }
}

TEST_FIXTURE(NULL, tear_down);
