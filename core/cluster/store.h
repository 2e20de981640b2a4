// SPDX-License-Identifier: Apache-2.0
// The store of a cluster: one thread of worker 0 that all members (workers, then servers) are
// connected to. It gathers who takes part, compares what must be equal, collects a block of each
// worker and sends all of them to all, keeps values under keys, and watches who is alive. It never
// waits for one member: all sockets are non-blocking, all queues bounded. Strangers are turned away
// and counted.
#ifndef LS_CLUSTER_STORE_H
#define LS_CLUSTER_STORE_H

#include "core/base/status.h"
#include "core/cluster/secure.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_MOST_MEMBERS 4096
#define LS_MOST_ELASTIC 512 // workers whose addresses fit in one message
#define LS_MOST_STRANGERS 64 // connections that have not shown who they are
#define LS_STRANGER_NS UINT64_C(2000000000) // that they have for it
#define LS_KEY_BYTES 256
#define LS_VALUE_MOST ((size_t)60 << 10) // bytes of one value
#define LS_VALUES_MOST ((size_t)16 << 20) // bytes of all values
#define LS_MOST_VALUES 4096

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
    const char *door_host;
    uint16_t door_port;
    int first; // one end of a pair of sockets, whose other end is worker 0's own connection; taken
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

// Takes the descriptors also where it fails.
LS_STATUS ls_store_open(const struct ls_store_options *options, struct ls_store **out);
// Says goodbye to all members and gives them a second to hear it. Takes NULL.
void ls_store_close(struct ls_store *store);

// Connections that were turned away, by reason. [any thread]
enum ls_stranger_reason {
    LS_STRANGER_SILENT, // closed before it had said who it is
    LS_STRANGER_GREETING, // said something else than a worker does
    LS_STRANGER_SECRET, // does not know the secret (a replay does not either)
    LS_STRANGER_SLOW, // was not ready within LS_STRANGER_NS
    LS_STRANGER_CROWDED, // made room for another one
    LS_STRANGER_MALFORMED, // knew the secret, but its message makes no sense
    LS_STRANGER_REASONS
};
uint64_t ls_store_strangers(const struct ls_store *store, enum ls_stranger_reason reason);

// New workers that wait, as far as there is room for them. [any thread]
uint32_t ls_store_waiting(const struct ls_store *store);

// Bytes of each member's block in one frame of a meeting of so many.
size_t ls_store_meeting_part(uint32_t members);

// Bytes of each worker's block in one exchange, so that the whole result stays small.
size_t ls_store_part(uint32_t workers);

#endif
