// SPDX-License-Identifier: Apache-2.0
// Messages of any size over a socket.
#include "core/wire/channel.h"

#include "core/base/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define LABEL ((size_t)4)
#define SEALED_MOST (LABEL + LS_CHANNEL_CHUNK + LS_SECURE_SEAL)
#define SENT_AT_ONCE ((size_t)1 << 20) // of a message, by an end that waits
#define SLICE_MS 100 // after which a waiting end asks whether it shall stop

enum ls_status ls_channel_key(const char *secret, uint8_t key[LS_SECURE_KEY])
{
    static const char purpose[] = "lockstep parameter server";
    uint8_t all[LS_SECURE_KEY];
    const enum ls_status status = ls_secure_key(secret, all);
    if (status)
        return status;
    crypto_generichash(key, LS_SECURE_KEY, (const uint8_t *)purpose, sizeof(purpose), all,
                       sizeof(all));
    sodium_memzero(all, sizeof(all));
    return LS_OK;
}

// A peer whose machine is gone sends no end of the connection: the kernel asks after some seconds,
// and does not send again for a quarter of an hour what that peer never takes.
static void keep_alive(int fd)
{
    const int on = 1, idle = 5, interval = 2, count = 3;
    const unsigned untaken_ms = 10000;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &untaken_ms, sizeof(untaken_ms));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

void ls_channel_adopt(struct ls_channel *channel, struct ls_connection *connection, bool sealed)
{
    memset(channel, 0, sizeof(*channel));
    channel->sealed = sealed;
    channel->connection = *connection;
    sodium_memzero(connection, sizeof(*connection));
    keep_alive(channel->connection.fd);
}

void ls_channel_finish(struct ls_channel *channel)
{
    ls_connection_finish(&channel->connection);
    free(channel->sealed_in);
    free(channel->plain);
    free(channel->out);
    memset(channel, 0, sizeof(*channel));
    channel->connection.fd = -1;
}

// ---- Heads ----

void ls_channel_put_head(uint8_t head[LS_CHANNEL_HEAD], uint32_t kind, uint64_t bytes)
{
    memset(head, 0, LS_CHANNEL_HEAD);
    for (size_t i = 0; i < 4; i++)
        head[i] = (uint8_t)(kind >> 8 * i);
    for (size_t i = 0; i < 8; i++)
        head[8 + i] = (uint8_t)(bytes >> 8 * i);
}

bool ls_channel_get_head(const uint8_t head[LS_CHANNEL_HEAD], uint32_t *kind, uint64_t *bytes)
{
    *kind = 0;
    *bytes = 0;
    for (size_t i = 0; i < 4; i++)
        *kind |= (uint32_t)head[i] << 8 * i;
    for (size_t i = 0; i < 8; i++)
        *bytes |= (uint64_t)head[8 + i] << 8 * i;
    return !head[4] && !head[5] && !head[6] && !head[7];
}

// ---- Sending ----

static enum ls_status make_room(struct ls_channel *channel, size_t bytes)
{
    if (channel->out_first == channel->out_bytes)
        channel->out_first = channel->out_bytes = 0;
    if (bytes > SIZE_MAX / 4 - channel->out_bytes)
        return LS_OUT_OF_MEMORY;
    if (channel->out_bytes + bytes <= channel->out_room)
        return LS_OK;
    size_t room = channel->out_room ? channel->out_room : (size_t)1 << 16;
    while (room < channel->out_bytes + bytes)
        room *= 2;
    uint8_t *out = realloc(channel->out, room);
    if (!out)
        return LS_OUT_OF_MEMORY;
    channel->out = out;
    channel->out_room = room;
    return LS_OK;
}

static enum ls_status queue_bytes(struct ls_channel *channel, const uint8_t *data, size_t bytes)
{
    const size_t chunks = bytes / LS_CHANNEL_CHUNK + 1;
    const size_t room = channel->sealed ? bytes + chunks * (LABEL + LS_SECURE_SEAL) : bytes;
    const enum ls_status status = make_room(channel, room);
    if (status || !bytes)
        return status;
    if (!channel->sealed) {
        memcpy(channel->out + channel->out_bytes, data, bytes);
        channel->out_bytes += bytes;
        return LS_OK;
    }
    while (bytes) {
        const size_t part = bytes < LS_CHANNEL_CHUNK ? bytes : LS_CHANNEL_CHUNK;
        const size_t sealed = part + LS_SECURE_SEAL;
        uint8_t *at = channel->out + channel->out_bytes;
        for (size_t i = 0; i < LABEL; i++)
            at[i] = (uint8_t)(sealed >> 8 * i);
        ls_secure_seal(&channel->connection.secure, at, data, part, at + LABEL);
        channel->out_bytes += LABEL + sealed;
        data += part;
        bytes -= part;
    }
    return LS_OK;
}

static enum ls_status queue_head(struct ls_channel *channel, uint32_t kind,
                                 const struct ls_channel_piece *pieces, uint32_t count)
{
    uint8_t head[LS_CHANNEL_HEAD];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += pieces[i].bytes;
    ls_channel_put_head(head, kind, bytes);
    return queue_bytes(channel, head, sizeof(head));
}

enum ls_status ls_channel_queue(struct ls_channel *channel, uint32_t kind,
                                const struct ls_channel_piece *pieces, uint32_t count)
{
    enum ls_status status = queue_head(channel, kind, pieces, count);
    for (uint32_t i = 0; !status && i < count; i++)
        status = queue_bytes(channel, pieces[i].data, pieces[i].bytes);
    return status;
}

enum ls_status ls_channel_flush(struct ls_channel *channel)
{
    while (channel->out_first < channel->out_bytes) {
        const ssize_t sent = send(channel->connection.fd, channel->out + channel->out_first,
                                  channel->out_bytes - channel->out_first, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return LS_AGAIN;
        if (sent < 0)
            return LS_PEER_LOST;
        channel->out_first += (size_t)sent;
    }
    channel->out_first = channel->out_bytes = 0;
    return LS_OK;
}

bool ls_channel_is_waiting(const struct ls_channel *channel)
{
    return channel->out_first < channel->out_bytes;
}

// ---- Receiving ----

static enum ls_status receive(int fd, void *memory, size_t bytes, size_t *taken)
{
    for (;;) {
        const ssize_t got = recv(fd, memory, bytes, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return LS_AGAIN;
        if (got <= 0)
            return LS_PEER_LOST;
        *taken = (size_t)got;
        return LS_OK;
    }
}

// Reads until the sealed chunk has `bytes` bytes.
static enum ls_status fill_chunk(struct ls_channel *channel, size_t bytes)
{
    while (channel->in_bytes < bytes) {
        size_t got = 0;
        const enum ls_status status =
            receive(channel->connection.fd, channel->sealed_in + channel->in_bytes,
                    bytes - channel->in_bytes, &got);
        if (status)
            return status;
        channel->in_bytes += got;
    }
    return LS_OK;
}

static enum ls_status open_chunk(struct ls_channel *channel)
{
    if (!channel->sealed_in)
        channel->sealed_in = malloc(SEALED_MOST);
    if (!channel->plain)
        channel->plain = malloc(LS_CHANNEL_CHUNK);
    if (!channel->sealed_in || !channel->plain)
        return LS_OUT_OF_MEMORY;
    enum ls_status status = fill_chunk(channel, LABEL);
    if (status)
        return status;
    size_t sealed = 0;
    for (size_t i = 0; i < LABEL; i++)
        sealed |= (size_t)channel->sealed_in[i] << 8 * i;
    if (sealed <= LS_SECURE_SEAL || sealed > LS_CHANNEL_CHUNK + LS_SECURE_SEAL)
        return LS_BAD_INPUT;
    status = fill_chunk(channel, LABEL + sealed);
    if (status)
        return status;
    channel->in_bytes = 0;
    if (!ls_secure_open(&channel->connection.secure, channel->sealed_in, channel->sealed_in + LABEL,
                        sealed, channel->plain))
        return LS_BAD_INPUT;
    channel->plain_at = 0;
    channel->plain_end = sealed - LS_SECURE_SEAL;
    return LS_OK;
}

enum ls_status ls_channel_take(struct ls_channel *channel, void *memory, size_t bytes,
                               size_t *taken)
{
    if (!channel->sealed)
        return receive(channel->connection.fd, memory, bytes, taken);
    if (channel->plain_at == channel->plain_end) {
        const enum ls_status status = open_chunk(channel);
        if (status)
            return status;
    }
    const size_t here = channel->plain_end - channel->plain_at;
    *taken = bytes < here ? bytes : here;
    memcpy(memory, channel->plain + channel->plain_at, *taken);
    channel->plain_at += *taken;
    return LS_OK;
}

// ---- An end that waits ----

static bool is_stopped(const struct ls_channel_wait *wait)
{
    return wait->stopped && wait->stopped(wait->context);
}

// LS_OK: something may move; LS_AGAIN: nothing did since `since_ns`, for too long.
static enum ls_status wait_for(const struct ls_channel *channel, short event, uint64_t since_ns,
                               const struct ls_channel_wait *wait)
{
    for (;;) {
        struct pollfd poll_fd = {.fd = channel->connection.fd, .events = event};
        if (poll(&poll_fd, 1, SLICE_MS) > 0)
            return LS_OK;
        if (is_stopped(wait))
            return LS_ABORTED;
        if (ls_clock_ns() - since_ns > wait->patience_ns)
            return LS_AGAIN;
    }
}

static enum ls_status flush_all(struct ls_channel *channel, const struct ls_channel_wait *wait)
{
    size_t left = channel->out_bytes - channel->out_first;
    uint64_t since = ls_clock_ns();
    for (;;) {
        enum ls_status status = ls_channel_flush(channel);
        if (status != LS_AGAIN)
            return status;
        const size_t now = channel->out_bytes - channel->out_first;
        if (now != left)
            since = ls_clock_ns();
        left = now;
        status = wait_for(channel, POLLOUT, since, wait);
        if (status)
            return status;
    }
}

enum ls_status ls_channel_send(struct ls_channel *channel, uint32_t kind,
                               const struct ls_channel_piece *pieces, uint32_t count,
                               const struct ls_channel_wait *wait)
{
    enum ls_status status = queue_head(channel, kind, pieces, count);
    for (uint32_t i = 0; !status && i < count; i++)
        for (size_t at = 0; !status && at < pieces[i].bytes;) {
            const size_t left = pieces[i].bytes - at;
            const size_t part = left < SENT_AT_ONCE ? left : SENT_AT_ONCE;
            status = queue_bytes(channel, (const uint8_t *)pieces[i].data + at, part);
            at += part;
            if (!status && channel->out_bytes >= SENT_AT_ONCE)
                status = flush_all(channel, wait);
        }
    return status ? status : flush_all(channel, wait);
}

enum ls_status ls_channel_read(struct ls_channel *channel, void *memory, size_t bytes,
                               const struct ls_channel_wait *wait)
{
    uint64_t since = ls_clock_ns();
    for (size_t at = 0; at < bytes;) {
        size_t taken = 0;
        enum ls_status status =
            ls_channel_take(channel, (uint8_t *)memory + at, bytes - at, &taken);
        if (status == LS_AGAIN) {
            status = wait_for(channel, POLLIN, since, wait);
        } else {
            at += taken;
            since = ls_clock_ns();
        }
        if (status)
            return status;
    }
    return LS_OK;
}

enum ls_status ls_channel_receive(struct ls_channel *channel, uint32_t *kind, uint64_t *bytes,
                                  const struct ls_channel_wait *wait)
{
    uint8_t head[LS_CHANNEL_HEAD];
    const enum ls_status status = ls_channel_read(channel, head, sizeof(head), wait);
    if (status)
        return status;
    return ls_channel_get_head(head, kind, bytes) ? LS_OK : LS_BAD_INPUT;
}

// ---- Connecting ----

enum ls_status ls_channel_reach(const struct ls_reach *reach, bool sealed, struct ls_channel *out)
{
    struct ls_connection connection;
    const enum ls_status status = ls_reach(reach, &connection);
    if (!status)
        ls_channel_adopt(out, &connection, sealed);
    return status;
}
