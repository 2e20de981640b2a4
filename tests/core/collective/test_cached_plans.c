// SPDX-License-Identifier: Apache-2.0
// Communicators without a model: operations on any buffer, of any size, one after the other and several at a time.
#include "tests/core/collective/support.h"

#include "core/base/threads.h"
#include "core/collective/internal.h"

#include <pthread.h>

#define RANKS 3
#define MOST 5000
#define SIZES 100 // more than plans are kept

static struct ls_communicator *communicators[RANKS];
static struct test_host collective_host, transport_host;
static int32_t statuses[RANKS];
static uint32_t wrong[RANKS];

static void open_all(const char *name)
{
    const struct ls_plugin *collective = test_plugin_open(name);
    const struct ls_plugin *transport = test_plugin_open("transport-local");
    ck_assert(collective && transport);
    test_host_init(&collective_host, collective);
    test_host_init(&transport_host, transport);
    const struct ls_communicator_options options = {.collective = collective,
                                                    .collective_host = &collective_host.host,
                                                    .transport = transport,
                                                    .transport_host = &transport_host.host,
                                                    .world = RANKS,
                                                    .deadline_ns = UINT64_C(10000000000),
                                                    .name = "buffers"};
    ck_assert_int_eq(ls_communicators_open(&options, communicators), LS_OK);
}

static void run_all(void *(*body)(void *))
{
    pthread_t threads[RANKS];
    for (uintptr_t i = 0; i < RANKS; i++) {
        wrong[i] = 0;
        ck_assert_int_eq(ls_thread_start(&threads[i], "rank", body, (void *)i), LS_OK);
    }
    for (uint32_t i = 0; i < RANKS; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < RANKS; i++) {
        ck_assert_int_eq(statuses[i], LS_OK);
        ck_assert_uint_eq(wrong[i], 0);
    }
}

// Element k of rank r is r + k + turn.
static void fill(float *values, uint64_t count, uint32_t rank, uint64_t turn)
{
    for (uint64_t k = 0; k < count; k++)
        values[k] = (float)(rank + k + turn);
}

static uint32_t count_wrong(const float *values, uint64_t count, uint64_t turn)
{
    uint32_t found = 0;
    for (uint64_t k = 0; k < count; k++) {
        const float expected = (float)(RANKS * (k + turn) + RANKS * (RANKS - 1) / 2);
        found += values[k] < expected || values[k] > expected;
    }
    return found;
}

static enum ls_status run_call(struct ls_communicator *communicator,
                               const struct ls_communicator_call *call)
{
    struct ls_collective_plan *plan;
    enum ls_status status = ls_communicator_start(communicator, call, &plan);
    if (!status)
        status = ls_communicator_wait_until(communicator, plan, UINT64_MAX);
    return status ? status : ls_communicator_synchronize(communicator);
}

static void *sum_of_many_sizes(void *argument)
{
    const uint32_t rank = (uint32_t)(uintptr_t)argument;
    float *buffers[3];
    int32_t status = LS_OK;
    for (int i = 0; i < 3; i++)
        buffers[i] = malloc(MOST * sizeof(float));
    for (uint64_t turn = 0; !status && turn < 3 * SIZES; turn++) {
        const uint64_t count = 1 + turn % SIZES * 37;
        float *buffer = buffers[(turn + rank) % 3]; // another one each time
        fill(buffer, count, rank, turn);
        const struct ls_communicator_call call = {.operation = LS_ALL_REDUCE,
                                                  .dtype = LS_F32,
                                                  .reduction = LS_SUM,
                                                  .buffer = ls_host_memory(buffer),
                                                  .count = count};
        status = run_call(communicators[rank], &call);
        wrong[rank] += count_wrong(buffer, count, turn);
    }
    for (int i = 0; i < 3; i++)
        free(buffers[i]);
    statuses[rank] = status;
    return NULL;
}

LOOP_TEST(any_buffer_of_any_size_is_summed, 0, 2)
{
    static const char *const names[] = {"collective-ring", "collective-tree"};
    open_all(names[_i]);
    run_all(sum_of_many_sizes);
    for (uint32_t i = 0; i < RANKS; i++)
        ck_assert_uint_eq(communicators[i]->cached_count, LS_CACHED_PLANS); // and no more
    ls_communicators_close(communicators, RANKS);
}

// As many as a rank may have under way; all of one size, so each needs a plan of its own.
static void *many_at_once(void *argument)
{
    const uint32_t rank = (uint32_t)(uintptr_t)argument;
    static float buffers[RANKS][LS_CACHED_PLANS][100];
    struct ls_collective_plan *plans[LS_CACHED_PLANS + 1];
    int32_t status = LS_OK;
    for (uint64_t round = 0; round < 3; round++) {
        struct ls_communicator_call call = {
            .operation = LS_ALL_REDUCE, .dtype = LS_F32, .reduction = LS_SUM, .count = 100};
        for (uint64_t i = 0; !status && i < LS_CACHED_PLANS; i++) {
            call.buffer = ls_host_memory(buffers[rank][i]);
            fill(buffers[rank][i], 100, rank, i + round);
            status = ls_communicator_start(communicators[rank], &call, &plans[i]);
        }
        wrong[rank] +=
            ls_communicator_start(communicators[rank], &call, &plans[LS_CACHED_PLANS]) != LS_USAGE;
        for (uint64_t i = LS_CACHED_PLANS; !status && i-- > 0;)
            status = ls_communicator_wait_until(communicators[rank], plans[i], UINT64_MAX);
        for (uint64_t i = 0; !status && i < LS_CACHED_PLANS; i++)
            wrong[rank] += count_wrong(buffers[rank][i], 100, i + round);
    }
    statuses[rank] = status;
    return NULL;
}

TEST(several_are_under_way_at_once)
{
    open_all("collective-ring");
    run_all(many_at_once);
    ls_communicators_close(communicators, RANKS);
}

static void *other_operations(void *argument)
{
    const uint32_t rank = (uint32_t)(uintptr_t)argument;
    int64_t numbers[10];
    double halves[300];
    for (int i = 0; i < 10; i++)
        numbers[i] = rank == 1 ? i : -1;
    for (int i = 0; i < 300; i++)
        halves[i] = rank;
    const struct ls_communicator_call broadcast = {.operation = LS_BROADCAST,
                                                   .dtype = LS_I64,
                                                   .reduction = LS_SUM,
                                                   .root = 1,
                                                   .buffer = ls_host_memory(numbers),
                                                   .count = 10};
    const struct ls_communicator_call mean = {.operation = LS_ALL_REDUCE,
                                              .dtype = LS_F64,
                                              .reduction = LS_MEAN,
                                              .buffer = ls_host_memory(halves),
                                              .count = 300};
    int32_t status = run_call(communicators[rank], &broadcast);
    if (!status)
        status = run_call(communicators[rank], &mean);
    for (int i = 0; i < 10; i++)
        wrong[rank] += numbers[i] != i;
    for (int i = 0; i < 300; i++)
        wrong[rank] += halves[i] < 1 || halves[i] > 1;
    statuses[rank] = status;
    return NULL;
}

TEST(other_operations_types_and_means_are_done_too)
{
    open_all("collective-ring");
    run_all(other_operations);
    ls_communicators_close(communicators, RANKS);
}

TEST_SECONDS(300);

int main(void)
{
    return test_plugin_open("transport-local") ? test_suite_run("core/collective/cached_plans")
                                               : TEST_SKIPPED;
}
