// SPDX-License-Identifier: Apache-2.0
// Custom training loops: the bits of ls_fit, and what is wrong with a step function.
#include "tests/core/loops/loops.h"

#include <time.h>

static const struct setting settings[] = {
    {"one-device", 1},
    {"ring", 2},
    {"ring", 3},
    {"direct", 2},
    {"direct", 3},
    {"central-storage", 1},
    {"central-storage", 2},
    {"central-storage", 3},
    {"parameter-server:mode=sync", 1},
    {"parameter-server:mode=sync", 2},
    {"parameter-server:mode=sync", 3},
};
#define SETTINGS ((int)(sizeof(settings) / sizeof(settings[0])))

LOOP_TEST(a_loop_of_step_functions_has_the_bits_of_fit, 0, SETTINGS)
{
    const struct setting *setting = &settings[_i];
    struct ls_run *many = run_of(setting->strategy, setting->replicas);
    struct ls_model *fitted = model_of(many, "adam:learning_rate=0.01");
    struct ls_model *looped = model_of(many, "adam:learning_rate=0.01");
    struct ls_metrics step, all;
    size_t count, epochs_count, done = 0;
    OK(ls_fit(fitted, train, &(struct ls_fit_options){.epochs = EPOCHS, .batch = BATCH}));
    const float *expected = ls_fit_losses(fitted, &count);
    const struct ls_epoch *epochs = ls_fit_epochs(fitted, &epochs_count);
    ck_assert_uint_eq(count, STEPS);
    struct ls_distributed *dataset = distribute(looped, train);
    ck_assert_uint_eq(ls_distributed_steps(dataset), STEPS / EPOCHS);
    for (size_t epoch = 0; epoch < EPOCHS; epoch++) {
        ls_strategy_reset_metrics(dataset);
        while (ls_distributed_next(dataset)) {
            double loss;
            OK(ls_strategy_run(dataset, train_step, NULL));
            ls_strategy_metrics(dataset, &step, &all);
            const double found = ls_metric_value(&step, "loss");
            ck_assert_double_eq(found, (double)expected[done++]);
            OK(ls_strategy_reduce(many, "sum", losses, 1, &loss));
            ck_assert_double_eq_tol(loss, found, 1e-6);
        }
        ck_assert_uint_eq(done, (epoch + 1) * STEPS / EPOCHS);
        for (uint32_t i = 0; i < all.count; i++) {
            ck_assert_str_eq(all.list[i].name, epochs[epoch].metrics.list[i].name);
            ck_assert_double_eq(all.list[i].value, epochs[epoch].metrics.list[i].value);
        }
    }
    ck_assert_double_eq(weight_difference(fitted, looped), 0);
    uint64_t hashes[3];
    OK(ls_session_hashes(looped->session, hashes));
    ls_distributed_close(dataset);
    ls_model_close(fitted);
    ls_model_close(looped);
    ls_run_close(many);
}

// One after the other, by turns.
TEST(loops_and_fits_go_on_from_each_other)
{
    struct ls_run *two = run_of("ring", 2);
    struct ls_model *fitted = model_of(two, "adam"), *mixed = model_of(two, "adam");
    struct ls_metrics step;
    size_t count;
    OK(ls_fit(fitted, train, &(struct ls_fit_options){.epochs = 9, .steps = 11, .batch = BATCH}));
    const float *expected = ls_fit_losses(fitted, &count);
    struct ls_distributed *dataset = distribute(mixed, train);
    for (int i = 0; i < 3; i++)
        OK(ls_strategy_run(dataset, train_step, NULL));
    ls_distributed_close(dataset);
    OK(ls_fit(mixed, train, &(struct ls_fit_options){.epochs = 9, .steps = 6, .batch = BATCH}));
    const float *found = ls_fit_losses(mixed, &count);
    ck_assert_mem_eq(found, expected + 3, 6 * sizeof(*found));
    dataset = distribute(mixed, train);
    struct ls_scores scores;
    for (int i = 9; i < 11; i++) {
        OK(ls_strategy_run(dataset, train_step, NULL));
        ls_strategy_metrics(dataset, &step, NULL);
        ck_assert_double_eq(ls_metric_value(&step, "loss"), (double)expected[i]);
        OK(ls_evaluate(mixed, test, 8, &scores)); // between two runs
    }
    ck_assert_double_eq(weight_difference(fitted, mixed), 0);
    ls_distributed_close(dataset);
    ls_model_close(fitted);
    ls_model_close(mixed);
    ls_run_close(two);
}

static enum ls_status test_step(struct ls_replica_context *replica, void *context)
{
    (void)context;
    const enum ls_status status = ls_context_forward(replica);
    return status ? status : ls_context_update_metrics(replica);
}

TEST(a_loop_evaluates_as_evaluate_does)
{
    struct ls_run *three = run_of("ring", 3);
    struct ls_model *model = model_of(three, "adam");
    struct ls_distributed *dataset = NULL;
    struct ls_metrics all;
    struct ls_scores scores;
    OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 8}));
    OK(ls_distribute_dataset(
        model, train, &(struct ls_distribute_options){.batch = 8, .evaluation = 1}, &dataset));
    while (ls_distributed_next(dataset))
        OK(ls_strategy_run(dataset, test_step, NULL));
    ls_strategy_metrics(dataset, NULL, &all);
    OK(ls_evaluate(model, train, 8, &scores));
    ck_assert_uint_eq(all.count, scores.metrics.count);
    for (uint32_t i = 0; i < all.count; i++)
        ck_assert_double_eq_tol(all.list[i].value, scores.metrics.list[i].value, 1e-6);
    ls_distributed_close(dataset);
    ls_model_close(model);
    ls_run_close(three);
}

// ---- Wrong step functions ----

struct wrong {
    const char *does;
    enum ls_status (*function)(struct ls_replica_context *replica, void *context);
    enum ls_status status;
    const char *text;
    bool harmless; // nobody had begun a step
};

static bool is_first(const struct ls_replica_context *replica)
{
    return ls_context_rank(replica) == 0;
}

static enum ls_status fails_at_once(struct ls_replica_context *replica, void *context)
{
    (void)replica;
    (void)context;
    return LS_BAD_INPUT;
}

static enum ls_status fails_on_one(struct ls_replica_context *replica, void *context)
{
    const enum ls_status status = train_step(replica, context);
    return status || is_first(replica) ? status : LS_BAD_INPUT;
}

static enum ls_status fails_within_the_step(struct ls_replica_context *replica, void *context)
{
    const enum ls_status status = ls_context_forward(replica);
    if (status || !is_first(replica))
        return status ? status : LS_BAD_INPUT;
    (void)context;
    (void)!ls_context_gradients(replica);
    return ls_context_apply(replica);
}

static enum ls_status says_interrupted(struct ls_replica_context *replica, void *context)
{
    return is_first(replica) ? train_step(replica, context) : LS_INTERRUPTED;
}

static enum ls_status answers_no_status(struct ls_replica_context *replica, void *context)
{
    return is_first(replica) ? train_step(replica, context) : (enum ls_status)4711;
}

static enum ls_status forgets_apply_on_one(struct ls_replica_context *replica, void *context)
{
    if (is_first(replica))
        return train_step(replica, context);
    const enum ls_status status = ls_context_forward(replica);
    return status ? status : ls_context_gradients(replica);
}

static enum ls_status throws_the_step_away(struct ls_replica_context *replica, void *context)
{
    (void)context;
    return ls_context_forward(replica);
}

static enum ls_status makes_no_step_on_one(struct ls_replica_context *replica, void *context)
{
    return is_first(replica) ? train_step(replica, context) : LS_OK;
}

static enum ls_status applies_first(struct ls_replica_context *replica, void *context)
{
    (void)context;
    (void)!ls_context_apply(replica);
    return LS_OK; // which hides nothing
}

static enum ls_status has_no_forward(struct ls_replica_context *replica, void *context)
{
    (void)context;
    return ls_context_gradients(replica);
}

static enum ls_status makes_two_steps(struct ls_replica_context *replica, void *context)
{
    const enum ls_status status = train_step(replica, context);
    return status ? status : train_step(replica, context);
}

static enum ls_status asks_for_the_loss_late(struct ls_replica_context *replica, void *context)
{
    double sum;
    (void)context;
    enum ls_status status = ls_context_forward(replica);
    if (!status)
        status = ls_context_gradients(replica);
    return status ? status : ls_context_loss(replica, &sum, NULL);
}

static const struct wrong wrongs[] = {
    {"fails", fails_at_once, LS_BAD_INPUT, "the step function answered 'bad input'", true},
    {"fails on one", fails_on_one, LS_BAD_INPUT, "(status 3) on replica 1", false},
    {"fails within", fails_within_the_step, LS_BAD_INPUT, "(status 3) on replica 1", false},
    {"interrupted", says_interrupted, LS_FAILED, "(status 130) on replica 1", false},
    {"no status", answers_no_status, LS_FAILED, "(status 4711) on replica 1", false},
    {"forgets apply", forgets_apply_on_one, LS_USAGE,
     "on replica 1 after ls_context_gradients, without ls_context_apply", false},
    {"throws away", throws_the_step_away, LS_USAGE, "cannot be thrown away", false},
    {"no step on one", makes_no_step_on_one, LS_USAGE, "without ", true},
    {"applies first", applies_first, LS_USAGE, "call ls_context_gradients first", true},
    {"no forward", has_no_forward, LS_USAGE, "call ls_context_forward first", true},
    {"two steps", makes_two_steps, LS_USAGE, "has made a step of this batch already", false},
    {"late loss", asks_for_the_loss_late, LS_USAGE, "before ls_context_gradients", false},
};
#define WRONGS ((int)(sizeof(wrongs) / sizeof(wrongs[0])))

static uint64_t milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

// Under a collective, and under a barrier or servers; the deadline is a minute.
LOOP_TEST(a_wrong_step_function_is_an_error_and_never_a_hang, 0, 2 * WRONGS)
{
    const struct wrong *wrong = &wrongs[_i / 2];
    const char *other = _i / 2 % 2 ? "central-storage" : "parameter-server:mode=sync";
    struct ls_run *two = run_of(_i % 2 ? "ring" : other, 2);
    struct ls_model *model = model_of(two, "sgd");
    struct ls_distributed *dataset = distribute(model, train);
    const uint64_t start = milliseconds();
    OK(ls_strategy_run(dataset, train_step, NULL));
    const enum ls_status status = ls_strategy_run(dataset, wrong->function, NULL);
    ck_assert_uint_lt(milliseconds() - start, 50000);
    ck_assert_msg(status == wrong->status, "%s: %d: %s", wrong->does, (int)status, message);
    ck_assert_msg(errors >= 1 && strstr(message, wrong->text), "%s: %s", wrong->does, message);
    forget_errors();
    // Whatever it was, the loop goes on, from what the model is now.
    if (wrong->harmless && wrong->function != makes_no_step_on_one)
        ck_assert_uint_eq(model->steps_done, 1);
    OK(ls_strategy_run(dataset, train_step, NULL));
    ls_distributed_close(dataset);
    ls_model_close(model);
    ls_run_close(two);
}

TEST(what_cannot_be_distributed_is_refused_by_name)
{
    struct ls_distributed *dataset = NULL;
    struct ls_run *two = run_of("parameter-server", 2);
    struct ls_model *model = model_of(two, "sgd");
    expect_error(ls_distribute_dataset(model, train, NULL, &dataset), LS_USAGE,
                 "under strategy parameter-server each replica makes its own steps");
    ls_model_close(model);
    ls_run_close(two);
    struct ls_model *one = model_of(run, "sgd");
    expect_error(ls_distribute_dataset(
                     one, train, &(struct ls_distribute_options){.shuffle = "maybe"}, &dataset),
                 LS_USAGE, "expected on, off");
    struct ls_distributed *training = distribute(one, train);
    expect_error(ls_strategy_run(training, NULL, NULL), LS_USAGE, "there is no step function");
    ls_distributed_close(training);
    OK(ls_distribute_dataset(
        one, train, &(struct ls_distribute_options){.batch = 8, .evaluation = 1}, &dataset));
    expect_error(ls_strategy_run(dataset, train_step, NULL), LS_USAGE,
                 "distributed for evaluation");
    ls_distributed_close(dataset);
    ls_model_close(one);
}

static enum ls_status calls_the_model(struct ls_replica_context *replica, void *context)
{
    struct ls_scores scores;
    (void)replica;
    return ls_evaluate(context, test, 8, &scores);
}

TEST(a_step_function_may_not_call_its_model)
{
    struct ls_model *model = model_of(run, "sgd");
    struct ls_distributed *dataset = distribute(model, train);
    ck_assert_int_eq(ls_strategy_run(dataset, calls_the_model, model), LS_USAGE);
    forget_errors();
    OK(ls_strategy_run(dataset, train_step, NULL));
    ls_distributed_close(dataset);
    ls_model_close(model);
}

TEST(a_loss_that_is_not_finite_leaves_the_step_before)
{
    struct ls_run *two = run_of("ring", 2);
    struct ls_model *model = model_of(two, "sgd:learning_rate=1e38");
    struct ls_distributed *dataset = distribute(model, train);
    enum ls_status status = LS_OK;
    uint64_t steps = 0;
    for (; !status && steps < 20; steps++)
        status = ls_strategy_run(dataset, train_step, NULL);
    ck_assert_int_eq(status, LS_FAILED);
    ck_assert_ptr_nonnull(strstr(message, "not finite"));
    ck_assert_uint_le(model->steps_done, steps - 1);
    ls_distributed_close(dataset);
    ls_model_close(model);
    ls_run_close(two);
}

TEST(values_are_reduced_in_the_order_of_ranks)
{
    const double values[] = {1e16, 1, 1, 2, -1e16, 3}; // three replicas, two values each
    double out[2], all[6];
    struct ls_run *three = run_of("ring", 3);
    OK(ls_strategy_reduce(three, "sum", values, 2, out));
    ck_assert_double_eq(out[0], (1e16 + 1) + -1e16);
    ck_assert_double_eq(out[1], 6);
    OK(ls_strategy_reduce(three, "mean", values, 2, out));
    ck_assert_double_eq(out[1], 2);
    OK(ls_strategy_gather(three, values, 2, all));
    ck_assert_mem_eq(all, values, sizeof(values));
    expect_error(ls_strategy_reduce(three, "product", values, 2, out), LS_USAGE,
                 "expected sum or mean");
    ls_run_close(three);
}

TEST(a_broadcast_makes_replicas_equal)
{
    struct ls_run *three = run_of("ring", 3);
    struct ls_model *model = model_of(three, "adam");
    struct ls_distributed *dataset = distribute(model, train);
    uint64_t hashes[3];
    const float *values;
    OK(ls_strategy_run(dataset, train_step, NULL));
    // Somebody wrote into replica 2.
    struct ls_replica *replica = model->session->replicas[2];
    float *flat = ls_address(ls_replica_memory(replica, LS_BUFFER_PARAMETERS));
    flat[0] += 1;
    values = flat;
    OK(ls_broadcast_variables(model, 2));
    OK(ls_session_hashes(model->session, hashes));
    ck_assert_uint_eq(hashes[0], hashes[2]);
    const float *first =
        ls_address(ls_replica_memory(model->session->replicas[0], LS_BUFFER_PARAMETERS));
    ck_assert_mem_eq(first, values, sizeof(float));
    expect_error(ls_broadcast_variables(model, 3), LS_USAGE, "there is no rank 3");
    ls_distributed_close(dataset);
    ls_model_close(model);
    ls_run_close(three);
}

// Also where they go on with weights of their own, which differ within a round.
TEST(a_broadcast_begins_a_round)
{
    struct ls_run *two = run_of("local-sgd:steps=100", 2);
    struct ls_model *model = model_of(two, "adam");
    struct ls_distributed *dataset = distribute(model, train);
    uint64_t hashes[2];
    OK(ls_strategy_run(dataset, train_step, NULL));
    OK(ls_session_hashes(model->session, hashes)); // shows the last round, and keeps their own
    const struct ls_driver *driver = model->session->driver;
    const float *own[2], *shown[2];
    for (uint32_t i = 0; i < 2; i++) {
        own[i] = ls_driver_round_memory(driver, i, LS_ROUND_WEIGHTS);
        shown[i] = ls_address(ls_replica_memory(model->session->replicas[i], LS_BUFFER_PARAMETERS));
    }
    const uint64_t bytes = ls_replica_plan(model->session->replicas[0])->reduced_bytes;
    ck_assert_mem_ne(own[0], own[1], bytes);
    ck_assert_mem_eq(shown[0], shown[1], bytes);
    OK(ls_broadcast_variables(model, 1));
    for (uint32_t i = 0; i < 2; i++)
        ck_assert_mem_eq(own[i], shown[i], bytes);
    ck_assert_mem_eq(shown[0], shown[1], bytes);
    ls_distributed_close(dataset);
    ls_model_close(model);
    ls_run_close(two);
}

// Metrics of one compilation are not those of the next, which may count more or fewer numbers.
TEST(metrics_begin_anew_after_a_compile)
{
    struct ls_model *model = model_of(run, "sgd");
    struct ls_distributed *dataset = distribute(model, train);
    struct ls_metrics step, all;
    OK(ls_strategy_run(dataset, train_step, NULL));
    OK(ls_compile(model, &(struct ls_compile_options){
                             .optimizer = "sgd",
                             .metrics = "accuracy,sparse_top_k_categorical_accuracy:k=3,"
                                        "sparse_categorical_crossentropy"}));
    ls_strategy_metrics(dataset, &step, &all);
    ck_assert_uint_eq(all.count, 4);
    for (uint32_t i = 0; i < all.count; i++)
        ck_assert(isnan(step.list[i].value) && isnan(all.list[i].value));
    OK(ls_strategy_run(dataset, train_step, NULL));
    ls_strategy_metrics(dataset, &step, &all);
    for (uint32_t i = 0; i < all.count; i++)
        ck_assert_double_eq_tol(step.list[i].value, all.list[i].value,
                                1e-6); // a float32 and its sum
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd", .metrics = "none"}));
    ls_strategy_reset_metrics(dataset);
    ls_strategy_metrics(dataset, &step, &all);
    ck_assert_uint_eq(all.count, 1);
    ls_distributed_close(dataset);
    ls_model_close(model);
}

TEST(null_is_refused_by_name)
{
    struct ls_model *model = model_of(run, "sgd"), *none = NULL;
    struct ls_data *validation = NULL;
    struct ls_distributed *dataset = NULL;
    struct ls_scores scores;
    float values[10];
    forget_errors();
    expect_error(ls_fit(NULL, train, NULL), LS_USAGE, "ls_fit: expected a model, got NULL");
    expect_error(ls_fit(model, NULL, NULL), LS_USAGE, "ls_fit: expected data (ls_data_open leaves");
    expect_error(ls_evaluate(model, validation, 0, &scores), LS_USAGE, "expected data");
    expect_error(ls_evaluate(model, train, 0, NULL), LS_USAGE, "expected room for scores");
    expect_error(ls_predict(model, train, 0, NULL), LS_USAGE, "expected room for predictions");
    expect_error(ls_distribute_dataset(model, NULL, NULL, &dataset), LS_USAGE, "expected data");
    expect_error(ls_strategy_run(NULL, train_step, NULL), LS_USAGE, "a distributed dataset");
    expect_error(ls_train_on_batch(model, NULL, NULL), LS_USAGE, "expected a batch");
    expect_error(ls_model_open(run, NULL, NULL, &none), LS_USAGE, "the name of a model");
    expect_error(ls_model_open(NULL, "mlp", NULL, &none), LS_USAGE, "expected a run");
    expect_error(ls_data_open(NULL, "train", &validation), LS_USAGE, "the name of a dataset");
    expect_error(ls_data_open(DATA, NULL, &validation), LS_USAGE, "a split");
    expect_error(ls_sequential_create(run, "x", NULL, &none), LS_USAGE, "expected layers");
    expect_error(ls_load_weights(model, NULL), LS_USAGE, "a path");
    expect_error(ls_get_variable(NULL, 0, values), LS_USAGE, "a model");
    expect_error(ls_set_variable(model, 0, NULL), LS_USAGE, "expected values");
    expect_error(ls_set_callbacks(model, NULL, 1), LS_USAGE, "expected callbacks");
    expect_error(ls_predict_on_batch(model, NULL, 1, values), LS_USAGE, "expected inputs");
    const double sums[2] = {1, 2};
    double result;
    expect_error(ls_strategy_reduce(run, "sum", NULL, 1, &result), LS_USAGE, "the values");
    expect_error(ls_strategy_reduce(run, "sum", sums, 1, NULL), LS_USAGE, "room for the result");
    expect_error(ls_strategy_gather(NULL, sums, 1, &result), LS_USAGE, "expected a run");
    ls_model_close(model);
}

TEST_FIXTURE(set_up, tear_down);
TEST_SECONDS(120);
