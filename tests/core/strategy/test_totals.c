// SPDX-License-Identifier: Apache-2.0
// Totals that replicas add up within a step: synchronized normalization of a batch whose shares are on several replicas, each on a
// thread of its own, is that of the whole batch on one, with the gradients that finite differences say.
#include "core/strategy/internal.h" // the communicators of totals say how many were begun
#include "tests/core/replica/support.h"
#include "tests/core/strategy/open.h"
#include "tests/support/suite.h"

#include <pthread.h>
#include <string.h>

#define MOST_REPLICAS 5
#define MOST_EVENTS 64
#define BATCH 7
#define INPUTS 3
#define OUTPUTS 2
#define DEADLINE_NS UINT64_C(20000000000)

// Sums of float32 in another order.
#define ROUNDING 5e-6

static const uint64_t sizes[] = {7, 4, 3, 2, 1, 0};
static const char *const devices[] = {"reference", "cpu"};
static struct ls_optimizer sgd;

static void set_up(void)
{
    sgd = test_optimizer("sgd");
    harness_capture_messages();
}

static void tear_down(void)
{
}

// ---- A group of replicas, of which each runs a share ----

struct team;
struct member {
    struct team *team;
    uint32_t index;
    struct ls_replica *replica;
    struct ls_replica_batch batch;
    enum ls_status status;
    int events[MOST_EVENTS]; // total i: i; bucket i: -1 - i
    uint32_t event_count;
    uint64_t begun; // totals before this step
    uint32_t totals; // that were noted in it
};

struct team {
    const struct ls_graph *graph;
    struct ls_cluster *cluster;
    struct ls_driver *driver;
    struct member members[MOST_REPLICAS];
    uint32_t count;
};

static void note(struct member *member, int event)
{
    ck_assert_uint_lt(member->event_count, MOST_EVENTS);
    member->events[member->event_count++] = event;
}

static uint64_t begun(const struct member *member)
{
    const struct ls_driver *driver = member->team->driver;
    return driver->total_communicators
               ? ls_communicator_begun(driver->total_communicators[member->index])
               : 0;
}

static void note_totals(struct member *member)
{
    const uint32_t count = ls_replica_plan(member->replica)->total_count; // in each pass
    while (member->totals < begun(member) - member->begun)
        note(member, (int)(member->totals++ % count));
}

// A strategy that notes what is ready, and reduces nothing.
struct ls_strategy {
    struct team *team;
};

static struct team *opening;

static int32_t note_open(const struct ls_strategy_host *host, struct ls_strategy *strategy)
{
    (void)host;
    strategy->team = opening;
    return LS_OK;
}

static int32_t note_bucket(struct ls_strategy *strategy, uint32_t replica, uint32_t bucket)
{
    note_totals(&strategy->team->members[replica]);
    note(&strategy->team->members[replica], -1 - (int)bucket);
    return LS_OK;
}

static int32_t note_end(struct ls_strategy *strategy, uint32_t replica)
{
    (void)strategy, (void)replica;
    return LS_OK;
}

static const struct ls_strategy_interface interface = {
    .struct_size = sizeof(interface),
    .state_bytes = sizeof(struct ls_strategy),
    .traits = {.divisor = LS_DIVISOR_GLOBAL, .equality = LS_EQUAL_EVERY_STEP},
    .open = note_open,
    .gradient_ready = note_bucket,
    .end_step = note_end,
};
static const struct ls_plugin plugin = {LS_PLUGIN_HEADER(LS_KIND_STRATEGY), .name = "notes",
                                        .interface = &interface};

static struct ls_driver_plugin opened(const char *name, struct test_host *host)
{
    const struct ls_plugin *found = test_plugin_open(name);
    ck_assert_ptr_nonnull(found);
    test_host_init(host, found);
    return (struct ls_driver_plugin){found, &host->host, found->interface, NULL};
}

static const char *collective_name = "collective-ring";

static enum ls_status total_plugins(void *context, struct ls_driver_plugin *collective,
                                    struct ls_driver_plugin *transport)
{
    static struct test_host hosts[2];
    (void)context;
    *collective = opened(collective_name, &hosts[0]);
    *transport = opened("transport-local", &hosts[1]);
    return LS_OK;
}

static void open_driver(struct team *team, uint64_t deadline_ns)
{
    static struct test_host host;
    struct ls_replica *replicas[MOST_REPLICAS];
    for (uint32_t i = 0; i < team->count; i++)
        replicas[i] = team->members[i].replica;
    test_host_init(&host, &plugin);
    const struct ls_driver_options options = {.strategy = {&plugin, &host.host, &interface},
                                              .optimizer = &sgd,
                                              .deadline_ns = deadline_ns,
                                              .total_plugins = total_plugins};
    opening = team;
    ck_assert_int_eq(
        test_driver_open(options, replicas, team->count, &team->cluster, &team->driver), LS_OK);
}

static void begin(struct member *member)
{
    member->event_count = member->totals = 0;
    member->begun = begun(member);
}

static void *run_member(void *context)
{
    struct member *member = context;
    struct ls_step_result result;
    begin(member);
    member->status =
        ls_driver_step(member->team->driver, member->index, &member->batch, 1, 0.1, false, &result);
    note_totals(member);
    return NULL;
}

static void *initialize_member(void *context)
{
    struct member *member = context;
    member->status = ls_driver_initialize_parameters(member->team->driver, member->index);
    return NULL;
}

static void run_each(struct team *team, void *(*function)(void *member))
{
    pthread_t threads[MOST_REPLICAS];
    for (uint32_t i = 0; i < team->count; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, function, &team->members[i]), 0);
    for (uint32_t i = 0; i < team->count; i++)
        pthread_join(threads[i], NULL);
}

static void run(struct team *team)
{
    run_each(team, run_member);
}

// `shares` of a batch of BATCH examples.
static void start(struct team *team, const struct test_device *device, const struct ls_graph *graph,
                  const uint64_t *shares, uint32_t count, uint32_t microbatches,
                  uint64_t deadline_ns)
{
    static float examples[BATCH * INPUTS], targets[BATCH * OUTPUTS];
    uint64_t first = 0;
    for (int i = 0; i < BATCH * INPUTS; i++)
        examples[i] = (float)(ls_random_u64(5, (uint64_t)i) >> 40) * 0x1p-23f;
    for (int i = 0; i < BATCH * OUTPUTS; i++)
        targets[i] = (float)(ls_random_u64(6, (uint64_t)i) >> 40) * 0x1p-24f;
    *team = (struct team){.graph = graph, .count = count};
    for (uint32_t i = 0; i < count; i++) {
        struct ls_replica_options options = test_options(device, graph, &sgd, sizes);
        options.rank = i;
        options.first_bucket_bytes = options.bucket_bytes = 1; // one for each parameter
        team->members[i] = (struct member){.team = team,
                                           .index = i,
                                           .replica = test_replica(&options, sizes, microbatches),
                                           .batch = {.count = shares[i],
                                                     .global_count = BATCH,
                                                     .example_offset = first,
                                                     .inputs = {examples + first * INPUTS},
                                                     .labels = {targets + first * OUTPUTS}}};
        first += shares[i];
    }
    ck_assert_uint_eq(first, BATCH);
    open_driver(team, deadline_ns);
    run_each(team, initialize_member);
    for (uint32_t i = 0; i < count; i++)
        ck_assert_int_eq(team->members[i].status, LS_OK);
}

static void stop(struct team *team)
{
    ck_assert(ls_driver_close(team->driver));
    ls_cluster_close(team->cluster);
    for (uint32_t i = 0; i < team->count; i++)
        ls_replica_destroy(team->members[i].replica);
}

// What a strategy makes of it: the sums of statistics and gradients over the replicas; freed by the caller.
static double *reduce(const struct team *team, size_t *count)
{
    double *sums = NULL;
    for (uint32_t i = 0; i < team->count; i++) {
        ck_assert_int_eq(team->members[i].status, LS_OK);
        float *own = test_read_reduced(team->members[i].replica, count);
        if (!sums)
            sums = calloc(*count, sizeof(*sums));
        for (size_t k = 0; k < *count; k++)
            sums[k] += (double)own[k];
        free(own);
    }
    return sums;
}

static const struct {
    uint64_t shares[MOST_REPLICAS];
    uint32_t count;
} teams[] = {{{7}, 1}, {{4, 3}, 2}, {{2, 2, 2, 1}, 4}, {{2, 2, 1, 1, 1}, 5}, {{4, 0, 3, 0, 0}, 5}};

#define TEAMS (sizeof(teams) / sizeof(teams[0]))

// ---- Tests ----

static void check_team(const struct test_device *device, const struct ls_graph *synchronized,
                       const double *expected, size_t expected_count, size_t which)
{
    struct team team;
    size_t count;
    start(&team, device, synchronized, teams[which].shares, teams[which].count, 1, DEADLINE_NS);
    run(&team);
    double *found = reduce(&team, &count), largest = 0;
    ck_assert_uint_eq(count, expected_count);
    for (size_t k = 0; k < count; k++)
        largest = fmax(largest, fabs(expected[k]));
    for (size_t k = 0; k < count; k++)
        ck_assert_double_eq_tol(found[k], expected[k], ROUNDING * largest);
    free(found);
    stop(&team);
}

// Loss, gradients and contributions to moving statistics; `uses` of one layer, each with statistics of its own.
LOOP_TEST(shares_of_several_replicas_add_up_to_the_batch_on_one, 0, 4)
{
    const struct test_device *device = test_device(devices[_i % 2]);
    const struct harness_moving kind = {.momentum = 0.75, .uses = 1 + (uint32_t)_i / 2};
    struct harness_moving all = kind;
    all.synchronized = true;
    struct ls_graph *own = harness_moving(&kind), *synchronized = harness_moving(&all);
    const uint64_t whole[] = {BATCH};
    struct team one;
    size_t count;
    start(&one, device, own, whole, 1, 1, DEADLINE_NS);
    run(&one);
    double *expected = reduce(&one, &count);
    for (size_t i = 0; i < TEAMS; i++)
        check_team(device, synchronized, expected, count, i);
    free(expected);
    stop(&one);
    ls_graph_destroy(own);
    ls_graph_destroy(synchronized);
}

// The loss of the batch, with element `element` of parameter `index` at `value` on all replicas.
static double loss_with(struct team *team, uint32_t index, size_t element, float value)
{
    float values[64];
    size_t count;
    for (uint32_t i = 0; i < team->count; i++) {
        struct ls_replica *replica = team->members[i].replica;
        ck_assert_int_eq(ls_replica_get_buffer(replica, LS_BUFFER_PARAMETERS, index, values),
                         LS_OK);
        values[element] = value;
        ck_assert_int_eq(ls_replica_set_buffer(replica, LS_BUFFER_PARAMETERS, index, values),
                         LS_OK);
        ck_assert_int_eq(ls_replica_refresh(replica), LS_OK);
    }
    run(team);
    double *sums = reduce(team, &count);
    const double loss = sums[0] / BATCH;
    free(sums);
    return loss;
}

static void check_gradient(struct team *team, uint32_t index)
{
    const double step = 0.004, tolerance = 5e-4;
    const struct ls_tensor *parameter = team->graph->parameters[index];
    const size_t count = (size_t)ls_shape_elements(&parameter->shape, 1);
    double gradient[64] = {0};
    float values[64];
    ck_assert_uint_le(count, 64);
    run(team);
    for (uint32_t i = 0; i < team->count; i++) {
        ck_assert_int_eq(
            ls_replica_get_buffer(team->members[i].replica, LS_BUFFER_GRADIENTS, index, values),
            LS_OK);
        for (size_t k = 0; k < count; k++)
            gradient[k] += (double)values[k];
    }
    ck_assert_int_eq(
        ls_replica_get_buffer(team->members[0].replica, LS_BUFFER_PARAMETERS, index, values),
        LS_OK);
    for (size_t k = 0; k < count; k++) {
        const float at = values[k];
        const double up = loss_with(team, index, k, at + (float)step);
        const double down = loss_with(team, index, k, at - (float)step);
        loss_with(team, index, k, at);
        ck_assert_msg(fabs((up - down) / (2 * step) - gradient[k]) < tolerance,
                      "%s, element %zu: gradient %g, difference %g", parameter->name, k,
                      gradient[k], (up - down) / (2 * step));
    }
}

// Over uneven and empty shares, so through the statistics of what other replicas have.
TEST(gradients_are_differences_of_the_loss_of_the_batch)
{
    struct ls_graph *graph =
        harness_moving(&(struct harness_moving){.momentum = 0.75, .synchronized = true, .uses = 2});
    struct team team;
    uint32_t checked = 0;
    start(&team, test_device("reference"), graph, (const uint64_t[]){4, 0, 3}, 3, 1, DEADLINE_NS);
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        if (graph->parameters[i]->zone == LS_ZONE_TRAINED) {
            check_gradient(&team, i);
            checked++;
        }
    ck_assert_uint_eq(checked, 6);
    stop(&team);
    ls_graph_destroy(graph);
}

// So that libraries that want one order of all operations on all ranks get it.
LOOP_TEST(totals_and_buckets_come_in_one_order_on_all_replicas_also_on_empty_ones, 0, 2)
{
    const uint32_t microbatches = 1 + (uint32_t)_i;
    struct ls_graph *graph =
        harness_moving(&(struct harness_moving){.momentum = 0.75, .synchronized = true, .uses = 2});
    struct team team;
    start(&team, test_device("cpu"), graph, (const uint64_t[]){3, 3, 0, 1}, 4, microbatches,
          DEADLINE_NS);
    run(&team);
    const struct member *first = &team.members[0];
    const uint32_t totals = ls_replica_plan(first->replica)->total_count;
    const uint32_t buckets = ls_replica_buckets(first->replica)->count;
    ck_assert_uint_eq(totals, 4); // forward and backward of two uses
    ck_assert_uint_ge(buckets, 7);
    ck_assert_uint_eq(first->event_count, microbatches * totals + buckets);
    int next_total = 0, next_bucket = 0, mixed = 0;
    for (uint32_t i = 0; i < first->event_count; i++) {
        if (first->events[i] >= 0)
            ck_assert_int_eq(first->events[i], next_total++ % (int)totals);
        else
            ck_assert_int_eq(-1 - first->events[i], next_bucket++);
        mixed += next_bucket > 0 && first->events[i] >= 0;
    }
    ck_assert_int_gt(mixed, 0); // some total came behind a bucket
    for (uint32_t i = 1; i < team.count; i++) {
        ck_assert_uint_eq(team.members[i].event_count, first->event_count);
        ck_assert_mem_eq(team.members[i].events, first->events,
                         first->event_count * sizeof(first->events[0]));
    }
    stop(&team);
    ls_graph_destroy(graph);
}

#define SUMMED 5 // elements that are looked at, of each total

static void *add_total(void *context)
{
    // ((1e16 - 1e16) + 1) + 2^-53 is 1; where 1 comes before one of the large ones, it is lost.
    static const double addends[] = {1e16, -1e16, 1, 0x1p-53};
    struct member *member = context;
    double *values = ls_address(ls_replica_memory(member->replica, LS_BUFFER_TOTALS));
    for (int i = 0; i < SUMMED; i++)
        values[i] = addends[member->index];
    member->status = ls_driver_add_total(&member->team->driver->members[member->index], 0);
    return NULL;
}

// With logical shards, of which each replica has one, under whatever collective.
LOOP_TEST(totals_of_shards_are_added_in_the_order_of_ranks, 0, 4)
{
    static const char *const names[] = {"collective-ring", "collective-tree", "collective-direct",
                                        "collective-halving-doubling"};
    struct ls_graph *graph =
        harness_moving(&(struct harness_moving){.momentum = 0.75, .synchronized = true});
    struct team team;
    uint32_t others = 0;
    collective_name = names[_i];
    start(&team, test_device("cpu"), graph, (const uint64_t[]){2, 2, 2, 1}, 4, 1, DEADLINE_NS);
    collective_name = names[0];
    struct ls_driver *driver = team.driver;
    struct ls_driver_part parts[4];
    for (uint32_t i = 0; i < 4; i++)
        parts[i] = ls_driver_part_of(team.members[i].replica);
    driver->options.parts = parts;
    ck_assert_uint_eq(driver->plan->totals[0].offset, 0);
    ck_assert_uint_ge(driver->plan->totals[0].count, SUMMED);
    for (int shards = 0; shards <= 4; shards += 4) {
        driver->options.shards = (uint32_t)shards;
        ls_driver_close_totals(driver);
        ck_assert_int_eq(ls_driver_open_totals(driver), LS_OK);
        ck_assert_int_eq(ls_driver_attach_totals(driver), LS_OK);
        run_each(&team, add_total);
        for (uint32_t i = 0; i < team.count; i++) {
            const struct member *member = &team.members[i];
            const double *sums = ls_address(ls_replica_memory(member->replica, LS_BUFFER_TOTALS));
            ck_assert_int_eq(member->status, LS_OK);
            for (int k = 0; k < SUMMED; k++) {
                others += sums[k] != 1;
                ck_assert(!shards || sums[k] == 1);
            }
        }
    }
    ck_assert(_i != 0 || others > 0); // ring begins each chunk at another rank
    driver->options.shards = 0;
    driver->options.parts = NULL;
    stop(&team);
    ls_graph_destroy(graph);
}

static void *run_forward(void *context)
{
    struct member *member = context;
    member->status = ls_driver_forward(member->team->driver, member->index, &member->batch, 1, 0.1);
    return NULL;
}

// The other replica does not come to a total: to that of the forward pass, or of the backward one.
LOOP_TEST(a_total_that_fails_ends_the_step, 0, 2)
{
    struct ls_graph *graph =
        harness_moving(&(struct harness_moving){.momentum = 0.75, .synchronized = true});
    struct team team;
    start(&team, test_device("reference"), graph, (const uint64_t[]){7, 0}, 2, 1,
          UINT64_C(1000000000));
    struct member *member = &team.members[0];
    if (_i == 0) {
        run_member(member);
    } else {
        begin(member);
        run_each(&team, run_forward);
        ck_assert_int_eq(member->status, LS_OK);
        member->status = ls_driver_backward(team.driver, 0);
        note_totals(member);
    }
    ck_assert_int_eq(member->status, LS_PEER_LOST);
    ck_assert_int_eq(member->events[member->event_count - 1], _i);
    stop(&team);
    ls_graph_destroy(graph);
}

TEST_FIXTURE(set_up, tear_down);
