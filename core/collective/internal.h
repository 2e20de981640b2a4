// SPDX-License-Identifier: Apache-2.0
// What the files behind communicator.h share.
#ifndef LS_COLLECTIVE_INTERNAL_H
#define LS_COLLECTIVE_INTERNAL_H

#include "core/base/trace.h"
#include "core/collective/communicator.h"
#include "core/collective/compile.h"
#include "core/collective/executor.h"
#include "core/collective/recorder.h"

// What the ranks of one process have in common.
struct ls_communicator_group {
    const struct ls_plugin *collective;
    const struct ls_host *collective_host;
    const struct ls_collective_interface *algorithm;
    const struct ls_transport_interface *interface;
    uint32_t world;
    uint64_t deadline_ns;
    uint64_t segment_bytes;
    char *name;
    _Atomic uint32_t failed; // the first rank that fails says why
    _Atomic uint32_t open;
    struct ls_recorder *recorders; // of each rank
};

struct ls_communicator {
    struct ls_communicator_group *group;
    uint32_t rank;
    enum ls_status status; // LS_OK, or LS_ABORTED once anything failed
    struct ls_transport *transport; // NULL in a world of one
    struct ls_message_numbers numbers;
    uint64_t sequence; // of the next call
    struct ls_collective_plan **running; // in the order in which they began
    uint32_t running_count, running_capacity;
    struct ls_transfer **waiting; // room for all pending transfers of all plans
    uint32_t operation_count; // of all plans
    struct ls_communication_times times;
    struct ls_trace_track *track; // of runs under way; NULL: none yet, or nothing is recorded
};

struct ls_collective_plan {
    struct ls_communicator *communicator;
    struct ls_call_signature signature;
    struct ls_compiled_schedule compiled;
    struct ls_executor *executor;
    void *scratch;
    uint64_t sequence; // of the last run
    bool running;
    enum ls_status result; // of the last run
    // Of a timeline; NULL: was made while nothing was recorded.
    const struct ls_trace_label *run_slice, *wait_slice;
    const char *algorithm; // that draws its schedule
    uint64_t started_ns; // while the run is recorded
};

// Ends everything on all ranks. Returns `status`, once no peer touches this rank's memory.
enum ls_status ls_communicator_give_up(struct ls_communicator *communicator, enum ls_status status);

// Each says what happened, unless another rank already has, and gives up; returns how the call ends.
enum ls_status ls_communicator_fail(struct ls_communicator *communicator,
                                    const struct ls_collective_plan *plan, enum ls_status status);
enum ls_status ls_communicator_fail_mismatch(struct ls_communicator *communicator,
                                             const struct ls_collective_plan *plan, uint32_t peer);
enum ls_status ls_communicator_fail_deadline(struct ls_communicator *communicator,
                                             const struct ls_collective_plan *plan,
                                             uint64_t waited_ns);

// A rank that made this call differently; false: none is known to have.
bool ls_communicator_find_mismatch(struct ls_communicator *communicator,
                                   const struct ls_collective_plan *plan, uint32_t *rank,
                                   struct ls_call_signature *theirs);

const char *ls_call_text(const struct ls_call_signature *signature, char text[static 160]);

#endif
