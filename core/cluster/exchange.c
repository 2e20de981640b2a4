// SPDX-License-Identifier: Apache-2.0
// What workers tell each other: blocks of all, in rounds.
#include "core/cluster/cluster_internal.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/cluster/liveness.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint32_t size_of(const uint8_t *result, uint32_t worker)
{
    const uint8_t *at = result + 4 * (size_t)worker;
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

// One round: the parts of all blocks that begin at `from`.
static enum ls_status take_parts(const struct ls_cluster *cluster, const uint8_t *result,
                                 size_t bytes, uint64_t from, size_t most, char *all)
{
    size_t at = 4 * (size_t)cluster->workers;
    for (uint32_t i = 0; i < cluster->workers; i++) {
        const uint64_t left = cluster->sizes[i] > from ? cluster->sizes[i] - from : 0;
        const size_t part = left < most ? (size_t)left : most;
        if (size_of(result, i) != part || part > bytes - at) {
            ls_error("cluster", "worker %u gave %u bytes where %zu were expected", i,
                     size_of(result, i), part);
            return LS_FAILED;
        }
        if (part)
            memmove(all + cluster->offsets[i] + from, result + at, part);
        at += part;
    }
    return LS_OK;
}

// Worker i has a block of sizes[i] bytes; they come to all + offsets[i], in as many rounds as the
// longest needs. `bytes` and `root` tell this call from others.
static enum ls_status collect(struct ls_cluster *cluster, enum ls_operation operation,
                              uint32_t root, uint64_t bytes, const void *mine, void *all)
{
    const size_t most = ls_store_part(cluster->workers);
    const uint64_t own = cluster->sizes[cluster->worker];
    uint64_t longest = 0;
    for (uint32_t i = 0; i < cluster->workers; i++)
        longest = cluster->sizes[i] > longest ? cluster->sizes[i] : longest;
    uint64_t from = 0;
    do {
        const uint8_t *result;
        size_t result_bytes;
        const uint64_t left = own > from ? own - from : 0;
        const size_t part = left < most ? (size_t)left : most;
        enum ls_status status = ls_member_exchange(cluster->member, operation, root, bytes,
                                                   part ? (const char *)mine + from : NULL, part,
                                                   &result, &result_bytes);
        if (!status)
            status = take_parts(cluster, result, result_bytes, from, most, all);
        if (status)
            return status;
        from += most;
    } while (from < longest);
    return LS_OK;
}

static enum ls_status refuse_server(const struct ls_cluster *cluster, const char *name)
{
    if (!cluster->serves)
        return LS_OK;
    ls_error("cluster", "%s is for workers, and this is server %u", name, cluster->worker);
    return LS_USAGE;
}

// Blocks of `bytes` for each rank (or each worker), one worker's after the other's.
static enum ls_status gather(struct ls_cluster *cluster, const void *mine, size_t bytes, void *all,
                             bool by_rank)
{
    if (!cluster->member) {
        memcpy(all, mine, bytes * (by_rank ? cluster->count : 1));
        return LS_OK;
    }
    enum ls_status status = refuse_server(cluster, "gather");
    if (status)
        return status;
    pthread_mutex_lock(&cluster->lock);
    uint64_t offset = 0;
    for (uint32_t i = 0; i < cluster->workers; i++) {
        cluster->sizes[i] = (uint64_t)bytes * (by_rank ? cluster->counts[i] : 1);
        cluster->offsets[i] = offset;
        offset += cluster->sizes[i];
    }
    status = collect(cluster, LS_OPERATION_GATHER, by_rank ? 0 : 1, bytes, mine, all);
    pthread_mutex_unlock(&cluster->lock);
    return status;
}

enum ls_status ls_cluster_gather(struct ls_cluster *cluster, const void *mine, size_t bytes,
                                 void *all)
{
    return gather(cluster, mine, bytes, all, true);
}

enum ls_status ls_cluster_gather_workers(struct ls_cluster *cluster, const void *mine, size_t bytes,
                                         void *all)
{
    return gather(cluster, mine, bytes, all, false);
}

enum ls_status ls_cluster_broadcast(struct ls_cluster *cluster, void *data, size_t bytes,
                                    uint32_t worker)
{
    if (worker >= cluster->workers) {
        ls_error("cluster", "broadcast from worker %u: there are %u", worker, cluster->workers);
        return LS_USAGE;
    }
    if (!cluster->member)
        return LS_OK;
    enum ls_status status = refuse_server(cluster, "broadcast");
    if (status)
        return status;
    pthread_mutex_lock(&cluster->lock);
    memset(cluster->sizes, 0, cluster->workers * sizeof(*cluster->sizes));
    memset(cluster->offsets, 0, cluster->workers * sizeof(*cluster->offsets));
    cluster->sizes[worker] = bytes;
    status = collect(cluster, LS_OPERATION_BROADCAST, worker, bytes, data, data);
    pthread_mutex_unlock(&cluster->lock);
    return status;
}

enum ls_status ls_cluster_barrier(struct ls_cluster *cluster)
{
    if (!cluster->member)
        return LS_OK;
    enum ls_status status = refuse_server(cluster, "barrier");
    if (status)
        return status;
    pthread_mutex_lock(&cluster->lock);
    memset(cluster->sizes, 0, cluster->workers * sizeof(*cluster->sizes));
    memset(cluster->offsets, 0, cluster->workers * sizeof(*cluster->offsets));
    status = collect(cluster, LS_OPERATION_BARRIER, 0, 0, NULL, NULL);
    pthread_mutex_unlock(&cluster->lock);
    return status;
}

enum ls_status ls_cluster_confirm(struct ls_cluster *cluster)
{
    if (!cluster->elastic)
        return LS_OK;
    const uint64_t silence_ns = cluster->elastic->options.silence_ns;
    const uint64_t begun = ls_clock_boot_ns(), wait_ns = 2 * ls_beat_ns(silence_ns);
    const struct timespec wait = {.tv_sec = (time_t)(wait_ns / 1000000000),
                                  .tv_nsec = (long)(wait_ns % 1000000000)};
    enum ls_status status = ls_cluster_barrier(cluster);
    if (!status)
        status = ls_cluster_check(cluster, NULL);
    // What the others had sent was here, even if they have left since; that they have is known soon.
    if (!status && ls_clock_boot_ns() - begun > ls_stand_ns(silence_ns)) {
        nanosleep(&wait, NULL);
        status = ls_cluster_check(cluster, NULL);
    }
    return status;
}

// Endpoints of one worker need not be neighbours, so that what arrives in order of the workers is
// put in order of the endpoints.
int32_t ls_cluster_exchange(void *context, const void *own, uint64_t bytes, void *all)
{
    const struct ls_cluster_endpoints *endpoints = context;
    struct ls_cluster *cluster = endpoints->cluster;
    if (!endpoints->workers)
        return (int32_t)ls_cluster_gather(cluster, own, bytes, all);
    if (!cluster->member) {
        memcpy(all, own, endpoints->world * bytes);
        return LS_OK;
    }
    enum ls_status status = refuse_server(cluster, "exchange");
    char *ordered = malloc(endpoints->world * bytes + 1);
    if (!ordered)
        return LS_OUT_OF_MEMORY;
    pthread_mutex_lock(&cluster->lock);
    memset(cluster->sizes, 0, cluster->workers * sizeof(*cluster->sizes));
    for (uint32_t i = 0; i < endpoints->world; i++)
        cluster->sizes[endpoints->workers[i]] += bytes;
    for (uint64_t i = 0, offset = 0; i < cluster->workers; offset += cluster->sizes[i], i++)
        cluster->offsets[i] = offset;
    if (!status)
        status = collect(cluster, LS_OPERATION_GATHER, 2, bytes, own, ordered);
    for (uint32_t i = 0; !status && i < endpoints->world; i++) {
        uint64_t *offset = &cluster->offsets[endpoints->workers[i]];
        memcpy((char *)all + i * bytes, ordered + *offset, bytes);
        *offset += bytes;
    }
    pthread_mutex_unlock(&cluster->lock);
    free(ordered);
    return (int32_t)status;
}

int32_t ls_cluster_exchange_check(void *context)
{
    const struct ls_cluster_endpoints *endpoints = context;
    return (int32_t)ls_cluster_check(endpoints->cluster, NULL);
}

enum ls_status ls_cluster_meet(struct ls_cluster *cluster, const struct ls_meeting *meeting,
                               const void *own, size_t bytes, void *all)
{
    const uint32_t count = meeting->count;
    if (count == 1) {
        memcpy(all, own, bytes);
        return LS_OK;
    }
    if (!cluster->member || cluster->serves || count > cluster->workers) {
        ls_error("cluster", "%s: %u processes of %u cannot meet", meeting->key, count,
                 cluster->workers);
        return LS_USAGE;
    }
    const size_t most = ls_store_meeting_part(count);
    char *parts = malloc(count * most);
    enum ls_status status = parts ? LS_OK : LS_OUT_OF_MEMORY;
    for (size_t from = 0; !status && from < bytes; from += most) {
        const size_t part = bytes - from < most ? bytes - from : most;
        status = ls_member_meet(cluster->member, meeting, (const char *)own + from, part, parts);
        for (uint32_t i = 0; !status && i < count; i++)
            memcpy((char *)all + i * bytes + from, parts + i * part, part);
    }
    free(parts);
    return status;
}

void ls_cluster_tell(struct ls_cluster *cluster, const char *key, const uint32_t *members,
                     uint32_t count, const char *text)
{
    if (cluster->member && !cluster->serves)
        ls_member_tell(cluster->member, key, members, count, text);
}
