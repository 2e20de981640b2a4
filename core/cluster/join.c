// SPDX-License-Identifier: Apache-2.0
// How a worker comes into the cluster: worker 0 opens its store, the others connect to it.
#include "core/cluster/cluster_internal.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/wire/reach.h"
#include "core/wire/sockets.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LEAST_SILENCE_NS UINT64_C(1000000000) // two beats must fit in it
#define AGAIN_NS 100000000L // until a new worker looks for a store again

// ---- Worker 0 ----

enum ls_status ls_cluster_open_store(struct ls_cluster *cluster,
                                     const struct ls_store_options *options,
                                     struct ls_connection *connection)
{
    struct ls_store_options whole = *options;
    struct ls_connection own;
    enum ls_status status = ls_connection_pair(options->key, connection, &own);
    if (status) {
        close(options->listener);
        return status;
    }
    whole.own = &own;
    status = ls_store_open(&whole, &cluster->store);
    if (status)
        ls_connection_finish(connection);
    return status;
}

static enum ls_status refuse_without_secret(const struct ls_worker_place *place)
{
    return ls_secret_is_missing("worker 0", place->address, place->port, "workers");
}

static enum ls_status listen_at_place(const struct ls_worker_place *place, int *out)
{
    const struct ls_listening where = {.name = "worker 0",
                                       .address = place->address,
                                       .port = place->port,
                                       .everywhere = place->reached_from_outside,
                                       .inherited = place->listen_fd};
    return ls_socket_listen(&where, out);
}

static enum ls_status open_store(const struct ls_cluster_options *options, const uint8_t *key,
                                 struct ls_cluster *cluster, struct ls_connection *connection)
{
    const struct ls_worker_place *place = options->place;
    char address[LS_HOST_BYTES + 16];
    struct ls_store_options store = {.workers = place->workers,
                                     .servers = place->servers,
                                     .join_deadline_ns = options->join_deadline_ns,
                                     .deadline_ns = options->deadline_ns,
                                     .silence_ns = options->silence_ns,
                                     .least_workers = options->least_workers,
                                     .most_workers = options->most_workers,
                                     .apart = options->departed != NULL,
                                     .address = address};
    snprintf(address, sizeof(address), "%s:%u", place->address, place->port);
    enum ls_status status = listen_at_place(place, &store.listener);
    if (status)
        return status;
    if (!options->secret && !options->insecure && !ls_socket_listens_here(store.listener))
        status = refuse_without_secret(place);
    if (!status && cluster->elastic)
        status = ls_elastic_listen(cluster->elastic, store.listener);
    if (status) {
        close(store.listener);
        return status;
    }
    ls_socket_own_host(store.listener, cluster->store_host, sizeof(cluster->store_host));
    memcpy(store.key, key, sizeof(store.key));
    status = ls_cluster_open_store(cluster, &store, connection);
    sodium_memzero(store.key, sizeof(store.key));
    return status;
}

// ---- All others ----

static enum ls_status reach_store(const struct ls_cluster_options *options, const uint8_t *key,
                                  struct ls_cluster *cluster, struct ls_connection *connection)
{
    const struct ls_worker_place *place = options->place;
    const bool apart = options->departed != NULL;
    char advice[96];
    snprintf(advice, sizeof(advice), "start all %u %s", place->workers,
             apart ? "processes" : "workers, or train alone with --cluster=none");
    const struct ls_reach reach = {
        .name = apart ? "process 0" : "worker 0",
        .address = place->address,
        .port = place->port,
        .key = key,
        .open_to_all = !options->secret && !options->insecure,
        .patience_ns = options->join_deadline_ns,
        .own = apart ? "process" : "worker",
        .all = "workers",
        .expected = apart ? "the same `secret` for all processes, and no other job at that address"
                          : LS_EXPECTED_SECRET,
        .advice = advice};
    const enum ls_status status = ls_reach(&reach, connection);
    if (!status)
        ls_socket_peer_host(connection->fd, cluster->store_host, sizeof(cluster->store_host));
    if (status || !cluster->elastic)
        return status;
    ls_socket_peer_host(connection->fd, cluster->elastic->begin_host,
                        sizeof(cluster->elastic->begin_host));
    return ls_elastic_listen(cluster->elastic, connection->fd);
}

// ---- Options ----

static enum ls_status check_elastic(const struct ls_cluster_options *options)
{
    const struct ls_worker_place *place = options->place;
    const uint32_t least = options->least_workers, most = options->most_workers;
    if (!most && place->joins) {
        ls_error("cluster", "LOCKSTEP_JOIN: only a training with --elastic=MIN:MAX takes in new "
                            "workers, and this process has no such option");
        return LS_USAGE;
    }
    if (!most)
        return LS_OK;
    if (least == 0 || least > most || most > LS_MOST_ELASTIC) {
        ls_error("cluster", "--elastic=%u:%u: expected MIN:MAX, 1 <= MIN <= MAX <= %d", least, most,
                 LS_MOST_ELASTIC);
        return LS_USAGE;
    }
    if (place->servers) {
        ls_error("cluster", "--elastic is for workers without parameter servers, whose workers may "
                            "come and go anyway");
        return LS_USAGE;
    }
    if (!place->joins && (place->workers < least || place->workers > most)) {
        ls_error("cluster", "--elastic=%u:%u, but the training begins with %u workers", least, most,
                 place->workers);
        return LS_USAGE;
    }
    return LS_OK;
}

static enum ls_status check_options(const struct ls_cluster_options *options)
{
    const struct ls_worker_place *place = options->place;
    const bool server = place->role == LS_ROLE_SERVER;
    const enum ls_status status = check_elastic(options);
    if (status)
        return status;
    if ((!place->joins && place->number >= (server ? place->servers : place->workers)) ||
        (!server && options->count == 0)) {
        ls_error("cluster", "%s %u of %u: numbers begin at 0, and each worker has a replica",
                 server ? "server" : "worker", place->number,
                 server ? place->servers : place->workers);
        return LS_USAGE;
    }
    if ((uint64_t)place->workers + place->servers > LS_MOST_MEMBERS) {
        ls_error("cluster", "%u workers and %u servers: expected at most %d in all", place->workers,
                 place->servers, LS_MOST_MEMBERS);
        return LS_USAGE;
    }
    if (!*place->address && place->listen_fd < 0 && (!*place->pmix_name || place->joins)) {
        ls_error("cluster", "the address of worker 0 is not known: set LOCKSTEP_ADDRESS=host:port "
                            "on all workers");
        return LS_USAGE;
    }
    return LS_OK;
}

static struct ls_cluster_options with_defaults(const struct ls_cluster_options *options)
{
    struct ls_cluster_options out = *options;
    if (!out.join_deadline_ns)
        out.join_deadline_ns = LS_JOIN_DEADLINE_NS;
    if (!out.deadline_ns)
        out.deadline_ns = LS_CLUSTER_DEADLINE_NS;
    if (!out.silence_ns)
        out.silence_ns = LS_SILENCE_NS;
    if (out.silence_ns < LEAST_SILENCE_NS)
        out.silence_ns = LEAST_SILENCE_NS;
    return out;
}

static bool is_chief(const struct ls_worker_place *place)
{
    return place->role == LS_ROLE_WORKER && place->number == 0 && !place->joins;
}

// ---- Meeting through PMIx ----

// Worker 0 has no address to listen at: any port does, on all interfaces where others than this
// host's must reach it. It keeps the socket while it tells the port.
static enum ls_status listen_anywhere(struct ls_worker_place *place, uint16_t *port)
{
    const bool one_host = place->local_workers == place->workers;
    const struct ls_listening where = {
        .name = "worker 0", .address = "127.0.0.1", .everywhere = !one_host, .inherited = -1};
    const enum ls_status status = ls_socket_listen(&where, &place->listen_fd);
    if (!status)
        *port = ls_socket_port(place->listen_fd);
    return status;
}

// All workers find out that they lack a secret before they wait for each other.
static enum ls_status meet(const struct ls_cluster_options *options, struct ls_worker_place *place)
{
    uint16_t port = 0;
    if (*place->address || place->listen_fd >= 0 || place->joins)
        return LS_OK;
    if (place->local_workers != place->workers && !options->secret && !options->insecure)
        return refuse_without_secret(place);
    const enum ls_status status = place->number ? LS_OK : listen_anywhere(place, &port);
    return status ? status : ls_worker_place_meet(place, port, options->join_deadline_ns);
}

// ---- Joining ----

static void describe(struct ls_cluster *cluster, const struct ls_cluster_options *options)
{
    const struct ls_worker_place *place = options->place;
    const char *trust = options->secret     ? "authenticated"
                        : options->insecure ? "not authenticated (--insecure)"
                                            : "on this machine only";
    ls_worker_place_describe(place, cluster->about, sizeof(cluster->about));
    const size_t length = strlen(cluster->about);
    snprintf(cluster->about + length, sizeof(cluster->about) - length, ", store at %s:%u, %s",
             place->address, place->port, trust);
}

// Once: to the store, and until all are there.
static enum ls_status enter(const struct ls_cluster_options *options, const uint8_t *key,
                            struct ls_cluster *cluster, const struct ls_welcome **welcome)
{
    struct ls_connection connection = {.fd = -1};
    enum ls_status status = is_chief(options->place)
                                ? open_store(options, key, cluster, &connection)
                                : reach_store(options, key, cluster, &connection);
    if (!status)
        status = ls_member_open(&connection, options, ls_elastic_reserve(cluster->elastic),
                                &cluster->member);
    ls_connection_finish(&connection);
    return status ? status
                  : ls_member_wait_welcome(cluster->member, options->join_deadline_ns, welcome);
}

// A new worker whose store is lost looks for the one that takes over.
static enum ls_status enter_in_the_end(const struct ls_cluster_options *options, const uint8_t *key,
                                       struct ls_cluster *cluster,
                                       const struct ls_welcome **welcome)
{
    struct ls_cluster_options left = *options;
    const uint64_t begin = ls_clock_ns();
    for (;;) {
        const enum ls_status status = enter(&left, key, cluster, welcome);
        const uint64_t passed = ls_clock_ns() - begin;
        if (status != LS_AGAIN)
            return status;
        ls_member_close(cluster->member);
        cluster->member = NULL;
        if (passed + AGAIN_NS >= options->join_deadline_ns) {
            ls_error("cluster", "worker 0 at %s:%u was lost before it took this worker in",
                     options->place->address, options->place->port);
            return LS_PEER_LOST;
        }
        nanosleep(&(struct timespec){.tv_nsec = AGAIN_NS}, NULL);
        left.join_deadline_ns = options->join_deadline_ns - passed - AGAIN_NS;
    }
}

// Takes place->listen_fd.
static enum ls_status join_many(const struct ls_cluster_options *options,
                                struct ls_cluster *cluster)
{
    const struct ls_worker_place *place = options->place;
    const struct ls_welcome *welcome;
    uint8_t key[LS_SECURE_KEY];
    enum ls_status status = ls_secure_key(options->secret, key);
    if (!status && options->most_workers)
        status = ls_elastic_create(options, key, &cluster->elastic);
    if (status && place->listen_fd >= 0)
        close(place->listen_fd);
    describe(cluster, options);
    cluster->serves = place->role == LS_ROLE_SERVER;
    if (!status)
        status = enter_in_the_end(options, key, cluster, &welcome);
    sodium_memzero(key, LS_SECURE_KEY);
    if (status)
        return status;
    cluster->generation = welcome->generation;
    const uint32_t number = cluster->serves ? place->number : welcome->number;
    return ls_cluster_settle(cluster, number, welcome->workers, welcome->counts, welcome->hosts);
}

// Takes place->listen_fd.
static enum ls_status join_at(const struct ls_cluster_options *options,
                              struct ls_worker_place *place, struct ls_cluster **out)
{
    struct ls_cluster_options here = *options;
    here.place = place;
    const uint64_t begin = ls_clock_ns();
    const bool known = place->address[0];
    enum ls_status status = meet(options, place);
    const uint64_t passed = ls_clock_ns() - begin;
    if (!status && !known && passed < options->join_deadline_ns)
        here.join_deadline_ns -= passed;
    if (place->listen_fd >= 0 && (status || !is_chief(place))) {
        close(place->listen_fd);
        place->listen_fd = -1;
    }
    struct ls_cluster *cluster = NULL;
    if (!status)
        status = ls_cluster_create(&cluster);
    if (!status)
        status = join_many(&here, cluster);
    if (status)
        ls_cluster_close(cluster);
    else
        *out = cluster;
    return status;
}

enum ls_status ls_cluster_join(const struct ls_cluster_options *options, struct ls_cluster **out)
{
    const struct ls_cluster_options whole = with_defaults(options);
    struct ls_worker_place place = *options->place;
    const bool alone =
        place.workers == 1 && place.servers == 0 && !options->most_workers && !place.joins;
    const enum ls_status status = alone ? LS_OK : check_options(&whole);
    if (place.listen_fd >= 0 && (alone || status))
        close(place.listen_fd);
    if (status)
        return status;
    return alone ? ls_cluster_open_alone(options->count, out) : join_at(&whole, &place, out);
}
