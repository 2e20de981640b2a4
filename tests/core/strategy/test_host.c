// SPDX-License-Identifier: Apache-2.0
// The host table since ABI 1.1: central-storage on it, with devices that compute in host memory and with such that do
// not; and what it says when a plugin asks for what is not there, a peer does not come, or a thread fails.
#include "core/strategy/driver.h"
#include "tests/core/strategy/job.h"

#include "core/base/log.h"
#include "tests/support/errors.h"
#include "tests/support/suite.h"

#include <stdatomic.h>
#include <time.h>

#define MOST 8
#define ROUNDING 2e-6
#define SHORT_NS UINT64_C(200000000)
#define LONG_NS UINT64_C(100000000000) // no test lives to see it

static const uint64_t sizes[] = {6, 3, 2, 1, 0};

static struct ls_device_interface apart; // the same device, but its memory is not the host's
static struct ls_optimizer optimizer;
static void set_up(void)
{
    device = test_device("reference");
    apart = *device->ops;
    apart.memory_kind = LS_MEMORY_CUDA;
    graph = harness_cnn();
    optimizer = test_optimizer("adam");
    forget_errors();
}

// ---- Replicas under a driver ----

static enum ls_status host_device(void *context, struct ls_driver_plugin *out)
{
    (void)context;
    *out = (struct ls_driver_plugin){
        .plugin = device->host.plugin, .host = &device->host.host, .interface = device->ops};
    return LS_OK;
}

// Examples 0 to 5, cut as ls_share does, or all of them to the first two.
static void make_batches(struct job *job, bool uneven)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < job->world; i++) {
        uint64_t count = 6 / job->world + (i < 6 % job->world);
        if (uneven)
            count = i < 2 ? 3 : 0;
        job->batches[i] = test_batch(graph, at, count, 6);
        at += count;
    }
}

static enum ls_status open_job(struct job *job, uint32_t world, bool own_memory,
                               const struct ls_plugin *strategy, uint64_t deadline_ns)
{
    *job = (struct job){.world = world};
    for (uint32_t i = 0; i < world; i++) {
        struct ls_replica_options options = test_options(device, graph, &optimizer, sizes);
        options.ops = own_memory ? &apart : device->ops;
        options.rank = i;
        options.first_bucket_bytes = 64;
        options.bucket_bytes = 256;
        job->replicas[i] = test_replica(&options, sizes, 1);
    }
    test_host_init(&strategy_host, strategy);
    job->options = (struct ls_driver_options){
        .strategy = {strategy, &strategy_host.host, strategy->interface},
        .deadline_ns = deadline_ns,
        .threads = 1,
        .optimizer = &optimizer,
        .seed = TEST_SEED,
        .store_device = host_device,
    };
    const struct ls_strategy_interface *ops = strategy->interface;
    if (ops->needs_transport) {
        job->options.transport = test_driver_plugin("transport-local", &transport_host);
    }
    ck_assert_int_eq(ls_group_create(0, world, wake, job, &job->group), LS_OK);
    make_batches(job, false);
    return test_driver_open(job->options, job->replicas, job->world, &job->cluster, &job->driver);
}

// ---- Central storage ----

static const struct ls_plugin *opened(const char *name)
{
    const struct ls_plugin *plugin = test_plugin_open(name);
    ck_assert_ptr_nonnull(plugin);
    return plugin;
}

static const struct {
    uint32_t world;
    bool own_memory, uneven;
} settings[] = {
    {1, false, false}, {2, false, false}, {3, false, false}, {4, false, false}, {8, false, false},
    {1, true, false},  {2, true, false},  {3, true, false},  {3, false, true},  {4, true, true},
};

TABLE_TEST(central_storage_makes_the_update_of_one_device, settings)
{
    const uint32_t world = settings[_i].world;
    struct job one, many;
    ck_assert_int_eq(open_job(&one, 1, false, opened("strategy-one-device"), LONG_NS), LS_OK);
    ck_assert_int_eq(open_job(&many, world, settings[_i].own_memory,
                              opened("strategy-central-storage"), LONG_NS),
                     LS_OK);
    make_batches(&many, settings[_i].uneven);
    ck_assert_int_eq(ls_group_run(many.group, place, &many), LS_OK);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(run_step(&one), LS_OK);
        ck_assert_int_eq(run_step(&many), LS_OK);
        for (uint32_t rank = 0; rank < world; rank++) {
            ck_assert_float_eq(many.results[rank].sums[2], 6);
            ck_assert_double_eq_tol((double)many.results[rank].sums[0],
                                    (double)one.results[0].sums[0], 1e-5);
            ck_assert_uint_eq(hash_of(many.replicas[rank]), hash_of(many.replicas[0]));
        }
    }
    const struct ls_replica *truth = one.replicas[0], *last = many.replicas[world - 1];
    for (uint32_t k = 0; k < 2; k++)
        ck_assert_int_eq(
            ls_driver_read_stores(many.driver, world - 1, LS_BUFFER_STATE + k, LS_BUFFER_STATE + k),
            LS_OK);
    const size_t count = ls_replica_plan(truth)->flat_bytes / sizeof(float);
    ck_assert_double_le(test_difference(ls_address(ls_replica_memory(truth, LS_BUFFER_PARAMETERS)),
                                        ls_address(ls_replica_memory(last, LS_BUFFER_PARAMETERS)),
                                        count),
                        ROUNDING);
    for (uint32_t k = 0; k < 2; k++)
        ck_assert_double_le(
            test_difference(ls_address(ls_replica_memory(truth, LS_BUFFER_STATE + k)),
                            ls_address(ls_replica_memory(last, LS_BUFFER_STATE + k)), count),
            ROUNDING);
    if (world == 1) // to the bit
        ck_assert_uint_eq(hash_of(many.replicas[0]), hash_of(one.replicas[0]));
    ck_assert_uint_eq(ls_driver_bytes_per_step(many.driver), count * sizeof(float) + 64);
    finish(&many);
    finish(&one);
}

// It would cut the variables among the replicas of each worker, and leave the others' gradients out.
TEST(central_storage_refuses_replicas_of_other_workers)
{
    const struct ls_plugin *plugin = test_plugin_open("strategy-central-storage");
    ck_assert_ptr_nonnull(plugin);
    const struct ls_strategy_interface *ops = plugin->interface;
    struct ls_strategy *state = calloc(1, ops->state_bytes);
    struct test_host host;
    test_host_init(&host, plugin);
    const struct ls_strategy_host table = {.struct_size = sizeof(table),
                                           .replicas = 2,
                                           .first_rank = 2,
                                           .world = 4,
                                           .flat_count = 64,
                                           .host = &host.host};
    ck_assert_ptr_nonnull(state);
    ck_assert_int_eq(ops->open(&table, state), LS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(host.message, "has 2 of the 4 replicas"));
    free(state);
}

// The order of additions is that of the ranks, whoever comes first.
TEST(central_storage_gives_the_same_bits_each_time)
{
    uint64_t hashes[3];
    for (int i = 0; i < 3; i++) {
        struct job job;
        ck_assert_int_eq(open_job(&job, 4, false, opened("strategy-central-storage"), LONG_NS),
                         LS_OK);
        ck_assert_int_eq(ls_group_run(job.group, place, &job), LS_OK);
        for (int k = 0; k < 5; k++)
            ck_assert_int_eq(run_step(&job), LS_OK);
        hashes[i] = hash_of(job.replicas[1]);
        ck_assert_uint_eq(hashes[i], hashes[0]);
        finish(&job);
    }
}

LOOP_TEST(central_storage_updates_nothing_when_the_loss_is_not_finite, 0, 2)
{
    static float poisoned[2 * MOST_ELEMENTS];
    struct job job;
    ck_assert_int_eq(open_job(&job, 3, _i, opened("strategy-central-storage"), LONG_NS), LS_OK);
    ck_assert_int_eq(ls_group_run(job.group, place, &job), LS_OK);
    ck_assert_int_eq(run_step(&job), LS_OK);
    const uint64_t before = hash_of(job.replicas[0]);
    poisoned[17] = INFINITY;
    job.batches[1].inputs[0] = poisoned;
    ck_assert_int_eq(run_step(&job), LS_FAILED);
    ck_assert_uint_eq(errors, 0);
    ls_driver_explain(job.driver);
    ck_assert_uint_eq(errors, 1);
    ck_assert_msg(strstr(message, "step 2") && strstr(message, "'input' of replica 1"), "%s",
                  message);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(hash_of(job.replicas[i]), before);
    finish(&job);
}

// Variables that live in stores leave no optimizer state on the replicas.
LOOP_TEST(a_strategy_says_what_replicas_hold_before_they_have_buffers, 0, 3)
{
    static const struct {
        const char *name;
        bool states;
    } strategies[] = {{"strategy-central-storage", false},
                      {"strategy-parameter-server", false},
                      {"strategy-mirrored", true}};
    struct ls_driver_part parts[2];
    struct ls_driver *driver = NULL;
    struct job job;
    ck_assert_int_eq(open_job(&job, 2, false, opened("strategy-central-storage"), LONG_NS), LS_OK);
    const struct ls_plugin *plugin = opened(strategies[_i].name);
    struct ls_driver_options options = job.options;
    for (uint32_t i = 0; i < 2; i++)
        parts[i] = ls_driver_part_of(job.replicas[i]);
    test_host_init(&strategy_host, plugin);
    options.strategy =
        (struct ls_driver_plugin){plugin, &strategy_host.host, plugin->interface, NULL};
    options.transport = test_driver_plugin("transport-local", &transport_host);
    options.collective = test_driver_plugin("collective-ring", &collective_host);
    options.cluster = job.cluster;
    options.parts = parts;
    ck_assert_int_eq(ls_driver_open(&options, &driver), LS_OK);
    for (uint32_t replica = 0; replica < 2; replica++)
        for (uint32_t bucket = 0; bucket < parts[0].buckets->count; bucket++) {
            struct ls_strategy_placement placement;
            const struct ls_bucket *range = &parts[0].buckets->list[bucket];
            ck_assert_int_eq(ls_driver_placement(driver, replica, bucket, &placement), LS_OK);
            ck_assert_uint_eq(placement.parameters.first, range->offset / sizeof(float));
            ck_assert_uint_eq(placement.parameters.count, range->bytes / sizeof(float));
            ck_assert_uint_eq(placement.gradients.count, range->bytes / sizeof(float));
            ck_assert_uint_eq(placement.states.count,
                              strategies[_i].states ? range->bytes / sizeof(float) : 0);
        }
    ck_assert_int_eq(ls_driver_has_stores(driver), !strategies[_i].states);
    ck_assert(ls_driver_close(driver));
    finish(&job);
}

// What the caller has no optimizer state for is filled from elsewhere, and read back.
LOOP_TEST(stores_are_filled_and_read_as_flat_buffers, 0, 2)
{
    struct job job;
    ck_assert_int_eq(open_job(&job, 2, _i, opened("strategy-central-storage"), LONG_NS), LS_OK);
    const struct ls_replica *replica = job.replicas[1];
    const size_t count = ls_replica_plan(replica)->flat_bytes / sizeof(float);
    float *values = malloc(count * sizeof(float)), *back = malloc(count * sizeof(float));
    for (size_t i = 0; i < count; i++)
        values[i] = (float)i;
    for (uint32_t buffer = LS_BUFFER_PARAMETERS; buffer <= LS_BUFFER_STATE + 1; buffer++) {
        ck_assert_int_eq(ls_device_copy(ls_replica_device(replica),
                                        ls_replica_memory(replica, LS_BUFFER_GRADIENTS),
                                        ls_host_memory(values), count * sizeof(float), NULL),
                         LS_OK);
        ck_assert_int_eq(ls_driver_fill_stores(job.driver, 1, buffer, LS_BUFFER_GRADIENTS), LS_OK);
        ck_assert_int_eq(ls_device_zero(ls_replica_device(replica),
                                        ls_replica_memory(replica, LS_BUFFER_GRADIENTS),
                                        count * sizeof(float), NULL),
                         LS_OK);
        ck_assert_int_eq(ls_driver_read_stores(job.driver, 1, buffer, LS_BUFFER_GRADIENTS), LS_OK);
        ck_assert_int_eq(ls_device_copy(ls_replica_device(replica), ls_host_memory(back),
                                        ls_replica_memory(replica, LS_BUFFER_GRADIENTS),
                                        count * sizeof(float), NULL),
                         LS_OK);
        ck_assert_double_le(test_difference(values, back, count), 0);
        for (size_t i = 0; i < count; i++)
            values[i] += 1000;
    }
    free(values);
    free(back);
    finish(&job);
}

TEST(variables_on_the_host_need_a_device_there)
{
    struct job job;
    ck_assert_int_eq(open_job(&job, 1, true, opened("strategy-central-storage"), LONG_NS), LS_OK);
    ls_driver_close(job.driver);
    job.options.store_device = NULL;
    ck_assert_int_eq(
        test_driver_open(job.options, job.replicas, job.world, &job.cluster, &job.driver),
        LS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(message, "no device for variables on the host"));
    job.driver = NULL;
    finish(&job);
}

// ---- A strategy made for each test ----

struct ls_strategy {
    const struct ls_strategy_host *host;
};

static struct ls_strategy only;
static int32_t (*on_open)(const struct ls_strategy_host *host);
static int32_t (*on_end)(const struct ls_strategy_host *host, uint32_t replica);
static void (*on_close)(const struct ls_strategy_host *host);
static uint32_t divisor;

static int32_t made_open(const struct ls_strategy_host *host, struct ls_strategy *strategy)
{
    strategy->host = only.host = host;
    return on_open ? on_open(host) : LS_OK;
}

static void made_close(struct ls_strategy *strategy)
{
    if (strategy && on_close)
        on_close(strategy->host);
}

static int32_t made_place(struct ls_strategy *strategy, uint32_t replica)
{
    (void)strategy, (void)replica;
    return LS_OK;
}

static int32_t made_ready(struct ls_strategy *strategy, uint32_t replica, uint32_t bucket)
{
    (void)strategy, (void)replica, (void)bucket;
    return LS_OK;
}

static int32_t made_end(struct ls_strategy *strategy, uint32_t replica)
{
    return on_end(strategy->host, replica);
}

static void made_traits(struct ls_strategy *strategy, struct ls_strategy_traits *out)
{
    (void)strategy;
    out->divisor = divisor;
}

static void made_report(struct ls_strategy *strategy)
{
    const struct ls_strategy_host *host = strategy->host;
    const double numbers[] = {1, 2.5};
    host->report->metric(host, "made.list", numbers, 2, 1);
    host->report->metric(host, "made.number", numbers + 1, 1, 0);
    host->report->metric(host, "made.wrong", numbers, 2, 0);
}

static struct ls_strategy_interface made = {
    .struct_size = sizeof(made),
    .state_bytes = sizeof(struct ls_strategy),
    .traits = {.divisor = LS_DIVISOR_GLOBAL, .equality = LS_EQUAL_EVERY_STEP},
    .open = made_open,
    .close = made_close,
    .initialize_parameters = made_place,
    .gradient_ready = made_ready,
    .end_step = made_end,
    .find_traits = made_traits,
    .report_metrics = made_report};
static const struct ls_plugin made_plugin = {LS_PLUGIN_HEADER(LS_KIND_STRATEGY), .name = "made",
                                             .interface = &made};

static void make(void)
{
    on_open = NULL;
    on_end = NULL;
    on_close = NULL;
    divisor = LS_DIVISOR_GLOBAL;
    made.needs_transport = 0;
    made.traits.capturable = 0;
}

static int32_t look_at_memory(const struct ls_strategy_host *host, uint32_t replica)
{
    float values[4] = {1, 2, 3, 4}, back[4] = {0};
    uint64_t first, count, end = 0;
    for (uint32_t i = 0; i < host->bucket_count; i++) {
        host->layout->bucket_range(host, i, &first, &count);
        ck_assert_uint_eq(first, end);
        end = first + count;
    }
    ck_assert_uint_eq(end, host->flat_count);
    ck_assert_uint_eq(host->variable_count, graph->parameter_count);
    end = 0;
    for (uint32_t i = 0; i < host->variable_count; i++) {
        host->layout->variable_range(host, i, &first, &count);
        ck_assert_uint_ge(first, end);
        end = first + count;
    }
    ck_assert_uint_le(end, host->flat_count);
    for (uint32_t memory = LS_REPLICA_PARAMETERS; memory <= LS_REPLICA_GRADIENTS; memory++) {
        ck_assert_int_eq(
            host->memory->write(host, replica, memory, host->flat_count - 4, 4, values), LS_OK);
        ck_assert_int_eq(host->memory->read(host, replica, memory, host->flat_count - 4, 4, back),
                         LS_OK);
        ck_assert_mem_eq(values, back, sizeof(values));
        const float *mapped = host->memory->map(host, replica, memory);
        if (mapped)
            ck_assert_mem_eq(mapped + host->flat_count - 4, values, sizeof(values));
    }
    ck_assert_ptr_null(host->memory->map(host, replica, 3));
    ck_assert_uint_eq(errors, 0);
    ck_assert_int_eq(host->memory->read(host, replica, 1, host->flat_count - 3, 4, back),
                     LS_FAILED);
    ck_assert_int_eq(host->memory->write(host, replica, 2, UINT64_MAX, 2, back), LS_FAILED);
    ck_assert_int_eq(host->memory->read(host, replica, 3, 0, 1, back), LS_FAILED);
    ck_assert_uint_eq(errors, 3);
    for (uint32_t memory = LS_REPLICA_SUMS_AND_GRADIENTS; memory <= LS_REPLICA_ROOM_AND_PARAMETERS;
         memory++) {
        const struct ls_strategy_range_operation operation = {.struct_size = sizeof(operation),
                                                              .op = LS_OP_ACTIVATION,
                                                              .memory = memory,
                                                              .first = 16,
                                                              .count = 16};
        ck_assert_int_eq(host->memory->read(host, replica, memory, 0, 1, back), LS_FAILED);
        ck_assert_ptr_nonnull(strstr(message, "read of memory"));
        ck_assert_int_eq(host->memory->write(host, replica, memory, 0, 1, back), LS_FAILED);
        ck_assert_ptr_nonnull(strstr(message, "write of memory"));
        ck_assert_int_eq(host->memory->run(host, replica, &operation), LS_FAILED);
        ck_assert_ptr_nonnull(strstr(message, "run of memory"));
        ck_assert_ptr_nonnull(strstr(message, "for collectives->prepare alone"));
    }
    ck_assert_uint_eq(errors, 9);
    uint64_t number;
    double rate;
    host->step->current(host, replica, &number, &rate);
    ck_assert_uint_eq(number, 1);
    ck_assert_double_eq(rate, 0.1);
    float sums[LS_STRATEGY_SUMS];
    ck_assert_int_eq(host->step->read_sums(host, replica, sums), LS_OK);
    ck_assert_float_eq(sums[LS_SUMS_EXAMPLES], 6);
    return host->step->check_step_on(host, replica, sums);
}

#define RANGE 32 // floats that an operation runs on, from the 16th on

// An operation of the device on a range leaves what is around it alone.
static int32_t run_on_a_range(const struct ls_strategy_host *host, uint32_t replica)
{
    struct ls_strategy_range_operation rectify = {.struct_size = sizeof(rectify),
                                                  .op = LS_OP_ACTIVATION,
                                                  .attributes = {.activation = LS_RELU},
                                                  .memory = LS_REPLICA_GRADIENTS,
                                                  .first = 16,
                                                  .count = RANGE};
    float values[RANGE + 32];
    for (int i = 0; i < RANGE + 32; i++)
        values[i] = i % 2 ? 1.0f : -1.0f;
    ck_assert_int_eq(
        host->memory->write(host, replica, LS_REPLICA_GRADIENTS, 0, RANGE + 32, values), LS_OK);
    for (int turn = 0; turn < 2; turn++) // the second time with the same kernel
        ck_assert_int_eq(host->memory->run(host, replica, &rectify), LS_OK);
    ck_assert_int_eq(host->memory->read(host, replica, LS_REPLICA_GRADIENTS, 0, RANGE + 32, values),
                     LS_OK);
    for (int i = 0; i < RANGE + 32; i++)
        ck_assert_float_eq(values[i], i % 2 ? 1.0f : i < 16 || i >= RANGE + 16 ? -1.0f : 0.0f);
    rectify.op = LS_OP_CONV2D;
    ck_assert_int_ne(host->memory->run(host, replica, &rectify), LS_OK);
    rectify.op = LS_OP_ACTIVATION;
    rectify.first = 3;
    ck_assert_int_eq(host->memory->run(host, replica, &rectify), LS_FAILED);
    ck_assert_ptr_nonnull(strstr(message, "no multiple of 16"));
    rectify.first = host->flat_count;
    ck_assert_int_eq(host->memory->run(host, replica, &rectify), LS_FAILED);
    return LS_ABORTED;
}

static int32_t map_what_is_longer(const struct ls_strategy_host *host, uint32_t replica)
{
    ck_assert_ptr_null(host->memory->map(host, replica, LS_REPLICA_ROOM_AND_PARAMETERS));
    ck_assert_ptr_nonnull(strstr(message, "map of memory 5"));
    ck_assert_ptr_null(host->memory->map(host, replica, LS_REPLICA_SUMS_AND_GRADIENTS));
    ck_assert_ptr_nonnull(strstr(message, "map of memory 4"));
    return LS_ABORTED;
}

LOOP_TEST(who_maps_what_is_longer_ends_the_run, 0, 2)
{
    struct job job;
    make();
    on_end = map_what_is_longer;
    ck_assert_int_eq(open_job(&job, 1, _i, &made_plugin, LONG_NS), LS_OK);
    ck_assert_int_eq(run_step(&job), LS_FAILED);
    finish(&job);
}

static int32_t prepare_a_range(const struct ls_strategy_host *host, uint32_t replica)
{
    const struct ls_strategy_operation operation = {.struct_size = sizeof(operation),
                                                    .operation = LS_ALL_GATHER,
                                                    .memory = LS_REPLICA_PARAMETERS,
                                                    .first = 0,
                                                    .count = 16};
    struct ls_strategy_collective *collective = NULL;
    const int32_t status = host->collectives->prepare(host, replica, &operation, &collective);
    ck_assert_ptr_null(collective);
    return status;
}

// What a step of it sends would be counted only until the step is replayed.
TEST(a_capturable_strategy_has_no_ranges)
{
    struct job job;
    make();
    on_end = prepare_a_range;
    made.traits.capturable = 1;
    ck_assert_int_eq(open_job(&job, 1, false, &made_plugin, LONG_NS), LS_OK);
    ck_assert_int_eq(run_step(&job), LS_FAILED);
    ck_assert_msg(strstr(message, "it is capturable, which one on ranges is not") != NULL, "%s",
                  message);
    finish(&job);
}

LOOP_TEST(an_operation_of_the_device_runs_on_a_range, 0, 2)
{
    struct job job;
    make();
    on_end = run_on_a_range;
    ck_assert_int_eq(open_job(&job, 1, _i, &made_plugin, LONG_NS), LS_OK);
    ck_assert_int_eq(run_step(&job), LS_ABORTED);
    finish(&job);
}

LOOP_TEST(memory_is_read_and_written_within_its_bounds, 0, 2)
{
    struct job job;
    make();
    on_end = look_at_memory;
    ck_assert_int_eq(open_job(&job, 1, _i, &made_plugin, LONG_NS), LS_OK);
    ck_assert_int_eq(run_step(&job), LS_OK);
    ck_assert_float_eq(job.results[0].sums[2], 6);
    ck_assert_int_eq(ls_device_in_host_memory(ls_replica_device(job.replicas[0])), !_i);
    finish(&job);
}

static int32_t meet_all_but_one(const struct ls_strategy_host *host, uint32_t replica)
{
    return replica == 1 ? LS_OK : host->threads->barrier(host, replica);
}

TEST(who_does_not_come_to_a_barrier_is_named)
{
    struct job job;
    make();
    on_end = meet_all_but_one;
    ck_assert_int_eq(open_job(&job, 3, false, &made_plugin, SHORT_NS), LS_OK);
    ck_assert_int_eq(run_step(&job), LS_PEER_LOST);
    ck_assert_uint_eq(errors, 1); // by one of the two who waited
    ck_assert_msg(strstr(message, "for replica 1,") != NULL, "%s", message);
    finish(&job);
}

static int32_t meet_or_fail(const struct ls_strategy_host *host, uint32_t replica)
{
    return replica == 1 ? LS_UNAVAILABLE : host->threads->barrier(host, replica);
}

TEST(a_failure_ends_a_barrier)
{
    struct job job;
    make();
    on_end = meet_or_fail;
    ck_assert_int_eq(open_job(&job, 3, false, &made_plugin, LONG_NS), LS_OK);
    ck_assert_int_eq(run_step(&job), LS_UNAVAILABLE);
    ck_assert_int_eq(job.status[0], LS_ABORTED);
    ck_assert_int_eq(job.status[2], LS_ABORTED);
    ck_assert_int_eq(run_step(&job), LS_ABORTED); // and so does what comes later
    finish(&job);
}

static struct ls_strategy_thread *thread;
static atomic_bool go;

static int32_t fail_later(void *context)
{
    (void)context;
    const struct timespec pause = {.tv_nsec = 1000000};
    while (!atomic_load(&go))
        nanosleep(&pause, NULL);
    return LS_BAD_INPUT;
}

static int32_t start_thread(const struct ls_strategy_host *host)
{
    return host->threads->start(host, "a server with a long name", fail_later, NULL, &thread);
}

static void join_thread(const struct ls_strategy_host *host)
{
    ck_assert_int_eq(host->threads->join(host, thread), LS_BAD_INPUT);
}

static int32_t meet_while_it_fails(const struct ls_strategy_host *host, uint32_t replica)
{
    if (replica == 1) {
        atomic_store(&go, true);
        return host->threads->barrier(host, 1) ? LS_ABORTED : LS_OK;
    }
    const struct timespec pause = {.tv_nsec = 1000000};
    while (!ls_driver_aborted(host->context)) // no call of the host
        nanosleep(&pause, NULL);
    return host->threads->barrier(host, 0);
}

TEST(a_thread_that_fails_ends_the_run_with_its_status)
{
    struct job job;
    make();
    atomic_store(&go, false);
    on_open = start_thread;
    on_end = meet_while_it_fails;
    on_close = join_thread;
    ck_assert_int_eq(open_job(&job, 2, false, &made_plugin, LONG_NS), LS_OK);
    ck_assert_int_eq(run_step(&job), LS_BAD_INPUT);
    finish(&job);
}

static struct ls_transport *endpoints[MOST];

static int32_t open_endpoints(const struct ls_strategy_host *host)
{
    return host->endpoints->open(host, 2, endpoints);
}

static int32_t use_endpoints(const struct ls_strategy_host *host, uint32_t replica)
{
    ck_assert_int_eq(host->transport->peer_state(endpoints[0], 3), LS_OK);
    host->endpoints->close(host, 3);
    ck_assert_int_eq(host->transport->peer_state(endpoints[0], 3), LS_PEER_LOST);
    ck_assert_int_eq(host->transport->peer_state(endpoints[0], 2), LS_OK);
    ck_assert_int_eq(host->endpoints->open(host, 1, endpoints), LS_FAILED);
    ck_assert_ptr_nonnull(strstr(message, "twice"));
    ls_driver_abort(host->context);
    ck_assert_int_eq(host->transport->peer_state(endpoints[1], 2), LS_ABORTED);
    return host->threads->barrier(host, replica);
}

TEST(endpoints_are_those_of_ranks_and_servers)
{
    struct job job;
    make();
    on_open = open_endpoints;
    ck_assert_int_eq(open_job(&job, 1, false, &made_plugin, LONG_NS), LS_FAILED);
    ck_assert_ptr_nonnull(strstr(message, "needs_transport"));
    finish(&job);
    made.needs_transport = 1;
    on_end = use_endpoints;
    ck_assert_int_eq(open_job(&job, 2, false, &made_plugin, LONG_NS), LS_OK);
    job.step = 1;
    // One replica alone, so that nobody else looks at the endpoints.
    ck_assert_int_eq(step(&job, 0), LS_ABORTED);
    finish(&job);
}

// A transport whose endpoints are only closed once the run was aborted.
static struct ls_transport_interface slow_transport;
static const struct ls_transport_interface *fast_transport;
static atomic_int closing, was_aborted, closed_before_abort;
static uint64_t told_deadline_ns;

static int32_t slow_open(const struct ls_host *host, const struct ls_transport_config *config,
                         struct ls_transport *const *out)
{
    told_deadline_ns = config->deadline_ns;
    return fast_transport->open(host, config, out);
}

static void slow_close(struct ls_transport *transport)
{
    atomic_store(&closing, 1);
    for (int i = 0; i < 5000 && !atomic_load(&was_aborted); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    if (!atomic_load(&was_aborted))
        atomic_store(&closed_before_abort, 1);
    fast_transport->close(transport);
}

static void slow_abort(struct ls_transport *transport)
{
    atomic_store(&was_aborted, 1);
    fast_transport->abort(transport);
}

// Replica 0 closes an endpoint, which takes long; replica 1 fails meanwhile.
static int32_t close_slowly(const struct ls_strategy_host *host, uint32_t replica)
{
    if (replica == 1) {
        while (!atomic_load(&closing))
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        return LS_BAD_INPUT;
    }
    host->endpoints->close(host, 3);
    return LS_ABORTED;
}

TEST(an_abort_does_not_wait_for_an_endpoint_that_is_being_closed)
{
    struct job job;
    struct ls_plugin transport = *opened("transport-local");
    make();
    made.needs_transport = 1;
    on_open = open_endpoints;
    on_end = close_slowly;
    ck_assert_int_eq(open_job(&job, 2, false, &made_plugin, UINT64_C(3000000000)), LS_OK);
    ls_driver_close(job.driver);
    fast_transport = transport.interface;
    slow_transport = *fast_transport;
    slow_transport.open = slow_open;
    slow_transport.close = slow_close;
    slow_transport.abort = slow_abort;
    job.options.transport.interface = &slow_transport;
    ck_assert_int_eq(
        test_driver_open(job.options, job.replicas, job.world, &job.cluster, &job.driver), LS_OK);
    ck_assert_uint_eq(told_deadline_ns, UINT64_C(3000000000));
    ck_assert_int_eq(run_step(&job), LS_BAD_INPUT);
    ck_assert(!atomic_load(&closed_before_abort));
    finish(&job);
}

TEST(facts_are_taken_when_asked_for)
{
    struct job job;
    make();
    ck_assert_int_eq(open_job(&job, 1, false, &made_plugin, LONG_NS), LS_OK);
    for (int i = 0; i < 2; i++) { // not twice as many the second time
        size_t count;
        errors = 0;
        const struct ls_driver_metric *facts = ls_driver_describe(job.driver, &count);
        ck_assert_uint_eq(count, 2);
        ck_assert_str_eq(facts[0].name, "made.list");
        ck_assert(facts[0].list && !facts[1].list);
        ck_assert_double_eq(facts[0].values[1], 2.5);
        ck_assert_uint_eq(errors, 1);
        ck_assert_ptr_nonnull(strstr(message, "made.wrong"));
    }
    made_report(&only);
    ck_assert_ptr_nonnull(strstr(message, "outside of report_metrics"));
    finish(&job);
}

TEST(traits_of_the_instance_count)
{
    struct job job;
    make();
    ck_assert_int_eq(open_job(&job, 1, false, &made_plugin, LONG_NS), LS_OK);
    ck_assert(!ls_driver_asynchronous(job.driver));
    finish(&job);
    divisor = LS_DIVISOR_OWN;
    ck_assert_int_eq(open_job(&job, 1, false, &made_plugin, LONG_NS), LS_OK);
    ck_assert(ls_driver_asynchronous(job.driver));
    finish(&job);
    divisor = 7;
    ck_assert_int_eq(open_job(&job, 1, false, &made_plugin, LONG_NS), LS_FAILED);
    ck_assert_ptr_nonnull(strstr(message, "unknown traits"));
    job.driver = NULL;
    finish(&job);
}

TEST_FIXTURE(set_up, close_graph);

int main(void)
{
    if (!test_plugin_open("device-reference") || !test_plugin_open("strategy-central-storage") ||
        !test_plugin_open("transport-local"))
        return TEST_SKIPPED;
    return test_suite_run("core/strategy/host");
}
