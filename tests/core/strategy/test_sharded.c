// SPDX-License-Identifier: Apache-2.0
// Strategy sharded on its contract: ranks keep the optimizer's state of their part of each bucket, and have the parameters and
// losses of mirrored.
#include "core/replica/group.h"
#include "tests/core/replica/support.h"
#include "tests/core/strategy/open.h"

#include "core/base/log.h"
#include "tests/support/suite.h"

#include <math.h>
#include <string.h>

#define MOST 4
#define STEPS 6
#define DEADLINE_NS UINT64_C(20000000000)
static const uint64_t sizes[] = {6, 3, 2, 1, 0};
static struct test_device *device;
static struct ls_graph *graph;
static struct ls_optimizer adam;
static struct test_host strategy_host, collective_host, transport_host;
static bool late;
static uint32_t wire; // of jobs that are started; 0: float32

struct job {
    struct ls_cluster *cluster;
    struct ls_driver *driver;
    struct ls_group *group;
    struct ls_replica *replicas[MOST];
    struct ls_replica_batch batches[MOST];
    uint32_t world;
    uint64_t step;
    struct ls_step_result results[MOST];
};

static const char *option(const struct ls_host *host, const char *name)
{
    if (strcmp(name, "late") == 0)
        return late ? "on" : "off";
    if (strcmp(name, "stage") == 0)
        return "1";
    return test_host_option(host, name);
}

static struct ls_driver_plugin plugin_for(const char *name, struct test_host *host)
{
    const struct ls_plugin *plugin = test_plugin_open(name);
    ck_assert_ptr_nonnull(plugin);
    test_host_init(host, plugin);
    host->host.option = option;
    return (struct ls_driver_plugin){plugin, &host->host, plugin->interface, NULL};
}

static void wake(void *context, enum ls_status status)
{
    (void)status;
    ls_driver_abort(((struct job *)context)->driver);
}

static enum ls_status initialize(void *context, uint32_t replica)
{
    return ls_driver_initialize_parameters(((struct job *)context)->driver, replica);
}

static enum ls_status step(void *context, uint32_t replica)
{
    struct job *job = context;
    return ls_driver_step(job->driver, replica, &job->batches[replica], job->step, 0.1, false,
                          &job->results[replica]);
}

static enum ls_status synchronise(void *context, uint32_t replica)
{
    return ls_driver_synchronise(((struct job *)context)->driver, replica);
}

static void start(struct job *job, uint32_t world, const char *strategy)
{
    memset(job, 0, sizeof(*job));
    job->world = world;
    for (uint32_t i = 0; i < world; i++) {
        struct ls_replica_options options = test_options(device, graph, &adam, sizes);
        options.rank = i;
        options.first_bucket_bytes = 64;
        options.bucket_bytes = 256;
        job->replicas[i] = test_replica(&options, sizes, 1);
        job->batches[i] = test_batch(graph, i * (6 / world), 6 / world, 6 / world * world);
    }
    const struct ls_driver_options options = {
        .strategy = plugin_for(strategy, &strategy_host),
        .collective = plugin_for("collective-ring", &collective_host),
        .transport = plugin_for("transport-local", &transport_host),
        .optimizer = &adam,
        .wire = wire,
        .deadline_ns = DEADLINE_NS,
    };
    ck_assert_int_eq(ls_group_create(0, world, wake, job, &job->group), LS_OK);
    ck_assert_int_eq(test_driver_open(options, job->replicas, world, &job->cluster, &job->driver),
                     LS_OK);
    ck_assert_int_eq(ls_group_run(job->group, initialize, job), LS_OK);
}

static void finish(struct job *job)
{
    ls_group_destroy(job->group);
    ls_driver_close(job->driver);
    ls_cluster_close(job->cluster);
    for (uint32_t i = 0; i < job->world; i++)
        ls_replica_destroy(job->replicas[i]);
}

// The parts of all ranks are every float of a bucket once.
static void expect_shards(const struct job *job)
{
    for (uint32_t bucket = 0; bucket < ls_replica_buckets(job->replicas[0])->count; bucket++) {
        const struct ls_bucket *range = &ls_replica_buckets(job->replicas[0])->list[bucket];
        uint64_t next = range->offset / sizeof(float);
        for (uint32_t i = 0; i < job->world; i++) {
            struct ls_strategy_placement placement;
            ck_assert_int_eq(ls_driver_placement(job->driver, i, bucket, &placement), LS_OK);
            ck_assert_uint_eq(placement.states.first, next);
            ck_assert_uint_eq(placement.parameters.count, range->bytes / sizeof(float));
            next += placement.states.count;
        }
        ck_assert_uint_eq(next, (range->offset + range->bytes) / sizeof(float));
    }
}

START_TEST(sharded_states_give_what_mirrored_gives)
{
    const uint32_t world = (uint32_t)_i / 2 + 1;
    struct job mirrored, sharded;
    late = _i % 2;
    start(&mirrored, world, "strategy-mirrored");
    start(&sharded, world, "strategy-sharded");
    ck_assert_uint_gt(ls_replica_buckets(sharded.replicas[0])->count, 2);
    expect_shards(&sharded);
    const size_t count = ls_replica_plan(mirrored.replicas[0])->flat_bytes / sizeof(float);
    for (uint64_t i = 1; i <= STEPS; i++) {
        mirrored.step = sharded.step = i;
        ck_assert_int_eq(ls_group_run(mirrored.group, step, &mirrored), LS_OK);
        ck_assert_int_eq(ls_group_run(sharded.group, step, &sharded), LS_OK);
        for (uint32_t k = 0; k < LS_SUMS; k++)
            ck_assert_float_eq(sharded.results[0].sums[k], mirrored.results[0].sums[k]);
    }
    ck_assert_int_eq(ls_group_run(sharded.group, synchronise, &sharded), LS_OK);
    // Rank 0 also sends the sums of the step on, to two ranks at most.
    const uint64_t sent = ls_driver_bytes_per_step(mirrored.driver);
    const uint64_t more = (world > 2 ? 2 : world - 1) * LS_STEP_STATS_BYTES;
    ck_assert_uint_eq(ls_driver_bytes_per_step(sharded.driver), sent + more);
    for (uint32_t i = 0; i < world; i++) {
        uint64_t hash, first;
        ck_assert_int_eq(ls_replica_hash(sharded.replicas[i], &hash), LS_OK);
        ck_assert_int_eq(ls_replica_hash(sharded.replicas[0], &first), LS_OK);
        ck_assert_uint_eq(hash, first);
        ck_assert_double_le(
            test_difference(
                ls_address(ls_replica_memory(mirrored.replicas[i], LS_BUFFER_PARAMETERS)),
                ls_address(ls_replica_memory(sharded.replicas[i], LS_BUFFER_PARAMETERS)), count),
            0);
    }
    finish(&sharded);
    finish(&mirrored);
}
END_TEST

// Reduce-scatters of gradients send halves, all-gathers of parameters do not, and neither does bucket 0 with the sums.
START_TEST(gradients_travel_in_16_bits_under_sharded)
{
    struct job whole, halves;
    uint64_t hashes[3];
    late = false;
    wire = 0;
    start(&whole, 3, "strategy-sharded");
    wire = LS_BF16;
    start(&halves, 3, "strategy-sharded");
    wire = 0;
    for (uint64_t i = 1; i <= STEPS; i++) {
        whole.step = halves.step = i;
        ck_assert_int_eq(ls_group_run(whole.group, step, &whole), LS_OK);
        ck_assert_int_eq(ls_group_run(halves.group, step, &halves), LS_OK);
        const double loss = (double)whole.results[0].sums[0];
        if (i == 1)
            ck_assert_double_eq((double)halves.results[0].sums[0], loss);
        ck_assert_double_le(fabs((double)halves.results[0].sums[0] - loss), 0.1 * loss);
    }
    ck_assert_int_eq(ls_replica_hash(whole.replicas[0], &hashes[0]), LS_OK);
    ck_assert_int_eq(ls_replica_hash(halves.replicas[0], &hashes[1]), LS_OK);
    ck_assert_int_eq(ls_replica_hash(halves.replicas[2], &hashes[2]), LS_OK);
    ck_assert_uint_ne(hashes[0], hashes[1]);
    ck_assert_uint_lt(ls_driver_bytes_per_step(halves.driver),
                      ls_driver_bytes_per_step(whole.driver));
    ck_assert_uint_gt(2 * ls_driver_bytes_per_step(halves.driver),
                      ls_driver_bytes_per_step(whole.driver));
    ck_assert_uint_eq(hashes[1], hashes[2]);
    finish(&halves);
    finish(&whole);
}
END_TEST

static void set_up(void)
{
    device = test_device("reference");
    graph = harness_cnn();
    adam = test_optimizer("adam");
}

static void tear_down(void)
{
    ls_graph_destroy(graph);
}

int main(void)
{
    if (!test_plugin_open("device-reference") || !test_plugin_open("strategy-sharded"))
        return TEST_SKIPPED;
    Suite *suite = suite_create("core/strategy/sharded");
    TCase *cases = tcase_create("sharded");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, sharded_states_give_what_mirrored_gives, 0, 2 * MOST);
    tcase_add_test(cases, gradients_travel_in_16_bits_under_sharded);
    suite_add_tcase(suite, cases);
    return test_suite_run(suite);
}
