// SPDX-License-Identifier: Apache-2.0
// A route of shared-memory and ucx, between processes that are said to be on two hosts: every collective is exact, hosts may
// have several replicas in one process, what crosses from one transport to the other is whole, and deaths and aborts on either
// side reach who waits on the other.
#include "core/base/clock.h"
#include "core/base/memory.h"
#include "core/base/random.h"
#include "core/base/shared_memory.h"
#include "core/base/threads.h"
#include "core/collective/communicator.h"
#include "core/plugin/device.h"
#include "tests/core/collective/route_parts.h"
#include "tests/support/suite.h"
#include "lab/bench/processes.h"

#include <check.h>
#include <string.h>
#include <unistd.h>

#define MOST_COUNT 300007
#define DEADLINE_NS UINT64_C(10000000000)

static struct route_parts parts;

// ---- Every collective ----

static const char *const collectives[] = {"ring",  "direct",           "hierarchical-copy", "tree",
                                          "torus", "halving-doubling", "two-level"};
#define COLLECTIVES (sizeof(collectives) / sizeof(*collectives))

static const struct spread {
    uint32_t world;
    uint32_t hosts[5];
    bool uneven;
} spreads[] = {{2, {0, 1}, false}, {3, {0, 0, 1}, false}, {5, {0, 1, 1, 0, 0}, true}};
#define SPREADS (sizeof(spreads) / sizeof(*spreads))

static uint32_t value_of(uint32_t rank, uint64_t index)
{
    return (uint32_t)(ls_random_u64(ls_random_key(7, rank), index) >> 40) % 8;
}

// Whether `count` sums of small whole numbers are right.
static bool is_exact(const char *what, uint32_t rank, uint32_t world, const float *data,
                     uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t sum = 0;
        for (uint32_t k = 0; k < world; k++)
            sum += value_of(k, i);
        if (data[i] == (float)sum)
            continue;
        fprintf(stderr, "%s, rank %u of %u: element %llu of %llu is %g, not %u\n", what, rank,
                world, (unsigned long long)i, (unsigned long long)count, (double)data[i], sum);
        return false;
    }
    return true;
}

static void fill(float *data, uint32_t rank, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        data[i] = (float)value_of(rank, i);
}

// Twice, because the second run finds slots and windows as the first left them.
static bool reduce(struct process *process, const struct ls_opened_plugin *collective, float *data,
                   uint64_t count)
{
    struct process_reduction run;
    enum ls_status status =
        process_reduction_create(process, collective, data, count, LS_F32, LS_SUM, &run);
    bool good = !status;
    for (int turn = 0; turn < 2 && good; turn++) {
        fill(data, process->rank, count);
        status = process_reduction_run(&run);
        good = !status && is_exact(collective->text, process->rank, process->world, data, count);
    }
    if (status)
        fprintf(stderr, "%s: %s\n", collective->text, ls_status_text(status));
    process_reduction_destroy(&run);
    return good;
}

// Odd ranks have buffers that their neighbours cannot map.
static int reduce_by_all(struct process *process, void *argument)
{
    static const uint64_t counts[] = {1, 2003, MOST_COUNT};
    static float copied[MOST_COUNT];
    const struct spread *spread = argument;
    process->hosts = spread->hosts;
    if (ls_segment_open() || process_open(process, &parts.opened))
        return 1;
    float *data =
        process->rank % 2 ? copied : ls_segment_allocate(MOST_COUNT * sizeof(*data), LS_ALIGNMENT);
    bool good = data;
    for (size_t i = 0; i < COLLECTIVES && good; i++) {
        const struct ls_opened_plugin *collective;
        if (spread->uneven && strcmp(collectives[i], "two-level") == 0)
            continue; // it serves hosts of equally many ranks
        good = ls_loader_open(parts.loader, LS_KIND_COLLECTIVE, collectives[i], NULL, 0,
                              &collective) == LS_OK;
        for (size_t k = 0; k < sizeof(counts) / sizeof(*counts) && good; k++)
            good = reduce(process, collective, data, counts[k]);
    }
    process_close(process);
    return !good;
}

LOOP_TEST(every_collective_is_exact_over_two_hosts, 0, SPREADS)
{
    struct spread spread = spreads[_i];
    ck_assert_uint_eq(processes_run(spread.world, 0, reduce_by_all, &spread), 0);
}

// ---- Several replicas in a process ----

struct replica {
    struct ls_communicator *communicator;
    const char *collective;
    pthread_t thread;
    uint32_t rank, world, wire;
    bool good;
};

static void *replica_main(void *argument)
{
    struct replica *replica = argument;
    const uint64_t count = 20011;
    float *data = ls_malloc_aligned(count * sizeof(*data));
    const struct ls_communicator_call call = {.operation = LS_ALL_REDUCE,
                                              .dtype = LS_F32,
                                              .reduction = LS_SUM,
                                              .wire = replica->wire,
                                              .buffer = ls_host_memory(data),
                                              .count = count};
    struct ls_collective_plan *plan = NULL;
    replica->good =
        data && ls_collective_plan_open(replica->communicator, &call, "test", &plan) == LS_OK;
    for (int turn = 0; turn < 3 && replica->good; turn++) {
        fill(data, replica->rank, count);
        replica->good = ls_collective_start(plan) == LS_OK && ls_collective_wait(plan) == LS_OK &&
                        is_exact(replica->collective, replica->rank, replica->world, data, count);
    }
    ls_collective_plan_destroy(plan);
    free(data);
    return NULL;
}

static bool run_replicas(struct process *process, const char *collective, uint32_t wire)
{
    const uint32_t hosts[] = {0, 0, 1, 1};
    const struct ls_opened_plugin *opened;
    struct ls_communicator *communicators[2];
    struct replica replicas[2];
    if (ls_loader_open(parts.loader, LS_KIND_COLLECTIVE, collective, NULL, 0, &opened))
        return false;
    process->count = 2;
    process->first = 2 * process->rank;
    process->ranks = 2 * process->world;
    const struct ls_communicator_options options = {.collective = opened->plugin,
                                                    .collective_host = opened->host,
                                                    .transport = parts.opened.plugin,
                                                    .transport_host = parts.opened.host,
                                                    .world = 4,
                                                    .first_rank = process->rank * 2,
                                                    .count = 2,
                                                    .deadline_ns = DEADLINE_NS,
                                                    .name = "test",
                                                    .hosts = hosts,
                                                    .exchange = {process_exchange, process}};
    if (ls_communicators_open(&options, communicators))
        return false;
    bool good = true;
    for (uint32_t i = 0; i < 2; i++) {
        replicas[i] = (struct replica){.communicator = communicators[i],
                                       .collective = collective,
                                       .rank = process->rank * 2 + i,
                                       .world = 4,
                                       .wire = wire};
        if (ls_thread_start(&replicas[i].thread, "replica", replica_main, &replicas[i]))
            return false;
    }
    for (uint32_t i = 0; i < 2; i++) {
        pthread_join(replicas[i].thread, NULL);
        good = good && replicas[i].good;
    }
    ls_communicators_close(communicators, 2);
    return good;
}

static int reduce_in_replicas(struct process *process, void *argument)
{
    (void)argument;
    return !run_replicas(process, "two-level", 0) || !run_replicas(process, "two-level", LS_BF16) ||
           !run_replicas(process, "ring", 0);
}

TEST(two_level_over_hosts_has_replicas_of_one_process)
{
    ck_assert_uint_eq(processes_run(2, 0, reduce_in_replicas, NULL), 0);
}

// ---- From one transport to the other ----

static struct ls_transfer transfer_of(uint32_t kind, uint32_t source, uint32_t destination,
                                      float *data, uint64_t count)
{
    return (struct ls_transfer){.struct_size = sizeof(struct ls_transfer),
                                .kind = kind,
                                .source = source,
                                .destination = destination,
                                .after = LS_TRANSFER_AT_ONCE,
                                .memory = data,
                                .count = count,
                                .dtype = LS_F32,
                                .reduction = LS_SUM};
}

// LS_AGAIN: not within the deadline. `reduced`: it was seen in that state; may be NULL.
static int32_t finish(struct process *process, struct ls_transfer *transfer, bool *reduced)
{
    const struct ls_transport_interface *ops = parts.opened.interface;
    struct ls_transfer *const list[] = {transfer};
    const uint64_t end_ns = ls_clock_ns() + DEADLINE_NS;
    int32_t status = LS_AGAIN;
    while (status == LS_AGAIN && ls_clock_ns() < end_ns) {
        status = ops->test(process->endpoint, transfer);
        if (reduced)
            *reduced |= transfer->state == LS_TRANSFER_REDUCED;
        if (status != LS_AGAIN)
            return status;
        const int32_t waited = ops->wait_any(process->endpoint, list, 1, UINT64_C(1000000000));
        if (waited && waited != LS_AGAIN)
            return waited;
    }
    return status;
}

// Rank 0 -> 1 -> 2, where 0 and 1 are on one host: 1 adds its own and sends on. Then back. Rank 2 is late, so that rank 1 is
// seen with what is reduced and not yet taken.
static int pass_on(struct process *process, void *argument)
{
    static const uint32_t hosts[] = {0, 0, 1};
    const struct ls_transport_interface *ops = parts.opened.interface;
    const uint64_t count = 30011;
    static float data[30011];
    const uint32_t rank = process->rank;
    bool reduced = false;
    (void)argument;
    process->hosts = hosts;
    if (process_open(process, &parts.opened))
        return 1;
    for (int way = 0; way < 2; way++) {
        const uint32_t first = way ? 2 : 0, last = 2 - first;
        struct ls_transfer transfer =
            rank == 1       ? transfer_of(LS_TRANSFER_RECEIVE_REDUCE_SEND, first, last, data, count)
            : rank == first ? transfer_of(LS_TRANSFER_SEND, 0, 1, data, count)
                            : transfer_of(LS_TRANSFER_RECEIVE_REDUCE, 1, 0, data, count);
        fill(data, rank, count);
        if (rank == last)
            nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        if (ops->post(process->endpoint, &transfer) || finish(process, &transfer, &reduced) ||
            transfer.state != LS_TRANSFER_COMPLETE || !process_barrier(process))
            return 1;
        if (rank == last && !is_exact("passed on", rank, 3, data, count))
            return 1;
    }
    process_close(process);
    return rank == 1 && !reduced;
}

TEST(what_is_received_on_one_transport_is_sent_on_by_the_other)
{
    ck_assert_uint_eq(processes_run(3, 0, pass_on, NULL), 0);
}

// ---- Deaths and aborts ----

// Rank `victim` dies while the others wait for it; who it was, and that it was nobody else, can be asked.
static int lose_one(struct process *process, void *argument)
{
    static const uint32_t hosts[] = {0, 0, 1};
    static float data[1000];
    const struct ls_transport_interface *ops = parts.opened.interface;
    const uint32_t victim = *(const uint32_t *)argument, other = 3 - victim - process->rank;
    process->hosts = hosts;
    if (process_open(process, &parts.opened) || !process_barrier(process))
        return 1;
    if (process->rank == victim) {
        nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
        _exit(99);
    }
    struct ls_transfer transfer = transfer_of(LS_TRANSFER_RECEIVE, victim, 0, data, 1000);
    const uint64_t begin_ns = ls_clock_ns();
    if (ops->post(process->endpoint, &transfer))
        return 2;
    const int32_t status = finish(process, &transfer, NULL);
    const int32_t theirs = ops->peer_state(process->endpoint, victim);
    const int32_t others = ops->peer_state(process->endpoint, other);
    if (status != LS_PEER_LOST || theirs != LS_PEER_LOST || others != LS_OK) {
        fprintf(stderr, "rank %u, victim %u: %d, its state %d, the other's %d\n", process->rank,
                victim, status, theirs, others);
        return 3;
    }
    // The other survivor must have looked before this one leaves.
    struct ls_transfer hand[] = {transfer_of(LS_TRANSFER_SEND, 0, other, data, 10),
                                 transfer_of(LS_TRANSFER_RECEIVE, other, 0, data + 10, 10)};
    if (ops->post(process->endpoint, &hand[0]) || ops->post(process->endpoint, &hand[1]) ||
        finish(process, &hand[1], NULL) || finish(process, &hand[0], NULL))
        return 4;
    process_close(process);
    return ls_clock_ns() - begin_ns > UINT64_C(5000000000) ? 5 : 0;
}

LOOP_TEST(a_process_that_dies_is_named_on_both_transports, 0, 3)
{
    uint32_t victim = (uint32_t)_i;
    ck_assert_uint_eq(processes_run(3, 0, lose_one, &victim), 1); // the one that died
}

// Rank 0 aborts. Rank 1, on its host, waits for rank 2 on the other, which waits for rank 1.
static int abort_one(struct process *process, void *argument)
{
    static const uint32_t hosts[] = {0, 0, 1};
    static float data[1000];
    const struct ls_transport_interface *ops = parts.opened.interface;
    (void)argument;
    process->hosts = hosts;
    if (process_open(process, &parts.opened) || !process_barrier(process))
        return 1;
    int32_t status = LS_OK;
    if (process->rank == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
        ops->abort(process->endpoint);
    } else {
        struct ls_transfer transfer =
            transfer_of(LS_TRANSFER_RECEIVE, 3 - process->rank, 0, data, 1000);
        status = ops->post(process->endpoint, &transfer);
        if (!status)
            status = finish(process, &transfer, NULL);
    }
    const bool ended = process->rank == 0 || status == LS_ABORTED || status == LS_PEER_LOST;
    if (!ended)
        fprintf(stderr, "rank %u: %d\n", process->rank, status);
    process_close(process);
    return !ended;
}

TEST(an_abort_on_one_transport_ends_waits_on_the_other)
{
    ck_assert_uint_eq(processes_run(3, 0, abort_one, NULL), 0);
}

// ---- Which transport ----

TEST(hosts_choose_the_transport)
{
    const uint32_t one[] = {4, 4, 4}, each[] = {0, 1, 2}, mixed[] = {0, 1, 0};
    ck_assert_int_eq(ls_route_choose(one, 3, 3), LS_ROUTE_PROCESS);
    ck_assert_int_eq(ls_route_choose(one, 3, 1), LS_ROUTE_HOST);
    ck_assert_int_eq(ls_route_choose(each, 3, 1), LS_ROUTE_NETWORK);
    ck_assert_int_eq(ls_route_choose(mixed, 3, 1), LS_ROUTE_BOTH);
}

int main(void)
{
    const int code = route_parts_open(&parts);
    if (code)
        return code;
    const int result = test_suite_run("core/collective/route");
    route_parts_close(&parts);
    return result;
}
