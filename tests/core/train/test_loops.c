// SPDX-License-Identifier: Apache-2.0
// Custom training loops: the bits of ls_fit, and what is wrong with a step function.
#include "tests/core/train/fixture.h"

#include "core/train/distributed.h"

#include <time.h>

struct setting {
    const char *strategy;
    uint32_t replicas;
};

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

#define EPOCHS 2
#define STEPS \
    14 // of 50 examples in batches of 8, the last of 2: uneven, and none for a third replica

static double losses[3]; // by replica

static enum ls_status train_step(struct ls_replica_context *replica, void *context)
{
    double sum = 0;
    (void)context;
    enum ls_status status = ls_context_forward(replica);
    if (!status)
        status = ls_context_loss(replica, &sum, NULL);
    if (!status)
        status = ls_context_update_metrics(replica);
    if (!status)
        status = ls_context_gradients(replica);
    if (!status)
        status = ls_context_apply(replica);
    losses[ls_context_local_rank(replica)] = sum / (double)ls_context_global_examples(replica);
    return status;
}

static struct ls_distributed *distribute(struct ls_model *model, struct ls_data *data)
{
    struct ls_distributed *dataset = NULL;
    OK(ls_distribute_dataset(model, data, &(struct ls_distribute_options){.batch = 8}, &dataset));
    return dataset;
}

START_TEST(a_loop_of_step_functions_has_the_bits_of_fit)
{
    const struct setting *setting = &settings[_i];
    struct ls_run *many = run_of(setting->strategy, setting->replicas);
    struct ls_model *fitted = model_of(many, "adam:learning_rate=0.01");
    struct ls_model *looped = model_of(many, "adam:learning_rate=0.01");
    struct ls_metrics step, all;
    size_t count, epochs_count, done = 0;
    OK(ls_fit(fitted, train, &(struct ls_fit_options){.epochs = EPOCHS, .batch = 8}));
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
            const float found = (float)ls_metric_value(&step, "loss");
            ck_assert_mem_eq(&found, &expected[done++], sizeof(found));
            OK(ls_strategy_reduce(many, "sum", losses, 1, &loss));
            ck_assert_double_eq_tol(loss, (double)found, 1e-6);
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
END_TEST

// One after the other, by turns.
START_TEST(loops_and_fits_go_on_from_each_other)
{
    struct ls_run *two = run_of("ring", 2);
    struct ls_model *fitted = model_of(two, "adam"), *mixed = model_of(two, "adam");
    struct ls_metrics step;
    size_t count;
    OK(ls_fit(fitted, train, &(struct ls_fit_options){.epochs = 9, .steps = 11, .batch = 8}));
    const float *expected = ls_fit_losses(fitted, &count);
    struct ls_distributed *dataset = distribute(mixed, train);
    for (int i = 0; i < 3; i++)
        OK(ls_strategy_run(dataset, train_step, NULL));
    ls_distributed_close(dataset);
    OK(ls_fit(mixed, train, &(struct ls_fit_options){.epochs = 9, .steps = 6, .batch = 8}));
    const float *found = ls_fit_losses(mixed, &count);
    ck_assert_mem_eq(found, expected + 3, 6 * sizeof(*found));
    dataset = distribute(mixed, train);
    struct ls_scores scores;
    for (int i = 9; i < 11; i++) {
        OK(ls_strategy_run(dataset, train_step, NULL));
        ls_strategy_metrics(dataset, &step, NULL);
        const float loss = (float)ls_metric_value(&step, "loss");
        ck_assert_mem_eq(&loss, &expected[i], sizeof(loss));
        OK(ls_evaluate(mixed, test, 8, &scores)); // between two runs
    }
    ck_assert_double_eq(weight_difference(fitted, mixed), 0);
    ls_distributed_close(dataset);
    ls_model_close(fitted);
    ls_model_close(mixed);
    ls_run_close(two);
}
END_TEST

static enum ls_status test_step(struct ls_replica_context *replica, void *context)
{
    (void)context;
    const enum ls_status status = ls_context_forward(replica);
    return status ? status : ls_context_update_metrics(replica);
}

START_TEST(a_loop_evaluates_as_evaluate_does)
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
END_TEST

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
START_TEST(a_wrong_step_function_is_an_error_and_never_a_hang)
{
    const struct wrong *wrong = &wrongs[_i / 2];
    const char *other = _i / 2 % 2 ? "central-storage" : "parameter-server:mode=sync";
    struct ls_run *two = run_of(_i % 2 ? "ring" : other, 2);
    struct ls_model *model = model_of(two, "sgd");
    struct ls_distributed *dataset = distribute(model, train);
    const uint64_t start = milliseconds();
    OK(ls_strategy_run(dataset, train_step, NULL));
    const enum ls_status status = ls_strategy_run(dataset, wrong->function, NULL);
    ck_assert_uint_lt(milliseconds() - start, 20000);
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
END_TEST

START_TEST(what_cannot_be_distributed_is_refused_by_name)
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
    OK(ls_distribute_dataset(
        one, train, &(struct ls_distribute_options){.batch = 8, .evaluation = 1}, &dataset));
    expect_error(ls_strategy_run(dataset, train_step, NULL), LS_USAGE,
                 "distributed for evaluation");
    ls_distributed_close(dataset);
    ls_model_close(one);
}
END_TEST

static enum ls_status calls_the_model(struct ls_replica_context *replica, void *context)
{
    struct ls_scores scores;
    (void)replica;
    return ls_evaluate(context, test, 8, &scores);
}

START_TEST(a_step_function_may_not_call_its_model)
{
    struct ls_model *model = model_of(run, "sgd");
    struct ls_distributed *dataset = distribute(model, train);
    ck_assert_int_eq(ls_strategy_run(dataset, calls_the_model, model), LS_USAGE);
    forget_errors();
    OK(ls_strategy_run(dataset, train_step, NULL));
    ls_distributed_close(dataset);
    ls_model_close(model);
}
END_TEST

START_TEST(a_loss_that_is_not_finite_leaves_the_step_before)
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
END_TEST

START_TEST(values_are_reduced_in_the_order_of_ranks)
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
END_TEST

START_TEST(a_broadcast_makes_replicas_equal)
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
END_TEST

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

START_TEST(a_loss_by_the_program_is_as_the_compiled_one)
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
    OK(ls_fit(fitted, train, &(struct ls_fit_options){.epochs = EPOCHS, .batch = 8}));
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
END_TEST

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

START_TEST(outputs_of_a_model_with_a_loss_are_read_where_they_are_kept)
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
END_TEST

static enum ls_status forgets_the_loss(struct ls_replica_context *replica, void *context)
{
    float *gradient;
    (void)context;
    enum ls_status status = ls_context_forward(replica);
    if (!status)
        status = ls_context_output_gradient(replica, &gradient);
    return status ? status : ls_context_gradients(replica);
}

START_TEST(a_loss_that_nobody_computes_is_refused)
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
END_TEST

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

START_TEST(an_optimizer_by_the_program_has_the_bits_of_ours)
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
    OK(ls_fit(fitted, train, &(struct ls_fit_options){.epochs = EPOCHS, .batch = 8}));
    struct ls_distributed *dataset = distribute(owned, train);
    own_updates = 0;
    for (int i = 0; i < STEPS / 2; i++)
        OK(ls_strategy_run(dataset, train_step, NULL));
    OK(ls_check_replicas(owned));
    ls_distributed_close(dataset);
    // And in ls_fit, which goes on.
    OK(ls_fit(owned, train, &(struct ls_fit_options){.batch = 8}));
    ck_assert_double_eq(weight_difference(fitted, owned), 0);
    if (!momentum) // at least one call for each of the six variables
        ck_assert_uint_ge(own_updates, 6 * STEPS);
    ls_model_close(fitted);
    ls_model_close(owned);
    ls_run_close(many);
}
END_TEST

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

START_TEST(an_optimizer_that_is_wrong_is_said)
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
END_TEST

// ---- Batches from memory ----

// 12 examples of 4 x 4 pixels and their classes.
static void fill_batch(float *pixels, int64_t *labels)
{
    for (int i = 0; i < 12 * 16; i++)
        pixels[i] = (float)(i * 37 % 101) / 101.0f;
    for (int i = 0; i < 12; i++)
        labels[i] = i % 10;
}

START_TEST(a_batch_from_memory_is_a_step)
{
    static const struct setting some[] = {{"one-device", 1}, {"ring", 3}, {"central-storage", 2}};
    float pixels[12 * 16], predicted[120], expected[120];
    int64_t labels[12];
    fill_batch(pixels, labels);
    const struct ls_array x = {"float32", 4, {12, 4, 4, 1}, pixels};
    const struct ls_array y = {"int64", 1, {12}, labels};
    const struct ls_batch_arrays batch = {.inputs = &x, .input_count = 1, .target = &y};
    struct ls_run *many = run_of(some[_i].strategy, some[_i].replicas);
    struct ls_model *fitted = model_of(many, "adam"), *batched = model_of(many, "adam");
    struct ls_data *data = NULL;
    struct ls_metrics metrics;
    struct ls_scores scores;
    size_t count;
    OK(ls_data_from_memory(&x, 1, &y, &data));
    OK(ls_fit(fitted, data, &(struct ls_fit_options){.epochs = 3, .batch = 12, .shuffle = "off"}));
    const float *fit = ls_fit_losses(fitted, &count);
    for (int i = 0; i < 3; i++) {
        OK(ls_train_on_batch(batched, &batch, &metrics));
        const float loss = (float)ls_metric_value(&metrics, "loss");
        ck_assert_mem_eq(&loss, &fit[i], sizeof(loss));
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
END_TEST

START_TEST(a_batch_that_does_not_fit_is_refused)
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
END_TEST

int main(void)
{
    Suite *suite = suite_create("core/train/loops");
    TCase *tests = tcase_create("loops");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, a_loop_of_step_functions_has_the_bits_of_fit, 0, SETTINGS);
    tcase_add_test(tests, loops_and_fits_go_on_from_each_other);
    tcase_add_test(tests, a_loop_evaluates_as_evaluate_does);
    tcase_add_loop_test(tests, a_wrong_step_function_is_an_error_and_never_a_hang, 0, 2 * WRONGS);
    tcase_add_test(tests, what_cannot_be_distributed_is_refused_by_name);
    tcase_add_test(tests, a_step_function_may_not_call_its_model);
    tcase_add_test(tests, a_loss_that_is_not_finite_leaves_the_step_before);
    tcase_add_test(tests, values_are_reduced_in_the_order_of_ranks);
    tcase_add_test(tests, a_broadcast_makes_replicas_equal);
    tcase_add_loop_test(tests, a_loss_by_the_program_is_as_the_compiled_one, 0, 4);
    tcase_add_test(tests, outputs_of_a_model_with_a_loss_are_read_where_they_are_kept);
    tcase_add_test(tests, a_loss_that_nobody_computes_is_refused);
    tcase_add_loop_test(tests, an_optimizer_by_the_program_has_the_bits_of_ours, 0, 2 * SOME);
    tcase_add_test(tests, an_optimizer_that_is_wrong_is_said);
    tcase_add_loop_test(tests, a_batch_from_memory_is_a_step, 0, 3);
    tcase_add_test(tests, a_batch_that_does_not_fit_is_refused);
    suite_add_tcase(suite, tests);
    return test_suite_run(suite);
}
