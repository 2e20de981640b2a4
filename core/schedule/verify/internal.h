// SPDX-License-Identifier: Apache-2.0
// What the parts of the verifier share: all ranks' steps in one array, and the first refusal. A
// part returns LS_OK to go on, LS_FAILED when it has refused the schedule, LS_OUT_OF_MEMORY.
#ifndef LS_SCHEDULE_VERIFY_INTERNAL_H
#define LS_SCHEDULE_VERIFY_INTERNAL_H

#include "core/schedule/verify.h"

#define LS_NO_STEP UINT32_MAX

struct ls_verified_step {
    uint64_t offset; // in `buffer`
    uint64_t from_offset; // in `from_buffer`; of reduce and copy
    uint64_t count; // not 0
    uint32_t peer;
    uint32_t round;
    uint32_t partner; // the step at the other side of the message
    uint32_t next; // the reduction of this round that has to wait for this one
    uint8_t kind; // enum ls_step_kind
    uint8_t buffer, from_buffer;
    uint8_t waits; // for another reduction of this round
    uint8_t done;
};

// Of all ranks, as struct ls_verifier has them.
struct ls_verified_schedules {
    struct ls_verified_step *steps;
    uint32_t *first, *rounds;
    uint64_t *scratch;
};

struct ls_verifier {
    const struct ls_verify_case *verified;
    struct ls_verification *out;
    struct ls_verified_step *steps; // of rank 0, rank 1, ...; each in the order written
    uint32_t step_count, step_capacity;
    uint32_t *first; // world + 1 entries: where each rank's begin
    uint32_t *rounds; // of each rank
    uint64_t *scratch; // elements of each rank
    struct ls_symbols *symbols;
};

// The case's own, or the largest there is.
static inline uint64_t ls_verifier_most_steps(const struct ls_verifier *verifier)
{
    const uint64_t asked = verifier->verified->most_steps;
    return asked && asked < LS_VERIFY_STEPS ? asked : LS_VERIFY_STEPS;
}

static inline bool ls_step_is_local(const struct ls_verified_step *step)
{
    return step->kind == LS_STEP_REDUCE || step->kind == LS_STEP_COPY;
}

static inline bool ls_step_reduces(const struct ls_verified_step *step)
{
    return step->kind == LS_STEP_REDUCE || step->kind == LS_STEP_RECEIVE_AND_REDUCE;
}

static inline struct ls_range ls_step_range(const struct ls_verified_step *step)
{
    return (struct ls_range){step->buffer, 0, step->offset, step->count};
}

static inline struct ls_range ls_step_from(const struct ls_verified_step *step)
{
    return (struct ls_range){step->from_buffer, 0, step->from_offset, step->count};
}

// ---- refusal.c ----

// Writes the verdict; `format` goes on after "rank R, round N: ". Returns LS_FAILED.
LS_PRINTF(6, 7)
enum ls_status ls_verifier_refuse(struct ls_verifier *verifier, uint32_t verdict, uint32_t rank,
                                  uint32_t round, const struct ls_range *range, const char *format,
                                  ...);

// "elements 128 to 191", "element 5 of scratch". Returns `text`.
const char *ls_elements_text(const struct ls_range *range, char *text, size_t bytes);

// ---- The parts of the proof, in their order ----

// Lets every rank describe its part. (draw.c)
LS_STATUS ls_verifier_draw(struct ls_verifier *verifier,
                           const struct ls_collective_interface *collective,
                           const struct ls_host *host);
// Links both sides of every message. (match.c)
LS_STATUS ls_verifier_match(struct ls_verifier *verifier);
// Looks into each round of each rank for conflicts; chains reductions into one range. (rounds.c)
LS_STATUS ls_verifier_check_rounds(struct ls_verifier *verifier);
// Lets the ranks go through their rounds, and symbols through their buffers. (deadlock.c)
LS_STATUS ls_verifier_run(struct ls_verifier *verifier);
// Compares what the buffers have in the end with what the operation promises. (result.c)
LS_STATUS ls_verifier_check_result(struct ls_verifier *verifier, bool deterministic);

#endif
