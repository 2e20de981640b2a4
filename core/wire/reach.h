// SPDX-License-Identifier: Apache-2.0
// How a process comes to a connection with a peer that both sides trust: the store of worker 0, or
// a server process.
#ifndef LS_WIRE_REACH_H
#define LS_WIRE_REACH_H

#include "core/wire/connection.h"
#include "core/wire/sockets.h"

struct ls_reach {
    const char *name; // of the peer, in messages: "worker 0", "server 1"
    const char *address;
    uint16_t port;
    const uint8_t *key; // LS_SECURE_KEY bytes
    bool open_to_all; // the key is no secret, and the network is not trusted either
    uint64_t patience_ns;
    // 0: the peer may still have to start. Else it has listened from the beginning: if its machine
    // refuses the connection, it has ended, and if that cannot be reached for so long, it is cut
    // off. Then another one may take its place, so that a peer that is lost is only a warning.
    uint64_t unreachable_ns;
    struct ls_stop stop;
    // Words of messages: what this process is ("worker"), what shares the secret ("workers"), what
    // was expected of it, and what to do where nobody answers (NULL: nothing).
    const char *own, *all, *expected, *advice;
};

// Tries until the peer answers, and says every second what it waits for, after the first 5 s.
// LS_PEER_LOST: it did not answer within `patience_ns`; LS_USAGE: it has another secret, or there
// is none where one is necessary; LS_AGAIN: a peer that listened from the beginning has ended.
// These are logged, but for LS_AGAIN. LS_ABORTED: `stop`.
LS_STATUS ls_reach(const struct ls_reach *reach, struct ls_connection *out);

// The handshake of the side that connects. LS_AGAIN: no sensible answer within `patience_ns`;
// LS_PEER_LOST: the connection was closed; LS_USAGE: the peer has another secret; LS_ABORTED:
// `stop`, which may be NULL.
LS_STATUS ls_shake_hands(struct ls_connection *connection, uint64_t patience_ns,
                         const struct ls_stop *stop);

#endif
