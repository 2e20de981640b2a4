// SPDX-License-Identifier: Apache-2.0
// The words of all workers are one array, of which each fills in its part: its sum is what all say. So
// they travel as what is timed does, over the same transport, and arrive at all workers at about the
// same time.
#include "tools/bench/ranks.h"

#include "core/base/log.h"
#include "core/base/shared_memory.h"
#include "core/plugin/collective.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONTROL "direct" // few bytes: what counts is the number of rounds

enum { WORD_STATUS, WORD_SECONDS, WORD_WRONG, WORD_ENOUGH, WORDS };

struct bench_workers {
    struct ls_run *run;
    uint32_t worker, count;
    struct ls_communicator *control; // one rank a worker
    struct ls_collective_plan *plan;
    double (*words)[WORDS]; // by worker
    uint32_t *numbers; // of all workers: the worker of each endpoint
    uint32_t *hosts; // of each worker
    struct ls_cluster_endpoints endpoints;
    const struct bench_task *task; // whose communicators end when a worker is lost
    struct ls_loss_watch watch;
    bool ended; // somebody has failed, which all know: nothing is told any more
};

// [the thread that finds out]
static void on_lost(void *context)
{
    struct bench_workers *workers = context;
    const struct bench_task *task = workers->task;
    for (uint32_t i = 0; i < task->lane_count; i++)
        for (uint32_t rank = 0; rank < task->count; rank++)
            ls_communicator_abort(task->lanes[i].communicators[rank]);
    ls_communicator_abort(workers->control);
}

void bench_workers_watch(struct bench_workers *workers, const struct bench_task *task)
{
    if (!workers)
        return;
    if (task)
        workers->task = task;
    ls_workers_unwatch(workers->run, &workers->watch);
    workers->watch = (struct ls_loss_watch){.lost = on_lost, .context = workers};
    if (task)
        ls_workers_watch(workers->run, &workers->watch);
}

static enum ls_status open_control(struct bench_workers *workers)
{
    const struct ls_run *run = workers->run;
    const struct ls_opened_plugin *collective = NULL;
    enum ls_status status =
        ls_loader_open(run->loader, LS_KIND_COLLECTIVE, CONTROL, NULL, 0, &collective);
    if (status)
        return status;
    workers->endpoints = (struct ls_cluster_endpoints){
        .cluster = run->workers.cluster, .world = workers->count, .workers = workers->numbers};
    status = ls_communicators_open(
        &(struct ls_communicator_options){
            .collective = collective->plugin,
            .collective_host = collective->host,
            .transport = run->strategy.transport->plugin,
            .transport_host = run->strategy.transport->host,
            .world = workers->count,
            .first_rank = workers->worker,
            .count = 1,
            .deadline_ns = run->deadline_ns,
            .name = "workers",
            .hosts = workers->hosts,
            .exchange = {.call = ls_cluster_exchange, .context = &workers->endpoints}},
        &workers->control);
    const struct ls_communicator_call call = {.operation = LS_ALL_REDUCE,
                                              .dtype = LS_F64,
                                              .reduction = LS_SUM,
                                              .buffer = ls_host_memory(workers->words),
                                              .count = (uint64_t)workers->count * WORDS};
    return status ? status
                  : ls_collective_plan_open(workers->control, &call, "words", &workers->plan);
}

static enum ls_status list_workers(struct bench_workers *workers)
{
    const struct ls_cluster *cluster = workers->run->workers.cluster;
    const uint32_t *owners = ls_cluster_rank_workers(cluster), *hosts = ls_cluster_hosts(cluster);
    const size_t bytes = workers->count * sizeof(*workers->words);
    workers->numbers = calloc(workers->count, sizeof(*workers->numbers));
    workers->hosts = calloc(workers->count, sizeof(*workers->hosts));
    workers->words = ls_segment_allocate(bytes, 64);
    if (!workers->numbers || !workers->hosts || !workers->words)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < workers->count; i++)
        workers->numbers[i] = i;
    for (uint32_t rank = 0; rank < ls_cluster_world(cluster); rank++)
        workers->hosts[owners[rank]] = hosts[rank];
    return LS_OK;
}

enum ls_status bench_workers_open(const struct ls_run_options *options, const char *transport,
                                  struct bench_workers **out)
{
    struct ls_run_options run = *options;
    struct bench_workers *workers = calloc(1, sizeof(*workers));
    char strategy[160];
    if (!workers)
        return LS_OUT_OF_MEMORY;
    snprintf(strategy, sizeof(strategy), "multi-worker-mirrored:collective=ring%s%.100s",
             transport ? ",transport=" : "", transport ? transport : "");
    run.strategy = strategy;
    run.device = "cpu"; // the buffers have a device of their own
    run.threads = 1;
    run.progress = 1;
    enum ls_status status = ls_open_run(&run, &workers->run);
    if (!status) {
        workers->count = ls_cluster_workers(workers->run->workers.cluster);
        workers->worker = ls_cluster_worker(workers->run->workers.cluster);
        if (ls_run_shares_memory(workers->run))
            (void)!ls_segment_open(); // without it the transport copies
        status = list_workers(workers);
        if (!status)
            status = open_control(workers);
        if (status)
            ls_workers_give_up(workers->run);
    }
    if (status)
        bench_workers_close(workers);
    else
        *out = workers;
    return status;
}

void bench_workers_close(struct bench_workers *workers)
{
    if (!workers)
        return;
    ls_collective_plan_destroy(workers->plan);
    ls_communicators_close(&workers->control, workers->control ? 1 : 0);
    ls_segment_free(workers->words);
    free(workers->numbers);
    free(workers->hosts);
    ls_run_close(workers->run);
    free(workers);
}

struct ls_run *bench_workers_run(const struct bench_workers *workers)
{
    return workers->run;
}

void bench_workers_divide(struct bench_workers *workers, struct bench_task *task)
{
    const struct ls_cluster *cluster = workers->run->workers.cluster;
    task->workers = workers;
    task->call.world = ls_cluster_world(cluster);
    task->first_rank = ls_cluster_first_rank(cluster);
    task->count = ls_cluster_count(cluster);
    task->hosts = ls_cluster_hosts(cluster);
    task->memory.count = task->count;
    task->memory.first = task->memory.here = 0;
    for (uint32_t i = 0; i < task->call.world; i++) {
        const bool here = task->hosts[i] == task->hosts[task->first_rank];
        task->memory.here += here;
        task->memory.first += here && i < task->first_rank;
    }
}

// ---- In the barriers ----

// LS_ABORTED and LS_PEER_LOST follow from what another has met with.
static bool is_cause(int status)
{
    return status && status != LS_ABORTED && status != LS_PEER_LOST;
}

static uint32_t find_failed(const struct bench_workers *workers)
{
    uint32_t failed = workers->count;
    for (uint32_t i = workers->count; i-- > 0;) {
        const int status = (int)workers->words[i][WORD_STATUS];
        const bool better = failed == workers->count || is_cause(status) ||
                            !is_cause((int)workers->words[failed][WORD_STATUS]);
        if (status && better)
            failed = i;
    }
    return failed;
}

void bench_workers_tell(struct bench_workers *workers, struct bench_word *word)
{
    const double mine[WORDS] = {word->status, word->seconds, word->wrong, word->enough};
    if (workers->ended)
        return;
    memset(workers->words, 0, workers->count * sizeof(*workers->words));
    memcpy(workers->words[workers->worker], mine, sizeof(mine));
    enum ls_status status = ls_collective_start(workers->plan);
    if (!status)
        status = ls_collective_wait(workers->plan);
    if (status) {
        workers->ended = true;
        word->status = is_cause(word->status) ? word->status : (int)status;
        return;
    }
    const uint32_t failed = find_failed(workers);
    *word = (struct bench_word){.enough = workers->words[0][WORD_ENOUGH] != 0};
    for (uint32_t i = 0; i < workers->count; i++) {
        word->seconds += workers->words[i][WORD_SECONDS];
        word->wrong += workers->words[i][WORD_WRONG];
    }
    if (failed == workers->count)
        return;
    workers->ended = true;
    word->status = (int)workers->words[failed][WORD_STATUS];
    if (mine[WORD_STATUS] == 0 || !is_cause((int)mine[WORD_STATUS]))
        ls_error("bench", "worker %u could not go on, for the reason that it has logged", failed);
}

// ---- The end ----

enum ls_status bench_workers_conclude(struct bench_workers *workers, enum ls_status status,
                                      bool together)
{
    struct ls_run *run = workers->run;
    int32_t mine = (int32_t)status, *all = calloc(workers->count, sizeof(*all));
    enum ls_status told = all ? LS_OK : LS_OUT_OF_MEMORY;
    if (status && !together)
        ls_workers_give_up(run);
    else if (!told)
        told = ls_cluster_gather_workers(run->workers.cluster, &mine, sizeof(mine), all);
    for (uint32_t i = 0; together && !told && !is_cause((int)status) && i < workers->count; i++)
        if (is_cause(all[i])) {
            if (!workers->ended) // else it has been said
                ls_error("bench", "worker %u failed, for the reason that it has logged", i);
            status = (enum ls_status)all[i];
        }
    free(all);
    if (status == LS_PEER_LOST || status == LS_ABORTED)
        status = ls_workers_await_verdict(run, NULL, status);
    return status ? status : told;
}
