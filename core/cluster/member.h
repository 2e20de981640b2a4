// SPDX-License-Identifier: Apache-2.0
// A member's side of its connection to the store: one thread that reads, tells the store where this
// worker is, and watches whether worker 0 is alive.
#ifndef LS_CLUSTER_MEMBER_H
#define LS_CLUSTER_MEMBER_H

#include "core/cluster/cluster.h"
#include "core/cluster/store.h"
#include "core/wire/connection.h"

struct ls_member;

enum ls_operation { LS_OPERATION_GATHER = 1, LS_OPERATION_BROADCAST, LS_OPERATION_BARRIER };

// What the store said when all members were there. Arrays have an entry for each worker.
struct ls_welcome {
    uint32_t number; // of this worker, or of this server behind all workers
    uint32_t workers, generation, survivors;
    uint32_t *counts, *hosts;
    // Of an elastic cluster.
    uint32_t *former; // the worker's number in the last generation; LS_NO_WORKER: it is new
    struct ls_reserve *reserves; // of worker 0: at the address where its store was reached
    bool *gone; // lost since then
};

// Takes the connection (which has shaken hands), asks to join and starts the thread. `options` is
// borrowed for this call, but for `lost`. `reserve`: a socket that listens where this worker can
// open a store, or -1; until ls_member_leave_reserve the thread drops what comes there, so that
// others who look whether this worker is there find no full queue.
LS_STATUS ls_member_open(struct ls_connection *connection, const struct ls_cluster_options *options,
                         int reserve, struct ls_member **out);
void ls_member_leave_reserve(struct ls_member *member);
// Says goodbye, if nothing went wrong, and gives the store a second to hear it. Takes NULL.
void ls_member_close(struct ls_member *member);

// Waits until all members are there, or until a little after the deadline of the store. Borrowed.
// Errors are logged. LS_OK also where somebody was lost right after that: the next call says so.
// LS_AGAIN: the store that this new worker waited at is lost, and another one may take over.
LS_STATUS ls_member_wait_welcome(struct ls_member *member, uint64_t deadline_ns,
                                 const struct ls_welcome **out);

// Asks the store for a new generation, and waits for it. LS_AGAIN: the store is lost, or was
// already. LS_INTERRUPTED: the user ends this process. Other errors are final, and logged.
LS_STATUS ls_member_reform(struct ls_member *member, uint64_t deadline_ns,
                           const struct ls_welcome **out);
// The same through another connection, to the store of another worker, whose address is given for
// messages. Takes the connection. [main thread]
LS_STATUS ls_member_reform_at(struct ls_member *member, struct ls_connection *connection,
                              const struct ls_cluster_options *options, int reserve,
                              const char *address, uint64_t deadline_ns,
                              const struct ls_welcome **out);

// Whether a worker of this generation is known to be lost, and where its reserve is.
bool ls_member_is_gone(struct ls_member *member, uint32_t worker, struct ls_reserve *out);
// Whether this process was stopped when it lost worker 0.
bool ls_member_stood(struct ls_member *member);

// Gives `part` bytes, at most ls_store_part(), and gets what all workers gave: a size (32 bits,
// little-endian) for each, and then their parts. Borrowed until the next exchange. `root` and
// `bytes` must be the same on all workers. One call at a time. Errors are logged.
LS_STATUS ls_member_exchange(struct ls_member *member, enum ls_operation operation, uint32_t root,
                             uint64_t bytes, const void *data, size_t part, const uint8_t **result,
                             size_t *result_bytes);

// [any thread]
// As ls_cluster_meet, with at most ls_store_meeting_part() bytes.
LS_STATUS ls_member_meet(struct ls_member *member, const struct ls_meeting *meeting,
                         const void *own, size_t bytes, char *all);
void ls_member_tell(struct ls_member *member, const char *key, const uint32_t *members,
                    uint32_t count, const char *text);
void ls_member_say(struct ls_member *member, uint64_t step, const char *where);
LS_STATUS ls_member_check(struct ls_member *member, const char **text);
void ls_member_give_up(struct ls_member *member, const char *why);

#endif
