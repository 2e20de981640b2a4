// SPDX-License-Identifier: Apache-2.0
// A session that is kept over fits and evaluations gives the same bits as one that is opened for
// each of them, and what becomes of the model when a step fails.
#include "core/replica/internal.h" // how many programs a replica has
#include "core/train/session.h"
#include "tests/core/train/support.h"
#include "tests/support/suite.h"

#define OTHER "synthetic:shape=4x4x1,examples=23,seed=9"
#define WEIGHTS "session.safetensors"

static const struct setting {
    const char *strategy;
    uint32_t replicas;
} settings[] = {
    {"one-device", 1},
    {"ring", 2},
    {"tree", 3},
    {"sharded", 3},
    {"central-storage", 2},
    {"parameter-server:mode=sync,servers=2", 3},
    {"sharded:stage=3,bucket=200", 3},
};
#define SETTINGS (int)(sizeof(settings) / sizeof(settings[0]))

static struct ls_run *run;
static struct ls_data *train, *other, *test;

static void set_up(void)
{
    forget_errors();
    train = data_of(DATA, "train");
    other = data_of(OTHER, "train");
    test = data_of(DATA, "test");
}

static void open_run(int setting)
{
    run = run_of(settings[setting].strategy, settings[setting].replicas);
}

static void tear_down(void)
{
    ls_data_close(train);
    ls_data_close(other);
    ls_data_close(test);
    ls_run_close(run);
}

// The next call opens a session of its own, as a new process would.
static void end_session(struct ls_model *model)
{
    OK(ls_model_take(model, LS_TAKE_ALL));
    OK(ls_session_close(model));
}

// ---- The same bits ----

// What a sequence of calls has seen.
struct seen {
    double values[256];
    size_t count;
};

static void see(struct seen *seen, double value)
{
    ck_assert_uint_lt(seen->count, 256);
    seen->values[seen->count++] = value;
}

static void fit(struct ls_model *model, struct ls_data *data, struct ls_fit_options options,
                bool anew, struct seen *seen)
{
    size_t count;
    if (anew)
        end_session(model);
    OK(ls_fit(model, data, &options));
    const float *losses = ls_fit_losses(model, &count);
    for (size_t i = 0; i < count; i++)
        see(seen, (double)losses[i]);
}

static void evaluate(struct ls_model *model, struct ls_data *data, uint64_t batch, bool anew,
                     struct seen *seen)
{
    struct ls_scores scores;
    if (anew)
        end_session(model);
    OK(ls_evaluate(model, data, batch, &scores));
    see(seen, ls_metric_value(&scores.metrics, "loss"));
    see(seen, ls_metric_value(&scores.metrics, "accuracy"));
}

static struct ls_model *run_sequence(bool anew, struct seen *seen)
{
    struct ls_model *model = model_of(run, "adam:learning_rate=0.01");
    evaluate(model, test, 4, anew, seen);
    for (int i = 0; i < 9; i++) // over the end of an epoch of 7 steps
        fit(model, train, (struct ls_fit_options){.batch = 8, .steps = 1}, anew, seen);
    evaluate(model, train, 7, anew, seen);
    OK(ls_set_learning_rate(model, 0.003));
    for (uint64_t batch = 3; batch < 10; batch++) // many sizes
        fit(model, train, (struct ls_fit_options){.batch = batch, .steps = 2}, anew, seen);
    fit(model, train, (struct ls_fit_options){.batch = 12, .steps = 2, .microbatches = 2}, anew,
        seen);
    evaluate(model, test, 4, anew, seen);
    fit(model, train, (struct ls_fit_options){.batch = 12, .steps = 2, .microbatches = 2}, anew,
        seen);
    fit(model, train, (struct ls_fit_options){.batch = 8, .steps = 2}, anew, seen);
    fit(model, other, (struct ls_fit_options){.batch = 8, .validation = test}, anew, seen);
    fit(model, other, (struct ls_fit_options){.batch = 8, .steps = 2, .shuffle = "off"}, anew,
        seen);
    fit(model, train, (struct ls_fit_options){.batch = 8, .steps = 40, .shuffle = "5"}, anew, seen);
    OK(ls_save_weights(model, WEIGHTS));
    fit(model, train, (struct ls_fit_options){.batch = 8, .steps = 3}, anew, seen);
    OK(ls_load_weights(model, WEIGHTS));
    evaluate(model, test, 4, anew, seen);
    fit(model, train, (struct ls_fit_options){.batch = 8, .steps = 3}, anew, seen);
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd:momentum=0.9"}));
    fit(model, train, (struct ls_fit_options){.batch = 8, .steps = 3}, anew, seen);
    unlink(WEIGHTS);
    return model;
}

LOOP_TEST(calls_on_one_session_give_the_bits_of_calls_on_new_ones, 0, SETTINGS)
{
    struct seen kept = {.count = 0}, anew = {.count = 0};
    open_run(_i);
    struct ls_model *one = run_sequence(false, &kept), *another = run_sequence(true, &anew);
    ck_assert_uint_eq(kept.count, anew.count);
    for (size_t i = 0; i < kept.count; i++)
        ck_assert_msg(kept.values[i] == anew.values[i], "value %zu: %.9g, not %.9g", i,
                      kept.values[i], anew.values[i]);
    ck_assert_double_eq(weight_difference(one, another), 0);
    ck_assert_uint_eq(one->steps_done, another->steps_done);
    ls_model_close(one);
    ls_model_close(another);
}

// ---- What is kept ----

LOOP_TEST(fits_of_one_step_reopen_nothing, 0, SETTINGS)
{
    open_run(_i);
    const struct ls_fit_options step = {.batch = 8, .steps = 1};
    struct ls_model *model = model_of(run, "adam");
    OK(ls_fit(model, train, &step));
    const struct ls_session *session = model->session;
    const struct ls_replica *replica = session->replicas[0];
    const struct ls_driver *driver = session->driver;
    const struct ls_stream *stream = session->input.all;
    const uint32_t programs = replica->program_count;
    for (int i = 0; i < 20; i++)
        OK(ls_fit(model, train, &step));
    ck_assert_ptr_eq(model->session, session);
    ck_assert_ptr_eq(session->replicas[0], replica);
    ck_assert_ptr_eq(session->driver, driver);
    ck_assert_ptr_eq(session->input.all, stream);
    ck_assert_uint_eq(replica->program_count, programs);
    ls_model_close(model);
}

LOOP_TEST(runs_and_times_of_kernels_are_those_of_the_last_fit, 0, 2)
{
    static const struct {
        uint64_t steps, runs; // the first step does not count where there is another
    } fits[] = {{4, 3}, {1, 1}, {3, 2}, {1, 1}};
    open_run(_i);
    struct ls_model *model = model_of(run, "adam");
    const uint64_t batch = 10, share = batch / settings[_i].replicas;
    for (size_t i = 0; i < sizeof(fits) / sizeof(fits[0]); i++) {
        OK(ls_fit(model, train, &(struct ls_fit_options){.batch = batch, .steps = fits[i].steps}));
        uint64_t runs;
        struct ls_program *program =
            ls_replica_training_program(model->session->replicas[0], share, &runs);
        ck_assert_ptr_nonnull(program);
        ck_assert_uint_eq(runs, fits[i].runs);
        ck_assert_uint_eq(program->steps[0].nanoseconds, 0); // this run takes no times
        program->steps[0].nanoseconds = 1000;
    }
    ls_model_close(model);
}

TEST(a_session_for_evaluation_makes_room_for_one_that_trains)
{
    struct ls_scores before, after;
    open_run(1);
    struct ls_model *model = model_of(run, "adam");
    OK(ls_evaluate(model, test, 4, &before));
    ck_assert_ptr_null(model->session->driver);
    OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 8, .steps = 1}));
    ck_assert_ptr_nonnull(model->session->driver);
    OK(ls_evaluate(model, test, 4, &after));
    ck_assert_ptr_nonnull(model->session->driver);
    ck_assert_double_ne(ls_metric_value(&before.metrics, "loss"),
                        ls_metric_value(&after.metrics, "loss"));
    ls_model_close(model);
}

LOOP_TEST(data_may_be_closed_between_fits, 0, SETTINGS)
{
    open_run(_i);
    struct ls_model *model = model_of(run, "adam"), *same = model_of(run, "adam");
    const struct ls_fit_options steps = {.batch = 8, .steps = 2};
    struct ls_data *first = data_of(DATA, "train");
    OK(ls_fit(model, first, &steps));
    ls_data_close(first);
    first = data_of(DATA, "train");
    OK(ls_fit(model, first, &steps));
    OK(ls_fit(model, other, &steps));
    ls_data_close(first);
    OK(ls_fit(same, train, &steps));
    OK(ls_fit(same, train, &steps));
    OK(ls_fit(same, other, &steps));
    ck_assert_double_eq(weight_difference(model, same), 0);
    ls_model_close(model);
    ls_model_close(same);
}

LOOP_TEST(variables_on_the_host_leave_no_optimizer_state_on_replicas, 0, SETTINGS)
{
    open_run(_i);
    const bool host = _i >= 3; // or in parts
    struct ls_model *model = model_of(run, "adam");
    OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 8, .steps = 2}));
    for (uint32_t i = 0; i < model->session->count; i++)
        for (uint32_t k = 0; k < 2; k++)
            ck_assert_int_eq(ls_memory_is_null(ls_replica_memory(model->session->replicas[i],
                                                                 LS_BUFFER_STATE + k)),
                             host);
    ls_model_close(model);
}

// ---- Failures ----

static float *example_of(struct ls_data *data, uint64_t index)
{
    const struct ls_dataset *dataset = NULL;
    OK(ls_data_wait(data, &dataset));
    ck_assert_uint_eq(dataset->fields[0].dtype, LS_F32);
    return (float *)(uintptr_t)dataset->fields[0].values + index * 16;
}

// Without an activation that would hide what is not finite.
static struct ls_model *linear_model(void)
{
    const struct ls_layer layers[] = {LS_INPUT(4, 4, 1), LS_FLATTEN(), LS_DENSE(6),
                                      LS_DROPOUT(0.25),  LS_DENSE(10), LS_END};
    struct ls_model *model = NULL;
    OK(ls_sequential_create(run, "linear", layers, &model));
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "adam"}));
    return model;
}

// The data of step 6 of 7 is poisoned: weights, optimizer, steps and the place in the order are
// those after step 5.
LOOP_TEST(after_a_loss_that_is_not_finite_the_model_is_that_before_the_step, 0, SETTINGS)
{
    open_run(_i);
    struct ls_model *model = linear_model(), *same = linear_model();
    const struct ls_fit_options step = {.batch = 8, .steps = 1, .shuffle = "off"};
    const struct ls_fit_options rest = {.batch = 8, .epochs = 1, .shuffle = "off"};
    float *example = example_of(train, 5 * 8 + 3);
    const float kept = *example;
    size_t count;
    *example = INFINITY;
    OK(ls_fit(model, train, &step));
    OK(ls_fit(same, train, &step));
    expect_error(ls_fit(model, train, &rest), LS_FAILED, "step 6: the loss is not finite");
    (void)ls_fit_losses(model, &count);
    ck_assert_uint_eq(count, 4);
    for (int i = 0; i < 4; i++)
        OK(ls_fit(same, train, &step));
    ck_assert_uint_eq(model->steps_done, 5);
    ck_assert_uint_eq(model->order.position, 5 * 8);
    ck_assert_double_eq(weight_difference(model, same), 0);
    // The input thread of `same` may have read the example already.
    *example = kept;
    end_session(same);
    OK(ls_fit(model, train, &rest));
    OK(ls_fit(same, train, &rest));
    (void)ls_fit_losses(model, &count);
    ck_assert_uint_eq(count, 2);
    ck_assert_double_eq(weight_difference(model, same), 0);
    ck_assert_uint_eq(errors, 0);
    ls_model_close(model);
    ls_model_close(same);
}

// When what the last update made is not finite, there is no state before the step that could be
// told from it.
TEST(parameters_that_are_not_finite_do_not_come_to_the_host)
{
    open_run(1);
    struct ls_model *model = model_of(run, "sgd"), *same = model_of(run, "sgd");
    OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 8}));
    OK(ls_fit(same, train, &(struct ls_fit_options){.batch = 8}));
    OK(ls_set_learning_rate(model, 3e38));
    ck_assert_int_eq(ls_fit(model, train, &(struct ls_fit_options){.batch = 8, .epochs = 9}),
                     LS_FAILED);
    forget_errors();
    for (uint32_t i = 0; i < model->graph->parameter_count; i++)
        for (size_t k = 0; k < elements_of(model, i); k++)
            ck_assert(isfinite(model->weights[i][k]));
    OK(ls_set_learning_rate(model, 0.01));
    OK(ls_save_weights(model, WEIGHTS));
    unlink(WEIGHTS);
    ls_model_close(model);
    ls_model_close(same);
}

// A long fit leaves all on the replicas, too, where host memory keeps it. Saving brings the weights
// alone, and the next fit goes on with the states of the optimizer.
LOOP_TEST(weights_come_to_the_host_when_somebody_needs_them, 0, 5)
{
    open_run(_i);
    const struct ls_fit_options long_fit = {.batch = 8, .steps = 40};
    struct ls_model *model = model_of(run, "adam"), *same = model_of(run, "adam");
    OK(ls_fit(model, train, &long_fit));
    ck_assert(!model->weights); // the first ones, too, were made for the replicas alone
    ck_assert(model->ahead && model->states_ahead);
    OK(ls_save_weights(model, WEIGHTS));
    ck_assert(!model->ahead && model->states_ahead && !model->states[0]);
    OK(ls_fit(model, train, &long_fit));
    ck_assert(model->states[0]); // where the model would go back to, had this fit failed
    OK(ls_fit(same, train, &long_fit));
    OK(ls_fit(same, train, &long_fit));
    ck_assert_double_eq(weight_difference(model, same), 0);
    // A variable that is set does not bring older states to the replicas.
    float *values = calloc(elements_of(model, 0), sizeof(*values));
    for (int i = 0; i < 2; i++) {
        struct ls_model *one = i ? same : model;
        OK(ls_fit(one, train, &long_fit));
        if (i)
            OK(ls_model_take(one, LS_TAKE_ALL));
        OK(ls_set_variable(one, 0, values));
        OK(ls_fit(one, train, &long_fit));
    }
    ck_assert_double_eq(weight_difference(model, same), 0);
    free(values);
    unlink(WEIGHTS);
    ls_model_close(model);
    ls_model_close(same);
}

LOOP_TEST(weights_without_their_optimizer_state_are_not_trained, 0, 5)
{
    open_run(_i);
    struct ls_model *model = model_of(run, "adam");
    const struct ls_fit_options long_fit = {.batch = 8, .steps = 40};
    OK(ls_fit(model, train, &long_fit));
    OK(ls_save_weights(model, WEIGHTS));
    OK(ls_session_close(model)); // as after a replica that does not answer
    expect_error(ls_fit(model, train, &long_fit), LS_FAILED,
                 "the state of its optimizer was lost with a replica");
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "adam"}));
    OK(ls_fit(model, train, &long_fit));
    unlink(WEIGHTS);
    ls_model_close(model);
}

static char warning[1024]; // the last one

static void keep_warning(void *context, uint32_t level, const char *line)
{
    (void)context;
    if (level == LS_LOG_WARN)
        snprintf(warning, sizeof(warning), "%s", line);
}

// Short fits leave the weights on the replicas; what cannot come to the host is lost, and said.
LOOP_TEST(steps_that_do_not_come_to_the_host_are_not_lost_in_silence, 0, 3)
{
    open_run(1);
    struct ls_model *model = linear_model();
    const struct ls_fit_options step = {.batch = 8, .steps = 1};
    OK(ls_fit(model, train, &step));
    OK(ls_fit(model, train, &step));
    ((float *)ls_address(ls_replica_memory(model->session->replicas[0], LS_BUFFER_PARAMETERS)))[0] =
        INFINITY;
    ls_log_set_writer(keep_warning, NULL);
    warning[0] = '\0';
    if (_i == 0)
        ck_assert_int_eq(ls_save_weights(model, WEIGHTS), LS_FAILED);
    else if (_i == 1)
        ck_assert_int_eq(ls_compile(model, NULL), LS_FAILED);
    else
        ck_assert_int_eq(ls_fit(model, train, &(struct ls_fit_options){.batch = 9, .steps = 1}),
                         LS_FAILED);
    ck_assert_msg(strstr(warning, "after step 0 again, not after step 2") != NULL, "%s", warning);
    ck_assert_uint_eq(model->steps_done, 0);
    ls_model_close(model);
}

TEST(replicas_that_differ_end_the_session)
{
    float value = 1000;
    size_t count;
    open_run(1);
    struct ls_model *model = model_of(run, "sgd"), *same = model_of(run, "sgd");
    OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 8, .steps = 2}));
    OK(ls_save_weights(model, WEIGHTS)); // the last state that the host has
    OK(ls_fit(same, train, &(struct ls_fit_options){.batch = 8, .steps = 2}));
    OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 8, .steps = 1}));
    float *parameters =
        ls_address(ls_replica_memory(model->session->replicas[1], LS_BUFFER_PARAMETERS));
    parameters[0] += value;
    expect_error(ls_fit(model, train, &(struct ls_fit_options){.batch = 8, .steps = 1}), LS_FAILED,
                 "replicas 0 and 1 have different parameters");
    ck_assert_ptr_null(model->session);
    ck_assert_uint_eq(model->steps_done, 2);
    ck_assert_uint_eq(model->order.position, 2 * 8);
    ck_assert_double_eq(weight_difference(model, same), 0);
    struct ls_scores scores;
    expect_error(ls_fit(model, train, NULL), LS_FAILED, "after step 2");
    expect_error(ls_evaluate(model, test, 4, &scores), LS_FAILED, "call ls_compile");
    OK(ls_save_weights(model, WEIGHTS));
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd"}));
    OK(ls_compile(same, &(struct ls_compile_options){.optimizer = "sgd"}));
    OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 8}));
    OK(ls_fit(same, train, &(struct ls_fit_options){.batch = 8}));
    ck_assert_double_eq(weight_difference(model, same), 0);
    (void)ls_fit_losses(model, &count);
    unlink(WEIGHTS);
    ls_model_close(model);
    ls_model_close(same);
}

TEST(data_that_cannot_be_read_leaves_the_session_alone)
{
    open_run(1);
    struct ls_model *model = model_of(run, "sgd"), *same = model_of(run, "sgd");
    const struct ls_fit_options step = {.batch = 8, .steps = 1};
    OK(ls_fit(model, train, &step));
    OK(ls_fit(same, train, &step));
    const struct ls_session *session = model->session;
    struct ls_data *missing = NULL;
    OK(ls_data_open(DATA, "train", &missing));
    const struct ls_dataset *dataset = NULL;
    OK(ls_data_wait(missing, &dataset));
    missing->status = LS_BAD_INPUT; // as if its files were broken
    ck_assert_int_eq(ls_fit(model, missing, &step), LS_BAD_INPUT);
    missing->status = LS_OK;
    forget_errors();
    ck_assert_ptr_eq(model->session, session);
    OK(ls_fit(model, train, &step));
    OK(ls_fit(same, train, &step));
    ck_assert_uint_eq(model->steps_done, 2);
    ck_assert_double_eq(weight_difference(model, same), 0);
    ls_data_close(missing);
    ls_model_close(model);
    ls_model_close(same);
}

static enum ls_status stop_after_two(void *context, const struct ls_fit_state *state)
{
    (void)context;
    if (state->steps_done == 2)
        ls_stop_training(state->model);
    return LS_OK;
}

// Replicas that do not wait for each other have read more than the steps that were counted.
TEST(after_a_stop_an_asynchronous_strategy_reads_on_at_the_next_example)
{
    run = run_of("parameter-server:mode=async,delay_replica=1,delay_ms=40", 2);
    struct ls_model *model = model_of(run, "sgd");
    const struct ls_callbacks table = {.on_train_batch_end = stop_after_two};
    size_t count;
    OK(ls_fit(model, train,
              &(struct ls_fit_options){.batch = 8, .callbacks = &table, .callback_count = 1}));
    ck_assert_uint_eq(ls_fit_epochs(model, &count)->examples, 2 * 8);
    OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 8}));
    ck_assert_uint_eq(ls_fit_epochs(model, &count)->examples, 50 - 2 * 8);
    ls_model_close(model);
}

// ---- Blocks ----

// A batch in 8 blocks is that of 2 ranks in 4 each: the blocks are the same, and the sum of each
// rank is a subtree. More ranks need something that adds them in a binary tree of their order,
// too.
LOOP_TEST(blocks_give_the_same_bits_on_one_replica_and_on_two, 12, 15)
{
    static const struct {
        const char *strategy;
        uint32_t replicas, microbatches;
    } ways[] = {{"one-device", 1, 8}, {"ring", 2, 4}, {"central-storage", 2, 4}};
    float first[8] = {0};
    open_run(0);
    for (int i = 0; i < 3; i++) {
        struct ls_run *own = run_of(ways[i].strategy, ways[i].replicas);
        struct ls_model *model = model_of(own, "adam");
        size_t count;
        OK(ls_fit(model, train,
                  &(struct ls_fit_options){
                      .batch = (uint64_t)_i, .steps = 8, .microbatches = ways[i].microbatches}));
        const float *losses = ls_fit_losses(model, &count);
        ck_assert_uint_eq(count, 8);
        if (i == 0)
            memcpy(first, losses, sizeof(first));
        ck_assert_msg(memcmp(first, losses, sizeof(first)) == 0, "%u replicas, %u blocks each",
                      ways[i].replicas, ways[i].microbatches);
        ls_model_close(model);
        ls_run_close(own);
    }
}

TEST_FIXTURE(set_up, tear_down);
TEST_SECONDS(120);
