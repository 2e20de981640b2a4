// SPDX-License-Identifier: Apache-2.0
// Data that a function of the program makes: the same training as on the same examples from memory,
// under any number of replicas; and everything that the function may do wrong.
#include "tests/core/train/support.h"
#include "tests/support/suite.h"

#include <time.h>

#define EXAMPLES 50
#define PIXELS 16
#define CLASSES 10
#define BATCH 8
#define EPOCHS 3

// What the function is to do.
struct script {
    uint64_t examples; // that it has
    enum ls_status status; // that it returns from `from` on
    uint64_t from, epoch; // and in this epoch and later ones only
    int32_t label; // of example `from`; 0: as the others
    uint64_t too_few; // examples that are missing in each call
    long sleep_ms; // in the first call
    atomic_uint calls, inside;
};

static float pixel(uint64_t example, uint64_t place)
{
    return (float)((example * 31 + place * 7) % 64) / 64;
}

static enum ls_status fill(void *context, uint64_t epoch, uint64_t first, uint64_t count,
                           void *const *inputs, void *target, uint64_t *filled)
{
    struct script *script = context;
    ck_assert_uint_eq(atomic_fetch_add(&script->inside, 1), 0); // one call at a time
    ck_assert_uint_ge(epoch, 1);
    ck_assert_uint_eq(*filled, count);
    if (atomic_fetch_add(&script->calls, 1) == 0 && script->sleep_ms)
        nanosleep(&(struct timespec){script->sleep_ms / 1000, script->sleep_ms % 1000 * 1000000},
                  NULL);
    if (first + count > script->examples)
        *filled = script->examples - first;
    for (uint64_t i = 0; i < *filled; i++) {
        for (uint64_t k = 0; k < PIXELS; k++)
            ((float *)inputs[0])[i * PIXELS + k] = pixel(first + i, k);
        if (target)
            ((int32_t *)target)[i] = script->label && first + i == script->from
                                         ? script->label
                                         : (int32_t)((first + i) % CLASSES);
    }
    *filled -= script->too_few;
    atomic_fetch_sub(&script->inside, 1);
    return script->status && first + count > script->from && epoch >= script->epoch ? script->status
                                                                                    : LS_OK;
}

static const struct ls_array image = {.dtype = "float32", .ndims = 3, .dims = {4, 4, 1}};
static const struct ls_array label = {.dtype = "int32"};

static struct ls_generator generator_of(struct script *script, bool known)
{
    return (struct ls_generator){.inputs = &image,
                                 .input_count = 1,
                                 .target = &label,
                                 .classes = CLASSES,
                                 .examples = known ? EXAMPLES : 0,
                                 .fill = fill,
                                 .context = script};
}

static struct ls_data *memory(void)
{
    static float pixels[EXAMPLES][PIXELS];
    static int32_t labels[EXAMPLES];
    struct ls_data *data = NULL;
    for (uint64_t i = 0; i < EXAMPLES; i++) {
        labels[i] = (int32_t)(i % CLASSES);
        for (uint64_t k = 0; k < PIXELS; k++)
            pixels[i][k] = pixel(i, k);
    }
    const struct ls_array x = {"float32", 4, {EXAMPLES, 4, 4, 1}, pixels};
    const struct ls_array y = {"int32", 1, {EXAMPLES}, labels};
    OK(ls_data_from_memory(&x, 1, &y, &data));
    return data;
}

// The weights after a training on `data`, compared with those on the same from memory.
static void expect_same(struct ls_data *data, const char *strategy, uint32_t replicas,
                        const char *shuffle)
{
    struct ls_data *copy = memory();
    struct ls_run *together = run_of(strategy, replicas);
    struct ls_model *a = model_of(together, "sgd"), *b = model_of(together, "sgd");
    const struct ls_fit_options options = {.epochs = EPOCHS, .batch = BATCH, .shuffle = shuffle};
    OK(ls_fit(a, copy, &options));
    OK(ls_fit(b, data, &options));
    ck_assert(weight_difference(a, b) == 0);
    struct ls_scores one, other;
    OK(ls_evaluate(a, copy, 0, &one));
    OK(ls_evaluate(b, data, 0, &other));
    ck_assert(ls_metric_value(&one.metrics, "loss") == ls_metric_value(&other.metrics, "loss"));
    ls_model_close(a);
    ls_model_close(b);
    ls_run_close(together);
    ls_data_close(copy);
}

static const struct {
    const char *strategy;
    uint32_t replicas;
} strategies[] = {{NULL, 1}, {"ring", 3}, {"central-storage", 2}};

LOOP_TEST(it_is_trained_on_as_the_same_examples_in_order, 0, 3)
{
    struct script script = {.examples = EXAMPLES};
    struct ls_data *data = NULL;
    const struct ls_generator generator = generator_of(&script, true);
    OK(ls_data_from_generator(&generator, &data));
    ck_assert_uint_eq(ls_data_count(data), EXAMPLES);
    ck_assert_uint_eq(script.calls, 0);
    expect_same(data, strategies[_i].strategy, strategies[_i].replicas, "off");
    ck_assert_uint_ge(script.calls, EPOCHS * 7);
    ls_data_close(data);
}

TEST(without_a_known_number_it_is_as_memory)
{
    struct script script = {.examples = EXAMPLES};
    struct ls_data *data = NULL;
    const struct ls_generator generator = generator_of(&script, false);
    OK(ls_data_from_generator(&generator, &data));
    ck_assert_uint_eq(ls_data_count(data), EXAMPLES);
    ck_assert_uint_eq(script.calls, 1);
    expect_same(data, "ring", 2, "on");
    ck_assert_uint_eq(script.calls, 1);
    ls_data_close(data);
}

static const struct {
    struct script script;
    enum ls_status status;
    const char *text;
} failures[] = {
    {{.status = LS_BAD_INPUT, .from = 20}, LS_BAD_INPUT, "returned status 3"},
    {{.status = LS_ABORTED, .from = 20}, LS_FAILED, "returned status 7"},
    {{.label = 10, .from = 20},
     LS_BAD_INPUT,
     "example 20 has the label 10; the classes are 0 to 9"},
    {{.label = -1, .from = 20}, LS_BAD_INPUT, "example 20 has the label -1"},
    {{.too_few = 1}, LS_BAD_INPUT, "of 50 in an epoch"},
};

LOOP_TEST(what_it_does_wrong_ends_the_training, 0, 5)
{
    struct script script = {.examples = EXAMPLES,
                            .status = failures[_i].script.status,
                            .from = failures[_i].script.from,
                            .label = failures[_i].script.label,
                            .too_few = failures[_i].script.too_few};
    struct ls_data *data = NULL;
    const struct ls_generator generator = generator_of(&script, true);
    struct ls_run *together = run_of("ring", 2);
    struct ls_model *model = model_of(together, "sgd");
    OK(ls_data_from_generator(&generator, &data));
    expect_error(ls_fit(model, data, &(struct ls_fit_options){.epochs = 2, .batch = BATCH}),
                 failures[_i].status, failures[_i].text);
    ls_data_close(data);
    ls_model_close(model);
    ls_run_close(together);
}

// Batches are made ahead of the training: what fails there matters when it is needed.
TABLE_TEST(what_fails_behind_the_end_of_the_training_is_not_said, strategies)
{
    struct script script = {.examples = EXAMPLES, .status = LS_BAD_INPUT, .epoch = 2};
    struct ls_data *data = NULL;
    const struct ls_generator generator = generator_of(&script, true);
    struct ls_run *together = run_of(strategies[_i].strategy, strategies[_i].replicas);
    struct ls_model *model = model_of(together, "sgd");
    OK(ls_data_from_generator(&generator, &data));
    forget_errors();
    OK(ls_fit(model, data, &(struct ls_fit_options){.epochs = 1, .batch = BATCH}));
    ck_assert_msg(errors == 0, "%s", message);
    expect_error(ls_fit(model, data, &(struct ls_fit_options){.epochs = 1, .batch = BATCH}),
                 LS_BAD_INPUT, "of epoch 2: the program's function returned status 3");
    ls_data_close(data);
    ls_model_close(model);
    ls_run_close(together);
}

static atomic_uint waits_told;

static void count_waits(void *context, uint32_t level, const char *line)
{
    (void)context;
    waits_told += level == LS_LOG_WARN && strstr(line, "what makes them") != NULL;
}

// Not even one that never returns is silent; but it has all the time that it takes.
LOOP_TEST(a_slow_generator_is_waited_for_and_said, 0, 2)
{
    struct script script = {.examples = EXAMPLES, .sleep_ms = _i ? 600 : 0};
    const struct ls_generator generator = generator_of(&script, true);
    const struct ls_run_options options = {
        .device = "reference", .threads = 1, .deadline_seconds = _i ? 0.2 : 60};
    struct ls_run *run = NULL;
    struct ls_data *data = NULL;
    OK(ls_run_open(&options, &run));
    OK(ls_data_from_generator(&generator, &data));
    struct ls_model *model = model_of(run, "sgd");
    waits_told = 0;
    ls_log_set_writer(count_waits, NULL);
    OK(ls_fit(model, data, &(struct ls_fit_options){.batch = BATCH}));
    ck_assert_uint_eq(waits_told, _i);
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
}

TEST(what_is_no_generator_is_refused)
{
    struct script script = {.examples = EXAMPLES};
    struct ls_data *data = NULL;
    struct ls_generator generator = generator_of(&script, true);
    const struct ls_array wide = {.dtype = "int64", .ndims = 1, .dims = {3}};
    const struct ls_array empty = {.dtype = "uint8", .ndims = 2, .dims = {3, 0}};
    generator.inputs = &wide;
    expect_error(ls_data_from_generator(&generator, &data), LS_USAGE, "expected uint8, int32");
    generator.inputs = &empty;
    expect_error(ls_data_from_generator(&generator, &data), LS_USAGE, "none of them 0");
    generator.inputs = &image;
    generator.target = &image;
    expect_error(ls_data_from_generator(&generator, &data), LS_USAGE, "10 classes of float32");
    generator.target = &label;
    generator.fill = NULL;
    expect_error(ls_data_from_generator(&generator, &data), LS_USAGE, "expected a function");
    generator = generator_of(&script, false);
    script.examples = 0;
    expect_error(ls_data_from_generator(&generator, &data), LS_BAD_INPUT, "no examples");
    ck_assert_ptr_null(data);
}

TEST_FIXTURE(forget_errors, NULL);
