// SPDX-License-Identifier: Apache-2.0
// The one face of every collective: a communicator per rank, with plans for the buffers that are reduced
// every step. Schedules are drawn when a plan is made; a step only runs them. A communicator owns sequence
// numbers, deadlines, the flight recorder of its last calls, and the check that all ranks call
// the same thing; what differs is named with both sides. [replica thread, one per rank]
#ifndef LS_COLLECTIVE_COMMUNICATOR_H
#define LS_COLLECTIVE_COMMUNICATOR_H

#include "core/base/status.h"
#include "core/plugin/collective.h"
#include "core/plugin/transport.h"

#include <stddef.h>
#include <stdint.h>

struct ls_communicator;
struct ls_collective_plan;

struct ls_communicator_options {
    const struct ls_plugin *collective; // kind collective
    const struct ls_host *collective_host;
    const struct ls_plugin *transport; // kind transport
    const struct ls_host *transport_host;
    uint32_t world;
    uint64_t deadline_ns; // for every wait
    const char *name; // "gradients"; in messages
    uint64_t
        segment_bytes; // how finely steps are cut; 0: LS_SEGMENT_BYTES (core/collective/compile.h)
};

// All ranks of one process at once; out[i] is rank i. [main thread]
LS_STATUS ls_communicators_open(const struct ls_communicator_options *options,
                                struct ls_communicator **out);
void ls_communicators_close(struct ls_communicator **communicators,
                            uint32_t world); // NULL entries too

// Prepares an operation on `count` elements of `buffer` (in place), to be run many times. `operation` is enum
// ls_collective_operation, `label` names it in messages ("bucket 0"). `root` for broadcast.
LS_STATUS ls_collective_plan_create(struct ls_communicator *communicator, uint32_t operation,
                                    void *buffer, uint64_t count, uint32_t dtype,
                                    uint32_t reduction, uint32_t root, const char *label,
                                    struct ls_collective_plan **out);
void ls_collective_plan_destroy(struct ls_collective_plan *plan);
// Bytes that this rank sends in one run, and how many rounds its schedule has.
uint64_t ls_collective_plan_bytes(const struct ls_collective_plan *plan);
uint32_t ls_collective_plan_rounds(const struct ls_collective_plan *plan);

// Begins one run; the buffer belongs to the communicator until wait returns. Same order on every rank.
LS_STATUS ls_collective_start(struct ls_collective_plan *plan);
// Moves what can be moved without waiting; a few nanoseconds when nothing is pending.
LS_STATUS ls_communicator_progress(struct ls_communicator *communicator);
// Ends the run: LS_PEER_LOST after the deadline (names rank, peer, operation, sequence, label, time waited),
// LS_ABORTED when another rank failed.
LS_STATUS ls_collective_wait(struct ls_collective_plan *plan);

// Makes every wait of every rank return LS_ABORTED soon. [any thread]
void ls_communicator_abort(struct ls_communicator *communicator);

// Nanoseconds spent moving data and waiting since the last call with reset. [replica thread]
struct ls_communication_times {
    uint64_t busy_ns; // moving and reducing
    uint64_t exposed_ns; // inside ls_collective_wait
};
void ls_communicator_times(struct ls_communicator *communicator, int32_t reset,
                           struct ls_communication_times *out);

#endif
