// SPDX-License-Identifier: Apache-2.0
// Peers of a parameter server: connections come, prove themselves, speak and go.
#include "core/cluster/service.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/cluster/sockets.h"
#include "core/cluster/store.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ACCEPTS 64 // connections taken at once
#define DATA_ALIGNMENT ((size_t)64)
#define FAREWELL_NS UINT64_C(1000000000)
#define WARNINGS 3

enum stage {
    STAGE_FREE = 0,
    STAGE_GREETING, // a stranger
    STAGE_PROOF,
    STAGE_OPEN, // has proved itself
    STAGE_LOST, // was open; the event is due
    STAGE_LEAVING, // was dropped; what is queued is still sent
};

struct peer {
    enum stage stage;
    struct ls_channel channel;
    uint64_t since_ns;
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
    struct pollfd *polled; // the listener, and one a peer
    uint32_t count; // places for peers: strangers and others
    uint32_t cursor; // whose turn it is
    uint64_t strangers;
    uint32_t warned;
};

enum ls_status ls_service_open(const struct ls_service_options *options, struct ls_service **out)
{
    struct ls_service *service = calloc(1, sizeof(*service));
    if (service) {
        service->options = *options;
        service->count = options->most_peers + LS_MOST_STRANGERS;
        service->peers = calloc(service->count, sizeof(*service->peers));
        service->polled = calloc(service->count + 1, sizeof(*service->polled));
    }
    if (!service || !service->peers || !service->polled) {
        if (!service)
            close(options->listener);
        ls_service_close(service);
        return LS_OUT_OF_MEMORY;
    }
    *out = service;
    return LS_OK;
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
        if (speaks && ls_channel_is_waiting(&peer->channel))
            waits |= ls_channel_flush(&peer->channel) == LS_AGAIN;
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
    if (service->options.listener >= 0)
        close(service->options.listener);
    free(service->peers);
    free(service->polled);
    free(service);
}

uint64_t ls_service_strangers(const struct ls_service *service)
{
    return service->strangers;
}

// ---- Strangers ----

static bool is_stranger(const struct peer *peer)
{
    return peer->stage == STAGE_GREETING || peer->stage == STAGE_PROOF;
}

static void turn_away(struct ls_service *service, struct peer *peer, const char *why)
{
    char from[128];
    ls_socket_peer(peer->channel.connection.fd, from, sizeof(from));
    service->strangers++;
    if (why && service->warned < WARNINGS) {
        service->warned++;
        ls_warn("cluster", "a connection from %s was dropped: %s%s", from, why,
                service->warned == WARNINGS ? "; more of them are only counted" : "");
    }
    end_peer(peer);
}

static uint32_t count_strangers(const struct ls_service *service)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < service->count; i++)
        count += is_stranger(&service->peers[i]);
    return count;
}

// The one that makes room: the oldest of those that know least about us.
static struct peer *least_likely(struct ls_service *service)
{
    struct peer *found = NULL;
    for (uint32_t i = 0; i < service->count; i++) {
        struct peer *peer = &service->peers[i];
        if (is_stranger(peer) &&
            (!found || peer->stage < found->stage ||
             (peer->stage == found->stage && peer->since_ns < found->since_ns)))
            found = peer;
    }
    return found;
}

static struct peer *find_free(struct ls_service *service)
{
    for (uint32_t i = 0; i < service->count; i++)
        if (service->peers[i].stage == STAGE_FREE)
            return &service->peers[i];
    return NULL;
}

static void accept_all(struct ls_service *service)
{
    for (int i = 0; i < ACCEPTS; i++) {
        int fd;
        const enum ls_status status = ls_socket_accept(service->options.listener, &fd);
        if (status == LS_FAILED)
            (void)poll(NULL, 0, 20); // no descriptors: they are still there after a while
        if (status)
            return;
        if (count_strangers(service) >= LS_MOST_STRANGERS)
            turn_away(service, least_likely(service), "too many connect at once");
        struct peer *peer = find_free(service);
        if (!peer) { // as many as there can be have proved themselves
            close(fd);
            service->strangers++;
            continue;
        }
        if (ls_channel_init(&peer->channel, fd, service->options.key, service->options.sealed))
            continue;
        peer->stage = STAGE_GREETING;
        peer->since_ns = ls_clock_ns();
        peer->limit = LS_SERVICE_FIRST_MESSAGE;
    }
}

static uint32_t count_open(const struct ls_service *service)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < service->count; i++)
        count += service->peers[i].stage == STAGE_OPEN || service->peers[i].stage == STAGE_LOST;
    return count;
}

// Moves a stranger's handshake on. False: it has to wait, or is gone.
static bool shake_hands(struct ls_service *service, struct peer *peer)
{
    struct ls_connection *connection = &peer->channel.connection;
    const bool greets = peer->stage == STAGE_GREETING;
    const enum ls_status status =
        ls_connection_read(connection, greets ? LS_SECURE_GREETING : LS_SECURE_PROOF);
    uint8_t out[LS_SECURE_PROOF];
    if (greets && !ls_secure_begins_greeting(connection->in, connection->in_bytes)) {
        turn_away(service, peer, "it does not speak as a worker does");
        return false;
    }
    if (status == LS_AGAIN)
        return false;
    if (status) { // a port scan says nothing, all day
        turn_away(service, peer,
                  connection->in_bytes ? "it left before it had shown who it is" : NULL);
        return false;
    }
    connection->in_bytes = 0;
    bool admitted = true;
    if (greets)
        ls_secure_answer(&connection->secure, connection->in, out);
    else
        admitted = ls_secure_admit(&connection->secure, connection->in, out);
    const size_t bytes = greets ? LS_SECURE_NONCE : LS_SECURE_PROOF;
    // So few bytes go at once, or the peer is none.
    const bool sent =
        !ls_connection_queue(connection, out, bytes) && !ls_connection_flush(connection);
    if (!admitted || !sent || (!greets && count_open(service) >= service->options.most_peers)) {
        turn_away(service, peer,
                  !admitted ? "it has another secret"
                  : sent    ? "there are more of them than workers"
                            : NULL);
        return false;
    }
    peer->stage = greets ? STAGE_PROOF : STAGE_OPEN;
    return true;
}

static void watch_strangers(struct ls_service *service)
{
    const uint64_t now = ls_clock_ns();
    for (uint32_t i = 0; i < service->count; i++) {
        struct peer *peer = &service->peers[i];
        if (is_stranger(peer) && now - peer->since_ns > LS_STRANGER_NS)
            turn_away(service, peer, "it did not show within 2 s who it is");
        else if (peer->stage == STAGE_LEAVING &&
                 (!ls_channel_is_waiting(&peer->channel) || now - peer->since_ns > LS_STRANGER_NS))
            end_peer(peer);
    }
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
    while (is_stranger(peer))
        if (!shake_hands(service, peer))
            return false;
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
    const enum ls_status flushed = ls_channel_flush(&peer->channel);
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

enum ls_status ls_service_next(struct ls_service *service, uint64_t timeout_ns,
                               struct ls_service_event *out)
{
    if (serve_all(service, out))
        return LS_OK;
    nfds_t count = 0;
    service->polled[count++] = (struct pollfd){.fd = service->options.listener, .events = POLLIN};
    for (uint32_t i = 0; i < service->count; i++) {
        const struct peer *peer = &service->peers[i];
        if (peer->stage == STAGE_FREE)
            continue;
        const short event = ls_channel_is_waiting(&peer->channel) ? POLLOUT : POLLIN;
        service->polled[count++] =
            (struct pollfd){.fd = peer->channel.connection.fd, .events = event};
    }
    const uint64_t wait_ms = timeout_ns / 1000000 + (timeout_ns % 1000000 > 0);
    const int ready = poll(service->polled, count, wait_ms < 60000 ? (int)wait_ms : 60000);
    watch_strangers(service);
    if (ready <= 0)
        return LS_AGAIN;
    if (service->polled[0].revents)
        accept_all(service);
    return serve_all(service, out) ? LS_OK : LS_AGAIN;
}

void ls_service_send(struct ls_service *service, uint32_t index, uint32_t kind,
                     const struct ls_channel_piece *pieces, uint32_t count)
{
    struct peer *peer = &service->peers[index];
    if (index >= service->count || peer->stage != STAGE_OPEN)
        return;
    enum ls_status status = ls_channel_queue(&peer->channel, kind, pieces, count);
    if (!status)
        status = ls_channel_flush(&peer->channel);
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
    if (peer->stage == STAGE_LOST || ls_channel_flush(&peer->channel) != LS_AGAIN) {
        end_peer(peer);
        return;
    }
    peer->stage = STAGE_LEAVING;
    peer->since_ns = ls_clock_ns();
}
