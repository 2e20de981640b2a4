// SPDX-License-Identifier: Apache-2.0
// Messages between workers and a parameter server's end: whole, in order, bounded, and of nobody
// else.
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/wire/door.h"
#include "core/wire/service.h"
#include "tests/core/cluster/processes.h"
#include "tests/support/suite.h"

#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

static const char secret[] = "a secret of many letters";
static const char other_secret[] = "another secret of letters";

// A service, and a thread with a worker's end.
struct pair {
    struct ls_service *service;
    struct ls_reach target;
    bool sealed;
    uint8_t key[LS_SECURE_KEY];
    uint16_t port;
    pthread_t thread;
    enum ls_status status; // of the worker
    uint64_t number;
};

static struct ls_channel_wait patient = {.patience_ns = 20 * SECOND};

static void open_pair(struct pair *pair, const char *text, uint32_t most)
{
    memset(pair, 0, sizeof(*pair));
    struct ls_service_options options = {
        .listener = crew_listen(&pair->port), .sealed = text != NULL, .most_peers = most};
    ck_assert_int_eq(fcntl(options.listener, F_SETFL, O_NONBLOCK), 0);
    ck_assert_int_eq(ls_channel_key(text, pair->key), LS_OK);
    memcpy(options.key, pair->key, sizeof(pair->key));
    ck_assert_int_eq(ls_service_open(&options, &pair->service), LS_OK);
    pair->sealed = text != NULL;
    pair->target = (struct ls_reach){.name = "server 0",
                                     .address = "127.0.0.1",
                                     .port = pair->port,
                                     .key = pair->key,
                                     .open_to_all = text == NULL,
                                     .patience_ns = 20 * SECOND,
                                     .own = "worker",
                                     .all = "workers and servers",
                                     .expected = "the same secret"};
}

static void begin(struct pair *pair, void *(*run)(void *context))
{
    ck_assert_int_eq(pthread_create(&pair->thread, NULL, run, pair), 0);
}

static struct ls_service_event expect_event(struct pair *pair, enum ls_service_event_kind kind)
{
    struct ls_service_event event;
    const uint64_t end = ls_clock_ns() + 20 * SECOND;
    enum ls_status status = LS_AGAIN;
    while (status == LS_AGAIN && ls_clock_ns() < end)
        status = ls_service_next(pair->service, SECOND / 10, &event);
    ck_assert_int_eq(status, LS_OK);
    ck_assert_int_eq(event.kind, kind);
    return event;
}

static void end_pair(struct pair *pair)
{
    pthread_join(pair->thread, NULL);
    ls_service_close(pair->service);
}

// ---- Messages ----

#define SIZES 8
static const size_t sizes[SIZES] = {0, 1, 4095, 65536, 65537, 200000, 1 << 20, 3 << 20};

static uint8_t byte_at(size_t i, uint32_t salt)
{
    return (uint8_t)(i * 31 + i / 251 + salt);
}

static void *echo_all(void *context)
{
    struct pair *pair = context;
    struct ls_channel channel;
    uint8_t *data = malloc(3 << 20), *back = malloc(3 << 20);
    pair->status = ls_channel_reach(&pair->target, pair->sealed, &channel);
    for (uint32_t k = 0; !pair->status && k < SIZES; k++) {
        for (size_t i = 0; i < sizes[k]; i++)
            data[i] = byte_at(i, k);
        const size_t half = sizes[k] / 2;
        const struct ls_channel_piece pieces[] = {{data, half}, {data + half, sizes[k] - half}};
        uint32_t kind = 0;
        uint64_t bytes = 0;
        pair->status = ls_channel_send(&channel, 100 + k, pieces, 2, &patient);
        if (!pair->status)
            pair->status = ls_channel_receive(&channel, &kind, &bytes, &patient);
        if (!pair->status && (kind != 200 + k || bytes != sizes[k]))
            pair->status = LS_FAILED;
        if (!pair->status)
            pair->status = ls_channel_read(&channel, back, bytes, &patient);
        if (!pair->status && memcmp(back, data, bytes) != 0)
            pair->status = LS_FAILED;
        pair->number++;
    }
    ls_channel_finish(&channel);
    free(data);
    free(back);
    return NULL;
}

LOOP_TEST(messages_of_all_sizes_come_whole_and_in_order, 0, 2)
{
    struct pair pair;
    open_pair(&pair, _i ? secret : NULL, 1);
    begin(&pair, echo_all);
    const uint32_t peer = expect_event(&pair, LS_SERVICE_OPENED).peer;
    ls_service_allow(pair.service, peer, 3 << 20);
    for (uint32_t k = 0; k < SIZES; k++) {
        const struct ls_service_event event = expect_event(&pair, LS_SERVICE_MESSAGE);
        ck_assert_uint_eq(event.peer, peer);
        ck_assert_uint_eq(event.message, 100 + k);
        ck_assert_uint_eq(event.bytes, sizes[k]);
        for (size_t i = 0; i < event.bytes; i++)
            ck_assert_uint_eq(event.data[i], byte_at(i, k));
        const struct ls_channel_piece piece = {event.data, event.bytes};
        ls_service_send(pair.service, peer, 200 + k, &piece, 1);
    }
    expect_event(&pair, LS_SERVICE_CLOSED);
    end_pair(&pair);
    ck_assert_int_eq(pair.status, LS_OK);
    ck_assert_uint_eq(pair.number, SIZES);
}

static void *send_large(void *context)
{
    struct pair *pair = context;
    struct ls_channel channel;
    uint8_t head[LS_CHANNEL_HEAD];
    pair->status = ls_channel_reach(&pair->target, pair->sealed, &channel);
    if (pair->status)
        return NULL;
    ls_channel_put_head(head, 1, pair->number);
    (void)!send(channel.connection.fd, head, sizeof(head), MSG_NOSIGNAL);
    uint32_t kind;
    uint64_t bytes;
    pair->status = ls_channel_receive(&channel, &kind, &bytes, &patient);
    ls_channel_finish(&channel);
    return NULL;
}

// No memory is taken for a length that nobody allowed.
LOOP_TEST(a_message_that_is_too_long_closes_its_connection, 0, 3)
{
    static const uint64_t lengths[] = {LS_SERVICE_FIRST_MESSAGE + 1, UINT64_C(1) << 30, UINT64_MAX};
    struct pair pair;
    open_pair(&pair, NULL, 1);
    pair.number = lengths[_i];
    begin(&pair, send_large);
    expect_event(&pair, LS_SERVICE_OPENED);
    expect_event(&pair, LS_SERVICE_CLOSED);
    end_pair(&pair);
    ck_assert_int_eq(pair.status, LS_PEER_LOST);
}

static void *send_damaged(void *context)
{
    struct pair *pair = context;
    struct ls_channel channel;
    pair->status = ls_channel_reach(&pair->target, pair->sealed, &channel);
    if (pair->status)
        return NULL;
    const struct ls_channel_piece piece = {"0123456789", 10};
    ck_assert_int_eq(ls_channel_queue(&channel, 1, &piece, 1), LS_OK);
    channel.connection.out[channel.connection.out_bytes - 3] ^= 1;
    (void)!ls_connection_flush(&channel.connection);
    uint32_t kind;
    uint64_t bytes;
    pair->status = ls_channel_receive(&channel, &kind, &bytes, &patient);
    ls_channel_finish(&channel);
    return NULL;
}

TEST(a_bit_that_was_changed_on_the_way_closes_the_connection)
{
    struct pair pair;
    open_pair(&pair, secret, 1);
    begin(&pair, send_damaged);
    expect_event(&pair, LS_SERVICE_OPENED);
    expect_event(&pair, LS_SERVICE_CLOSED);
    end_pair(&pair);
    ck_assert_int_eq(pair.status, LS_PEER_LOST);
}

// ---- A peer that does not read ----

static void *ask_and_sleep(void *context)
{
    struct pair *pair = context;
    struct ls_channel channel;
    pair->status = ls_channel_reach(&pair->target, pair->sealed, &channel);
    for (int i = 0; i < 50 && !pair->status; i++)
        pair->status = ls_channel_send(&channel, 1, NULL, 0, &patient);
    nap_ms(500);
    uint8_t *data = malloc(8 << 20);
    for (int i = 0; i < 50 && !pair->status; i++) {
        uint32_t kind;
        uint64_t bytes;
        pair->status = ls_channel_receive(&channel, &kind, &bytes, &patient);
        if (!pair->status)
            pair->status = ls_channel_read(&channel, data, bytes, &patient);
        pair->number += !pair->status;
    }
    free(data);
    ls_channel_finish(&channel);
    return NULL;
}

// It asks for 50 answers of 8 MiB; the server never holds more than one that is not taken.
TEST(who_does_not_read_is_not_listened_to)
{
    struct pair pair;
    uint8_t *data = calloc(1, 8 << 20);
    uint32_t heard = 0;
    open_pair(&pair, NULL, 1);
    begin(&pair, ask_and_sleep);
    const uint32_t peer = expect_event(&pair, LS_SERVICE_OPENED).peer;
    const uint64_t end = ls_clock_ns() + SECOND / 4;
    while (ls_clock_ns() < end) {
        struct ls_service_event event;
        if (ls_service_next(pair.service, SECOND / 100, &event))
            continue;
        const struct ls_channel_piece piece = {data, 8 << 20};
        ls_service_send(pair.service, peer, 2, &piece, 1);
        heard++;
    }
    ck_assert_uint_ge(heard, 1);
    ck_assert_uint_lt(heard, 4);
    for (; heard < 50; heard++) {
        expect_event(&pair, LS_SERVICE_MESSAGE);
        const struct ls_channel_piece piece = {data, 8 << 20};
        ls_service_send(pair.service, peer, 2, &piece, 1);
    }
    expect_event(&pair, LS_SERVICE_CLOSED);
    end_pair(&pair);
    free(data);
    ck_assert_int_eq(pair.status, LS_OK);
    ck_assert_uint_eq(pair.number, 50);
}

// ---- Strangers ----

static void *come_with_another_secret(void *context)
{
    struct pair *pair = context;
    struct ls_channel channel;
    uint8_t key[LS_SECURE_KEY];
    if (ls_channel_key(other_secret, key))
        return NULL;
    pair->target.key = key;
    pair->status = ls_channel_reach(&pair->target, pair->sealed, &channel);
    return NULL;
}

TEST(another_secret_is_refused)
{
    struct pair pair;
    struct ls_service_event event;
    open_pair(&pair, secret, 1);
    begin(&pair, come_with_another_secret);
    for (int i = 0; i < 100 && !ls_service_strangers(pair.service); i++)
        ck_assert_int_eq(ls_service_next(pair.service, SECOND / 10, &event), LS_AGAIN);
    end_pair(&pair);
    ck_assert_int_eq(pair.status, LS_USAGE);
}

// The key of servers is not that of the store: what was said to one is nothing to the other.
TEST(the_key_is_not_that_of_the_store)
{
    uint8_t store[LS_SECURE_KEY], server[LS_SECURE_KEY];
    ck_assert_int_eq(ls_secure_key(secret, store), LS_OK);
    ck_assert_int_eq(ls_channel_key(secret, server), LS_OK);
    ck_assert_mem_ne(store, server, LS_SECURE_KEY);
}

static int connect_here(uint16_t port)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

TEST(strangers_are_dropped_and_workers_still_served)
{
    struct pair pair;
    struct ls_service_event event;
    int fds[LS_MOST_STRANGERS + 20];
    const int count = (int)(sizeof(fds) / sizeof(fds[0]));
    open_pair(&pair, secret, 1);
    for (int i = 0; i < count; i++) {
        fds[i] = connect_here(pair.port);
        if (i % 2)
            (void)!send(fds[i], "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL);
        ck_assert_int_eq(ls_service_next(pair.service, 0, &event), LS_AGAIN);
    }
    begin(&pair, echo_all);
    const uint32_t peer = expect_event(&pair, LS_SERVICE_OPENED).peer;
    ls_service_allow(pair.service, peer, 3 << 20);
    for (uint32_t k = 0; k < SIZES; k++) {
        const struct ls_service_event message = expect_event(&pair, LS_SERVICE_MESSAGE);
        const struct ls_channel_piece piece = {message.data, message.bytes};
        ls_service_send(pair.service, peer, 200 + k, &piece, 1);
    }
    expect_event(&pair, LS_SERVICE_CLOSED);
    ck_assert_uint_ge(ls_service_strangers(pair.service), (uint64_t)count / 2);
    end_pair(&pair);
    for (int i = 0; i < count; i++)
        close(fds[i]);
    ck_assert_int_eq(pair.status, LS_OK);
}

#define CROWD 10000

TEST(a_crowd_that_comes_and_goes_is_counted)
{
    struct pair pair;
    struct ls_service_event event;
    open_pair(&pair, secret, 1);
    for (int i = 0; i < CROWD; i++) {
        const int fd = connect_here(pair.port);
        (void)!send(fd, "GET / HTTP/1.0\r\n\r\n", i % 2 ? 18 : 4, MSG_NOSIGNAL);
        close(fd);
        ck_assert_int_eq(ls_service_next(pair.service, 0, &event), LS_AGAIN);
    }
    for (int i = 0; i < 100 && ls_service_strangers(pair.service) < CROWD; i++)
        ck_assert_int_eq(ls_service_next(pair.service, SECOND / 20, &event), LS_AGAIN);
    ck_assert_uint_eq(ls_service_strangers(pair.service), CROWD);
    begin(&pair, echo_all);
    const uint32_t peer = expect_event(&pair, LS_SERVICE_OPENED).peer;
    ls_service_allow(pair.service, peer, 3 << 20);
    for (uint32_t k = 0; k < SIZES; k++) {
        const struct ls_service_event message = expect_event(&pair, LS_SERVICE_MESSAGE);
        const struct ls_channel_piece piece = {message.data, message.bytes};
        ls_service_send(pair.service, peer, 200 + k, &piece, 1);
    }
    expect_event(&pair, LS_SERVICE_CLOSED);
    end_pair(&pair);
    ck_assert_int_eq(pair.status, LS_OK);
}

static atomic_bool has_come;

static void *speak_always(void *context)
{
    struct pair *pair = context;
    struct ls_channel channel;
    pair->status = ls_channel_reach(&pair->target, pair->sealed, &channel);
    while (!pair->status && !atomic_load(&has_come))
        pair->status = ls_channel_send(&channel, 1, NULL, 0, &patient);
    ls_channel_finish(&channel);
    return NULL;
}

static void *come_in(void *context)
{
    const struct pair *pair = context;
    struct ls_channel channel;
    if (!ls_channel_reach(&pair->target, pair->sealed, &channel))
        ls_channel_finish(&channel);
    return NULL;
}

TEST(who_comes_is_let_in_although_another_one_always_speaks)
{
    struct pair pair;
    struct ls_service_event event;
    pthread_t second;
    open_pair(&pair, secret, 2);
    begin(&pair, speak_always);
    expect_event(&pair, LS_SERVICE_OPENED);
    expect_event(&pair, LS_SERVICE_MESSAGE);
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL); // until many messages wait
    ck_assert_int_eq(pthread_create(&second, NULL, come_in, &pair), 0);
    const uint64_t end = ls_clock_ns() + 5 * SECOND;
    while (!atomic_load(&has_come) && ls_clock_ns() < end) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); // slower than it speaks
        if (ls_service_next(pair.service, SECOND, &event) == LS_OK)
            atomic_store(&has_come, event.kind == LS_SERVICE_OPENED);
    }
    ck_assert(atomic_load(&has_come));
    ls_service_close(pair.service); // the first one waits until somebody reads
    pthread_join(pair.thread, NULL);
    pthread_join(second, NULL);
}

// Whoever has recorded a worker's handshake sends it again: the server's nonce is another one then.
static void *repeat_a_handshake(void *context)
{
    struct pair *pair = context;
    uint8_t greeting[LS_SECURE_GREETING], proof[LS_SECURE_PROOF], answer[LS_SECURE_PROOF];
    static const uint8_t zeros[LS_SECURE_PROOF];
    struct ls_secure secure;
    ls_secure_init(&secure, pair->key);
    ls_secure_greet(&secure, greeting);
    for (int turn = 0; turn < 2 && !pair->status; turn++) { // 0: the true worker
        const int fd = connect_here(pair->port);
        bool right = send(fd, greeting, sizeof(greeting), 0) == (ssize_t)sizeof(greeting) &&
                     recv(fd, answer, LS_SECURE_NONCE, MSG_WAITALL) == LS_SECURE_NONCE;
        if (right && turn == 0)
            ls_secure_prove(&secure, answer, proof);
        right = right && send(fd, proof, sizeof(proof), 0) == (ssize_t)sizeof(proof) &&
                recv(fd, answer, sizeof(answer), MSG_WAITALL) == (ssize_t)sizeof(answer) &&
                (memcmp(answer, zeros, sizeof(zeros)) == 0) == (turn == 1);
        pair->status = right ? LS_OK : LS_FAILED;
        close(fd);
    }
    return NULL;
}

TEST(a_recorded_handshake_is_worth_nothing)
{
    struct pair pair;
    struct ls_service_event event;
    open_pair(&pair, secret, 2);
    begin(&pair, repeat_a_handshake);
    expect_event(&pair, LS_SERVICE_OPENED);
    expect_event(&pair, LS_SERVICE_CLOSED);
    for (int i = 0; i < 100 && !ls_service_strangers(pair.service); i++)
        ck_assert_int_eq(ls_service_next(pair.service, SECOND / 10, &event), LS_AGAIN);
    ck_assert_uint_eq(ls_service_strangers(pair.service), 1);
    end_pair(&pair);
    ck_assert_int_eq(pair.status, LS_OK);
}

TEST(nobody_there_is_said_after_the_patience)
{
    struct ls_channel channel;
    uint8_t key[LS_SECURE_KEY];
    uint16_t port;
    close(crew_listen(&port));
    ck_assert_int_eq(ls_channel_key(NULL, key), LS_OK);
    const struct ls_reach target = {.name = "server 7",
                                    .address = "127.0.0.1",
                                    .port = port,
                                    .key = key,
                                    .patience_ns = SECOND / 5};
    char *error = NULL;
    ls_log_keep(&error);
    ck_assert_int_eq(ls_channel_reach(&target, false, &channel), LS_PEER_LOST);
    ls_log_keep(NULL);
    ck_assert_ptr_nonnull(error);
    ck_assert_ptr_nonnull(strstr(error, "server 7 did not answer"));
    free(error);
}
