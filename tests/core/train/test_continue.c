// SPDX-License-Identifier: Apache-2.0
// The order of examples over several fits and compiles, and a learning rate that changes between them.
#include "tests/core/train/fixture.h"

#include <jansson.h>
#include <unistd.h>

struct setting {
    const char *strategy;
    uint32_t replicas;
    const char *optimizer, *shuffle;
};

static const struct setting settings[] = {
    {"one-device", 1, "adam:learning_rate=0.01", "on"},
    {"one-device", 1, "sgd:momentum=0.9", "7"},
    {"ring", 2, "adam:learning_rate=0.01", "on"},
    {"ring", 3, "sgd:momentum=0.9,nesterov=on", "off"},
    {"central-storage", 2, "adam:learning_rate=0.01", "on"},
    {"parameter-server:mode=sync", 2, "adam:learning_rate=0.01", "on"},
};
#define SETTINGS ((int)(sizeof(settings) / sizeof(settings[0])))

#define EPOCH 7 // steps of 50 examples in batches of 8, the last of 2
#define STEPS 17 // two epochs and three steps

static const struct ls_epoch *last_epoch(const struct ls_model *model)
{
    size_t count;
    const struct ls_epoch *epochs = ls_fit_epochs(model, &count);
    ck_assert_uint_ge(count, 1);
    return &epochs[count - 1];
}

// Dropout, Adam's bias correction, momentum and the order of examples all go on: one fit of 17 steps, and 17 steps in
// parts of 1, 2, 3 and 5.
LOOP_TEST(fits_of_a_few_steps_are_one_fit_of_them_all, 0, 4 * SETTINGS)
{
    static const uint64_t parts[] = {1, 2, 3, 5};
    const struct setting *setting = &settings[_i / 4];
    const uint64_t part = parts[_i % 4];
    struct ls_run *many = run_of(setting->strategy, setting->replicas);
    struct ls_model *once = model_of(many, setting->optimizer);
    struct ls_model *often = model_of(many, setting->optimizer);
    size_t count;
    OK(ls_fit(once, train,
              &(struct ls_fit_options){
                  .epochs = 9, .steps = STEPS, .batch = 8, .shuffle = setting->shuffle}));
    const float *whole = ls_fit_losses(once, &count);
    ck_assert_uint_eq(count, STEPS);
    for (size_t done = 0; done < STEPS; done += count) {
        const uint64_t left = STEPS - done;
        OK(ls_fit(often, train,
                  &(struct ls_fit_options){.epochs = 9,
                                           .steps = part < left ? part : left,
                                           .batch = 8,
                                           .shuffle = setting->shuffle}));
        const float *losses = ls_fit_losses(often, &count);
        ck_assert_uint_eq(count, part < left ? part : left);
        ck_assert_mem_eq(losses, whole + done, count * sizeof(*losses));
    }
    ck_assert_double_eq(weight_difference(once, often), 0);
    ls_model_close(once);
    ls_model_close(often);
    ls_run_close(many);
}

static json_t *tuner_of_fit(struct ls_model *model)
{
    char path[] = "/tmp/lockstep-report-XXXXXX";
    const int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    close(file);
    OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 8, .steps = 2, .report = path}));
    json_t *report = json_load_file(path, 0, NULL);
    unlink(path);
    ck_assert_ptr_nonnull(report);
    json_t *tuner = json_incref(json_object_get(report, "tuner"));
    json_decref(report);
    return tuner;
}

// Measured by the first fit; another measurement would have other times.
TEST(auto_keeps_its_choice_over_fits_and_models)
{
    struct ls_run *two = run_of("auto", 2);
    struct ls_model *model = model_of(two, "adam"), *another = model_of(two, "adam");
    json_t *first = tuner_of_fit(model), *second = tuner_of_fit(model);
    json_t *third = tuner_of_fit(another);
    ck_assert_str_eq(json_string_value(json_object_get(first, "source")), "measured");
    ck_assert_uint_ge(json_array_size(json_object_get(first, "sizes")), 1);
    ck_assert_double_gt(json_number_value(json_object_get(first, "seconds")), 0);
    ck_assert(json_equal(first, second));
    ck_assert(json_equal(first, third));
    json_decref(first);
    json_decref(second);
    json_decref(third);
    ls_model_close(model);
    ls_model_close(another);
    ls_run_close(two);
}

TEST(a_fit_first_ends_the_epoch_that_another_began)
{
    struct ls_model *model = model_of(run, "adam");
    size_t count;
    OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 8, .steps = 2}));
    ck_assert_uint_eq(last_epoch(model)->steps, 2);
    ck_assert_uint_eq(last_epoch(model)->examples, 16);
    OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 8, .epochs = 2, .validation = test}));
    const struct ls_epoch *epochs = ls_fit_epochs(model, &count);
    ck_assert_uint_eq(count, 2);
    ck_assert_uint_eq(epochs[0].epoch, 1);
    ck_assert_uint_eq(epochs[0].steps, EPOCH - 2);
    ck_assert_uint_eq(epochs[0].examples, 34);
    ck_assert(isfinite(ls_metric_value(&epochs[0].metrics, "val_loss")));
    ck_assert_uint_eq(epochs[1].steps, EPOCH);
    ck_assert_uint_eq(epochs[1].examples, 50);
    ls_model_close(model);
}

// The last of these sizes leave shares of six sizes: of a whole batch, of the last one of an epoch, of that of the rest.
LOOP_TEST(another_batch_size_goes_on_at_the_same_example, 0, 3)
{
    static const struct setting others[] = {{"one-device", 1, NULL, NULL},
                                            {"ring", 3, NULL, NULL},
                                            {"parameter-server", 3, NULL, NULL}};
    struct ls_run *many = run_of(others[_i].strategy, others[_i].replicas);
    for (uint32_t microbatches = 1; microbatches <= 2; microbatches++) {
        struct ls_model *model = model_of(many, "sgd");
        struct ls_fit_options options = {.batch = 25, .steps = 1, .microbatches = microbatches};
        OK(ls_fit(model, train, &options));
        options.batch = 20;
        options.steps = 0;
        options.epochs = 2;
        options.validation = test;
        OK(ls_fit(model, train, &options));
        size_t count;
        const struct ls_epoch *epochs = ls_fit_epochs(model, &count);
        ck_assert_uint_eq(count, 2);
        ck_assert_uint_eq(epochs[0].steps, 2); // of 20 and 5
        ck_assert_uint_eq(epochs[0].examples, 25);
        ck_assert_uint_eq(epochs[1].steps, 3);
        ck_assert_uint_eq(epochs[1].examples, 50);
        ls_model_close(model);
    }
    ls_run_close(many);
}

TEST(other_data_and_another_shuffle_begin_an_epoch)
{
    struct ls_data *other = data_of("synthetic:shape=4x4x1,examples=50,seed=3", "train");
    struct ls_data *again = data_of(DATA, "train");
    struct ls_model *model = model_of(run, "sgd");
    const struct ls_fit_options two = {.batch = 8, .steps = 2},
                                off = {.batch = 8, .shuffle = "off"}, on = {.batch = 8};
    OK(ls_fit(model, train, &two));
    OK(ls_fit(model, other, &on));
    ck_assert_uint_eq(last_epoch(model)->examples, 50);
    OK(ls_fit(model, train, &two));
    OK(ls_fit(model, train, &off));
    ck_assert_uint_eq(last_epoch(model)->examples, 50);
    OK(ls_fit(model, train, &two));
    OK(ls_fit(model, again, &on)); // the same data, opened twice
    ck_assert_uint_eq(last_epoch(model)->examples, 34);
    ls_model_close(model);
    ls_data_close(again);
    ls_data_close(other);
}

// Nothing is learnt and nothing dropped, so a loss is that of the examples of its step.
TEST(the_order_goes_on_over_compiles)
{
    const struct ls_layer layers[] = {LS_INPUT(4, 4, 1), LS_FLATTEN(), LS_DENSE(10), LS_END};
    static const struct ls_compile_options still = {.optimizer = "sgd:learning_rate=0"};
    struct ls_model *model = NULL, *whole = NULL;
    size_t count;
    OK(ls_sequential_create(run, "plain", layers, &model));
    OK(ls_sequential_create(run, "plain", layers, &whole));
    OK(ls_compile(whole, &still));
    OK(ls_fit(whole, train, &(struct ls_fit_options){.batch = 10, .epochs = 2}));
    const float *losses = ls_fit_losses(whole, &count);
    ck_assert_uint_eq(count, 10);
    for (size_t i = 0; i < 10; i++) {
        OK(ls_compile(model, &still));
        OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 10, .steps = 1}));
        ck_assert_float_eq(*ls_fit_losses(model, &count), losses[i]);
        for (size_t k = 0; k < i; k++)
            ck_assert_float_ne(losses[i], losses[k]);
    }
    ls_model_close(model);
    ls_model_close(whole);
}

TEST(a_fit_that_was_interrupted_goes_on)
{
    struct ls_model *model = model_of(run, "adam"), *same = model_of(run, "adam");
    const struct ls_fit_options whole = {.batch = 8};
    ls_run_interrupt(run);
    ck_assert_int_eq(ls_fit(model, train, &whole), LS_INTERRUPTED);
    ck_assert_uint_eq(last_epoch(model)->steps, 1);
    OK(ls_fit(model, train, &whole));
    ck_assert_uint_eq(last_epoch(model)->steps, EPOCH - 1);
    OK(ls_fit(same, train, &whole));
    ck_assert_double_eq(weight_difference(model, same), 0);
    ls_model_close(model);
    ls_model_close(same);
}

// ---- Learning rates ----

static const struct setting rates[] = {
    {"one-device", 1, "adam", NULL},
    {"ring", 2, "adam", NULL},
    {"central-storage", 2, "adam", NULL}, // whose variables are updated on the host
    {"parameter-server:mode=sync", 2, "adam", NULL},
    {"parameter-server", 1, "adam", NULL}, // asynchronous
    {"parameter-server:mode=bounded", 1, "sgd", NULL},
};

// The bits that a compile with that rate gives, from the first step and after some, moments included.
LOOP_TEST(a_rate_that_is_set_is_the_one_that_is_used, 0, 6)
{
    const struct setting *setting = &rates[_i];
    char high[64];
    snprintf(high, sizeof(high), "%s%slearning_rate=0.0625", setting->optimizer,
             strchr(setting->optimizer, ':') ? "," : ":");
    struct ls_run *many = run_of(setting->strategy, setting->replicas);
    struct ls_model *compiled = model_of(many, high), *set = model_of(many, setting->optimizer);
    const struct ls_fit_options options = {.batch = 8, .steps = 3};
    ck_assert_double_eq(ls_learning_rate(compiled), 0.0625);
    OK(ls_set_learning_rate(set, 0.0625));
    ck_assert_double_eq(ls_learning_rate(set), 0.0625);
    OK(ls_fit(compiled, train, &options));
    OK(ls_fit(set, train, &options));
    ck_assert_double_eq(last_epoch(set)->learning_rate, 0.0625);
    ck_assert_double_eq(weight_difference(compiled, set), 0);

    // Adam's moments would move the weights at any rate but 0, and are there when the rate is back.
    OK(ls_set_learning_rate(set, 0));
    OK(ls_fit(set, train, &options));
    ck_assert_double_eq(weight_difference(compiled, set), 0);
    OK(ls_set_learning_rate(set, 0.0625));
    OK(ls_fit(set, train, &options));
    ck_assert_double_gt(weight_difference(compiled, set), 0);
    ck_assert_uint_eq(set->steps_done, 9);
    ls_model_close(compiled);
    ls_model_close(set);
    ls_run_close(many);
}

TEST(a_rate_that_cannot_be_is_refused)
{
    const struct ls_layer layers[] = {LS_INPUT(4, 4, 1), LS_FLATTEN(), LS_DENSE(10), LS_END};
    struct ls_model *model = NULL;
    OK(ls_sequential_create(run, "early", layers, &model));
    ck_assert(isnan(ls_learning_rate(model)));
    expect_error(ls_set_learning_rate(model, 0.1), LS_USAGE, "call ls_compile first");
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd:learning_rate=0.25"}));
    expect_error(ls_set_learning_rate(model, -0.1), LS_USAGE, "learning_rate");
    expect_error(ls_set_learning_rate(model, NAN), LS_USAGE, "learning_rate");
    expect_error(ls_set_learning_rate(model, 1e300), LS_USAGE, "learning_rate");
    ck_assert_double_eq(ls_learning_rate(model), 0.25);
    ls_model_close(model);
}

TEST_FIXTURE(set_up, tear_down);
TEST_SECONDS(120);
