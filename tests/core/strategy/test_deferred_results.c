// SPDX-License-Identifier: Apache-2.0
// Steps on a device that works on while the host does: device cuda on its fake, which is NOT A GPU. Sums come late,
// steps are recorded and replayed, and none of it changes a bit; a loss that is not finite is followed by no update.
#include "core/strategy/driver.h"
#include "core/replica/internal.h" // how many parts a recorded step has follows from its program
#include "tests/core/replica/support.h"
#include "tests/core/strategy/open.h"
#include "tests/support/cuda-fake/fake.h"

#include "core/base/log.h"
#include "tests/support/errors.h"
#include "tests/support/suite.h"

#include <stdlib.h>

#define STEPS 9
#define NEVER UINT64_MAX

// Losses of two devices: another order of float32 additions.
#define ROUNDING 5e-6

static const uint64_t sizes[] = {6, 4, 3, 2, 0};
static struct ls_graph *graph;
static struct ls_optimizer adam;
static struct test_host strategy_host;
static struct ls_cluster *cluster;

static void set_up(void)
{
    graph = harness_cnn();
    adam = test_optimizer("adam");
    forget_errors();
}

static void tear_down(void)
{
    ls_graph_destroy(graph);
}

// ---- A replica under a strategy, and how it is run ----

struct setting {
    const char *device;
    bool recording;
    bool capturable; // what the strategy says of itself
    uint32_t microbatches;
    uint64_t poisoned; // step whose examples are not finite; NEVER
    uint64_t last; // step
    uint64_t stop; // step that asks to stop; NEVER
    bool several_sizes, evaluation;
};

static const struct setting ordinary = {.device = "cuda",
                                        .recording = true,
                                        .capturable = true,
                                        .microbatches = 1,
                                        .poisoned = NEVER,
                                        .stop = NEVER,
                                        .last = STEPS};

struct outcome {
    float losses[STEPS + 1]; // by step
    uint64_t known[STEPS + 1]; // in which step the sums of each came; 0: when they were settled
    uint64_t stopped; // step after which somebody asks to stop; 0: none
    uint64_t steps; // whose sums came
    uint64_t failed; // step that returned an error; 0: none
    uint64_t hash;
    double evaluated[LS_SUMS];
    uint64_t kernels, replays; // of the last step
    char recording[LS_RECORDING_TEXT];
};

static const char *no_recording(const struct ls_host *host, const char *name)
{
    return strcmp(name, "recording") == 0 ? "off" : test_host_option(host, name);
}

static struct ls_replica *create(const struct setting *setting, struct test_device *device)
{
    struct ls_replica_options options = test_options(device, graph, &adam, sizes);
    if (!setting->recording)
        device->host.host.option = no_recording;
    options.deadline_ns = UINT64_C(20000000000);
    options.first_bucket_bytes = 64;
    options.bucket_bytes = 256;
    return test_replica(&options, sizes, setting->microbatches);
}

static struct ls_driver *open_driver(const struct setting *setting, struct ls_replica **replica)
{
    static struct ls_strategy_interface interface;
    const struct ls_plugin *plugin = test_plugin_open("strategy-one-device");
    struct ls_driver *driver = NULL;
    ck_assert_ptr_nonnull(plugin);
    test_host_init(&strategy_host, plugin);
    interface = *(const struct ls_strategy_interface *)plugin->interface;
    if (!setting->capturable)
        interface.traits.capturable = 0;
    const struct ls_driver_options options = {
        .strategy = {plugin, &strategy_host.host, &interface},
        .optimizer = &adam,
        .deadline_ns = UINT64_C(20000000000),
    };
    ck_assert_int_eq(test_driver_open(options, replica, 1, &cluster, &driver), LS_OK);
    return driver;
}

static struct ls_replica_batch batch_of(const struct setting *setting, uint64_t step)
{
    static float poison[MOST_EXAMPLES * MOST_ELEMENTS];
    const uint64_t different =
        setting->microbatches > 1 ? 2 : 3; // that can be cut into microbatches
    const uint64_t count = setting->several_sizes ? sizes[step % different] : 6;
    struct ls_replica_batch batch = test_batch(graph, step % 4, count, count);
    if (setting->several_sizes && step % 5 == 4)
        batch.count = 0;
    if (step == setting->poisoned) {
        memcpy(poison, batch.inputs[0], count * MOST_ELEMENTS * sizeof(float));
        poison[7] = INFINITY;
        batch.inputs[0] = poison;
    }
    return batch;
}

static void note(struct outcome *outcome, const struct ls_step_result *result, uint64_t now)
{
    if (result->step == 0)
        return;
    ck_assert_uint_eq(result->step, outcome->steps + 1); // in order, none left out
    outcome->steps = result->step;
    outcome->losses[result->step] = result->sums[0];
    outcome->known[result->step] = now;
    if (result->stop && !outcome->stopped)
        outcome->stopped = result->step;
}

static enum ls_status settle(struct ls_driver *driver, struct outcome *outcome)
{
    for (;;) {
        struct ls_step_result result = {0};
        const enum ls_status status = ls_driver_collect(driver, 0, &result);
        if (status || result.step == 0)
            return status;
        note(outcome, &result, 0);
    }
}

static enum ls_status steps(const struct setting *setting, struct ls_driver *driver,
                            struct outcome *outcome)
{
    struct double_work_counts before, after;
    for (uint64_t step = 1; step <= setting->last; step++) {
        struct ls_step_result result = {0};
        const struct ls_replica_batch batch = batch_of(setting, step);
        double_count_work(&before);
        const enum ls_status status =
            ls_driver_step(driver, 0, &batch, step, 0.01, step >= setting->stop, &result);
        double_count_work(&after);
        outcome->kernels = after.kernels - before.kernels;
        outcome->replays = after.replays - before.replays;
        if (status) {
            outcome->failed = step;
            return status;
        }
        note(outcome, &result, step);
    }
    return settle(driver, outcome);
}

static void evaluate(struct ls_replica *replica, double *sums)
{
    for (uint64_t i = 0; i < 5; i++) {
        const struct ls_replica_batch batch = test_batch(graph, i, i == 4 ? 3 : 6, 6);
        ck_assert_int_eq(ls_replica_evaluate(replica, &batch, sums), LS_OK);
    }
    ck_assert_int_eq(ls_replica_evaluate_end(replica, sums), LS_OK);
}

static enum ls_status run(const struct setting *setting, struct outcome *outcome)
{
    struct test_device *device = test_device(setting->device);
    ck_assert_ptr_nonnull(device);
    device->host.host.context = &device->host;
    struct ls_replica *replica = create(setting, device);
    struct ls_driver *driver = open_driver(setting, &replica);
    *outcome = (struct outcome){0};
    const enum ls_status status = steps(setting, driver, outcome);
    ls_driver_explain(driver);
    ck_assert_int_eq(ls_replica_hash(replica, &outcome->hash), LS_OK);
    if (setting->evaluation)
        evaluate(replica, outcome->evaluated);
    if (!ls_replica_recording(replica, outcome->recording, sizeof(outcome->recording)))
        outcome->recording[0] = '\0';
    ls_driver_close(driver);
    ls_cluster_close(cluster);
    cluster = NULL;
    ls_replica_destroy(replica);
    return status;
}

static void assert_same(const struct outcome *a, const struct outcome *b)
{
    ck_assert_uint_eq(a->steps, b->steps);
    ck_assert_mem_eq(a->losses, b->losses, sizeof(a->losses));
    ck_assert_uint_eq(a->hash, b->hash);
    ck_assert_mem_eq(a->evaluated, b->evaluated, sizeof(a->evaluated));
}

// ---- Late sums ----

LOOP_TEST(sums_come_in_order_and_two_steps_late_but_for_the_first, 0, 2)
{
    struct setting setting = ordinary;
    struct outcome outcome;
    setting.recording = _i;
    ck_assert_int_eq(run(&setting, &outcome), LS_OK);
    ck_assert_uint_eq(outcome.steps, STEPS);
    ck_assert_uint_eq(outcome.known[1], 1);
    for (uint64_t step = 2; step <= STEPS; step++)
        ck_assert_uint_eq(outcome.known[step], step + 2 <= STEPS ? step + 2 : 0);
}

TEST(a_strategy_that_is_not_capturable_gets_its_sums_at_once)
{
    struct setting setting = ordinary;
    struct outcome late, outcome;
    ck_assert_int_eq(run(&setting, &late), LS_OK);
    setting.capturable = false;
    ck_assert_int_eq(run(&setting, &outcome), LS_OK);
    for (uint64_t step = 1; step <= STEPS; step++)
        ck_assert_uint_eq(outcome.known[step], step);
    assert_same(&outcome, &late);
}

TEST(losses_are_those_of_the_reference_device)
{
    struct setting setting = ordinary;
    struct outcome wanted, got;
    setting.device = "reference";
    setting.several_sizes = setting.evaluation = true;
    ck_assert_int_eq(run(&setting, &wanted), LS_OK);
    ck_assert_str_eq(wanted.recording, "");
    ck_assert_uint_eq(wanted.known[STEPS], STEPS);
    setting.device = "cuda";
    ck_assert_int_eq(run(&setting, &got), LS_OK);
    for (uint64_t step = 1; step <= STEPS; step++)
        ck_assert_float_eq_tol(got.losses[step] / 6, wanted.losses[step] / 6, ROUNDING);
    for (int i = 0; i < LS_SUMS; i++)
        ck_assert_double_eq_tol(got.evaluated[i], wanted.evaluated[i], 30 * ROUNDING);
}

TEST(a_wish_to_stop_is_known_two_steps_later)
{
    struct setting setting = ordinary;
    struct outcome outcome;
    setting.stop = 4;
    ck_assert_int_eq(run(&setting, &outcome), LS_OK);
    ck_assert_uint_eq(outcome.stopped, 4);
    ck_assert_uint_eq(outcome.known[4], 6);
}

// ---- Recordings ----

LOOP_TEST(recorded_steps_have_the_same_bits, 0, 4)
{
    static const struct {
        bool several_sizes, evaluation;
        uint32_t microbatches;
    } cases[] = {{false, false, 1}, {true, true, 1}, {false, true, 3}, {true, false, 2}};
    struct setting setting = ordinary;
    struct outcome wanted, got;
    setting.several_sizes = cases[_i].several_sizes;
    setting.evaluation = cases[_i].evaluation;
    setting.microbatches = cases[_i].microbatches;
    setting.recording = false;
    ck_assert_int_eq(run(&setting, &wanted), LS_OK);
    ck_assert_str_eq(wanted.recording, "not recorded: recording=off");
    setting.recording = true;
    for (int capturable = 0; capturable < 2; capturable++) {
        setting.capturable = capturable;
        ck_assert_int_eq(run(&setting, &got), LS_OK);
        assert_same(&got, &wanted);
    }
}

TEST(a_step_that_is_recorded_whole_is_handed_over_in_one)
{
    struct setting setting = ordinary;
    struct outcome outcome;
    ck_assert_int_eq(run(&setting, &outcome), LS_OK);
    ck_assert_str_eq(outcome.recording, "recorded whole");
    ck_assert_uint_eq(outcome.replays, 1);
    ck_assert_uint_eq(outcome.kernels, 0);
    setting.last = 2; // recorded, and replayed at once
    ck_assert_int_eq(run(&setting, &outcome), LS_OK);
    ck_assert_uint_eq(outcome.replays, 1);
    ck_assert_uint_eq(outcome.kernels, 0);
    setting.last = 1;
    ck_assert_int_eq(run(&setting, &outcome), LS_OK);
    ck_assert_uint_eq(outcome.replays, 0);
    ck_assert_uint_gt(outcome.kernels, 20);
    setting.recording = false;
    setting.last = STEPS;
    ck_assert_int_eq(run(&setting, &outcome), LS_OK);
    ck_assert_uint_eq(outcome.replays, 0);
    ck_assert_uint_gt(outcome.kernels, 20);
}

// A recording ends where a bucket is complete: there the strategy may do what it likes. Each update is one, too.
TEST(other_steps_are_recorded_between_the_hooks)
{
    struct setting setting = ordinary;
    struct outcome outcome;
    struct test_device *device = test_device("cuda");
    ck_assert_ptr_nonnull(device);
    device->host.host.context = &device->host;
    struct ls_replica *replica = create(&setting, device);
    const struct ls_replica_program *entry = replica->programs[0];
    const uint32_t buckets = ls_replica_buckets(replica)->count;
    ck_assert_uint_ge(buckets, 3);
    uint32_t parts = buckets; // updates
    for (uint32_t i = 0, from = 0; i <= buckets; i++) {
        const uint32_t to = i < buckets ? entry->bucket_ends[i] : entry->program->step_count;
        parts += to > from;
        from = to > from ? to : from;
    }
    ls_replica_destroy(replica);
    setting.capturable = false;
    ck_assert_int_eq(run(&setting, &outcome), LS_OK);
    ck_assert_uint_eq(outcome.replays, parts);
    ck_assert_uint_eq(outcome.kernels, 0);
    char text[LS_RECORDING_TEXT];
    snprintf(text, sizeof(text), "recorded in %u parts", parts);
    ck_assert_str_eq(outcome.recording, text);
}

// ---- A loss that is not finite ----

LOOP_TEST(a_loss_that_is_not_finite_is_followed_by_no_update, 0, 4)
{
    struct setting setting = ordinary;
    struct outcome before, outcome;
    setting.recording = _i % 2;
    setting.capturable = _i < 2;
    setting.last = 4;
    ck_assert_int_eq(run(&setting, &before), LS_OK);
    setting.last = STEPS;
    setting.poisoned = 5;
    ck_assert_int_eq(run(&setting, &outcome), LS_FAILED);
    ck_assert_uint_eq(outcome.failed, setting.capturable ? 7 : 5);
    ck_assert_uint_eq(outcome.steps, 4);
    assert_same(&outcome, &before);
    ck_assert_msg(strstr(message, "step 5: the loss is not finite") != NULL, "%s", message);
    ck_assert_msg(strstr(message, setting.capturable ? "check the data of step 5"
                                                     : "not finite is in 'input'") != NULL,
                  "%s", message);
}

TEST(a_parameter_that_is_not_finite_is_named_however_late)
{
    struct setting setting = ordinary;
    struct test_device *device = test_device("cuda");
    ck_assert_ptr_nonnull(device);
    device->host.host.context = &device->host;
    struct ls_replica *replica = create(&setting, device);
    struct ls_driver *driver = open_driver(&setting, &replica);
    struct outcome outcome = {0};
    float values[4096] = {0};
    values[3] = NAN;
    ck_assert_str_eq(graph->parameters[2]->name, "conv2d_1/kernel");
    ck_assert_int_eq(ls_replica_set_buffer(replica, LS_BUFFER_PARAMETERS, 2, values), LS_OK);
    ck_assert_int_eq(ls_replica_refresh(replica), LS_OK);
    ck_assert_int_eq(steps(&setting, driver, &outcome), LS_FAILED);
    ls_driver_explain(driver);
    ck_assert_msg(strstr(message, "step 1: the loss is not finite; the first value that is not "
                                  "finite is in 'conv2d_1/kernel'; check the data") != NULL,
                  "%s", message);
    ls_driver_close(driver);
    ls_cluster_close(cluster);
    cluster = NULL;
    ls_replica_destroy(replica);
}

TEST_FIXTURE(set_up, tear_down);
