// SPDX-License-Identifier: Apache-2.0
// Cases with several devices and threads: what steers an update has the same bits whatever the number of
// threads, and two devices that run at once do not disturb each other.
#include "tools/conformance/device/suite.h"
#include "core/base/threads.h"

#include <string.h>

#define ROUNDS 5
#define RESULT_COUNT 40000

// One device of its own, which runs the same few cases and keeps their results.
struct runner {
    struct ls_device_suite suite; // only `tested` and the message are used
    struct ls_device_side side;
    float results[RESULT_COUNT];
    bool opened;
};

static void convolution_case(struct ls_device_case *c)
{
    ls_device_case_start(c, LS_OP_CONV2D, "a convolution");
    c->request.attributes =
        (struct ls_op_attributes){.strides = {1, 1}, .dilation = {1, 1}, .groups = 1};
    ls_device_case_draw(
        c, ls_device_case_input(c, LS_DEVICE_ACTIVATION, LS_DEVICE_DESC(LS_F32, 4, 13, 13, 17)),
        LS_DEVICE_UNIFORM);
    ls_device_case_draw(
        c, ls_device_case_input(c, LS_DEVICE_WEIGHTS, LS_DEVICE_DESC(LS_F32, 3, 3, 17, 32)),
        LS_DEVICE_UNIFORM);
    ls_device_case_output(c, LS_DEVICE_ACTIVATION, LS_DEVICE_DESC(LS_F32, 4, 11, 11, 32),
                          LS_DEVICE_SUM);
}

static void dense_weights_case(struct ls_device_case *c)
{
    ls_device_case_start(c, LS_OP_DENSE_BACKWARD_WEIGHTS, "a dense layer");
    ls_device_case_draw(
        c, ls_device_case_input(c, LS_DEVICE_ACTIVATION, LS_DEVICE_DESC(LS_F32, 33, 200)),
        LS_DEVICE_UNIFORM);
    ls_device_case_draw(
        c, ls_device_case_input(c, LS_DEVICE_ACTIVATION, LS_DEVICE_DESC(LS_F32, 33, 100)),
        LS_DEVICE_UNIFORM);
    ls_device_case_output(c, LS_DEVICE_WEIGHTS, LS_DEVICE_DESC(LS_F32, 200, 100), LS_DEVICE_SUM);
}

static void average_case(struct ls_device_case *c)
{
    ls_device_case_start(c, LS_OP_AVERAGE_POOL2D, "a pooling");
    c->request.attributes = (struct ls_op_attributes){.kernel = {2, 2}, .strides = {2, 2}};
    ls_device_case_draw(
        c, ls_device_case_input(c, LS_DEVICE_ACTIVATION, LS_DEVICE_DESC(LS_F32, 5, 12, 12, 24)),
        LS_DEVICE_UNIFORM);
    ls_device_case_output(c, LS_DEVICE_ACTIVATION, LS_DEVICE_DESC(LS_F32, 5, 6, 6, 24),
                          LS_DEVICE_SUM);
}

static bool run_one(struct runner *runner, void (*make)(struct ls_device_case *c), float *out)
{
    struct ls_device_case c;
    struct ls_device_trial trial;
    void *outputs[LS_DEVICE_ARGUMENTS] = {out};

    make(&c);
    ls_device_case_values(&c);
    const int32_t status =
        ls_device_trial_open(&trial, &runner->suite, &runner->side, &c, LS_DEVICE_ALL_ANY);
    if (status == LS_UNSUPPORTED)
        ls_device_suite_refuse(&runner->suite, "", runner->side.message);
    const bool good = !status && ls_device_trial_run(&trial, false, -1, outputs);
    ls_device_trial_close(&trial);
    ls_device_case_finish(&c);
    return good;
}

static void *run_all(void *argument)
{
    struct runner *runner = argument;
    bool good = true;

    for (int round = 0; good && round < ROUNDS; round++)
        good = run_one(runner, convolution_case, runner->results) &&
               run_one(runner, dense_weights_case, runner->results + 12000) &&
               run_one(runner, average_case, runner->results + 33000);
    return NULL;
}

static bool runner_open(struct ls_device_suite *suite, struct runner *runner, uint32_t threads)
{
    memset(runner, 0, sizeof(*runner));
    runner->suite.tested = &runner->side;
    runner->suite.options = suite->options;
    if (ls_device_side_open(&runner->side, suite->tested->interface, suite->tested->outer, threads))
        return ls_device_suite_fail(suite, "cannot open another device with %u threads: %s",
                                    threads, runner->side.message);
    runner->opened = true;
    return true;
}

static void runner_close(struct runner *runner)
{
    if (runner->opened)
        ls_device_side_close(&runner->side);
    runner->opened = false;
}

// ---- Two at once ----

static bool run_together(struct ls_device_suite *suite, struct runner *runners)
{
    pthread_t threads[2];
    uint32_t started = 0;

    while (started < 2 &&
           ls_thread_start(&threads[started], "conformance", run_all, &runners[started]) == LS_OK)
        started++;
    for (uint32_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    return started == 2 || ls_device_suite_fail(suite, "cannot start two threads");
}

static void together_case(struct ls_device_suite *suite)
{
    static struct runner runners[3]; // the third runs alone
    const char *name = "two devices at once give the bits of one alone";

    if (!ls_device_suite_begin(suite, name))
        return;
    bool good = true;
    for (int i = 0; i < 3; i++)
        good = good && runner_open(suite, &runners[i], 2);
    if (good) {
        run_all(&runners[2]);
        good = run_together(suite, runners);
    }
    for (int i = 0; good && i < 3; i++) {
        if (runners[i].suite.excused)
            good = ls_device_suite_refuse(suite, "", runners[i].suite.note);
        else if (runners[i].suite.message[0])
            good = ls_device_suite_fail(suite, "device %d: %s", i, runners[i].suite.message);
        else if (memcmp(runners[i].results, runners[2].results, sizeof(runners[i].results)) != 0)
            good =
                ls_device_suite_fail(suite, "device %d of two has other results than one alone", i);
    }
    for (int i = 0; i < 3; i++)
        runner_close(&runners[i]);
    ls_device_suite_end(suite, name, NULL);
}

// ---- Any number of threads ----

static bool measure_with(struct ls_device_suite *suite, uint32_t threads, int64_t length,
                         double *out)
{
    static struct runner runner;
    struct ls_device_case c;
    struct ls_device_trial trial;
    void *outputs[LS_DEVICE_ARGUMENTS] = {out};

    if (!runner_open(suite, &runner, threads))
        return false;
    ls_device_case_start(&c, LS_OP_MEASURE, "measure of %lld", (long long)length);
    ls_device_case_draw(&c,
                        ls_device_case_input(&c, LS_DEVICE_PLAIN, LS_DEVICE_DESC(LS_F32, length)),
                        LS_DEVICE_UNIFORM);
    ls_device_case_output(&c, LS_DEVICE_PLAIN, LS_DEVICE_DESC(LS_F64, 2), LS_DEVICE_ROUNDED);
    ls_device_case_values(&c);
    const int32_t status =
        ls_device_trial_open(&trial, suite, &runner.side, &c, LS_DEVICE_ALL_PLAIN);
    const bool good = !status && ls_device_trial_run(&trial, false, -1, outputs);
    if (status == LS_UNSUPPORTED)
        ls_device_suite_refuse(suite, "", runner.side.message);
    ls_device_trial_close(&trial);
    ls_device_case_finish(&c);
    runner_close(&runner);
    return good;
}

static void measure_case(struct ls_device_suite *suite, int64_t length)
{
    char name[64];
    double sums[3][2];

    snprintf(name, sizeof(name), "measure N=%lld with 1, 2 and 3 threads", (long long)length);
    if (!ls_device_suite_begin(suite, name))
        return;
    bool good = true;
    for (uint32_t i = 0; good && i < 3; i++)
        good = measure_with(suite, i + 1, length, sums[i]);
    for (uint32_t i = 1; good && i < 3; i++)
        if (memcmp(sums[0], sums[i], sizeof(sums[0])) != 0)
            good = ls_device_suite_fail(suite, "1 thread gives %.17g, %u give %.17g", sums[0][0],
                                        i + 1, sums[i][0]);
    ls_device_suite_end(suite, name, NULL);
}

void ls_device_thread_cases(struct ls_device_suite *suite)
{
    measure_case(suite, 17);
    measure_case(suite, 65537);
    measure_case(suite, 300007);
    together_case(suite);
}
