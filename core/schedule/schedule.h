// SPDX-License-Identifier: Apache-2.0
// The schedule of one rank as data: the steps that a collective described, round by round. [any
// thread]
#ifndef LS_SCHEDULE_H
#define LS_SCHEDULE_H

#include "core/base/status.h"
#include "core/plugin/collective.h"

#include <stdbool.h>
#include <stddef.h>

struct ls_scheduled_step {
    struct ls_step step;
    uint32_t round;
};

// Initialised by ls_schedule_draw, freed by ls_drawn_schedule_finish.
struct ls_drawn_schedule {
    struct ls_scheduled_step *steps;
    size_t step_count;
    uint32_t round_count;
    uint64_t scratch_count; // elements
};

// Lets `collective` (named `name`) describe the call. An operation that it does not offer is taken
// from the host's own: reduce and reduce-scatter run its all-reduce; broadcast is a binomial tree;
// all-gather sends each part to every rank; in an all-to-all ranks exchange blocks in pairs. Steps
// that name a peer outside the world, or a range outside its buffer, are LS_FAILED, logged with
// rank, round and range.
LS_STATUS ls_schedule_draw(const struct ls_collective_interface *collective, const char *name,
                           const struct ls_collective_call *call, struct ls_drawn_schedule *out);
void ls_drawn_schedule_finish(struct ls_drawn_schedule *schedule); // takes a zeroed one

// The same into a table of the caller's own, which then checks what is written.
int32_t ls_schedule_build(const struct ls_collective_interface *collective,
                          const struct ls_collective_call *call, struct ls_schedule *schedule);

// How long the schedule of a rank is: nothing is checked or kept, and calls after `most` fail,
// which is no error here: the size is then larger than that. Returns what build_schedule does, and
// logs nothing that it says through its host.
struct ls_schedule_size {
    uint64_t steps; // that have elements
    uint64_t rounds;
    char reason[256]; // why build_schedule failed or declined, if it said so; else ""
};
LS_STATUS ls_schedule_measure(const struct ls_collective_interface *collective,
                              const struct ls_collective_call *call, uint64_t most,
                              struct ls_schedule_size *out);

// `count`, or the next larger number of elements with which there is such an operation: the blocks
// of an all-to-all are equal.
uint64_t ls_collective_whole_count(uint32_t operation, uint64_t count, uint32_t world);

const char *ls_collective_operation_text(
    uint32_t operation); // "all-reduce"; NULL for another number
const char *ls_step_kind_text(uint32_t kind); // "receive-and-reduce"; NULL likewise

// "chunk" of a message: "elements 0 to 63 of the data buffer". Returns `text`.
const char *ls_range_text(const struct ls_range *range, char *text, size_t bytes);

// The host of each rank where so many neighbours share one; NULL, too: 0 share one, which is
// unknown. For free().
LS_STATUS ls_uniform_hosts(uint32_t world, uint32_t ranks_per_host, uint32_t **out);
// The opposite: how many neighbours share each host (the last may have fewer); 0: unknown, or
// unequally many.
uint32_t ls_ranks_per_host(const uint32_t *hosts, uint32_t world);

#endif
