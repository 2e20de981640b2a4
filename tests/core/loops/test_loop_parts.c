// SPDX-License-Identifier: Apache-2.0
// Custom loops: a loss and an optimizer of the program's own, batches from memory, and steps with more to them.
#include "tests/core/loops/loops.h"

#include <time.h>

// ---- A loss of the program's own ----

// Softmax cross-entropy of the logits, written by hand.
static enum ls_status own_loss_step(struct ls_replica_context *replica, void *context)
{
    struct ls_array outputs, labels;
    float *gradient = NULL;
    double sum = 0;
    (void)context;
    enum ls_status status = ls_context_forward(replica);
    if (!status)
        status = ls_context_output(replica, &outputs);
    if (!status)
        status = ls_context_target(replica, &labels);
    if (!status)
        status = ls_context_output_gradient(replica, &gradient);
    if (status)
        return status;
    ck_assert_str_eq(labels.dtype, "int32");
    ck_assert_uint_eq(outputs.ndims, 2);
    ck_assert_int_eq(outputs.dims[0], (int64_t)ls_context_examples(replica));
    ck_assert_int_eq(outputs.dims[1], 10);
    for (int64_t i = 0; i < outputs.dims[0]; i++) {
        const float *logits = (const float *)outputs.values + i * 10;
        const int32_t label = ((const int32_t *)labels.values)[i];
        double all = 0;
        for (int k = 0; k < 10; k++)
            all += exp((double)logits[k]);
        sum += log(all) - (double)logits[label];
        for (int k = 0; k < 10; k++)
            gradient[i * 10 + k] = (float)((exp((double)logits[k]) / all - (k == label)) /
                                           (double)ls_context_global_examples(replica));
    }
    status = ls_context_set_loss(replica, sum);
    if (!status)
        status = ls_context_update_metrics(replica);
    if (!status)
        status = ls_context_gradients(replica);
    return status ? status : ls_context_apply(replica);
}

#define LOSS_TOLERANCE 1e-6 // relative: float32 sums of other roundings, for 14 steps

LOOP_TEST(a_loss_by_the_program_is_as_the_compiled_one, 0, 4)
{
    static const struct setting some[] = {
        {"one-device", 1}, {"ring", 3}, {"central-storage", 2}, {"parameter-server:mode=sync", 2}};
    struct ls_run *many = run_of(some[_i].strategy, some[_i].replicas);
    struct ls_model *fitted = model_of(many, "sgd:learning_rate=0.05");
    struct ls_model *looped = model_of(many, "sgd:learning_rate=0.05");
    struct ls_metrics step;
    size_t count, done = 0;
    OK(ls_compile(looped, &(struct ls_compile_options){.optimizer = "sgd:learning_rate=0.05",
                                                       .loss = "none"}));
    OK(ls_fit(fitted, train, &(struct ls_fit_options){.epochs = EPOCHS, .batch = BATCH}));
    const float *expected = ls_fit_losses(fitted, &count);
    struct ls_distributed *dataset = distribute(looped, train);
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        while (ls_distributed_next(dataset)) {
            OK(ls_strategy_run(dataset, own_loss_step, NULL));
            ls_strategy_metrics(dataset, &step, NULL);
            ck_assert_uint_eq(step.count, 1);
            ck_assert_double_eq_tol(ls_metric_value(&step, "loss"), (double)expected[done],
                                    LOSS_TOLERANCE * (double)expected[done]);
            done++;
        }
    ck_assert_uint_eq(done, STEPS);
    ck_assert_double_le(weight_difference(fitted, looped), 1e-6);
    ls_distributed_close(dataset);
    ls_model_close(fitted);
    ls_model_close(looped);
    ls_run_close(many);
}

// With the factor 1 / examples as ls_fit has it, and the roundings of device cpu.
static enum ls_status squared_error_step(struct ls_replica_context *replica, void *context)
{
    const float factor = 1.0f / (float)ls_context_global_examples(replica);
    struct ls_array outputs, targets;
    float *gradient = NULL;
    double sum = 0;
    (void)context;
    enum ls_status status = ls_context_forward(replica);
    if (!status)
        status = ls_context_output(replica, &outputs);
    if (!status)
        status = ls_context_target(replica, &targets);
    if (!status)
        status = ls_context_output_gradient(replica, &gradient);
    for (int64_t i = 0; !status && i < outputs.dims[0]; i++) {
        const float error = ((const float *)outputs.values)[i] - ((const float *)targets.values)[i];
        sum += (double)error * (double)error;
        gradient[i] = 2 * error * factor;
    }
    if (!status)
        status = ls_context_set_loss(replica, sum);
    return status ? status : ls_context_minimize(replica);
}

LOOP_TEST(a_squared_error_by_the_program_gives_the_weights_of_the_compiled_one, 0, 4)
{
    static const struct setting some[] = {
        {"one-device", 1}, {"ring", 3}, {"central-storage", 2}, {"parameter-server:mode=sync", 2}};
    const struct ls_layer layers[] = {LS_INPUT(8), LS_DENSE(16, .activation = "relu"), LS_DENSE(1),
                                      LS_END};
    const struct ls_run_options options = {.strategy = some[_i].strategy,
                                           .device = "cpu",
                                           .replicas = some[_i].replicas,
                                           .threads = 1};
    struct ls_run *many = NULL;
    OK(ls_run_open(&options, &many));
    struct ls_data *data = data_of("synthetic:shape=8,classes=0,outputs=1,examples=50", "train");
    struct ls_model *models[2] = {NULL};
    for (int looped = 0; looped < 2; looped++) {
        OK(ls_sequential_create(many, "line", layers, &models[looped]));
        OK(ls_compile(models[looped], &(struct ls_compile_options){
                                          .optimizer = "sgd:learning_rate=0.05",
                                          .loss = looped ? "none" : "mean_squared_error"}));
    }
    OK(ls_fit(models[0], data, &(struct ls_fit_options){.epochs = EPOCHS, .batch = BATCH}));
    struct ls_distributed *dataset = distribute(models[1], data);
    for (int step = 0; step < STEPS; step++)
        OK(ls_strategy_run(dataset, squared_error_step, NULL));
    ck_assert_double_eq(weight_difference(models[0], models[1]), 0);
    ls_distributed_close(dataset);
    ls_data_close(data);
    ls_model_close(models[0]);
    ls_model_close(models[1]);
    ls_run_close(many);
}

static float outputs_seen[50 * 10];

static enum ls_status keeps_outputs(struct ls_replica_context *replica, void *context)
{
    struct ls_array outputs;
    uint64_t *first = context;
    enum ls_status status = ls_context_forward(replica);
    if (!status)
        status = ls_context_output(replica, &outputs);
    if (!status)
        memcpy(outputs_seen + *first * 10, outputs.values,
               (size_t)outputs.dims[0] * 10 * sizeof(float));
    *first += ls_context_examples(replica);
    return status;
}

TEST(outputs_of_a_model_with_a_loss_are_read_where_they_are_kept)
{
    struct ls_model *model = model_of(run, "sgd");
    const struct ls_distribute_options options = {.batch = 8, .evaluation = 1};
    struct ls_distributed *dataset = NULL;
    float predicted[50 * 10];
    uint64_t first = 0;
    OK(ls_distribute_dataset(model, train, &options, &dataset));
    expect_error(ls_strategy_run(dataset, keeps_outputs, &first), LS_USAGE,
                 "compile it with keep_outputs");
    ls_distributed_close(dataset);
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd", .keep_outputs = 1}));
    OK(ls_predict(model, train, 8, predicted));
    OK(ls_distribute_dataset(model, train, &options, &dataset));
    for (first = 0; ls_distributed_next(dataset);)
        OK(ls_strategy_run(dataset, keeps_outputs, &first));
    ck_assert_uint_eq(first, 50);
    ck_assert_mem_eq(outputs_seen, predicted, sizeof(predicted));
    ls_distributed_close(dataset);
    ls_model_close(model);
}

static enum ls_status forgets_the_loss(struct ls_replica_context *replica, void *context)
{
    float *gradient;
    (void)context;
    enum ls_status status = ls_context_forward(replica);
    if (!status)
        status = ls_context_output_gradient(replica, &gradient);
    return status ? status : ls_context_gradients(replica);
}

TEST(a_loss_that_nobody_computes_is_refused)
{
    struct ls_model *model = model_of(run, "sgd");
    struct ls_scores scores;
    struct ls_distributed *dataset = distribute(model, train);
    expect_error(ls_strategy_run(dataset, own_loss_step, NULL), LS_USAGE, "keep_outputs");
    expect_error(ls_strategy_run(dataset, forgets_the_loss, NULL), LS_USAGE,
                 "compile it with loss none");
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd", .loss = "none"}));
    expect_error(ls_strategy_run(dataset, forgets_the_loss, NULL), LS_USAGE,
                 "call ls_context_set_loss first");
    ls_distributed_close(dataset);
    expect_error(ls_fit(model, train, NULL), LS_USAGE, "compiled with loss none");
    expect_error(ls_evaluate(model, train, 8, &scores), LS_USAGE, "compiled with loss none");
    expect_error(ls_compile(model, &(struct ls_compile_options){.loss = "none", .metrics = "auc"}),
                 LS_USAGE, "use metrics none");
    ls_model_close(model);
}

// ---- An optimizer of the program's own ----

static atomic_uint own_updates;

// SGD as the reference device computes it.
static enum ls_status own_sgd(void *context, const struct ls_update_range *range)
{
    (void)context;
    own_updates++;
    for (uint64_t i = 0; i < range->count; i++)
        range->parameters[i] = (float)((double)range->parameters[i] -
                                       (double)range->learning_rate * (double)range->gradients[i]);
    return LS_OK;
}

// With a state, as Keras's momentum: v = 0.9 v - rate g, w += v.
static enum ls_status own_momentum(void *context, const struct ls_update_range *range)
{
    float *velocity = range->states[0];
    (void)context;
    ck_assert_ptr_null(range->states[1]);
    ck_assert_uint_ge(range->update, 1);
    for (uint64_t i = 0; i < range->count; i++) {
        const double v = (double)0.9f * (double)velocity[i] -
                         (double)range->learning_rate * (double)range->gradients[i];
        range->parameters[i] = (float)((double)range->parameters[i] + v);
        velocity[i] = (float)v;
    }
    return LS_OK;
}

static struct ls_model *own_model(struct ls_run *many, const struct ls_own_optimizer *own)
{
    struct ls_model *model = model_of(many, "sgd");
    OK(ls_compile(model, &(struct ls_compile_options){.own_optimizer = own}));
    return model;
}

#define SOME 5

LOOP_TEST(an_optimizer_by_the_program_has_the_bits_of_ours, 0, 2 * SOME)
{
    static const struct setting some[SOME] = {{"one-device", 1},
                                              {"ring", 3},
                                              {"central-storage", 2},
                                              {"parameter-server:mode=sync,servers=2", 2},
                                              {"mirrored:collective=direct", 2}};
    const bool momentum = _i >= SOME;
    struct ls_run *many = run_of(some[_i % SOME].strategy, some[_i % SOME].replicas);
    struct ls_model *fitted =
        model_of(many, momentum ? "sgd:learning_rate=0.1,momentum=0.9" : "sgd:learning_rate=0.1");
    struct ls_model *owned =
        own_model(many, &(struct ls_own_optimizer){.name = "mine",
                                                   .state_count = momentum,
                                                   .learning_rate = 0.1,
                                                   .update = momentum ? own_momentum : own_sgd});
    OK(ls_fit(fitted, train, &(struct ls_fit_options){.epochs = EPOCHS, .batch = BATCH}));
    struct ls_distributed *dataset = distribute(owned, train);
    own_updates = 0;
    for (int i = 0; i < STEPS / 2; i++)
        OK(ls_strategy_run(dataset, train_step, NULL));
    OK(ls_check_replicas(owned));
    ls_distributed_close(dataset);
    // And in ls_fit, which goes on.
    OK(ls_fit(owned, train, &(struct ls_fit_options){.batch = BATCH}));
    ck_assert_double_eq(weight_difference(fitted, owned), 0);
    if (!momentum) // at least one call for each of the six variables
        ck_assert_uint_ge(own_updates, 6 * STEPS);
    ls_model_close(fitted);
    ls_model_close(owned);
    ls_run_close(many);
}

// Where the replicas of it differ, they are found out.
static enum ls_status differs(void *context, const struct ls_update_range *range)
{
    atomic_uint *calls = context;
    range->parameters[0] += (float)atomic_fetch_add(calls, 1);
    return LS_OK;
}

static enum ls_status fails(void *context, const struct ls_update_range *range)
{
    (void)context;
    return range->update == 2 ? LS_BAD_INPUT : LS_OK;
}

TEST(an_optimizer_that_is_wrong_is_said)
{
    struct ls_run *two = run_of("ring", 2);
    atomic_uint calls = 0;
    struct ls_model *model =
        own_model(two, &(struct ls_own_optimizer){.update = differs, .context = &calls});
    struct ls_distributed *dataset = distribute(model, train);
    OK(ls_strategy_run(dataset, train_step, NULL));
    expect_error(ls_check_replicas(model), LS_FAILED, "replicas 0 and 1 have different parameters");
    ls_distributed_close(dataset);
    OK(ls_compile(model, &(struct ls_compile_options){
                             .own_optimizer = &(struct ls_own_optimizer){.update = fails}}));
    dataset = distribute(model, train);
    OK(ls_strategy_run(dataset, train_step, NULL));
    ck_assert_int_eq(ls_strategy_run(dataset, train_step, NULL), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(message, "the update function answered 'bad input'"));
    ls_distributed_close(dataset);
    forget_errors();
    expect_error(ls_compile(model, &(struct ls_compile_options){.own_optimizer =
                                                                    &(struct ls_own_optimizer){0}}),
                 LS_USAGE, "there is no update function");
    expect_error(ls_compile(model,
                            &(struct ls_compile_options){
                                .optimizer = "adam",
                                .own_optimizer = &(struct ls_own_optimizer){.update = fails}}),
                 LS_USAGE, "expected one of them");
    ls_model_close(model);
    ls_run_close(two);
}

// ---- Batches from memory ----

// 12 examples of 4 x 4 pixels and their classes.
static void fill_batch(float *pixels, int64_t *labels)
{
    for (int i = 0; i < 12 * 16; i++)
        pixels[i] = (float)(i * 37 % 101) / 101.0f;
    for (int i = 0; i < 12; i++)
        labels[i] = i % 10;
}

LOOP_TEST(a_batch_from_memory_is_a_step, 0, 3)
{
    static const struct setting some[] = {{"one-device", 1}, {"ring", 3}, {"central-storage", 2}};
    float pixels[12 * 16], predicted[120], expected[120];
    int64_t labels[12];
    fill_batch(pixels, labels);
    const struct ls_array x = {"float32", 4, {12, 4, 4, 1}, pixels};
    const struct ls_array y = {"int64", 1, {12}, labels};
    const struct ls_batch_arrays batch = {.inputs = &x, .input_count = 1, .target = &y};
    // The same in two, the second too small for all replicas.
    const struct ls_array xs[2] = {{"float32", 4, {11, 4, 4, 1}, pixels},
                                   {"float32", 4, {1, 4, 4, 1}, pixels + 11 * 16}};
    const struct ls_array ys[2] = {{"int64", 1, {11}, labels}, {"int64", 1, {1}, labels + 11}};
    struct ls_run *many = run_of(some[_i].strategy, some[_i].replicas);
    struct ls_model *fitted = model_of(many, "adam"), *batched = model_of(many, "adam");
    struct ls_data *data = NULL;
    struct ls_metrics metrics;
    struct ls_scores scores;
    size_t count;
    OK(ls_data_from_memory(&x, 1, &y, &data));
    OK(ls_fit(fitted, data, &(struct ls_fit_options){.epochs = 3, .batch = 11, .shuffle = "off"}));
    const float *fit = ls_fit_losses(fitted, &count);
    for (int i = 0; i < 6; i++) {
        OK(ls_train_on_batch(batched, &(struct ls_batch_arrays){&xs[i % 2], 1, &ys[i % 2], NULL},
                             &metrics));
        ck_assert_double_eq(ls_metric_value(&metrics, "loss"), (double)fit[i]);
        ck_assert(isfinite(ls_metric_value(&metrics, "accuracy")));
    }
    ck_assert_double_eq(weight_difference(fitted, batched), 0);
    ck_assert_uint_eq(batched->order.epochs, 0); // of its own data it has seen nothing
    OK(ls_test_on_batch(batched, &batch, &metrics));
    OK(ls_evaluate(fitted, data, 12, &scores));
    ck_assert_double_eq(ls_metric_value(&metrics, "loss"),
                        ls_metric_value(&scores.metrics, "loss"));
    OK(ls_predict_on_batch(batched, &x, 1, predicted));
    OK(ls_predict(fitted, data, 12, expected));
    ck_assert_mem_eq(predicted, expected, sizeof(expected));
    ls_data_close(data);
    ls_model_close(fitted);
    ls_model_close(batched);
    ls_run_close(many);
}

TEST(a_batch_that_does_not_fit_is_refused)
{
    float pixels[12 * 16];
    int64_t labels[12];
    fill_batch(pixels, labels);
    const struct ls_array x = {"float32", 4, {12, 4, 4, 1}, pixels};
    const struct ls_array few = {"int64", 1, {11}, labels};
    struct ls_model *model = model_of(run, "sgd");
    expect_error(ls_train_on_batch(model, &(struct ls_batch_arrays){&x, 1, &few, NULL}, NULL),
                 LS_BAD_INPUT, "11 examples, but input 0 has 12");
    expect_error(ls_train_on_batch(model, &(struct ls_batch_arrays){&x, 1, NULL, NULL}, NULL),
                 LS_USAGE, "has no targets");
    ls_model_close(model);
}

// ---- Models and strategies with more to a step ----

struct odd {
    const char *strategy;
    uint32_t replicas;
    int normalization; // 1: BatchNormalization, 2: synchronized
    const char *precision;
    bool weighted;
};

static const struct odd odds[] = {
    {"ring", 3, 1, NULL, false},
    {"ring", 3, 2, NULL, false},
    {"central-storage", 3, 2, NULL, true},
    {"ring", 2, 0, "mixed_float16", false},
    {"sharded", 3, 1, NULL, false},
    {"sharded:late=on", 2, 0, NULL, true},
    {"sharded:stage=3", 3, 1, NULL, false},
};
#define ODDS ((int)(sizeof(odds) / sizeof(odds[0])))

static struct ls_model *odd_model(struct ls_run *many, const struct odd *odd)
{
    const struct ls_layer layers[] = {
        LS_INPUT(4, 4, 1),
        LS_CONV2D(3, 2, .activation = "relu"),
        odd->normalization
            ? (struct ls_layer)LS_BATCH_NORMALIZATION(.synchronized = odd->normalization == 2)
            : (struct ls_layer)LS_DROPOUT(0.25),
        LS_FLATTEN(),
        LS_DENSE(10),
        LS_END,
    };
    struct ls_model *model = NULL;
    OK(ls_sequential_create(many, "odd", layers, &model));
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd:learning_rate=0.05"}));
    return model;
}

// 22 examples, in batches of 8: the last has 6, and with a weight each where they have one.
static struct ls_data *odd_data(bool weighted)
{
    float pixels[22 * 16], weights[22];
    int32_t labels[22];
    struct ls_data *data = NULL;
    for (int i = 0; i < 22 * 16; i++)
        pixels[i] = (float)(i * 53 % 97) / 97.0f;
    for (int i = 0; i < 22; i++) {
        labels[i] = i % 10;
        weights[i] = (float)(i % 3) / 2.0f;
    }
    const struct ls_array x = {"float32", 4, {22, 4, 4, 1}, pixels};
    const struct ls_array y = {"int32", 1, {22}, labels}, w = {"float32", 1, {22}, weights};
    OK(ls_data_from_memory_weighted(&x, 1, &y, weighted ? &w : NULL, &data));
    return data;
}

LOOP_TEST(whatever_a_step_consists_of_has_the_bits_of_fit, 0, ODDS)
{
    const struct odd *odd = &odds[_i];
    const struct ls_run_options options = {.strategy = odd->strategy,
                                           .device = "reference",
                                           .replicas = odd->replicas,
                                           .threads = 1,
                                           .precision = odd->precision};
    struct ls_run *many = NULL;
    OK(ls_run_open(&options, &many));
    struct ls_data *data = odd_data(odd->weighted);
    struct ls_model *fitted = odd_model(many, odd), *looped = odd_model(many, odd);
    struct ls_metrics step;
    size_t count, done = 0;
    OK(ls_fit(fitted, data, &(struct ls_fit_options){.epochs = 2, .batch = BATCH}));
    const float *expected = ls_fit_losses(fitted, &count);
    struct ls_distributed *dataset = distribute(looped, data);
    for (int epoch = 0; epoch < 2; epoch++)
        while (ls_distributed_next(dataset)) {
            OK(ls_strategy_run(dataset, train_step, NULL));
            ls_strategy_metrics(dataset, &step, NULL);
            ck_assert_double_eq(ls_metric_value(&step, "loss"), (double)expected[done++]);
        }
    ck_assert_uint_eq(done, count);
    ck_assert_double_eq(weight_difference(fitted, looped), 0);
    ck_assert_mem_eq(&fitted->scale, &looped->scale, sizeof(fitted->scale));
    ls_distributed_close(dataset);
    ls_data_close(data);
    ls_model_close(fitted);
    ls_model_close(looped);
    ls_run_close(many);
}

static enum ls_status fail_on_one(struct ls_replica_context *replica, void *context)
{
    const bool early = context != NULL;
    if (early && ls_context_rank(replica) == 1)
        return LS_FAILED;
    const enum ls_status status = ls_context_forward(replica);
    return ls_context_rank(replica) == 1 ? LS_FAILED : status;
}

// Behind its forward pass, or before it, while others wait for the part of the replica that ends.
// None of them writes parameters.
LOOP_TEST(a_failed_evaluation_keeps_weights_in_parts, 0, 2)
{
    const struct odd odd = {"sharded:stage=3", 3, 0, NULL, false};
    const struct ls_run_options options = {
        .strategy = odd.strategy, .device = "reference", .replicas = 3, .threads = 1};
    const struct ls_distribute_options evaluation = {.batch = BATCH, .evaluation = 1};
    struct ls_run *many = NULL;
    OK(ls_run_open(&options, &many));
    struct ls_data *data = odd_data(false);
    struct ls_model *models[2] = {odd_model(many, &odd), odd_model(many, &odd)};
    struct ls_distributed *dataset = NULL;
    for (int i = 0; i < 2; i++)
        OK(ls_fit(models[i], data, &(struct ls_fit_options){.epochs = 1, .batch = BATCH}));
    OK(ls_distribute_dataset(models[1], data, &evaluation, &dataset));
    ck_assert(ls_distributed_next(dataset));
    ck_assert_int_eq(ls_strategy_run(dataset, fail_on_one, _i ? models : NULL), LS_FAILED);
    ls_distributed_close(dataset);
    ck_assert_uint_eq(models[1]->steps_done, models[0]->steps_done);
    ck_assert_double_eq(weight_difference(models[0], models[1]), 0);
    for (int i = 0; i < 2; i++)
        OK(ls_fit(models[i], data, &(struct ls_fit_options){.epochs = 1, .batch = BATCH}));
    ck_assert_double_eq(weight_difference(models[0], models[1]), 0);
    forget_errors();
    ls_data_close(data);
    ls_model_close(models[0]);
    ls_model_close(models[1]);
    ls_run_close(many);
}

// A compile in between makes the graph, its metrics and what labels are another.
TEST(a_loop_goes_on_after_a_compile)
{
    struct ls_model *model = model_of(run, "sgd");
    struct ls_distributed *dataset = distribute(model, train);
    struct ls_metrics step;
    OK(ls_strategy_run(dataset, train_step, NULL));
    OK(ls_compile(model, &(struct ls_compile_options){
                             .optimizer = "sgd", .metrics = "sparse_top_k_categorical_accuracy"}));
    OK(ls_strategy_run(dataset, train_step, NULL));
    ls_strategy_metrics(dataset, &step, NULL);
    ck_assert(isfinite(ls_metric_value(&step, "sparse_top_k_categorical_accuracy")));
    OK(ls_compile(model,
                  &(struct ls_compile_options){.optimizer = "sgd", .loss = "mean_squared_error"}));
    expect_error(ls_strategy_run(dataset, train_step, NULL), LS_BAD_INPUT, "expects labels");
    ls_distributed_close(dataset);
    ls_model_close(model);
}

// ---- Communication of the step function's own ----

static enum ls_status counts_examples(struct ls_replica_context *replica, void *context)
{
    struct ls_comm **comms = context;
    double examples = (double)ls_context_examples(replica);
    const enum ls_status status =
        ls_comm_all_reduce(comms[ls_context_local_rank(replica)], &examples, 1, "float64", "sum");
    if (!status && examples != (double)ls_context_global_examples(replica))
        return LS_FAILED;
    return status ? status : train_step(replica, NULL);
}

TEST(a_step_function_may_communicate)
{
    struct ls_run *three = run_of("ring", 3);
    struct ls_model *model = model_of(three, "sgd");
    struct ls_distributed *dataset = distribute(model, train);
    struct ls_comm *comms[3];
    OK(ls_comm_open(&(struct ls_comm_options){.collective = "direct", .size = 3}, comms));
    while (ls_distributed_next(dataset))
        OK(ls_strategy_run(dataset, counts_examples, comms));
    for (int i = 0; i < 3; i++)
        ls_comm_close(comms[i]);
    ls_distributed_close(dataset);
    ls_model_close(model);
    ls_run_close(three);
}

static enum ls_status dawdles(struct ls_replica_context *replica, void *context)
{
    for (int i = 0; ls_context_rank(replica) == 1 && !errors && i < 2000; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL); // until somebody complains
    return train_step(replica, context);
}

TEST(a_replica_that_does_not_come_is_named_after_the_deadline)
{
    struct ls_run *two = NULL;
    OK(ls_run_open(&(struct ls_run_options){.strategy = "ring",
                                            .device = "reference",
                                            .replicas = 2,
                                            .threads = 1,
                                            .deadline_seconds = 0.2},
                   &two));
    struct ls_model *model = model_of(two, "sgd");
    struct ls_distributed *dataset = distribute(model, train);
    OK(ls_strategy_run(dataset, train_step, NULL));
    expect_error(ls_strategy_run(dataset, dawdles, NULL), LS_PEER_LOST, "for rank 1");
    expect_error(ls_strategy_run(dataset, train_step, NULL), LS_FAILED, "call ls_compile");
    OK(ls_compile(model, NULL));
    OK(ls_strategy_run(dataset, train_step, NULL));
    ls_distributed_close(dataset);
    ls_model_close(model);
    ls_run_close(two);
}

TEST_FIXTURE(set_up, tear_down);
TEST_SECONDS(120);
