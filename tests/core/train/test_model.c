// SPDX-License-Identifier: Apache-2.0
// A model from call to call: what continues, what begins anew, what is refused.
#include "tests/core/train/fixture.h"

#include "core/base/threads.h"
#include "core/formats/safetensors.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// Of this process, whose tests run one after the other.
static void name_weights(char *path, size_t bytes)
{
    snprintf(path, bytes, "/tmp/lockstep-train-%ld.safetensors", (long)getpid());
}

// ---- From fit to fit ----

struct setting {
    const char *strategy;
    uint32_t replicas;
    const char *optimizer, *shuffle;
};

static const struct setting settings[] = {
    {"one-device", 1, "adam", "off"},
    {"one-device", 1, "adam", "on"},
    {"one-device", 1, "sgd:momentum=0.9,nesterov=on", "7"},
    {"ring", 3, "adam:learning_rate=0.01", "on"},
    {"hierarchical-copy", 4, "sgd:momentum=0.5", "off"},
    {"central-storage", 1, "adam:learning_rate=0.01", "off"},
    {"central-storage", 3, "adam:learning_rate=0.01", "on"}, // whose moments lie on the host
    {"central-storage", 4, "sgd:momentum=0.5", "off"},
};

// Adam's bias correction, momentum, dropout's draws and the order of examples all depend on what was before.
TABLE_TEST(two_fits_of_one_epoch_are_one_fit_of_two, settings)
{
    const struct setting *setting = &settings[_i];
    struct ls_run *many = run_of(setting->strategy, setting->replicas);
    struct ls_model *once = model_of(many, setting->optimizer);
    struct ls_model *twice = model_of(many, setting->optimizer);
    struct ls_fit_options options = {.epochs = 2, .batch = 8, .shuffle = setting->shuffle};
    size_t counts[2];
    OK(ls_fit(once, train, &options));
    options.epochs = 1;
    const float *whole = ls_fit_losses(once, &counts[0]);
    ck_assert_uint_eq(counts[0], 14); // 7 an epoch, the last of 2 examples
    for (int i = 0; i < 2; i++) {
        OK(ls_fit(twice, train, &options));
        const float *part = ls_fit_losses(twice, &counts[1]);
        ck_assert_uint_eq(counts[1], 7);
        for (size_t k = 0; k < 7; k++)
            ck_assert_float_eq(part[k], whole[7 * (size_t)i + k]);
    }
    ck_assert_double_eq(weight_difference(once, twice), 0);
    ls_model_close(once);
    ls_model_close(twice);
    ls_run_close(many);
}

TEST(epochs_of_all_fits_have_orders_of_their_own)
{
    struct ls_model *model = model_of(run, "sgd:learning_rate=0"); // nothing is learnt
    const struct ls_fit_options options = {.batch = 8};
    float losses[3];
    for (int i = 0; i < 3; i++) {
        size_t count;
        OK(ls_fit(model, train, &options));
        losses[i] = *ls_fit_losses(model, &count); // of the first step
        for (int k = 0; k < i; k++)
            ck_assert_float_ne(losses[i], losses[k]);
    }
    ls_model_close(model);
}

TEST(compile_keeps_weights_and_begins_the_optimizer_anew)
{
    char path[64];
    struct ls_model *model = model_of(run, "adam"), *fresh = model_of(run, "adam");
    // The order of examples goes on, which shows in no loss where it is the same in every epoch.
    const struct ls_fit_options options = {.batch = 8, .epochs = 2, .shuffle = "off"};
    name_weights(path, sizeof(path));
    OK(ls_fit(model, train, &options));
    ck_assert_uint_eq(model->steps_done, 14);
    OK(ls_save_weights(model, path));
    OK(ls_load_weights(fresh, path));
    unlink(path);
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "adam"}));
    ck_assert_uint_eq(model->steps_done, 0);
    ck_assert_double_eq(weight_difference(model, fresh), 0);
    OK(ls_fit(model, train, &options));
    OK(ls_fit(fresh, train, &options));
    ck_assert_double_eq(weight_difference(model, fresh), 0);
    ls_model_close(model);
    ls_model_close(fresh);
}

TEST(a_compile_that_is_refused_changes_nothing)
{
    struct ls_model *model = model_of(run, "adam"), *other = model_of(run, "adam");
    const struct ls_fit_options options = {.batch = 8};
    for (int i = 0; i < 2; i++) {
        OK(ls_fit(model, train, &options));
        OK(ls_fit(other, train, &options));
        expect_error(ls_compile(model, &(struct ls_compile_options){.optimizer = "adamant"}),
                     LS_USAGE, "adam");
        expect_error(ls_compile(model, &(struct ls_compile_options){.loss = "tversky"}), LS_USAGE,
                     "tversky");
        expect_error(ls_compile(model, &(struct ls_compile_options){.metrics = "f1"}), LS_USAGE,
                     "f1");
        expect_error(ls_compile(model, &(struct ls_compile_options){.lr_scaling = "cubic"}),
                     LS_USAGE, "cubic");
        expect_error(
            ls_compile(model, &(struct ls_compile_options){.loss = "mse", .metrics = "accuracy"}),
            LS_USAGE, "classes");
    }
    ck_assert_double_eq(weight_difference(model, other), 0);
    ls_model_close(model);
    ls_model_close(other);
}

TEST(a_second_fit_may_have_another_batch_and_other_replicas_do_not_matter)
{
    static const uint64_t batches[] = {8, 3, 50, 1000, 1};
    struct ls_run *three = run_of("ring", 3);
    struct ls_model *one = model_of(run, "sgd"), *many = model_of(three, "sgd");
    for (int i = 0; i < 5; i++) {
        const struct ls_fit_options options = {.batch = batches[i], .steps = 4};
        OK(ls_fit(one, train, &options));
        OK(ls_fit(many, train, &options));
        ck_assert_double_le(weight_difference(one, many), 1e-6);
    }
    ls_model_close(one);
    ls_model_close(many);
    ls_run_close(three);
}

TEST(models_of_one_run_do_not_touch_each_other)
{
    struct ls_model *a = model_of(run, "adam"), *b = model_of(run, "adam"),
                    *alone = model_of(run, "adam");
    const struct ls_fit_options options = {.batch = 8};
    for (int i = 0; i < 2; i++)
        OK(ls_fit(alone, train, &options));
    OK(ls_fit(a, train, &options));
    OK(ls_fit(b, train, &options));
    OK(ls_fit(a, train, &options));
    ck_assert_double_eq(weight_difference(a, alone), 0);
    ck_assert_double_gt(weight_difference(b, alone), 0);
    ls_model_close(a);
    ls_model_close(b);
    ls_model_close(alone);
}

// ---- Results ----

TEST(epochs_say_how_it_went)
{
    struct ls_model *model = model_of(run, "adam:learning_rate=0.01");
    const struct ls_fit_options options = {.batch = 8, .epochs = 3, .validation = test};
    struct ls_scores scores;
    size_t count = 9;
    ck_assert_ptr_null(ls_fit_epochs(model, &count));
    ck_assert_uint_eq(count, 0);
    OK(ls_fit(model, train, &options));
    const struct ls_epoch *epochs = ls_fit_epochs(model, &count);
    ck_assert_uint_eq(count, 3);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(epochs[i].epoch, i + 1);
        ck_assert_uint_eq(epochs[i].steps, 7);
        ck_assert_uint_eq(epochs[i].examples, 50);
        ck_assert_double_gt(epochs[i].seconds, 0);
        ck_assert_double_eq(epochs[i].learning_rate, 0.01);
        ck_assert(ls_metric_value(&epochs[i].metrics, "accuracy") >= 0 &&
                  ls_metric_value(&epochs[i].metrics, "accuracy") <= 1);
        ck_assert(isfinite(ls_metric_value(&epochs[i].metrics, "loss")) &&
                  isfinite(ls_metric_value(&epochs[i].metrics, "val_accuracy")));
    }
    OK(ls_evaluate(model, test, 0, &scores));
    ck_assert_double_eq_tol(ls_metric_value(&scores.metrics, "loss"),
                            ls_metric_value(&epochs[2].metrics, "val_loss"), 1e-6);
    ck_assert_double_eq(ls_metric_value(&scores.metrics, "accuracy"),
                        ls_metric_value(&epochs[2].metrics, "val_accuracy"));
    ck_assert_uint_eq(scores.examples, 5);
    OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 25}));
    epochs = ls_fit_epochs(model, &count);
    ck_assert_uint_eq(count, 1);
    ck_assert_uint_eq(epochs[0].epoch, 1);
    ck_assert(isnan(ls_metric_value(&epochs[0].metrics, "val_loss")) &&
              isnan(ls_metric_value(&epochs[0].metrics, "val_accuracy")));
    ls_model_close(model);
}

TEST(without_the_metric_accuracy_is_no_number)
{
    struct ls_model *model = model_of(run, "adam");
    struct ls_scores scores;
    size_t count;
    OK(ls_compile(model, &(struct ls_compile_options){.metrics = "none"}));
    OK(ls_fit(model, train, NULL));
    ck_assert(isnan(ls_metric_value(&ls_fit_epochs(model, &count)->metrics, "accuracy")));
    OK(ls_evaluate(model, test, 0, &scores));
    ck_assert(isnan(ls_metric_value(&scores.metrics, "accuracy")));
    ls_model_close(model);
}

TEST(a_model_may_come_as_text)
{
    static const char text[] =
        "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"mine\", \"layers\": ["
        "{\"class_name\": \"Flatten\", \"config\": {}},"
        "{\"class_name\": \"Dense\", \"config\": {\"units\": 10}}]}}";
    struct ls_model *model = NULL;
    const struct ls_fit_options options = {.batch = 8};
    expect_error(ls_model_open_json(run, NULL, text, NULL, &model), LS_BAD_INPUT, "mine: ");
    expect_error(ls_model_open_json(run, "yours", text, NULL, &model), LS_BAD_INPUT, "yours: ");
    expect_error(ls_model_open_json(run, NULL, "{", train, &model), LS_BAD_INPUT,
                 "model:1:1: malformed JSON");
    expect_error(ls_model_open_json(run, NULL, "[]", train, &model), LS_BAD_INPUT, "model: ");
    expect_error(ls_model_open_json(run, NULL, NULL, train, &model), LS_USAGE, "the JSON of");
    ck_assert_ptr_null(model);
    OK(ls_model_open_json(run, NULL, text, train, &model)); // the data says the shape
    ck_assert_str_eq(model->source, "mine");
    OK(ls_compile(model, NULL));
    OK(ls_fit(model, train, &options));
    ck_assert_uint_eq(ls_model_parameters(model), 16 * 10 + 10);
    ls_model_close(model);
}

TEST(evaluation_needs_no_fit)
{
    struct ls_model *model = model_of(run, "adam");
    struct ls_scores first, again;
    OK(ls_evaluate(model, train, 7, &first));
    ck_assert_uint_eq(first.examples, 50);
    ck_assert(ls_metric_value(&first.metrics, "loss") > 1 &&
              ls_metric_value(&first.metrics, "loss") < 5); // about log(10)
    OK(ls_evaluate(model, train, 50, &again));
    ck_assert_double_eq_tol(ls_metric_value(&first.metrics, "loss"),
                            ls_metric_value(&again.metrics, "loss"), 1e-6);
    ck_assert_double_eq(ls_metric_value(&first.metrics, "accuracy"),
                        ls_metric_value(&again.metrics, "accuracy"));
    ls_model_close(model);
}

TEST(learning_rates_scale_with_the_replicas)
{
    struct ls_run *four = run_of("ring", 4);
    struct ls_model *model = model_of(four, "sgd");
    size_t count;
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd:learning_rate=0.5",
                                                      .lr_scaling = "sqrt"}));
    OK(ls_fit(model, train, &(struct ls_fit_options){.steps = 1}));
    ck_assert_double_eq(ls_fit_epochs(model, &count)->learning_rate, 1);
    ls_model_close(model);
    ls_run_close(four);
}

TEST(options_may_be_left_out)
{
    struct ls_run *defaults = NULL;
    OK(ls_run_open(NULL, &defaults));
    struct ls_model *model = model_of(defaults, NULL);
    OK(ls_compile(model, NULL));
    OK(ls_fit(model, train, NULL));
    ls_model_close(model);
    ls_run_close(defaults);
    ls_model_close(NULL);
    ls_data_close(NULL);
    ls_run_close(NULL);
}

// ---- What is refused ----

TEST(a_model_must_be_compiled)
{
    const struct ls_layer layers[] = {LS_INPUT(4, 4, 1), LS_FLATTEN(), LS_DENSE(10), LS_END};
    struct ls_model *model = NULL;
    struct ls_scores scores;
    OK(ls_sequential_create(run, "early", layers, &model));
    expect_error(ls_fit(model, train, NULL), LS_USAGE, "call ls_compile first");
    expect_error(ls_evaluate(model, test, 0, &scores), LS_USAGE, "call ls_compile first");
    ls_model_close(model);
}

TEST(data_of_another_shape_is_refused)
{
    struct ls_model *model = model_of(run, "adam");
    struct ls_scores scores;
    static const struct {
        const char *data, *says;
    } wrong[] = {
        {"synthetic:shape=4x4x2,examples=50", "(None, 4, 4, 2)"},
        {"synthetic:shape=4x5x1,examples=50", "(None, 4, 5, 1)"},
        {"synthetic:shape=17,examples=50", "(None, 17)"},
        {"synthetic:shape=4x4x1,examples=50,classes=11", "11 classes"},
        {"synthetic:shape=4x4x1,examples=50,classes=0", "mean_squared_error"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct ls_data *data = data_of(wrong[i].data, "test");
        expect_error(ls_fit(model, data, NULL), LS_BAD_INPUT, wrong[i].says);
        expect_error(ls_evaluate(model, data, 0, &scores), LS_BAD_INPUT, wrong[i].says);
        const struct ls_fit_options options = {.validation = data};
        expect_error(ls_fit(model, train, &options), LS_BAD_INPUT, wrong[i].says);
        ls_data_close(data);
    }
    ls_model_close(model);
}

TEST(fewer_classes_than_units_are_welcome)
{
    struct ls_data *data = data_of("synthetic:shape=4x4x1,examples=50,classes=3", "train");
    struct ls_model *model = model_of(run, "adam");
    OK(ls_fit(model, data, NULL));
    ls_model_close(model);
    ls_data_close(data);
}

TEST(options_that_cannot_be_are_refused)
{
    struct ls_model *model = model_of(run, "adam");
    struct ls_run *other = NULL;
    struct ls_data *data = NULL;
    expect_error(ls_fit(model, train, &(struct ls_fit_options){.shuffle = "maybe"}), LS_USAGE,
                 "maybe");
    expect_error(ls_fit(model, train, &(struct ls_fit_options){.shuffle = "0"}), LS_USAGE,
                 "--shuffle");
    expect_error(ls_fit(model, train, &(struct ls_fit_options){.report = "/no/such/report.json"}),
                 LS_BAD_INPUT, "/no/such");
    expect_error(ls_data_open(DATA, "half", &data), LS_USAGE, "half");
    expect_error(ls_data_open("no-such-set", "train", &data), LS_USAGE, "no-such-set");
    expect_error(ls_run_open(&(struct ls_run_options){.deadline_seconds = -1}, &other), LS_USAGE,
                 "--deadline");
    expect_error(ls_run_open(&(struct ls_run_options){.strategy = "rings"}, &other), LS_UNAVAILABLE,
                 "ring");
    expect_error(ls_run_open(&(struct ls_run_options){.device = "abacus"}, &other), LS_UNAVAILABLE,
                 "abacus");
    ck_assert_ptr_null(data);
    ck_assert_ptr_null(other);
    ls_model_close(model);
}

TEST(one_device_takes_one_replica)
{
    struct ls_run *two = run_of("one-device", 2);
    struct ls_model *model = model_of(two, "adam");
    expect_error(ls_fit(model, train, NULL), LS_USAGE, "at most 1 replica");
    ls_model_close(model);
    ls_run_close(two);
}

// ---- Weights ----

TEST(weights_go_through_a_file)
{
    char path[64];
    struct ls_model *model = model_of(run, "adam"), *other = model_of(run, "adam");
    name_weights(path, sizeof(path));
    OK(ls_fit(model, train, NULL));
    OK(ls_save_weights(model, path));
    OK(ls_load_weights(other, path));
    ck_assert_double_eq(weight_difference(model, other), 0);
    const struct ls_layer layers[] = {LS_INPUT(4, 4, 1), LS_FLATTEN(), LS_DENSE(10), LS_END};
    struct ls_model *different = NULL;
    OK(ls_sequential_create(run, "different", layers, &different));
    expect_error(ls_load_weights(different, path), LS_BAD_INPUT, "dense/kernel");
    unlink(path);
    expect_error(ls_load_weights(other, path), LS_BAD_INPUT, path);
    expect_error(ls_save_weights(other, "/dev/null"), LS_BAD_INPUT, "/dev/null");
    static const char *const names[] = {"w", "w.", "w.foo", "w.h5", ".safetensors.npz"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        expect_error(ls_save_weights(other, names[i]), LS_USAGE, "must end with");
        ck_assert_int_ne(access(names[i], F_OK), 0);
    }
    expect_error(ls_save_weights(other, "/no/such/folder/w"), LS_BAD_INPUT, "/no/such/folder");
    ls_model_close(model);
    ls_model_close(other);
    ls_model_close(different);
}

// What operations see in another shape than Keras: the file has Keras's, and another model reads it.
TEST(weights_have_the_shapes_of_keras_in_a_file)
{
    static const uint64_t dims[] = {3, 2, 4, 1};
    const struct ls_layer layers[] = {
        LS_INPUT(4, 4, 1),
        LS_CONV2D(4, 1),
        {.class_name = "DepthwiseConv2D", .kernel_size = 3, .kernel_columns = 2},
        LS_FLATTEN(),
        LS_DENSE(10),
        LS_END};
    char path[64];
    struct ls_model *model = NULL, *other = NULL;
    struct ls_safetensors *file = NULL;
    uint32_t found = 0;
    name_weights(path, sizeof(path));
    OK(ls_sequential_create(run, "one", layers, &model));
    OK(ls_sequential_create(run, "other", layers, &other));
    OK(ls_save_weights(model, path));
    OK(ls_safetensors_open(path, &file));
    for (size_t i = 0; i < ls_safetensors_count(file); i++) {
        const struct ls_saved_tensor *saved = ls_safetensors_get(file, i);
        if (strcmp(saved->name, "depthwise_conv2d/kernel") != 0)
            continue;
        ck_assert_uint_eq(saved->ndims, 4);
        for (uint32_t d = 0; d < 4; d++)
            ck_assert_uint_eq((uint64_t)saved->dims[d], dims[d]);
        found++;
    }
    ck_assert_uint_eq(found, 1);
    ls_safetensors_close(file);
    OK(ls_load_weights(other, path));
    ck_assert_double_eq(weight_difference(model, other), 0);
    unlink(path);
    ls_model_close(model);
    ls_model_close(other);
}

// ---- Interruption ----

static void *interrupt_soon(void *argument)
{
    const struct timespec soon = {.tv_nsec = 20000000};
    nanosleep(&soon, NULL);
    ls_run_interrupt(argument);
    return NULL;
}

LOOP_TEST(another_thread_may_interrupt_a_fit, 1, 4)
{
    struct ls_run *many = run_of(_i > 1 ? "ring" : "one-device", (uint32_t)_i);
    struct ls_model *model = model_of(many, "adam"), *untrained = model_of(many, "adam");
    const struct ls_fit_options options = {
        .epochs = UINT64_MAX, .batch = 8, .validation = test, .check_replicas = 3};
    struct ls_scores scores;
    pthread_t thread;
    size_t count, epochs;
    OK(ls_evaluate(untrained, test, 0, &scores)); // draws the first weights
    OK(ls_thread_start(&thread, "interrupt", interrupt_soon, many));
    ck_assert_int_eq(ls_fit(model, train, &options), LS_INTERRUPTED);
    pthread_join(thread, NULL);
    (void)ls_fit_losses(model, &count);
    (void)ls_fit_epochs(model, &epochs);
    ck_assert_uint_ge(count, 1);
    ck_assert_uint_ge(epochs, 1);
    ck_assert_uint_eq(model->steps_done, count);
    ck_assert_double_gt(weight_difference(model, untrained), 0); // what was learnt stays
    OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 8})); // it is over
    ck_assert_uint_eq(model->steps_done, (count / 7 + 1) * 7); // the rest of the epoch, or the next
    ls_model_close(model);
    ls_model_close(untrained);
    ls_run_close(many);
}

TEST(an_interruption_waits_for_the_next_call)
{
    struct ls_model *model = model_of(run, "adam");
    struct ls_scores scores = {.examples = 1};
    size_t count;
    ls_run_interrupt(run);
    ck_assert_int_eq(ls_fit(model, train, &(struct ls_fit_options){.batch = 8}), LS_INTERRUPTED);
    (void)ls_fit_losses(model, &count);
    ck_assert_uint_eq(count, 1);
    ls_run_interrupt(run);
    ck_assert_int_eq(ls_evaluate(model, train, 8, &scores), LS_INTERRUPTED);
    ck_assert_uint_eq(scores.examples, 1); // it wrote nothing
    ck_assert_uint_eq(scores.metrics.count, 0);
    OK(ls_evaluate(model, train, 8, &scores));
    ls_model_close(model);
}

TEST_FIXTURE(set_up, tear_down);
TEST_SECONDS(120);
