// SPDX-License-Identifier: Apache-2.0
// Runs compiled schedules over a transport. A run is made once and then begun many times, without allocating.
// [replica thread, one per rank]
#ifndef LS_COLLECTIVE_EXECUTOR_H
#define LS_COLLECTIVE_EXECUTOR_H

#include "core/base/status.h"
#include "core/base/trace.h"
#include "core/schedule/compile.h"

#include <stdbool.h>

// Where a rank stands: the numbers that the next message to and from each peer gets.
struct ls_message_numbers {
    uint64_t *next_send; // world entries
    uint64_t *next_receive;
};

struct ls_executor_memory {
    char *buffers[2]; // indexed by enum ls_range_buffer
    char *halves[2]; // likewise, where messages are of halves; as many elements
    uint32_t dtype;
    uint32_t wire; // the halves' type
    uint32_t reduction; // sum, product, min or max
    uint64_t divisor;
};

// What a timeline gets of a run: a slice for each message, from when it was posted until it was complete.
struct ls_executor_slices {
    struct ls_trace_track *sends, *receives;
    const struct ls_trace_label **labels; // of each operation; NULL: no slice
    uint64_t *posted_ns; // of each operation
    uint64_t number; // of the run
};

struct ls_executor; // one run

// Borrows `compiled`.
LS_STATUS ls_executor_create(const struct ls_compiled_schedule *compiled,
                             const struct ls_executor_memory *memory, struct ls_executor **out);
// Other buffers for the runs that begin from now on; not while it runs.
void ls_executor_move(struct ls_executor *executor, const struct ls_executor_memory *memory);
void ls_executor_destroy(
    struct ls_executor *executor); // takes NULL; not while it runs, but after an abort

// Of the runs that begin from now on; borrowed. NULL: none.
void ls_executor_record(struct ls_executor *executor, struct ls_executor_slices *slices);

// Begins a run: posts what can begin. It may be complete at once.
LS_STATUS ls_executor_begin(struct ls_executor *executor,
                            const struct ls_transport_interface *interface,
                            struct ls_transport *transport,
                            const struct ls_message_numbers *numbers, uint64_t signature);
// Moves on without waiting; `moved` becomes true when anything did.
LS_STATUS ls_executor_advance(struct ls_executor *executor, bool *moved);
bool ls_executor_done(const struct ls_executor *executor);
// Whether a finite value of this rank was too large for a half since the run began.
bool ls_executor_overflowed(const struct ls_executor *executor);

// What is posted and not complete; for waiting. Borrowed until the next advance.
struct ls_transfer *const *ls_executor_pending(const struct ls_executor *executor, uint32_t *count);
// The transfer whose peer sent something else, after LS_FAILED; NULL when it is not that.
const struct ls_transfer *ls_executor_mismatch(const struct ls_executor *executor);

#endif
