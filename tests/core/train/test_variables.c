// SPDX-License-Identifier: Apache-2.0
// Variables of a model, between fits and within one; a model that is saved with its optimizer.
#include "tests/core/train/fixture.h"

#include <errno.h>
#include <stdio.h>

#define FILE_NAME "variables-model.safetensors"
#define LATER "variables-later.safetensors"

// The allocation that fails, counted down; less than 1: none.
static atomic_int failing;

// Lockstep's aligned memory comes from here.
int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    if (atomic_load(&failing) > 0 && atomic_fetch_sub(&failing, 1) == 1)
        return ENOMEM;
    *out = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    return *out ? 0 : ENOMEM;
}

static const struct {
    const char *name;
    uint32_t replicas;
} strategies[] = {
    {"one-device", 1}, {"ring", 2}, {"central-storage", 2}, {"parameter-server:mode=sync", 2}};
#define STRATEGIES (int)(sizeof(strategies) / sizeof(strategies[0]))

static float *all_values(struct ls_model *model, uint64_t *count)
{
    float *values = NULL;
    *count = 0;
    for (uint32_t i = 0; i < ls_variable_count(model); i++) {
        struct ls_variable variable;
        OK(ls_variable_describe(model, i, &variable));
        values = realloc(values, (*count + variable.elements) * sizeof(*values));
        ck_assert_ptr_nonnull(values);
        OK(ls_get_variable(model, i, values + *count));
        *count += variable.elements;
    }
    return values;
}

static void fit_steps(struct ls_model *model, uint64_t steps)
{
    OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 8, .steps = steps}));
}

// At the end of a segment: what SGD is about to have subtracted, times its rate.
static float *gradients;
static enum ls_status gradient_status;
static uint32_t gradients_there;

static enum ls_status read_gradients(void *context, const struct ls_fit_state *state)
{
    uint64_t at = 0;
    (void)context;
    gradient_status = LS_OK;
    gradients_there = ls_has_gradients(state->model);
    for (uint32_t i = 0; !gradient_status && i < ls_variable_count(state->model); i++) {
        struct ls_variable variable;
        OK(ls_variable_describe(state->model, i, &variable));
        gradient_status = ls_get_gradient(state->model, i, gradients + at);
        at += variable.elements;
    }
    return LS_OK;
}

// A folder of checkpoints keeps the file by which trainings lock it.
static void remove_folder(const char *folder)
{
    char lock[512];
    snprintf(lock, sizeof(lock), "%s/.lock", folder);
    ck_assert_int_eq(remove(lock), 0);
    ck_assert_int_eq(remove(folder), 0);
}

LOOP_TEST(a_callback_reads_the_gradients_that_the_replicas_have_reduced, 0, 7)
{
    static const struct {
        const char *strategy;
        uint32_t replicas, accumulate;
        bool has;
    } cases[] = {{"one-device", 1, 1, true},
                 {"ring", 3, 1, true},
                 {"ring", 2, 2, true},
                 {"sharded", 1, 1, true}, // of which nothing is spread
                 {"sharded", 2, 1, false},
                 {"central-storage", 2, 1, false},
                 {"parameter-server:mode=async", 2, 1, false}};
    struct ls_run *some = run_of(cases[_i].strategy, cases[_i].replicas);
    struct ls_model *model = model_of(some, "sgd:learning_rate=0.5");
    const struct ls_callbacks table = {.on_segment_end = read_gradients};
    uint64_t count;
    free(all_values(model, &count));
    gradients = calloc(count, sizeof(*gradients));
    ck_assert_ptr_nonnull(gradients);
    fit_steps(model, 2);
    float *before = all_values(model, &count);
    OK(ls_fit(model, train,
              &(struct ls_fit_options){.batch = 8,
                                       .steps = 1,
                                       .accumulate = cases[_i].accumulate,
                                       .callbacks = &table,
                                       .callback_count = 1}));
    ck_assert_int_eq(gradient_status, cases[_i].has ? LS_OK : LS_USAGE);
    ck_assert_uint_eq(gradients_there, cases[_i].has);
    float *after = all_values(model, &count);
    float largest = 0;
    for (uint64_t i = 0; cases[_i].has && i < count; i++) {
        ck_assert_float_eq_tol(gradients[i], (before[i] - after[i]) / 0.5F, 1e-6F);
        largest = fmaxf(largest, fabsf(gradients[i]));
    }
    ck_assert(!cases[_i].has || largest > 1e-3F);
    forget_errors();
    ck_assert_int_eq(ls_get_gradient(model, 0, gradients), LS_USAGE); // not in a fit
    free(before);
    free(after);
    free(gradients);
    ls_model_close(model);
    ls_run_close(some);
}

TEST(variables_have_the_names_and_shapes_of_keras)
{
    static const struct {
        const char *name;
        uint32_t ndims;
        int64_t dims[4];
    } expected[] = {{"conv2d/kernel", 4, {2, 2, 1, 3}}, {"conv2d/bias", 1, {3}},
                    {"dense/kernel", 2, {27, 6}},       {"dense/bias", 1, {6}},
                    {"dense_1/kernel", 2, {6, 10}},     {"dense_1/bias", 1, {10}}};
    struct ls_model *model = model_of(run, "sgd");
    struct ls_variable variable;
    ck_assert_uint_eq(ls_variable_count(model), 6);
    for (uint32_t i = 0; i < 6; i++) {
        OK(ls_variable_describe(model, i, &variable));
        ck_assert_str_eq(variable.name, expected[i].name);
        ck_assert_uint_eq(variable.ndims, expected[i].ndims);
        ck_assert_mem_eq(variable.dims, expected[i].dims,
                         expected[i].ndims * sizeof(variable.dims[0]));
        ck_assert_uint_eq(variable.trained, 1);
    }
    expect_error(ls_variable_describe(model, 6, &variable), LS_USAGE, "there is no number 6");
    ls_model_close(model);
}

// After a short fit the replicas are ahead of the host; what is set reaches all of them.
LOOP_TEST(what_is_set_is_trained_on_under_every_strategy, 0, STRATEGIES)
{
    struct ls_run *own = run_of(strategies[_i].name, strategies[_i].replicas);
    struct ls_model *model = model_of(own, "adam"), *other = model_of(own, "adam");
    uint64_t count, same;
    fit_steps(model, 3);
    float *values = all_values(model, &count);
    fit_steps(other, 1);
    for (uint32_t i = 0, at = 0; i < ls_variable_count(model); i++) {
        struct ls_variable variable;
        OK(ls_variable_describe(model, i, &variable));
        OK(ls_set_variable(other, i, values + at));
        at += (uint32_t)variable.elements;
    }
    float *taken = all_values(other, &same);
    ck_assert_uint_eq(same, count);
    ck_assert_mem_eq(taken, values, count * sizeof(float));
    struct ls_scores one, two;
    OK(ls_evaluate(model, test, 5, &one));
    OK(ls_evaluate(other, test, 5, &two));
    ck_assert_double_eq(ls_metric_value(&one.metrics, "loss"),
                        ls_metric_value(&two.metrics, "loss"));
    fit_steps(other, 1);
    float *moved = all_values(other, &same);
    ck_assert(memcmp(moved, values, count * sizeof(float)) != 0);
    for (uint64_t i = 0; i < count; i++) // a step of Adam is about as long as its rate
        ck_assert_float_le(fabsf(moved[i] - values[i]), 0.011f);
    free(values);
    free(taken);
    free(moved);
    ls_model_close(model);
    ls_model_close(other);
    ls_run_close(own);
}

// Sets the second variable to zeros at the end of the first epoch, and sees what there is at the end of the second.
struct watcher {
    uint64_t set_at;
    float largest; // of that variable at the end of a later epoch
    enum ls_status in_steps; // of reading while replicas are in their steps
};

static enum ls_status on_epoch_end(void *context, const struct ls_fit_state *state)
{
    struct watcher *watcher = context;
    float bias[3] = {0};
    if (state->epoch.epoch == watcher->set_at)
        return ls_set_variable(state->model, 1, bias);
    const enum ls_status status = ls_get_variable(state->model, 1, bias);
    for (int i = 0; i < 3; i++)
        watcher->largest = fmaxf(watcher->largest, fabsf(bias[i]));
    return status;
}

static enum ls_status on_train_batch_end(void *context, const struct ls_fit_state *state)
{
    struct watcher *watcher = context;
    float bias[3];
    watcher->in_steps = ls_get_variable(state->model, 1, bias);
    return LS_OK;
}

LOOP_TEST(a_callback_sets_them_within_a_fit_under_every_strategy, 0, STRATEGIES)
{
    struct ls_run *own = run_of(strategies[_i].name, strategies[_i].replicas);
    struct ls_model *model = model_of(own, "sgd:learning_rate=0.0001");
    struct watcher watcher = {.set_at = 1};
    float bias[3] = {5, 6, 7};
    OK(ls_set_variable(model, 1, bias));
    const struct ls_callbacks callbacks = {.context = &watcher, .on_epoch_end = on_epoch_end};
    OK(ls_fit(model, train,
              &(struct ls_fit_options){.epochs = 2,
                                       .batch = 8,
                                       .validation = test,
                                       .callbacks = &callbacks,
                                       .callback_count = 1}));
    ck_assert_float_gt(watcher.largest, 0);
    ck_assert_float_lt(watcher.largest, 0.1f); // of 5, 6 and 7 nothing was left
    ls_model_close(model);
    ls_run_close(own);
}

TEST(between_the_steps_of_the_replicas_alone)
{
    struct ls_model *model = model_of(run, "sgd");
    struct watcher watcher = {0};
    const struct ls_callbacks callbacks = {.context = &watcher,
                                           .on_train_batch_end = on_train_batch_end};
    OK(ls_fit(model, train,
              &(struct ls_fit_options){
                  .batch = 8, .steps = 1, .callbacks = &callbacks, .callback_count = 1}));
    expect_error(watcher.in_steps, LS_USAGE, "not in on_train_batch_end");
    ls_model_close(model);
}

LOOP_TEST(a_model_that_was_saved_trains_on_to_the_bit, 0, STRATEGIES)
{
    struct ls_run *own = run_of(strategies[_i].name, strategies[_i].replicas);
    struct ls_model *model = model_of(own, "adam");
    uint64_t count;
    fit_steps(model, 5);
    OK(ls_model_save(model, FILE_NAME));
    fit_steps(model, 4);
    float *expected = all_values(model, &count);
    ls_model_close(model);
    model = model_of(own, "adam");
    OK(ls_model_load(model, FILE_NAME));
    fit_steps(model, 4);
    float *values = all_values(model, &count);
    ck_assert_mem_eq(values, expected, count * sizeof(float));
    free(values);
    free(expected);
    ls_model_close(model);
    ls_run_close(own);
    remove(FILE_NAME);
}

// What was set since the last step is on the host alone, the state of the optimizer on the replicas alone.
LOOP_TEST(what_was_set_is_saved_with_the_optimizer, 0, STRATEGIES)
{
    struct ls_run *own = run_of(strategies[_i].name, strategies[_i].replicas);
    struct ls_model *model = model_of(own, "adam");
    const float bias[3] = {5, 6, 7};
    float loaded[3];
    uint64_t count;
    fit_steps(model, 5);
    OK(ls_set_variable(model, 1, bias));
    OK(ls_model_save(model, FILE_NAME));
    fit_steps(model, 4);
    float *expected = all_values(model, &count);
    ls_model_close(model);
    model = model_of(own, "adam");
    OK(ls_model_load(model, FILE_NAME));
    OK(ls_get_variable(model, 1, loaded));
    ck_assert_mem_eq(loaded, bias, sizeof(bias));
    fit_steps(model, 4);
    float *values = all_values(model, &count);
    ck_assert_mem_eq(values, expected, count * sizeof(float));
    free(values);
    free(expected);
    ls_model_close(model);
    ls_run_close(own);
    remove(FILE_NAME);
}

// A model that was saved before its first step has no state of the optimizer: neither has the one that is loaded.
LOOP_TEST(a_model_that_is_loaded_forgets_what_it_learned, 0, STRATEGIES)
{
    struct ls_run *own = run_of(strategies[_i].name, strategies[_i].replicas);
    struct ls_model *model = model_of(own, "adagrad");
    uint64_t count;
    OK(ls_model_save(model, FILE_NAME));
    fit_steps(model, 3);
    float *expected = all_values(model, &count);
    OK(ls_save_weights(model, LATER));
    OK(ls_load_weights(model, LATER)); // brings the state of the optimizer to the host
    OK(ls_model_load(model, FILE_NAME));
    fit_steps(model, 3);
    float *values = all_values(model, &count);
    ck_assert_mem_eq(values, expected, count * sizeof(float));
    free(values);
    free(expected);
    ls_model_close(model);
    ls_run_close(own);
    remove(FILE_NAME);
    remove(LATER);
}

// After an epoch the replicas have all, and the host has nothing; the next fit takes it from them.
TEST(memory_that_runs_out_leaves_first_weights_or_those_of_the_fit)
{
    const struct ls_fit_options epoch = {.batch = 10}, step = {.batch = 10, .steps = 1};
    struct ls_model *model = model_of(run, "adam");
    enum ls_status status = LS_OUT_OF_MEMORY;
    int failed = 0;
    uint64_t count;
    float *first = all_values(model, &count);
    ls_model_close(model);
    model = model_of(run, "adam");
    OK(ls_fit(model, train, &epoch));
    float *trained = all_values(model, &count);
    for (int number = 1; status; number++) {
        ls_model_close(model);
        model = model_of(run, "adam");
        OK(ls_fit(model, train, &epoch));
        atomic_store(&failing, number);
        status = ls_fit(model, train, &step);
        const bool all_made = atomic_exchange(&failing, 0) > 0;
        ck_assert_int_eq(status, all_made ? LS_OK : LS_OUT_OF_MEMORY);
        failed += status != LS_OK;
        float *values = all_values(model, &count);
        ck_assert(!status || memcmp(values, first, count * sizeof(float)) == 0 ||
                  memcmp(values, trained, count * sizeof(float)) == 0);
        free(values);
        forget_errors();
    }
    ck_assert_int_ge(failed, 18); // weights and two states of six variables
    free(first);
    free(trained);
    ls_model_close(model);
}

TEST(a_checkpoint_without_memory_for_its_copy_ends_nothing)
{
    char folder[] = "variables-checkpoints-XXXXXX", file[128];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(file, sizeof(file), "%s/checkpoint-00000005.safetensors", folder);
    const struct ls_checkpoint_options checkpoints = {.folder = folder};
    const struct ls_fit_options plain = {.batch = 10},
                                writes = {.batch = 10, .checkpoints = &checkpoints};
    struct ls_model *model = model_of(run, "adam");
    bool all_made = false;
    int went_on = 0;
    uint64_t count;
    OK(ls_fit(model, train, &plain));
    float *trained = all_values(model, &count);
    for (int number = 1; !all_made; number++) {
        ls_model_close(model);
        model = model_of(run, "adam");
        atomic_store(&failing, number);
        const enum ls_status status = ls_fit(model, train, &writes);
        all_made = atomic_exchange(&failing, 0) > 0;
        went_on += remove(file) != 0 && !status;
        if (!status) {
            float *values = all_values(model, &count);
            ck_assert_mem_eq(values, trained, count * sizeof(float));
            free(values);
        }
        forget_errors();
    }
    ck_assert_int_ge(went_on, 18); // weights and two states of six variables
    free(trained);
    ls_model_close(model);
    remove_folder(folder);
}

TEST(what_is_no_saved_model_of_this_one_is_refused)
{
    struct ls_model *model = model_of(run, "adam"), *other = model_of(run, "sgd");
    OK(ls_model_save(model, FILE_NAME));
    expect_error(ls_model_load(other, FILE_NAME), LS_USAGE, "written with the optimizer adam");
    OK(ls_save_weights(model, FILE_NAME));
    expect_error(ls_model_load(model, FILE_NAME), LS_BAD_INPUT, "read it with ls_load_weights");
    ck_assert_int_eq(ls_model_load(model, "/no/such/file"), LS_BAD_INPUT);
    forget_errors();
    ck_assert_int_eq(ls_model_save(model, "/no/such/folder/file.safetensors"), LS_FAILED);
    forget_errors();
    expect_error(ls_model_save(model, "model.json"), LS_USAGE, "'model.json'");
    expect_error(ls_model_save(model, "model.weights.h5"), LS_USAGE, ".safetensors");
    forget_errors();
    ls_model_close(model);
    ls_model_close(other);
    remove(FILE_NAME);
}

// The checkpoint is of another batch: that is seen before the model becomes the checkpoint's.
TEST(a_resumption_that_is_refused_leaves_the_model_as_it_is)
{
    char folder[] = "variables-checkpoints-XXXXXX", file[128];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    const struct ls_checkpoint_options writes = {.folder = folder};
    const struct ls_checkpoint_options resumes = {.folder = folder, .resume = 1};
    struct ls_model *model = model_of(run, "adam"), *other = model_of(run, "adam");
    uint64_t count;
    OK(ls_fit(model, train,
              &(struct ls_fit_options){.batch = 8, .steps = 3, .checkpoints = &writes}));
    fit_steps(other, 1);
    float *before = all_values(other, &count);
    expect_error(ls_fit(other, train,
                        &(struct ls_fit_options){.batch = 9, .steps = 5, .checkpoints = &resumes}),
                 LS_USAGE, "--batch=8");
    float *after = all_values(other, &count);
    ck_assert_mem_eq(after, before, count * sizeof(float));
    free(before);
    free(after);
    ls_model_close(model);
    ls_model_close(other);
    snprintf(file, sizeof(file), "%s/checkpoint-00000003.safetensors", folder);
    ck_assert_int_eq(remove(file), 0);
    remove_folder(folder);
}

// Counts epochs in what checkpoints keep, and interrupts the second one.
struct counter {
    uint64_t epochs;
    bool in_validation, at_end; // where it interrupts
};

static enum ls_status interrupt_validation(void *context, const struct ls_fit_state *state)
{
    const struct counter *counter = context;
    if (counter->in_validation && state->epoch.epoch == 2)
        ls_run_interrupt(run);
    return LS_OK;
}

static enum ls_status count_epoch(void *context, const struct ls_fit_state *state)
{
    struct counter *counter = context;
    counter->epochs++;
    if (counter->at_end && state->epoch.epoch == 2)
        ls_run_interrupt(run);
    return LS_OK;
}

static enum ls_status save_count(void *context, struct ls_callback_state *out)
{
    struct counter *counter = context;
    *out = (struct ls_callback_state){&counter->epochs, sizeof(counter->epochs)};
    return LS_OK;
}

static enum ls_status load_count(void *context, const struct ls_callback_state *state)
{
    struct counter *counter = context;
    ck_assert_uint_eq(state->bytes, sizeof(counter->epochs));
    memcpy(&counter->epochs, state->data, sizeof(counter->epochs));
    return LS_OK;
}

static enum ls_status fit_counted(struct ls_model *model, struct counter *counter,
                                  const struct ls_checkpoint_options *checkpoints)
{
    const struct ls_callbacks callbacks = {.context = counter,
                                           .on_test_begin = interrupt_validation,
                                           .on_epoch_end = count_epoch,
                                           .save_state = save_count,
                                           .load_state = load_count};
    return ls_fit(model, train,
                  &(struct ls_fit_options){.epochs = 3,
                                           .batch = 8,
                                           .validation = test,
                                           .checkpoints = checkpoints,
                                           .callbacks = &callbacks,
                                           .callback_count = 1});
}

LOOP_TEST(an_epoch_that_was_interrupted_at_its_end_counts_once, 0, 2)
{
    char folder[] = "variables-checkpoints-XXXXXX", file[128];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    const struct ls_checkpoint_options checkpoints = {.folder = folder, .resume = 1};
    struct ls_model *model = model_of(run, "adam"), *other = model_of(run, "adam");
    struct counter counter = {.in_validation = _i == 0, .at_end = _i == 1};
    struct counter resumed = {0};
    size_t epochs;
    ck_assert_int_eq(fit_counted(model, &counter, &checkpoints), LS_INTERRUPTED);
    OK(fit_counted(other, &resumed, &checkpoints));
    ck_assert_uint_eq(resumed.epochs, 3);
    ck_assert_ptr_nonnull(ls_fit_epochs(other, &epochs));
    ck_assert_uint_eq(epochs, 3);
    ls_model_close(model);
    ls_model_close(other);
    for (int step = 7; step <= 21; step += 7) {
        snprintf(file, sizeof(file), "%s/checkpoint-%08d.safetensors", folder, step);
        ck_assert_int_eq(remove(file), 0);
    }
    remove_folder(folder);
}

// The update that ruins the weights is the last one, and the callback takes no notice.
static enum ls_status ignore_failure(void *context, const struct ls_fit_state *state)
{
    float bias[10];
    *(enum ls_status *)context = ls_get_variable(state->model, 5, bias);
    return LS_OK;
}

TEST(a_failure_that_a_callback_ignores_fails_the_fit)
{
    struct ls_model *model = model_of(run, "adam:learning_rate=3e38");
    const float large[10] = {3e38f, 3e38f, 3e38f, 3e38f, 3e38f, 3e38f, 3e38f, 3e38f, 3e38f, 3e38f};
    enum ls_status seen = LS_OK;
    const struct ls_callbacks callbacks = {.context = &seen, .on_epoch_end = ignore_failure};
    const struct ls_fit_options options = {
        .batch = 50, .callbacks = &callbacks, .callback_count = 1};
    OK(ls_set_variable(model, 5, large));
    const enum ls_status status = ls_fit(model, train, &options);
    ck_assert_int_eq(seen, LS_FAILED);
    ck_assert_int_eq(status, LS_FAILED);
    forget_errors();
    ls_model_close(model);
}

TEST_FIXTURE(set_up, tear_down);
