// SPDX-License-Identifier: Apache-2.0
// A run for which nobody named a device, where `cuda` can run: on the fake of CUDA, which is NOT A GPU.
#include "tests/core/loops/loops.h"

static char warning[1024]; // the last one about the device
static unsigned warnings;

static void keep_line(void *context, uint32_t level, const char *line)
{
    keep_error(context, level, line);
    if (level != LS_LOG_WARN || !strstr(line, "--device: "))
        return;
    warnings++;
    snprintf(warning, sizeof(warning), "%s", line);
}

static struct ls_run *open_run(const char *device, uint32_t replicas)
{
    struct ls_run *opened = NULL;
    const struct ls_run_options options = {
        .device = device, .replicas = replicas, .threads = 1, .seed = 5};
    OK(ls_run_open(&options, &opened));
    return opened;
}

static void open_default(void)
{
    forget_errors();
    warnings = 0;
    ls_log_set_writer(keep_line, NULL);
    run = open_run(NULL, 1);
    train = data_of(DATA, "train");
    test = data_of(DATA, "test");
    // A second run probes its device in a forked process, which finds the lock of a sanitizer's
    // allocator taken for ever if it was forked while the files were read.
    const struct ls_dataset *read = NULL;
    OK(ls_data_wait(train, &read));
    OK(ls_data_wait(test, &read));
}

static const char *device_of(const struct ls_run *any)
{
    return any->device->plugin->name;
}

static struct ls_model *prelu_model(struct ls_run *any)
{
    const struct ls_layer layers[] = {
        LS_INPUT(4, 4, 1), LS_FLATTEN(), LS_PRELU(), LS_DENSE(10), LS_END,
    };
    struct ls_model *model = NULL;
    OK(ls_sequential_create(any, "prelu", layers, &model));
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd"}));
    return model;
}

static void fit(struct ls_model *model)
{
    OK(ls_fit(model, train, &(struct ls_fit_options){.steps = 4, .batch = 8}));
}

static void expect_warning(const char *text)
{
    ck_assert_uint_eq(warnings, 1);
    ck_assert_msg(strstr(warning, text) != NULL, "'%s' is not in: %s", text, warning);
}

TEST(cuda_trains_what_it_has_every_operation_of)
{
    struct ls_model *model = model_of(run, "sgd");
    fit(model);
    ck_assert_str_eq(device_of(run), "cuda");
    ck_assert_uint_eq(warnings, 0);
    ls_model_close(model);
}

TEST(the_cpu_trains_the_rest_with_its_own_bits)
{
    struct ls_run *named = open_run("cpu", 1);
    struct ls_model *model = prelu_model(run), *wanted = prelu_model(named);
    fit(model);
    fit(wanted);
    ck_assert_str_eq(device_of(run), "cpu");
    expect_warning("cpu, because cuda has no operation prelu");
    ck_assert(weight_difference(model, wanted) == 0);
    fit(model); // nothing is asked or said again
    ck_assert_uint_eq(warnings, 1);
    ls_model_close(model);
    ls_model_close(wanted);
    ls_run_close(named);
}

// The weights that cuda has trained come along.
TEST(a_later_call_may_need_the_cpu)
{
    struct ls_scores before, after;
    struct ls_model *model = model_of(run, "sgd");
    fit(model);
    OK(ls_evaluate(model, test, 5, &before));
    ck_assert_str_eq(device_of(run), "cuda");
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "rmsprop:learning_rate=0"}));
    setenv("CUDA_FAKE_LACKS", "update", 1);
    fit(model);
    setenv("CUDA_FAKE_LACKS", "prelu", 1);
    expect_warning("cpu, because cuda has no operation update_rmsprop");
    ck_assert_str_eq(device_of(run), "cpu");
    OK(ls_evaluate(model, test, 5, &after));
    ck_assert(fabs(ls_metric_value(&before.metrics, "loss") -
                   ls_metric_value(&after.metrics, "loss")) < 1e-5);
    ls_model_close(model);
}

// A run has one device: that of the first model while it is there.
TEST(a_second_model_is_refused_while_the_first_is_on_cuda)
{
    struct ls_model *first = model_of(run, "sgd"), *second = prelu_model(run);
    const struct ls_fit_options options = {.steps = 4, .batch = 8};
    fit(first);
    expect_error(ls_fit(second, train, &options), LS_UNAVAILABLE,
                 "device cuda has no operation prelu of these shapes, and another "
                 "model of this run is on it; use --device=cpu for both");
    ck_assert_uint_eq(warnings, 0);
    ls_log_set_writer(keep_line, NULL);
    ls_model_close(first);
    fit(second);
    ck_assert_str_eq(device_of(run), "cpu");
    expect_warning("prelu");
    ls_model_close(second);
}

TEST(a_loop_of_ones_own_takes_the_cpu_too)
{
    struct ls_model *model = prelu_model(run);
    struct ls_distributed *dataset = distribute(model, train);
    ck_assert(ls_distributed_next(dataset));
    OK(ls_strategy_run(dataset, train_step, NULL));
    ck_assert_str_eq(device_of(run), "cpu");
    expect_warning("prelu");
    ls_distributed_close(dataset);
    ls_model_close(model);
}

TEST(other_failures_are_not_turned_into_the_cpu)
{
    struct ls_model *model = model_of(run, "sgd");
    const struct ls_fit_options options = {.steps = 4, .batch = 8};
    setenv("CUDA_FAKE_MEMORY", "2000", 1);
    ck_assert_int_ne(ls_fit(model, train, &options), LS_OK);
    ck_assert_uint_eq(errors, 1);
    ck_assert_str_eq(device_of(run), "cuda");
    ck_assert_uint_eq(warnings, 0);
    unsetenv("CUDA_FAKE_MEMORY");
    ls_model_close(model);
}

TEST_FIXTURE(open_default, tear_down);
TEST_SECONDS(120);
