// SPDX-License-Identifier: Apache-2.0
// Who takes part in a cluster, and its end.
#include "core/cluster/cluster_internal.h"

#include "core/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Who takes part ----

#define MOST_RANKS (UINT32_C(1) << 20) // more is taken for a mistake

enum ls_status ls_cluster_create(struct ls_cluster **out)
{
    struct ls_cluster *cluster = calloc(1, sizeof(*cluster));
    if (!cluster)
        return LS_OUT_OF_MEMORY;
    pthread_mutex_init(&cluster->lock, NULL);
    *out = cluster;
    return LS_OK;
}

// The arrays of struct ls_cluster.
struct tables {
    uint32_t *hosts, *rank_workers, *counts;
    uint64_t *sizes, *offsets;
};

static void free_tables(struct tables tables)
{
    free(tables.hosts);
    free(tables.rank_workers);
    free(tables.counts);
    free(tables.sizes);
    free(tables.offsets);
}

static struct tables tables_of(const struct ls_cluster *cluster)
{
    return (struct tables){cluster->hosts, cluster->rank_workers, cluster->counts, cluster->sizes,
                           cluster->offsets};
}

enum ls_status ls_cluster_settle(struct ls_cluster *cluster, uint32_t number, uint32_t workers,
                                 const uint32_t *counts, const uint32_t *hosts)
{
    uint64_t world = 0;
    for (uint32_t i = 0; i < workers; i++)
        world += counts[i];
    if (world > MOST_RANKS) {
        ls_error("cluster", "%llu ranks in all: expected at most %u", (unsigned long long)world,
                 MOST_RANKS);
        return LS_USAGE;
    }
    const struct tables tables = {.hosts = calloc(world, sizeof(uint32_t)),
                                  .rank_workers = calloc(world, sizeof(uint32_t)),
                                  .counts = malloc(workers * sizeof(uint32_t)),
                                  .sizes = malloc(workers * sizeof(uint64_t)),
                                  .offsets = malloc(workers * sizeof(uint64_t))};
    if (!tables.hosts || !tables.rank_workers || !tables.counts || !tables.sizes ||
        !tables.offsets) {
        free_tables(tables);
        return LS_OUT_OF_MEMORY;
    }
    memcpy(tables.counts, counts, workers * sizeof(*counts));
    for (uint32_t i = 0, rank = 0; i < workers; i++)
        for (uint32_t k = 0; k < counts[i]; k++, rank++) {
            tables.rank_workers[rank] = i;
            tables.hosts[rank] = hosts ? hosts[i] : 0;
        }
    free_tables(tables_of(cluster));
    cluster->hosts = tables.hosts;
    cluster->rank_workers = tables.rank_workers;
    cluster->counts = tables.counts;
    cluster->sizes = tables.sizes;
    cluster->offsets = tables.offsets;
    cluster->worker = number;
    cluster->workers = workers;
    cluster->world = (uint32_t)world;
    cluster->count = cluster->serves ? 0 : counts[number];
    cluster->first_rank = 0;
    for (uint32_t i = 0; i < number && !cluster->serves; i++)
        cluster->first_rank += counts[i];
    return LS_OK;
}

enum ls_status ls_cluster_open_alone(uint32_t count, struct ls_cluster **out)
{
    struct ls_cluster *cluster;
    enum ls_status status = ls_cluster_create(&cluster);
    if (status)
        return status;
    snprintf(cluster->about, sizeof(cluster->about), "this process trains alone");
    status = ls_cluster_settle(cluster, 0, 1, &count, NULL);
    if (status) {
        ls_cluster_close(cluster);
        return status;
    }
    *out = cluster;
    return LS_OK;
}

void ls_cluster_close(struct ls_cluster *cluster)
{
    if (!cluster)
        return;
    ls_member_close(cluster->member);
    ls_store_close(cluster->store);
    ls_elastic_destroy(cluster->elastic);
    pthread_mutex_destroy(&cluster->lock);
    free_tables(tables_of(cluster));
    free(cluster);
}

const char *ls_cluster_about(const struct ls_cluster *cluster)
{
    return cluster->about;
}

const char *ls_cluster_store_host(const struct ls_cluster *cluster)
{
    return cluster->store_host;
}

uint32_t ls_cluster_worker(const struct ls_cluster *cluster)
{
    return cluster->worker;
}

uint32_t ls_cluster_workers(const struct ls_cluster *cluster)
{
    return cluster->workers;
}

uint32_t ls_cluster_first_rank(const struct ls_cluster *cluster)
{
    return cluster->first_rank;
}

uint32_t ls_cluster_count(const struct ls_cluster *cluster)
{
    return cluster->count;
}

uint32_t ls_cluster_world(const struct ls_cluster *cluster)
{
    return cluster->world;
}

const uint32_t *ls_cluster_hosts(const struct ls_cluster *cluster)
{
    return cluster->hosts;
}

const uint32_t *ls_cluster_rank_workers(const struct ls_cluster *cluster)
{
    return cluster->rank_workers;
}

uint32_t ls_cluster_generation(const struct ls_cluster *cluster)
{
    return cluster->generation;
}

uint32_t ls_cluster_waiting(const struct ls_cluster *cluster)
{
    return cluster->store ? ls_store_waiting(cluster->store) : 0;
}

uint64_t ls_cluster_strangers(const struct ls_cluster *cluster)
{
    return cluster->store ? ls_store_strangers(cluster->store) : 0;
}

// ---- Any thread ----

void ls_cluster_say(struct ls_cluster *cluster, uint64_t step, const char *where)
{
    if (cluster->member)
        ls_member_say(cluster->member, step, where);
}

enum ls_status ls_cluster_check(struct ls_cluster *cluster, const char **text)
{
    return cluster->member ? ls_member_check(cluster->member, text) : LS_OK;
}

void ls_cluster_give_up(struct ls_cluster *cluster, const char *why)
{
    if (cluster->member)
        ls_member_give_up(cluster->member, why);
}
