// SPDX-License-Identifier: Apache-2.0
// Frames over a non-blocking socket: the only file that labels, seals, queues and flushes.
#include "core/wire/connection.h"

#include "core/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum ls_status ls_connection_init(struct ls_connection *connection, int fd,
                                  const uint8_t key[LS_SECURE_KEY])
{
    memset(connection, 0, sizeof(*connection));
    connection->fd = fd;
    connection->sealed = true;
    connection->most_waiting = LS_QUEUE_MOST;
    ls_secure_init(&connection->secure, key);
    const int flags = fcntl(fd, F_GETFL);
    connection->in_room = LS_SECURE_PROOF; // a stranger gets no more; grows with the first frame
    connection->in = malloc(connection->in_room);
    if (connection->in && flags >= 0 &&
        (flags & O_NONBLOCK || !fcntl(fd, F_SETFL, flags | O_NONBLOCK)))
        return LS_OK;
    const bool memory = connection->in;
    ls_connection_finish(connection);
    return memory ? LS_FAILED : LS_OUT_OF_MEMORY;
}

enum ls_status ls_connection_pair(const uint8_t key[LS_SECURE_KEY], struct ls_connection *worker,
                                  struct ls_connection *store)
{
    uint8_t greeting[LS_SECURE_GREETING], answer[LS_SECURE_NONCE], proof[LS_SECURE_PROOF],
        reply[LS_SECURE_PROOF];
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) {
        ls_error("cluster", "a connection within this process cannot be made: %s", strerror(errno));
        return LS_FAILED;
    }
    enum ls_status status = ls_connection_init(worker, pair[0], key);
    if (status) {
        close(pair[1]);
        return status;
    }
    status = ls_connection_init(store, pair[1], key);
    if (status) {
        ls_connection_finish(worker);
        return status;
    }
    ls_secure_greet(&worker->secure, greeting);
    ls_secure_answer(&store->secure, greeting, answer);
    ls_secure_prove(&worker->secure, answer, proof);
    if (ls_secure_admit(&store->secure, proof, reply) && ls_secure_believe(&worker->secure, reply))
        return LS_OK;
    ls_connection_finish(worker);
    ls_connection_finish(store);
    return LS_FAILED;
}

void ls_connection_finish(struct ls_connection *connection)
{
    if (connection->fd >= 0)
        close(connection->fd);
    connection->fd = -1;
    free(connection->in);
    free(connection->out);
    connection->in = connection->out = NULL;
    ls_secure_finish(&connection->secure);
}

// ---- Sending ----

// Room for `bytes` more behind the queue. What has been sent is dropped only where there is too
// little room, so that not every frame moves a queue that is long.
static enum ls_status make_room(struct ls_connection *connection, size_t bytes)
{
    const size_t waiting = connection->out_bytes - connection->out_first;
    if (bytes > connection->most_waiting || waiting > connection->most_waiting - bytes)
        return LS_PEER_LOST;
    if (waiting && bytes <= connection->out_room - connection->out_bytes)
        return LS_OK;
    if (waiting && connection->out_first)
        memmove(connection->out, connection->out + connection->out_first, waiting);
    connection->out_first = 0;
    connection->out_bytes = waiting;
    if (waiting + bytes <= connection->out_room)
        return LS_OK;
    size_t room = connection->out_room ? connection->out_room : 512;
    while (room < waiting + bytes)
        room *= 2;
    uint8_t *out = realloc(connection->out, room);
    if (!out)
        return LS_OUT_OF_MEMORY;
    connection->out = out;
    connection->out_room = room;
    return LS_OK;
}

enum ls_status ls_connection_queue(struct ls_connection *connection, const void *data, size_t bytes)
{
    const enum ls_status status = make_room(connection, bytes);
    if (status || !bytes)
        return status;
    memcpy(connection->out + connection->out_bytes, data, bytes);
    connection->out_bytes += bytes;
    return LS_OK;
}

enum ls_status ls_connection_send(struct ls_connection *connection, const void *data, size_t bytes)
{
    if (!connection->sealed)
        return ls_connection_queue(connection, data, bytes);
    const size_t sealed = bytes + LS_SECURE_SEAL;
    const enum ls_status status = make_room(connection, LS_CONNECTION_LABEL + sealed);
    if (status)
        return status;
    uint8_t *out = connection->out + connection->out_bytes;
    for (size_t i = 0; i < LS_CONNECTION_LABEL; i++)
        out[i] = (uint8_t)(sealed >> 8 * i);
    ls_secure_seal(&connection->secure, out, data, bytes, out + LS_CONNECTION_LABEL);
    connection->out_bytes += LS_CONNECTION_LABEL + sealed;
    return LS_OK;
}

enum ls_status ls_connection_flush(struct ls_connection *connection)
{
    while (ls_connection_is_waiting(connection)) {
        const ssize_t sent =
            send(connection->fd, connection->out + connection->out_first,
                 connection->out_bytes - connection->out_first, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return LS_AGAIN;
        if (sent < 0)
            return LS_PEER_LOST;
        connection->out_first += (size_t)sent;
    }
    return LS_OK;
}

bool ls_connection_is_waiting(const struct ls_connection *connection)
{
    return connection->out_first < connection->out_bytes;
}

bool ls_connection_is_unconfirmed(const struct ls_connection *connection)
{
    int bytes = 0;
    return ls_connection_is_waiting(connection) ||
           (!ioctl(connection->fd, SIOCOUTQ, &bytes) && bytes > 0);
}

// ---- Receiving ----

enum ls_status ls_connection_take(struct ls_connection *connection, void *memory, size_t bytes,
                                  size_t *taken)
{
    for (;;) {
        const ssize_t got = recv(connection->fd, memory, bytes, 0);
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

// Reads until `in` has `bytes` bytes.
enum ls_status ls_connection_read(struct ls_connection *connection, size_t bytes)
{
    enum ls_status status = LS_OK;
    while (!status && connection->in_bytes < bytes) {
        size_t taken = 0;
        status = ls_connection_take(connection, connection->in + connection->in_bytes,
                                    bytes - connection->in_bytes, &taken);
        connection->in_bytes += taken;
    }
    return status;
}

enum ls_status ls_connection_receive(struct ls_connection *connection, uint8_t *plain, size_t room,
                                     size_t *bytes)
{
    enum ls_status status = ls_connection_read(connection, LS_CONNECTION_LABEL);
    if (status)
        return status;
    size_t sealed = 0;
    for (size_t i = 0; i < LS_CONNECTION_LABEL; i++)
        sealed |= (size_t)connection->in[i] << 8 * i;
    if (sealed < LS_SECURE_SEAL || sealed > room + LS_SECURE_SEAL)
        return LS_BAD_INPUT;
    if (LS_CONNECTION_LABEL + sealed > connection->in_room) {
        const size_t most = LS_CONNECTION_LABEL + room + LS_SECURE_SEAL;
        uint8_t *in = realloc(connection->in, most);
        if (!in)
            return LS_OUT_OF_MEMORY;
        connection->in = in;
        connection->in_room = most;
    }
    status = ls_connection_read(connection, LS_CONNECTION_LABEL + sealed);
    if (status)
        return status;
    connection->in_bytes = 0;
    if (!ls_secure_open(&connection->secure, connection->in, connection->in + LS_CONNECTION_LABEL,
                        sealed, plain))
        return LS_BAD_INPUT;
    *bytes = sealed - LS_SECURE_SEAL;
    return LS_OK;
}
