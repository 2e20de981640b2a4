// SPDX-License-Identifier: Apache-2.0
// A connection that never waits: what the socket does not take yet stays in a queue. After the
// handshake, what is sent is sealed, frame by frame: the length of the sealed bytes (32 bits,
// little endian), and those. Where a job has no secret, a connection may also carry bytes as they
// are. Sending and receiving may happen on two threads; each of them is for one thread at a time.
#ifndef LS_WIRE_CONNECTION_H
#define LS_WIRE_CONNECTION_H

#include "core/wire/secure.h"

#define LS_CONNECTION_LABEL ((size_t)4) // bytes of the length of a frame
#define LS_QUEUE_MOST ((size_t)8 << 20) // bytes that may wait for a peer that does not read
#define LS_QUEUE_UNBOUNDED (SIZE_MAX / 4)

struct ls_connection {
    int fd; // non-blocking; -1: none
    bool sealed; // what is sent after the handshake
    size_t most_waiting; // bytes of the queue: LS_QUEUE_MOST, if it is not set to another bound
    struct ls_secure secure;
    uint8_t *in; // the frame that is arriving
    size_t in_bytes, in_room;
    uint8_t *out;
    size_t out_first, out_bytes, out_room; // waiting: out[out_first .. out_bytes - 1]
};

// Takes `fd`, also where it fails, and makes it non-blocking. The conversation begins with a
// handshake of the caller's (secure.h).
LS_STATUS ls_connection_init(struct ls_connection *connection, int fd,
                             const uint8_t key[LS_SECURE_KEY]);
// Both ends of a conversation within this process, which have shaken hands. LS_FAILED, logged: the
// system gives no descriptors.
LS_STATUS ls_connection_pair(const uint8_t key[LS_SECURE_KEY], struct ls_connection *worker,
                             struct ls_connection *store);
void ls_connection_finish(struct ls_connection *connection); // takes one whose fd is -1

// Bytes of the handshake. LS_OK: all `bytes` are in `in`; LS_AGAIN; LS_PEER_LOST: closed.
LS_STATUS ls_connection_read(struct ls_connection *connection, size_t bytes);

// Queues bytes of the handshake as they are.
LS_STATUS ls_connection_queue(struct ls_connection *connection, const void *data, size_t bytes);
// Queues a frame, or where the connection is not sealed, the bytes as they are. LS_PEER_LOST: the
// queue is full, the peer does not read; LS_OUT_OF_MEMORY.
LS_STATUS ls_connection_send(struct ls_connection *connection, const void *data, size_t bytes);
// Gives the socket as much of the queue as it takes: LS_OK: all; LS_AGAIN; LS_PEER_LOST.
LS_STATUS ls_connection_flush(struct ls_connection *connection);
bool ls_connection_is_waiting(const struct ls_connection *connection); // something is queued
// Whether the peer's machine has not confirmed all yet.
bool ls_connection_is_unconfirmed(const struct ls_connection *connection);

// The next frame, opened into `plain`: LS_OK; LS_AGAIN: not yet; LS_PEER_LOST: closed;
// LS_BAD_INPUT: it has more than `room` bytes, or it was not sealed by the peer.
LS_STATUS ls_connection_receive(struct ls_connection *connection, uint8_t *plain, size_t room,
                                size_t *bytes);
// Up to `bytes` of the bytes that have come, where the connection is not sealed; at least one with
// LS_OK. LS_AGAIN: none are here; LS_PEER_LOST: closed.
LS_STATUS ls_connection_take(struct ls_connection *connection, void *memory, size_t bytes,
                             size_t *taken);

#endif
