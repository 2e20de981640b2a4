// SPDX-License-Identifier: Apache-2.0
// Sealed frames over a non-blocking socket.
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
    ls_secure_init(&connection->secure, key);
    const int flags = fcntl(fd, F_GETFL);
    connection->in = malloc(LS_SECURE_PROOF); // a stranger gets no more; grows with the first frame
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

// Reads until `in` has `bytes` bytes.
enum ls_status ls_connection_read(struct ls_connection *connection, size_t bytes)
{
    while (connection->in_bytes < bytes) {
        const ssize_t got = recv(connection->fd, connection->in + connection->in_bytes,
                                 bytes - connection->in_bytes, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return LS_AGAIN;
        if (got <= 0)
            return LS_PEER_LOST;
        connection->in_bytes += (size_t)got;
    }
    return LS_OK;
}

// Room for `bytes` more in the queue, whose sent part is dropped.
static enum ls_status make_room(struct ls_connection *connection, size_t bytes)
{
    const size_t waiting = connection->out_bytes - connection->out_first;
    if (connection->out_first) {
        memmove(connection->out, connection->out + connection->out_first, waiting);
        connection->out_first = 0;
        connection->out_bytes = waiting;
    }
    if (waiting + bytes <= connection->out_room)
        return LS_OK;
    if (waiting + bytes > LS_QUEUE_MOST)
        return LS_PEER_LOST;
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
    if (status)
        return status;
    memcpy(connection->out + connection->out_bytes, data, bytes);
    connection->out_bytes += bytes;
    return LS_OK;
}

enum ls_status ls_connection_send(struct ls_connection *connection, const struct ls_frame *frame)
{
    const size_t sealed = frame->bytes + LS_SECURE_SEAL;
    const enum ls_status status = make_room(connection, 4 + sealed);
    if (status)
        return status;
    uint8_t *out = connection->out + connection->out_bytes;
    for (size_t i = 0; i < 4; i++)
        out[i] = (uint8_t)(sealed >> 8 * i);
    ls_secure_seal(&connection->secure, out, frame->data, frame->bytes, out + 4);
    connection->out_bytes += 4 + sealed;
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

enum ls_status ls_connection_receive(struct ls_connection *connection, uint8_t *plain,
                                     size_t *bytes)
{
    enum ls_status status = ls_connection_read(connection, 4);
    if (status)
        return status;
    size_t sealed = 0;
    for (size_t i = 0; i < 4; i++)
        sealed |= (size_t)connection->in[i] << 8 * i;
    if (sealed < LS_SECURE_SEAL || sealed > LS_FRAME_MOST - 4)
        return LS_BAD_INPUT;
    if (4 + sealed > LS_SECURE_PROOF && connection->in_bytes == 4) {
        uint8_t *in = realloc(connection->in, LS_FRAME_MOST);
        if (!in)
            return LS_OUT_OF_MEMORY;
        connection->in = in;
    }
    status = ls_connection_read(connection, 4 + sealed);
    if (status)
        return status;
    connection->in_bytes = 0;
    if (!ls_secure_open(&connection->secure, connection->in, connection->in + 4, sealed, plain))
        return LS_BAD_INPUT;
    *bytes = sealed - LS_SECURE_SEAL;
    return LS_OK;
}
