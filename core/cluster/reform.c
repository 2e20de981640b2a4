// SPDX-License-Identifier: Apache-2.0
// The next generation of an elastic cluster: at the store, or where it is lost, at the store of the
// next worker that is alive.
#include "core/cluster/cluster_internal.h"

#include "core/base/log.h"
#include "core/wire/reach.h"
#include "core/wire/sockets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- What is kept ----

// The array, and behind it the texts.
static struct ls_agreement *copy_agreement(const struct ls_agreement *agreement, uint32_t count)
{
    size_t bytes = (count + 1) * sizeof(*agreement);
    for (uint32_t i = 0; i < count; i++)
        bytes += strlen(agreement[i].name) + strlen(agreement[i].value) + 2;
    struct ls_agreement *copy = malloc(bytes);
    if (!copy)
        return NULL;
    char *text = (char *)(copy + count + 1);
    for (uint32_t i = 0; i < count; i++) {
        copy[i].name = strcpy(text, agreement[i].name);
        text += strlen(text) + 1;
        copy[i].value = strcpy(text, agreement[i].value);
        text += strlen(text) + 1;
    }
    return copy;
}

enum ls_status ls_elastic_create(const struct ls_cluster_options *options, const uint8_t *key,
                                 struct ls_elastic **out)
{
    struct ls_elastic *elastic = calloc(1, sizeof(*elastic));
    if (!elastic)
        return LS_OUT_OF_MEMORY;
    elastic->reserve = -1;
    elastic->options = *options;
    elastic->place = *options->place;
    elastic->place.listen_fd = -1;
    elastic->options.place = &elastic->place;
    elastic->options.secret = NULL; // the key is enough
    elastic->agreement = copy_agreement(options->agreement, options->agreements);
    elastic->options.agreement = elastic->agreement;
    if (options->host) {
        snprintf(elastic->host, sizeof(elastic->host), "%s", options->host);
        elastic->options.host = elastic->host;
    }
    memcpy(elastic->key, key, sizeof(elastic->key));
    if (!elastic->agreement) {
        ls_elastic_destroy(elastic);
        return LS_OUT_OF_MEMORY;
    }
    *out = elastic;
    return LS_OK;
}

enum ls_status ls_elastic_listen(struct ls_elastic *elastic, int like)
{
    if (elastic->reserve >= 0)
        return LS_OK;
    if (ls_socket_listen_beside(like, &elastic->reserve)) {
        ls_error("cluster", "no port for the time when worker 0 is lost: the system gives none");
        return LS_FAILED;
    }
    return LS_OK;
}

int ls_elastic_reserve(const struct ls_elastic *elastic)
{
    return elastic ? elastic->reserve : -1;
}

void ls_elastic_destroy(struct ls_elastic *elastic)
{
    if (!elastic)
        return;
    if (elastic->reserve >= 0)
        close(elastic->reserve);
    free(elastic->agreement);
    sodium_memzero(elastic->key, sizeof(elastic->key));
    free(elastic);
}

// ---- Where worker 0 is lost ----

// The workers of the generation that is over. Addresses of the last worker 0's machine are those
// where its store was reached.
struct survivors {
    struct ls_former former[LS_MOST_ELASTIC];
    uint32_t count, own; // own: number of this worker
};

static void list_survivors(const struct ls_cluster *cluster, struct survivors *out)
{
    out->count = cluster->workers;
    out->own = cluster->worker;
    for (uint32_t i = 0; i < cluster->workers; i++)
        out->former[i].gone =
            ls_member_is_gone(cluster->member, i, &out->former[i].reserve) || i == 0;
}

// This worker is the lowest that is left.
static enum ls_status open_next_store(struct ls_cluster *cluster, const struct survivors *survivors,
                                      uint64_t deadline_ns, struct ls_connection *connection,
                                      char *address, size_t bytes)
{
    struct ls_elastic *elastic = cluster->elastic;
    const struct ls_cluster_options *options = &elastic->options;
    struct ls_store_options store = {.listener = elastic->reserve,
                                     .workers = survivors->count,
                                     .join_deadline_ns = options->join_deadline_ns,
                                     .deadline_ns = options->deadline_ns,
                                     .silence_ns = options->silence_ns,
                                     .least_workers = options->least_workers,
                                     .most_workers = options->most_workers,
                                     .address = address,
                                     .begin_host = elastic->begin_host,
                                     .begin_port = elastic->place.port,
                                     .former = survivors->former,
                                     .stood = ls_member_stood(cluster->member),
                                     .generation = cluster->generation,
                                     .reform_deadline_ns = deadline_ns};
    ls_member_leave_reserve(cluster->member);
    ls_socket_own(elastic->reserve, address, bytes);
    elastic->reserve = -1;
    if (ls_elastic_listen(elastic, store.listener)) {
        close(store.listener);
        return LS_FAILED;
    }
    memcpy(store.key, elastic->key, sizeof(store.key));
    ls_info("cluster", "this worker takes over as worker 0, with the store at %s", address);
    const enum ls_status status = ls_cluster_open_store(cluster, &store, connection);
    sodium_memzero(store.key, sizeof(store.key));
    return status;
}

static bool is_interrupted(void *context)
{
    const struct ls_elastic *elastic = context;
    return elastic->options.interrupted && atomic_load(elastic->options.interrupted);
}

// LS_AGAIN: that worker is no worker 0.
static enum ls_status reach_next_store(struct ls_elastic *elastic,
                                       const struct survivors *survivors, uint32_t number,
                                       uint64_t deadline_ns, struct ls_connection *connection,
                                       char *address, size_t bytes)
{
    const struct ls_reserve *at = &survivors->former[number].reserve;
    char name[32];
    if (!at->port)
        return LS_AGAIN;
    snprintf(name, sizeof(name), "worker %u", number);
    snprintf(address, bytes, "%s:%u", at->address, at->port);
    const struct ls_reach reach = {.name = name,
                                   .address = at->address,
                                   .port = at->port,
                                   .key = elastic->key,
                                   .patience_ns = deadline_ns,
                                   .unreachable_ns = elastic->options.silence_ns,
                                   .stop = {is_interrupted, elastic},
                                   .own = "worker",
                                   .all = "workers",
                                   .expected = LS_EXPECTED_SECRET};
    const enum ls_status status = ls_reach(&reach, connection);
    return status == LS_PEER_LOST ? LS_AGAIN : status == LS_ABORTED ? LS_INTERRUPTED : status;
}

// The lowest worker that answers is the next worker 0. Ends, because each turn rules one out, and
// this worker itself answers.
static enum ls_status reform_without_chief(struct ls_cluster *cluster, uint64_t deadline_ns,
                                           const struct ls_welcome **out)
{
    struct ls_elastic *elastic = cluster->elastic;
    struct survivors *survivors = calloc(1, sizeof(*survivors));
    enum ls_status status = LS_AGAIN;
    if (!survivors)
        return LS_OUT_OF_MEMORY;
    list_survivors(cluster, survivors);
    for (uint32_t i = 1; status == LS_AGAIN && i <= survivors->own; i++) {
        struct ls_connection connection = {.fd = -1};
        char address[LS_HOST_BYTES + 16];
        if (survivors->former[i].gone && i != survivors->own)
            continue;
        status = i == survivors->own ? open_next_store(cluster, survivors, deadline_ns, &connection,
                                                       address, sizeof(address))
                                     : reach_next_store(elastic, survivors, i, deadline_ns,
                                                        &connection, address, sizeof(address));
        if (!status)
            status = ls_member_reform_at(cluster->member, &connection, &elastic->options,
                                         ls_elastic_reserve(elastic), address, deadline_ns, out);
        ls_connection_finish(&connection);
        survivors->former[i].gone = status == LS_AGAIN;
    }
    if (status == LS_AGAIN) {
        ls_error("cluster", "worker 0 is lost, and so is every worker that could take its place");
        status = LS_PEER_LOST;
    }
    free(survivors);
    return status;
}

// ---- The next generation ----

enum ls_status ls_cluster_reform(struct ls_cluster *cluster, uint64_t deadline_ns,
                                 struct ls_cluster_change *out)
{
    const struct ls_welcome *welcome = NULL;
    const uint32_t workers = cluster->workers;
    if (!cluster->elastic) {
        ls_error("cluster", "the workers cannot form anew: they began without --elastic=MIN:MAX");
        return LS_USAGE;
    }
    if (!deadline_ns)
        deadline_ns = LS_REFORM_DEADLINE_NS;
    enum ls_status status = ls_member_reform(cluster->member, deadline_ns, &welcome);
    if (status == LS_AGAIN && cluster->store) {
        ls_error("cluster", "the store of worker 0 has ended");
        status = LS_FAILED;
    }
    if (status == LS_AGAIN)
        status = reform_without_chief(cluster, deadline_ns, &welcome);
    if (!status)
        status = ls_cluster_settle(cluster, welcome->number, welcome->workers, welcome->counts,
                                   welcome->hosts);
    if (status)
        return status;
    cluster->generation = welcome->generation;
    *out = (struct ls_cluster_change){.generation = welcome->generation,
                                      .survivors = welcome->survivors,
                                      .joined = welcome->workers - welcome->survivors,
                                      .lost = workers - welcome->survivors,
                                      .former = welcome->former};
    return LS_OK;
}
