// SPDX-License-Identifier: Apache-2.0
// The cluster of a worker: how it comes into it, what the workers tell each other, and how those
// that are left form anew.
#include "core/cluster/cluster.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/cluster/liveness.h"
#include "core/cluster/member.h"
#include "core/cluster/store.h"
#include "core/wire/connection.h"
#include "core/wire/reach.h"
#include "core/wire/sockets.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_RANKS (UINT32_C(1) << 20) // more is taken for a mistake
#define LEAST_SILENCE_NS UINT64_C(1000000000) // two beats must fit in it
#define AGAIN_NS 100000000L // until a new worker looks for a store again
#define EXPECTED_SECRET                                                                           \
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

// ---- Who takes part ----

// Of no workers yet.
static enum ls_status create(struct ls_cluster **out)
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

// Takes note of who takes part. Worker i has counts[i] ranks; `hosts` NULL: all on one host.
// `number`: of this worker, or of this server.
static enum ls_status settle(struct ls_cluster *cluster, uint32_t number, uint32_t workers,
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

// ---- What an elastic cluster keeps ----

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

static void elastic_destroy(struct ls_elastic *elastic)
{
    if (!elastic)
        return;
    if (elastic->reserve >= 0)
        close(elastic->reserve);
    free(elastic->agreement);
    sodium_memzero(elastic->key, sizeof(elastic->key));
    free(elastic);
}

// Keeps copies of the options.
static enum ls_status elastic_create(const struct ls_cluster_options *options, const uint8_t *key,
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
        elastic_destroy(elastic);
        return LS_OUT_OF_MEMORY;
    }
    *out = elastic;
    return LS_OK;
}

// `like` says on which of this machine's addresses the reserve listens: where others reach its
// store, for worker 0.
static enum ls_status elastic_listen(struct ls_elastic *elastic, int like)
{
    if (elastic->reserve >= 0)
        return LS_OK;
    if (ls_socket_listen_beside(like, &elastic->reserve)) {
        ls_error("cluster", "no port for the time when worker 0 is lost: the system gives none");
        return LS_FAILED;
    }
    return LS_OK;
}

// -1: it is not elastic.
static int elastic_reserve(const struct ls_elastic *elastic)
{
    return elastic ? elastic->reserve : -1;
}

// ---- Alone, and the end ----

enum ls_status ls_cluster_open_alone(uint32_t count, struct ls_cluster **out)
{
    struct ls_cluster *cluster;
    enum ls_status status = create(&cluster);
    if (status)
        return status;
    snprintf(cluster->about, sizeof(cluster->about), "this process trains alone");
    status = settle(cluster, 0, 1, &count, NULL);
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
    elastic_destroy(cluster->elastic);
    pthread_mutex_destroy(&cluster->lock);
    free_tables(tables_of(cluster));
    free(cluster);
}

// ---- Joining: worker 0 ----

// The store of this worker, and its own connection to it. Takes the listener; `own` is not set yet.
static enum ls_status open_own_store(struct ls_cluster *cluster,
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
        status = elastic_listen(cluster->elastic, store.listener);
    if (status) {
        close(store.listener);
        return status;
    }
    ls_socket_own_host(store.listener, cluster->store_host, sizeof(cluster->store_host));
    memcpy(store.key, key, sizeof(store.key));
    status = open_own_store(cluster, &store, connection);
    sodium_memzero(store.key, sizeof(store.key));
    return status;
}

// ---- Joining: all others ----

static enum ls_status reach_store(const struct ls_cluster_options *options, const uint8_t *key,
                                  struct ls_cluster *cluster, struct ls_connection *connection)
{
    const struct ls_worker_place *place = options->place;
    const bool apart = options->departed != NULL;
    char advice[96];
    char all[24] = "both";
    if (place->workers != 2)
        snprintf(all, sizeof(all), "all %u", place->workers);
    snprintf(advice, sizeof(advice), "start %s %s", all,
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
                          : EXPECTED_SECRET,
        .advice = advice};
    const enum ls_status status = ls_reach(&reach, connection);
    if (!status)
        ls_socket_peer_host(connection->fd, cluster->store_host, sizeof(cluster->store_host));
    if (status || !cluster->elastic)
        return status;
    ls_socket_peer_host(connection->fd, cluster->elastic->begin_host,
                        sizeof(cluster->elastic->begin_host));
    return elastic_listen(cluster->elastic, connection->fd);
}

// ---- Joining: options ----

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

// ---- Joining: where PMIx says the address ----

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
        status = ls_member_open(&connection, options, elastic_reserve(cluster->elastic),
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
        status = elastic_create(options, key, &cluster->elastic);
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
    return settle(cluster, number, welcome->workers, welcome->counts, welcome->hosts);
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
        status = create(&cluster);
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

// ---- What workers tell each other ----

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
    // What the others had sent was here, even if they have left since; that they have is known
    // soon.
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

// ---- Forming anew, where worker 0 is lost ----

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
    if (elastic_listen(elastic, store.listener)) {
        close(store.listener);
        return LS_FAILED;
    }
    memcpy(store.key, elastic->key, sizeof(store.key));
    ls_info("cluster", "this worker takes over as worker 0, with the store at %s", address);
    const enum ls_status status = open_own_store(cluster, &store, connection);
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
                                   .expected = EXPECTED_SECRET};
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
                                         elastic_reserve(elastic), address, deadline_ns, out);
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

// ---- Forming anew ----

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
        status =
            settle(cluster, welcome->number, welcome->workers, welcome->counts, welcome->hosts);
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

// ---- Questions ----

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
