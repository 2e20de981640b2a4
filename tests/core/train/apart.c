// SPDX-License-Identifier: Apache-2.0
// A strategy for tests: replicas push into one store on the host whenever they are ready, and wait for nobody. Options
// make one of them slow, or fail at a step.
#include "core/plugin/strategy.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct ls_strategy {
    const struct ls_strategy_host *host;
    struct ls_store *store;
    pthread_mutex_t lock; // of the store, and of what is counted
    uint64_t pushes, last;
    double steps_of[64]; // pushes of each replica
    long fail_rank, fail_step, slow_rank, slow_ms;
    uint32_t lost; // replicas whose `lost` was called
    uint32_t rests; // calls of `rest`
};

static long option(const struct ls_strategy_host *host, const char *name)
{
    const char *text = host->host->option(host->host, name);
    return text ? strtol(text, NULL, 10) : -1;
}

static int32_t apart_open(const struct ls_strategy_host *host, struct ls_strategy *strategy)
{
    strategy->host = host;
    strategy->fail_rank = option(host, "fail_rank");
    strategy->fail_step = option(host, "fail_step");
    strategy->slow_rank = option(host, "slow_rank");
    strategy->slow_ms = option(host, "slow_ms");
    pthread_mutex_init(&strategy->lock, NULL);
    return host->stores->open(host, 0, host->flat_count, &strategy->store);
}

static void apart_close(struct ls_strategy *strategy)
{
    strategy->host->stores->close(strategy->host, strategy->store);
    pthread_mutex_destroy(&strategy->lock);
}

static int32_t pull(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    pthread_mutex_lock(&strategy->lock);
    memcpy(host->memory->map(host, replica, LS_REPLICA_PARAMETERS),
           host->stores->values(host, strategy->store), host->flat_count * sizeof(float));
    pthread_mutex_unlock(&strategy->lock);
    host->memory->changed(host, replica);
    return LS_OK;
}

static int32_t apart_synchronise(struct ls_strategy *strategy, uint32_t replica)
{
    const int32_t status = strategy->host->threads->barrier(strategy->host, replica);
    return status ? status : pull(strategy, replica);
}

static int32_t apart_ready(struct ls_strategy *strategy, uint32_t replica, uint32_t bucket)
{
    (void)strategy;
    (void)replica;
    (void)bucket;
    return LS_OK;
}

static int32_t apart_end(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    float sums[LS_STRATEGY_SUMS];
    uint64_t number;
    double rate;
    host->step->current(host, replica, &number, &rate);
    if (strategy->slow_rank == (long)replica) {
        const struct timespec pause = {.tv_nsec = strategy->slow_ms * 1000000};
        nanosleep(&pause, NULL);
    }
    if (strategy->fail_rank == (long)replica && strategy->fail_step == (long)number)
        return ls_host_fail(host->host, LS_FAILED, "the test lets replica %u fail", replica);
    int32_t status = host->step->read_sums(host, replica, sums);
    if (!status)
        status = host->step->check_step_on(host, replica, sums);
    if (status)
        return status;
    pthread_mutex_lock(&strategy->lock);
    strategy->pushes++;
    strategy->steps_of[replica]++;
    status = host->stores->update(host, strategy->store,
                                  host->memory->map(host, replica, LS_REPLICA_GRADIENTS), 0, rate);
    pthread_mutex_unlock(&strategy->lock);
    host->report->count_bytes(host, replica, host->flat_count * sizeof(float));
    return status;
}

static void apart_traits(struct ls_strategy *strategy, struct ls_strategy_traits *out)
{
    (void)strategy;
    out->divisor = LS_DIVISOR_OWN;
    out->equality = LS_EQUAL_AT_SYNCHRONISE;
    out->survives = 1;
}

static int32_t apart_lost(struct ls_strategy *strategy, uint32_t replica)
{
    (void)replica;
    pthread_mutex_lock(&strategy->lock);
    strategy->lost++;
    pthread_mutex_unlock(&strategy->lock);
    return LS_OK;
}

static int32_t apart_rest(struct ls_strategy *strategy, uint32_t replica)
{
    (void)replica;
    pthread_mutex_lock(&strategy->lock);
    strategy->rests++;
    pthread_mutex_unlock(&strategy->lock);
    return LS_OK;
}

static void apart_report(struct ls_strategy *strategy)
{
    const struct ls_strategy_host *host = strategy->host;
    const double pushes = (double)strategy->pushes, lost = strategy->lost, rests = strategy->rests;
    host->report->metric(host, "apart.pushes.all", &pushes, 1, 0);
    host->report->metric(host, "apart.pushes.replicas", strategy->steps_of, host->replicas, 1);
    host->report->metric(host, "apart.lost", &lost, 1, 0);
    host->report->metric(host, "apart.rests", &rests, 1, 0);
    host->report->metric(host, "steps", &lost, 1, 0); // is there already
}

static const struct ls_strategy_interface interface = {
    .struct_size = sizeof(interface),
    .state_bytes = sizeof(struct ls_strategy),
    .traits = {.divisor = LS_DIVISOR_GLOBAL, // until find_traits says otherwise
               .equality = LS_EQUAL_EVERY_STEP},
    .open = apart_open,
    .close = apart_close,
    .find_traits = apart_traits,
    .initialize_parameters = pull,
    .begin_step = pull,
    .gradient_ready = apart_ready,
    .end_step = apart_end,
    .synchronise = apart_synchronise,
    .lost = apart_lost,
    .rest = apart_rest,
    .report_metrics = apart_report,
};

static const struct ls_plugin_option options[] = {
    {"fail_rank", "integer", NULL, "the replica that fails"},
    {"fail_step", "integer", NULL, "at this step"},
    {"slow_rank", "integer", NULL, "the replica that is slow"},
    {"slow_ms", "integer", NULL, "by so much"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_STRATEGY),
    .name = "apart",
    .version = "1.0",
    .licence = "Apache-2.0",
    .summary = "replicas that wait for nobody, for tests",
    .options = options,
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void);
LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
