// SPDX-License-Identifier: Apache-2.0
// The parts of the cluster: cluster.c (who takes part, closing), join.c (opening), exchange.c
// (telling each other).
#ifndef LS_CLUSTER_CLUSTER_INTERNAL_H
#define LS_CLUSTER_CLUSTER_INTERNAL_H

#include "core/cluster/cluster.h"
#include "core/wire/connection.h"
#include "core/cluster/member.h"
#include "core/cluster/store.h"

#include <pthread.h>

#define LS_EXPECTED_SECRET                                                                        \
    "the same LOCKSTEP_SECRET or LOCKSTEP_SECRET_FILE for all workers, and no other training at " \
    "that address"

// What an elastic cluster needs to form anew: the options of its beginning, as copies.
struct ls_elastic {
    struct ls_cluster_options options;
    struct ls_worker_place place;
    struct ls_agreement *agreement; // and its texts behind it
    char host[256];
    char begin_host[64]; // where the store of the beginning was reached, a numeric address
    uint8_t key[LS_SECURE_KEY];
    int reserve; // a socket that listens, for the store that this worker may have to open
};

struct ls_cluster {
    uint32_t worker, workers;
    uint32_t first_rank, count, world;
    bool serves; // a server, which takes no part in what workers do
    uint32_t *hosts; // of each rank
    uint32_t *rank_workers; // of each rank
    uint32_t *counts; // ranks of each worker
    struct ls_member *member; // NULL: alone
    struct ls_store *store; // of worker 0 of many
    pthread_mutex_t lock; // one exchange at a time
    uint64_t *sizes, *offsets; // of each worker's block, for the exchange under way
    uint32_t generation;
    struct ls_elastic *elastic; // NULL: it is not
    char store_host[64]; // of the beginning; "": alone
    char about[LS_ABOUT_BYTES];
};

LS_STATUS ls_cluster_create(struct ls_cluster **out); // of no workers yet
// Takes note of who takes part. Worker i has counts[i] ranks; `hosts` NULL: all on one host.
// `number`: of this worker, or of this server.
LS_STATUS ls_cluster_settle(struct ls_cluster *cluster, uint32_t number, uint32_t workers,
                            const uint32_t *counts, const uint32_t *hosts);

// The store of this worker, and its own connection to it. Takes the listener; `own` is not set
// yet.
LS_STATUS ls_cluster_open_store(struct ls_cluster *cluster, const struct ls_store_options *options,
                                struct ls_connection *connection);

// Keeps copies of the options; `connection` says on which of this machine's addresses the reserve
// listens (where others reach its store, for worker 0).
LS_STATUS ls_elastic_create(const struct ls_cluster_options *options, const uint8_t *key,
                            struct ls_elastic **out);
LS_STATUS ls_elastic_listen(struct ls_elastic *elastic, int like);
int ls_elastic_reserve(const struct ls_elastic *elastic); // -1: NULL
void ls_elastic_destroy(struct ls_elastic *elastic); // takes NULL

#endif
