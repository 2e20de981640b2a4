// SPDX-License-Identifier: Apache-2.0
// The store's thread: connections come, speak and go.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // eventfd
#endif
#include "core/cluster/store_internal.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/threads.h"
#include "core/wire/sockets.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EVENTS 1024 // taken at once; more than the members of most jobs
#define FRAMES 16 // read from one peer at once
#define FAREWELL_NS UINT64_C(1000000000)
#define LISTEN_NS UINT64_C(500000000)
#define JOIN_NS \
    UINT64_C(10000000000) // until who knows the secret has said what it wants, or heard it

uint64_t ls_store_strangers(const struct ls_store *store)
{
    return ls_door_all_strangers(store->door);
}

size_t ls_store_part(uint32_t workers)
{
    const size_t most = LS_FRAME_PLAIN - 64, whole = (size_t)256 << 10;
    const size_t part = whole / workers;
    return part > most ? most : part < 64 ? 64 : part;
}

// ---- Connections ----

static void watch(struct ls_store *store, int operation, int fd, uint32_t events, void *what)
{
    struct epoll_event event = {.events = events, .data = {.ptr = what}};
    (void)epoll_ctl(store->epoll, operation, fd, &event);
}

static void flush_peer(struct ls_store *store, struct ls_peer *peer)
{
    const enum ls_status status = ls_connection_flush(&peer->connection);
    const bool waits = status == LS_AGAIN; // a lost connection shows itself by an event
    if (waits != peer->watched_for_writing)
        watch(store, EPOLL_CTL_MOD, peer->connection.fd, waits ? EPOLLIN | EPOLLOUT : EPOLLIN,
              peer);
    peer->watched_for_writing = waits;
}

// Ends the connection; the struct stays until the events at hand are done, because one may name it.
void ls_peer_end(struct ls_store *store, struct ls_peer *peer)
{
    if (peer->stage == LS_PEER_GONE)
        return;
    if (peer->joiner)
        free(peer->joiner->agreement);
    free(peer->joiner);
    peer->joiner = NULL;
    // The kernel takes a closed descriptor out of epoll, but not where a child of this process has
    // it, too.
    watch(store, EPOLL_CTL_DEL, peer->connection.fd, 0, NULL);
    ls_connection_finish(&peer->connection);
    peer->stage = LS_PEER_GONE;
}

static void free_gone(struct ls_store *store)
{
    for (struct ls_peer **at = &store->peers; *at;) {
        struct ls_peer *peer = *at;
        if (peer->stage != LS_PEER_GONE) {
            at = &peer->next;
            continue;
        }
        *at = peer->next;
        free(peer);
    }
}

void ls_peer_send(struct ls_store *store, struct ls_peer *peer)
{
    // A peer whose queue is full does not read: its silence, or its closed connection, ends it.
    if (ls_connection_send(&peer->connection, store->frame.data, store->frame.bytes) == LS_OK)
        flush_peer(store, peer);
}

void ls_peer_dismiss(struct ls_store *store, struct ls_peer *peer)
{
    ls_peer_send(store, peer);
    if (peer->stage == LS_PEER_MEMBER)
        store->member[peer->member].peer = NULL;
    peer->stage = LS_PEER_LEAVING;
    peer->since_ns = store->clock.now_ns;
}

void ls_store_tell_all(struct ls_store *store)
{
    for (uint32_t i = 0; i < store->members; i++)
        if (store->member[i].peer)
            ls_peer_send(store, store->member[i].peer);
}

void ls_store_tell_waiting(struct ls_store *store)
{
    for (struct ls_peer *peer = store->peers; peer; peer = peer->next)
        if (peer->stage == LS_PEER_WAITING)
            ls_peer_send(store, peer);
}

// The connection of a member is over.
static void end_member(struct ls_store *store, struct ls_peer *peer, const char *why)
{
    struct ls_store_member *member = &store->member[peer->member];
    const uint32_t number = peer->member;
    member->peer = NULL;
    ls_peer_end(store, peer);
    if (store->phase == LS_STORE_JOINING)
        ls_store_leave_early(store, number);
    else if (!member->left)
        ls_store_lose(store, number, why);
}

// ---- Those that have come in ----

static enum ls_status add_peer(struct ls_store *store, struct ls_connection *connection, bool own)
{
    struct ls_peer *peer = calloc(1, sizeof(*peer));
    if (!peer) {
        ls_connection_finish(connection);
        return LS_OUT_OF_MEMORY;
    }
    peer->connection = *connection;
    sodium_memzero(connection, sizeof(*connection));
    peer->stage = LS_PEER_OPEN;
    peer->own = own;
    peer->since_ns = store->clock.now_ns;
    peer->member = LS_NO_MEMBER;
    peer->next = store->peers;
    store->peers = peer;
    watch(store, EPOLL_CTL_ADD, peer->connection.fd, EPOLLIN, peer);
    return LS_OK;
}

static void let_in(struct ls_store *store)
{
    struct ls_connection connection;
    while (ls_door_next(store->door, &connection) == LS_OK)
        (void)!add_peer(store, &connection, false);
}

// Who knew the secret and did not become a member.
static void turn_away(struct ls_store *store, struct ls_peer *peer, enum ls_stranger_reason reason)
{
    ls_door_count(store->door, &peer->connection, reason);
    ls_peer_end(store, peer);
}

// ---- Events ----

// False: the frame makes no sense.
static bool take_frame(struct ls_store *store, struct ls_peer *peer, size_t bytes)
{
    struct ls_frame_reader reader = {.at = store->plain, .left = bytes};
    const uint8_t kind = ls_frame_get_u8(&reader);
    const uint32_t generation = ls_frame_get_u32(&reader);
    if (reader.wrong)
        return false;
    if (peer->stage == LS_PEER_OPEN)
        return kind == LS_FRAME_JOIN && ls_store_join(store, peer, generation, &reader);
    if (peer->stage == LS_PEER_WAITING && kind == LS_FRAME_GOODBYE) {
        ls_peer_end(store, peer);
        return true;
    }
    if (peer->stage == LS_PEER_WAITING)
        return kind == LS_FRAME_BEAT || kind == LS_FRAME_GIVE_UP;
    return generation <= store->generation &&
           ls_store_serve(store, peer, kind, generation < store->generation, &reader);
}

static void read_peer(struct ls_store *store, struct ls_peer *peer)
{
    for (int i = 0; i < FRAMES && peer->stage <= LS_PEER_WAITING; i++) {
        size_t bytes;
        const enum ls_status status =
            ls_connection_receive(&peer->connection, store->plain, sizeof(store->plain), &bytes);
        if (status == LS_AGAIN)
            return;
        if (!status && take_frame(store, peer, bytes)) {
            if (peer->stage == LS_PEER_MEMBER || peer->stage == LS_PEER_WAITING)
                peer->since_ns = store->clock.now_ns;
            continue;
        }
        if (peer->stage == LS_PEER_OPEN)
            turn_away(store, peer,
                      status == LS_PEER_LOST ? LS_STRANGER_SILENT : LS_STRANGER_MALFORMED);
        else if (peer->stage == LS_PEER_WAITING)
            ls_peer_end(store, peer);
        else if (peer->stage == LS_PEER_MEMBER)
            end_member(store, peer,
                       status == LS_PEER_LOST   ? "its connection closed"
                       : status == LS_BAD_INPUT ? "what arrived was not what it sent"
                       : status                 ? "worker 0 has no memory for its message"
                                                : "its message makes no sense");
        return;
    }
}

// Whoever was told why it may not join: nothing it says counts any more.
static void end_leaving(struct ls_store *store, struct ls_peer *peer)
{
    if (ls_connection_read(&peer->connection, LS_SECURE_PROOF) != LS_AGAIN) {
        if (peer->connection.in_bytes < LS_SECURE_PROOF)
            ls_peer_end(store, peer);
        else
            peer->connection.in_bytes = 0;
    }
}

static void take_event(struct ls_store *store, const struct epoll_event *event)
{
    struct ls_peer *peer = event->data.ptr;
    if (event->data.ptr == &store->wake) {
        uint64_t count;
        (void)!read(store->wake, &count, sizeof(count));
    } else if (event->data.ptr == &store->door) {
        let_in(store);
    } else if (peer->stage != LS_PEER_GONE) {
        if (event->events & EPOLLOUT)
            flush_peer(store, peer);
        if (event->events & ~(uint32_t)EPOLLOUT) {
            if (peer->stage == LS_PEER_LEAVING)
                end_leaving(store, peer);
            else
                read_peer(store, peer);
        }
    }
}

// The last worker 0 may have listened there until now, although it was stopped.
static void listen_where_it_began(struct ls_store *store)
{
    int listener;
    if (!store->begin_host[0] || store->clock.now_ns < store->begin_at_ns)
        return;
    store->begin_at_ns = store->clock.now_ns + LISTEN_NS;
    enum ls_status status = ls_socket_listen_at(store->begin_host, store->begin_port, &listener);
    if (!status)
        status = ls_door_listen(store->door, listener);
    if (!status)
        ls_info("cluster", "new workers join at %s:%u", store->begin_host, store->begin_port);
    if (status != LS_AGAIN)
        store->begin_host[0] = '\0';
}

static void tick(struct ls_store *store, bool all_read)
{
    const uint64_t now = store->clock.now_ns;
    listen_where_it_began(store);
    let_in(store);
    for (struct ls_peer *peer = store->peers; peer; peer = peer->next) {
        const bool waits = peer->stage == LS_PEER_WAITING;
        if (peer->stage == LS_PEER_MEMBER || peer->stage == LS_PEER_GONE)
            continue;
        if (now - peer->since_ns <= (waits ? store->silence_ns : JOIN_NS))
            continue;
        if (waits && !all_read)
            continue;
        if (waits || peer->stage == LS_PEER_LEAVING)
            ls_peer_end(store, peer);
        else
            turn_away(store, peer, LS_STRANGER_SILENT);
    }
    if (store->phase == LS_STORE_JOINING)
        ls_store_watch_joining(store);
    ls_store_watch_members(store, all_read);
}

// All have heard the last word, but for a member that is lost because it is silent: it reads
// nothing.
static bool is_heard(const struct ls_store *store)
{
    for (const struct ls_peer *peer = store->peers; peer; peer = peer->next) {
        const bool silent = peer->stage == LS_PEER_MEMBER &&
                            store->clock.now_ns - peer->since_ns > store->silence_ns;
        if (peer->stage >= LS_PEER_MEMBER && peer->stage != LS_PEER_GONE && !silent &&
            ls_connection_is_unconfirmed(&peer->connection))
            return false;
    }
    return true;
}

static void *run(void *argument)
{
    struct ls_store *store = argument;
    struct epoll_event events[EVENTS];
    uint64_t end_ns = 0, passed = 0;
    for (;;) {
        const int wait_ms = end_ns || store->reforming ? 5 : (int)(store->beat_ns / 2000000);
        const int count = epoll_wait(store->epoll, events, EVENTS, wait_ms);
        passed += ls_own_clock_look(&store->clock, store->beat_ns);
        for (int i = 0; i < count; i++)
            take_event(store, &events[i]);
        if (passed >= store->beat_ns / 4 || count == 0) {
            tick(store, count < EVENTS); // after reading: what is still unread is no silence
            passed = 0;
        }
        ls_store_watch_reform(store);
        ls_store_count_waiting(store);
        free_gone(store);
        if (!end_ns && atomic_load(&store->stopping)) {
            end_ns = ls_clock_ns() + FAREWELL_NS;
            ls_frame_begin(&store->frame, LS_FRAME_GOODBYE, store->generation);
            ls_store_tell_all(store);
            ls_store_tell_waiting(store);
        }
        if (end_ns && (is_heard(store) || ls_clock_ns() > end_ns))
            return NULL;
    }
}

// ---- Opening, closing ----

static void destroy(struct ls_store *store)
{
    if (!store)
        return;
    for (struct ls_peer *peer = store->peers; peer; peer = peer->next)
        ls_peer_end(store, peer);
    free_gone(store);
    for (uint32_t i = 0; store->member && i < store->members; i++) {
        free(store->member[i].agreement);
        if (store->member[i].probe >= 0)
            close(store->member[i].probe);
    }
    ls_store_finish_meetings(store);
    ls_door_close(store->door);
    if (store->epoll >= 0)
        close(store->epoll);
    if (store->wake >= 0)
        close(store->wake);
    free(store->member);
    free(store->blocks);
    free(store->result);
    free(store);
}

// A store that takes over knows whom it waits for, and begins with the next generation.
static void take_over(struct ls_store *store, const struct ls_store_options *options)
{
    for (uint32_t i = 0; i < store->members; i++) {
        store->member[i].reserve = options->former[i].reserve;
        store->member[i].gone = options->former[i].gone;
        store->member[i].doubtful = options->former[i].gone && options->stood;
    }
    store->phase = LS_STORE_LOST;
    store->generation = options->generation;
    store->reforming = true;
    store->reform_deadline_ns = options->reform_deadline_ns;
}

static enum ls_status init(struct ls_store *store, const struct ls_store_options *options)
{
    if (options->begin_host)
        snprintf(store->begin_host, sizeof(store->begin_host), "%s", options->begin_host);
    store->begin_port = options->begin_port;
    store->epoll = epoll_create1(EPOLL_CLOEXEC);
    store->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    store->workers = options->workers;
    store->servers = options->servers;
    store->members = options->workers + options->servers;
    store->join_deadline_ns = options->join_deadline_ns;
    store->deadline_ns = options->deadline_ns;
    store->silence_ns = options->silence_ns;
    store->least_workers = options->least_workers;
    store->most_workers = options->most_workers;
    store->apart = options->apart;
    store->beat_ns = ls_beat_ns(options->silence_ns);
    store->clock.stand_ns = ls_stand_ns(options->silence_ns);
    snprintf(store->address, sizeof(store->address), "%s", options->address);
    store->part = ls_store_part(store->workers);
    store->member = calloc(store->members, sizeof(*store->member));
    store->blocks = malloc(store->workers * store->part);
    store->result = malloc(store->workers * (store->part + 4));
    for (uint32_t i = 0; store->member && i < store->members; i++) {
        store->member[i].spot.step = LS_NO_STEP;
        store->member[i].former = LS_NO_WORKER;
        store->member[i].probe = -1;
    }
    if (!store->member || !store->blocks || !store->result)
        return LS_OUT_OF_MEMORY;
    if (options->former)
        take_over(store, options);
    if (store->epoll >= 0 && store->wake >= 0)
        return ls_door_open(options->key, &store->door);
    ls_error("cluster", "the store of worker 0 cannot begin: %s", strerror(errno));
    return LS_FAILED;
}

enum ls_status ls_store_open(const struct ls_store_options *options, struct ls_store **out)
{
    struct ls_store *store = calloc(1, sizeof(*store));
    enum ls_status status = store ? init(store, options) : LS_OUT_OF_MEMORY;
    if (status) {
        close(options->listener);
        ls_connection_finish(options->own);
    } else {
        ls_own_clock_look(&store->clock, 0);
        watch(store, EPOLL_CTL_ADD, ls_door_fd(store->door), EPOLLIN, &store->door);
        watch(store, EPOLL_CTL_ADD, store->wake, EPOLLIN, &store->wake);
        status = ls_door_listen(store->door, options->listener);
        const enum ls_status added = add_peer(store, options->own, true);
        status = status ? status : added;
    }
    if (!status)
        status = ls_thread_start(&store->thread, "store", run, store);
    if (status)
        destroy(store);
    else
        *out = store;
    return status;
}

void ls_store_close(struct ls_store *store)
{
    if (!store)
        return;
    atomic_store(&store->stopping, true);
    const uint64_t one = 1;
    (void)!write(store->wake, &one, sizeof(one));
    pthread_join(store->thread, NULL);
    destroy(store);
}
