// SPDX-License-Identifier: Apache-2.0
// What drawing a rank and finding its shape share. [any thread]
#ifndef LS_TOOLS_SIMULATE_INTERNAL_H
#define LS_TOOLS_SIMULATE_INTERNAL_H

#include "tools/simulate/simulation.h"
#include "tools/simulate/outline.h"

#include <setjmp.h>
#include <stdbool.h>

// A step as it was drawn; ranges and peers have numbers by first appearance.
struct ls_raw_step {
    uint32_t kind;
    uint32_t peer;
    uint32_t range;
    uint32_t from; // of reduce and copy
    uint32_t round;
};

// One rank while it is drawn; the memory serves all ranks, one after the other.
struct ls_drawing {
    const struct ls_outline_options *options;
    struct ls_collective_call call; // of this rank
    struct ls_raw_step *steps;
    uint32_t step_count, step_capacity;
    uint32_t round_count;
    uint64_t scratch_count;
    struct ls_range *ranges;
    uint32_t range_count, range_capacity;
    uint32_t *range_slots; // hash table of numbers, LS_OUTLINE_NONE where empty
    uint32_t slot_count;
    uint64_t ranges_sum; // of the ranges' hashes: equal for equal sets
    uint32_t *peers;
    uint32_t peer_count;
    uint32_t *peer_places; // by rank; counts where peer_marks has this rank + 1
    uint32_t *peer_marks;
    uint64_t key[2]; // of the steps
    bool key_is_enough; // equal keys mean equal shapes: no two ranges overlap in part
    uint64_t plain_sum; // ranges_sum of the last set that had no overlap
    uint32_t plain_count;
    enum ls_status status;
    jmp_buf out_of_build;
};

enum ls_status ls_drawing_init(struct ls_drawing *drawing,
                               const struct ls_outline_options *options);
void ls_drawing_finish(struct ls_drawing *drawing);
enum ls_status ls_drawing_draw(struct ls_drawing *drawing, uint32_t rank);

// Finds what each step waits for. The shape's key is left to the caller.
enum ls_status ls_step_graph_create(const struct ls_drawing *drawing, struct ls_step_graph **out);
void ls_step_graph_destroy(struct ls_step_graph *shape);
uint64_t ls_step_graph_bytes(const struct ls_step_graph *shape);

static inline uint64_t ls_mixed(uint64_t value)
{
    value ^= value >> 32;
    value *= UINT64_C(0xd6e8feb86659fd93);
    value ^= value >> 32;
    return value;
}

// Two hashes side by side; together they tell shapes apart.
static inline void ls_key_add(uint64_t key[2], uint64_t value)
{
    key[0] = (key[0] ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    key[0] ^= key[0] >> 29;
    key[1] = (key[1] + value) * UINT64_C(0xc2b2ae3d27d4eb4f);
    key[1] ^= key[1] >> 31;
}

#endif
