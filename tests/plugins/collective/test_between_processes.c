// SPDX-License-Identifier: Apache-2.0
// Every collective reduces exactly over a transport, however its ranks are spread over processes:
//   test_collective_between_processes TRANSPORT[+TRANSPORT] [-long] [COLLECTIVE...]
// A COLLECTIVE is a name or a file; without one, those of the tree are tested. A transport that serves the threads of one process
// gets all ranks there; one that serves several processes gets them in forked ones. Of two transports the first serves processes of
// one host, and the second those of two, which are only said to be two. -long: a buffer of 64 MiB, too.
#include "core/base/dtype.h"
#include "core/base/shared_memory.h"
#include "core/base/threads.h"
#include "core/collective/communicator.h"
#include "core/collective/known_values.h"
#include "core/collective/route.h"
#include "core/plugin/device.h"
#include "tests/support/suite.h"
#include "lab/bench/processes.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROCESSES_MOST 5
#define RANKS_MOST 5
#define COMMUNICATORS 2 // open at the same time
#define DEADLINE_NS UINT64_C(20000000000)

static const char *const in_tree[] = {"ring",  "direct",           "hierarchical-copy", "tree",
                                      "torus", "halving-doubling", "two-level"};

// Ranks of each process.
struct spread {
    uint32_t processes;
    uint32_t ranks[PROCESSES_MOST];
};
static const struct spread threads[] = {{1, {2}}, {1, {3}}, {1, {5}}};
static const struct spread processes[] = {
    {2, {1, 1}}, {3, {1, 1, 1}}, {5, {1, 1, 1, 1, 1}}, {2, {2, 1}}, {2, {2, 3}}};

// Which processes have buffers that others may map.
enum memory { ALL_MAPPED, SOME_MAPPED, NONE_MAPPED, MEMORIES };

static struct {
    const char *transport;
    const char *const *collectives;
    size_t collective_count;
    bool is_long;
} arguments;

// How many hosts the processes are said to be on.
enum hosts { ONE, TWO, A_HOST_EACH };

struct job {
    const struct ls_opened_plugin *collective;
    const struct ls_plugin *transport;
    const struct ls_host *transport_host;
    enum hosts hosts;
    struct spread spread;
    enum memory memory;
};

// ---- In each process ----

static const struct call {
    uint32_t operation, dtype, reduction, wire;
} calls[] = {
    {LS_ALL_REDUCE, LS_F32, LS_SUM, 0},          {LS_ALL_REDUCE, LS_F32, LS_SUM, LS_BF16},
    {LS_ALL_REDUCE, LS_F32, LS_SUM, LS_F16},     {LS_ALL_REDUCE, LS_F32, LS_MEAN, 0},
    {LS_ALL_REDUCE, LS_BF16, LS_SUM, 0},         {LS_ALL_REDUCE, LS_F16, LS_MAX, 0},
    {LS_ALL_REDUCE, LS_I64, LS_PRODUCT, 0},      {LS_ALL_REDUCE, LS_U8, LS_MIN, 0},
    {LS_REDUCE_SCATTER, LS_F32, LS_SUM, 0},      {LS_ALL_GATHER, LS_F64, LS_SUM, 0},
    {LS_BROADCAST, LS_I32, LS_SUM, 0},           {LS_REDUCE, LS_F32, LS_SUM, 0},
    {LS_REDUCE_SCATTER, LS_F32, LS_SUM, LS_F16}, {LS_ALL_TO_ALL, LS_U8, LS_SUM, 0},
};
// Nothing, fewer than ranks, a prime; and for the first calls, so many that there are many pieces and segments.
#define LARGE_CALLS 2
#define LARGE 300007
#define HUGE 16777259
static const uint64_t counts[] = {0, 1, 2, 7, 64, 5003};

struct rank {
    const struct job *job;
    struct process *process;
    uint32_t number; // of the job
    struct ls_communicator *communicators[COMMUNICATORS];
    pthread_t thread;
    bool good;
};

static bool is_mapped(const struct process *process, enum memory memory)
{
    return memory == ALL_MAPPED || (memory == SOME_MAPPED && process->rank % 2);
}

static bool blame(struct rank *rank, const struct call *call, uint64_t count, const char *text)
{
    fprintf(stderr,
            "%s over %s, rank %u of %u (process %u of %u), operation %u, %s, reduction %u, wire "
            "%s, %" PRIu64 " elements: %s\n",
            rank->job->collective->plugin->name, rank->job->transport->name, rank->number,
            rank->process->ranks, rank->process->rank, rank->process->world, call->operation,
            ls_dtype_name(call->dtype), call->reduction, ls_wire_text(call->wire), count, text);
    for (int i = 0; i < COMMUNICATORS; i++)
        ls_communicator_abort(rank->communicators[i]);
    return rank->good = false;
}

static bool run_once(struct rank *rank, const struct call *call, uint64_t count, void *data,
                     struct ls_collective_plan *plan)
{
    const struct ls_known_call known = {.operation = call->operation,
                                        .dtype = call->dtype,
                                        .reduction = call->reduction,
                                        .world = rank->process->ranks,
                                        .root = rank->process->ranks - 1,
                                        .count = count,
                                        .wire = call->wire};
    char text[64];
    uint64_t first = 0;
    ls_known_values_fill(&known, rank->number, data);
    enum ls_status status = ls_collective_start(plan);
    if (!status)
        status = ls_collective_wait(plan);
    if (status)
        return blame(rank, call, count, ls_status_text(status));
    const uint64_t wrong = ls_known_values_wrong(&known, rank->number, data, &first);
    if (!wrong)
        return true;
    snprintf(text, sizeof(text), "%" PRIu64 " are wrong, the first is %" PRIu64, wrong, first);
    return blame(rank, call, count, text);
}

// Two communicators take turns, and what is small is reduced twice, because the second run finds slots, pieces and memory as the
// first left them.
static bool reduce(struct rank *rank, const struct call *call, uint64_t about, void *const *data)
{
    const uint64_t count = ls_collective_whole_count(call->operation, about, rank->process->ranks);
    struct ls_collective_plan *plans[COMMUNICATORS] = {NULL};
    for (int i = 0; i < COMMUNICATORS && rank->good; i++) {
        const struct ls_communicator_call asked = {.operation = call->operation,
                                                   .dtype = call->dtype,
                                                   .reduction = call->reduction,
                                                   .root = call->operation == LS_BROADCAST ||
                                                                   call->operation == LS_REDUCE
                                                               ? rank->process->ranks - 1
                                                               : 0,
                                                   .buffer = ls_host_memory(data[i]),
                                                   .count = count,
                                                   .wire = call->wire};
        enum ls_status status =
            ls_collective_plan_open(rank->communicators[i], &asked, "test", &plans[i]);
        if (!status)
            status = ls_collective_known_answer(plans[i]);
        if (status)
            blame(rank, call, count, ls_status_text(status));
    }
    for (int turn = 0; turn < (count < LARGE ? 2 : 1); turn++)
        for (int i = 0; i < COMMUNICATORS && rank->good; i++)
            run_once(rank, call, count, data[i], plans[i]);
    for (int i = 0; i < COMMUNICATORS; i++)
        ls_collective_plan_destroy(plans[i]);
    return rank->good;
}

static bool reduce_all(struct rank *rank, void *const *data)
{
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
        for (size_t k = 0; k < sizeof(calls) / sizeof(*calls); k++)
            if (!reduce(rank, &calls[k], counts[i], data))
                return false;
    for (size_t k = 0; k < LARGE_CALLS; k++)
        if (!reduce(rank, &calls[k], LARGE, data) ||
            (arguments.is_long && !reduce(rank, &calls[k], HUGE, data)))
            return false;
    return true;
}

static void *run_rank(void *argument)
{
    struct rank *rank = argument;
    const uint64_t bytes = sizeof(float) * (arguments.is_long ? HUGE : LARGE);
    void *data[COMMUNICATORS] = {NULL};
    for (int i = 0; i < COMMUNICATORS; i++) {
        data[i] = ls_segment_allocate(bytes, LS_ALIGNMENT);
        rank->good &= data[i] != NULL;
    }
    if (rank->good)
        reduce_all(rank, data);
    for (int i = 0; i < COMMUNICATORS; i++)
        ls_segment_free(data[i]);
    return NULL;
}

// Returns whether all hosts have as many ranks as the first, or the last one fewer.
static bool name_hosts(const struct job *job, uint32_t *hosts)
{
    uint32_t ranks = 0, each = 0;
    for (uint32_t i = 0; i < job->spread.processes; i++)
        for (uint32_t k = 0; k < job->spread.ranks[i]; k++, ranks++)
            hosts[ranks] = job->hosts == ONE   ? 0
                           : job->hosts == TWO ? i * 2 / job->spread.processes
                                               : i;
    while (each < ranks && hosts[each] == 0)
        each++;
    for (uint32_t i = 0; i < ranks; i++)
        if (hosts[i] != i / each)
            return false;
    return true;
}

// `refused`: the collective does not serve ranks that are spread like that, and said so.
static bool open_communicators(struct process *process, const struct job *job, struct rank *ranks,
                               bool *refused)
{
    uint32_t hosts[RANKS_MOST] = {0};
    struct ls_communicator *opened[RANKS_MOST];
    *refused = !name_hosts(job, hosts) && strcmp(job->collective->plugin->name, "two-level") == 0;
    for (int i = 0; i < COMMUNICATORS; i++) {
        const struct ls_communicator_options options = {
            .collective = job->collective->plugin,
            .collective_host = job->collective->host,
            .transport = job->transport,
            .transport_host = job->transport_host,
            .world = process->ranks,
            .first_rank = process->first,
            .count = process->count,
            .deadline_ns = DEADLINE_NS,
            .name = i ? "second" : "first",
            .hosts = hosts,
            .exchange = {process->world > 1 ? process_exchange : NULL, process}};
        const enum ls_status status = ls_communicators_open(&options, opened);
        if (*refused)
            return status == LS_UNSUPPORTED;
        if (status)
            return false;
        for (uint32_t k = 0; k < process->count; k++)
            ranks[k].communicators[i] = opened[k];
    }
    return true;
}

static int run_process(struct process *process, void *argument)
{
    const struct job *job = argument;
    struct rank ranks[RANKS_MOST] = {0};
    bool good = true, refused;
    for (uint32_t i = process->ranks = process->first = 0; i < job->spread.processes; i++) {
        process->first += i < process->rank ? job->spread.ranks[i] : 0;
        process->ranks += job->spread.ranks[i];
    }
    process->count = job->spread.ranks[process->rank];
    if (process->world > 1 && is_mapped(process, job->memory) && ls_segment_open())
        return 1;
    if (!open_communicators(process, job, ranks, &refused))
        return 1;
    if (refused)
        return 0;
    for (uint32_t i = 0; i < process->count; i++) {
        ranks[i].job = job;
        ranks[i].process = process;
        ranks[i].number = process->first + i;
        ranks[i].good = true;
        if (ls_thread_start(&ranks[i].thread, "rank", run_rank, &ranks[i]))
            return 1;
    }
    for (uint32_t i = 0; i < process->count; i++) {
        pthread_join(ranks[i].thread, NULL);
        good &= ranks[i].good;
    }
    for (uint32_t i = 0; i < process->count; i++)
        ls_communicators_close(ranks[i].communicators, COMMUNICATORS);
    return !good;
}

// ---- The test ----

// The transport, or a route of two.
static void open_transport(struct ls_loader *loader, struct job *job, struct ls_route **route)
{
    const struct ls_opened_plugin *near, *far;
    char *text = strdup(arguments.transport), *plus = strchr(text, '+');
    if (plus)
        *plus = 0;
    ck_assert_int_eq(ls_loader_open_text(loader, "test", LS_KIND_TRANSPORT, text, &near), LS_OK);
    job->transport = near->plugin;
    job->transport_host = near->host;
    const struct ls_transport_interface *interface = near->interface;
    job->hosts = interface->scope >= LS_SCOPE_NETWORK ? A_HOST_EACH : ONE;
    if (plus) {
        ck_assert_int_eq(ls_loader_open_text(loader, "test", LS_KIND_TRANSPORT, plus + 1, &far),
                         LS_OK);
        ck_assert_int_eq(ls_route_make(near->plugin, near->host, far->plugin, far->host, route),
                         LS_OK);
        job->transport = ls_route_plugin(*route);
        job->transport_host = ls_route_host(*route);
        job->hosts = TWO;
    }
    free(text);
}

// Plugins are opened before the processes fork, and threads are started after that.
START_TEST(a_collective_is_exact_however_its_ranks_are_spread)
{
    struct ls_loader *loader;
    struct ls_route *route = NULL;
    struct job job;
    const char *name = arguments.collectives[_i];
    ck_assert_int_eq(ls_loader_create(NULL, &loader), LS_OK);
    open_transport(loader, &job, &route);
    ck_assert_int_eq(ls_loader_open_text(loader, "test", LS_KIND_COLLECTIVE, name, &job.collective),
                     LS_OK);
    const struct ls_transport_interface *interface = job.transport->interface;
    const bool alone = interface->scope == LS_SCOPE_PROCESS;
    const struct spread *spreads = alone ? threads : processes;
    const size_t spread_count =
        alone ? sizeof(threads) / sizeof(*threads) : sizeof(processes) / sizeof(*processes);
    for (size_t i = 0; i < spread_count; i++) {
        job.spread = spreads[i];
        // Collectives take turns in which spread has which memory, so that each has all.
        job.memory = job.hosts == A_HOST_EACH ? NONE_MAPPED : (i + (size_t)_i) % MEMORIES;
        ck_assert_msg(processes_run(job.spread.processes, 0, run_process, &job) == 0,
                      "%s over %s, %u processes, of which the first has %u ranks, memory %d", name,
                      arguments.transport, job.spread.processes, job.spread.ranks[0],
                      (int)job.memory);
    }
    ls_route_destroy(route);
    ls_loader_destroy(loader);
}
END_TEST

int main(int count, char **words)
{
    int next = 2;
    if (count < 2) {
        fprintf(stderr, "usage: test_collective_between_processes TRANSPORT[+TRANSPORT] [-long] "
                        "[COLLECTIVE...]\n");
        return 2;
    }
    arguments.transport = words[1];
    if (strstr(words[1], "ucx") && test_lacks(TEST_NETWORKS, "UCX"))
        return TEST_SKIPPED;
    if (next < count && strcmp(words[next], "-long") == 0) {
        arguments.is_long = true;
        next++;
    }
    arguments.collectives = next < count ? (const char *const *)words + next : in_tree;
    arguments.collective_count =
        next < count ? (size_t)(count - next) : sizeof(in_tree) / sizeof(*in_tree);
    tcase_set_timeout(test_registered(), arguments.is_long ? 600 : 120);
    tcase_add_loop_test(test_registered(), a_collective_is_exact_however_its_ranks_are_spread, 0,
                        (int)arguments.collective_count);
    return test_suite_run("plugins/collective/between_processes");
}
