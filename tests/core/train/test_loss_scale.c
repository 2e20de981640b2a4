// SPDX-License-Identifier: Apache-2.0
// Loss scales against Keras's LossScaleOptimizer (lab/fixtures/keras_loss_scale.py), with an example whose
// gradient overflows on one of several replicas; and what a scale must not change.
#include "tests/core/train/of_keras.h"

// Of weights of float32 steps, as in test_fitting.c: the first to a few roundings, then what these grow to.
#define FIRST_STEPS 2
#define FIRST 1e-6
#define LATER 2e-5

#define MOST 1024
#define STEPS 12
#define BATCH 6
#define PARAMETERS 39

static bool is_fault(const json_t *c, size_t step)
{
    const json_t *fault;
    size_t i;
    json_array_foreach(json_object_get(c, "faults"), i, fault)
    {
        if ((size_t)json_integer_value(fault) == step)
            return true;
    }
    return false;
}

// Example `faulty` of a batch has the weight `bad` in the steps of the case that are its faults.
static struct ls_data *data_for(const json_t *c, float bad)
{
    const size_t faulty = (size_t)json_integer_value(json_object_get(fixture, "faulty"));
    float x[MOST], y[MOST], w[STEPS * BATCH];
    const int64_t xs = (int64_t)flatten(json_object_get(fixture, "x"), x) / (STEPS * BATCH);
    const int64_t ys = (int64_t)flatten(json_object_get(fixture, "y"), y) / (STEPS * BATCH);
    for (size_t i = 0; i < STEPS * BATCH; i++)
        w[i] = i % BATCH == faulty && is_fault(c, i / BATCH + 1) ? bad : 1;
    const struct ls_array input = {"float32", 2, {STEPS * BATCH, xs}, x};
    const struct ls_array target = {"float32", 2, {STEPS * BATCH, ys}, y};
    const struct ls_array weights = {"float32", 1, {STEPS * BATCH}, w};
    struct ls_data *data = NULL;
    OK(ls_data_from_memory_weighted(&input, 1, &target, &weights, &data));
    return data;
}

static struct ls_model *model_for(struct ls_run *run, const struct ls_compile_options *options)
{
    const struct ls_layer layers[] = {LS_INPUT(5),
                                      LS_DENSE(4, .name = "hidden", .activation = "tanh"),
                                      LS_DENSE(3, .name = "out"), LS_END};
    struct ls_compile_options all = *options;
    struct ls_model *model = NULL;
    float initial[PARAMETERS], *from = initial;
    all.loss = "mean_squared_error";
    all.metrics = "none";
    OK(ls_sequential_create(run, "small", layers, &model));
    OK(ls_compile(model, &all));
    OK(ls_model_need_weights(model));
    ck_assert_uint_eq(flatten(json_object_get(fixture, "initial"), initial), PARAMETERS);
    for (uint32_t i = 0; i < model->graph->parameter_count; i++) {
        const size_t count = (size_t)ls_shape_elements(&model->graph->parameters[i]->shape, 1);
        memcpy(model->weights[i], from, count * sizeof(float));
        from += count;
    }
    return model;
}

static struct ls_run *open_run(const char *strategy, const char *device, uint32_t replicas)
{
    struct ls_run *run = NULL;
    const struct ls_run_options options = {
        .strategy = strategy, .device = device, .replicas = replicas, .threads = 1};
    OK(ls_run_open(&options, &run));
    return run;
}

// All parameters, then all optimizer states that there are; how many floats.
static size_t snapshot(struct ls_model *model, float *out)
{
    size_t used = 0;
    OK(ls_model_take(model, LS_TAKE_ALL));
    for (uint32_t k = 0; k <= model->optimizer.state_count; k++) {
        float *const *from = k ? model->states[k - 1] : model->weights;
        for (uint32_t i = 0; from && i < model->graph->parameter_count; i++) {
            const size_t count = (size_t)ls_shape_elements(&model->graph->parameters[i]->shape, 1);
            memcpy(out + used, from[i], count * sizeof(float));
            used += count;
        }
    }
    return used;
}

static void train(struct ls_model *model, struct ls_data *data, uint64_t steps)
{
    OK(ls_fit(model, data,
              &(struct ls_fit_options){.batch = BATCH, .steps = steps, .shuffle = "off"}));
}

// All replicas have decided the same; their parameters were compared by the fit.
static void check_replicas(const struct ls_model *model)
{
    const struct ls_session *session = model->session;
    for (uint32_t i = 0; session && i < session->count; i++)
        ck_assert_mem_eq(ls_replica_scale(session->replicas[i]), &model->scale,
                         sizeof(model->scale));
}

static void check_weights(const json_t *c, const char *where, const float *got,
                          const json_t *expected, size_t step)
{
    const double close = step <= FIRST_STEPS ? FIRST : LATER;
    float wanted[PARAMETERS];
    ck_assert_uint_eq(flatten(expected, wanted), PARAMETERS);
    for (size_t i = 0; i < PARAMETERS; i++)
        ck_assert_msg(fabs((double)got[i] - (double)wanted[i]) <=
                          close * fmax(1, fabs((double)wanted[i])),
                      "%s on %s, step %zu: parameter %zu is %.9g, Keras has %.9g",
                      text_of(c, "optimizer"), where, step, i, (double)got[i], (double)wanted[i]);
}

static const struct {
    const char *strategy, *device;
    uint32_t replicas;
    bool each; // step is a fit, and looked at; else the last alone
} places[] = {
    {NULL, "reference", 1, true},
    {NULL, "cpu", 1, false},
    {"ring", "cpu", 3, true},
    {"direct", "reference", 3, false},
    {"central-storage", "cpu", 1, true},
    {"central-storage", "cpu", 3, false},
    {"parameter-server:mode=sync", "cpu", 3, false},
};
#define PLACES (sizeof(places) / sizeof(places[0]))

static void check_case(struct ls_run *run, const char *where, bool each, const json_t *c)
{
    const json_t *scales = json_object_get(c, "scales"), *updates = json_object_get(c, "updates");
    const json_t *weights = json_object_get(c, "weights");
    const bool averages = json_array_size(weights) == 1; // kept at the end alone
    const bool whole = averages || !each;
    float before[MOST], after[MOST];
    char scale[96];
    snprintf(scale, sizeof(scale), "dynamic:initial_scale=%.9g,dynamic_growth_steps=%d",
             json_number_value(json_object_get(c, "initial_scale")),
             (int)json_integer_value(json_object_get(c, "growth_steps")));
    struct ls_data *data = data_for(c, INFINITY);
    struct ls_model *model = model_for(
        run, &(struct ls_compile_options){.optimizer = text_of(c, "optimizer"),
                                          .learning_rate_schedule = text_of(c, "schedule"),
                                          .loss_scale = scale});
    snapshot(model, before);
    for (size_t step = whole ? STEPS : 1; step <= STEPS; step++) {
        train(model, data, whole ? STEPS : 1);
        check_replicas(model);
        ck_assert_float_eq(model->scale.scale,
                           (float)json_number_value(json_array_get(scales, step - 1)));
        ck_assert_uint_eq(model->scale.updates,
                          (uint64_t)json_integer_value(json_array_get(updates, step - 1)));
        ck_assert_uint_eq(model->scale.skipped, step - model->scale.updates);
        const size_t count = snapshot(model, after);
        check_weights(c, where, after, json_array_get(weights, averages ? 0 : step - 1), step);
        // To the bit: the states are there from the first step on.
        if (is_fault(c, step) && !whole)
            ck_assert_mem_eq(before, after, (step > 1 ? count : PARAMETERS) * sizeof(float));
        memcpy(before, after, sizeof(before));
    }
    ls_model_close(model);
    ls_data_close(data);
}

LOOP_TEST(steps_are_those_of_keras, 0, PLACES)
{
    const json_t *c, *cases = json_object_get(fixture, "cases");
    size_t i;
    char where[96];
    forget_errors();
    snprintf(where, sizeof(where), "%u replicas of %s, %s", places[_i].replicas, places[_i].device,
             places[_i].strategy ? places[_i].strategy : "one-device");
    struct ls_run *run = open_run(places[_i].strategy, places[_i].device, places[_i].replicas);
    ck_assert_uint_gt(json_array_size(cases), 0);
    json_array_foreach((json_t *)cases, i, c)
    {
        check_case(run, where, places[_i].each, c);
    }
    ls_run_close(run);
}

// ---- A scale changes nothing else ----

struct setting {
    const char *optimizer, *strategy;
    uint32_t replicas;
    uint64_t batch;
    uint32_t microbatches;
};

// Batches of 7 have shares of unequal sizes; of 2, an empty one; and a last batch is smaller.
static const struct setting settings[] = {
    {"adam:learning_rate=0.05", NULL, 1, 6, 1},
    {"adam:learning_rate=0.05", NULL, 1, 7, 3},
    {"sgd:learning_rate=0.1,momentum=0.9,global_clipnorm=0.1", "ring", 3, 7, 2},
    {"adam:learning_rate=0.05,clipnorm=0.1,weight_decay=0.1", "ring", 3, 2, 1},
    {"lamb:learning_rate=0.05,weight_decay=0.1", "halving-doubling", 3, 7, 1},
    {"rmsprop:learning_rate=0.02,clipvalue=0.05", "hierarchical-copy", 3, 2, 2},
    {"adam:learning_rate=0.05,use_ema=on", "central-storage", 3, 7, 2},
    {"adam:learning_rate=0.05,use_ema=on,global_clipnorm=0.1", "sharded", 3, 7, 2},
    {"adam:learning_rate=0.05,use_ema=on,global_clipnorm=0.1", "sharded:stage=3,bucket=200", 3, 7,
     2},
    {"sgd:learning_rate=0.1,global_clipnorm=0.1", "central-storage", 3, 2, 1},
    {"lamb:learning_rate=0.05,global_clipnorm=0.2", "parameter-server:mode=sync", 3, 7, 1},
    {"adamw:learning_rate=0.05,clipnorm=0.1", "parameter-server:mode=sync", 3, 2, 2},
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

// A batch normalization, whose moving statistics no scale may touch, and a penalty, whose gradient has it.
static size_t results(const struct setting *s, const char *scale, float *out)
{
    const struct ls_layer layers[] = {
        LS_INPUT(5), LS_DENSE(4, .name = "hidden", .kernel_regularizer = "l2:l2=0.1"),
        LS_BATCH_NORMALIZATION(), LS_DENSE(3, .name = "out"), LS_END};
    struct ls_run *run = open_run(s->strategy, "cpu", s->replicas);
    json_t *none = json_object();
    struct ls_data *data = data_for(none, 1);
    struct ls_model *model = NULL;
    size_t count;
    OK(ls_sequential_create(run, "small", layers, &model));
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = s->optimizer,
                                                      .loss = "mean_squared_error",
                                                      .loss_scale = scale}));
    OK(ls_fit(
        model, data,
        &(struct ls_fit_options){.batch = s->batch, .epochs = 2, .microbatches = s->microbatches}));
    const float *losses = ls_fit_losses(model, &count);
    memcpy(out, losses, count * sizeof(float));
    count += snapshot(model, out + count);
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
    json_decref(none);
    return count;
}

LOOP_TEST(powers_of_two_change_no_bit, 0, SETTINGS)
{
    static const char *const scales[] = {"1", "1024",
                                         "dynamic:initial_scale=65536,dynamic_growth_steps=3"};
    float without[MOST], with[MOST];
    forget_errors();
    const size_t count = results(&settings[_i], "none", without);
    for (size_t i = 0; i < sizeof(scales) / sizeof(scales[0]); i++) {
        ck_assert_uint_eq(results(&settings[_i], scales[i], with), count);
        for (size_t k = 0; k < count; k++)
            ck_assert_msg(memcmp(&with[k], &without[k], sizeof(float)) == 0,
                          "%s, scale %s: result %zu is %.9g, without a scale %.9g",
                          settings[_i].optimizer, scales[i], k, (double)with[k],
                          (double)without[k]);
    }
}

TEST(other_scales_change_roundings_only)
{
    float without[MOST], with[MOST];
    forget_errors();
    const size_t count = results(&settings[2], "none", without);
    ck_assert_uint_eq(results(&settings[2], "1000", with), count);
    for (size_t k = 0; k < count; k++)
        ck_assert_float_eq_tol(with[k], without[k], 1e-5f * fmaxf(1, fabsf(without[k])));
}

// ---- Skipped steps ----

static json_t *faults(const char *list)
{
    json_t *c = json_object();
    json_object_set_new(c, "faults", json_loads(list, 0, NULL));
    return c;
}

// Moving statistics stay, too; and the loss of the step is left out of that of the epoch.
LOOP_TEST(a_skipped_step_changes_nothing_at_all, 0, 4)
{
    static const char *const strategies[] = {"ring", "sharded", "central-storage",
                                             "parameter-server:mode=sync"};
    const struct ls_layer layers[] = {LS_INPUT(5), LS_DENSE(4), LS_BATCH_NORMALIZATION(),
                                      LS_DENSE(3), LS_END};
    float before[MOST], after[MOST];
    json_t *c = faults("[3]");
    forget_errors();
    struct ls_run *run = open_run(strategies[_i], "cpu", 3);
    struct ls_data *data = data_for(c, INFINITY);
    struct ls_model *model = NULL;
    size_t count;
    OK(ls_sequential_create(run, "small", layers, &model));
    OK(ls_compile(model, &(struct ls_compile_options){.loss = "mean_squared_error",
                                                      .metrics = "none",
                                                      .loss_scale = "128"}));
    train(model, data, 2);
    const size_t floats = snapshot(model, before);
    train(model, data, 1);
    ck_assert_uint_eq(snapshot(model, after), floats);
    ck_assert_mem_eq(before, after, floats * sizeof(float));
    ck_assert_float_eq(model->scale.scale, 128); // is fixed
    ck_assert_uint_eq(model->scale.skipped, 1);
    ck_assert(!isfinite(ls_fit_losses(model, &count)[0]));
    train(model, data, 1);
    snapshot(model, after);
    ck_assert_mem_ne(before, after, floats * sizeof(float));
    // Adam's t counts updates: after the skipped step as if it had not been.
    ck_assert_uint_eq(model->scale.updates, 3);
    ck_assert_uint_eq(model->steps_done, 4);
    OK(ls_compile(model, &(struct ls_compile_options){.loss = "mean_squared_error",
                                                      .metrics = "none",
                                                      .loss_scale = "dynamic"}));
    OK(ls_fit(model, data,
              &(struct ls_fit_options){.batch = BATCH, .epochs = 2, .shuffle = "off"}));
    const struct ls_epoch *epochs = ls_fit_epochs(model, &count);
    ck_assert_uint_eq(count, 2);
    ck_assert(isfinite(ls_metric_value(&epochs[1].metrics, "loss")));
    ck_assert_float_eq(model->scale.scale, 16384);
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
    json_decref(c);
}

TEST(the_report_has_the_scale_and_what_was_skipped)
{
    char file[] = "/tmp/lockstep-loss-scale-XXXXXX";
    const int descriptor = mkstemp(file);
    ck_assert_int_ge(descriptor, 0);
    close(descriptor);
    json_t *c = faults("[2, 5]");
    forget_errors();
    struct ls_run *run = open_run("ring", "cpu", 3);
    struct ls_data *data = data_for(c, INFINITY);
    for (int scaled = 0; scaled < 2; scaled++) {
        struct ls_model *model =
            model_for(run, &(struct ls_compile_options){.loss_scale = scaled ? "dynamic" : NULL});
        OK(ls_fit(
            model, data,
            &(struct ls_fit_options){
                .batch = BATCH, .steps = scaled ? STEPS : 1, .shuffle = "off", .report = file}));
        json_t *report = json_load_file(file, 0, NULL);
        const json_t *scale = json_object_get(report, "loss_scale");
        const json_t *skipped = json_object_get(report, "skipped_steps");
        const json_t *hashes = json_object_get(report, "parameter_hashes");
        if (scaled) {
            ck_assert_double_eq(json_number_value(scale), 8192);
            ck_assert_int_eq(json_integer_value(skipped), 2);
        } else {
            ck_assert(json_is_null(scale) && json_is_null(skipped));
        }
        ck_assert_uint_eq(json_array_size(hashes), 3);
        for (size_t i = 1; i < 3; i++)
            ck_assert_str_eq(json_string_value(json_array_get(hashes, i)),
                             json_string_value(json_array_get(hashes, 0)));
        json_decref(report);
        ls_model_close(model);
    }
    unlink(file);
    ls_data_close(data);
    ls_run_close(run);
    json_decref(c);
}

// What is too much for float32 with the first scales is not with later ones.
TEST(a_scale_falls_until_gradients_are_finite)
{
    json_t *c = faults("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]");
    size_t count;
    forget_errors();
    struct ls_run *run = open_run("ring", "cpu", 3);
    struct ls_data *data = data_for(c, 1e31f);
    struct ls_model *model = model_for(
        run, &(struct ls_compile_options){.optimizer = "sgd:learning_rate=1e-33",
                                          .loss_scale = "dynamic:initial_scale=1073741824"});
    train(model, data, STEPS);
    const float *losses = ls_fit_losses(model, &count);
    for (size_t i = 0; i < count; i++)
        ck_assert(isfinite(losses[i])); // they are not scaled
    ck_assert_uint_ge(model->scale.skipped, 2);
    ck_assert_uint_ge(model->scale.updates, 2);
    ck_assert_float_eq(model->scale.scale, 1073741824 * powf(0.5f, (float)model->scale.skipped));
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
    json_decref(c);
}

// The averages of weights begin with the first update.
TEST(weights_of_a_training_without_updates_stay)
{
    json_t *all = faults("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]");
    float before[MOST], after[MOST];
    forget_errors();
    struct ls_run *run = open_run(NULL, "cpu", 1);
    struct ls_data *bad = data_for(all, INFINITY);
    struct ls_model *model = model_for(
        run, &(struct ls_compile_options){.optimizer = "sgd:use_ema=on", .loss_scale = "8"});
    snapshot(model, before);
    train(model, bad, 3);
    ck_assert_uint_eq(model->scale.skipped, 3);
    snapshot(model, after);
    ck_assert_mem_eq(before, after, PARAMETERS * sizeof(float));
    ls_model_close(model);
    ls_data_close(bad);
    ls_run_close(run);
    json_decref(all);
}

TEST(a_hundred_skipped_steps_end_the_training)
{
    static const struct {
        const char *strategy, *scale;
    } runs[] = {{"ring", "dynamic"}, {"central-storage", "8"}, {"parameter-server:mode=sync", "8"}};
    json_t *none = json_object(), *all = faults("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]");
    float before[MOST], after[MOST];
    forget_errors();
    for (size_t i = 0; i < 3; i++) {
        struct ls_run *run = open_run(runs[i].strategy, "cpu", 3);
        struct ls_data *data = data_for(none, 1);
        struct ls_model *model =
            model_for(run, &(struct ls_compile_options){.loss_scale = runs[i].scale});
        train(model, data, 1); // one good step
        const size_t count = snapshot(model, before);
        struct ls_data *bad = data_for(all, INFINITY);
        train(model, bad, LS_MOST_SKIPS - 1);
        forget_errors();
        expect_error(
            ls_fit(model, bad,
                   &(struct ls_fit_options){.batch = BATCH, .steps = 10, .shuffle = "off"}),
            LS_FAILED, "step 101: 100 steps in a row were skipped");
        ck_assert_uint_eq(model->steps_done, 100);
        ck_assert_uint_eq(snapshot(model, after), count);
        ck_assert_mem_eq(before, after, count * sizeof(float));
        train(model, data, 1); // what is good again goes on
        ls_model_close(model);
        ls_data_close(data);
        ls_data_close(bad);
        ls_run_close(run);
    }
    json_decref(none);
    json_decref(all);
}

// As in Keras, which looks at the loss alone: gradients that overflow are skipped.
LOOP_TEST(terminate_on_nan_ends_at_a_loss_that_is_not_finite, 0, 4)
{
    static const char *const strategies[] = {"ring", "sharded", "central-storage",
                                             "parameter-server:mode=sync"};
    json_t *c = faults("[3]");
    float before[MOST], after[MOST];
    forget_errors();
    struct ls_run *run = open_run(strategies[_i], "cpu", 3);
    struct ls_data *data = data_for(c, INFINITY);
    struct ls_model *model = model_for(run, &(struct ls_compile_options){.loss_scale = "dynamic"});
    const struct ls_callbacks callbacks = {.terminate_on_nan = 1};
    train(model, data, 2);
    const size_t count = snapshot(model, before);
    OK(ls_fit(model, data,
              &(struct ls_fit_options){.batch = BATCH,
                                       .steps = STEPS,
                                       .shuffle = "off",
                                       .callbacks = &callbacks,
                                       .callback_count = 1}));
    ck_assert_uint_eq(model->steps_done, 2);
    ck_assert_uint_eq(model->scale.updates, 2);
    ck_assert_float_eq(model->scale.scale, 32768);
    ck_assert_uint_eq(snapshot(model, after), count);
    ck_assert_mem_eq(before, after, count * sizeof(float));
    train(model, data, 1); // without it the step is skipped
    ck_assert_uint_eq(model->scale.skipped, 1);
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
    json_decref(c);
}

// ---- Refusals ----

static void refused(const char *strategy, const char *text)
{
    json_t *c = json_object();
    struct ls_run *run = open_run(strategy, "cpu", 2);
    struct ls_data *data = data_for(c, 1);
    struct ls_model *model = model_for(run, &(struct ls_compile_options){.loss_scale = "8"});
    forget_errors();
    expect_error(ls_fit(model, data, &(struct ls_fit_options){.batch = BATCH}), LS_USAGE, text);
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
    json_decref(c);
}

TEST(strategies_refuse_scales_that_they_cannot_keep)
{
    forget_errors();
    refused("parameter-server", "loss scales need all gradients of a step together");
    refused("parameter-server:mode=bounded", "use mode=sync");
    refused("parameter-server:mode=sync,servers=2,shard_bytes=4", "loss scales need all gradients "
                                                                  "on one server");
}

TEST(wrong_scales_are_refused)
{
    static const struct {
        const char *scale, *text;
    } wrong[] = {
        {"dynamik", "expected dynamic, a number or none"},
        {"0", "expected a number from"},
        {"-2", "expected a number from"},
        {"1e39", "expected a number from"},
        {"nan", "expected"},
        {"dynamic:initial_scale=0", "initial_scale=0"},
        {"dynamic:dynamic_growth_steps=0", "dynamic_growth_steps=0"},
        {"dynamic:growth_steps=3", "dynamic_growth_steps"},
        {"128:initial_scale=2", "initial_scale"},
    };
    struct ls_run *run = open_run(NULL, "cpu", 1);
    const struct ls_layer layers[] = {LS_INPUT(5), LS_DENSE(3), LS_END};
    struct ls_model *model = NULL;
    OK(ls_sequential_create(run, "small", layers, &model));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        forget_errors();
        expect_error(ls_compile(model, &(struct ls_compile_options){.loss_scale = wrong[i].scale}),
                     LS_USAGE, wrong[i].text);
    }
    ls_model_close(model);
    ls_run_close(run);
}

// Keras's scale may become 0 or infinite, from where it never comes back.
TEST(scales_have_bounds)
{
    const struct ls_loss_scale dynamic = {LS_DYNAMIC_SCALE, 0x1p-126f, 1};
    struct ls_loss_scale_state state = ls_loss_scale_begin(&dynamic);
    ls_loss_scale_step(&dynamic, false, &state);
    ck_assert_float_eq(state.scale, 0x1p-126f);
    for (int i = 0; i < 300; i++)
        ls_loss_scale_step(&dynamic, true, &state);
    ck_assert_float_eq(state.scale, 0x1p126f);
    ck_assert_uint_eq(state.updates, 300);
    ck_assert_str_eq(ls_loss_scale_default(true), "dynamic");
    ck_assert_str_eq(ls_loss_scale_default(false), "none");
}

TEST_SECONDS(200);

int main(void)
{
    return run_with_fixture(LOSS_SCALE, "loss scale");
}
