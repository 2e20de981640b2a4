// SPDX-License-Identifier: Apache-2.0
// Training with batch normalization against a plain computation of Keras's formulas, under strategies
// that merge moving statistics in different ways: shares that are uneven and empty, microbatches,
// frozen layers, and what is saved.
#include "tests/core/train/support.h"
#include "tests/support/suite.h"

#include "core/data/stream.h"

#include <sys/stat.h>

#define X 16 // elements of an example
#define CLASSES 10
#define EXAMPLES 50
#define BATCH 8 // six of them, then one of 2
#define STEPS 10 // so that shares of the last batch of an epoch are empty with 3 and 4 replicas
#define RATE 0.1
#define MOMENTUM 0.9
#define EPSILON 1e-3
#define OPTIMIZER "sgd:learning_rate=0.1"

static struct ls_data *train;
static const float *examples;
static const void *labels;
static char path[64];

static uint32_t label_of(uint64_t i)
{
    const struct ls_dataset *dataset = NULL;
    OK(ls_data_wait(train, &dataset));
    return dataset->fields[1].dtype == LS_U8 ? ((const uint8_t *)labels)[i]
                                             : (uint32_t)((const int32_t *)labels)[i];
}

static void set_up(void)
{
    const struct ls_dataset *dataset = NULL;
    forget_errors();
    train = data_of("synthetic:shape=4x4x1,examples=50", "train");
    OK(ls_data_wait(train, &dataset));
    ck_assert_uint_eq(dataset->fields[0].dtype, LS_F32);
    examples = dataset->fields[0].values;
    labels = dataset->fields[1].values;
    strcpy(path, "/tmp/lockstep-moving-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(path));
}

static void tear_down(void)
{
    ls_data_close(train);
    rmdir(path);
}

// ---- The model: Flatten, BatchNormalization, Dense(10) ----

// `norm`: more options of the normalization.
static struct ls_model *model_with(struct ls_run *run, const char *norm)
{
    char file[128];
    struct ls_model *model = NULL;
    snprintf(file, sizeof(file), "%s/model.json", path);
    FILE *out = fopen(file, "w");
    ck_assert_ptr_nonnull(out);
    fprintf(out,
            "{\"class_name\": \"Sequential\", \"config\": {\"layers\": ["
            "{\"class_name\": \"InputLayer\", \"config\": {\"batch_shape\": [null, 4, 4, 1]}},"
            "{\"class_name\": \"Flatten\"},"
            "{\"class_name\": \"BatchNormalization\", \"config\": {\"name\": \"n\", \"momentum\": "
            "0.9, \"epsilon\": 0.001%s}},"
            "{\"class_name\": \"Dense\", \"config\": {\"name\": \"d\", \"units\": 10}}]}}",
            norm);
    ck_assert_int_eq(fclose(out), 0);
    OK(ls_model_open(run, file, train, &model));
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = OPTIMIZER}));
    unlink(file);
    return model;
}

static const float *weights_of(struct ls_model *model, const char *name)
{
    OK(ls_model_take(model, LS_TAKE_ALL));
    OK(ls_model_need_weights(model));
    for (uint32_t i = 0; i < model->graph->parameter_count; i++)
        if (strcmp(model->graph->parameters[i]->name, name) == 0)
            return model->weights[i];
    ck_abort_msg("no variable '%s'", name);
    return NULL;
}

// ---- The same in plain C ----

struct plain {
    struct values {
        double gamma[X], beta[X], mean[X], variance[X], w[X][CLASSES], b[CLASSES];
    } of;
    bool frozen; // the normalization takes the moving statistics and keeps gamma and beta
    bool no_gamma, no_beta;
};

static struct plain plain_of(struct ls_model *model)
{
    struct plain p = {.frozen = false};
    const float *w = weights_of(model, "d/kernel");
    for (int c = 0; c < X; c++) {
        p.of.gamma[c] = (double)weights_of(model, "n/gamma")[c];
        p.of.beta[c] = (double)weights_of(model, "n/beta")[c];
        p.of.mean[c] = (double)weights_of(model, "n/moving_mean")[c];
        p.of.variance[c] = (double)weights_of(model, "n/moving_variance")[c];
        for (int k = 0; k < CLASSES; k++)
            p.of.w[c][k] = (double)w[c * CLASSES + k];
    }
    for (int k = 0; k < CLASSES; k++)
        p.of.b[k] = (double)weights_of(model, "d/bias")[k];
    return p;
}

static void moments(uint64_t first, uint64_t count, double mean[X], double variance[X])
{
    for (int c = 0; c < X; c++) {
        mean[c] = variance[c] = 0;
        for (uint64_t i = first; i < first + count; i++)
            mean[c] += (double)examples[i * X + (uint64_t)c] / (double)count;
        for (uint64_t i = first; i < first + count; i++) {
            const double d = (double)examples[i * X + (uint64_t)c] - mean[c];
            variance[c] += d * d / (double)count;
        }
    }
}

// Logits to softmax; the loss of the example.
static double forward(const struct plain *p, uint64_t example, const double mean[X],
                      const double variance[X], double h[X], double softmax[CLASSES])
{
    double largest = -INFINITY, sum = 0;
    for (int c = 0; c < X; c++)
        h[c] =
            ((double)examples[example * X + (uint64_t)c] - mean[c]) / sqrt(variance[c] + EPSILON);
    for (int k = 0; k < CLASSES; k++) {
        softmax[k] = p->of.b[k];
        for (int c = 0; c < X; c++)
            softmax[k] += (p->of.gamma[c] * h[c] + p->of.beta[c]) * p->of.w[c][k];
        largest = fmax(largest, softmax[k]);
    }
    for (int k = 0; k < CLASSES; k++)
        sum += softmax[k] = exp(softmax[k] - largest);
    for (int k = 0; k < CLASSES; k++)
        softmax[k] /= sum;
    return -log(softmax[label_of(example)]);
}

// One block: adds its gradients, those of the moving statistics included.
static double block_of(const struct plain *p, uint64_t first, uint64_t count, double global,
                       struct plain *gradient)
{
    double mean[X], variance[X], loss = 0;
    if (count == 0)
        return 0;
    moments(first, count, mean, variance);
    for (int c = 0; c < X; c++) {
        gradient->of.mean[c] += mean[c] * (double)count / global;
        gradient->of.variance[c] += variance[c] * (double)count / global;
        mean[c] = p->frozen ? p->of.mean[c] : mean[c];
        variance[c] = p->frozen ? p->of.variance[c] : variance[c];
    }
    for (uint64_t i = first; i < first + count; i++) {
        double h[X], dz[CLASSES];
        loss += forward(p, i, mean, variance, h, dz);
        dz[label_of(i)] -= 1;
        for (int k = 0; k < CLASSES; k++) {
            dz[k] /= global;
            gradient->of.b[k] += dz[k];
        }
        for (int c = 0; c < X; c++)
            for (int k = 0; k < CLASSES; k++) {
                gradient->of.w[c][k] += (p->of.gamma[c] * h[c] + p->of.beta[c]) * dz[k];
                gradient->of.gamma[c] += h[c] * p->of.w[c][k] * dz[k];
                gradient->of.beta[c] += p->of.w[c][k] * dz[k];
            }
    }
    return loss;
}

// Returns the mean loss.
static double step_of(struct plain *p, uint64_t first, uint64_t count, uint32_t world,
                      uint32_t microbatches)
{
    struct plain g = {.frozen = false};
    double loss = 0;
    for (uint32_t rank = 0; rank < world; rank++) {
        uint64_t offset, share;
        ls_share(&(struct ls_shares){.world = world}, count, microbatches, rank, &offset, &share);
        for (uint32_t block = 0; block < microbatches; block++) {
            uint64_t at, size;
            ls_microbatch(share, microbatches, block, &at, &size);
            loss += block_of(p, first + offset + at, size, (double)count, &g);
        }
    }
    for (int c = 0; c < X; c++) {
        if (!p->frozen) {
            p->of.gamma[c] -= p->no_gamma ? 0 : RATE * g.of.gamma[c];
            p->of.beta[c] -= p->no_beta ? 0 : RATE * g.of.beta[c];
            p->of.mean[c] = MOMENTUM * p->of.mean[c] + (1 - MOMENTUM) * g.of.mean[c];
            p->of.variance[c] = MOMENTUM * p->of.variance[c] + (1 - MOMENTUM) * g.of.variance[c];
        }
        for (int k = 0; k < CLASSES; k++)
            p->of.w[c][k] -= RATE * g.of.w[c][k];
    }
    for (int k = 0; k < CLASSES; k++)
        p->of.b[k] -= RATE * g.of.b[k];
    return loss / (double)count;
}

static void check_weights(struct ls_model *model, const struct plain *expected)
{
    const struct plain found = plain_of(model);
    for (int c = 0; c < X; c++) {
        ck_assert_double_eq_tol(found.of.gamma[c], expected->of.gamma[c], 1e-5);
        ck_assert_double_eq_tol(found.of.beta[c], expected->of.beta[c], 1e-5);
        ck_assert_double_eq_tol(found.of.mean[c], expected->of.mean[c], 1e-5);
        ck_assert_double_eq_tol(found.of.variance[c], expected->of.variance[c], 1e-5);
        for (int k = 0; k < CLASSES; k++)
            ck_assert_double_eq_tol(found.of.w[c][k], expected->of.w[c][k], 1e-5);
    }
    for (int k = 0; k < CLASSES; k++)
        ck_assert_double_eq_tol(found.of.b[k], expected->of.b[k], 1e-5);
}

// ---- Steps ----

struct setting {
    const char *strategy;
    uint32_t replicas, microbatches;
    const char *device;
};

static const struct setting settings[] = {
    {"one-device", 1, 1, "reference"},
    {"one-device", 1, 1, "cpu"},
    {"one-device", 1, 2, "cpu"},
    {"one-device", 1, 3, "reference"},
    {"ring", 1, 1, "cpu"},
    {"ring", 2, 1, "cpu"},
    {"ring", 3, 1, "cpu"},
    {"ring", 4, 1, "reference"},
    {"ring", 2, 2, "cpu"},
    {"hierarchical-copy", 2, 1, "cpu"},
    {"hierarchical-copy", 3, 1, "reference"},
    {"mirrored:collective=tree", 4, 1, "cpu"},
    {"central-storage", 1, 1, "cpu"},
    {"central-storage", 2, 1, "cpu"},
    {"central-storage", 3, 1, "reference"},
    {"central-storage", 4, 1, "cpu"},
    {"central-storage", 2, 3, "cpu"},
    {"parameter-server:mode=sync", 1, 1, "cpu"},
    {"parameter-server:mode=sync", 2, 1, "cpu"},
    {"parameter-server:mode=sync,servers=2", 3, 1, "reference"},
    {"parameter-server:mode=sync,servers=2", 4, 1, "cpu"},
    {"sharded", 3, 1, "cpu"}, // parts of buckets, which begin between the zones
    {"sharded:late=on", 4, 1, "reference"},
    {"sharded:stage=2,bucket=200", 3, 1, "cpu"},
    {"sharded:stage=3,bucket=200", 3, 1, "reference"},
};
#define SETTINGS ((int)(sizeof(settings) / sizeof(settings[0])))

static struct ls_run *open_run(const struct setting *setting)
{
    struct ls_run *run = NULL;
    OK(ls_run_open(&(struct ls_run_options){.strategy = setting->strategy,
                                            .device = setting->device,
                                            .replicas = setting->replicas,
                                            .threads = 1,
                                            .seed = 5},
                   &run));
    return run;
}

static void fit(struct ls_model *model, const struct setting *setting, uint64_t steps)
{
    OK(ls_fit(model, train,
              &(struct ls_fit_options){.epochs = 9,
                                       .steps = steps,
                                       .batch = BATCH,
                                       .shuffle = "off",
                                       .microbatches = setting->microbatches}));
}

static uint64_t first_of(uint64_t step)
{
    return step % 7 * BATCH;
}

static uint64_t count_of(uint64_t step)
{
    return step % 7 == 6 ? EXAMPLES - 6 * BATCH : BATCH;
}

static void check_steps(const struct setting *setting, const char *norm, struct plain *expected,
                        bool look)
{
    struct ls_run *run = open_run(setting);
    struct ls_model *model = model_with(run, norm);
    const struct plain begin = plain_of(model);
    expected->of = begin.of;
    for (uint64_t step = 0; step < STEPS; step++) {
        uint64_t hashes[4];
        size_t count;
        if (step == 1 && look) // what the first step begins with must not be at 0 and 1
            ck_assert_double_gt(fabs(expected->of.mean[0]), 1e-4);
        fit(model, setting, 1);
        OK(ls_session_hashes(model->session, hashes)); // equal on all replicas
        const float *losses = ls_fit_losses(model, &count);
        ck_assert_uint_eq(count, 1);
        const double loss = step_of(expected, first_of(step), count_of(step), setting->replicas,
                                    setting->microbatches);
        ck_assert_double_eq_tol((double)losses[0], loss, 1e-5 * loss);
        check_weights(model, expected);
    }
    ls_model_close(model);
    ls_run_close(run);
}

LOOP_TEST(every_strategy_does_what_keras_does, 0, SETTINGS)
{
    struct plain expected = {.frozen = false};
    check_steps(&settings[_i], "", &expected, true);
}

LOOP_TEST(a_frozen_normalization_takes_the_moving_statistics_and_stays, 0, SETTINGS)
{
    struct plain expected = {.frozen = true};
    check_steps(&settings[_i],
                ", \"trainable\": false, \"moving_variance_initializer\": {\"class_name\": "
                "\"Constant\", \"config\": {\"value\": 0.3}}, \"moving_mean_initializer\": "
                "{\"class_name\": \"Constant\", \"config\": {\"value\": 0.1}}",
                &expected, false);
    ck_assert_double_eq_tol(expected.of.variance[3], 0.3, 1e-7);
}

LOOP_TEST(without_scale_and_center_gamma_is_1_and_beta_0, 0, SETTINGS)
{
    struct plain expected = {.no_gamma = true, .no_beta = true};
    check_steps(&settings[_i], ", \"scale\": false, \"center\": false", &expected, true);
    ck_assert_double_eq(expected.of.gamma[3], 1);
    ck_assert_double_eq(expected.of.beta[3], 0);
}

// Replicas that have the same share of each batch, or microbatches of it, give the same model.
LOOP_TEST(the_same_shares_give_the_same_model_under_every_strategy, 0, 2)
{
    static const struct setting same[][6] = {
        {{"one-device", 1, 2, "cpu"},
         {"ring", 2, 1, "cpu"},
         {"hierarchical-copy", 2, 1, "cpu"},
         {"central-storage", 2, 1, "cpu"},
         {"parameter-server:mode=sync", 2, 1, "cpu"},
         {"parameter-server:mode=sync,servers=3", 2, 1, "cpu"}},
        {{"one-device", 1, 4, "cpu"},
         {"ring", 2, 2, "cpu"},
         {"hierarchical-copy", 4, 1, "cpu"},
         {"central-storage", 4, 1, "cpu"},
         {"parameter-server:mode=sync", 2, 2, "cpu"},
         {"mirrored:collective=halving-doubling", 4, 1, "cpu"}},
    };
    struct ls_run *runs[6];
    struct ls_model *models[6];
    for (int i = 0; i < 6; i++) {
        runs[i] = open_run(&same[_i][i]);
        models[i] = model_with(runs[i], "");
        fit(models[i], &same[_i][i], STEPS);
        ck_assert_double_le(weight_difference(models[0], models[i]), 1e-6);
    }
    for (int i = 0; i < 6; i++) {
        ls_model_close(models[i]);
        ls_run_close(runs[i]);
    }
}

// A replica without examples pushes nothing that moves the statistics: with two examples, which one
// of two replicas trains one after the other, they stay between what the two examples have.
TEST(an_empty_share_leaves_statistics_alone_where_replicas_do_not_wait)
{
    struct ls_run *run = run_of("parameter-server:mode=async", 2);
    struct ls_data *two = data_of("synthetic:shape=4x4x1,examples=50,limit=2", "train");
    struct ls_model *model = model_with(run, ", \"center\": false");
    uint32_t checked = 0;
    OK(ls_fit(model, two, &(struct ls_fit_options){.epochs = 100, .batch = 1, .shuffle = "off"}));
    const float *mean = weights_of(model, "n/moving_mean");
    for (int c = 0; c < X; c++) {
        const float low = fminf(examples[c], examples[X + c]);
        const float high = fmaxf(examples[c], examples[X + c]);
        ck_assert_float_ge(mean[c], low - 0.02f);
        ck_assert_float_le(mean[c], high + 0.02f);
        checked += low > 0.1f || high < -0.1f;
    }
    ck_assert_uint_gt(checked, 0); // else no value would show that they shrink
    ls_model_close(model);
    ls_data_close(two);
    ls_run_close(run);
}

// ---- Evaluation and files ----

static double plain_loss(const struct plain *p)
{
    double loss = 0, h[X], softmax[CLASSES];
    for (uint64_t i = 0; i < EXAMPLES; i++)
        loss += forward(p, i, p->of.mean, p->of.variance, h, softmax) / EXAMPLES;
    return loss;
}

LOOP_TEST(evaluation_takes_the_moving_statistics_whatever_the_shares, 0, SETTINGS)
{
    const struct setting *setting = &settings[_i];
    struct ls_run *run = open_run(setting);
    struct ls_model *model = model_with(run, "");
    struct ls_scores scores;
    fit(model, setting, STEPS);
    const struct plain p = plain_of(model);
    const double loss = plain_loss(&p);
    static const uint64_t batches[] = {BATCH, 1, 7, EXAMPLES};
    for (int i = 0; i < 4; i++) {
        OK(ls_evaluate(model, train, batches[i], &scores));
        ck_assert_uint_eq(scores.examples, EXAMPLES);
        ck_assert_double_eq_tol(ls_metric_value(&scores.metrics, "loss"), loss, 1e-5 * loss);
    }
    ls_model_close(model);
    ls_run_close(run);
}

LOOP_TEST(files_have_keras_s_variables_and_no_constants, 0, 4)
{
    static const struct {
        const char *norm;
        const char *header; // in the order of the file's data
    } cases[] = {
        {"", "n/gamma n/beta n/moving_mean n/moving_variance d/kernel d/bias"},
        {", \"scale\": false", "n/beta n/moving_mean n/moving_variance d/kernel d/bias"},
        {", \"center\": false, \"scale\": false",
         "n/moving_mean n/moving_variance d/kernel d/bias"},
        {", \"trainable\": false",
         "n/gamma n/beta n/moving_mean n/moving_variance d/kernel d/bias"},
    };
    const struct setting ring = {"ring", 2, 1, "cpu"};
    struct ls_run *run = open_run(&ring);
    char file[128], header[2048] = "";
    snprintf(file, sizeof(file), "%s/w.safetensors", path);
    struct ls_model *model = model_with(run, cases[_i].norm);
    struct ls_model *other = model_with(run, cases[_i].norm);
    fit(model, &ring, 3);
    OK(ls_save_weights(model, file));
    FILE *in = fopen(file, "rb");
    ck_assert_ptr_nonnull(in);
    fseek(in, 8, SEEK_SET);
    ck_assert_uint_gt(fread(header, 1, sizeof(header) - 1, in), 0);
    fclose(in);
    char names[256];
    const char *last = header;
    size_t count = 0;
    snprintf(names, sizeof(names), "%s", cases[_i].header);
    for (char *name = strtok(names, " "); name; name = strtok(NULL, " ")) {
        char quoted[64];
        snprintf(quoted, sizeof(quoted), "\"%s\"", name);
        const char *found = strstr(last, quoted);
        ck_assert_msg(found != NULL, "%s is not in %s, or too early", quoted, header);
        last = found;
        count++;
    }
    size_t shapes = 0;
    for (const char *at = header; (at = strstr(at, "\"shape\"")); at++)
        shapes++;
    ck_assert_uint_eq(shapes, count);
    OK(ls_load_weights(other, file));
    ck_assert_double_eq(weight_difference(model, other), 0);
    struct ls_scores a, b;
    OK(ls_evaluate(model, train, BATCH, &a));
    OK(ls_evaluate(other, train, BATCH, &b));
    ck_assert_double_eq(ls_metric_value(&a.metrics, "loss"), ls_metric_value(&b.metrics, "loss"));
    unlink(file);
    ls_model_close(model);
    ls_model_close(other);
    ls_run_close(run);
}

// Two fits of five steps are one of ten: Adam's moments and statistics go on, through the stores too.
LOOP_TEST(statistics_go_on_over_fits, 0, SETTINGS)
{
    const struct setting *setting = &settings[_i];
    struct ls_run *run = open_run(setting);
    struct ls_model *once = model_with(run, ""), *twice = model_with(run, "");
    const struct ls_compile_options adam = {.optimizer = "adam:learning_rate=0.01"};
    OK(ls_compile(once, &adam));
    OK(ls_compile(twice, &adam));
    fit(once, setting, STEPS);
    for (int i = 0; i < 2; i++) {
        fit(twice, setting, STEPS / 2);
        OK(ls_model_take(twice, LS_TAKE_ALL)); // to the host, and with the next session back
        OK(ls_session_close(twice));
    }
    ck_assert_double_eq(weight_difference(once, twice), 0);
    ls_model_close(once);
    ls_model_close(twice);
    ls_run_close(run);
}

TEST_FIXTURE(set_up, tear_down);
TEST_SECONDS(120);
