// SPDX-License-Identifier: Apache-2.0
// Damaged frames for both ends of the cluster's protocol, and damaged handshakes: refused or
// harmless. Run it under sanitizers.
//
//     fuzz_cluster serve|member|strangers SECONDS SEED
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "core/base/log.h"
#include "core/cluster/member.h"
#include "core/cluster/store_internal.h"
#include "core/wire/reach.h"
#include "tests/fuzz/mutate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#define WORKERS 3
#define SERVERS 1
#define MEMBERS (WORKERS + SERVERS)
#define PEERS (MEMBERS + 2)
#define SECOND UINT64_C(1000000000)

static const char secret[] = "a secret for damaged frames";
static unsigned long taken, refused, formed_anew;
static struct ls_frame frame;

static void quiet(void *context, uint32_t level, const char *line)
{
    (void)context;
    (void)level;
    (void)line;
}

static int fail(uint64_t seed, const char *what)
{
    fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed, what);
    return 1;
}

// A copy of just the bytes of `frame`, so that a sanitizer sees what is read behind them.
static uint8_t *damaged_copy(uint64_t *state, size_t *bytes)
{
    uint8_t *data = malloc(frame.bytes);
    if (!data)
        exit(2);
    memcpy(data, frame.data, frame.bytes);
    *bytes = fuzz_below(state, 4) ? fuzz_mutate(state, data, frame.bytes) : frame.bytes;
    uint8_t *exact = malloc(*bytes ? *bytes : 1);
    if (!exact)
        exit(2);
    memcpy(exact, data, *bytes);
    free(data);
    return exact;
}

static void put_filling(uint64_t *state, size_t most)
{
    static const uint8_t filling[LS_FRAME_PLAIN];
    ls_frame_put_bytes(&frame, filling, fuzz_below(state, most));
}

static void put_join(uint64_t *state)
{
    static const char *const names[] = {"--model", "--optimizer", "--seed"};
    const uint8_t role = fuzz_below(state, 4) ? LS_ROLE_WORKER : LS_ROLE_SERVER;
    const uint32_t count = (uint32_t)fuzz_below(state, 4);
    ls_frame_begin(&frame, LS_FRAME_JOIN, 0);
    ls_frame_put_u8(&frame, role);
    ls_frame_put_u8(&frame, fuzz_below(state, 4) ? LS_JOIN_FIRST : (uint8_t)fuzz_below(state, 4));
    ls_frame_put_u32(&frame, (uint32_t)fuzz_below(state, WORKERS + 1));
    ls_frame_put_u32(&frame, WORKERS);
    ls_frame_put_u32(&frame, SERVERS);
    ls_frame_put_u32(&frame, role == LS_ROLE_SERVER ? 0 : 1 + count);
    ls_frame_put_u32(&frame, 0);
    ls_frame_put_u64(&frame, fuzz_random(state));
    ls_frame_put_u16(&frame, 0);
    ls_frame_put_text(&frame, fuzz_below(state, 2) ? "here" : "there");
    ls_frame_put_text(&frame, "host");
    ls_frame_put_u16(&frame, (uint16_t)count);
    for (uint32_t i = 0; i < count; i++) {
        ls_frame_put_text(&frame, names[i % 3]);
        ls_frame_put_text(&frame, fuzz_below(state, 8) ? "same" : "other");
    }
}

// ---- The store's calls for members, and for those who want to be one ----

static void put_request(uint64_t *state, const struct ls_store *store, uint8_t kind)
{
    ls_frame_begin(&frame, kind, 0);
    switch (kind) {
    case LS_FRAME_BEAT:
        ls_frame_put_u64(&frame, fuzz_random(state));
        ls_frame_put_text(&frame, "bucket 0");
        break;
    case LS_FRAME_BLOCK:
        ls_frame_put_u64(&frame, store->sequence);
        ls_frame_put_u8(&frame, 1);
        ls_frame_put_u32(&frame, 0);
        ls_frame_put_u64(&frame, 8);
        put_filling(state, store->part + 1);
        break;
    case LS_FRAME_REFORM: ls_frame_put_u64(&frame, SECOND); break;
    case LS_FRAME_GIVE_UP: ls_frame_put_text(&frame, "no memory"); break;
    default: break;
    }
}

static struct ls_peer *make_peer(const uint8_t *key)
{
    struct ls_peer *peer = calloc(1, sizeof(*peer));
    if (!peer || ls_connection_init(&peer->connection, open("/dev/null", O_RDWR), key))
        exit(2);
    uint8_t head[LS_SECURE_PROOF];
    crypto_secretstream_xchacha20poly1305_init_push(&peer->connection.secure.send, head, key);
    peer->stage = LS_PEER_OPEN;
    peer->member = LS_NO_MEMBER;
    return peer;
}

static const char *what_is_wrong(const struct ls_store *store)
{
    uint32_t here = 0, blocks = 0, members = 0;
    for (uint32_t i = 0; i < store->members; i++) {
        const struct ls_store_member *member = &store->member[i];
        here += member->peer != NULL;
        blocks += member->has_block;
        if (member->block_bytes > store->part)
            return "a block is too long";
        if (member->peer && (member->peer->stage != LS_PEER_MEMBER || member->peer->member != i))
            return "a member has a connection that is not its own";
    }
    for (const struct ls_peer *peer = store->peers; peer; peer = peer->next) {
        members += peer->stage == LS_PEER_MEMBER;
        if ((peer->stage == LS_PEER_WAITING) != (peer->joiner != NULL) &&
            peer->stage != LS_PEER_LEAVING)
            return "a new worker is none";
    }
    return here != members                                 ? "members are not those that joined"
           : !store->most_workers && here != store->joined ? "members are miscounted"
           : blocks != store->blocks_here && !store->most_workers ? "blocks are not those that came"
           : store->most_workers && store->members > store->most_workers
               ? "there are more workers than the most"
           : store->frame.full ? "a message did not fit"
                               : NULL;
}

// A store without a thread, with members or none, and some connections that want to be members.
static struct ls_store *make_store(uint64_t *state, const uint8_t *key, struct ls_peer **peers)
{
    struct ls_store *store = calloc(1, sizeof(*store));
    if (!store)
        exit(2);
    const bool formed = fuzz_below(state, 2), elastic = fuzz_below(state, 2);
    store->epoll = -1;
    store->workers = WORKERS;
    store->servers = elastic ? 0 : SERVERS;
    store->members = WORKERS + store->servers;
    store->least_workers = elastic;
    store->most_workers = elastic ? MEMBERS : 0;
    store->reform_deadline_ns = store->silence_ns = store->join_deadline_ns = SECOND;
    store->deadline_ns = SECOND;
    store->part = ls_store_part(WORKERS);
    store->member = calloc(store->members, sizeof(*store->member));
    store->blocks = malloc(WORKERS * store->part);
    store->result = malloc(WORKERS * (store->part + 4));
    if (!store->member || !store->blocks || !store->result)
        exit(2);
    for (uint32_t i = 0; i < PEERS; i++) {
        peers[i] = make_peer(key);
        peers[i]->next = store->peers;
        peers[i]->own = i == 0;
        store->peers = peers[i];
    }
    for (uint32_t i = 0; i < store->members; i++) {
        store->member[i].probe = -1;
        if (!formed)
            continue;
        peers[i]->stage = LS_PEER_MEMBER;
        peers[i]->member = i;
        store->member[i].peer = peers[i];
        store->joined++;
        store->phase = LS_STORE_FORMED;
    }
    return store;
}

static void free_store(struct ls_store *store, struct ls_peer **peers)
{
    for (uint32_t i = 0; i < PEERS; i++) {
        ls_peer_end(store, peers[i]);
        free(peers[i]);
    }
    for (uint32_t i = 0; i < store->members; i++)
        free(store->member[i].agreement);
    free(store->member);
    free(store->blocks);
    free(store->result);
    free(store);
}

static void send_damaged(uint64_t *state, struct ls_store *store, struct ls_peer *peer)
{
    static const uint8_t kinds[] = {LS_FRAME_BEAT, LS_FRAME_BLOCK, LS_FRAME_GIVE_UP,
                                    LS_FRAME_GOODBYE, LS_FRAME_REFORM};
    uint8_t kind = kinds[fuzz_below(state, sizeof(kinds))];
    size_t bytes;
    if (peer->stage == LS_PEER_OPEN)
        put_join(state);
    else
        put_request(state, store, kind);
    uint8_t *data = damaged_copy(state, &bytes);
    struct ls_frame_reader reader = {.at = data, .left = bytes};
    kind = ls_frame_get_u8(&reader);
    const uint32_t generation = ls_frame_get_u32(&reader);
    const bool good =
        peer->stage == LS_PEER_OPEN
            ? ls_store_join(store, peer, generation, &reader)
            : ls_store_serve(store, peer, kind, generation < store->generation, &reader);
    free(data);
    taken += good;
    refused += !good;
}

static int fuzz_serve(double end_at, uint64_t seed)
{
    struct ls_peer *peers[PEERS];
    uint8_t key[LS_SECURE_KEY];
    struct ls_door *door;
    if (ls_secure_key(secret, key) || ls_door_open(key, &door))
        return 2;
    for (; fuzz_clock() < end_at; seed++) {
        uint64_t state = seed;
        struct ls_store *store = make_store(&state, key, peers);
        store->door = door;
        const char *wrong = NULL;
        for (int i = 0; i < 12 && !wrong; i++) {
            struct ls_peer *peer = peers[fuzz_below(&state, PEERS)];
            if (peer->stage == LS_PEER_OPEN || peer->stage == LS_PEER_MEMBER)
                send_damaged(&state, store, peer);
            store->clock.now_ns += fuzz_below(&state, SECOND / 4);
            ls_store_watch_members(store, true);
            ls_store_watch_reform(store);
            ls_store_count_waiting(store);
            formed_anew += store->generation && store->phase == LS_STORE_FORMED;
            wrong = what_is_wrong(store);
        }
        free_store(store, peers);
        if (wrong)
            return fail(seed, wrong);
    }
    ls_door_close(door);
    return formed_anew ? 0 : fail(seed, "no generation was formed");
}

// ---- A worker whose store sends damaged frames ----

static void put_answer(uint64_t *state, uint8_t kind)
{
    ls_frame_begin(&frame, kind, 0);
    switch (kind) {
    case LS_FRAME_WELCOME:
        ls_frame_put_u32(&frame, 1);
        ls_frame_put_u32(&frame, WORKERS);
        ls_frame_put_u32(&frame, 0);
        ls_frame_put_text(&frame, "host");
        ls_frame_put_u8(&frame, 0);
        for (uint32_t i = 0; i < WORKERS; i++) {
            ls_frame_put_u32(&frame, 1 + i);
            ls_frame_put_u32(&frame, 0);
        }
        break;
    case LS_FRAME_REFUSED:
    case LS_FRAME_LOST:
        ls_frame_put_u32(&frame, LS_PEER_LOST);
        if (kind == LS_FRAME_LOST)
            ls_frame_put_u32(&frame, 2);
        ls_frame_put_text(&frame, "worker 2 lost");
        break;
    case LS_FRAME_RESULT:
        ls_frame_put_u64(&frame, 0);
        ls_frame_put_u32(&frame, 4 * WORKERS + 8 * WORKERS);
        ls_frame_put_u32(&frame, 0);
        for (uint32_t i = 0; i < WORKERS; i++)
            ls_frame_put_u32(&frame, 8);
        for (uint32_t i = 0; i < WORKERS; i++)
            ls_frame_put_u64(&frame, i);
        break;
    default: ls_frame_put_u64(&frame, 1); put_filling(state, 100);
    }
}

static void send_answer(uint64_t *state, struct ls_connection *store, uint8_t kind, bool whole)
{
    put_answer(state, kind);
    if (!whole) {
        size_t bytes;
        uint8_t *data = damaged_copy(state, &bytes);
        memcpy(frame.data, data, bytes);
        frame.bytes = bytes;
        free(data);
    }
    if (!ls_connection_send(store, frame.data, frame.bytes))
        (void)!ls_connection_flush(store); // it may have closed the connection: refused
}

struct answers {
    struct ls_connection *store;
    uint64_t state;
};

// Gives the worker a moment to ask, and answers: in several parts, with what it asked for or not.
static void *answer_damaged(void *context)
{
    struct answers *answers = context;
    (void)poll(NULL, 0, 1);
    for (int i = 0; i < 3; i++) {
        const bool right = fuzz_below(&answers->state, 2);
        send_answer(&answers->state, answers->store,
                    right ? LS_FRAME_RESULT
                          : (uint8_t)(LS_FRAME_WELCOME + fuzz_below(&answers->state, 5)),
                    fuzz_below(&answers->state, 4) == 0);
    }
    (void)shutdown(answers->store->fd, SHUT_WR); // so that the worker waits for no more
    return NULL;
}

static int fuzz_one_member(uint64_t seed, const uint8_t *key)
{
    struct ls_worker_place place = {
        .role = LS_ROLE_WORKER, .number = 1, .workers = WORKERS, .listen_fd = -1};
    const struct ls_cluster_options options = {
        .place = &place, .count = 1, .deadline_ns = SECOND / 50, .silence_ns = SECOND};
    struct ls_connection worker, store;
    uint64_t state = seed;
    struct ls_member *member;
    if (ls_connection_pair(key, &worker, &store) || ls_member_open(&worker, &options, -1, &member))
        return 2;
    // Mostly the beginning is right, so that what follows meets a worker that waits for an answer.
    const struct ls_welcome *welcome;
    const bool whole = fuzz_below(&state, 8);
    send_answer(&state, &store, LS_FRAME_WELCOME, whole);
    const enum ls_status joined = ls_member_wait_welcome(member, SECOND / 50, &welcome);
    if (!joined) {
        struct answers answers = {.store = &store, .state = state};
        pthread_t thread;
        const uint8_t *result;
        size_t result_bytes;
        const uint64_t mine = 1;
        if (pthread_create(&thread, NULL, answer_damaged, &answers))
            return 2;
        taken += !ls_member_exchange(member, LS_OPERATION_GATHER, 0, 8, &mine, 8, &result,
                                     &result_bytes);
        pthread_join(thread, NULL);
    }
    refused += joined != LS_OK || ls_member_check(member, NULL) != LS_OK;
    ls_connection_finish(&store);
    ls_member_close(member);
    return 0;
}

static int fuzz_member(double end_at, uint64_t seed)
{
    uint8_t key[LS_SECURE_KEY];
    if (ls_secure_key(secret, key))
        return 2;
    int status = 0;
    for (; !status && fuzz_clock() < end_at; seed++)
        status = fuzz_one_member(seed, key);
    return status;
}

// ---- A store that damaged handshakes and first frames come to ----

static int connect_to(uint16_t port)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&at, sizeof(at)))
        exit(fail(0, "the store cannot be reached"));
    return fd;
}

static void be_a_stranger(uint64_t *state, uint16_t port, const uint8_t *key)
{
    struct ls_connection connection;
    uint8_t data[4096];
    if (ls_connection_init(&connection, connect_to(port), key))
        exit(2);
    if (fuzz_below(state, 4) == 0) {
        ls_secure_greet(&connection.secure, data);
        const size_t bytes = fuzz_mutate(state, data, LS_SECURE_GREETING);
        refused += send(connection.fd, data, bytes, MSG_NOSIGNAL) > 0;
    } else if (ls_shake_hands(&connection, 5 * SECOND, NULL) == LS_OK) {
        size_t bytes;
        put_join(state);
        uint8_t *join = damaged_copy(state, &bytes);
        memcpy(frame.data, join, bytes);
        frame.bytes = bytes;
        free(join);
        if (ls_connection_send(&connection, frame.data, frame.bytes))
            exit(2);
        if (fuzz_below(state, 4) == 0)
            fuzz_mutate(state, connection.out, connection.out_bytes);
        (void)!ls_connection_flush(&connection);
        taken++;
    }
    struct pollfd wait = {.fd = connection.fd, .events = POLLIN};
    if (fuzz_below(state, 2))
        (void)poll(&wait, 1, 1);
    ls_connection_finish(&connection);
}

static int fuzz_strangers(double end_at, uint64_t seed)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    struct ls_connection own, first;
    struct ls_store *store;
    struct ls_store_options options = {.workers = WORKERS,
                                       .servers = SERVERS,
                                       .join_deadline_ns = 3600 * SECOND,
                                       .deadline_ns = SECOND,
                                       .silence_ns = 3600 * SECOND,
                                       .address = "here"};
    options.listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (bind(options.listener, (struct sockaddr *)&at, sizeof(at)) ||
        listen(options.listener, 128) ||
        getsockname(options.listener, (struct sockaddr *)&at, &bytes))
        return 2;
    options.own = &first;
    if (ls_secure_key(secret, options.key) || ls_connection_pair(options.key, &own, &first) ||
        ls_store_open(&options, &store))
        return 2;
    for (; fuzz_clock() < end_at; seed++) {
        uint64_t state = seed;
        be_a_stranger(&state, ntohs(at.sin_port), options.key);
    }
    struct ls_connection connection;
    if (ls_connection_init(&connection, connect_to(ntohs(at.sin_port)), options.key) ||
        ls_shake_hands(&connection, 10 * SECOND, NULL))
        return fail(seed, "the store no longer answers");
    ls_connection_finish(&connection);
    ls_store_close(store);
    ls_connection_finish(&own);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    const double end_at = fuzz_clock() + strtod(argv[2], NULL);
    const uint64_t seed = strtoull(argv[3], NULL, 10);
    ls_log_set_writer(quiet, NULL);
    const int status = strcmp(argv[1], "serve") == 0    ? fuzz_serve(end_at, seed)
                       : strcmp(argv[1], "member") == 0 ? fuzz_member(end_at, seed)
                                                        : fuzz_strangers(end_at, seed);
    printf("%lu taken, %lu refused\n", taken, refused);
    return status ? status : !taken || !refused;
}
