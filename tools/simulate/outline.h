// SPDX-License-Identifier: Apache-2.0
// The schedules of all ranks of a large world, small enough to be held at once. What a step waits for is found
// once for each *shape*: ranks whose steps differ only in which peers and how many bytes share it (all ranks
// of a ring do). [any thread]
#ifndef LS_TOOLS_SIMULATE_OUTLINE_H
#define LS_TOOLS_SIMULATE_OUTLINE_H

#include "core/schedule/schedule.h"

// A step's state begins as what it waits for: so many steps before it starts, and so many before its reduction.
#define LS_WAITS_MASK UINT32_C(0x00ffffff)
#define LS_ORDER_ONE UINT32_C(0x01000000)
#define LS_ORDER_MASK UINT32_C(0x3f000000)

// In `dependents`: the step is only reduced later, it may start at once.
#define LS_DEPENDENT_ORDER UINT32_C(0x80000000)

#define LS_OUTLINE_NONE UINT32_MAX

struct ls_outline_step {
    uint32_t kind_peer; // enum ls_step_kind + 8 * the peer's number among the rank's peers
    uint32_t range; // its length is rank.bytes[range]
    uint32_t number; // of the message, from 0, among those to (or from) this peer
    uint32_t first_dependent; // up to that of the next step
};

struct ls_step_graph {
    uint64_t key[2];
    uint32_t step_count, peer_count;
    struct ls_outline_step *steps; // and one more, which ends the dependents
    uint32_t *states; // at the beginning
    uint32_t *dependents;
    uint32_t *first_send, *first_receive; // by peer, and one more
    uint32_t *sends, *receives; // steps, message after message
};

// The ranges' lengths of one or many ranks.
struct ls_sizes {
    uint64_t key[2];
    uint32_t count;
    uint64_t *bytes;
};

struct ls_rank_outline {
    const struct ls_step_graph *shape;
    const uint64_t *bytes;
    uint64_t first_state; // in an array for the steps of all ranks
    uint64_t first_pair;
};

// A rank and one of its peers.
struct ls_pair {
    uint32_t peer;
    uint32_t place; // of this rank among the peer's peers
};

struct ls_outline {
    uint32_t world;
    struct ls_rank_outline *ranks;
    struct ls_pair *pairs;
    struct ls_step_graph **shapes;
    struct ls_sizes **sizes;
    uint32_t shape_count, sizes_count;
    uint64_t pair_count, step_count;
    uint32_t round_count; // of the rank that has most
    uint64_t memory_bytes;
};

struct ls_outline_options {
    const struct ls_collective_interface *collective;
    const char *name;
    const struct ls_collective_call *call; // of any rank
    uint64_t memory_limit; // bytes
    uint64_t *ranks_described; // optional: counts, for a watching thread (relaxed atomic)
};

// LS_FAILED, logged, for a schedule that cannot be meant: a peer outside the world, a range outside its
// buffer, two steps of a round on one range, messages that nobody receives, one that never ends. LS_USAGE, logged,
// when the world needs more memory than the limit.
LS_STATUS ls_outline_create(const struct ls_outline_options *options, struct ls_outline *out);
// The orders in which rings go through all ranks, from rank 0 on: "0 1 2 3, 0 3 2 1". For free();
// NULL: there is none, or too many ranks to list.
char *ls_outline_rings(const struct ls_outline *outline);
void ls_outline_finish(struct ls_outline *outline); // takes a zeroed one

#endif
