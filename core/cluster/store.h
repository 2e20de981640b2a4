// SPDX-License-Identifier: Apache-2.0
// The store of a cluster: one thread of worker 0 that all members (workers, then servers) are
// connected to. It finds out which processes take part, compares what must be equal, collects a
// block of each worker and sends all of them to all, and watches which of them are alive. It never
// waits for one member: all sockets are non-blocking, all queues bounded. Strangers are turned away
// and counted.
#ifndef LS_CLUSTER_STORE_H
#define LS_CLUSTER_STORE_H

#include "core/base/status.h"
#include "core/wire/connection.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_MOST_MEMBERS 4096
#define LS_MOST_ELASTIC 512 // workers whose addresses fit in one message
#define LS_KEY_BYTES 256 // of the name of a meeting, with its final zero

struct ls_store;

// Where a worker listens, so that it can open a store if worker 0 is lost.
struct ls_reserve {
    char address[64]; // numeric; "": the one where the store was reached
    uint16_t port; // 0: nowhere
};

// A worker of the last generation, as the next worker 0 knows it.
struct ls_former {
    struct ls_reserve reserve;
    bool gone; // it is known to be lost
};

struct ls_store_options {
    int listener; // taken
    // Where new workers come if this store takes over, as soon as the last one has left it: a
    // numeric address and a port; NULL: nowhere else than at `listener`.
    const char *begin_host;
    uint16_t begin_port;
    struct ls_connection *own; // to worker 0 of this process, of a pair; taken
    uint8_t key[LS_SECURE_KEY];
    uint32_t workers, servers;
    uint64_t join_deadline_ns, deadline_ns, silence_ns;
    uint32_t least_workers, most_workers; // most_workers 0: not elastic
    bool apart; // as ls_cluster_options: `departed` is set
    const char *address; // where the listener is, for messages; copied
    // A store that takes over from one that is lost: the workers of that generation, and the time
    // that they have to come. NULL: a new training.
    const struct ls_former *former;
    bool stood; // this process was stopped when it lost that store
    uint32_t generation;
    uint64_t reform_deadline_ns;
};

// Takes listener and connection also where it fails.
LS_STATUS ls_store_open(const struct ls_store_options *options, struct ls_store **out);
// Says goodbye to all members and gives them a second to hear it. Takes NULL.
void ls_store_close(struct ls_store *store);

// Connections that were dropped because they were none of a worker's. [any thread]
uint64_t ls_store_strangers(const struct ls_store *store);

// New workers that wait, as far as there is room for them. [any thread]
uint32_t ls_store_waiting(const struct ls_store *store);

// Bytes of each member's block in one frame of a meeting of so many.
size_t ls_store_meeting_part(uint32_t members);

// Bytes of each worker's block in one exchange, so that the whole result stays small.
size_t ls_store_part(uint32_t workers);

#endif
