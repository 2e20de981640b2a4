// SPDX-License-Identifier: Apache-2.0
// Peers of a parameter server: connections come, speak and go.
#include "core/wire/service.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/wire/door.h"
#include "core/wire/sockets.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATA_ALIGNMENT ((size_t)64)
#define FAREWELL_NS UINT64_C(1000000000)
#define LEAVING_NS UINT64_C(2000000000)
#define DOOR_NS \
    UINT64_C(100000000) // after which the door is looked at, also where peers always speak
#define WARNINGS 3

enum stage {
    STAGE_FREE = 0,
    STAGE_OPEN,
    STAGE_LOST, // was open; the event is due
    STAGE_LEAVING, // was dropped; what is queued is still sent
};

struct peer {
    enum stage stage;
    struct ls_channel channel;
    uint64_t since_ns; // when it was dropped
    bool told; // LS_SERVICE_OPENED was handed out
    uint64_t limit; // bytes of a message
    uint8_t head[LS_CHANNEL_HEAD];
    size_t head_bytes;
    uint32_t kind;
    uint64_t bytes; // of the message under way
    uint8_t *body;
    uint64_t body_bytes, body_room;
};

struct ls_service {
    struct ls_service_options options;
    struct peer *peers;
    struct pollfd *polled; // the door, and one a peer
    uint32_t count; // places for peers: open and leaving ones
    uint32_t cursor; // the peer that is next
    struct ls_door *door;
    uint64_t door_ns; // when it was looked at
    uint32_t warned;
};

enum ls_status ls_service_open(const struct ls_service_options *options, struct ls_service **out)
{
    struct ls_service *service = calloc(1, sizeof(*service));
    enum ls_status status = LS_OUT_OF_MEMORY;
    if (service) {
        service->options = *options;
        service->count = 2 * options->most_peers;
        service->peers = calloc(service->count, sizeof(*service->peers));
        service->polled = calloc(service->count + 1, sizeof(*service->polled));
        if (service->peers && service->polled)
            status = ls_door_open(options->key, &service->door);
    }
    if (status)
        close(options->listener);
    else
        status = ls_door_listen(service->door, options->listener);
    if (status)
        ls_service_close(service);
    else
        *out = service;
    return status;
}

static void end_peer(struct peer *peer)
{
    if (peer->stage == STAGE_FREE)
        return;
    if (peer->channel.connection.fd >= 0)
        ls_channel_finish(&peer->channel);
    free(peer->body);
    memset(peer, 0, sizeof(*peer));
    peer->channel.connection.fd = -1;
}

static bool flush_some(struct ls_service *service)
{
    bool waits = false;
    for (uint32_t i = 0; i < service->count; i++) {
        struct peer *peer = &service->peers[i];
        const bool speaks = peer->stage == STAGE_OPEN || peer->stage == STAGE_LEAVING;
        if (speaks && ls_connection_is_waiting(&peer->channel.connection))
            waits |= ls_connection_flush(&peer->channel.connection) == LS_AGAIN;
    }
    return waits;
}

void ls_service_close(struct ls_service *service)
{
    if (!service)
        return;
    const uint64_t begin = ls_clock_ns();
    while (service->peers && flush_some(service) && ls_clock_ns() - begin < FAREWELL_NS)
        (void)poll(NULL, 0, 5);
    for (uint32_t i = 0; service->peers && i < service->count; i++)
        end_peer(&service->peers[i]);
    ls_door_close(service->door);
    free(service->peers);
    free(service->polled);
    free(service);
}

uint64_t ls_service_strangers(const struct ls_service *service)
{
    return ls_door_all_strangers(service->door);
}

// ---- Those that have come in ----

static struct peer *find_free(struct ls_service *service)
{
    uint32_t open = 0;
    struct peer *found = NULL;
    for (uint32_t i = 0; i < service->count; i++) {
        struct peer *peer = &service->peers[i];
        open += peer->stage == STAGE_OPEN || peer->stage == STAGE_LOST;
        if (peer->stage == STAGE_FREE)
            found = peer;
    }
    return open < service->options.most_peers ? found : NULL;
}

static void let_in(struct ls_service *service)
{
    struct ls_connection connection;
    while (ls_door_next(service->door, &connection) == LS_OK) {
        struct peer *peer = find_free(service);
        if (!peer) {
            ls_door_count(service->door, &connection, LS_STRANGER_SURPLUS);
            ls_connection_finish(&connection);
            continue;
        }
        ls_channel_adopt(&peer->channel, &connection, service->options.sealed);
        peer->stage = STAGE_OPEN;
        peer->limit = LS_SERVICE_FIRST_MESSAGE;
    }
}

static void end_leaving(struct ls_service *service, uint64_t now)
{
    for (uint32_t i = 0; i < service->count; i++) {
        struct peer *peer = &service->peers[i];
        if (peer->stage == STAGE_LEAVING && (!ls_connection_is_waiting(&peer->channel.connection) ||
                                             now - peer->since_ns > LEAVING_NS))
            end_peer(peer);
    }
}

static void look_at_door(struct ls_service *service, uint64_t now)
{
    service->door_ns = now;
    end_leaving(service, now);
    let_in(service);
}

// ---- Messages ----

static enum ls_status begin_body(struct peer *peer)
{
    if (!ls_channel_get_head(peer->head, &peer->kind, &peer->bytes) || peer->bytes > peer->limit)
        return LS_BAD_INPUT;
    peer->body_bytes = 0;
    if (peer->bytes <= peer->body_room)
        return LS_OK;
    free(peer->body);
    peer->body_room = (peer->bytes + DATA_ALIGNMENT) / DATA_ALIGNMENT * DATA_ALIGNMENT;
    peer->body = aligned_alloc(DATA_ALIGNMENT, peer->body_room);
    if (!peer->body)
        peer->body_room = 0;
    return peer->body ? LS_OK : LS_OUT_OF_MEMORY;
}

// LS_OK: a message is complete.
static enum ls_status read_message(struct peer *peer)
{
    enum ls_status status = LS_OK;
    while (!status && peer->head_bytes < LS_CHANNEL_HEAD) {
        size_t taken = 0;
        status = ls_channel_take(&peer->channel, peer->head + peer->head_bytes,
                                 LS_CHANNEL_HEAD - peer->head_bytes, &taken);
        peer->head_bytes += taken;
        if (!status && peer->head_bytes == LS_CHANNEL_HEAD)
            status = begin_body(peer);
    }
    while (!status && peer->body_bytes < peer->bytes) {
        size_t taken = 0;
        status = ls_channel_take(&peer->channel, peer->body + peer->body_bytes,
                                 (size_t)(peer->bytes - peer->body_bytes), &taken);
        peer->body_bytes += taken;
    }
    return status;
}

static void lose(struct ls_service *service, struct peer *peer, const char *why)
{
    char from[128];
    ls_socket_peer(peer->channel.connection.fd, from, sizeof(from));
    if (why && service->warned < WARNINGS) {
        service->warned++;
        ls_warn("cluster", "the connection from %s was closed: %s", from, why);
    }
    ls_channel_finish(&peer->channel);
    peer->stage = peer->told ? STAGE_LOST : STAGE_FREE;
    if (peer->stage == STAGE_FREE) {
        free(peer->body);
        memset(peer, 0, sizeof(*peer));
    }
}

// False: nothing to hand out.
static bool serve(struct ls_service *service, uint32_t index, struct ls_service_event *out)
{
    struct peer *peer = &service->peers[index];
    *out = (struct ls_service_event){.peer = index};
    if (peer->stage == STAGE_LOST) {
        out->kind = LS_SERVICE_CLOSED;
        end_peer(peer);
        return true;
    }
    if (peer->stage == STAGE_OPEN && !peer->told) {
        out->kind = LS_SERVICE_OPENED;
        return peer->told = true;
    }
    if (peer->stage != STAGE_OPEN && peer->stage != STAGE_LEAVING)
        return false;
    const enum ls_status flushed = ls_connection_flush(&peer->channel.connection);
    if (peer->stage == STAGE_LEAVING)
        return false;
    if (flushed == LS_AGAIN)
        return false; // it first takes what it has asked for
    const enum ls_status status = flushed ? flushed : read_message(peer);
    if (status == LS_AGAIN)
        return false;
    if (status) {
        lose(service, peer,
             status == LS_PEER_LOST   ? NULL
             : status == LS_BAD_INPUT ? "its message makes no sense"
                                      : "there is no memory for its message");
        return serve(service, index, out);
    }
    peer->head_bytes = 0;
    out->kind = LS_SERVICE_MESSAGE;
    out->message = peer->kind;
    out->data = peer->body;
    out->bytes = peer->bytes;
    return true;
}

static bool serve_all(struct ls_service *service, struct ls_service_event *out)
{
    for (uint32_t i = 0; i < service->count; i++) {
        const uint32_t index = (service->cursor + i) % service->count;
        if (service->peers[index].stage != STAGE_FREE && serve(service, index, out)) {
            service->cursor = (index + 1) % service->count;
            return true;
        }
    }
    return false;
}

// Waits until a peer has something to say, or takes what waits for it, or until somebody is at the
// door.
static void await_peers(struct ls_service *service, uint64_t timeout_ns)
{
    nfds_t count = 0;
    service->polled[count++] = (struct pollfd){.fd = ls_door_fd(service->door), .events = POLLIN};
    for (uint32_t i = 0; i < service->count; i++) {
        const struct peer *peer = &service->peers[i];
        if (peer->stage == STAGE_FREE)
            continue;
        const short event = ls_connection_is_waiting(&peer->channel.connection) ? POLLOUT : POLLIN;
        service->polled[count++] =
            (struct pollfd){.fd = peer->channel.connection.fd, .events = event};
    }
    const uint64_t wait_ms = timeout_ns / 1000000 + (timeout_ns % 1000000 > 0);
    (void)poll(service->polled, count, wait_ms < 60000 ? (int)wait_ms : 60000);
}

// Strangers are no event, and so do not shorten the time.
enum ls_status ls_service_next(struct ls_service *service, uint64_t timeout_ns,
                               struct ls_service_event *out)
{
    const uint64_t begin = ls_clock_ns();
    if (begin - service->door_ns >= DOOR_NS)
        look_at_door(service, begin);
    for (uint64_t passed = 0;; passed = ls_clock_ns() - begin) {
        if (serve_all(service, out))
            return LS_OK;
        await_peers(service, passed < timeout_ns ? timeout_ns - passed : 0);
        look_at_door(service, ls_clock_ns());
        if (passed >= timeout_ns)
            return serve_all(service, out) ? LS_OK : LS_AGAIN;
    }
}

void ls_service_send(struct ls_service *service, uint32_t index, uint32_t kind,
                     const struct ls_channel_piece *pieces, uint32_t count)
{
    struct peer *peer = &service->peers[index];
    if (index >= service->count || peer->stage != STAGE_OPEN)
        return;
    enum ls_status status = ls_channel_queue(&peer->channel, kind, pieces, count);
    if (!status)
        status = ls_connection_flush(&peer->channel.connection);
    if (status && status != LS_AGAIN)
        lose(service, peer, status == LS_PEER_LOST ? NULL : "there is no memory for the answer");
}

void ls_service_allow(struct ls_service *service, uint32_t index, uint64_t bytes)
{
    if (index < service->count && service->peers[index].stage == STAGE_OPEN)
        service->peers[index].limit = bytes;
}

void ls_service_drop(struct ls_service *service, uint32_t index)
{
    struct peer *peer = &service->peers[index];
    if (index >= service->count || (peer->stage != STAGE_OPEN && peer->stage != STAGE_LOST))
        return;
    if (peer->stage == STAGE_LOST || ls_connection_flush(&peer->channel.connection) != LS_AGAIN) {
        end_peer(peer);
        return;
    }
    peer->stage = STAGE_LEAVING;
    peer->since_ns = ls_clock_ns();
}
