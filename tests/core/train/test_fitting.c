// SPDX-License-Identifier: Apache-2.0
// Optimizers, schedules, losses, metrics and weights against Keras: a small model that Keras has
// trained for 20 steps in each of many ways (lab/fixtures/keras_fitting.py). And what holds of
// them whatever the number of replicas.
#include "tests/core/train/of_keras.h"

// Losses of float32 steps: the first to a few roundings, then what these grow to. Thresholds and
// roots of differences make more of a rounding. Adam's third step already is 1.3e-6 off, because
// devices get beta_2 as a float32 and take 1 - beta_2 of that, 0.00099998713, where Keras rounds
// 0.001; both make the correction of the float32. So v is smaller by 1.3e-5 of itself, and a step
// longer by half of that, as it always was: other bits would be other trainings.
#define FIRST_STEPS 2
#define FIRST 1e-6
#define LATER 2e-5
#define MEANS 2e-5

#define MOST 1024

static struct ls_data *data_for(const json_t *c, bool weighted)
{
    float x[MOST], y[MOST], w[MOST];
    int32_t labels[MOST];
    const json_t *targets =
        json_object_get(json_object_get(fixture, "targets"), text_of(c, "targets"));
    const int64_t count = (int64_t)json_array_size(json_object_get(fixture, "x"));
    const size_t xs = flatten(json_object_get(fixture, "x"), x), ys = flatten(targets, y);
    (void)flatten(json_object_get(fixture, "sample_weight"), w);
    const bool classes = ys == (size_t)count;
    for (size_t i = 0; i < ys; i++)
        labels[i] = (int32_t)y[i];
    const struct ls_array input = {"float32", 2, {count, (int64_t)xs / count}, x};
    const struct ls_array numbers = {"float32", 2, {count, (int64_t)ys / count}, y};
    const struct ls_array numbered = {"int32", 1, {count}, labels};
    const struct ls_array weights = {"float32", 1, {count}, w};
    struct ls_data *data = NULL;
    OK(ls_data_from_memory_weighted(&input, 1, classes ? &numbered : &numbers,
                                    weighted ? &weights : NULL, &data));
    return data;
}

static struct ls_model *model_for(struct ls_run *run, const json_t *c)
{
    const struct ls_layer layers[] = {
        LS_INPUT(5),
        LS_DENSE(4, .name = "hidden", .activation = "tanh"),
        LS_DENSE(3, .name = "out", .activation = text_of(c, "activation")),
        LS_END,
    };
    struct ls_model *model = NULL;
    OK(ls_sequential_create(run, "small", layers, &model));
    OK(ls_compile(model, &(struct ls_compile_options){
                             .optimizer = text_of(c, "optimizer"),
                             .loss = text_of(c, "loss"),
                             .metrics = text_of(c, "metrics") ? text_of(c, "metrics") : "none",
                             .learning_rate_schedule = text_of(c, "schedule")}));
    OK(ls_model_need_weights(model));
    const json_t *weights = json_object_get(fixture, "weights");
    for (uint32_t i = 0; i < model->graph->parameter_count; i++)
        (void)flatten(json_array_get(weights, i), model->weights[i]);
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

static void check(const json_t *c, const char *what, double got, double expected, double relative)
{
    ck_assert_msg(fabs(got - expected) <= relative * fmax(1, fabs(expected)),
                  "%s %s %s: %s is %.9g, Keras has %.9g", text_of(c, "optimizer"),
                  text_of(c, "schedule") ? text_of(c, "schedule") : "", text_of(c, "loss"), what,
                  got, expected);
}

static void check_metrics(const json_t *c, const char *when, const struct ls_metrics *metrics,
                          const json_t *expected)
{
    const char *name;
    json_t *value;
    char what[128];
    ck_assert_uint_eq(metrics->count, json_object_size(expected));
    json_object_foreach((json_t *)expected, name, value)
    {
        snprintf(what, sizeof(what), "%s %s", when, name);
        check(c, what, ls_metric_value(metrics, name), json_number_value(value), MEANS);
    }
}

static void fit(struct ls_model *model, struct ls_data *data, const json_t *c)
{
    OK(ls_fit(model, data,
              &(struct ls_fit_options){
                  .batch = (uint64_t)json_integer_value(json_object_get(fixture, "batch")),
                  .epochs = (uint64_t)json_integer_value(json_object_get(fixture, "epochs")),
                  .shuffle = "off",
                  .class_weight = text_of(c, "class_weight")}));
}

static void check_case(struct ls_run *run, const json_t *c)
{
    const bool weighted = json_is_true(json_object_get(c, "sample_weight"));
    struct ls_data *data = data_for(c, weighted);
    struct ls_model *model = model_for(run, c);
    float predictions[MOST], expected[MOST];
    struct ls_scores scores;
    size_t count;
    fit(model, data, c);
    const float *losses = ls_fit_losses(model, &count);
    const json_t *wanted = json_object_get(c, "losses");
    ck_assert_uint_eq(count, json_array_size(wanted));
    for (size_t i = 0; i < count; i++) {
        char what[64];
        snprintf(what, sizeof(what), "the loss of step %zu", i + 1);
        check(c, what, (double)losses[i], json_number_value(json_array_get(wanted, i)),
              i < FIRST_STEPS ? FIRST : LATER);
    }
    const struct ls_epoch *epochs = ls_fit_epochs(model, &count);
    for (size_t i = 0; i < count; i++)
        check_metrics(c, "epoch", &epochs[i].metrics,
                      json_array_get(json_object_get(c, "epochs"), i));
    OK(ls_evaluate(model, data, 8, &scores));
    check_metrics(c, "evaluation", &scores.metrics, json_object_get(c, "evaluation"));
    OK(ls_predict(model, data, 8, predictions));
    count = flatten(json_object_get(c, "predictions"), expected);
    for (size_t i = 0; i < count; i++)
        check(c, "a prediction", (double)predictions[i], (double)expected[i], LATER);
    ls_model_close(model);
    ls_data_close(data);
}

static const char *const devices[] = {"reference", "cpu"};

LOOP_TEST(fitting_is_that_of_keras, 0, 2)
{
    const json_t *c, *cases = json_object_get(fixture, "cases");
    size_t i;
    forget_errors();
    struct ls_run *run = open_run(NULL, devices[_i], 1);
    ck_assert_uint_gt(json_array_size(cases), 0);
    json_array_foreach((json_t *)cases, i, c)
    {
        check_case(run, c);
    }
    ls_run_close(run);
}

// ---- Replicas and strategies ----

static const char *const demanding[] = {
    "sgd:learning_rate=0.5,global_clipnorm=0.1",
    "adam:learning_rate=0.05,global_clipnorm=0.1,use_ema=on",
    "sgd:learning_rate=0.5,clipnorm=0.1",
    "lamb:learning_rate=0.05,weight_decay=0.1,global_clipnorm=0.2",
    "adagrad:learning_rate=0.1,weight_decay=0.1,exclude_from_weight_decay=bias",
};
#define DEMANDING (sizeof(demanding) / sizeof(demanding[0]))

// Of a batch of 3 some of 5 replicas have no share.
static const int batches[] = {0, 3};

// Losses, then the metrics of the last epoch, then predictions; how many. batch 0: the fixture's.
static size_t results_of_batches(const char *optimizer, const char *strategy, uint32_t replicas,
                                 int batch, double *out)
{
    json_t *c = json_pack("{s:s, s:s, s:s, s:s, s:s}", "optimizer", optimizer, "loss",
                          "binary_crossentropy", "activation", "sigmoid", "targets", "binary",
                          "metrics", "auc,precision,mae");
    struct ls_run *run = open_run(strategy, "cpu", replicas);
    struct ls_data *data = data_for(c, true);
    struct ls_model *model = model_for(run, c);
    float predictions[MOST];
    size_t count, used = 0;
    if (batch)
        OK(ls_fit(
            model, data,
            &(struct ls_fit_options){.batch = (uint64_t)batch, .epochs = 2, .shuffle = "off"}));
    else
        fit(model, data, c);
    const float *losses = ls_fit_losses(model, &count);
    for (size_t i = 0; i < count; i++)
        out[used++] = (double)losses[i];
    const struct ls_epoch *epochs = ls_fit_epochs(model, &count);
    for (uint32_t i = 0; i < epochs[count - 1].metrics.count; i++)
        out[used++] = epochs[count - 1].metrics.list[i].value;
    OK(ls_predict(model, data, 8, predictions));
    for (size_t i = 0; i < 12; i++)
        out[used++] = (double)predictions[i];
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
    json_decref(c);
    return used;
}

static size_t results(const char *optimizer, const char *strategy, uint32_t replicas, double *out)
{
    return results_of_batches(optimizer, strategy, replicas, 0, out);
}

// Each loop has one of the optimizers and one of the batches.
LOOP_TEST(norms_and_metrics_are_those_of_the_whole_batch, 0, 2 * DEMANDING)
{
    static const struct {
        const char *strategy;
        uint32_t replicas;
    } others[] = {{"ring", 2},
                  {"ring", 5},
                  {"tree", 5},
                  {"hierarchical-copy", 5},
                  {"mirrored:collective=direct", 3},
                  {"central-storage", 1},
                  {"central-storage", 2},
                  {"central-storage", 5},
                  {"parameter-server:mode=sync", 2},
                  {"parameter-server:mode=sync", 5}};
    double one[MOST], other[MOST];
    forget_errors();
    const char *optimizer = demanding[_i % (int)DEMANDING];
    const int batch = batches[_i / (int)DEMANDING];
    const size_t count = results_of_batches(optimizer, NULL, 1, batch, one);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (batch == 3 && others[i].replicas < 5)
            continue;
        ck_assert_uint_eq(
            results_of_batches(optimizer, others[i].strategy, others[i].replicas, batch, other),
            count);
        for (size_t k = 0; k < count; k++)
            ck_assert_msg(
                fabs(one[k] - other[k]) <= 1e-6 * fmax(1, fabs(one[k])),
                "%s, %s, %u replicas, batch %d: result %zu is %.9g, with one replica %.9g",
                optimizer, others[i].strategy, others[i].replicas, batch, k, other[k], one[k]);
    }
}

// A strategy that updates parts of variables has the bits of mirrored; but for a norm, whose squares it
// adds up in another order.
LOOP_TEST(states_may_be_spread_over_the_replicas, 0, 12)
{
    static const char *const optimizers[] = {
        "sgd:learning_rate=0.1,momentum=0.9,weight_decay=0.1",
        "adam:learning_rate=0.05,amsgrad=on",
        "adamw:learning_rate=0.05,exclude_from_weight_decay=bias,clipvalue=0.1",
        "rmsprop:learning_rate=0.02,centered=on,momentum=0.5",
        "adagrad:learning_rate=0.1",
        "adadelta:learning_rate=10",
        "adamax:learning_rate=0.05",
        "nadam:learning_rate=0.05",
        "adam:learning_rate=0.05,use_ema=on,ema_momentum=0.9,ema_overwrite_frequency=3",
        "adam:learning_rate=0.05,use_ema=on",
        "adam:learning_rate=0.05,global_clipnorm=0.1",
        "sgd:learning_rate=0.1,momentum=0.9,global_clipnorm=0.01,use_ema=on",
    };
    const double tolerance = strstr(optimizers[_i], "global_clipnorm") ? 1e-6 : 0;
    double mirrored[MOST], sharded[MOST];
    forget_errors();
    for (uint32_t replicas = 1; replicas <= 4; replicas++) {
        const size_t count = results(optimizers[_i], "ring", replicas, mirrored);
        ck_assert_uint_eq(results(optimizers[_i], "sharded", replicas, sharded), count);
        for (size_t k = 0; k < count; k++)
            ck_assert_msg(fabs(mirrored[k] - sharded[k]) <= tolerance * fmax(1, fabs(mirrored[k])),
                          "%s, %u replicas: result %zu is %.9g, mirrored has %.9g", optimizers[_i],
                          replicas, k, sharded[k], mirrored[k]);
    }
}

static void refused(const char *optimizer, const char *strategy, const char *text)
{
    json_t *c = json_pack("{s:s, s:s, s:s, s:s}", "optimizer", optimizer, "loss",
                          "mean_squared_error", "activation", "linear", "targets", "real");
    struct ls_run *run = open_run(strategy, "cpu", 2);
    struct ls_data *data = data_for(c, false);
    struct ls_model *model = model_for(run, c);
    forget_errors();
    expect_error(ls_fit(model, data, &(struct ls_fit_options){.batch = 8}), LS_USAGE, text);
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
    json_decref(c);
}

TEST(strategies_refuse_norms_that_they_cannot_give)
{
    forget_errors();
    refused("sgd:global_clipnorm=1", "parameter-server", "use mode=sync");
    refused("sgd:global_clipnorm=1", "parameter-server:mode=bounded", "use mode=sync");
    refused("sgd:clipnorm=1", "sharded", "sgd:clipnorm needs the norm of whole variables");
    refused("lamb", "sharded", "lamb needs the norm of whole variables");
    refused("sgd:global_clipnorm=1", "parameter-server:mode=sync,servers=2,shard_bytes=4",
            "servers=1");
}

TEST(a_schedule_decides_the_rate)
{
    json_t *c = json_pack("{s:s, s:s, s:s, s:s, s:s}", "optimizer", "sgd:learning_rate=0.5", "loss",
                          "mean_squared_error", "activation", "linear", "targets", "real",
                          "schedule", "exponential_decay:decay_steps=5,decay_rate=0.5");
    struct ls_run *run = open_run(NULL, "cpu", 1);
    struct ls_data *data = data_for(c, false);
    struct ls_model *model = model_for(run, c);
    size_t count;
    forget_errors();
    ck_assert_double_eq(ls_learning_rate(model), 0.5);
    fit(model, data, c); // epochs of 5 steps
    const struct ls_epoch *epochs = ls_fit_epochs(model, &count);
    ck_assert_double_eq_tol(epochs[0].learning_rate, 0.5 * pow(0.5, 0.8), 1e-12);
    ck_assert_double_eq_tol(ls_learning_rate(model), 0.5 / 16, 1e-12);
    expect_error(ls_set_learning_rate(model, 1), LS_USAGE, "exponential_decay");
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
    json_decref(c);
}

// What is wrong in names and options is said in one line, with what there is.
TEST(wrong_names_are_refused_with_what_there_is)
{
    static const struct {
        struct ls_compile_options options;
        const char *text;
    } wrong[] = {
        {{.optimizer = "ftrl"}, "adamax, nadam, lamb"},
        {{.optimizer = "adam:clip=1"}, "clipnorm, global_clipnorm"},
        {{.optimizer = "adam:clipnorm=1,clipvalue=1"}, "expected one of"},
        {{.optimizer = "adam:ema_momentum=1"}, "ema_momentum=1"},
        {{.optimizer = "adam:weight_decay=-1"}, "weight_decay=-1"},
        {{.learning_rate_schedule = "cosine"}, "cosine_decay_restarts"},
        {{.learning_rate_schedule = "cosine_decay"}, "needs decay_steps="},
        {{.learning_rate_schedule = "cosine_decay:decay_steps=0"}, "above 0"},
        {{.learning_rate_schedule = "cosine_decay:steps=3"}, "warmup_target"},
        {{.learning_rate_schedule = "piecewise_constant_decay:boundaries=1:2,values=1:2"},
         "one value more"},
        {{.loss = "dice"}, "categorical_hinge, cosine_similarity"},
        {{.loss = "huber:delta=0"}, "delta=0"},
        {{.loss = "categorical_crossentropy:label_smoothing=2"}, "from 0 to 1"},
        {{.loss = "mae:from_logits=on"}, "has no options"},
        {{.metrics = "mean_relative_error"}, "precision, recall"},
        {{.metrics = "mean_relative_error:average=macro"},
         "'mean_relative_error' is not supported yet"},
        {{.metrics = "f1_score"}, "average=macro, micro or weighted"},
        {{.metrics = "f1_score:average=macro,beta=2"}, "fbeta_score has others"},
        {{.metrics = "io_u"}, "needs target_class_ids"},
        {{.metrics = "io_u:target_class_ids=99"}, "needs numbers of classes"},
        {{.metrics = "mean_io_u:num_classes=99"}, "num_classes as the output has"},
        {{.metrics = "precision_at_recall"}, "needs recall=, from 0 to 1"},
        {{.metrics = "precision:class_id=0"}, "available: name, thresholds"},
        {{.loss = "huber:reduction=sum"}, "available: delta"},
        {{.metrics = "auc:thresholds=3"}, "thresholds from 0 to 1"},
        {{.metrics = "mae", .loss = "sparse_categorical_crossentropy"}, "a target for each"},
        {{.metrics = "auc,auc:curve=PR"}, "twice"},
        {{.metrics = "sparse_top_k_categorical_accuracy", .loss = "mse"}, "labels of classes"},
    };
    struct ls_run *run = open_run(NULL, "cpu", 1);
    const struct ls_layer layers[] = {LS_INPUT(5), LS_DENSE(3), LS_END};
    struct ls_model *model = NULL;
    OK(ls_sequential_create(run, "small", layers, &model));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        forget_errors();
        expect_error(ls_compile(model, &wrong[i].options), LS_USAGE, wrong[i].text);
    }
    ls_model_close(model);
    ls_run_close(run);
}

TEST_SECONDS(100);

int main(void)
{
    return run_with_fixture(FITTING, "fitting");
}
