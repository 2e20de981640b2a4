// SPDX-License-Identifier: Apache-2.0
// Messages of any size between a worker and a parameter server: a head (kind and length) and as
// many bytes, over TCP, after the handshake of secure.h. Sealed in chunks of 64 KiB where the job
// has a secret, else sent as they are. Nothing here trusts a length that a peer names: a reader
// says how much it expects before it takes memory for it.
//
// The calls that begin with ls_channel_ never wait, but for those whose comment says so. [one
// thread at a time]
#ifndef LS_WIRE_CHANNEL_H
#define LS_WIRE_CHANNEL_H

#include "core/wire/reach.h"

#define LS_CHANNEL_CHUNK ((size_t)65536) // plain bytes that are sealed together
#define LS_CHANNEL_HEAD ((size_t)16)

struct ls_channel_piece {
    const void *data;
    size_t bytes;
};

struct ls_channel {
    struct ls_connection connection;
    uint8_t *plain; // the chunk that was opened last; NULL: none
    size_t plain_at, plain_end; // what of it is still to be taken
};

// The key of channels, which is not that of the store. LS_USAGE, logged: as ls_secure_key.
LS_STATUS ls_channel_key(const char *secret, uint8_t key[LS_SECURE_KEY]);

// Takes a connection that has shaken hands.
void ls_channel_adopt(struct ls_channel *channel, struct ls_connection *connection, bool sealed);
void ls_channel_finish(struct ls_channel *channel); // takes one that has been finished

// Queues a message, of which `count` pieces are given; ls_connection_flush sends it.
// LS_OUT_OF_MEMORY.
LS_STATUS ls_channel_queue(struct ls_channel *channel, uint32_t kind,
                           const struct ls_channel_piece *pieces, uint32_t count);
// Takes up to `bytes` bytes that have come; at least one with LS_OK. LS_AGAIN: none are here.
// LS_PEER_LOST: closed; LS_BAD_INPUT: not what the peer sealed.
LS_STATUS ls_channel_take(struct ls_channel *channel, void *memory, size_t bytes, size_t *taken);

void ls_channel_put_head(uint8_t head[LS_CHANNEL_HEAD], uint32_t kind, uint64_t bytes);
// False: no head of a message.
bool ls_channel_get_head(const uint8_t head[LS_CHANNEL_HEAD], uint32_t *kind, uint64_t *bytes);

// ---- A worker's end, which waits ----

struct ls_channel_wait {
    uint64_t patience_ns; // in which something must move
    struct ls_stop stop;
};

// Connects as ls_reach does.
LS_STATUS ls_channel_reach(const struct ls_reach *reach, bool sealed, struct ls_channel *out);
// These three say nothing in the log. LS_PEER_LOST: the connection is closed; LS_AGAIN: nothing
// moved for `patience_ns`; LS_BAD_INPUT; LS_ABORTED. After any of them the channel is of no use.
LS_STATUS ls_channel_send(struct ls_channel *channel, uint32_t kind,
                          const struct ls_channel_piece *pieces, uint32_t count,
                          const struct ls_channel_wait *wait);
// The head of the next message; its bytes are to be read next, all of them.
LS_STATUS ls_channel_receive(struct ls_channel *channel, uint32_t *kind, uint64_t *bytes,
                             const struct ls_channel_wait *wait);
LS_STATUS ls_channel_read(struct ls_channel *channel, void *memory, size_t bytes,
                          const struct ls_channel_wait *wait);

#endif
