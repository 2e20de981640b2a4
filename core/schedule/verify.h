// SPDX-License-Identifier: Apache-2.0
// Proves what a schedule promises, without running it: every send is matched, nothing deadlocks
// although a send ends only when it is received and a rank enters a round only when all of its
// steps before are done, no element is written and read in one round, nothing undefined is read,
// and the result has each rank's contribution exactly once, added in the same order at every rank.
// docs/verify.md says what follows from that, and what does not.
//
// Elements are followed as symbols, in the largest intervals that the schedule treats alike; so the
// cost depends on the number of steps, hardly on the number of elements. [any thread]
#ifndef LS_SCHEDULE_VERIFY_H
#define LS_SCHEDULE_VERIFY_H

#include "core/base/status.h"
#include "core/schedule/schedule.h"
#include "core/plugin/collective.h"

#include <stdbool.h>
#include <stddef.h>

// Steps and rounds of all ranks together, and as many intervals and expressions, at about 100 bytes
// each: what is larger is refused.
#define LS_VERIFY_STEPS (UINT64_C(1) << 23)
#define LS_VERIFY_WORLD (UINT32_C(1) << 16)
#define LS_VERIFY_COUNT (UINT64_C(1) << 36) // elements

enum ls_verdict {
    LS_VERDICT_HOLDS = 0,
    LS_VERDICT_DECLINED = 1, // the collective does not do this call, and says so on every rank
    LS_VERDICT_DESCRIBE =
        2, // build_schedule fails, or writes steps that mean nothing, or is not pure
    LS_VERDICT_LIMIT = 3, // more steps than can be verified; does it end?
    LS_VERDICT_MATCH =
        4, // a message that only one side knows, or of which they expect different lengths
    LS_VERDICT_CONFLICT = 5, // one step writes what another of the same round touches
    LS_VERDICT_DEADLOCK = 6,
    LS_VERDICT_UNDEFINED = 7, // reads scratch that nobody has written
    LS_VERDICT_RESULT =
        8, // a contribution is missing, is there twice, or is that of another element
    LS_VERDICT_ORDER =
        9, // ranks add in different orders though the collective says that it is deterministic
    LS_VERDICT_ROUNDING = 10, // with messages of 16 bits, ranks round in different places
};

// What is verified. All values mean what they mean in struct ls_collective_call.
struct ls_verify_case {
    uint32_t operation;
    uint32_t world;
    uint32_t root;
    uint32_t ranks_per_host; // so many neighbours share a host; 0: unknown
    const uint32_t *hosts; // instead, where they are given; borrowed
    const uint32_t *cards, *order; // borrowed; NULL: unknown
    uint64_t count;
    uint32_t element_bytes;
    bool halves; // an all-reduce whose messages are of 16 bits (core/schedule/compile.h)
    uint64_t most_steps; // and 512 times as much work on intervals; 0: LS_VERIFY_STEPS

    // Optional: the rank whose build_schedule is running, UINT32_MAX while none is; for a watcher
    // outside.
    volatile uint32_t *describing;
};

// Ranks, rounds and elements count from 0.
struct ls_verification {
    uint32_t verdict; // enum ls_verdict
    uint32_t rank; // of a refusal: where; round is that of this rank
    uint32_t round; // the number of rounds when it is about the result
    struct ls_range range; // elements that it is about; count 0: none
    char reason[400]; // "rank 3, round 2: receives elements 128 to 191 from rank 5, which ..."

    // The rest is 0 unless the verdict is HOLDS, or RESULT or ORDER.
    uint32_t rounds; // of the rank that has most
    uint32_t least_rounds; // no schedule with as many messages of a rank in a round can have fewer
    uint32_t messages_at_once; // most that a rank sends, or receives, in one round
    uint64_t steps; // of all ranks
    uint64_t most_bytes; // that a rank sends, or receives, whichever is more
    double least_bytes; // known minimum of the same: of the rank that has most
    uint64_t scratch_bytes; // of the rank that has most
    uint64_t fingerprint; // equal for equal schedules
    bool same_order; // of additions, at every rank
};

// Errors: LS_OUT_OF_MEMORY; LS_USAGE for a case that is none (logged). A broken schedule is a
// verdict, not an error, and not logged.
LS_STATUS ls_verify_schedule(const struct ls_collective_interface *collective,
                             const struct ls_host *host, const struct ls_verify_case *verified,
                             struct ls_verification *out);

// The same, and the schedules that were verified, so that what runs is what was proven; NULL unless
// the verdict is HOLDS.
struct ls_verified_schedules;
LS_STATUS ls_verify_and_keep(const struct ls_collective_interface *collective,
                             const struct ls_host *host, const struct ls_verify_case *verified,
                             struct ls_verification *out, struct ls_verified_schedules **kept);
// A copy of what `rank` does.
LS_STATUS ls_verified_schedules_get(const struct ls_verified_schedules *kept, uint32_t rank,
                                    struct ls_drawn_schedule *out);
void ls_verified_schedules_destroy(struct ls_verified_schedules *kept); // takes NULL

#endif
