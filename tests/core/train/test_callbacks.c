// SPDX-License-Identifier: Apache-2.0
// Callbacks: every moment in its order and on its thread, several clients, stopping, failing, segments, the learning rate.
#include "tests/core/train/fixture.h"

#include <malloc.h>
#include <pthread.h>

#define STEPS 7 // of an epoch of the 50 examples, 8 at a time

// What one client does: writes a letter for each call, and answers something else than LS_OK at one of them.
struct client {
    struct ls_callbacks table; // its context is the client
    char number;
    char letter; // of the moment at which it does something; 0: at none
    uint64_t at_step; // and only when so many steps are done
    enum ls_status answer; // what it does: answers this,
    bool stops; // or calls ls_stop_training,
    double rate; // or sets the learning rate, unless 0
    enum ls_status rate_answer; // and was told this
    uint64_t segment; // its segments are so long; 0: as they are
};

static char calls[1024]; // of all clients
static pthread_t main_thread;
static struct ls_fit_state seen[32]; // at each call of client 0
static size_t seen_count;

static enum ls_status note(struct client *client, char letter, const struct ls_fit_state *state)
{
    const size_t length = strlen(calls);
    ck_assert_uint_lt(length + 2, sizeof(calls));
    calls[length] = letter;
    calls[length + 1] = client->number;
    ck_assert(letter == 'b' || pthread_equal(pthread_self(), main_thread));
    if (client->number == '0' && seen_count < sizeof(seen) / sizeof(seen[0]))
        seen[seen_count++] = *state;
    if (client->letter != letter || state->steps_done != client->at_step)
        return LS_OK;
    if (client->stops)
        ls_stop_training(state->model);
    if (client->rate != 0)
        client->rate_answer = ls_set_learning_rate(state->model, client->rate);
    return client->answer;
}

#define MOMENT(name, letter)                                                    \
    static enum ls_status name(void *context, const struct ls_fit_state *state) \
    {                                                                           \
        return note(context, letter, state);                                    \
    }

MOMENT(on_train_begin, 'T')
MOMENT(on_train_end, 't')
MOMENT(on_epoch_begin, 'E')
MOMENT(on_epoch_end, 'e')
MOMENT(on_segment_end, 's')
MOMENT(on_train_batch_end, 'b')
MOMENT(on_test_begin, 'V')
MOMENT(on_test_end, 'v')

static enum ls_status on_segment_begin(void *context, const struct ls_fit_state *state,
                                       uint64_t *steps)
{
    const struct client *client = context;
    if (client->segment && *steps > client->segment)
        *steps = client->segment;
    return note(context, 'S', state);
}

static struct ls_callbacks table_of(struct client *client)
{
    return (struct ls_callbacks){.context = client,
                                 .on_train_begin = on_train_begin,
                                 .on_train_end = on_train_end,
                                 .on_epoch_begin = on_epoch_begin,
                                 .on_epoch_end = on_epoch_end,
                                 .on_segment_begin = on_segment_begin,
                                 .on_segment_end = on_segment_end,
                                 .on_train_batch_end = on_train_batch_end,
                                 .on_test_begin = on_test_begin,
                                 .on_test_end = on_test_end};
}

// A fit with `first`, who answers to 0, and `second` (NULL: without), who answers to 1.
static enum ls_status fit(struct ls_model *model, struct client *first, struct client *second,
                          struct ls_fit_options options)
{
    struct ls_callbacks tables[2];
    memset(calls, 0, sizeof(calls));
    seen_count = 0;
    main_thread = pthread_self();
    first->number = '0';
    tables[0] = table_of(first);
    if (second) {
        second->number = '1';
        tables[1] = table_of(second);
    }
    options.callbacks = tables;
    options.callback_count = second ? 2 : 1;
    return ls_fit(model, train, &options);
}

LOOP_TEST(every_moment_comes_in_order_to_every_client, 1, 3)
{
    struct ls_run *some = run_of(_i > 1 ? "ring" : "one-device", (uint32_t)_i);
    struct ls_model *model = model_of(some, "sgd");
    struct client first = {0}, second = {0};
    OK(fit(model, &first, &second,
           (struct ls_fit_options){.epochs = 2, .batch = 25, .validation = test}));
    ck_assert_str_eq(calls, "T0T1"
                            "E0E1S0S1b0b1b0b1s0s1V0V1v0v1e0e1"
                            "E0E1S0S1b0b1b0b1s0s1V0V1v0v1e0e1"
                            "t0t1");
    OK(fit(model, &first, NULL, (struct ls_fit_options){.batch = 25, .check_replicas = 1}));
    ck_assert_str_eq(calls, "T0E0S0b0s0S0b0s0e0t0"); // segments end where replicas are compared
    ls_model_close(model);
    ls_run_close(some);
}

static enum ls_status count_call(void *context, const struct ls_fit_state *state)
{
    (void)state;
    ++*(unsigned *)context;
    return LS_OK;
}

TEST(what_a_table_leaves_out_is_not_called)
{
    struct ls_model *model = model_of(run, "sgd");
    unsigned epochs = 0;
    const struct ls_callbacks tables[] = {{0}, {.context = &epochs, .on_epoch_end = count_call}};
    OK(ls_fit(model, train,
              &(struct ls_fit_options){
                  .epochs = 3, .batch = 8, .callbacks = tables, .callback_count = 2}));
    ck_assert_uint_eq(epochs, 3);
    ls_model_close(model);
}

static double loss_of(const struct ls_metrics *metrics)
{
    ck_assert_str_eq(metrics->list[0].name, "loss");
    return metrics->list[0].value;
}

TEST(clients_see_the_numbers_that_stay)
{
    struct ls_model *model = model_of(run, "sgd:learning_rate=0.5");
    struct client client = {0};
    size_t count;
    OK(fit(model, &client, NULL, (struct ls_fit_options){.batch = 32, .validation = test}));
    ck_assert_str_eq(calls, "T0E0S0b0b0s0V0v0e0t0");
    const float *losses = ls_fit_losses(model, &count);
    ck_assert_uint_eq(count, 2);
    for (size_t i = 0; i < seen_count; i++) {
        ck_assert_ptr_eq(seen[i].model, model);
        ck_assert_uint_eq(seen[i].epochs, 1);
        ck_assert_uint_eq(seen[i].steps, 2);
        ck_assert_uint_eq(seen[i].epoch_steps, 2);
        ck_assert_uint_eq(seen[i].asynchronous, 0);
        ck_assert_uint_eq(seen[i].epoch.epoch, i > 0);
        ck_assert_uint_eq(seen[i].steps_done, i < 3 ? 0 : i == 3 ? 1 : 2);
        ck_assert_uint_eq(seen[i].epoch.steps, seen[i].steps_done);
    }
    const struct ls_fit_state *one = &seen[3], *two = &seen[4];
    ck_assert_uint_eq(one->step_examples, 32);
    ck_assert_uint_eq(two->step_examples, 18);
    ck_assert_double_eq(loss_of(&one->step_metrics), (double)losses[0]);
    ck_assert_double_eq(loss_of(&two->step_metrics), (double)losses[1]);
    const double mean = (loss_of(&one->step_metrics) * 32 + loss_of(&two->step_metrics) * 18) / 50;
    ck_assert_double_eq_tol(loss_of(&two->epoch.metrics), mean,
                            1e-6); // of both so far, which are float32
    ck_assert_uint_eq(two->epoch.metrics.count, 2); // no validation yet
    ck_assert(isnan(loss_of(&seen[1].epoch.metrics))); // no step yet
    const struct ls_epoch *kept = ls_fit_epochs(model, &count), *told = &seen[8].epoch;
    ck_assert_uint_eq(told->metrics.count, 4);
    ck_assert_uint_eq(kept->metrics.count, 4);
    for (uint32_t i = 0; i < 4; i++) {
        static const char *const names[] = {"loss", "accuracy", "val_loss", "val_accuracy"};
        ck_assert_str_eq(kept->metrics.list[i].name, names[i]);
        ck_assert_double_eq(kept->metrics.list[i].value, told->metrics.list[i].value);
        ck_assert_double_eq(seen[7].epoch.metrics.list[i].value, told->metrics.list[i].value);
    }
    ck_assert_double_eq(told->learning_rate, 0.5);
    ck_assert_double_gt(told->seconds, 0);
    ls_model_close(model);
}

LOOP_TEST(training_stops_in_an_epoch_and_goes_on_there, 1, 3)
{
    struct ls_run *some = run_of(_i > 1 ? "ring" : "one-device", (uint32_t)_i);
    struct ls_model *stopped = model_of(some, "adam"), *whole = model_of(some, "adam");
    struct client stopper = {.letter = 'b', .at_step = 2, .stops = true}, other = {0};
    const struct ls_fit_options two = {.epochs = 2, .batch = 8, .validation = test};
    OK(fit(stopped, &other, &stopper, two));
    // All replicas are told with the next step.
    ck_assert_str_eq(calls, "T0T1E0E1S0S1b0b1b0b1b0b1s0s1V0V1v0v1e0e1t0t1");
    ck_assert_uint_eq(stopped->steps_done, 3);
    ck_assert_uint_eq(ls_training_is_stopped(stopped), 1);
    OK(ls_fit(stopped, train, &(struct ls_fit_options){.epochs = 2, .batch = 8})); // it is over
    ck_assert_uint_eq(ls_training_is_stopped(stopped), 0);
    ck_assert_uint_eq(stopped->steps_done, 2 * STEPS);
    OK(ls_fit(whole, train, &(struct ls_fit_options){.epochs = 2, .batch = 8}));
    ck_assert_double_eq(weight_difference(stopped, whole), 0);
    ls_model_close(stopped);
    ls_model_close(whole);
    ls_run_close(some);
}

LOOP_TEST(training_stops_at_any_moment_of_the_main_thread, 0, 8)
{
    static const struct {
        char letter;
        uint64_t at_step;
        const char *calls;
    } cases[] = {
        {'T', 0, "T0t0"},
        {'E', 0, "T0E0t0"},
        {'S', 0, "T0E0S0t0"},
        {'s', 2, "T0E0S0b0b0s0V0v0e0t0"},
        {'V', 2, "T0E0S0b0b0s0V0v0e0t0"},
        {'v', 2, "T0E0S0b0b0s0V0v0e0t0"},
        {'e', 2, "T0E0S0b0b0s0V0v0e0t0"},
        {'b', 2, "T0E0S0b0b0s0V0v0e0t0"}, // the last step of the epoch: there is no next one
    };
    struct ls_model *model = model_of(run, "sgd");
    struct client client = {
        .letter = cases[_i].letter, .at_step = cases[_i].at_step, .stops = true};
    OK(fit(model, &client, NULL,
           (struct ls_fit_options){.epochs = 3, .batch = 25, .validation = test}));
    ck_assert_str_eq(calls, cases[_i].calls);
    ck_assert_int_eq(seen[seen_count - 1].status, LS_OK);
    ck_assert_uint_eq(model->steps_done, cases[_i].at_step);
    ls_model_close(model);
}

LOOP_TEST(interrupted_is_an_answer, 0, 8)
{
    static const struct {
        char letter;
        uint64_t at_step;
        const char *calls;
    } cases[] = {
        {'T', 0, "T0T1t0t1"},
        {'E', 0, "T0T1E0E1t0t1"},
        {'S', 0, "T0T1E0E1S0S1t0t1"},
        {'b', 1, "T0T1E0E1S0S1b0b1b0b1s0s1e0e1t0t1"}, // with the next step
        {'s', 2, "T0T1E0E1S0S1b0b1b0b1s0s1e0e1t0t1"},
        {'V', 2, "T0T1E0E1S0S1b0b1b0b1s0s1V0V1e0e1t0t1"},
        {'v', 2, "T0T1E0E1S0S1b0b1b0b1s0s1V0V1v0v1e0e1t0t1"},
        {'e', 2, "T0T1E0E1S0S1b0b1b0b1s0s1V0V1v0v1e0e1t0t1"},
    };
    struct ls_model *model = model_of(run, "sgd");
    struct client first = {.letter = cases[_i].letter,
                           .at_step = cases[_i].at_step,
                           .answer = LS_INTERRUPTED},
                  second = {0};
    const struct ls_fit_options options = {.epochs = 3, .batch = 25, .validation = test};
    ck_assert_int_eq(fit(model, &first, &second, options), LS_INTERRUPTED);
    ck_assert_str_eq(calls, cases[_i].calls);
    ck_assert_int_eq(seen[seen_count - 1].status, LS_INTERRUPTED);
    ck_assert_uint_eq(model->steps_done, _i < 3 ? 0 : 2);
    ck_assert_uint_eq(errors, 0);
    OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 25})); // it is over
    ls_model_close(model);
}

LOOP_TEST(a_client_that_fails_ends_the_fit_and_the_steps_stay, 0, 8)
{
    static const struct {
        char letter;
        uint64_t at_step;
        const char *calls, *error;
    } cases[] = {
        {'T', 0, "T0T1t0t1", "callbacks[0].on_train_begin failed (bad input)"},
        {'E', 0, "T0T1E0E1t0t1", "callbacks[0].on_epoch_begin failed"},
        {'S', 0, "T0T1E0E1S0S1t0t1", "callbacks[0].on_segment_begin failed"},
        {'b', 1, "T0T1E0E1S0S1b0b1b0b1s0s1t0t1", // with the next step
         "callbacks[0].on_train_batch_end failed"},
        {'s', 2, "T0T1E0E1S0S1b0b1b0b1s0s1t0t1", "callbacks[0].on_segment_end failed"},
        {'V', 2, "T0T1E0E1S0S1b0b1b0b1s0s1V0V1e0e1t0t1", "callbacks[0].on_test_begin failed"},
        {'v', 2, "T0T1E0E1S0S1b0b1b0b1s0s1V0V1v0v1e0e1t0t1", "callbacks[0].on_test_end failed"},
        {'e', 2, "T0T1E0E1S0S1b0b1b0b1s0s1V0V1v0v1e0e1t0t1", "callbacks[0].on_epoch_end failed"},
    };
    struct ls_run *two = run_of("ring", 2);
    struct ls_model *model = model_of(two, "adam"), *same = model_of(two, "adam");
    struct client first = {.letter = cases[_i].letter,
                           .at_step = cases[_i].at_step,
                           .answer = LS_BAD_INPUT},
                  second = {0};
    const struct ls_fit_options options = {.epochs = 3, .batch = 25, .validation = test};
    expect_error(fit(model, &first, &second, options), LS_BAD_INPUT, cases[_i].error);
    ck_assert_str_eq(calls, cases[_i].calls);
    ck_assert_int_eq(seen[seen_count - 1].status, LS_BAD_INPUT);
    ck_assert_uint_eq(model->steps_done, _i < 3 ? 0 : 2);
    if (_i >= 3)
        OK(ls_fit(same, train, &(struct ls_fit_options){.batch = 25}));
    OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 25}));
    OK(ls_fit(same, train, &(struct ls_fit_options){.batch = 25}));
    ck_assert_double_eq(weight_difference(model, same), 0);
    ls_model_close(model);
    ls_model_close(same);
    ls_run_close(two);
}

TEST(a_client_that_fails_at_the_end_changes_nothing_of_the_model)
{
    struct ls_model *model = model_of(run, "sgd");
    struct client client = {.letter = 't', .at_step = 2, .answer = LS_ABORTED}; // of the core alone
    expect_error(fit(model, &client, NULL, (struct ls_fit_options){.batch = 25}), LS_FAILED,
                 "callbacks[0].on_train_end failed (failed)");
    ck_assert_uint_eq(model->steps_done, 2);
    ls_model_close(model);
}

static void write_idx(const char *folder, const char *name, const uint8_t *header, size_t bytes,
                      uint8_t value, size_t values)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(header, 1, bytes, file), bytes);
    for (size_t i = 0; i < values; i++)
        ck_assert_int_eq(fputc(value, file), value);
    ck_assert_int_eq(fclose(file), 0);
}

static void remove_idx(const char *folder, const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    ck_assert_int_eq(unlink(path), 0);
}

// The data is wrong, which is found after the replicas were made.
TEST(a_fit_that_cannot_begin_calls_nobody)
{
    static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 4};
    static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 4};
    char folder[] = "/tmp/lockstep-callbacks-XXXXXX", text[128];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    write_idx(folder, "train-images-idx3-ubyte", images, sizeof(images), 1, 4 * 16);
    write_idx(folder, "train-labels-idx1-ubyte", labels, sizeof(labels), 200, 4);
    snprintf(text, sizeof(text), "mnist:dir=%s", folder);
    ls_data_close(train);
    train = data_of(text, "train");
    struct ls_model *model = model_of(run, "sgd");
    struct client client = {0};
    expect_error(fit(model, &client, NULL, (struct ls_fit_options){.batch = 2}), LS_BAD_INPUT,
                 "200");
    ck_assert_str_eq(calls, "");
    ls_model_close(model);
    remove_idx(folder, "train-images-idx3-ubyte");
    remove_idx(folder, "train-labels-idx1-ubyte");
    rmdir(folder);
}

TEST(segments_may_be_shorter_and_change_no_bit)
{
    struct ls_run *two = run_of("ring", 2);
    struct ls_model *cut = model_of(two, "adam"), *whole = model_of(two, "adam");
    struct client shorter = {.segment = 3}, longer = {.segment = 5};
    OK(fit(cut, &longer, &shorter, (struct ls_fit_options){.batch = 8}));
    ck_assert_str_eq(calls, "T0T1E0E1S0S1b0b1b0b1b0b1s0s1S0S1b0b1b0b1b0b1s0s1S0S1b0b1s0s1e0e1t0t1");
    OK(ls_fit(whole, train, &(struct ls_fit_options){.batch = 8}));
    ck_assert_double_eq(weight_difference(cut, whole), 0);
    ls_model_close(cut);
    ls_model_close(whole);
    ls_run_close(two);
}

static enum ls_status no_more(void *context, const struct ls_fit_state *state, uint64_t *steps)
{
    const uint64_t *most = context;
    *steps = *most - state->steps_done;
    return LS_OK;
}

TEST(a_segment_of_no_steps_is_the_end)
{
    struct ls_model *model = model_of(run, "sgd");
    uint64_t most = 4;
    const struct ls_callbacks table = {.context = &most, .on_segment_begin = no_more};
    OK(ls_fit(model, train,
              &(struct ls_fit_options){
                  .epochs = 9, .batch = 8, .callbacks = &table, .callback_count = 1}));
    ck_assert_uint_eq(model->steps_done, 4);
    ls_model_close(model);
}

LOOP_TEST(the_learning_rate_changes_between_steps_and_not_in_them, 0, 5)
{
    struct ls_model *model = model_of(run, "sgd:learning_rate=1");
    struct client client = {.letter = "ESesb"[_i], .at_step = 2, .rate = 0.125};
    size_t count;
    OK(fit(model, &client, NULL, (struct ls_fit_options){.epochs = 2, .batch = 25}));
    ck_assert_int_eq(client.rate_answer, _i < 4 ? LS_OK : LS_USAGE);
    const struct ls_epoch *epochs = ls_fit_epochs(model, &count);
    ck_assert_uint_eq(count, 2);
    ck_assert_double_eq(epochs[0].learning_rate, 1);
    ck_assert_double_eq(epochs[1].learning_rate, _i < 4 ? 0.125 : 1);
    ck_assert_uint_eq(errors, _i == 4);
    ls_model_close(model);
}

struct saving {
    char path[64], whole[64];
    size_t losses, epochs;
};

// What the callback's epoch ends with is what a fit of so many epochs leaves behind, to the bit.
static enum ls_status save_all(void *context, const struct ls_fit_state *state)
{
    struct saving *saving = context;
    if (state->epoch.epoch != 1)
        return LS_OK;
    const enum ls_status status = ls_save_weights(state->model, saving->path);
    return status ? status : ls_model_save(state->model, saving->whole);
}

TEST(between_epochs_a_callback_may_save)
{
    struct saving saving = {0};
    struct ls_model *model = model_of(run, "adam"), *loaded = model_of(run, "adam");
    struct ls_model *one = model_of(run, "adam");
    const struct ls_callbacks table = {.context = &saving, .on_epoch_end = save_all};
    snprintf(saving.path, sizeof(saving.path), "/tmp/lockstep-callbacks-%ld.safetensors",
             (long)getpid());
    snprintf(saving.whole, sizeof(saving.whole), "/tmp/lockstep-model-%ld.safetensors",
             (long)getpid());
    OK(ls_fit(model, train,
              &(struct ls_fit_options){
                  .epochs = 2, .batch = 8, .callbacks = &table, .callback_count = 1}));
    OK(ls_fit(one, train, &(struct ls_fit_options){.epochs = 1, .batch = 8}));
    OK(ls_load_weights(loaded, saving.path));
    ck_assert_double_eq(weight_difference(one, loaded), 0);
    OK(ls_model_load(loaded, saving.whole));
    OK(ls_fit(loaded, train, &(struct ls_fit_options){.epochs = 1, .batch = 8}));
    ck_assert_double_eq(weight_difference(model, loaded), 0);
    unlink(saving.path);
    unlink(saving.whole);
    ls_model_close(model);
    ls_model_close(one);
    ls_model_close(loaded);
}

static enum ls_status save(void *context, const struct ls_fit_state *state)
{
    struct saving *saving = context;
    (void)ls_fit_losses(state->model, &saving->losses);
    (void)ls_fit_epochs(state->model, &saving->epochs);
    return ls_save_weights(state->model, saving->path);
}

TEST(at_the_end_the_results_are_there)
{
    struct saving saving = {0};
    struct ls_model *model = model_of(run, "sgd"), *loaded = model_of(run, "sgd");
    const struct ls_callbacks table = {.context = &saving, .on_train_end = save};
    snprintf(saving.path, sizeof(saving.path), "/tmp/lockstep-callbacks-%ld.safetensors",
             (long)getpid());
    OK(ls_fit(model, train,
              &(struct ls_fit_options){
                  .epochs = 2, .batch = 8, .callbacks = &table, .callback_count = 1}));
    ck_assert_uint_eq(saving.losses, 2 * STEPS);
    ck_assert_uint_eq(saving.epochs, 2);
    OK(ls_load_weights(loaded, saving.path));
    ck_assert_double_eq(weight_difference(model, loaded), 0);
    unlink(saving.path);
    ls_model_close(model);
    ls_model_close(loaded);
}

TEST(after_a_failure_the_end_may_save_what_the_host_has)
{
    struct saving saving = {0};
    const struct ls_layer layers[] = {LS_INPUT(4, 4, 1), LS_FLATTEN(), LS_DENSE(1), LS_END};
    const struct ls_callbacks table = {.context = &saving, .on_train_end = save};
    struct ls_model *model = NULL, *loaded = NULL;
    snprintf(saving.path, sizeof(saving.path), "/tmp/lockstep-callbacks-%ld.safetensors",
             (long)getpid());
    OK(ls_sequential_create(run, "one", layers, &model));
    OK(ls_sequential_create(run, "one", layers, &loaded));
    // The first loss is finite, and the update that follows is not.
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd:learning_rate=3e38",
                                                      .loss = "mean_squared_error"}));
    const enum ls_status status =
        ls_fit(model, train,
               &(struct ls_fit_options){
                   .batch = 50, .epochs = 1, .callbacks = &table, .callback_count = 1});
    expect_error(status, LS_FAILED, "after the last step");
    ck_assert_uint_eq(saving.losses, 1);
    OK(ls_load_weights(loaded, saving.path));
    ck_assert_double_eq(weight_difference(model, loaded), 0);
    unlink(saving.path);
    ls_model_close(model);
    ls_model_close(loaded);
}

// Calls of the model's own that no callback may make.
static enum ls_status call_it(void *context, const struct ls_fit_state *state)
{
    const int *which = context;
    struct ls_scores scores;
    if (state->steps_done == 2) // the step that follows the first failure, and is the last
        return LS_OK;
    switch (*which) {
    case 0: return ls_fit(state->model, train, NULL);
    case 1: return ls_evaluate(state->model, train, 8, &scores);
    case 2: return ls_compile(state->model, NULL);
    case 3: return ls_load_weights(state->model, "none.safetensors");
    default: return ls_save_weights(state->model, "none.safetensors");
    }
}

LOOP_TEST(a_callback_may_not_use_the_model_of_its_fit, 0, 13)
{
    struct ls_model *model = model_of(run, "sgd");
    int which = _i / 3;
    const struct ls_callbacks tables[] = {
        {.context = &which, .on_epoch_end = call_it},
        {.context = &which, .on_train_batch_end = call_it},
        {.context = &which, .on_train_begin = call_it},
    };
    const enum ls_status status =
        ls_fit(model, train,
               &(struct ls_fit_options){
                   .batch = 8, .callbacks = &tables[_i < 12 ? _i % 3 : 1], .callback_count = 1});
    ck_assert_int_eq(status, LS_USAGE);
    ck_assert_uint_eq(errors, 2); // the call's and that of the callback
    OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 8}));
    ls_model_close(model);
}

static enum ls_status close_it(void *context, const struct ls_fit_state *state)
{
    (void)context;
    ls_model_close(state->model);
    return LS_OK;
}

// Nothing can be answered, so it is said, and the fit goes on.
LOOP_TEST(a_callback_may_not_close_the_model_of_its_fit, 0, 3)
{
    struct ls_model *model = model_of(run, "sgd");
    const struct ls_callbacks tables[] = {
        {.on_train_begin = close_it}, {.on_train_batch_end = close_it}, {.on_train_end = close_it}};
    const unsigned expected[] = {1, STEPS, 1};
    OK(ls_fit(model, train,
              &(struct ls_fit_options){
                  .batch = 8, .epochs = 1, .callbacks = &tables[_i], .callback_count = 1}));
    ck_assert_uint_eq(errors, expected[_i]);
    ck_assert_ptr_nonnull(strstr(ls_last_error(), "ls_model_close"));
    OK(ls_fit(model, train, &(struct ls_fit_options){.batch = 8}));
    ls_model_close(model);
}

static size_t
    memory[2]; // in use at a step of the second epoch, and at one of the last; sanitizers say 0
static unsigned noted;

static enum ls_status note_memory(void *context, const struct ls_fit_state *state)
{
    const size_t bytes = mallinfo2().uordblks + mallinfo2().hblkhd;
    (void)context;
    if (state->epoch.steps == 3 && (state->epoch.epoch == 2 || state->epoch.epoch == 9))
        memory[noted++] = bytes;
    return LS_OK;
}

TEST(steps_take_no_memory)
{
    struct ls_model *model = model_of(run, "sgd");
    const struct ls_callbacks table = {.on_train_batch_end = note_memory};
    // Its files are read on a thread of their own, which on a busy machine may begin during the fit and takes memory then.
    ls_data_close(test);
    test = NULL;
    OK(ls_fit(model, train,
              &(struct ls_fit_options){
                  .epochs = 9, .batch = 8, .callbacks = &table, .callback_count = 1}));
    ck_assert_uint_eq(noted, 2);
    ck_assert_uint_le(memory[1], memory[0]);
    ls_model_close(model);
}

TEST_FIXTURE(set_up, tear_down);
