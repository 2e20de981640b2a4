// SPDX-License-Identifier: Apache-2.0
// Programs that were compiled for another version of lockstep.h, and zero where it is a value.
#include "tests/core/train/support.h"
#include "tests/support/suite.h"

#define RANDOM_BYTE 0xa5 // what may lie behind a struct in the program's memory

// As an older header had them: what is behind the last field is none of the library's business.
struct old_run_options {
    const char *strategy;
    const char *device;
    uint32_t replicas;
    uint32_t threads;
    uint64_t seed;
};
struct old_compile_options {
    const char *optimizer;
};
struct old_fit_options {
    uint64_t epochs;
    uint64_t steps;
    uint64_t batch;
};
struct old_layer {
    const char *class_name;
    const char *name;
    const char *activation;
    const char *options;
};
// As a newer header may have them.
struct new_run_options {
    struct ls_run_options known;
    uint64_t more;
};
struct new_fit_options {
    struct ls_fit_options known;
    uint64_t more;
};
struct new_callbacks {
    struct ls_callbacks known;
    void *more;
};
struct new_checkpoint_options {
    struct ls_checkpoint_options known;
    uint32_t more;
};
struct new_layer {
    struct ls_layer known;
    int64_t more;
};

// The old struct at the end of memory that is full of other things.
#define PUT_BEFORE_GARBAGE(memory, value)              \
    do {                                               \
        memset((memory), RANDOM_BYTE, sizeof(memory)); \
        memcpy((memory), &(value), sizeof(value));     \
    } while (0)

TEST(an_old_program_trains_with_this_library)
{
    _Alignas(16) unsigned char run_memory[1024], compile_memory[1024], fit_memory[1024];
    const struct old_run_options run_options = {
        .strategy = "ring", .device = "reference", .replicas = 2, .threads = 1, .seed = 5};
    const struct old_compile_options compile_options = {.optimizer = "sgd"};
    const struct old_fit_options fit_options = {.steps = 3, .batch = 10};
    const struct old_layer layers[] = {
        {.class_name = "Flatten"},
        {.class_name = "Dense", .options = "{\"units\": 10}"},
        {.class_name = NULL},
    };
    struct ls_run *run = NULL;
    struct ls_model *model = NULL, *same = NULL;
    struct ls_data *data = data_of(DATA, "train");
    struct old_layer input = {.class_name = "InputLayer",
                              .options = "{\"batch_shape\": [null, 4, 4, 1]}"};
    struct old_layer all[4] = {input, layers[0], layers[1], layers[2]};
    forget_errors();
    PUT_BEFORE_GARBAGE(run_memory, run_options);
    PUT_BEFORE_GARBAGE(compile_memory, compile_options);
    PUT_BEFORE_GARBAGE(fit_memory, fit_options);

    OK(ls_run_open_sized((void *)run_memory, sizeof(run_options), &run));
    OK(ls_sequential_create_sized(run, "small", (void *)all, sizeof(*all), &model));
    OK(ls_compile_sized(model, (void *)compile_memory, sizeof(compile_options)));
    OK(ls_fit_sized(model, data, (void *)fit_memory, sizeof(fit_options), 0, 0));

    // It is what this version's structs say with the same fields.
    const struct ls_layer now[] = {LS_INPUT(4, 4, 1), LS_FLATTEN(), LS_DENSE(10), LS_END};
    OK(ls_sequential_create(run, "small", now, &same));
    OK(ls_compile(same, &(struct ls_compile_options){.optimizer = "sgd"}));
    OK(ls_fit(same, data, &(struct ls_fit_options){.steps = 3, .batch = 10}));
    size_t count = 0, same_count = 0;
    const float *losses = ls_fit_losses(model, &count);
    const float *same_losses = ls_fit_losses(same, &same_count);
    ck_assert_uint_eq(count, 3);
    ck_assert_uint_eq(same_count, 3);
    ck_assert_mem_eq(losses, same_losses, 3 * sizeof(*losses));
    ls_model_close(same);
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
}

TEST(a_new_program_runs_while_it_sets_only_what_the_library_knows)
{
    struct ls_run *run = NULL;
    struct new_run_options options = {
        .known = {.strategy = "one-device", .device = "reference", .threads = 1}};
    forget_errors();
    OK(ls_run_open_sized((void *)&options, sizeof(options), &run));
    ls_run_close(run);
    options.more = 1;
    expect_error(ls_run_open_sized((void *)&options, sizeof(options), &run), LS_USAGE,
                 "struct ls_run_options: a field is set that this library does not know");
}

static unsigned epochs_heard;
static enum ls_status count_epoch(void *context, const struct ls_fit_state *state)
{
    (void)context;
    (void)state;
    epochs_heard++;
    return LS_OK;
}

TEST(arrays_and_structs_that_options_point_to_have_their_sizes_too)
{
    struct ls_run *run = run_of("one-device", 1);
    struct ls_model *model = model_of(run, "sgd"), *other = NULL;
    struct ls_data *data = data_of(DATA, "train");
    struct new_callbacks callbacks[] = {{.known = {.on_epoch_end = count_epoch}},
                                        {.known = {.on_epoch_end = count_epoch}}};
    struct new_checkpoint_options checkpoints = {.known = {.folder = "/nowhere"}, .more = 1};
    struct new_fit_options options = {
        .known = {.epochs = 2, .callbacks = (void *)callbacks, .callback_count = 2}};
    struct new_layer layers[] = {
        {.known = LS_INPUT(4, 4, 1)}, {.known = LS_FLATTEN()}, {.known = LS_END}};
    forget_errors();
#define FIT()                                                                                  \
    ls_fit_sized(model, data, (void *)&options, sizeof(options), sizeof(struct new_callbacks), \
                 sizeof(struct new_checkpoint_options))
    OK(FIT());
    ck_assert_uint_eq(epochs_heard, 4); // both tables, in both epochs
    OK(ls_fit(model, data, &(struct ls_fit_options){.steps = 1, .callback_count = 2})); // of none
    callbacks[1].more = data;
    expect_error(FIT(), LS_USAGE, "struct ls_callbacks: a field is set");
    callbacks[1].more = NULL;
    options.known.checkpoints = (void *)&checkpoints;
    expect_error(FIT(), LS_USAGE, "struct ls_checkpoint_options: a field is set");
    options.known.checkpoints = NULL;
    options.more = 1;
    expect_error(FIT(), LS_USAGE, "struct ls_fit_options: a field is set");

    OK(ls_sequential_create_sized(run, NULL, (void *)layers, sizeof(*layers), &other));
    ls_model_close(other);

    struct ls_scores scores;
    callbacks[0].known = callbacks[1].known = (struct ls_callbacks){.on_test_end = count_epoch};
    OK(ls_set_callbacks_sized(model, (void *)callbacks, sizeof(*callbacks), 2));
    epochs_heard = 0;
    OK(ls_evaluate(model, data, 0, &scores));
    ck_assert_uint_eq(epochs_heard, 2);
    callbacks[1].more = data;
    expect_error(ls_set_callbacks_sized(model, (void *)callbacks, sizeof(*callbacks), 2), LS_USAGE,
                 "struct ls_callbacks: a field is set");
    layers[1].more = 1;
    expect_error(ls_sequential_create_sized(run, NULL, (void *)layers, sizeof(*layers), &other),
                 LS_USAGE, "struct ls_layer: a field is set");
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
}

// ---- Zero ----

// The weights of both, as a program reads them.
static void same_weights(struct ls_model *a, struct ls_model *b)
{
    ck_assert_uint_eq(ls_variable_count(a), ls_variable_count(b));
    for (uint32_t i = 0; i < ls_variable_count(a); i++) {
        struct ls_variable variable;
        OK(ls_variable_describe(a, i, &variable));
        float *first = calloc(variable.elements, sizeof(*first));
        float *second = calloc(variable.elements, sizeof(*second));
        ck_assert(first && second);
        OK(ls_get_variable(a, i, first));
        OK(ls_get_variable(b, i, second));
        ck_assert_mem_eq(first, second, variable.elements * sizeof(*first));
        free(first);
        free(second);
    }
}

TEST(a_fit_of_zero_epochs_or_steps_trains_nothing)
{
    const struct ls_callbacks callbacks = {
        .on_train_begin = count_epoch, .on_train_end = count_epoch, .on_epoch_begin = count_epoch};
    struct ls_fit_options none[] = {
        {.epochs = LS_ZERO}, {.steps = LS_ZERO}, {.epochs = 3, .steps = LS_ZERO}};
    struct ls_run *run = run_of("ring", 2);
    struct ls_model *model = model_of(run, "adam"), *fresh = model_of(run, "adam");
    struct ls_data *data = data_of(DATA, "train");
    for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++) {
        size_t losses = 9, epochs = 9;
        none[i].callbacks = &callbacks;
        none[i].callback_count = 1;
        epochs_heard = 0;
        OK(ls_fit(model, data, &none[i]));
        (void)ls_fit_losses(model, &losses);
        (void)ls_fit_epochs(model, &epochs);
        ck_assert_uint_eq(losses, 0);
        ck_assert_uint_eq(epochs, 0);
        ck_assert_uint_eq(epochs_heard, 2); // on_train_begin and on_train_end, as in Keras
        same_weights(model, fresh);
    }
    // What comes next begins where it would have begun.
    OK(ls_fit(model, data, &(struct ls_fit_options){.steps = 3}));
    OK(ls_fit(fresh, data, &(struct ls_fit_options){.steps = 3}));
    same_weights(model, fresh);
    ls_model_close(fresh);
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
}

// With momentum 0 the moving statistics are those of the last batch, with Keras's 0.99 nearly the first ones.
TEST(zero_can_be_said_where_a_layer_has_another_default)
{
    const double momenta[] = {LS_ZERO, 0};
    double moved[2];
    struct ls_run *run = run_of("one-device", 1);
    struct ls_data *data = data_of(DATA, "train");
    for (int i = 0; i < 2; i++) {
        const struct ls_layer layers[] = {
            LS_INPUT(4, 4, 1),
            LS_BATCH_NORMALIZATION(.momentum = momenta[i]),
            LS_FLATTEN(),
            LS_DENSE(10),
            LS_END,
        };
        struct ls_model *model = NULL;
        OK(ls_sequential_create(run, "small", layers, &model));
        OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd"}));
        OK(ls_fit(model, data, &(struct ls_fit_options){.steps = 1}));
        moved[i] = NAN;
        for (uint32_t k = 0; k < ls_variable_count(model); k++) {
            struct ls_variable variable;
            float value;
            OK(ls_variable_describe(model, k, &variable));
            if (!strstr(variable.name, "moving_mean"))
                continue;
            OK(ls_get_variable(model, k, &value));
            moved[i] = (double)value;
        }
        ls_model_close(model);
    }
    ck_assert(fabs(moved[1]) > 0);
    ck_assert_double_eq_tol(moved[1] / moved[0], 0.01, 1e-5); // (1 - 0.99) of the batch's mean
    ls_data_close(data);
    ls_run_close(run);
}

TEST(a_seed_and_a_learning_rate_of_zero_are_values)
{
    struct ls_run *run = NULL;
    const struct ls_run_options options = {.device = "reference", .threads = 1, .seed = 0};
    OK(ls_run_open(&options, &run));
    struct ls_model *model = model_of(run, "sgd:learning_rate=0"), *fresh = model_of(run, "sgd");
    struct ls_data *data = data_of(DATA, "train");
    OK(ls_fit(model, data, &(struct ls_fit_options){.steps = 2}));
    ck_assert_double_eq(ls_learning_rate(model), 0);
    same_weights(model, fresh);
    OK(ls_set_learning_rate(model, 0.5));
    OK(ls_set_learning_rate(model, 0));
    OK(ls_fit(model, data, &(struct ls_fit_options){.steps = 2}));
    same_weights(model, fresh);
    ls_model_close(fresh);
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
}
