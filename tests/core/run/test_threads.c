// SPDX-License-Identifier: Apache-2.0
// Several threads of a program train at the same time, each with a run of its own: everyone gets what it would get alone.
#include "tests/core/train/support.h"
#include "tests/support/suite.h"

#include <pthread.h>

#define TRAININGS 4
#define STEPS 12
#define VALUES 4096

// What one thread trains, and what came of it.
struct training {
    struct ls_run_options run;
    const char *optimizer;
    bool convolutions;
    pthread_barrier_t *start; // NULL: nobody else trains
    enum ls_status status; // the first that is not LS_OK
    float losses[STEPS], values[VALUES];
    size_t loss_count, value_count;
    double validation_loss;
};

static enum ls_status create(struct ls_run *run, bool convolutions, struct ls_model **out)
{
    const struct ls_layer dense[] = {
        LS_INPUT(4, 4, 1), LS_FLATTEN(), LS_DENSE(12, .activation = "relu"),
        LS_DROPOUT(0.25),  LS_DENSE(10), LS_END};
    const struct ls_layer image[] = {LS_INPUT(4, 4, 1),
                                     LS_CONV2D(4, 3, .activation = "relu", .padding = "same"),
                                     LS_BATCH_NORMALIZATION(),
                                     LS_FLATTEN(),
                                     LS_DENSE(10),
                                     LS_END};
    return ls_sequential_create(run, convolutions ? "image" : "dense", convolutions ? image : dense,
                                out);
}

static enum ls_status keep_values(struct ls_model *model, struct training *training)
{
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < ls_variable_count(model); i++) {
        struct ls_variable variable;
        status = ls_variable_describe(model, i, &variable);
        if (!status && training->value_count + variable.elements > VALUES)
            status = LS_FAILED;
        if (!status)
            status = ls_get_variable(model, i, training->values + training->value_count);
        training->value_count += status ? 0 : variable.elements;
    }
    return status;
}

static enum ls_status fit(struct ls_model *model, struct training *training)
{
    struct ls_data *train = NULL, *test = NULL;
    struct ls_scores scores;
    enum ls_status status = ls_data_open(DATA, "train", &train);
    if (!status)
        status = ls_data_open(DATA, "test", &test);
    if (!status)
        status = ls_compile(model, &(struct ls_compile_options){.optimizer = training->optimizer});
    for (int half = 0; !status && half < 2; half++) {
        status = ls_fit(model, train, &(struct ls_fit_options){.steps = STEPS / 2, .batch = 10});
        size_t count = 0;
        const float *losses = ls_fit_losses(model, &count);
        for (size_t i = 0; i < count && training->loss_count < STEPS; i++)
            training->losses[training->loss_count++] = losses[i];
    }
    if (!status)
        status = ls_evaluate(model, test, 5, &scores);
    if (!status)
        training->validation_loss = ls_metric_value(&scores.metrics, "loss");
    if (!status)
        status = keep_values(model, training);
    ls_data_close(train);
    ls_data_close(test);
    return status;
}

static void *train(void *argument)
{
    struct training *training = argument;
    struct ls_run *run = NULL;
    struct ls_model *model = NULL;
    training->loss_count = training->value_count = 0;
    if (training->start)
        pthread_barrier_wait(training->start);
    training->status = ls_run_open(&training->run, &run);
    if (!training->status)
        training->status = create(run, training->convolutions, &model);
    if (!training->status)
        training->status = fit(model, training);
    ls_model_close(model);
    ls_run_close(run);
    return NULL;
}

static void say_stuck(uint32_t rank)
{
    fprintf(stderr, "a call of rank %u hangs\n", rank);
}

// Other models, strategies, numbers of replicas and optimizers.
static void describe(struct training trainings[TRAININGS], const char *device)
{
    static const char *const strategies[TRAININGS] = {"ring", "one-device", "central-storage",
                                                      "hierarchical-copy:groups=2"};
    static const uint32_t replicas[TRAININGS] = {2, 1, 2, 4};
    static const char *const optimizers[TRAININGS] = {"adam", "sgd:learning_rate=0.05",
                                                      "sgd:momentum=0.9", "rmsprop"};
    for (int i = 0; i < TRAININGS; i++)
        trainings[i] = (struct training){.run = {.strategy = strategies[i],
                                                 .device = device,
                                                 .replicas = replicas[i],
                                                 .threads = 1,
                                                 .seed = (uint64_t)i,
                                                 .stuck = say_stuck},
                                         .optimizer = optimizers[i],
                                         .convolutions = i % 2 == 1};
}

static void train_together(const char *device)
{
    static struct training alone[TRAININGS], together[TRAININGS];
    pthread_t threads[TRAININGS];
    pthread_barrier_t start;
    describe(alone, device);
    describe(together, device);
    ck_assert_int_eq(pthread_barrier_init(&start, NULL, TRAININGS), 0);
    for (int i = 0; i < TRAININGS; i++) { // first, so that files are probed while others train
        together[i].start = &start;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, train, &together[i]), 0);
    }
    for (int i = 0; i < TRAININGS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < TRAININGS; i++) {
        train(&alone[i]);
        ck_assert_int_eq(alone[i].status, LS_OK);
        ck_assert_int_eq(together[i].status, LS_OK);
        ck_assert_uint_eq(alone[i].loss_count, STEPS);
        ck_assert_uint_eq(together[i].loss_count, STEPS);
        ck_assert_mem_eq(together[i].losses, alone[i].losses, sizeof(alone[i].losses));
        ck_assert_uint_gt(alone[i].value_count, 100);
        ck_assert_uint_eq(together[i].value_count, alone[i].value_count);
        ck_assert_mem_eq(together[i].values, alone[i].values, alone[i].value_count * sizeof(float));
        ck_assert_double_eq(together[i].validation_loss, alone[i].validation_loss);
    }
    pthread_barrier_destroy(&start);
}

TEST(trainings_side_by_side_have_the_bits_that_each_has_alone)
{
    train_together("reference");
}

TEST(and_on_device_cpu)
{
    const struct ls_listed_device *devices = NULL;
    size_t count = 0;
    bool usable = false;
    OK(ls_list_devices(NULL, &devices, &count));
    for (size_t i = 0; i < count; i++)
        usable = usable || (strcmp(devices[i].name, "cpu") == 0 && devices[i].usable);
    ls_free_list(devices);
    if (usable)
        train_together("cpu");
    else
        fputs("SKIP: device cpu was left out of the build\n", stderr);
}

// ---- What one of them is told ----

#define MISTAKES 20

struct mistaken {
    const char *strategy;
    unsigned wrong; // last errors that are another's
};

static void *make_mistakes(void *argument)
{
    struct mistaken *mistaken = argument;
    for (int i = 0; i < MISTAKES; i++) {
        struct ls_run *run = NULL;
        const enum ls_status status =
            ls_run_open(&(struct ls_run_options){.strategy = mistaken->strategy}, &run);
        mistaken->wrong += status != LS_UNAVAILABLE || !strstr(ls_last_error(), mistaken->strategy);
    }
    return NULL;
}

TEST(everyone_has_a_last_error_of_its_own)
{
    struct mistaken all[] = {
        {.strategy = "rings"}, {.strategy = "hierarchy"}, {.strategy = "trees"}};
    pthread_t threads[3];
    ls_log_set_writer(keep_error, NULL);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, make_mistakes, &all[i]), 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_uint_eq(all[i].wrong, 0);
    }
    ck_assert_uint_eq(errors, 3 * MISTAKES);
}

// ---- An interruption is of one run ----

static enum ls_status interrupt_own(void *context, const struct ls_fit_state *state)
{
    if (state->steps_done == 3)
        ls_run_interrupt(context);
    return LS_OK;
}

struct interrupted {
    bool interrupt;
    enum ls_status status;
    uint64_t steps;
};

static void *train_interrupted(void *argument)
{
    struct interrupted *own = argument;
    struct ls_run *run = run_of("ring", 2);
    struct ls_model *model = model_of(run, "sgd");
    struct ls_data *data = data_of(DATA, "train");
    const struct ls_callbacks callbacks = {.context = run, .on_train_batch_end = interrupt_own};
    size_t count = 0;
    own->status = ls_fit(model, data,
                         &(struct ls_fit_options){.steps = 40,
                                                  .batch = 10,
                                                  .callbacks = &callbacks,
                                                  .callback_count = own->interrupt ? 1 : 0});
    (void)ls_fit_losses(model, &count);
    own->steps = count;
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
    return NULL;
}

TEST(an_interruption_ends_the_fit_of_one_run)
{
    struct interrupted all[] = {{.interrupt = true}, {.interrupt = false}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, train_interrupted, &all[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(all[0].status, LS_INTERRUPTED);
    ck_assert(all[0].steps >= 3 && all[0].steps < 40);
    ck_assert_int_eq(all[1].status, LS_OK);
    ck_assert_uint_eq(all[1].steps, 40);
}

TEST_SECONDS(200);
