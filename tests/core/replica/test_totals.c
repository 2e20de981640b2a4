// SPDX-License-Identifier: Apache-2.0
// Totals that replicas add up within a step: synchronized normalization of a batch whose shares are on several replicas, each on a
// thread of its own, is that of the whole batch on one, with the gradients that finite differences say.
#include "tests/core/replica/support.h"
#include "tests/support/suite.h"

#include <pthread.h>
#include <string.h>

#define MOST_REPLICAS 5
#define MOST_EVENTS 64
#define BATCH 7
#define INPUTS 3
#define OUTPUTS 2

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
    struct ls_replica *replica;
    struct ls_replica_batch batch;
    enum ls_status status;
    int events[MOST_EVENTS]; // total i: i; bucket i: -1 - i
    uint32_t event_count;
};

struct team {
    const struct ls_graph *graph;
    struct member members[MOST_REPLICAS];
    uint32_t count;
    pthread_barrier_t barrier;
    uint32_t fails; // this total does, on every replica
};

static struct member *member_of(void *context, const struct ls_replica *replica)
{
    return &((struct team *)context)->members[ls_replica_rank(replica)];
}

static void note(struct member *member, int event)
{
    ck_assert_uint_lt(member->event_count, MOST_EVENTS);
    member->events[member->event_count++] = event;
}

static double *total_of(const struct member *member, uint32_t index, uint64_t *count)
{
    const struct ls_total *total = &ls_replica_plan(member->replica)->totals[index];
    *count = total->count;
    return ls_address(
        ls_memory_at(ls_replica_memory(member->replica, LS_BUFFER_TOTALS), total->offset));
}

static enum ls_status add_up(void *context, struct ls_replica *replica, uint32_t index)
{
    struct team *team = context;
    struct member *member = member_of(context, replica);
    double sums[64] = {0};
    uint64_t count;
    double *mine = total_of(member, index, &count);
    note(member, (int)index);
    if (index == team->fails)
        return LS_PEER_LOST;
    for (uint64_t k = 0; member->batch.count == 0 && k < count; k++)
        ck_assert_double_eq(mine[k], 0);
    pthread_barrier_wait(&team->barrier);
    for (uint32_t i = 0; i < team->count; i++)
        for (uint64_t k = 0; k < count; k++)
            sums[k] += total_of(&team->members[i], index, &count)[k];
    pthread_barrier_wait(&team->barrier);
    memcpy(mine, sums, count * sizeof(*mine));
    return LS_OK;
}

static enum ls_status note_bucket(void *context, struct ls_replica *replica, uint32_t bucket)
{
    note(member_of(context, replica), -1 - (int)bucket);
    return LS_OK;
}

static void *run_member(void *context)
{
    struct member *member = context;
    const struct ls_replica_hooks hooks = {
        .context = member->team, .bucket_ready = note_bucket, .add_up = add_up};
    member->event_count = 0;
    member->status = ls_replica_run(member->replica, &member->batch, 1, 0.1, 0, &hooks);
    return NULL;
}

static void run(struct team *team)
{
    pthread_t threads[MOST_REPLICAS];
    for (uint32_t i = 0; i < team->count; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_member, &team->members[i]), 0);
    for (uint32_t i = 0; i < team->count; i++)
        pthread_join(threads[i], NULL);
}

// `shares` of a batch of BATCH examples.
static void start(struct team *team, const struct test_device *device, const struct ls_graph *graph,
                  const uint64_t *shares, uint32_t count, uint32_t microbatches)
{
    static float examples[BATCH * INPUTS], targets[BATCH * OUTPUTS];
    uint64_t first = 0;
    for (int i = 0; i < BATCH * INPUTS; i++)
        examples[i] = (float)(ls_random_u64(5, (uint64_t)i) >> 40) * 0x1p-23f;
    for (int i = 0; i < BATCH * OUTPUTS; i++)
        targets[i] = (float)(ls_random_u64(6, (uint64_t)i) >> 40) * 0x1p-24f;
    *team = (struct team){.graph = graph, .count = count, .fails = UINT32_MAX};
    ck_assert_int_eq(pthread_barrier_init(&team->barrier, NULL, count), 0);
    for (uint32_t i = 0; i < count; i++) {
        struct ls_replica_options options = test_options(device, graph, &sgd, sizes);
        options.rank = i;
        options.first_bucket_bytes = options.bucket_bytes = 1; // one for each parameter
        team->members[i] = (struct member){.team = team,
                                           .replica = test_replica(&options, sizes, microbatches),
                                           .batch = {.count = shares[i],
                                                     .global_count = BATCH,
                                                     .example_offset = first,
                                                     .inputs = {examples + first * INPUTS},
                                                     .labels = targets + first * OUTPUTS}};
        first += shares[i];
    }
    ck_assert_uint_eq(first, BATCH);
}

static void stop(struct team *team)
{
    for (uint32_t i = 0; i < team->count; i++)
        ls_replica_destroy(team->members[i].replica);
    pthread_barrier_destroy(&team->barrier);
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
    start(&team, device, synchronized, teams[which].shares, teams[which].count, 1);
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
START_TEST(shares_of_several_replicas_add_up_to_the_batch_on_one)
{
    const struct test_device *device = test_device(devices[_i % 2]);
    const struct harness_moving kind = {.momentum = 0.75, .uses = 1 + (uint32_t)_i / 2};
    struct harness_moving all = kind;
    all.synchronized = true;
    struct ls_graph *own = harness_moving(&kind), *synchronized = harness_moving(&all);
    const uint64_t whole[] = {BATCH};
    struct team one;
    size_t count;
    start(&one, device, own, whole, 1, 1);
    run(&one);
    double *expected = reduce(&one, &count);
    for (size_t i = 0; i < TEAMS; i++)
        check_team(device, synchronized, expected, count, i);
    free(expected);
    stop(&one);
    ls_graph_destroy(own);
    ls_graph_destroy(synchronized);
}
END_TEST

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
START_TEST(gradients_are_differences_of_the_loss_of_the_batch)
{
    struct ls_graph *graph =
        harness_moving(&(struct harness_moving){.momentum = 0.75, .synchronized = true, .uses = 2});
    struct team team;
    uint32_t checked = 0;
    start(&team, test_device("reference"), graph, (const uint64_t[]){4, 0, 3}, 3, 1);
    for (uint32_t i = 0; i < graph->parameter_count; i++)
        if (graph->parameters[i]->zone == LS_ZONE_TRAINED) {
            check_gradient(&team, i);
            checked++;
        }
    ck_assert_uint_eq(checked, 6);
    stop(&team);
    ls_graph_destroy(graph);
}
END_TEST

// So that libraries that want one order of all operations on all ranks get it.
START_TEST(totals_and_buckets_come_in_one_order_on_all_replicas_also_on_empty_ones)
{
    const uint32_t microbatches = 1 + (uint32_t)_i;
    struct ls_graph *graph =
        harness_moving(&(struct harness_moving){.momentum = 0.75, .synchronized = true, .uses = 2});
    struct team team;
    start(&team, test_device("cpu"), graph, (const uint64_t[]){3, 3, 0, 1}, 4, microbatches);
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
END_TEST

START_TEST(a_total_that_fails_ends_the_step)
{
    struct ls_graph *graph =
        harness_moving(&(struct harness_moving){.momentum = 0.75, .synchronized = true});
    struct team team;
    start(&team, test_device("reference"), graph, (const uint64_t[]){7, 0}, 2, 1);
    team.fails = (uint32_t)_i;
    run(&team);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_int_eq(team.members[i].status, LS_PEER_LOST);
        ck_assert_int_eq(team.members[i].events[team.members[i].event_count - 1], _i);
    }
    stop(&team);
    ls_graph_destroy(graph);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core/replica/totals");
    TCase *tests = tcase_create("totals");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 30);
    tcase_add_loop_test(tests, shares_of_several_replicas_add_up_to_the_batch_on_one, 0, 4);
    tcase_add_test(tests, gradients_are_differences_of_the_loss_of_the_batch);
    tcase_add_loop_test(
        tests, totals_and_buckets_come_in_one_order_on_all_replicas_also_on_empty_ones, 0, 2);
    tcase_add_loop_test(tests, a_total_that_fails_ends_the_step, 0, 2);
    suite_add_tcase(suite, tests);
    return test_suite_run(suite);
}
