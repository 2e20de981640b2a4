// SPDX-License-Identifier: Apache-2.0
// A cluster of one worker.
#include "core/cluster/cluster.h"

#include <stdlib.h>
#include <string.h>

struct ls_cluster {
    uint32_t worker, workers;
    uint32_t first_rank, count, world;
    uint32_t hosts[]; // one a rank
};

enum ls_status ls_cluster_open_alone(uint32_t count, struct ls_cluster **out)
{
    struct ls_cluster *cluster = calloc(1, sizeof(*cluster) + count * sizeof(cluster->hosts[0]));
    if (!cluster)
        return LS_OUT_OF_MEMORY;
    cluster->workers = 1;
    cluster->count = cluster->world = count;
    *out = cluster;
    return LS_OK;
}

void ls_cluster_close(struct ls_cluster *cluster)
{
    free(cluster);
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

enum ls_status ls_cluster_gather(struct ls_cluster *cluster, const void *mine, size_t bytes,
                                 void *all)
{
    memcpy((char *)all + cluster->first_rank * bytes, mine, cluster->count * bytes);
    return LS_OK;
}
