// SPDX-License-Identifier: Apache-2.0
// Moments of batches: of steps, validations, evaluations and predictions; what they may call and what they answer.
#include "tests/core/train/fixture.h"

#include <math.h>
#include <pthread.h>

static char calls[1024];
static pthread_t main_thread;
static char answers_at; // the letter at which `answer` is given; 0: at none
static enum ls_status answer;
static struct ls_fit_state last; // of the last call

static enum ls_status note(char letter, const struct ls_fit_state *state)
{
    const size_t length = strlen(calls);
    ck_assert_uint_lt(length + 1, sizeof(calls));
    calls[length] = letter;
    calls[length + 1] = '\0';
    last = *state;
    if (strchr("VvPpTt", letter))
        ck_assert(pthread_equal(pthread_self(), main_thread));
    return letter == answers_at ? answer : LS_OK;
}

#define MOMENT(name, letter)                                                    \
    static enum ls_status name(void *context, const struct ls_fit_state *state) \
    {                                                                           \
        (void)context;                                                          \
        return note(letter, state);                                             \
    }

MOMENT(on_train_begin, 'T')
MOMENT(on_train_end, 't')
MOMENT(on_train_batch_begin, 'B')
MOMENT(on_train_batch_end, 'b')
MOMENT(on_test_begin, 'V')
MOMENT(on_test_end, 'v')
MOMENT(on_test_batch_begin, 'X')
MOMENT(on_test_batch_end, 'x')
MOMENT(on_predict_begin, 'P')
MOMENT(on_predict_end, 'p')
MOMENT(on_predict_batch_begin, 'Y')
MOMENT(on_predict_batch_end, 'y')

static const struct ls_callbacks table = {.name = "notes",
                                          .on_train_begin = on_train_begin,
                                          .on_train_end = on_train_end,
                                          .on_train_batch_begin = on_train_batch_begin,
                                          .on_train_batch_end = on_train_batch_end,
                                          .on_test_begin = on_test_begin,
                                          .on_test_end = on_test_end,
                                          .on_test_batch_begin = on_test_batch_begin,
                                          .on_test_batch_end = on_test_batch_end,
                                          .on_predict_begin = on_predict_begin,
                                          .on_predict_end = on_predict_end,
                                          .on_predict_batch_begin = on_predict_batch_begin,
                                          .on_predict_batch_end = on_predict_batch_end};

static struct ls_model *start(struct ls_run *of)
{
    struct ls_model *model = model_of(of, "sgd");
    calls[0] = '\0';
    main_thread = pthread_self();
    answers_at = 0;
    OK(ls_set_callbacks(model, &table, 1));
    return model;
}

static const struct ls_fit_options two_steps = {
    .batch = 25, .callbacks = &table, .callback_count = 1};

LOOP_TEST(batches_are_told_around_each_of_them, 1, 3)
{
    struct ls_run *some = run_of(_i > 1 ? "ring" : "one-device", (uint32_t)_i);
    struct ls_model *model = start(some);
    struct ls_fit_options options = two_steps;
    struct ls_scores scores;
    options.validation = test;
    OK(ls_fit(model, train, &options));
    ck_assert_str_eq(calls, ls_data_count(test) == 50 ? "TBbBbVXxXxvt" : "TBbBbVXxvt");
    calls[0] = '\0';
    OK(ls_evaluate(model, train, 20, &scores));
    ck_assert_str_eq(calls, "VXxXxXxv");
    ck_assert_uint_eq(last.batch, 3);
    ck_assert_uint_eq(last.batches, 3);
    ck_assert_uint_eq(last.epoch.examples, 50);
    ck_assert_double_eq(ls_metric_value(&last.epoch.metrics, "loss"),
                        ls_metric_value(&scores.metrics, "loss"));
    calls[0] = '\0';
    float *out = malloc(50 * ls_model_output_elements(model) * sizeof(*out));
    ck_assert_ptr_nonnull(out);
    OK(ls_predict(model, train, 20, out));
    ck_assert_str_eq(calls, "PYyYyYyp");
    ck_assert_uint_eq(last.batches, 3);
    // Nobody hears of them any more, and the results are the same.
    float *again = malloc(50 * ls_model_output_elements(model) * sizeof(*out));
    ck_assert_ptr_nonnull(again);
    calls[0] = '\0';
    OK(ls_set_callbacks(model, NULL, 0));
    OK(ls_predict(model, train, 20, again));
    ck_assert_str_eq(calls, "");
    ck_assert_mem_eq(out, again, 50 * ls_model_output_elements(model) * sizeof(*out));
    free(out);
    free(again);
    ls_model_close(model);
    ls_run_close(some);
}

TEST(replicas_that_do_not_wait_have_a_beginning_of_each_step_too)
{
    struct ls_run *some = run_of("parameter-server:mode=async", 2);
    struct ls_model *model = start(some);
    OK(ls_fit(model, train, &two_steps));
    unsigned begun = 0, ended = 0;
    for (const char *call = calls; *call; call++) {
        begun += *call == 'B';
        ended += *call == 'b';
    }
    ck_assert_uint_eq(begun, 2);
    ck_assert_uint_eq(ended, 2);
    ls_model_close(model);
    ls_run_close(some);
}

// In the order of the letters: who is called, and what is called until it ends.
static const struct {
    char letter;
    const char *calls;
} ends[] = {{'V', "V"}, {'X', "VXx"}, {'x', "VXx"}, {'v', "VXxXxXxv"},
            {'P', "P"}, {'Y', "PYy"}, {'y', "PYy"}, {'p', "PYyYyYyp"}};

LOOP_TEST(what_a_moment_answers_ends_the_call, 0, 16)
{
    static const enum ls_status statuses[] = {LS_BAD_INPUT, LS_INTERRUPTED};
    struct ls_model *model = start(run);
    struct ls_scores scores = {.examples = 7};
    float out[50 * 10]; // of 10 classes
    answers_at = ends[_i % 8].letter;
    answer = statuses[_i / 8];
    const enum ls_status status =
        _i % 8 < 4 ? ls_evaluate(model, train, 20, &scores) : ls_predict(model, train, 20, out);
    ck_assert_int_eq(status, answer);
    ck_assert_str_eq(calls, ends[_i % 8].calls);
    ck_assert_uint_eq(scores.examples, 7);
    ck_assert_uint_eq(errors, answer == LS_BAD_INPUT);
    if (answer == LS_BAD_INPUT) {
        ck_assert_ptr_nonnull(strstr(ls_last_error(), "notes.on_"));
        ck_assert_ptr_nonnull(
            strstr(ls_last_error(), _i % 8 < 4 ? "so the evaluation fails" : "so the prediction"));
    }
    answers_at = 0; // the model is as good as before
    OK(ls_evaluate(model, train, 20, &scores));
    OK(ls_fit(model, train, &two_steps));
    ls_model_close(model);
}

TEST(the_beginning_of_a_step_ends_the_training_after_it)
{
    struct ls_model *model = start(run);
    struct ls_fit_options options = two_steps;
    options.epochs = 3;
    answers_at = 'B';
    answer = LS_BAD_INPUT;
    ck_assert_int_eq(ls_fit(model, train, &options), LS_BAD_INPUT);
    ck_assert_str_eq(calls, "TBbt");
    ck_assert_ptr_nonnull(strstr(ls_last_error(), "notes.on_train_batch_begin failed"));
    ls_model_close(model);
}

static enum ls_status called; // what the call in the callback answered

static enum ls_status call_it(void *context, const struct ls_fit_state *state)
{
    float values[100000];
    struct ls_scores scores;
    switch (*(int *)context) {
    case 0: called = ls_evaluate(state->model, train, 20, &scores); break;
    case 1: called = ls_fit(state->model, train, NULL); break;
    default: called = ls_get_variable(state->model, 0, values); break;
    }
    return LS_OK;
}

LOOP_TEST(a_batch_is_no_moment_to_use_the_model, 0, 3)
{
    struct ls_model *model = start(run);
    struct ls_scores scores;
    int which = _i;
    const struct ls_callbacks calling = {.context = &which, .on_test_batch_end = call_it};
    OK(ls_set_callbacks(model, &calling, 1));
    called = LS_OK;
    OK(ls_evaluate(model, train, 50, &scores));
    ck_assert_int_eq(called, LS_USAGE);
    OK(ls_set_callbacks(model, NULL, 0));
    OK(ls_evaluate(model, train, 50, &scores));
    ls_model_close(model);
}

TEST(a_validation_loss_that_is_not_finite_may_end_the_training)
{
    struct ls_model *model = start(run);
    float inputs[4 * 4 * 4];
    const int32_t classes[4] = {0, 1, 2, 3};
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++)
        inputs[i] = INFINITY;
    const struct ls_array x = {"float32", 4, {4, 4, 4, 1}, inputs};
    const struct ls_array y = {"int32", 1, {4}, classes};
    struct ls_data *wild = NULL;
    OK(ls_data_from_memory(&x, 1, &y, &wild));
    struct ls_fit_options options = {.batch = 25, .epochs = 3, .validation = wild};
    ck_assert_int_eq(ls_fit(model, train, &options), LS_FAILED);
    struct ls_callbacks *terminate = NULL;
    OK(ls_callback_open(run, "terminate_on_nan", &terminate));
    options.callbacks = terminate;
    options.callback_count = 1;
    forget_errors();
    OK(ls_fit(model, train, &options));
    ck_assert_uint_eq(errors, 0);
    size_t count;
    const struct ls_epoch *epochs = ls_fit_epochs(model, &count);
    ck_assert_uint_eq(count, 1);
    ck_assert_uint_eq(epochs[0].metrics.count, 4);
    ck_assert(!isfinite(ls_metric_value(&epochs[0].metrics, "val_loss")));
    ck_assert(isfinite(ls_metric_value(&epochs[0].metrics, "loss")));
    ls_callback_close(terminate);
    ls_data_close(wild);
    ls_model_close(model);
}

TEST_FIXTURE(set_up, tear_down);
