// SPDX-License-Identifier: Apache-2.0
// Strategy sharded on its contract: ranks keep the optimizer's state of their part of each bucket, and have the parameters and
// losses of mirrored.
#include "core/strategy/driver.h"
#include "tests/core/strategy/job.h"

#include "core/base/log.h"
#include "tests/support/suite.h"

#include <math.h>
#include <string.h>

#define MOST 4
#define STEPS 6
#define MOST_BUCKETS 64
#define DEADLINE_NS UINT64_C(20000000000)
static const uint64_t sizes[] = {6, 3, 2, 1, 0};
static struct ls_optimizer adam;
static bool late;
static char stage[2] = "1";
static uint32_t blocks = 1; // of a share
static uint32_t wire; // of jobs that are started; 0: float32

static const char *option(const struct ls_host *host, const char *name)
{
    if (strcmp(name, "late") == 0)
        return late ? "on" : "off";
    if (strcmp(name, "stage") == 0)
        return stage;
    return test_host_option(host, name);
}

static struct ls_driver_plugin plugin_for(const char *name, struct test_host *host)
{
    const struct ls_driver_plugin opened = test_driver_plugin(name, host);
    host->host.option = option;
    return opened;
}

static enum ls_status evaluate(void *context, uint32_t replica)
{
    struct job *job = context;
    double *sums = job->evaluated[replica];
    memset(sums, 0, sizeof(job->evaluated[replica]));
    const enum ls_status status =
        ls_driver_evaluate(job->driver, replica, &job->batches[replica], sums);
    return status ? status : ls_replica_evaluate_end(job->replicas[replica], sums);
}

static struct ls_replica_options options_of(uint32_t rank)
{
    struct ls_replica_options options = test_options(device, graph, &adam, sizes);
    options.rank = rank;
    options.first_bucket_bytes = 64;
    options.bucket_bytes = 256;
    return options;
}

// The values that test_set_parameters gives, from a replica that has all.
static void set_parts(struct ls_replica *replica)
{
    const struct ls_replica_options options = options_of(0);
    struct ls_replica *all = test_replica(&options, sizes, 1);
    for (uint32_t i = 0; i < ls_replica_buckets(all)->all; i++) {
        const struct ls_held_range held = ls_replica_held(replica, LS_HELD_PARAMETERS, i);
        const float *values = ls_address(ls_replica_memory(all, LS_BUFFER_PARAMETERS));
        memcpy(ls_address(ls_replica_held_memory(replica, LS_BUFFER_PARAMETERS, i)),
               values + held.first, held.count * sizeof(float));
    }
    ls_replica_destroy(all);
}

// The replica gets the memory that the strategy says.
static void allocate(struct job *job, uint32_t index)
{
    struct ls_replica *replica = job->replicas[index];
    struct ls_held_range ranges[LS_HELD_KINDS][MOST_BUCKETS];
    struct ls_replica_placement placement = {0};
    struct ls_driver_held held;
    bool changed;
    ck_assert_uint_le(ls_replica_buckets(replica)->all, MOST_BUCKETS);
    ck_assert_int_eq(ls_driver_find_held(job->driver, &held), LS_OK);
    for (uint32_t i = 0; i < ls_replica_buckets(replica)->all; i++) {
        struct ls_strategy_placement of;
        ck_assert_int_eq(ls_driver_placement(job->driver, index, i, &of), LS_OK);
        ranges[LS_HELD_PARAMETERS][i] =
            (struct ls_held_range){of.parameters.first, of.parameters.count};
        ranges[LS_HELD_GRADIENTS][i] =
            (struct ls_held_range){of.gradients.first, of.gradients.count};
        ranges[LS_HELD_STATES][i] = (struct ls_held_range){of.states.first, of.states.count};
    }
    for (uint32_t kind = 0; kind < LS_HELD_KINDS; kind++)
        placement.held[kind] = held.spread[kind] ? ranges[kind] : NULL;
    ck_assert_int_eq(ls_replica_allocate(replica, &placement), LS_OK);
    ck_assert_int_eq(test_need(replica, sizes, blocks, &changed), LS_OK);
    if (!held.spread[LS_HELD_PARAMETERS])
        test_set_parameters(replica, graph);
    else
        set_parts(replica);
}

// `shares`: one a replica, some of them 0.
static void start_shares(struct job *job, uint32_t world, const char *strategy,
                         const uint64_t *shares)
{
    uint64_t all = 0, first = 0;
    struct ls_driver_part parts[MOST];
    memset(job, 0, sizeof(*job));
    job->world = world;
    for (uint32_t i = 0; i < world; i++)
        all += shares[i];
    for (uint32_t i = 0; i < world; i++) {
        const struct ls_replica_options options = options_of(i);
        ck_assert_int_eq(ls_replica_open(&options, &job->replicas[i]), LS_OK);
        parts[i] = ls_driver_part_of(job->replicas[i]);
        job->batches[i] = test_batch(graph, first, shares[i], all);
        first += shares[i];
    }
    ck_assert_int_eq(ls_cluster_open_alone(world, &job->cluster), LS_OK);
    const struct ls_driver_options options = {
        .strategy = plugin_for(strategy, &strategy_host),
        .collective = plugin_for("collective-ring", &collective_host),
        .transport = plugin_for("transport-local", &transport_host),
        .optimizer = &adam,
        .wire = wire,
        .deadline_ns = DEADLINE_NS,
        .cluster = job->cluster,
        .parts = parts,
    };
    ck_assert_int_eq(ls_group_create(0, world, wake, job, &job->group), LS_OK);
    ck_assert_int_eq(ls_driver_open(&options, &job->driver), LS_OK);
    for (uint32_t i = 0; i < world; i++)
        allocate(job, i);
    ck_assert_int_eq(ls_driver_attach(job->driver, job->replicas), LS_OK);
    ck_assert_int_eq(ls_group_run(job->group, place, job), LS_OK);
}

static void start(struct job *job, uint32_t world, const char *strategy)
{
    const uint64_t each = 6 / world, shares[MOST] = {each, each, each, each};
    start_shares(job, world, strategy, shares);
}

// The parts of all ranks are every float of a bucket once.
static void expect_shards(const struct job *job)
{
    for (uint32_t bucket = 0; bucket < ls_replica_buckets(job->replicas[0])->count; bucket++) {
        const struct ls_bucket *range = &ls_replica_buckets(job->replicas[0])->list[bucket];
        const uint64_t all = range->bytes / sizeof(float);
        uint64_t next = range->offset / sizeof(float);
        for (uint32_t i = 0; i < job->world; i++) {
            struct ls_strategy_placement placement;
            ck_assert_int_eq(ls_driver_placement(job->driver, i, bucket, &placement), LS_OK);
            ck_assert_uint_eq(placement.states.first, next);
            ck_assert_uint_eq(placement.gradients.count,
                              stage[0] > '1' ? placement.states.count : all);
            ck_assert_uint_eq(placement.parameters.count,
                              stage[0] > '2' ? placement.states.count : all);
            next += placement.states.count;
        }
        ck_assert_uint_eq(next, (range->offset + range->bytes) / sizeof(float));
    }
}

// What the replica has of the parameters.
static void expect_parameters(const struct ls_replica *expected, const struct ls_replica *found)
{
    for (uint32_t i = 0; i < ls_replica_buckets(found)->all; i++) {
        const struct ls_held_range held = ls_replica_held(found, LS_HELD_PARAMETERS, i);
        const float *all = ls_address(ls_replica_memory(expected, LS_BUFFER_PARAMETERS));
        ck_assert_mem_eq(all + held.first,
                         ls_address(ls_replica_held_memory(found, LS_BUFFER_PARAMETERS, i)),
                         held.count * sizeof(float));
    }
}

static void expect_same_steps(struct job *mirrored, struct job *sharded)
{
    for (uint64_t i = 1; i <= STEPS; i++) {
        mirrored->step = sharded->step = i;
        ck_assert_int_eq(ls_group_run(mirrored->group, step, mirrored), LS_OK);
        ck_assert_int_eq(ls_group_run(sharded->group, step, sharded), LS_OK);
        for (uint32_t k = 0; k < LS_SUMS; k++)
            ck_assert_float_eq(sharded->results[0].sums[k], mirrored->results[0].sums[k]);
    }
    ck_assert_int_eq(ls_group_run(sharded->group, synchronise, sharded), LS_OK);
    ck_assert_int_eq(ls_group_run(mirrored->group, evaluate, mirrored), LS_OK);
    ck_assert_int_eq(ls_group_run(sharded->group, evaluate, sharded), LS_OK);
    ck_assert_mem_eq(mirrored->evaluated, sharded->evaluated, sizeof(sharded->evaluated));
    for (uint32_t i = 0; i < sharded->world; i++)
        expect_parameters(mirrored->replicas[i], sharded->replicas[i]);
}

static const char *const stages[] = {"1", "2", "3"};
#define STAGES 3

LOOP_TEST(parts_give_what_mirrored_gives, 0, 2 * MOST * STAGES)
{
    const uint32_t world = (uint32_t)_i / 2 % MOST + 1;
    struct job mirrored, sharded;
    late = _i % 2;
    memcpy(stage, stages[_i / 2 / MOST], sizeof(stage));
    start(&mirrored, world, "strategy-mirrored");
    start(&sharded, world, "strategy-sharded");
    ck_assert_uint_gt(ls_replica_buckets(sharded.replicas[0])->count, 2);
    expect_shards(&sharded);
    ck_assert_uint_eq(ls_replica_slot(sharded.replicas[0], LS_HELD_GRADIENTS, 2),
                      stage[0] > '1' && world > 1 ? 0 : LS_NO_SLOT);
    ck_assert_uint_eq(ls_replica_slot(sharded.replicas[0], LS_HELD_PARAMETERS, 2),
                      stage[0] > '2' && world > 1 ? 0 : LS_NO_SLOT);
    expect_same_steps(&mirrored, &sharded);
    // Rank 0 also sends the sums of the step on, to two ranks at most.
    const uint64_t sent = ls_driver_bytes_per_step(mirrored.driver);
    const uint64_t more = (world > 2 ? 2 : world - 1) * LS_STEP_STATS_BYTES;
    if (stage[0] < '3') // which gathers for backward, too
        ck_assert_uint_eq(ls_driver_bytes_per_step(sharded.driver), sent + more);
    else
        ck_assert_uint_le(ls_driver_bytes_per_step(sharded.driver), sent + sent / 2 + more);
    finish(&sharded);
    finish(&mirrored);
}

static struct ls_graph *residual(void)
{
    return harness_residual(LS_RELU);
}

// A kernel that is used before and behind other layers, and a bias of two.
static struct ls_graph *tied_as(bool frozen)
{
    struct ls_graph *of = harness_graph((const int64_t[]){5}, 1);
    struct ls_tensor *first = harness_dense(of, "dense", of->inputs[0], 5);
    struct ls_tensor *x = harness_activation(of, "tanh", first, LS_TANH);
    x = harness_dense(of, "wide", x, 11);
    x = harness_activation(of, "tanh_1", x, LS_TANH);
    x = harness_dense(of, "back", x, 5);
    if (frozen)
        harness_parameter(of, "dense/kernel")->zone = harness_parameter(of, "wide/bias")->zone =
            LS_ZONE_FROZEN;
    x = harness_dense_with(of, "again", x, harness_parameter(of, "dense/kernel"),
                           harness_parameter(of, "back/bias"));
    harness_dense(of, "out", harness_add(of, "add", x, first), 5);
    harness_finish(of, LS_LOSS_SPARSE_CROSS_ENTROPY, true);
    return of;
}

static struct ls_graph *tied(void)
{
    return tied_as(false);
}

// A kernel that does not learn of two layers that do, with their biases.
static struct ls_graph *tied_frozen(void)
{
    return tied_as(true);
}

// Layers beside each other, a variable of several layers, blocks of a share, and a share of nothing.
LOOP_TEST(parts_of_any_graph_and_share, 0, 10 * STAGES)
{
    struct ls_graph *(*const graphs[])(void) = {harness_cnn, harness_mixed, residual, tied,
                                                tied_frozen};
    static const uint64_t shares[][MOST] = {{2, 2, 2}, {3, 0, 3}, {0, 6, 1}};
    const uint64_t *share = shares[(_i + _i / 10) % 3];
    struct job mirrored, sharded;
    late = false;
    blocks = (uint32_t)_i % 2 + 1;
    memcpy(stage, stages[_i / 10], sizeof(stage));
    if (_i % 3) // with layouts of its own, and second ones
        device = test_device("cpu");
    ls_graph_destroy(graph);
    graph = graphs[_i / 2 % 5]();
    start_shares(&mirrored, 3, "strategy-mirrored", share);
    start_shares(&sharded, 3, "strategy-sharded", share);
    expect_same_steps(&mirrored, &sharded);
    finish(&sharded);
    finish(&mirrored);
}

// Reduce-scatters of gradients send halves, all-gathers of parameters do not, and neither does bucket 0 with the sums.
LOOP_TEST(gradients_travel_in_16_bits_under_sharded, 0, 2)
{
    struct job whole, halves;
    uint64_t hashes[3];
    late = false;
    memcpy(stage, stages[_i], sizeof(stage));
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

static void set_up(void)
{
    device = test_device("reference");
    graph = harness_cnn();
    adam = test_optimizer("adam");
}

TEST_FIXTURE(set_up, close_graph);

int main(void)
{
    if (!test_plugin_open("device-reference") || !test_plugin_open("strategy-sharded"))
        return TEST_SKIPPED;
    return test_suite_run("core/strategy/sharded");
}
