// SPDX-License-Identifier: Apache-2.0
// What callbacks decide on curves of a metric is what Keras decides (tests/data/callbacks).
#include "core/base/instance.h"
#include "core/base/log.h"
#include "core/loader/loader.h"
#include "core/plugin/callback.h"
#include "tests/support/suite.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// As much of a model as the callbacks reach through their calls.
struct fake_model {
    bool stopped;
    float weights[3]; // two variables: of 1 and of 2 elements
    double rate;
};

static struct fake_model *fake(const struct ls_model *model)
{
    return (struct fake_model *)(uintptr_t)model;
}

static double metric_value(const struct ls_metrics *metrics, const char *name)
{
    return strcmp(metrics->list[0].name, name) == 0 ? metrics->list[0].value : (double)NAN;
}

static void stop_training(struct ls_model *model)
{
    fake(model)->stopped = true;
}

static double learning_rate(const struct ls_model *model)
{
    return fake(model)->rate;
}

static enum ls_status set_learning_rate(struct ls_model *model, double rate)
{
    fake(model)->rate = (double)(float)rate; // as Keras keeps it
    return LS_OK;
}

static uint32_t variable_count(const struct ls_model *model)
{
    (void)model;
    return 2;
}

static enum ls_status variable_describe(const struct ls_model *model, uint32_t index,
                                        struct ls_variable *out)
{
    (void)model;
    *out = (struct ls_variable){
        .name = index ? "b" : "a", .ndims = 1, .dims = {index + 1}, .elements = index + 1};
    return LS_OK;
}

static enum ls_status get_variable(struct ls_model *model, uint32_t index, float *out)
{
    memcpy(out, fake(model)->weights + index, (index + 1) * sizeof(float));
    return LS_OK;
}

static enum ls_status set_variable(struct ls_model *model, uint32_t index, const float *values)
{
    memcpy(fake(model)->weights + index, values, (index + 1) * sizeof(float));
    return LS_OK;
}

static const struct ls_fit_calls calls = {.struct_size = sizeof(calls),
                                          .metric_value = metric_value,
                                          .stop_training = stop_training,
                                          .learning_rate = learning_rate,
                                          .set_learning_rate = set_learning_rate,
                                          .variable_count = variable_count,
                                          .variable_describe = variable_describe,
                                          .get_variable = get_variable,
                                          .set_variable = set_variable};

// A callback under test, and the fit that it sees.
struct trial {
    struct ls_loader *loader;
    const struct ls_callback_interface *interface;
    struct ls_callback *state;
    struct ls_callbacks table;
    struct fake_model model;
    struct ls_fit_state fit;
};

static enum ls_status open_trial(struct trial *trial, const char *text)
{
    const struct ls_opened_plugin *plugin = NULL;
    *trial = (struct trial){.model = {.rate = (double)0.1f}};
    ck_assert_int_eq(ls_loader_create(NULL, &trial->loader), LS_OK);
    const enum ls_status status =
        ls_loader_open_text(trial->loader, "--callback", LS_KIND_CALLBACK, text, &plugin);
    if (status)
        return status;
    trial->interface = plugin->interface;
    trial->state = ls_instance_create(trial->interface, trial->interface->state_bytes);
    ck_assert_ptr_nonnull(trial->state);
    trial->table = (struct ls_callbacks){.context = trial->state, .name = plugin->plugin->name};
    trial->fit.model = (struct ls_model *)&trial->model;
    trial->fit.epoch.metrics.count = 1;
    return trial->interface->open(plugin->host, &calls, trial->state, &trial->table);
}

static void close_trial(struct trial *trial)
{
    if (trial->interface && trial->interface->close)
        trial->interface->close(trial->state);
    ls_instance_destroy(trial->state);
    ls_loader_destroy(trial->loader);
}

static void call(enum ls_status (*function)(void *context, const struct ls_fit_state *state),
                 const struct trial *trial)
{
    if (function)
        ck_assert_int_eq(function(trial->table.context, &trial->fit), LS_OK);
}

static void run_epoch(struct trial *trial, uint64_t epoch, const char *monitor, double value)
{
    struct ls_fit_state *fit = &trial->fit;
    fit->epoch.epoch = epoch;
    fit->epoch.metrics.list[0] = (struct ls_metric){.name = monitor, .value = value};
    for (int i = 0; i < 3; i++)
        trial->model.weights[i] = (float)epoch;
    call(trial->table.on_epoch_end, trial);
}

static void follow(const json_t *one)
{
    const char *callback = json_string_value(json_object_get(one, "callback"));
    const char *options = json_string_value(json_object_get(one, "options"));
    const char *monitor = strncmp(options, "monitor=loss", 12) == 0 ? "loss" : "val_loss";
    const json_t *curve = json_object_get(one, "curve"), *rates = json_object_get(one, "rates");
    char text[512];
    struct trial trial;
    uint64_t stopped = 0;
    snprintf(text, sizeof(text), "%s:%s", callback, options);
    ck_assert_int_eq(open_trial(&trial, text), LS_OK);
    call(trial.table.on_train_begin, &trial);
    for (size_t i = 0; i < json_array_size(curve) && !trial.model.stopped; i++) {
        run_epoch(&trial, i + 1, monitor, json_real_value(json_array_get(curve, i)));
        if (rates)
            ck_assert_msg(trial.model.rate == json_real_value(json_array_get(rates, i)),
                          "%s: epoch %zu has the rate %.17g", text, i + 1, trial.model.rate);
        stopped = trial.model.stopped ? i + 1 : 0;
    }
    call(trial.table.on_train_end, &trial);
    if (!rates) {
        const uint64_t expected = (uint64_t)json_integer_value(json_object_get(one, "stopped"));
        const double restored = json_number_value(json_object_get(one, "restored"));
        ck_assert_msg(stopped == expected, "%s: stopped after %u, not %u", text, (unsigned)stopped,
                      (unsigned)expected);
        for (int i = 0; i < 3; i++)
            ck_assert_msg((double)trial.model.weights[i] == restored,
                          "%s: weights of epoch %g, not %g", text, (double)trial.model.weights[i],
                          restored);
    }
    close_trial(&trial);
}

TEST(decisions_on_a_curve_are_those_of_keras)
{
    json_error_t error;
    json_t *cases = json_load_file(TEST_CURVES, 0, &error);
    ck_assert_msg(cases != NULL, "%s: %s", TEST_CURVES, error.text);
    ck_assert_uint_ge(json_array_size(cases), 70);
    for (size_t i = 0; i < json_array_size(cases); i++)
        follow(json_array_get(cases, i));
    json_decref(cases);
}

static unsigned warnings;
static char message[512];

static void count_warnings(void *context, uint32_t level, const char *line)
{
    (void)context;
    warnings += level == LS_LOG_WARN;
    if (level <= LS_LOG_WARN)
        snprintf(message, sizeof(message), "%s", line);
}

TEST(a_metric_that_there_is_not_is_said_once)
{
    struct trial trial;
    ck_assert_int_eq(open_trial(&trial, "early_stopping:monitor=val_loss"), LS_OK);
    warnings = 0;
    ls_log_set_writer(count_warnings, NULL);
    call(trial.table.on_train_begin, &trial);
    trial.fit.epoch_steps = 7;
    trial.fit.epoch.steps = 6; // it was interrupted
    run_epoch(&trial, 1, "loss", 1);
    ck_assert_uint_eq(warnings, 0);
    trial.fit.epoch.steps = 7;
    for (uint64_t epoch = 1; epoch < 5; epoch++)
        run_epoch(&trial, epoch, "loss", 1);
    ls_log_set_writer(NULL, NULL);
    ck_assert(!trial.model.stopped);
    ck_assert_uint_eq(warnings, 1);
    ck_assert_ptr_nonnull(strstr(message, "monitor=val_loss: this training has no such metric"));
    close_trial(&trial);
}

// In mode auto the metric says which way is better.
TEST(an_accuracy_is_better_when_it_is_larger)
{
    struct trial trial;
    ck_assert_int_eq(open_trial(&trial, "early_stopping:monitor=accuracy"), LS_OK);
    call(trial.table.on_train_begin, &trial);
    for (uint64_t epoch = 1; epoch <= 3 && !trial.model.stopped; epoch++) {
        trial.fit.epoch.epoch = epoch;
        trial.fit.epoch.metrics.list[0] = (struct ls_metric){
            .name = "accuracy", .value = epoch < 3 ? (double)epoch : 1.5, .upwards = 1};
        call(trial.table.on_epoch_end, &trial);
        ck_assert_int_eq(trial.model.stopped, epoch == 3);
    }
    close_trial(&trial);
}

TEST(options_that_make_no_sense_are_refused)
{
    static const struct {
        const char *text, *says;
        enum ls_status status;
    } wrong[] = {
        {"early_stopping:patience=soon", "patience", LS_USAGE},
        {"early_stopping:mode=sideways", "mode", LS_USAGE},
        {"early_stoping", "early_stopping", LS_UNAVAILABLE},
        {"reduce_lr_on_plateau:factor=1.5", "factor=1.5: expected less than 1", LS_USAGE},
        {"csv_logger:filename=", "csv_logger:filename=log.csv", LS_USAGE},
        {"csv_logger:filename=a.csv,separator=ab", "expected one letter", LS_USAGE},
        {"tensorboard:update_freq=often", "expected epoch, batch or a number", LS_USAGE},
        {"tensorboard:update_freq=3x", "expected epoch, batch or a number", LS_USAGE},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct trial trial;
        message[0] = '\0';
        ls_log_set_writer(count_warnings, NULL);
        const enum ls_status status = open_trial(&trial, wrong[i].text);
        ls_log_set_writer(NULL, NULL);
        ck_assert_msg(status == wrong[i].status, "%s: %d", wrong[i].text, (int)status);
        ck_assert_msg(strstr(message, wrong[i].says) != NULL, "%s: %s", wrong[i].text, message);
        ls_instance_destroy(trial.state);
        ls_loader_destroy(trial.loader);
    }
}

// What a file says instead of what a callback has saved: `number` in place of a word of 8 bytes.
TEST(a_state_that_no_callback_saves_is_refused)
{
    static const struct {
        const char *text;
        size_t word;
        uint64_t number;
        enum ls_status status;
    } states[] = {
        {"early_stopping:monitor=loss", 0, 5, LS_OK}, // the epochs that it waits
        {"early_stopping:monitor=loss", 0, UINT64_MAX, LS_BAD_INPUT},
        {"early_stopping:monitor=loss", 2, 2, LS_BAD_INPUT},
        {"early_stopping:monitor=loss", 3, 7, LS_BAD_INPUT},
        {"early_stopping:monitor=loss", 4, 1, LS_BAD_INPUT}, // weights, for which there is no room
        {"early_stopping:monitor=loss,restore_best_weights=on", 4, 0, LS_OK},
        {"early_stopping:monitor=loss,restore_best_weights=on", 4, 2, LS_BAD_INPUT},
        {"early_stopping:monitor=loss,restore_best_weights=on", 6, 0x7fc00000, LS_BAD_INPUT}, // NaN
        {"reduce_lr_on_plateau:monitor=loss", 2, 5, LS_OK},
        {"reduce_lr_on_plateau:monitor=loss", 0, 2, LS_BAD_INPUT},
        {"reduce_lr_on_plateau:monitor=loss", 2, INT64_MAX, LS_BAD_INPUT},
        {"reduce_lr_on_plateau:monitor=loss", 3, UINT64_MAX, LS_BAD_INPUT},
        {"csv_logger:filename=test-values.csv", 0, 3, LS_OK}, // then it is another file
        {"csv_logger:filename=test-values.csv", 0, UINT64_MAX, LS_OK},
        {"csv_logger:filename=test-values.csv", 0, INT64_MAX, LS_OK},
    };
    uint64_t words[32];
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        struct trial trial;
        struct ls_callback_state state;
        ck_assert_int_eq(open_trial(&trial, states[i].text), LS_OK);
        call(trial.table.on_train_begin, &trial);
        run_epoch(&trial, 1, "loss", 1);
        ck_assert_int_eq(trial.table.save_state(trial.table.context, &state), LS_OK);
        ck_assert_uint_le(state.bytes, sizeof(words));
        memcpy(words, state.data, state.bytes);
        state.data = words;
        ck_assert_int_eq(trial.table.load_state(trial.table.context, &state), LS_OK);
        words[states[i].word] = states[i].number;
        ls_log_set_writer(count_warnings, NULL);
        const enum ls_status status = trial.table.load_state(trial.table.context, &state);
        state.bytes -= 3;
        const enum ls_status shorter = trial.table.load_state(trial.table.context, &state);
        ls_log_set_writer(NULL, NULL);
        ck_assert_msg(status == states[i].status, "%zu: %d", i, (int)status);
        ck_assert_msg(shorter == LS_BAD_INPUT || shorter == LS_USAGE, "%zu: %d", i, (int)shorter);
        run_epoch(&trial, 2, "loss", 1);
        call(trial.table.on_train_end, &trial);
        close_trial(&trial);
    }
    (void)remove("test-values.csv");
}
