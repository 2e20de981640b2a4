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

#define SENT_AT_ONCE ((size_t)1 << 20) // of a message, by an end that waits

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
    channel->connection = *connection;
    channel->connection.sealed = sealed;
    channel->connection.most_waiting = LS_QUEUE_UNBOUNDED;
    sodium_memzero(connection, sizeof(*connection));
    keep_alive(channel->connection.fd);
}

void ls_channel_finish(struct ls_channel *channel)
{
    ls_connection_finish(&channel->connection);
    free(channel->plain);
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

// Sealed in chunks; a reader opens one at a time.
static enum ls_status queue_bytes(struct ls_channel *channel, const uint8_t *data, size_t bytes)
{
    struct ls_connection *connection = &channel->connection;
    const size_t most = connection->sealed ? LS_CHANNEL_CHUNK : bytes;
    enum ls_status status = LS_OK;
    while (!status && bytes) {
        const size_t part = bytes < most ? bytes : most;
        status = ls_connection_send(connection, data, part);
        data += part;
        bytes -= part;
    }
    return status;
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

// ---- Receiving ----

static enum ls_status open_chunk(struct ls_channel *channel)
{
    size_t bytes;
    if (!channel->plain)
        channel->plain = malloc(LS_CHANNEL_CHUNK);
    if (!channel->plain)
        return LS_OUT_OF_MEMORY;
    const enum ls_status status =
        ls_connection_receive(&channel->connection, channel->plain, LS_CHANNEL_CHUNK, &bytes);
    if (status)
        return status;
    channel->plain_at = 0;
    channel->plain_end = bytes;
    return bytes ? LS_OK : LS_BAD_INPUT;
}

enum ls_status ls_channel_take(struct ls_channel *channel, void *memory, size_t bytes,
                               size_t *taken)
{
    if (!channel->connection.sealed)
        return ls_connection_take(&channel->connection, memory, bytes, taken);
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

// LS_OK: something may move; LS_AGAIN: nothing did since `since_ns`, for too long.
static enum ls_status wait_for(const struct ls_channel *channel, short event, uint64_t since_ns,
                               const struct ls_channel_wait *wait)
{
    const uint64_t left = UINT64_MAX - since_ns;
    const uint64_t end = since_ns + (wait->patience_ns < left ? wait->patience_ns : left);
    return ls_socket_wait(channel->connection.fd, event, end, &wait->stop);
}

static size_t waiting_bytes(const struct ls_channel *channel)
{
    return channel->connection.out_bytes - channel->connection.out_first;
}

static enum ls_status flush_all(struct ls_channel *channel, const struct ls_channel_wait *wait)
{
    size_t left = waiting_bytes(channel);
    uint64_t since = ls_clock_ns();
    for (;;) {
        enum ls_status status = ls_connection_flush(&channel->connection);
        if (status != LS_AGAIN)
            return status;
        const size_t now = waiting_bytes(channel);
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
            if (!status && waiting_bytes(channel) >= SENT_AT_ONCE)
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
