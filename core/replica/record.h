// SPDX-License-Identifier: Apache-2.0
// Recorded steps: work that is the same in each step is put on the device's stream kernel by kernel the first time, recorded
// the second time, and from then on replayed with one call. Private to replica/ but for what replica.h has. [replica thread]
#ifndef LS_REPLICA_RECORD_H
#define LS_REPLICA_RECORD_H

#include "core/replica/internal.h"

// Which pass over the share a program makes; what it puts on the stream depends on it.
enum {
    LS_PASS_WHOLE, // the whole share at once; or an evaluation
    LS_PASS_LAST, // of several blocks
    LS_PASS_ADDED, // plus k: an earlier block, which is added to the sums of 1, 2, ... 2^(k-1) blocks
    LS_PASS_COUNT = LS_PASS_ADDED + LS_TREE_LEVELS,
};

// What is recorded as one. It makes the same calls of the device whenever it runs, on the device's own stream.
struct ls_section {
    enum ls_status (*work)(void *context);
    void *context;
    struct ls_capture *capture;
    // Around a recording of it, where the work calls others than the device; after each replay. NULL: nothing.
    const struct ls_replica_hooks *hooks;
};

// Whether the device records, and nobody said that it should not. After the device was opened.
void ls_record_init(struct ls_replica *replica, const struct ls_host *host);
void ls_record_release(struct ls_replica *replica, struct ls_capture *captures, uint32_t count);

// A step of training begins. `together`: it is recorded with what replicas do with each other.
void ls_record_begin_step(struct ls_replica *replica, uint64_t global_count, bool together);
// It is over; `whole`: nothing of it was outside of what may be recorded.
void ls_record_end_step(struct ls_replica *replica, bool whole);

// Runs it: as it is, recording, or a replay. Work within work is run as it is.
LS_STATUS ls_record_run(struct ls_replica *replica, const struct ls_section *section);

#endif
