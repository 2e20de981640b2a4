// SPDX-License-Identifier: Apache-2.0
// Replicas under a driver, and the calls that a group makes on each of them.
#ifndef LS_TESTS_STRATEGY_JOB_H
#define LS_TESTS_STRATEGY_JOB_H

#include "core/replica/group.h"
#include "tests/core/replica/support.h"
#include "tests/core/strategy/open.h"

static struct test_device *device;
static struct ls_graph *graph;
static struct test_host strategy_host, collective_host, transport_host;

struct job {
    struct ls_cluster *cluster;
    struct ls_driver *driver;
    struct ls_driver_options options; // of test_host.c, for another driver of the same replicas
    struct ls_replica *replicas[TEST_MOST_REPLICAS];
    uint32_t world;
    struct ls_group *group;
    struct ls_replica_batch batches[TEST_MOST_REPLICAS];
    uint64_t step;
    bool stops[TEST_MOST_REPLICAS]; // which replicas ask to stop
    struct ls_step_result results[TEST_MOST_REPLICAS];
    enum ls_status status[TEST_MOST_REPLICAS];
    double evaluated[TEST_MOST_REPLICAS][LS_SUMS];
};

static inline struct ls_driver_plugin test_driver_plugin(const char *name, struct test_host *host)
{
    const struct ls_plugin *plugin = test_plugin_open(name);
    ck_assert_ptr_nonnull(plugin);
    test_host_init(host, plugin);
    return (struct ls_driver_plugin){plugin, &host->host, plugin->interface, NULL};
}

static inline void wake(void *context, enum ls_status status)
{
    (void)status;
    ls_driver_abort(((struct job *)context)->driver);
}

static inline enum ls_status place(void *context, uint32_t replica)
{
    return ls_driver_initialize_parameters(((struct job *)context)->driver, replica);
}

static inline enum ls_status synchronise(void *context, uint32_t replica)
{
    return ls_driver_synchronise(((struct job *)context)->driver, replica);
}

static inline enum ls_status step(void *context, uint32_t replica)
{
    struct job *job = context;
    job->status[replica] = ls_driver_step(job->driver, replica, &job->batches[replica], job->step,
                                          0.1, job->stops[replica], &job->results[replica]);
    return job->status[replica];
}

static inline enum ls_status run_step(struct job *job)
{
    job->step++;
    return ls_group_run(job->group, step, job);
}

static inline uint64_t hash_of(struct ls_replica *replica)
{
    uint64_t hash;
    ck_assert_int_eq(ls_replica_hash(replica, &hash), LS_OK);
    return hash;
}

static inline void finish(struct job *job)
{
    ls_group_destroy(job->group);
    ls_driver_close(job->driver);
    ls_cluster_close(job->cluster);
    for (uint32_t i = 0; i < job->world; i++)
        ls_replica_destroy(job->replicas[i]);
}

static inline void close_graph(void)
{
    ls_graph_destroy(graph);
}

#endif
