// SPDX-License-Identifier: Apache-2.0
// How a worker comes to a connection with the store of worker 0 that both sides trust.
#ifndef LS_CLUSTER_REACH_H
#define LS_CLUSTER_REACH_H

#include "core/cluster/connection.h"
#include "core/cluster/resolve.h"
#include "core/cluster/sockets.h"

#include <stdatomic.h>

struct ls_reach {
    const struct ls_worker_place *place;
    uint8_t key[LS_SECURE_KEY];
    bool apart; // in messages it is a process of a job, not a worker of a training
    bool open_to_all; // the key is no secret, and the network is not trusted either
    uint64_t deadline_ns;
    // Of the worker that has the store. One that takes over from a lost worker 0 has another number
    // than 0, and has listened from the beginning: if its machine refuses the connection, it has
    // ended, and if that cannot be reached for `unreachable_ns`, it is cut off.
    uint32_t number;
    uint64_t unreachable_ns;
    const atomic_bool *interrupted; // the user ends this process; NULL: never
};

// Tries until the store answers, and says every second for whom it waits. LS_PEER_LOST after the
// deadline; LS_USAGE: another secret, or none where one is necessary. LS_AGAIN: the worker that
// should take over has ended. LS_INTERRUPTED. Errors are logged.
LS_STATUS ls_store_reach(const struct ls_reach *reach, struct ls_connection *out);

// The worker's side of the handshake. LS_AGAIN: no sensible answer within `patience_ns`;
// LS_PEER_LOST: the connection was closed; LS_USAGE: the store has another secret; LS_ABORTED:
// `stop`, which may be NULL.
LS_STATUS ls_shake_hands(struct ls_connection *connection, uint64_t patience_ns,
                         const struct ls_stop *stop);

// "other machines reach worker 0 at 10.0.0.1:29400: ..." is logged, and LS_USAGE returned.
LS_STATUS ls_refuse_without_secret(const struct ls_worker_place *place);

#endif
