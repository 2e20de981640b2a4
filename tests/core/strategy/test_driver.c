// SPDX-License-Identifier: Apache-2.0
// The driver with strategies made for the test: which hooks it calls and when, what its host table does, and that the
// failure of one replica ends all.
#include "core/strategy/driver.h"
#include "tests/core/strategy/job.h"

#include "core/base/log.h"
#include "core/plugin/plugin.h"
#include "tests/support/errors.h"
#include "tests/support/suite.h"

#include <stdatomic.h>

#define MOST 4
#define EVENTS 64
#define DEADLINE_NS \
    UINT64_C(100000000000) // far beyond the timeout of a test: nothing may wait for it
#define ROUNDING 2e-6

static const uint64_t sizes[] = {6, 4, 3, 2, 0};

// ---- A strategy that notes its calls ----

enum event { PLACE = 1, BEGIN, READY, END, SYNCHRONISE, CLOSE };

struct ls_strategy {
    const struct ls_strategy_host *host;
};

static struct {
    struct ls_strategy *strategy; // opened last
    int32_t events[MOST][EVENTS]; // 100 * event + bucket
    uint32_t count[MOST];
    int32_t fail_event; // 0: none
    uint32_t fail_replica;
    uint32_t closed;
    float sum; // that end_step puts in place of replica 0's loss; 0: leaves it
    struct ls_replica **replicas;
    float *gradients; // of replica 0, of all buckets, as they were when ready; NULL: not noted
} fake;

static int32_t note(uint32_t replica, int32_t event)
{
    ck_assert_uint_lt(fake.count[replica], EVENTS);
    fake.events[replica][fake.count[replica]++] = event;
    return fake.fail_event == event && fake.fail_replica == replica ? LS_FAILED : LS_OK;
}

static int32_t fake_open(const struct ls_strategy_host *host, struct ls_strategy *strategy)
{
    fake.strategy = strategy;
    strategy->host = host;
    return LS_OK;
}

static void fake_close(struct ls_strategy *strategy)
{
    fake.closed += strategy != NULL;
}

static int32_t fake_place(struct ls_strategy *strategy, uint32_t replica)
{
    const int32_t status = note(replica, 100 * PLACE);
    return status || strategy->host->world == 1
               ? status
               : strategy->host->collectives->broadcast_parameters(strategy->host, replica, 0);
}

static int32_t fake_begin(struct ls_strategy *strategy, uint32_t replica)
{
    (void)strategy;
    return note(replica, 100 * BEGIN);
}

static int32_t fake_ready(struct ls_strategy *strategy, uint32_t replica, uint32_t bucket)
{
    const int32_t status = note(replica, 100 * READY + (int32_t)bucket);
    return status || strategy->host->world == 1
               ? status
               : strategy->host->collectives->all_reduce_start(strategy->host, replica, bucket);
}

static int32_t fake_end(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    int32_t status = note(replica, 100 * END);
    for (uint32_t bucket = 0; !status && bucket < host->bucket_count; bucket++) {
        if (host->world > 1)
            status = host->collectives->all_reduce_wait(host, replica, bucket);
        if (!status && bucket == 0 && fake.sum != 0)
            *(float *)ls_address(ls_replica_memory(fake.replicas[replica], LS_BUFFER_REDUCED)) =
                fake.sum;
        if (!status && bucket == 0)
            status = host->step->check_step(host, replica);
        if (!status)
            status = host->step->update(host, replica, bucket);
    }
    return status;
}

static int32_t fake_synchronise(struct ls_strategy *strategy, uint32_t replica)
{
    (void)strategy;
    return note(replica, 100 * SYNCHRONISE);
}

static struct ls_strategy_interface interface;
static const struct ls_plugin fake_plugin = {LS_PLUGIN_HEADER(LS_KIND_STRATEGY), .name = "fake",
                                             .interface = &interface};

// ---- Replicas under a driver ----

static struct ls_optimizer sgd;

static void set_up(void)
{
    device = test_device("reference");
    graph = harness_cnn();
    sgd = test_optimizer("sgd");
    memset(&fake, 0, sizeof(fake));
    forget_errors();
    interface = (struct ls_strategy_interface){
        .struct_size = sizeof(interface),
        .state_bytes = sizeof(struct ls_strategy),
        .traits = {.divisor = LS_DIVISOR_GLOBAL, .equality = LS_EQUAL_EVERY_STEP},
        .open = fake_open,
        .close = fake_close,
        .initialize_parameters = fake_place,
        .begin_step = fake_begin,
        .gradient_ready = fake_ready,
        .end_step = fake_end,
        .synchronise = fake_synchronise};
}

static void make_replicas(struct job *job, uint32_t world, const struct ls_graph *last)
{
    job->world = world;
    for (uint32_t i = 0; i < world; i++) {
        const struct ls_graph *own = i + 1 == world && last ? last : graph;
        struct ls_replica_options options = test_options(device, own, &sgd, sizes);
        options.rank = i;
        options.first_bucket_bytes = 64;
        options.bucket_bytes = 256;
        job->replicas[i] = test_replica(&options, sizes, 1);
    }
    fake.replicas = job->replicas;
}

static struct ls_driver_options driver_options(struct job *job)
{
    test_host_init(&strategy_host, &fake_plugin);
    struct ls_driver_options options = {
        .strategy = {&fake_plugin, &strategy_host.host, &interface},
        .optimizer = &sgd,
        .deadline_ns = DEADLINE_NS,
    };
    if (job->world > 1) {
        options.collective = test_driver_plugin("collective-ring", &collective_host);
        options.transport = test_driver_plugin("transport-local", &transport_host);
    }
    return options;
}

static void start_with(struct job *job, struct ls_driver_options options)
{
    ck_assert_int_eq(
        test_driver_open(options, job->replicas, job->world, &job->cluster, &job->driver), LS_OK);
    ck_assert_int_eq(ls_group_create(0, job->world, wake, job, &job->group), LS_OK);
    const uint64_t each = 6 / job->world; // 6, 3, 2
    for (uint32_t i = 0; i < job->world; i++)
        job->batches[i] = test_batch(graph, i * each, each, each * job->world);
}

// A driver of these replicas is refused in one line that has both texts.
static void check_refused(struct job *job, struct ls_driver_options options, enum ls_status status,
                          const char *one, const char *other)
{
    const enum ls_status found =
        test_driver_open(options, job->replicas, job->world, &job->cluster, &job->driver);
    ck_assert_ptr_nonnull(strstr(message, other));
    expect_error(found, status, one);
    finish(job);
}

static void start(struct job *job, uint32_t world)
{
    memset(job, 0, sizeof(*job));
    make_replicas(job, world, NULL);
    start_with(job, driver_options(job));
}

// ---- Hooks ----

LOOP_TEST(hooks_come_in_the_order_of_the_plan, 1, 4)
{
    struct job job;
    start(&job, (uint32_t)_i);
    ck_assert_int_eq(ls_group_run(job.group, place, &job), LS_OK);
    ck_assert_int_eq(run_step(&job), LS_OK);
    ck_assert_int_eq(run_step(&job), LS_OK);
    ck_assert_int_eq(ls_group_run(job.group, synchronise, &job), LS_OK);
    const int32_t buckets = (int32_t)ls_replica_buckets(job.replicas[0])->count;
    ck_assert_int_ge(buckets, 3);
    for (uint32_t rank = 0; rank < job.world; rank++) {
        const int32_t *event = fake.events[rank];
        ck_assert_int_eq(*event++, 100 * PLACE);
        for (int i = 0; i < 2; i++) {
            ck_assert_int_eq(*event++, 100 * BEGIN);
            for (int32_t bucket = 0; bucket < buckets; bucket++)
                ck_assert_int_eq(*event++, 100 * READY + bucket);
            ck_assert_int_eq(*event++, 100 * END);
        }
        ck_assert_int_eq(*event++, 100 * SYNCHRONISE);
        ck_assert_int_eq(*event, 0);
    }
    finish(&job);
    ck_assert_uint_eq(fake.closed, 1);
}

TEST(an_empty_share_calls_the_same_hooks)
{
    struct job job;
    start(&job, 2);
    job.batches[0] = test_batch(graph, 0, 6, 6);
    job.batches[1] = test_batch(graph, 6, 0, 6);
    ck_assert_int_eq(run_step(&job), LS_OK);
    ck_assert_uint_eq(fake.count[0], fake.count[1]);
    ck_assert_mem_eq(fake.events[0], fake.events[1], sizeof(fake.events[0]));
    ck_assert_uint_eq(hash_of(job.replicas[0]), hash_of(job.replicas[1]));
    finish(&job);
}

TEST(hooks_that_are_optional_may_be_missing)
{
    struct job job;
    interface.begin_step = NULL;
    interface.synchronise = NULL;
    start(&job, 2);
    ck_assert_int_eq(run_step(&job), LS_OK);
    ck_assert_int_eq(ls_group_run(job.group, synchronise, &job), LS_OK);
    ck_assert_int_eq(fake.events[0][0], 100 * READY);
    finish(&job);
}

static int32_t note_gradients(struct ls_strategy *strategy, uint32_t replica, uint32_t bucket)
{
    const struct ls_replica *own = fake.replicas[replica];
    const struct ls_bucket *range = &ls_replica_buckets(own)->list[bucket];
    memcpy((char *)fake.gradients + range->offset,
           (char *)ls_address(ls_replica_memory(own, LS_BUFFER_GRADIENTS)) + range->offset,
           range->bytes);
    return fake_ready(strategy, replica, bucket);
}

TEST(a_bucket_is_ready_when_its_gradients_are_final)
{
    struct job job;
    interface.gradient_ready = note_gradients;
    start(&job, 1);
    const uint64_t bytes = ls_replica_plan(job.replicas[0])->flat_bytes;
    fake.gradients = malloc(bytes);
    ck_assert_int_eq(run_step(&job), LS_OK);
    ck_assert_uint_ge(ls_replica_buckets(job.replicas[0])->count, 4);
    ck_assert_mem_eq(fake.gradients,
                     ls_address(ls_replica_memory(job.replicas[0], LS_BUFFER_GRADIENTS)), bytes);
    free(fake.gradients);
    finish(&job);
}

// ---- Communication between kernels ----

// The transport, which counts how often it is asked whether a transfer is over while its replica
// computes: between two calls of gradient_ready.
static struct {
    struct ls_transport_interface interface;
    struct ls_plugin plugin;
    int32_t (*test)(struct ls_transport *transport, struct ls_transfer *transfer);
    atomic_uint asked;
} counted;
static _Thread_local bool computes;

static int32_t counted_test(struct ls_transport *transport, struct ls_transfer *transfer)
{
    if (computes)
        atomic_fetch_add(&counted.asked, 1);
    return counted.test(transport, transfer);
}

static int32_t ready_between(struct ls_strategy *strategy, uint32_t replica, uint32_t bucket)
{
    computes = false;
    const int32_t status = fake_ready(strategy, replica, bucket);
    computes = bucket + 1 < strategy->host->bucket_count;
    return status;
}

TEST(communication_moves_on_between_kernels)
{
    struct job job;
    memset(&job, 0, sizeof(job));
    interface.gradient_ready = ready_between;
    make_replicas(&job, 2, NULL);
    struct ls_driver_options options = driver_options(&job);
    counted.interface = *(const struct ls_transport_interface *)options.transport.interface;
    counted.test = counted.interface.test;
    counted.interface.test = counted_test;
    counted.plugin = *options.transport.plugin;
    counted.plugin.interface = options.transport.interface = &counted.interface;
    options.transport.plugin = &counted.plugin;
    start_with(&job, options);
    ck_assert_int_eq(run_step(&job), LS_OK);
    ck_assert_uint_gt(counted.asked, 0);
    finish(&job);
}

// Also that of an empty share.
TEST(a_hook_that_fails_ends_the_step)
{
    for (uint64_t examples = 0; examples <= 6; examples += 6) {
        struct job job;
        memset(&fake, 0, sizeof(fake));
        start(&job, 1);
        job.batches[0] = test_batch(graph, 0, examples, 6);
        fake.fail_event = 100 * READY + 1;
        ck_assert_int_eq(run_step(&job), LS_FAILED);
        ck_assert_uint_eq(fake.count[0], 3); // it begins, and two buckets are ready
        ck_assert_int_eq(fake.events[0][2], 100 * READY + 1);
        finish(&job);
    }
}

// The others wait for that replica in the reduction, which has a deadline that no test lives to see.
TEST(a_hook_that_fails_on_one_replica_ends_all)
{
    static const int32_t failing[] = {100 * BEGIN, 100 * READY, 100 * READY + 1, 100 * READY + 2,
                                      100 * END};
    for (size_t i = 0; i < sizeof(failing) / sizeof(failing[0]); i++)
        for (uint32_t rank = 0; rank < 3; rank++) {
            struct job job;
            memset(&fake, 0, sizeof(fake));
            start(&job, 3);
            ck_assert_int_eq(run_step(&job), LS_OK);
            fake.fail_event = failing[i];
            fake.fail_replica = rank;
            ck_assert_int_eq(run_step(&job), LS_FAILED);
            for (uint32_t other = 0; other < 3; other++)
                if (other == rank)
                    ck_assert_int_eq(job.status[other], LS_FAILED);
                else
                    ck_assert(job.status[other] == LS_ABORTED || job.status[other] == LS_OK);
            finish(&job);
        }
}

// ---- The host table ----

LOOP_TEST(replicas_make_the_update_of_one, 2, 4)
{
    struct job one, many;
    start(&one, 1);
    start(&many, (uint32_t)_i);
    for (int i = 0; i < 3; i++) {
        fake.replicas = one.replicas;
        ck_assert_int_eq(run_step(&one), LS_OK);
        fake.replicas = many.replicas;
        ck_assert_int_eq(run_step(&many), LS_OK);
        for (uint32_t rank = 0; rank < many.world; rank++) {
            ck_assert_float_eq(many.results[rank].sums[2], 6);
            ck_assert_float_eq(many.results[rank].sums[1], one.results[0].sums[1]);
            ck_assert_double_eq_tol((double)many.results[rank].sums[0],
                                    (double)one.results[0].sums[0], 1e-5);
            ck_assert(!many.results[rank].stop);
        }
    }
    const size_t count = ls_replica_plan(one.replicas[0])->flat_bytes / sizeof(float);
    for (uint32_t rank = 0; rank < many.world; rank++) {
        ck_assert_double_le(
            test_difference(
                ls_address(ls_replica_memory(one.replicas[0], LS_BUFFER_PARAMETERS)),
                ls_address(ls_replica_memory(many.replicas[rank], LS_BUFFER_PARAMETERS)), count),
            ROUNDING);
        ck_assert_uint_eq(hash_of(many.replicas[rank]), hash_of(many.replicas[0]));
    }
    finish(&many);
    finish(&one);
}

// ---- Logical shards ----

#define SHARDS 3 // of 6 examples

static void start_shards(struct job *job, uint32_t world)
{
    memset(job, 0, sizeof(*job));
    interface.needs_collective = world > 1;
    make_replicas(job, world, NULL);
    struct ls_driver_options options = driver_options(job);
    options.shards = SHARDS;
    const struct ls_replica_need need = {
        .sizes[LS_PURPOSE_TRAIN] = {sizes, 5}, .microbatches = SHARDS / world, .shards = SHARDS};
    for (uint32_t i = 0; i < world; i++) {
        bool changed;
        ck_assert_int_eq(ls_replica_need(job->replicas[i], &need, &changed), LS_OK);
    }
    start_with(job, options);
}

TEST(logical_shards_give_the_bits_of_one_replica)
{
    struct job one, three;
    start_shards(&one, 1);
    start_shards(&three, SHARDS);
    for (int i = 0; i < 3; i++) {
        fake.replicas = one.replicas;
        ck_assert_int_eq(run_step(&one), LS_OK);
        fake.replicas = three.replicas;
        ck_assert_int_eq(run_step(&three), LS_OK);
        ck_assert_mem_eq(three.results[2].sums, one.results[0].sums, sizeof(one.results[0].sums));
        ck_assert_float_eq(three.results[1].sums[2], 6);
    }
    for (uint32_t rank = 0; rank < three.world; rank++)
        ck_assert_uint_eq(hash_of(three.replicas[rank]), hash_of(one.replicas[0]));
    finish(&three);
    finish(&one);
}

static int32_t add_alone(struct ls_strategy *strategy, uint32_t replica, uint32_t bucket)
{
    (void)strategy;
    return note(replica, 100 * READY + (int32_t)bucket);
}

static int32_t end_alone(struct ls_strategy *strategy, uint32_t replica)
{
    return strategy->host->step->check_step(strategy->host, replica);
}

TEST(a_strategy_that_adds_gradients_in_a_way_of_its_own_is_refused)
{
    struct job job;
    interface.gradient_ready = add_alone;
    interface.end_step = end_alone;
    start_shards(&job, SHARDS);
    ck_assert_int_eq(run_step(&job), LS_USAGE);
    ck_assert_uint_eq(errors, 1);
    ck_assert_ptr_nonnull(strstr(message, "adds gradients in a way of its own"));
    finish(&job);
}

TEST(replicas_that_step_by_themselves_have_no_logical_shards)
{
    struct job job = {0};
    interface.traits.divisor = LS_DIVISOR_OWN;
    make_replicas(&job, 2, NULL);
    struct ls_driver_options options = driver_options(&job);
    options.shards = 2;
    check_refused(&job, options, LS_USAGE, "steps of their own", "");
}

TEST(logical_shards_need_norms_of_whole_variables)
{
    struct job job = {0};
    struct ls_optimizer clipped = test_optimizer("sgd:global_clipnorm=1");
    interface.norms = LS_NORM_OF_ALL;
    make_replicas(&job, 2, NULL);
    struct ls_driver_options options = driver_options(&job);
    options.optimizer = &clipped;
    options.shards = 2;
    check_refused(&job, options, LS_USAGE, "--reproducible", "whole variables");
}

TEST(broadcast_makes_parameters_those_of_the_root)
{
    struct job job;
    start(&job, 3);
    const uint64_t truth = hash_of(job.replicas[0]);
    const float other[4] = {9, 9, 9, 9};
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        if (strcmp(graph->parameters[i]->name, "conv2d_1/bias") == 0)
            ck_assert_int_eq(ls_replica_set_buffer(job.replicas[2], LS_BUFFER_PARAMETERS, i, other),
                             LS_OK);
    ck_assert_uint_ne(hash_of(job.replicas[2]), truth);
    for (int i = 0; i < 2; i++) // the second time with a plan that is there
        ck_assert_int_eq(ls_group_run(job.group, place, &job), LS_OK);
    for (uint32_t rank = 0; rank < 3; rank++)
        ck_assert_uint_eq(hash_of(job.replicas[rank]), truth);
    finish(&job);
}

LOOP_TEST(one_rank_that_asks_to_stop_is_heard_by_all, 0, 3)
{
    struct job job;
    start(&job, 3);
    job.stops[_i] = true;
    ck_assert_int_eq(run_step(&job), LS_OK);
    for (uint32_t rank = 0; rank < 3; rank++)
        ck_assert(job.results[rank].stop);
    job.stops[_i] = false;
    ck_assert_int_eq(run_step(&job), LS_OK);
    for (uint32_t rank = 0; rank < 3; rank++)
        ck_assert(!job.results[rank].stop);
    finish(&job);
}

LOOP_TEST(a_loss_that_is_not_finite_updates_nothing_and_is_said_once, 0, 3)
{
    const uint32_t guilty = (uint32_t)_i;
    struct job job;
    start(&job, 3);
    ck_assert_int_eq(run_step(&job), LS_OK);
    uint64_t before[3];
    for (uint32_t rank = 0; rank < 3; rank++)
        before[rank] = hash_of(job.replicas[rank]);
    static float poisoned[2 * MOST_ELEMENTS];
    poisoned[17] = INFINITY;
    job.batches[guilty].inputs[0] = poisoned;
    ck_assert_int_eq(run_step(&job), LS_FAILED);
    ck_assert_uint_eq(errors, 0);
    ls_driver_explain(job.driver);
    ck_assert_uint_eq(errors, 1);
    ck_assert_ptr_nonnull(strstr(message, "step 2: the loss is not finite"));
    char place[32];
    snprintf(place, sizeof(place), "'input' of replica %u", guilty);
    ck_assert_msg(strstr(message, place) != NULL, "%s", message);
    for (uint32_t rank = 0; rank < 3; rank++) {
        ck_assert(job.status[rank] == LS_FAILED || job.status[rank] == LS_ABORTED);
        ck_assert_uint_eq(hash_of(job.replicas[rank]), before[rank]);
    }
    finish(&job);
}

TEST(a_parameter_that_is_not_finite_is_named)
{
    struct job job;
    start(&job, 2);
    const float values[4] = {0, NAN, 0, 0};
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        if (strcmp(graph->parameters[i]->name, "conv2d_1/bias") == 0)
            ck_assert_int_eq(
                ls_replica_set_buffer(job.replicas[1], LS_BUFFER_PARAMETERS, i, values), LS_OK);
    ck_assert_int_eq(run_step(&job), LS_FAILED);
    ls_driver_explain(job.driver);
    ck_assert_ptr_nonnull(strstr(message, "'conv2d_1/bias' of replica 1"));
    finish(&job);
}

LOOP_TEST(what_no_replica_can_name_is_said_once_too, 0, 2)
{
    struct job job;
    start(&job, 2);
    fake.sum = _i ? NAN : -INFINITY;
    ck_assert_int_eq(run_step(&job), LS_FAILED);
    ck_assert_uint_eq(errors, 0);
    ls_driver_explain(job.driver);
    ls_driver_explain(job.driver);
    ck_assert_uint_eq(errors, 1);
    ck_assert_ptr_nonnull(strstr(message, "not finite"));
    finish(&job);
}

TEST(a_failure_of_another_kind_needs_no_explanation)
{
    struct job job;
    start(&job, 2);
    fake.fail_event = 100 * END;
    ck_assert_int_eq(run_step(&job), LS_FAILED);
    ls_driver_explain(job.driver);
    ck_assert_uint_eq(errors, 0);
    finish(&job);
}

TEST(gradients_are_divided_as_the_strategy_says)
{
    struct job global, own;
    start(&global, 1);
    global.batches[0] = test_batch(graph, 0, 2, 6); // a third of a batch of six
    ck_assert_int_eq(run_step(&global), LS_OK);
    interface.traits.divisor = LS_DIVISOR_OWN;
    start(&own, 1);
    own.batches[0] = test_batch(graph, 0, 2, 6);
    ck_assert_int_eq(run_step(&own), LS_OK);
    const size_t count = ls_replica_plan(own.replicas[0])->flat_bytes / sizeof(float);
    float *thrice = malloc(count * sizeof(*thrice));
    for (size_t i = 0; i < count; i++)
        thrice[i] = 3 * ((const float *)ls_address(
                            ls_replica_memory(global.replicas[0], LS_BUFFER_GRADIENTS)))[i];
    ck_assert_double_le(
        test_difference(ls_address(ls_replica_memory(own.replicas[0], LS_BUFFER_GRADIENTS)), thrice,
                        count),
        ROUNDING);
    free(thrice);
    finish(&own);
    finish(&global);
}

TEST(what_does_not_exist_is_refused)
{
    struct job job;
    start(&job, 2);
    const struct ls_strategy_host *host = fake.strategy->host;
    ck_assert_uint_eq(host->replicas, 2);
    ck_assert_uint_eq(host->world, 2);
    ck_assert_uint_eq(host->bucket_count, ls_replica_buckets(job.replicas[0])->count);
    ck_assert_int_eq(host->collectives->all_reduce_start(host, 0, host->bucket_count), LS_FAILED);
    ck_assert_int_eq(host->collectives->all_reduce_wait(host, 1, UINT32_MAX), LS_FAILED);
    ck_assert_int_eq(host->collectives->broadcast_parameters(host, 0, 2), LS_FAILED);
    ck_assert_int_eq(host->step->update(host, 0, host->bucket_count), LS_FAILED);
    ck_assert_uint_eq(errors, 4);
    finish(&job);
    start(&job, 1);
    ck_assert_int_eq(fake.strategy->host->collectives->all_reduce_start(fake.strategy->host, 0, 0),
                     LS_FAILED);
    ck_assert_ptr_nonnull(strstr(message, "needs_collective"));
    ck_assert_uint_eq(ls_driver_bytes_per_step(job.driver), 0);
    finish(&job);
}

TEST(bytes_of_a_step_are_those_of_all_buckets)
{
    struct job job;
    start(&job, 2);
    const uint64_t all =
        LS_STEP_STATS * sizeof(float) + ls_replica_plan(job.replicas[0])->flat_bytes;
    // A ring of two sends each half of every bucket twice, in whole elements.
    ck_assert_uint_ge(ls_driver_bytes_per_step(job.driver), all - 64);
    ck_assert_uint_le(ls_driver_bytes_per_step(job.driver), all + 64);
    finish(&job);
}

// ---- Opening ----

TEST(more_replicas_than_the_strategy_takes_are_refused)
{
    struct job job = {0};
    interface.maximum_replicas = 1;
    make_replicas(&job, 2, NULL);
    const struct ls_driver_options options = driver_options(&job);
    check_refused(&job, options, LS_USAGE, "at most 1 replica, not 2", "");
    ls_driver_close(NULL);
}

TEST(a_strategy_that_needs_a_collective_must_have_one)
{
    struct job job = {0};
    interface.needs_collective = 1;
    make_replicas(&job, 1, NULL);
    const struct ls_driver_options options = driver_options(&job);
    check_refused(&job, options, LS_USAGE, "needs a collective", "");
}

TEST(replicas_of_different_layouts_are_refused)
{
    struct job job = {0};
    struct ls_graph *other = harness_mixed();
    make_replicas(&job, 2, other);
    const struct ls_driver_options options = driver_options(&job);
    check_refused(&job, options, LS_FAILED, "different layouts", "");
    ls_graph_destroy(other);
}

static int32_t refuse_open(const struct ls_strategy_host *host, struct ls_strategy *strategy)
{
    (void)host, (void)strategy;
    return LS_UNAVAILABLE;
}

TEST(a_strategy_that_does_not_open_leaves_nothing_behind)
{
    struct job job = {0};
    interface.open = refuse_open;
    make_replicas(&job, 2, NULL);
    const struct ls_driver_options options = driver_options(&job);
    ck_assert_int_eq(test_driver_open(options, job.replicas, job.world, &job.cluster, &job.driver),
                     LS_UNAVAILABLE);
    ck_assert_ptr_null(job.driver);
    ck_assert_uint_eq(fake.closed, 0);
    finish(&job);
}

TEST_FIXTURE(set_up, close_graph);

int main(void)
{
    if (!test_plugin_open("device-reference") || !test_plugin_open("collective-ring") ||
        !test_plugin_open("transport-local"))
        return TEST_SKIPPED;
    return test_suite_run("core/strategy/driver");
}
