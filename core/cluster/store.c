// SPDX-License-Identifier: Apache-2.0
// The store's thread: connections come, speak and go; exchanges of all workers, and who is alive.
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
#define JOIN_NS UINT64_C(10000000000) // for a peer to say what it wants, or to hear the answer

uint64_t ls_store_strangers(const struct ls_store *store)
{
    return ls_door_all_strangers(store->door);
}

// ---- Exchanges ----

static const char *operation_name(uint8_t operation)
{
    static const char *const names[] = {"?", "gather", "broadcast", "barrier"};
    return operation < sizeof(names) / sizeof(names[0]) ? names[operation] : names[0];
}

// Workers that ended in order contribute no more.
static void check_left(struct ls_store *store)
{
    for (uint32_t i = 0; store->blocks_here && i < store->workers; i++) {
        if (!store->member[i].left || store->member[i].has_block)
            continue;
        char name[LS_NAME_BYTES + 32], waits[LS_NAME_BYTES + 32], text[LS_TEXT_BYTES];
        ls_store_name_member(store, i, name, sizeof(name));
        ls_store_name_member(store, store->first_member, waits, sizeof(waits));
        snprintf(text, sizeof(text), "%s has ended, but %s waits for it (%s)", name, waits,
                 operation_name(store->operation));
        ls_store_tell_lost(store, LS_PEER_LOST, i, text);
        return;
    }
}

static void send_result(struct ls_store *store)
{
    size_t total = 4 * (size_t)store->workers;
    for (uint32_t i = 0; i < store->workers; i++) {
        struct ls_store_member *member = &store->member[i];
        for (size_t byte = 0; byte < 4; byte++)
            store->result[4 * (size_t)i + byte] = (uint8_t)(member->block_bytes >> 8 * byte);
        memcpy(store->result + total, store->blocks + i * store->part, member->block_bytes);
        total += member->block_bytes;
        member->has_block = false;
    }
    store->blocks_here = 0;
    const size_t most = LS_FRAME_PLAIN - 64;
    for (size_t offset = 0; offset < total; offset += most) {
        const size_t bytes = total - offset < most ? total - offset : most;
        ls_frame_begin(&store->frame, LS_FRAME_RESULT, store->generation);
        ls_frame_put_u64(&store->frame, store->sequence);
        ls_frame_put_u32(&store->frame, (uint32_t)total);
        ls_frame_put_u32(&store->frame, (uint32_t)offset);
        ls_frame_put_bytes(&store->frame, store->result + offset, bytes);
        for (uint32_t i = 0; i < store->workers; i++)
            if (store->member[i].peer)
                ls_peer_send(store, store->member[i].peer);
    }
    store->sequence++;
}

static void tell_mismatch(struct ls_store *store, uint32_t number, uint8_t operation, uint32_t root,
                          uint64_t bytes)
{
    char names[2][LS_NAME_BYTES + 32], text[LS_TEXT_BYTES];
    ls_store_name_member(store, store->first_member, names[0], sizeof(names[0]));
    ls_store_name_member(store, number, names[1], sizeof(names[1]));
    snprintf(text, sizeof(text),
             "%s calls %s (%llu bytes, worker %u), but %s calls %s (%llu bytes, worker %u): "
             "expected the same calls in the same order on all workers",
             names[0], operation_name(store->operation), (unsigned long long)store->operation_bytes,
             store->root, names[1], operation_name(operation), (unsigned long long)bytes, root);
    ls_store_tell_lost(store, LS_FAILED, number, text);
}

static bool take_block(struct ls_store *store, uint32_t number, struct ls_frame_reader *reader)
{
    const uint64_t sequence = ls_frame_get_u64(reader);
    const uint8_t operation = ls_frame_get_u8(reader);
    const uint32_t root = ls_frame_get_u32(reader);
    const uint64_t bytes = ls_frame_get_u64(reader);
    struct ls_store_member *member = &store->member[number];
    if (reader->wrong || number >= store->workers || reader->left > store->part)
        return false;
    if (store->phase != LS_STORE_FORMED)
        return true; // it crossed the message that tells why not
    if (sequence != store->sequence || member->has_block)
        return false;
    if (!store->blocks_here) {
        store->operation = operation;
        store->root = root;
        store->operation_bytes = bytes;
        store->first_member = number;
        store->exchange_since_ns = store->clock.now_ns;
    } else if (operation != store->operation || root != store->root ||
               bytes != store->operation_bytes) {
        tell_mismatch(store, number, operation, root, bytes);
        return true;
    }
    memcpy(store->blocks + number * store->part, reader->at, reader->left);
    member->block_bytes = reader->left;
    member->has_block = true;
    if (++store->blocks_here == store->workers)
        send_result(store);
    else
        check_left(store);
    return true;
}

// ---- Frames of members ----

static bool take_beat(struct ls_store_member *member, struct ls_frame_reader *reader)
{
    struct ls_spot spot;
    spot.step = ls_frame_get_u64(reader);
    ls_frame_get_text(reader, spot.where, sizeof(spot.where));
    if (!reader->wrong)
        member->spot = spot;
    return !reader->wrong;
}

static bool take_reason(struct ls_store *store, uint32_t number, struct ls_frame_reader *reader)
{
    char text[LS_TEXT_BYTES / 2];
    ls_frame_get_text(reader, text, sizeof(text));
    if (reader->wrong)
        return false;
    store->member[number].dead = true; // it does not go on elsewhere
    ls_store_lose(store, number, text);
    return true;
}

// Nobody waits for it in vain.
static void tell_left(struct ls_store *store, uint32_t number)
{
    char name[LS_NAME_BYTES + 32], text[LS_TEXT_BYTES];
    ls_store_name_member(store, number, name, sizeof(name));
    snprintf(text, sizeof(text), "%s has left the job", name);
    ls_frame_begin(&store->frame, LS_FRAME_LEFT, store->generation);
    ls_frame_put_u32(&store->frame, number);
    ls_frame_put_text(&store->frame, text);
    ls_store_tell_all(store);
    ls_store_end_meetings(store, number, text);
}

bool ls_store_serve(struct ls_store *store, struct ls_peer *peer, uint8_t kind, bool late,
                    struct ls_frame_reader *reader)
{
    const uint32_t number = peer->member;
    if (late && kind != LS_FRAME_BEAT && kind != LS_FRAME_GIVE_UP && kind != LS_FRAME_GOODBYE)
        return true; // nobody waits for it any more
    switch (kind) {
    case LS_FRAME_BEAT: return take_beat(&store->member[number], reader);
    case LS_FRAME_REFORM: return ls_store_take_reform(store, number, reader);
    case LS_FRAME_BLOCK: return take_block(store, number, reader);
    case LS_FRAME_GIVE_UP: return take_reason(store, number, reader);
    case LS_FRAME_MEET: return ls_store_meet(store, number, reader);
    case LS_FRAME_TELL: return ls_store_pass_on(store, number, reader);
    case LS_FRAME_GOODBYE:
        store->member[number].left = true;
        if (store->apart)
            tell_left(store, number);
        if (store->phase == LS_STORE_FORMED)
            check_left(store);
        return true;
    default: return false;
    }
}

// ---- Liveness ----

static void send_beats(struct ls_store *store)
{
    const struct ls_spot *spot = &store->member[0].spot;
    ls_frame_begin(&store->frame, LS_FRAME_BEAT, store->generation);
    ls_frame_put_u64(&store->frame, spot->step);
    ls_frame_put_text(&store->frame, spot->where);
    ls_store_tell_all(store);
    ls_store_tell_waiting(store);
}

// An exchange whose deadline has passed: the first worker that did not come is lost.
static void watch_exchange(struct ls_store *store)
{
    char first[LS_NAME_BYTES + 32], why[LS_TEXT_BYTES / 2];
    const uint64_t waited = store->clock.now_ns - store->exchange_since_ns;
    if (!store->blocks_here || waited <= store->deadline_ns)
        return;
    ls_store_name_member(store, store->first_member, first, sizeof(first));
    snprintf(why, sizeof(why), "it did not come to the %s that %s began %.1f s ago",
             operation_name(store->operation), first, (double)waited * 1e-9);
    for (uint32_t i = 0; i < store->workers; i++)
        if (!store->member[i].has_block) {
            ls_store_lose(store, i, why);
            return;
        }
}

void ls_store_watch_members(struct ls_store *store, bool all_read)
{
    const uint64_t now = store->clock.now_ns;
    if (now >= store->beat_at_ns) {
        store->beat_at_ns = now + store->beat_ns;
        send_beats(store);
    }
    for (uint32_t i = 0; i < store->members && all_read; i++) {
        const struct ls_store_member *member = &store->member[i];
        if (!member->peer || member->peer->own || member->left ||
            now - member->peer->since_ns <= store->silence_ns)
            continue;
        char why[96];
        snprintf(why, sizeof(why), "it was silent for %.1f s, so it is stopped or cut off",
                 (double)(now - member->peer->since_ns) * 1e-9);
        ls_store_lose(store, i, why);
    }
    if (store->phase == LS_STORE_FORMED && all_read)
        watch_exchange(store);
    ls_store_watch_meetings(store);
}

// ---- Connections ----

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

static void let_in(struct ls_store *store)
{
    struct ls_connection connection;
    while (ls_door_next(store->door, &connection) == LS_OK)
        (void)!ls_peer_add(store, &connection, false);
}

// A peer that knew the secret and did not become a member.
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

// A peer that was told why it may not join: nothing that it says counts any more.
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
            ls_peer_flush(store, peer);
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
        ls_store_free_gone(store);
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
    ls_store_free_gone(store);
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

// A store that takes over knows which workers it waits for, and begins with the next generation.
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
        ls_store_watch(store, EPOLL_CTL_ADD, ls_door_fd(store->door), EPOLLIN, &store->door);
        ls_store_watch(store, EPOLL_CTL_ADD, store->wake, EPOLLIN, &store->wake);
        status = ls_door_listen(store->door, options->listener);
        const enum ls_status added = ls_peer_add(store, options->own, true);
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
