// SPDX-License-Identifier: Apache-2.0
// Replicas that do not wait for each other: steps are counted when all shares came in, whoever is fast or slow; all
// stop after the share in hand; and what a lost replica leaves is trained by the others.
#include "core/train/session.h"
#include "tests/core/train/support.h"
#include "tests/support/suite.h"

#include <jansson.h>
#include <stdio.h>

#define STEPS 7 // an epoch of 50 examples in batches of 8, the last of 2
#define ROUNDING 1e-5 // sums of shares in another order

static struct ls_data *train, *test;
static char path[] = "/tmp/lockstep-apart-XXXXXX";
static unsigned warnings;
static char warning[1024]; // the last

static void keep_warning(void *context, uint32_t level, const char *line)
{
    keep_error(context, level, line);
    if (level != LS_LOG_WARN || strstr(line, "NOT REAL DATA"))
        return;
    warnings++;
    snprintf(warning, sizeof(warning), "%s", line);
}

static void set_up(void)
{
    const int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    close(file);
    forget_errors();
    ls_log_set_writer(keep_warning, NULL);
    train = data_of(DATA, "train");
    test = data_of(DATA, "test");
}

static void tear_down(void)
{
    ls_data_close(train);
    ls_data_close(test);
    unlink(path);
}

static struct ls_run *apart_within(double deadline, const char *options, uint32_t replicas)
{
    char strategy[128];
    struct ls_run *run = NULL;
    snprintf(strategy, sizeof(strategy), "apart%s%s", *options ? ":" : "", options);
    OK(ls_run_open(&(struct ls_run_options){.strategy = strategy,
                                            .device = "reference",
                                            .replicas = replicas,
                                            .threads = 1,
                                            .seed = 5,
                                            .plugin_path = TEST_PLUGINS,
                                            .deadline_seconds = deadline},
                   &run));
    return run;
}

static struct ls_run *apart(const char *options, uint32_t replicas)
{
    return apart_within(20, options, replicas);
}

// Without dropout, whose draws depend on the number of the step.
static struct ls_model *plain_model(struct ls_run *run, const char *optimizer)
{
    const struct ls_layer layers[] = {LS_INPUT(4, 4, 1), LS_FLATTEN(), LS_DENSE(10), LS_END};
    struct ls_model *model = NULL;
    OK(ls_sequential_create(run, "plain", layers, &model));
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = optimizer}));
    return model;
}

static json_t *report_of(void)
{
    json_error_t why;
    json_t *report = json_load_file(path, 0, &why);
    ck_assert_msg(report != NULL, "%s", why.text);
    return report;
}

static double number_at(const json_t *report, const char *first, const char *second)
{
    return json_number_value(json_object_get(json_object_get(report, first), second));
}

static double pushes_of(const json_t *report, size_t rank)
{
    json_t *pushes = json_object_get(json_object_get(report, "apart"), "pushes");
    return json_number_value(json_array_get(json_object_get(pushes, "replicas"), rank));
}

static double all_pushes(const json_t *report)
{
    json_t *pushes = json_object_get(json_object_get(report, "apart"), "pushes");
    return json_number_value(json_object_get(pushes, "all"));
}

// Nothing is learnt, so each loss is that of its step's examples, whoever trained them when.
static void expect_losses_of_one_device(const struct ls_model *model, struct ls_data *data,
                                        size_t steps)
{
    struct ls_run *one = run_of("one-device", 1);
    struct ls_model *truth = plain_model(one, "sgd:learning_rate=0");
    size_t counts[2];
    OK(ls_fit(truth, data, &(struct ls_fit_options){.batch = 8, .epochs = 2}));
    const float *wanted = ls_fit_losses(truth, &counts[0]);
    const float *found = ls_fit_losses(model, &counts[1]);
    ck_assert_uint_eq(counts[1], steps);
    ck_assert_uint_ge(counts[0], steps);
    for (size_t i = 0; i < steps; i++)
        ck_assert_msg(fabs((double)(found[i] - wanted[i])) < ROUNDING, "step %zu: %g, not %g",
                      i + 1, (double)found[i], (double)wanted[i]);
    ls_model_close(truth);
    ls_run_close(one);
}

static void expect_epochs(const struct ls_model *model, size_t count)
{
    size_t found;
    const struct ls_epoch *epochs = ls_fit_epochs(model, &found);
    ck_assert_uint_eq(found, count);
    for (size_t i = 0; i < count; i++) {
        ck_assert_uint_eq(epochs[i].steps, STEPS);
        ck_assert_uint_eq(epochs[i].examples, 50); // every example once
    }
}

// The state goes on in another run, as it would through a checkpoint.
static void change_run(struct ls_model *model, struct ls_run *to)
{
    OK(ls_model_take(model, LS_TAKE_ALL));
    OK(ls_session_close(model));
    model->run = to;
}

LOOP_TEST(a_step_is_counted_when_all_shares_came_in, 0, 3)
{
    static const char *const paces[] = {"", "slow_rank=0,slow_ms=15", "slow_rank=2,slow_ms=15"};
    struct ls_run *run = apart(paces[_i], 3);
    struct ls_model *model = plain_model(run, "sgd:learning_rate=0");
    OK(ls_fit(
        model, train,
        &(struct ls_fit_options){.batch = 8, .epochs = 2, .validation = test, .report = path}));
    expect_epochs(model, 2);
    expect_losses_of_one_device(model, train, 2 * STEPS);
    json_t *report = report_of();
    ck_assert_double_eq(all_pushes(report), 3 * 2 * STEPS);
    ck_assert_double_eq(json_number_value(json_object_get(report, "steps")), 2 * STEPS);
    ck_assert_ptr_null(json_object_get(report, "lost_replicas"));
    ck_assert_double_gt(number_at(report, "communication", "bytes_per_step_per_rank"), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(report, "parameter_hashes")), 3);
    json_decref(report);
    ck_assert_msg(errors + warnings == 0, "%s%s", message, warning);
    ls_model_close(model);
    ls_run_close(run);
}

TEST(what_was_learnt_comes_out_of_the_store)
{
    struct ls_run *run = apart("", 2);
    struct ls_model *model = plain_model(run, "adam");
    double scores[2];
    for (int i = 0; i < 2; i++) {
        OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 8, .epochs = 4}));
        size_t count;
        const struct ls_epoch *epochs = ls_fit_epochs(model, &count);
        scores[i] = ls_metric_value(&epochs[3].metrics, "loss");
    }
    ck_assert_double_lt(scores[1], scores[0]);
    double largest = 0; // Adam's moments are there
    for (uint32_t i = 0; i < model->graph->parameter_count; i++)
        for (size_t k = 0; k < elements_of(model, i); k++)
            largest = fmax(largest, (double)model->states[1][i][k]);
    ck_assert_double_gt(largest, 0);
    ls_model_close(model);
    ls_run_close(run);
}

// Of Adam, whose steps are numbered, and of dropout, which draws by the number of the step.
LOOP_TEST(two_fits_are_one_fit_of_both, 0, 5)
{
    static const char *const strategies[] = {"parameter-server", "parameter-server:servers=2",
                                             "parameter-server:mode=bounded",
                                             "parameter-server:mode=sync", "central-storage"};
    float losses[2][2 * STEPS];
    for (uint64_t fits = 1; fits <= 2; fits++) {
        struct ls_run *run = run_of(strategies[_i], 1);
        struct ls_model *model = model_of(run, "adam:learning_rate=0.01");
        for (uint64_t i = 0; i < fits; i++) {
            size_t count;
            OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 8, .epochs = 3 - fits}));
            const float *found = ls_fit_losses(model, &count);
            ck_assert_uint_eq(count, (3 - fits) * STEPS);
            memcpy(losses[fits - 1] + i * STEPS, found, count * sizeof(*found));
        }
        ck_assert_uint_eq(model->steps_done, 2 * STEPS);
        ls_model_close(model);
        ls_run_close(run);
    }
    for (size_t i = 0; i < 2 * STEPS; i++)
        ck_assert_msg(losses[0][i] == losses[1][i], "step %zu: %.9g and %.9g", i + 1,
                      (double)losses[0][i], (double)losses[1][i]);
}

// The optimizer's state goes from servers to replicas, and back.
TEST(another_strategy_goes_on_with_the_steps_of_the_state)
{
    static const char *const strategies[] = {"one-device", "parameter-server"};
    float losses[3][3 * STEPS];
    for (int first = 0; first < 3; first++) { // 2: one device all along
        struct ls_run *runs[] = {run_of(strategies[0], 1), run_of(strategies[1], 1)};
        struct ls_model *model = model_of(runs[first % 2], "adam:learning_rate=0.01");
        for (int i = 0; i < 3; i++) {
            size_t count;
            change_run(model, runs[first == 2 ? 0 : (first + i) % 2]);
            OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 8}));
            const float *found = ls_fit_losses(model, &count);
            memcpy(losses[first] + i * STEPS, found, count * sizeof(*found));
        }
        ls_model_close(model);
        ls_run_close(runs[0]);
        ls_run_close(runs[1]);
    }
    for (int first = 0; first < 2; first++)
        for (size_t i = 0; i < 3 * STEPS; i++)
            ck_assert_msg(fabs((double)(losses[first][i] - losses[2][i])) < ROUNDING,
                          "step %zu: %g, not %g", i + 1, (double)losses[first][i],
                          (double)losses[2][i]);
}

TEST(every_push_is_a_step_of_the_optimizer)
{
    struct ls_run *run = run_of("parameter-server", 2), *ring = run_of("ring", 2);
    struct ls_model *model = model_of(run, "adam");
    const struct ls_fit_options fit = {.batch = 8};
    OK(ls_fit(model, train, &fit));
    ck_assert_uint_eq(model->steps_done, 2 * STEPS);
    change_run(model, ring);
    OK(ls_fit(model, train, &fit));
    ck_assert_uint_eq(model->steps_done, 3 * STEPS);
    change_run(model, run);
    OK(ls_fit(model, train, &fit));
    ck_assert_uint_eq(model->steps_done, 5 * STEPS);
    size_t count;
    ck_assert(isfinite(ls_metric_value(&ls_fit_epochs(model, &count)->metrics, "loss")));
    ls_model_close(model);
    ls_run_close(run);
    ls_run_close(ring);
}

LOOP_TEST(what_a_lost_replica_leaves_is_trained_by_the_others, 0, 6)
{
    const uint32_t replicas = _i < 3 ? 2 : 3;
    const int step = _i % 3 == 0 ? 1 : _i % 3 == 1 ? 4 : 2 * STEPS;
    char options[64], text[128];
    snprintf(options, sizeof(options), "fail_rank=%d,fail_step=%d", _i < 3 ? 0 : 1, step);
    struct ls_run *run = apart(options, replicas);
    struct ls_model *model = plain_model(run, "sgd:learning_rate=0");
    const struct ls_fit_options fit = {
        .batch = 8, .epochs = 2, .validation = test, .report = path, .check_replicas = 3};
    OK(ls_fit(model, train, &fit));
    expect_epochs(model, 2);
    expect_losses_of_one_device(model, train, 2 * STEPS);
    const size_t lost = _i < 3 ? 0 : 1;
    json_t *report = report_of();
    ck_assert_double_eq(all_pushes(report), replicas * 2 * STEPS);
    ck_assert_double_eq(pushes_of(report, lost), step - 1);
    const json_t *list = json_object_get(report, "lost_replicas");
    ck_assert_uint_eq(json_array_size(list), 1);
    ck_assert_int_eq(json_integer_value(json_array_get(list, 0)), (json_int_t)lost);
    const json_t *hashes = json_object_get(report, "parameter_hashes");
    ck_assert(json_is_null(json_array_get(hashes, lost)));
    ck_assert(json_is_string(json_array_get(hashes, 1 - lost)));
    ck_assert_double_eq(number_at(report, "apart", "lost"), 1);
    json_decref(report);
    // The one line that names it follows the one that says why.
    ck_assert_msg(warnings == 1, "%u, the last: %s", warnings, warning);
    snprintf(text, sizeof(text),
             "replica %zu failed at step %d (the reason was logged above); %s its", lost, step,
             replicas == 2 ? "replica 1 trains" : "the other 2 replicas train");
    ck_assert_msg(strstr(warning, text) != NULL, "%s", warning);
    ls_model_close(model);
    ls_run_close(run);
}

TEST(the_loss_of_the_last_replica_ends_the_run)
{
    struct ls_run *run = apart("fail_rank=0,fail_step=3", 1);
    struct ls_model *model = plain_model(run, "sgd");
    expect_error(ls_fit(model, train, &(struct ls_fit_options){.batch = 8}), LS_FAILED,
                 "the test lets replica 0 fail");
    ls_model_close(model);
    ls_run_close(run);
}

TEST(a_loss_that_is_not_finite_is_nobodys_loss_alone)
{
    struct ls_run *run = apart("", 2);
    struct ls_model *model = plain_model(run, "sgd:learning_rate=3e38");
    expect_error(ls_fit(model, train, &(struct ls_fit_options){.batch = 8}), LS_FAILED,
                 "the loss is not finite");
    ck_assert_uint_eq(warnings, 0);
    ls_model_close(model);
    ls_run_close(run);
}

TEST(nobody_waits_longer_than_the_deadline_for_the_rest_of_an_epoch)
{
    struct ls_run *run = apart_within(0.2, "slow_rank=1,slow_ms=900", 2);
    struct ls_model *model = plain_model(run, "sgd");
    expect_error(ls_fit(model, train, &(struct ls_fit_options){.batch = 8}), LS_PEER_LOST,
                 "for replica 1, which is still in step");
    ls_model_close(model);
    ls_run_close(run);
}

// How the fit is ended when `after` steps are complete; 0: before any begins.
enum ending { INTERRUPT, ANSWER_INTERRUPTED, STOP_TRAINING };

struct stop {
    struct ls_run *run;
    enum ending how;
    uint64_t after, steps;
};

static enum ls_status prepared(void *context, const struct ls_fit_state *state)
{
    (void)context;
    ck_assert(state->asynchronous);
    return LS_OK;
}

static enum ls_status begin(void *context, const struct ls_fit_state *state, uint64_t *steps)
{
    const struct stop *stop = context;
    (void)state;
    ck_assert_uint_gt(*steps, 0);
    if (stop->after == 0)
        ls_run_interrupt(stop->run);
    return LS_OK;
}

static enum ls_status note_step(void *context, const struct ls_fit_state *state)
{
    struct stop *stop = context;
    ck_assert_uint_eq(++stop->steps, state->steps_done);
    if (stop->steps != stop->after)
        return LS_OK;
    if (stop->how == INTERRUPT)
        ls_run_interrupt(stop->run);
    if (stop->how == STOP_TRAINING)
        ls_stop_training(state->model);
    return stop->how == ANSWER_INTERRUPTED ? LS_INTERRUPTED : LS_OK;
}

// Two replicas go through hundreds of steps while the third makes a few.
LOOP_TEST(everybody_stops_after_the_share_in_hand, 0, 4)
{
    static const enum ending endings[] = {INTERRUPT, INTERRUPT, ANSWER_INTERRUPTED, STOP_TRAINING};
    struct ls_data *large = data_of("synthetic:shape=4x4x1,examples=5000", "train");
    struct ls_run *run = apart("slow_rank=1,slow_ms=100", 3);
    struct ls_model *model = plain_model(run, "sgd:learning_rate=0");
    struct stop stop = {.run = run, .how = endings[_i], .after = _i == 0 ? 0 : 3};
    const struct ls_callbacks callbacks = {.context = &stop,
                                           .on_train_begin = prepared,
                                           .on_segment_begin = begin,
                                           .on_train_batch_end = note_step};
    const struct ls_fit_options fit = {
        .batch = 8, .epochs = 2, .report = path, .callbacks = &callbacks, .callback_count = 1};
    const bool stops = stop.how == STOP_TRAINING;
    ck_assert_int_eq(ls_fit(model, large, &fit), stops ? LS_OK : LS_INTERRUPTED);
    size_t count;
    (void)!ls_fit_losses(model, &count);
    ck_assert_uint_ge(count, stop.after);
    expect_losses_of_one_device(model, large, count);
    json_t *report = report_of();
    ck_assert_str_eq(json_string_value(json_object_get(report, "status")),
                     stops ? "stopped" : "interrupted");
    ck_assert_double_eq(json_number_value(json_object_get(report, "steps")), (double)count);
    ck_assert_double_eq(pushes_of(report, 1), (double)count);
    if (stop.after == 0)
        ck_assert_double_eq(all_pushes(report), 0);
    else
        ck_assert_double_gt(all_pushes(report), 3 * (double)count); // and they stay
    ck_assert_uint_eq(model->steps_done, _i == 0 ? 0 : (uint64_t)all_pushes(report));
    ck_assert_double_eq(number_at(report, "apart", "rests"), 3);
    const json_t *hashes = json_object_get(report, "parameter_hashes");
    for (size_t i = 1; i < 3; i++)
        ck_assert_str_eq(json_string_value(json_array_get(hashes, i)),
                         json_string_value(json_array_get(hashes, 0)));
    json_decref(report);
    ls_data_close(large);
    ls_model_close(model);
    ls_run_close(run);
}

static enum ls_status fail_third(void *context, const struct ls_fit_state *state)
{
    (void)context;
    return state->steps_done == 3 ? LS_BAD_INPUT : LS_OK;
}

TEST(a_callback_that_fails_ends_the_fit_and_loses_no_replica)
{
    struct ls_run *run = apart("", 3);
    struct ls_model *model = plain_model(run, "sgd:learning_rate=0");
    const struct ls_callbacks callbacks = {.on_train_batch_end = fail_third};
    const struct ls_fit_options fit = {
        .batch = 8, .epochs = 2, .callbacks = &callbacks, .callback_count = 1};
    expect_error(ls_fit(model, train, &fit), LS_BAD_INPUT,
                 "callbacks[0].on_train_batch_end failed (bad input)");
    ck_assert_uint_ge(model->steps_done, 3); // the shares that were trained stay
    ls_model_close(model);
    ls_run_close(run);
}

TEST(a_number_of_steps_is_kept_by_all)
{
    struct ls_run *run = apart("slow_rank=0,slow_ms=3", 3);
    struct ls_model *model = plain_model(run, "sgd:learning_rate=0");
    OK(ls_fit(
        model, train,
        &(struct ls_fit_options){.batch = 8, .epochs = 3, .steps = STEPS + 2, .report = path}));
    expect_losses_of_one_device(model, train, STEPS + 2);
    json_t *report = report_of();
    ck_assert_double_eq(all_pushes(report), 3 * (STEPS + 2));
    json_decref(report);
    ls_model_close(model);
    ls_run_close(run);
}

TEST_FIXTURE(set_up, tear_down);
