// SPDX-License-Identifier: Apache-2.0
// Sizes and models that one does not think of: batches above the set, more replicas than examples, no variables.
#include "tests/core/train/fixture.h"

// ---- Odd sizes ----

TEST(a_set_smaller_than_a_batch_is_one_step)
{
    struct ls_data *few = data_of("synthetic:shape=4x4x1,examples=5", "train");
    struct ls_run *two = run_of("ring", 2);
    struct ls_model *model = model_of(two, "adam");
    size_t count;
    OK(ls_fit(model, few, &(struct ls_fit_options){.batch = 64, .epochs = 2}));
    const struct ls_epoch *epochs = ls_fit_epochs(model, &count);
    ck_assert_uint_eq(count, 2);
    ck_assert_uint_eq(epochs[1].steps, 1);
    ck_assert_uint_eq(epochs[1].examples, 5);
    ls_model_close(model);
    ls_run_close(two);
    ls_data_close(few);
}

LOOP_TEST(sixty_four_replicas_share_three_examples, 0, 2)
{
    struct ls_data *data = data_of("synthetic:shape=4x4x1,examples=70", "train");
    struct ls_data *validation = data_of("synthetic:shape=4x4x1,examples=70", "test"); // 7
    struct ls_run *many = run_of(_i ? "hierarchical-copy" : "ring", 64);
    struct ls_model *model = model_of(many, "sgd"), *one = model_of(run, "sgd");
    const struct ls_fit_options options = {
        .batch = 3, .steps = 6, .validation = validation, .check_replicas = 2};
    size_t count;
    OK(ls_fit(model, data, &options));
    OK(ls_fit(one, data, &options));
    ck_assert_double_le(weight_difference(one, model), 1e-6);
    const struct ls_epoch *epoch = ls_fit_epochs(model, &count);
    ck_assert_uint_eq(epoch->examples, 18);
    ck_assert_double_eq_tol(ls_metric_value(&epoch->metrics, "val_loss"),
                            ls_metric_value(&ls_fit_epochs(one, &count)->metrics, "val_loss"),
                            1e-5);
    ls_model_close(one);
    ls_model_close(model);
    ls_run_close(many);
    ls_data_close(validation);
    ls_data_close(data);
}

TEST(more_replicas_than_examples_are_refused)
{
    struct ls_data *few = data_of("synthetic:shape=4x4x1,examples=2", "train");
    struct ls_run *three = run_of("ring", 3);
    struct ls_model *model = model_of(three, "adam");
    struct ls_scores scores;
    struct ls_data *one = data_of("synthetic:shape=4x4x1,examples=1", "train");
    expect_error(ls_fit(model, few, NULL), LS_USAGE, "has only 2 examples; use");
    expect_error(ls_fit(model, one, NULL), LS_USAGE,
                 "3 replicas, but 'synthetic:shape=4x4x1,examples=1' has only 1 example; use");
    ls_data_close(one);
    OK(ls_evaluate(model, few, 0, &scores)); // which is no training: one has nothing to do
    ck_assert_uint_eq(scores.examples, 2);
    ls_model_close(model);
    ls_run_close(three);
    ls_data_close(few);
}

TEST(for_ever_is_a_number_of_epochs)
{
    struct ls_model *model = model_of(run, "adam");
    OK(ls_fit(model, train,
              &(struct ls_fit_options){.epochs = UINT64_MAX, .batch = 25, .steps = 5}));
    size_t count;
    (void)ls_fit_losses(model, &count);
    ck_assert_uint_eq(count, 5);
    ls_model_close(model);
}

static unsigned warnings;
static char last_warning[512];

static void keep_warning(void *context, uint32_t level, const char *line)
{
    (void)context;
    if (level != LS_LOG_WARN)
        return;
    warnings++;
    snprintf(last_warning, sizeof(last_warning), "%s", line);
}

TEST(slices_change_nothing_but_rounding)
{
    struct ls_run *two = run_of("ring", 2);
    struct ls_model *whole = model_of(two, "sgd"), *sliced = model_of(two, "sgd");
    OK(ls_fit(whole, train, &(struct ls_fit_options){.batch = 10}));
    OK(ls_fit(sliced, train, &(struct ls_fit_options){.batch = 10, .microbatches = 3}));
    ck_assert_double_le(weight_difference(whole, sliced), 1e-6);
    ls_log_set_writer(keep_warning, NULL);
    for (int i = 0; i < 2; i++) // more than a share, which is said once
        OK(ls_fit(sliced, train, &(struct ls_fit_options){.batch = 3, .microbatches = 9}));
    ck_assert_uint_eq(warnings, 1);
    ck_assert_ptr_nonnull(strstr(last_warning, "9 parts of at most 2 examples a replica: 7 of them "
                                               "are empty"));
    ls_model_close(whole);
    ls_model_close(sliced);
    ls_run_close(two);
}

// ---- Odd models ----

TEST(a_model_without_variables_is_refused)
{
    const struct ls_layer layers[] = {LS_INPUT(4, 4, 1), LS_FLATTEN(), LS_END};
    struct ls_model *model = NULL;
    OK(ls_sequential_create(run, "empty", layers, &model));
    expect_error(ls_compile(model, NULL), LS_BAD_INPUT, "no variables to train");
    char text[1024] = "";
    FILE *file = tmpfile();
    ls_model_summary(model, file);
    rewind(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    ck_assert_ptr_nonnull(strstr(text, "Total params: 0 (0 bytes)"));
    ls_model_close(model);
}

TEST(dropout_may_be_the_last_layer)
{
    const struct ls_layer layers[] = {LS_INPUT(4, 4, 1), LS_FLATTEN(), LS_DENSE(10),
                                      LS_DROPOUT(0.5), LS_END};
    struct ls_run *two = run_of("ring", 2);
    struct ls_model *models[2] = {NULL, NULL};
    struct ls_scores scores[2];
    for (int i = 0; i < 2; i++) {
        OK(ls_sequential_create(i ? two : run, "last", layers, &models[i]));
        OK(ls_compile(models[i], &(struct ls_compile_options){.optimizer = "sgd"}));
        OK(ls_fit(models[i], train, &(struct ls_fit_options){.batch = 10}));
        OK(ls_evaluate(models[i], test, 0, &scores[i]));
        OK(ls_evaluate(models[i], test, 2, &scores[i])); // without dropout: always the same
    }
    ck_assert_double_le(weight_difference(models[0], models[1]), 1e-6);
    ck_assert_double_eq_tol(ls_metric_value(&scores[0].metrics, "loss"),
                            ls_metric_value(&scores[1].metrics, "loss"), 1e-5);
    ls_model_close(models[0]);
    ls_model_close(models[1]);
    ls_run_close(two);
}

TEST(targets_are_learnt_with_squared_errors)
{
    const struct ls_layer layers[] = {LS_INPUT(4), LS_DENSE(3), LS_END};
    struct ls_data *targets = data_of("synthetic:shape=4,classes=0,outputs=3,examples=60", "train");
    struct ls_model *model = NULL;
    struct ls_scores before, after;
    OK(ls_sequential_create(run, "linear", layers, &model));
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd:learning_rate=0.5",
                                                      .loss = "mean_squared_error"}));
    OK(ls_evaluate(model, targets, 0, &before));
    OK(ls_fit(model, targets, &(struct ls_fit_options){.batch = 10, .epochs = 30}));
    OK(ls_evaluate(model, targets, 0, &after));
    ck_assert(isnan(ls_metric_value(&after.metrics, "accuracy")));
    ck_assert_double_lt(ls_metric_value(&after.metrics, "loss"),
                        ls_metric_value(&before.metrics, "loss") / 10);
    ls_model_close(model);
    ls_data_close(targets);
}

TEST(class_numbers_are_targets_for_squared_errors)
{
    const struct ls_layer layers[] = {LS_INPUT(4, 4, 1), LS_FLATTEN(), LS_DENSE(1), LS_END};
    struct ls_model *model = NULL;
    struct ls_scores scores;
    OK(ls_sequential_create(run, "number", layers, &model));
    OK(ls_compile(model, &(struct ls_compile_options){.loss = "mse"}));
    OK(ls_fit(model, train, &(struct ls_fit_options){.validation = test}));
    OK(ls_evaluate(model, test, 0, &scores));
    ck_assert(isfinite(ls_metric_value(&scores.metrics, "loss")));
    ls_model_close(model);
}

TEST_FIXTURE(set_up, tear_down);
TEST_SECONDS(120);
