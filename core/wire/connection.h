// SPDX-License-Identifier: Apache-2.0
// A connection that carries sealed frames, without ever waiting: what the socket does not take yet
// stays in a queue of bounded length. Sending and receiving may happen on two threads; each of them
// is for one thread at a time.
#ifndef LS_WIRE_CONNECTION_H
#define LS_WIRE_CONNECTION_H

#include "core/wire/frame.h"
#include "core/wire/secure.h"

#define LS_QUEUE_MOST ((size_t)8 << 20) // bytes that may wait for a peer that does not read

struct ls_connection {
    int fd; // non-blocking; -1: none
    struct ls_secure secure;
    uint8_t *in; // LS_FRAME_MOST bytes
    size_t in_bytes;
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

// Queues plain bytes (of the handshake), or a frame. LS_PEER_LOST: the queue is full, the peer does
// not read.
LS_STATUS ls_connection_queue(struct ls_connection *connection, const void *data, size_t bytes);
LS_STATUS ls_connection_send(struct ls_connection *connection, const struct ls_frame *frame);
// Gives the socket as much of the queue as it takes: LS_OK: all; LS_AGAIN; LS_PEER_LOST.
LS_STATUS ls_connection_flush(struct ls_connection *connection);
bool ls_connection_is_waiting(const struct ls_connection *connection); // something is queued
// Whether the peer's machine has not confirmed all yet.
bool ls_connection_is_unconfirmed(const struct ls_connection *connection);

// The next frame, opened into `plain` (LS_FRAME_PLAIN bytes): LS_OK; LS_AGAIN: not yet;
// LS_PEER_LOST: closed; LS_BAD_INPUT: its length makes no sense, or it was not sealed by the peer.
LS_STATUS ls_connection_receive(struct ls_connection *connection, uint8_t *plain, size_t *bytes);

#endif
