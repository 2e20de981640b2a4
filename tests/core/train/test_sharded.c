// SPDX-License-Identifier: Apache-2.0
// Strategy sharded beside mirrored: the same bits, less memory, and checkpoints that go on anywhere. Replicas of one process;
// tests/programs/test_sharded.py has several.
#include "core/train/model_calls.h"
#include "core/train/session.h"
#include "core/train/session_values.h"
#include "tests/core/train/support.h"
#include "tests/support/suite.h"

#define SAVED "sharded-test.safetensors"
#define STEPS 25 // three epochs, and more than the 20 after which averages become weights
#define BATCH 7 // shares are unequal, and the last batch of an epoch has 1 example

static struct ls_data *train;

static void set_up(void)
{
    forget_errors();
    train = data_of(DATA, "train");
}

static void tear_down(void)
{
    unlink(SAVED);
    ls_data_close(train);
}

// Of several buckets, cut within variables, with moving statistics in front and a frozen layer
// behind.
static struct ls_model *wide_model(struct ls_run *run, const char *optimizer, int64_t width)
{
    const struct ls_layer layers[] = {
        LS_INPUT(4, 4, 1),
        LS_CONV2D(3, 2, .activation = "relu", .frozen = 1),
        LS_BATCH_NORMALIZATION(),
        LS_FLATTEN(),
        LS_DENSE(37, .activation = "tanh"),
        LS_DENSE(width, .activation = "relu"),
        LS_DROPOUT(0.25),
        LS_DENSE(227, .activation = "tanh"),
        LS_DENSE(10),
        LS_END,
    };
    struct ls_model *model = NULL;
    OK(ls_sequential_create(run, "wide", layers, &model));
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = optimizer}));
    return model;
}

// Bit i: layer i does not learn. Moving statistics of a frozen normalization are frozen, too.
static struct ls_model *tuned_model(struct ls_run *run, uint32_t frozen)
{
    struct ls_layer layers[] = {
        LS_INPUT(4, 4, 1),
        LS_CONV2D(5, 3, .activation = "relu"),
        LS_BATCH_NORMALIZATION(),
        LS_CONV2D(7, 2),
        LS_FLATTEN(),
        LS_DENSE(31, .activation = "tanh"),
        LS_DENSE(60, .activation = "relu"),
        LS_DENSE(47, .activation = "tanh"),
        LS_DENSE(10),
        LS_END,
    };
    struct ls_model *model = NULL;
    for (uint32_t i = 0; i < sizeof(layers) / sizeof(layers[0]); i++)
        layers[i].frozen = frozen >> i & 1;
    OK(ls_sequential_create(run, "tuned", layers, &model));
    OK(ls_compile(model,
                  &(struct ls_compile_options){.optimizer = "adam:learning_rate=0.01,use_ema=on"}));
    return model;
}

// Whose moving statistics fill buckets of their own.
static struct ls_model *normal_model(struct ls_run *run)
{
    struct ls_layer layers[12] = {LS_INPUT(4, 4, 1), LS_FLATTEN()};
    struct ls_model *model = NULL;
    for (int i = 2; i < 10; i++)
        layers[i] = i % 2 ? (struct ls_layer)LS_BATCH_NORMALIZATION()
                          : (struct ls_layer)LS_DENSE(150, .activation = "relu");
    layers[10] = (struct ls_layer)LS_DENSE(10);
    layers[11] = (struct ls_layer)LS_END;
    OK(ls_sequential_create(run, "normal", layers, &model));
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "adam"}));
    return model;
}

// In which nothing depends on how a batch is divided.
static struct ls_model *plain_model(struct ls_run *run)
{
    const struct ls_layer layers[] = {LS_INPUT(4, 4, 1), LS_FLATTEN(),
                                      LS_DENSE(131, .activation = "tanh"), LS_DENSE(10), LS_END};
    struct ls_model *model = NULL;
    OK(ls_sequential_create(run, "plain", layers, &model));
    OK(ls_compile(
        model, &(struct ls_compile_options){.optimizer = "adam:learning_rate=0.001,use_ema=on"}));
    return model;
}

static void fit(struct ls_model *model, uint64_t steps)
{
    OK(ls_fit(model, train,
              &(struct ls_fit_options){.batch = BATCH, .steps = steps, .epochs = 99}));
}

static void expect_equal(struct ls_model *one, struct ls_model *other)
{
    size_t count, same;
    const float *losses = ls_fit_losses(one, &count), *others = ls_fit_losses(other, &same);
    ck_assert_uint_eq(count, same);
    ck_assert_mem_eq(losses, others, count * sizeof(float));
    OK(ls_model_take(one, LS_TAKE_ALL));
    OK(ls_model_take(other, LS_TAKE_ALL));
    for (uint32_t i = 0; i < one->graph->parameter_count; i++) {
        const size_t bytes =
            (size_t)ls_shape_elements(&one->graph->parameters[i]->shape, 1) * sizeof(float);
        ck_assert_mem_eq(one->weights[i], other->weights[i], bytes);
        for (uint32_t k = 0; k < one->optimizer.state_count; k++)
            ck_assert_mem_eq(one->states[k][i], other->states[k][i], bytes);
    }
}

// ---- The same bits ----

static const char *const optimizers[] = {
    "adam:learning_rate=0.01", "adam:learning_rate=0.01,use_ema=on,ema_overwrite_frequency=20",
    "sgd:learning_rate=0.05,momentum=0.9"};

// With buckets of a variable or a few: nine of them.
static const char *const stages[] = {
    "sharded:bucket=2000", "sharded:late=on,bucket=2000", "sharded:stage=2,bucket=2000",
    "sharded:stage=2,late=on,bucket=2000", "sharded:stage=3,bucket=2000"};
#define STAGES 5

// Each stage with 1 to 4 replicas.
LOOP_TEST(weights_states_and_losses_are_those_of_mirrored, 0, 4 * STAGES)
{
    const uint32_t replicas = (uint32_t)_i % 4 + 1;
    const char *optimizer = optimizers[(_i + _i / 4) % 3];
    struct ls_run *one = run_of("mirrored:collective=ring,bucket=2000", replicas);
    struct ls_run *other = run_of(stages[_i / 4], replicas);
    struct ls_model *mirrored = wide_model(one, optimizer, 60);
    struct ls_model *sharded = wide_model(other, optimizer, 60);
    fit(mirrored, STEPS);
    fit(sharded, STEPS);
    expect_equal(mirrored, sharded);
    ck_assert_uint_eq(errors, 0);
    ls_model_close(mirrored);
    ls_model_close(sharded);
    ls_run_close(one);
    ls_run_close(other);
}

#define FROZEN_FIRST 0x2
#define FROZEN_BASE 0xfe
#define FROZEN_MIDDLE 0x38
static const uint32_t frozen[] = {
    FROZEN_FIRST, FROZEN_MIDDLE, 0x100, FROZEN_BASE, 0x1fc, 0xaa, 0x154, 0x1df,
};
#define FREEZINGS (sizeof(frozen) / sizeof(frozen[0]))

// The first layer, some in the middle, the last, all but one, and every other one.
LOOP_TEST(layers_that_do_not_learn_are_those_of_mirrored, 0, 4 * FREEZINGS)
{
    const uint32_t replicas = (uint32_t)_i % 4 + 1, which = frozen[_i / 4];
    static float outputs[2][10 * 64];
    struct ls_run *one = run_of("mirrored:collective=ring,bucket=2000", replicas);
    struct ls_run *other = run_of("sharded:stage=3,bucket=2000", replicas);
    struct ls_model *mirrored = tuned_model(one, which), *sharded = tuned_model(other, which);
    fit(mirrored, STEPS);
    fit(sharded, STEPS);
    OK(ls_predict(mirrored, train, BATCH, outputs[0]));
    OK(ls_predict(sharded, train, BATCH, outputs[1]));
    ck_assert_mem_eq(outputs[0], outputs[1], sizeof(outputs[0]));
    expect_equal(mirrored, sharded);
    ck_assert_uint_eq(errors, 0);
    ls_model_close(mirrored);
    ls_model_close(sharded);
    ls_run_close(one);
    ls_run_close(other);
}

// Contributions to them are written in forward, and leave when backward begins.
TEST(many_moving_statistics_are_those_of_mirrored)
{
    static const char *const with[] = {"mirrored:collective=ring,bucket=1000",
                                       "sharded:stage=2,bucket=1000",
                                       "sharded:stage=3,bucket=1000"};
    struct ls_run *runs[3];
    struct ls_model *models[3];
    for (int i = 0; i < 3; i++) {
        runs[i] = run_of(with[i], 2);
        models[i] = normal_model(runs[i]);
        fit(models[i], 10);
    }
    expect_equal(models[0], models[1]);
    expect_equal(models[0], models[2]);
    ck_assert_uint_eq(errors, 0);
    for (int i = 0; i < 3; i++) {
        ls_model_close(models[i]);
        ls_run_close(runs[i]);
    }
}

// Moving statistics are read with what is trained, ranks have no examples in the last batch, and a
// training goes on afterwards.
TEST(evaluations_and_predictions_are_those_of_mirrored)
{
    static const char *const with[] = {"mirrored:collective=ring,bucket=2000",
                                       "sharded:stage=3,bucket=2000"};
    struct ls_run *runs[2];
    struct ls_model *models[2];
    struct ls_scores found[2];
    static float outputs[2][10 * 64];
    for (int i = 0; i < 2; i++) {
        runs[i] = run_of(with[i], 3);
        models[i] = wide_model(runs[i], optimizers[0], 60);
        fit(models[i], 3);
        OK(ls_evaluate(models[i], train, BATCH, &found[i]));
        OK(ls_predict(models[i], train, BATCH, outputs[i]));
        fit(models[i], 3);
    }
    for (size_t i = 0; i < found[0].metrics.count; i++)
        ck_assert_double_eq(found[0].metrics.list[i].value, found[1].metrics.list[i].value);
    ck_assert_uint_eq(found[0].examples, found[1].examples);
    ck_assert_mem_eq(outputs[0], outputs[1], sizeof(outputs[0]));
    expect_equal(models[0], models[1]);
    for (int i = 0; i < 2; i++) {
        ls_model_close(models[i]);
        ls_run_close(runs[i]);
    }
}

// [replica thread]
static enum ls_status interrupt_third(void *context, const struct ls_fit_state *state)
{
    if (state->batch == 3)
        ls_run_interrupt(context);
    return state->batch > 10 ? LS_FAILED : LS_OK;
}

// Behind one batch for all replicas, which wait for each other's parameters, and can go on.
TEST(an_interrupted_evaluation_ends_before_its_last_batch)
{
    struct ls_run *run = run_of("sharded:stage=3,bucket=2000", 4);
    struct ls_model *model = wide_model(run, optimizers[0], 60);
    const struct ls_callbacks calls = {.context = run, .on_test_batch_end = interrupt_third};
    struct ls_scores scores;
    fit(model, 3);
    OK(ls_set_callbacks(model, &calls, 1));
    ck_assert_int_eq(ls_evaluate(model, train, 1, &scores), LS_INTERRUPTED);
    OK(ls_set_callbacks(model, NULL, 0));
    OK(ls_evaluate(model, train, BATCH, &scores));
    fit(model, 3);
    ck_assert_uint_eq(errors, 0);
    ls_model_close(model);
    ls_run_close(run);
}

// Whose reduce-scatter may add in another order than its all-reduce, or has none of its own.
LOOP_TEST(every_collective_gives_the_losses_of_mirrored, 0, 14)
{
    static const char *const collectives[] = {
        "ring", "halving-doubling", "tree", "torus", "direct", "two-level", "hierarchical-copy"};
    const uint32_t replicas = (uint32_t)_i % 2 + 3;
    char text[2][64];
    struct ls_run *runs[2];
    struct ls_model *models[2];
    size_t counts[2];
    const float *losses[2];
    for (int i = 0; i < 2; i++) {
        snprintf(text[i], sizeof(text[i]), "%s:collective=%s", i ? "sharded" : "mirrored",
                 collectives[_i / 2]);
        runs[i] = run_of(text[i], replicas);
        models[i] = wide_model(runs[i], "adam", 40);
        fit(models[i], 10);
        losses[i] = ls_fit_losses(models[i], &counts[i]);
    }
    ck_assert_uint_eq(counts[0], 10);
    ck_assert_uint_eq(counts[1], 10);
    for (size_t i = 0; i < 10; i++)
        ck_assert_double_le(fabs((double)losses[0][i] - (double)losses[1][i]),
                            _i / 2 ? 1e-6 * (double)losses[0][i] : 0);
    for (int i = 0; i < 2; i++) {
        ls_model_close(models[i]);
        ls_run_close(runs[i]);
    }
}

// The squares of the ranks are added in another order; blocks of a share and empty shares (a batch
// of 2) are as ever.
LOOP_TEST(norms_are_those_of_mirrored, 0, STAGES)
{
    const struct ls_fit_options options = {
        .batch = _i % 2 ? 2 : 9, .steps = 10, .epochs = 9, .microbatches = _i % 2 ? 1 : 2};
    struct ls_run *one = run_of("mirrored", 3), *other = run_of(stages[_i], 3);
    struct ls_model *mirrored = wide_model(one, "adam:learning_rate=0.01,global_clipnorm=0.05", 40);
    struct ls_model *sharded =
        wide_model(other, "adam:learning_rate=0.01,global_clipnorm=0.05", 40);
    size_t count, same;
    OK(ls_fit(mirrored, train, &options));
    OK(ls_fit(sharded, train, &options));
    const float *losses = ls_fit_losses(mirrored, &count), *others = ls_fit_losses(sharded, &same);
    ck_assert_uint_eq(count, 10);
    ck_assert_uint_eq(same, 10);
    for (size_t i = 0; i < count; i++)
        ck_assert_double_eq_tol((double)losses[i], (double)others[i], 1e-6 * (double)losses[i]);
    ls_model_close(mirrored);
    ls_model_close(sharded);
    ls_run_close(one);
    ls_run_close(other);
}

// ---- Memory ----

// Of ten equal layers, of which the last alone may learn.
static struct ls_model *deep_model(struct ls_run *run, const char *optimizer, bool tunes)
{
    struct ls_layer layers[12] = {LS_INPUT(4, 4, 1), LS_FLATTEN()};
    struct ls_model *model = NULL;
    for (int i = 2; i < 10; i++)
        layers[i] = (struct ls_layer)LS_DENSE(200, .activation = "tanh", .frozen = tunes);
    layers[10] = (struct ls_layer)LS_DENSE(10);
    layers[11] = (struct ls_layer)LS_END;
    OK(ls_sequential_create(run, "deep", layers, &model));
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = optimizer}));
    return model;
}

// Of all that is no activation, of the replica that has most.
static uint64_t bytes_of(struct ls_model *model, uint32_t replicas)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < replicas; i++) {
        uint64_t all, activations;
        ls_replica_bytes(model->session->replicas[i], &all, &activations);
        largest = all - activations > largest ? all - activations : largest;
    }
    return largest;
}

// The same in bytes a trained parameter. `buckets`: that many of the largest are taken off.
static double bytes_per_parameter(const char *strategy, uint32_t replicas, const char *optimizer,
                                  uint32_t buckets)
{
    struct ls_run *run = run_of(strategy, replicas);
    struct ls_model *model = deep_model(run, optimizer, false);
    fit(model, 1);
    const uint64_t largest = bytes_of(model, replicas);
    const struct ls_buckets *all = ls_replica_buckets(model->session->replicas[0]);
    uint64_t bucket = 0;
    for (uint32_t i = 0; i < all->count; i++)
        bucket = all->list[i].bytes > bucket ? all->list[i].bytes : bucket;
    const double parameters = (double)ls_model_parameters(model);
    ls_model_close(model);
    ls_run_close(run);
    return (double)(largest - buckets * bucket) / parameters;
}

// Padding, sums, and what a library needs beside them are within 2 %.
LOOP_TEST(each_stage_takes_the_memory_of_its_parts, 0, 4)
{
    const uint32_t replicas = (uint32_t)_i + 1, slots = replicas > 1;
    static const char *const with[] = {"mirrored", "sharded", "sharded:stage=2,bucket=170000",
                                       "sharded:stage=3,bucket=170000"};
    const double parts = 1.0 / replicas;
    const double expected[] = {16, 8 + 8 * parts, 4 + 12 * parts, 16 * parts};
    const uint32_t buckets[] = {0, 0, 2 * slots, 4 * slots};
    double found = 0;
    for (uint32_t stage = 0; stage < 4; stage++) {
        found = bytes_per_parameter(with[stage], replicas, "adam", buckets[stage]);
        ck_assert_double_eq_tol(found, expected[stage], expected[stage] * 0.02);
    }
    const double average =
        bytes_per_parameter(with[3], replicas, "adam:use_ema=on", buckets[3]) - found;
    ck_assert_double_eq_tol(average, 4 * parts, 4 * parts * 0.02);
}

// 285,800 parameters that do not learn are in parts, and 2,010 that do: 16 bytes each, and a bucket
// of gradients.
LOOP_TEST(what_does_not_learn_is_in_parts, 0, 3)
{
    const uint32_t replicas = (uint32_t)_i + 2;
    const double rest = 285800 - 800, head = 2010, bucket = 40200; // layer 2 to 8 has a bucket each
    struct ls_run *run = run_of("sharded:stage=3,bucket=170000", replicas);
    struct ls_model *model = deep_model(run, "adam", true);
    fit(model, 1);
    const double expected = (4 * rest + 16 * head) / replicas + 4 * (2 * bucket + head);
    ck_assert_double_eq_tol((double)bytes_of(model, replicas), expected, 0.02 * expected);
    ls_model_close(model);
    ls_run_close(run);
}

// Where nothing was trained: 4 bytes a parameter in parts and two buckets, and a training goes on
// afterwards.
LOOP_TEST(an_evaluation_alone_has_its_parts, 0, 3)
{
    const uint32_t replicas = (uint32_t)_i + 2;
    static const char *const with[] = {"mirrored:collective=ring,bucket=170000",
                                       "sharded:bucket=170000", "sharded:stage=3,bucket=170000"};
    const double count = 287810, bucket = 40200;
    const double parts = 4 * count / replicas + 8 * bucket;
    struct ls_scores found[3];
    static float outputs[3][2][10 * 64];
    struct ls_model *models[3];
    struct ls_run *runs[3];
    for (int i = 0; i < 3; i++) {
        const double expected = i == 2 ? parts : 4 * count;
        runs[i] = run_of(with[i], replicas);
        models[i] = deep_model(runs[i], "adam", false);
        OK(ls_predict(models[i], train, BATCH, outputs[i][0]));
        OK(ls_evaluate(models[i], train, BATCH, &found[i]));
        ck_assert_double_eq_tol((double)bytes_of(models[i], replicas), expected, 0.02 * expected);
        ck_assert_int_eq(ls_session_spreads_parameters(models[i]->session), i == 2);
        fit(models[i], 3);
        OK(ls_predict(models[i], train, BATCH, outputs[i][1]));
        ck_assert_double_eq(found[i].metrics.list[0].value, found[0].metrics.list[0].value);
        ck_assert_mem_eq(outputs[i], outputs[0], sizeof(outputs[0]));
    }
    expect_equal(models[0], models[1]);
    expect_equal(models[0], models[2]);
    ck_assert_uint_eq(errors, 0);
    for (int i = 0; i < 3; i++) {
        ls_model_close(models[i]);
        ls_run_close(runs[i]);
    }
}

// A model whose parameters fit no replica is evaluated on four, from what was saved.
TEST(a_model_that_does_not_fit_one_replica_is_evaluated_on_four)
{
    static const char *const with[] = {"mirrored", "sharded", "sharded:stage=3,bucket=170000"};
    struct ls_run *run = run_of("mirrored", 1);
    struct ls_model *model = deep_model(run, "adam", false);
    struct ls_scores expected, found;
    fit(model, 3);
    OK(ls_evaluate(model, train, 8, &expected));
    OK(ls_save_model(model, SAVED));
    ls_model_close(model);
    ls_run_close(run);
    for (int i = 0; i < 3; i++) {
        const struct ls_run_options options = {.strategy = with[i],
                                               .device = "cpu:memory=1000000",
                                               .replicas = 4,
                                               .threads = 1,
                                               .seed = 5};
        OK(ls_run_open(&options, &run));
        model = deep_model(run, "adam", false);
        OK(ls_load_model(model, SAVED));
        ck_assert_int_eq(ls_evaluate(model, train, 8, &found), i == 2 ? LS_OK : LS_OUT_OF_MEMORY);
        ck_assert_int_eq(errors == 0, i == 2);
        forget_errors();
        ls_model_close(model);
        ls_run_close(run);
    }
    for (size_t i = 0; i < expected.metrics.count; i++)
        ck_assert_double_eq_tol(found.metrics.list[i].value, expected.metrics.list[i].value, 1e-5);
}

static enum ls_status train_within(const char *strategy, const char *device, uint32_t replicas)
{
    struct ls_run *run = NULL;
    const struct ls_run_options options = {
        .strategy = strategy, .device = device, .replicas = replicas, .threads = 1, .seed = 5};
    OK(ls_run_open(&options, &run));
    struct ls_model *model = deep_model(run, "adam", false);
    const enum ls_status status =
        ls_fit(model, train, &(struct ls_fit_options){.batch = 8, .steps = 3, .epochs = 9});
    ls_model_close(model);
    ls_run_close(run);
    return status;
}

// 287,000 parameters: 4.6 MB of 16 bytes each, 2.9 MB of 10, 2.4 of 7 and two buckets, 1.8 of 4
// and four.
TEST(a_model_that_does_not_fit_one_replica_trains_on_four)
{
    static const char *const with[] = {NULL, "mirrored", "sharded", "sharded:stage=2,bucket=170000",
                                       "sharded:stage=3,bucket=170000"};
    static const char *const devices[] = {"cpu:memory=4000000", "cpu:memory=2800000",
                                          "cpu:memory=2100000"};
    for (int device = 0; device < 3; device++)
        for (int i = 0; i < 5; i++) {
            const bool fits = i >= 2 + device;
            const enum ls_status status = train_within(with[i], devices[device], i ? 4 : 1);
            ck_assert_int_eq(status, fits ? LS_OK : LS_OUT_OF_MEMORY);
            ck_assert_int_eq(errors == 0, fits);
            forget_errors();
        }
}

// ---- Checkpoints ----

struct place {
    const char *strategy;
    uint32_t replicas;
};

// Ten steps here, saved, ten steps there: as long as the number of replicas stays, to the bit.
LOOP_TEST(a_saved_training_goes_on_in_any_world, 0, 12)
{
    static const struct place places[][2] = {
        {{"sharded", 3}, {"sharded", 3}},
        {{"sharded", 3}, {"mirrored:collective=ring", 3}},
        {{"mirrored:collective=ring", 3}, {"sharded", 3}},
        {{"sharded:stage=3", 3}, {"sharded:stage=2", 3}},
        {{"sharded:stage=3", 3}, {"mirrored:collective=ring", 3}},
        {{"mirrored:collective=ring", 3}, {"sharded:stage=3", 3}},
        {{"sharded:stage=3", 4}, {"sharded:stage=3", 2}},
        {{"sharded", 4}, {"sharded", 2}},
        {{"sharded", 2}, {NULL, 1}},
        {{"sharded:late=on", 2}, {"central-storage", 2}},
        {{"sharded:stage=2", 3}, {"mirrored:collective=ring", 3}},
        {{"sharded:stage=3,bucket=2000", 4}, {"sharded:stage=2", 2}},
    };
    const struct place *from = &places[_i][0], *to = &places[_i][1];
    const bool exact = from->replicas == to->replicas && from->replicas == 3;
    struct ls_run *one = run_of(from->strategy, from->replicas);
    struct ls_model *first = plain_model(one);
    fit(first, 10);
    OK(ls_save_model(first, SAVED));
    struct ls_run *other = run_of(to->strategy, to->replicas);
    struct ls_model *second = plain_model(other);
    OK(ls_load_model(second, SAVED));
    fit(first, 10);
    fit(second, 10);
    size_t count, same;
    const float *losses = ls_fit_losses(first, &count), *others = ls_fit_losses(second, &same);
    ck_assert_uint_eq(count, same);
    for (size_t i = 0; i < count; i++)
        ck_assert_double_eq_tol((double)losses[i], (double)others[i], 1e-5 * (double)losses[i]);
    if (exact)
        expect_equal(first, second);
    ck_assert_uint_eq(errors, 0);
    ls_model_close(first);
    ls_model_close(second);
    ls_run_close(one);
    ls_run_close(other);
}

// Another set of layers learns after a training is loaded.
LOOP_TEST(a_saved_training_goes_on_with_other_layers, 0, 16)
{
    static const struct place places[][2] = {
        {{"sharded:stage=3,bucket=2000", 3}, {"sharded:stage=3,bucket=2000", 3}},
        {{"sharded:stage=3,bucket=2000", 3}, {"mirrored:collective=ring,bucket=2000", 3}},
        {{"mirrored:collective=ring,bucket=2000", 3}, {"sharded:stage=3,bucket=2000", 3}},
        {{"sharded:stage=3,bucket=2000", 2}, {"sharded:stage=3,bucket=2000", 3}},
    };
    static const uint32_t from[] = {FROZEN_BASE, 0x100, FROZEN_FIRST, 0};
    static const uint32_t to[] = {FROZEN_MIDDLE, 0, FROZEN_BASE, FROZEN_BASE};
    struct ls_run *saves = run_of(places[_i % 4][0].strategy, places[_i % 4][0].replicas);
    struct ls_model *first = tuned_model(saves, from[_i / 4]), *models[2];
    struct ls_run *runs[2] = {run_of("mirrored:collective=ring,bucket=2000", 3),
                              run_of(places[_i % 4][1].strategy, 3)};
    fit(first, 10);
    OK(ls_save_model(first, SAVED));
    for (int i = 0; i < 2; i++) {
        models[i] = tuned_model(runs[i], to[_i / 4]);
        OK(ls_load_model(models[i], SAVED));
        fit(models[i], 10);
    }
    expect_equal(models[0], models[1]);
    ck_assert_uint_eq(errors, 0);
    for (int i = 0; i < 2; i++) {
        ls_model_close(models[i]);
        ls_run_close(runs[i]);
    }
    ls_model_close(first);
    ls_run_close(saves);
}

// ---- Values in and out ----

static uint64_t hash_of(struct ls_model *model, uint32_t replicas)
{
    uint64_t hashes[4] = {0};
    OK(ls_session_hashes(model->session, hashes));
    for (uint32_t i = 1; i < replicas; i++)
        ck_assert_uint_eq(hashes[i], hashes[0]);
    return hashes[0];
}

static size_t file_of(const char *path, char **out)
{
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    const size_t bytes = (size_t)ftell(file);
    rewind(file);
    *out = malloc(bytes);
    ck_assert_uint_eq(fread(*out, 1, bytes, file), bytes);
    fclose(file);
    return bytes;
}

// Nothing of it makes a copy of the model on the host; also with averages, which become weights.
LOOP_TEST(values_in_parts_go_one_by_one, 0, 2)
{
    struct ls_run *one = run_of("mirrored:collective=ring", 4),
                  *other = run_of("sharded:stage=3", 4);
    struct ls_model *mirrored = wide_model(one, optimizers[_i], 200);
    struct ls_model *sharded = wide_model(other, optimizers[_i], 200);
    char *files[2];
    fit(mirrored, 5);
    fit(sharded, 5);
    OK(ls_session_give_assigned(mirrored->session)); // its averages
    ck_assert_uint_eq(hash_of(sharded, 4), hash_of(mirrored, 4));
    OK(ls_save_weights(mirrored, SAVED));
    const size_t bytes = file_of(SAVED, &files[0]);
    OK(ls_save_weights(sharded, SAVED));
    ck_assert_uint_eq(file_of(SAVED, &files[1]), bytes);
    ck_assert_mem_eq(files[0], files[1], bytes);
    OK(ls_save_model(sharded, SAVED));
    for (uint32_t i = 0; i < ls_variable_count(sharded); i++) {
        struct ls_variable about;
        OK(ls_variable_describe(sharded, i, &about));
        float *values = malloc(2 * about.elements * sizeof(*values));
        OK(ls_get_variable(mirrored, i, values));
        OK(ls_get_variable(sharded, i, values + about.elements));
        ck_assert_mem_eq(values, values + about.elements, about.elements * sizeof(*values));
        for (uint64_t k = 0; k < about.elements; k++)
            values[k] *= 0.5F;
        OK(ls_set_variable(mirrored, i, values));
        OK(ls_set_variable(sharded, i, values));
        free(values);
    }
    ck_assert(sharded->ahead && !sharded->weights && !sharded->states[0]);
    fit(mirrored, 5);
    fit(sharded, 5);
    OK(ls_session_give_assigned(mirrored->session));
    ck_assert_uint_eq(hash_of(sharded, 4), hash_of(mirrored, 4));
    ck_assert(!sharded->weights && !sharded->states[0]);
    // A saved model goes to the replicas one by one, too.
    OK(ls_load_model(sharded, SAVED));
    fit(sharded, 1);
    ck_assert(!sharded->weights && !sharded->states[0]);
    ck_assert_uint_eq(errors, 0);
    free(files[0]);
    free(files[1]);
    ls_model_close(mirrored);
    ls_model_close(sharded);
    ls_run_close(one);
    ls_run_close(other);
}

// The last update makes it so. A replica that holds none of it says so, too.
TEST(a_parameter_in_parts_that_is_not_finite_is_named)
{
    static const char *const strategies[] = {"mirrored", "sharded:stage=3"};
    const struct ls_layer layers[] = {LS_INPUT(4, 4, 1), LS_FLATTEN(), LS_DENSE(1), LS_END};
    char said[2][sizeof(message)];
    for (int i = 0; i < 2; i++) {
        struct ls_run *run = run_of(strategies[i], 4);
        struct ls_model *model = NULL;
        OK(ls_sequential_create(run, "one", layers, &model));
        OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd:learning_rate=3e38",
                                                          .loss = "mean_squared_error"}));
        ck_assert_int_eq(ls_fit(model, train, &(struct ls_fit_options){.batch = 50, .epochs = 1}),
                         LS_FAILED);
        ck_assert_ptr_nonnull(strstr(message, "after the last step '"));
        ck_assert_uint_eq(errors, 1);
        snprintf(said[i], sizeof(said[i]), "%s", strstr(message, "after")); // behind the rank
        forget_errors();
        ls_model_close(model);
        ls_run_close(run);
    }
    ck_assert_str_eq(said[0], said[1]);
}

TEST_FIXTURE(set_up, tear_down);
TEST_SECONDS(120);
