// SPDX-License-Identifier: Apache-2.0
// One dataset for several threads: each that waits for its files gets them. Arrays that stay the
// program's.
#include "core/data/data.h"
#include "tests/core/train/support.h"
#include "tests/support/suite.h"

#include <pthread.h>

#define THREADS 8

static pthread_barrier_t together;
static struct ls_data *data;

static void *wait_for_files(void *argument)
{
    const struct ls_dataset *dataset = NULL;
    (void)argument;
    pthread_barrier_wait(&together);
    const enum ls_status status = ls_data_wait(data, &dataset);
    return status ? NULL : (void *)(uintptr_t)dataset;
}

TEST(threads_that_wait_at_once_all_get_the_data)
{
    pthread_t threads[THREADS];
    OK(ls_data_open("synthetic:examples=20000", "train", &data));
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, wait_for_files, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        void *dataset = NULL;
        pthread_join(threads[i], &dataset);
        ck_assert_ptr_nonnull(dataset);
        ck_assert_ptr_eq(dataset, data->dataset);
    }
    pthread_barrier_destroy(&together);
    ls_data_close(data);
}

// ---- Arrays that are borrowed ----

#define EXAMPLES 8

static void count_release(void *context)
{
    ++*(int *)context;
}

static const struct ls_dataset *dataset_of(struct ls_data *borrowed)
{
    const struct ls_dataset *dataset = NULL;
    OK(ls_data_wait(borrowed, &dataset));
    return dataset;
}

TEST(only_what_the_model_reads_as_it_is_stays_where_it_is)
{
    static float x[EXAMPLES * 2 + 1], weights[EXAMPLES];
    static double precise[EXAMPLES * 2];
    static int32_t labels[EXAMPLES];
    int released = 0;
    const char *odd = (const char *)x + 1;
    const struct ls_array inputs[] = {{"float32", 2, {EXAMPLES, 2}, x},
                                      {"float64", 2, {EXAMPLES, 2}, precise},
                                      {"float32", 2, {EXAMPLES, 2}, odd}};
    const struct ls_array target = {"int32", 1, {EXAMPLES}, labels};
    const struct ls_array weight = {"float32", 1, {EXAMPLES}, weights};
    const struct ls_batch_arrays arrays = {inputs, 3, &target, &weight};
    struct ls_data *borrowed = NULL;
    OK(ls_data_borrow(&arrays, count_release, &released, &borrowed));
    const struct ls_field *fields = dataset_of(borrowed)->fields;
    ck_assert_ptr_eq(fields[0].values, x);
    ck_assert_ptr_ne(fields[1].values, precise);
    ck_assert_ptr_ne(fields[2].values, odd);
    ck_assert_ptr_ne(fields[3].values, labels);
    ck_assert_ptr_eq(fields[4].values, weights);
    ck_assert_int_eq(released, 0);
    ls_data_close(borrowed);
    ck_assert_int_eq(released, 1);
}

TEST(arrays_are_given_back_when_no_model_trains_on_them)
{
    static float x[EXAMPLES * 16];
    static uint8_t y[EXAMPLES];
    int released = 0;
    for (int i = 0; i < EXAMPLES * 16; i++)
        x[i] = (float)(i % 7);
    const struct ls_array input = {"float32", 4, {EXAMPLES, 4, 4, 1}, x};
    const struct ls_array target = {"uint8", 1, {EXAMPLES}, y};
    const struct ls_batch_arrays arrays = {&input, 1, &target, NULL};
    struct ls_run *run = run_of("one-device", 1);
    struct ls_model *a = model_of(run, "sgd"), *b = model_of(run, "sgd");
    struct ls_data *borrowed = NULL, *copied = NULL;
    OK(ls_data_borrow(&arrays, count_release, &released, &borrowed));
    OK(ls_data_from_memory(&input, 1, &target, &copied));
    OK(ls_fit(a, borrowed, &(struct ls_fit_options){.batch = 3, .epochs = 2}));
    OK(ls_fit(b, copied, &(struct ls_fit_options){.batch = 3, .epochs = 2}));
    ck_assert_double_eq(weight_difference(a, b), 0);
    ls_data_close(borrowed);
    ck_assert_int_eq(released, 0); // a goes on training on it
    OK(ls_fit(a, copied, &(struct ls_fit_options){.batch = 3, .epochs = 1}));
    ck_assert_int_eq(released, 1);
    ls_data_close(copied);
    ls_model_close(a);
    ls_model_close(b);
    ls_run_close(run);
}

TEST(what_is_refused_is_not_given_back)
{
    static float x[EXAMPLES * 2];
    int released = 0;
    const struct ls_array input = {"float32", 2, {EXAMPLES, 2}, x};
    const struct ls_array target = {"float32", 1, {EXAMPLES - 1}, x};
    const struct ls_batch_arrays arrays = {&input, 1, &target, NULL};
    struct ls_data *borrowed = NULL;
    forget_errors();
    expect_error(ls_data_borrow(&arrays, count_release, &released, &borrowed), LS_BAD_INPUT,
                 "the target has 7 examples");
    expect_error(ls_data_borrow(NULL, count_release, &released, &borrowed), LS_USAGE,
                 "expected arrays");
    ck_assert_int_eq(released, 0);
    ck_assert_ptr_null(borrowed);
}

// ---- Classes with names ----

static char folder[] = "/tmp/lockstep-classes-XXXXXX";

// A table in which the column of an example's class has a 4.
static struct ls_data *table_of(const char *kinds, const char *split)
{
    static const char *const names[] = {"ant", "bee", "cat", "dog"};
    char path[80], text[96];
    struct ls_data *table = NULL;
    snprintf(path, sizeof(path), "%s/%s.csv", folder, kinds);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    for (const char *kind = kinds; *kind; kind++)
        fprintf(file, "%d,%d,%d,%s\n", 4 * (*kind == 'a'), 4 * (*kind == 'b'), 4 * (*kind == 'c'),
                names[*kind - 'a']);
    fclose(file);
    snprintf(text, sizeof(text), "csv:file=%s", path);
    OK(ls_data_open(text, split, &table));
    unlink(path); // it has been read
    return table;
}

static struct ls_model *three_units(struct ls_run *run)
{
    const struct ls_layer layers[] = {LS_INPUT(3), LS_DENSE(3), LS_END};
    struct ls_model *model = NULL;
    OK(ls_sequential_create(run, "three", layers, &model));
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "adam:learning_rate=0.2"}));
    return model;
}

static double accuracy_of(struct ls_model *model, struct ls_data *table)
{
    struct ls_scores scores;
    OK(ls_evaluate(model, table, 2, &scores));
    return ls_metric_value(&scores.metrics, "accuracy");
}

static void count_orders(void *count, uint32_t level, const char *line)
{
    *(int *)count += level == LS_LOG_WARN && strstr(line, "in this order: 'bee', 'cat'");
}

// Weights that the program sets say nothing of the numbers that their classes have.
static void set_and_evaluate(struct ls_run *run, struct ls_data *two)
{
    struct ls_model *model = three_units(run);
    const float bias[3] = {1, 2, 3};
    int orders = 0;
    ls_log_set_writer(count_orders, &orders);
    (void)accuracy_of(model, two); // of random weights
    ck_assert_int_eq(orders, 0);
    OK(ls_set_variable(model, 1, bias));
    (void)accuracy_of(model, two);
    (void)accuracy_of(model, two);
    ck_assert_int_eq(orders, 1);
    forget_errors();
    ls_model_close(model);
}

static enum ls_status step_of(struct ls_replica_context *replica, void *context)
{
    struct ls_array target;
    int32_t *sum = context;
    OK(ls_context_target(replica, &target));
    for (int64_t i = 0; i < target.dims[0]; i++)
        *sum += ((const int32_t *)target.values)[i];
    return LS_OK;
}

TEST(a_model_gives_classes_the_numbers_that_it_has_learnt)
{
    char path[64];
    int32_t sum = 0;
    float outputs[6];
    struct ls_scores scores;
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    struct ls_run *run = run_of("one-device", 1);
    struct ls_model *model = three_units(run), *loaded = three_units(run);
    struct ls_data *learnt = table_of("abc", "train"), *two = table_of("bc", "train");
    struct ls_data *other = table_of("cd", "train");
    const struct ls_fit_options fails = {.epochs = 1, .class_weight = "7:1"};
    forget_errors();
    expect_error(ls_fit(model, two, &fails), LS_USAGE, "7"); // nothing was learnt of its classes
    OK(ls_fit(model, learnt,
              &(struct ls_fit_options){.epochs = 60, .batch = 3, .validation = two}));
    ck_assert_double_eq(accuracy_of(model, learnt), 1);
    ck_assert_double_eq(accuracy_of(model, two), 1);
    expect_error(ls_evaluate(model, other, 2, &scores), LS_BAD_INPUT, "the class 'dog'");
    expect_error(ls_fit(model, other, NULL), LS_BAD_INPUT, "('ant', 'bee', 'cat')");
    OK(ls_predict(model, other, 2, outputs)); // which does not look at labels
    OK(ls_model_save(model, path));
    OK(ls_model_load(loaded, path));
    ck_assert_double_eq(accuracy_of(loaded, two), 1);
    // What another model trains on has its own numbers.
    struct ls_model *untaught = three_units(run);
    OK(ls_fit(untaught, two, &(struct ls_fit_options){.epochs = 60, .batch = 2}));
    ck_assert_double_eq(accuracy_of(untaught, two), 1);
    set_and_evaluate(run, two);
    OK(ls_load_weights(loaded, path));
    ck_assert_double_eq(accuracy_of(loaded, two), 1);
    struct ls_distributed *loop = NULL;
    OK(ls_distribute_dataset(loaded, two,
                             &(struct ls_distribute_options){.evaluation = 1, .batch = 2}, &loop));
    OK(ls_strategy_run(loop, step_of, &sum));
    ck_assert_int_eq(sum, 1 + 2);
    ls_distributed_close(loop);
    unlink(path);
    rmdir(folder);
    ls_model_close(model);
    ls_model_close(loaded);
    ls_model_close(untaught);
    ls_data_close(learnt);
    ls_data_close(two);
    ls_data_close(other);
    ls_run_close(run);
}
