// SPDX-License-Identifier: Apache-2.0
// The memory plan: when each buffer of the arena lives, which outputs take the place of an input
// that ends, and where everything lies. Where the program has a branch (branch.c), buffers of the
// branch live until it joins; it joins as late as memory allows.
#include "core/graph/build.h"

#include <stdlib.h>

#define NEVER UINT32_MAX
#define BRANCH_PERCENT 10 // that the arena may be larger with a branch than without

// A piece of the arena, living from time `first` to time `last`, both included. Step s of the own
// stream runs at time 2 s; one of the branch from then on, until the time between step `join` and
// the step before it.
struct piece {
    uint64_t bytes, offset;
    uint32_t first, last;
    uint32_t step, value; // LS_NO_VALUE: scratch of the step
};

struct memory {
    struct ls_program *program;
    struct ls_program_buffers *buffers;
    struct piece *pieces; // by value; only those of memory's own in the arena count
    struct piece *list, *placed; // those that need room
    uint32_t *views; // by value: `memory` before anything took the place of an input
};

static bool in_arena(const struct memory *memory, uint32_t value)
{
    return memory->buffers->values[value].home == LS_HOME_ARENA;
}

static uint32_t begin_of(const struct ls_program *program, uint32_t step)
{
    return 2 * ls_tile_first(program, step);
}

static uint32_t end_of(const struct ls_program *program, uint32_t step)
{
    const uint32_t join = program->buffers->plans[step].join;
    return join ? 2 * join - 1 : 2 * ls_tile_last(program, step);
}

static void extend(struct memory *memory, uint32_t value, uint32_t first, uint32_t last)
{
    struct piece *piece = &memory->pieces[ls_value_memory(memory->buffers, value)];

    if (piece->first == NEVER)
        piece->first = first;
    if (last > piece->last)
        piece->last = last;
}

static void find_lifetimes(struct memory *memory)
{
    const struct ls_program *program = memory->program;

    for (uint32_t i = 0; i < memory->buffers->value_count; i++) {
        struct piece *own = &memory->pieces[i];
        *own = (struct piece){.first = NEVER, .last = 0, .value = i};
    }
    for (uint32_t i = 0; i < memory->buffers->value_count; i++) {
        struct piece *piece = &memory->pieces[ls_value_memory(memory->buffers, i)];
        const struct ls_value *value = &memory->buffers->values[i];
        const uint64_t bytes =
            ls_align(value->tile_bytes ? value->tile_bytes : value->layout.bytes);
        piece->bytes = bytes > piece->bytes ? bytes : piece->bytes;
    }
    for (uint32_t s = 0; s < program->step_count; s++) {
        const struct ls_program_step *step = &program->steps[s];
        const struct ls_step_plan *plan = &memory->buffers->plans[s];
        for (uint32_t i = 0; i < step->input_count + step->output_count; i++)
            if (i >= step->input_count || (plan->used_inputs >> i & 1) != 0)
                extend(memory, plan->values[i], begin_of(program, s), end_of(program, s));
    }
    for (uint32_t i = 0; i < memory->buffers->output_count && ls_keeps_outputs(program); i++)
        if (in_arena(memory, memory->buffers->outputs[i]))
            extend(memory, memory->buffers->outputs[i], 2 * program->step_count,
                   2 * program->step_count);
}

// ---- In place ----

// Whether the input ends in this step, is large enough, and is no other argument's memory.
static bool may_replace(const struct memory *memory, uint32_t s, uint32_t input, uint32_t output)
{
    const struct ls_program_step *step = &memory->program->steps[s];
    const struct ls_step_plan *plan = &memory->buffers->plans[s];
    const uint32_t root = ls_value_memory(memory->buffers, plan->values[input]);

    if (!in_arena(memory, root) || root == output || memory->pieces[root].last != 2 * s ||
        memory->pieces[root].bytes < memory->pieces[output].bytes)
        return false;
    for (uint32_t i = 0; i < step->input_count + step->output_count; i++) {
        const bool counts = i >= step->input_count || (plan->used_inputs >> i & 1) != 0;
        if (i != input && counts && ls_value_memory(memory->buffers, plan->values[i]) == root)
            return false;
    }
    return true;
}

static void place_over_input(struct memory *memory, uint32_t s)
{
    const struct ls_program_step *step = &memory->program->steps[s];
    const struct ls_step_plan *plan = &memory->buffers->plans[s];
    const uint32_t output = plan->values[step->input_count];

    // Only a value whose memory begins here can take over another's.
    if (!in_arena(memory, output) || memory->buffers->values[output].memory != output ||
        memory->pieces[output].first != 2 * s)
        return;
    for (uint32_t i = 0; i < step->input_count; i++) {
        if ((plan->in_place & plan->used_inputs) >> i & 1 && may_replace(memory, s, i, output)) {
            const uint32_t root = ls_value_memory(memory->buffers, plan->values[i]);
            memory->pieces[root].last = memory->pieces[output].last;
            memory->buffers->values[output].memory = root;
            return;
        }
    }
}

// ---- Placing ----

static bool live_together(const struct piece *a, const struct piece *b)
{
    return a->first <= b->last && b->first <= a->last;
}

static int by_size(const void *a, const void *b)
{
    const struct piece *p = (const struct piece *)a, *q = (const struct piece *)b;

    if (p->bytes != q->bytes)
        return p->bytes > q->bytes ? -1 : 1;
    if (p->first != q->first)
        return p->first < q->first ? -1 : 1;
    return p->value < q->value ? -1 : p->value > q->value;
}

// The smallest gap between pieces that live at the same time; the end when none is large enough.
// `placed` is sorted by offset.
static uint64_t best_fit(const struct piece *placed, uint32_t count, const struct piece *piece)
{
    uint64_t end = 0, best = 0, best_gap = UINT64_MAX;

    for (uint32_t i = 0; i < count; i++) {
        if (!live_together(&placed[i], piece))
            continue;
        const uint64_t gap = placed[i].offset > end ? placed[i].offset - end : 0;
        if (gap >= piece->bytes && gap < best_gap) {
            best = end;
            best_gap = gap;
        }
        const uint64_t after = placed[i].offset + placed[i].bytes;
        end = after > end ? after : end;
    }
    return best_gap != UINT64_MAX ? best : end;
}

static void insert_by_offset(struct piece *placed, uint32_t count, const struct piece *piece)
{
    uint32_t i = count;
    for (; i > 0 && placed[i - 1].offset > piece->offset; i--)
        placed[i] = placed[i - 1];
    placed[i] = *piece;
}

// Largest first. `placed` has room for all.
static uint64_t place_pieces(struct piece *pieces, uint32_t count, struct piece *placed)
{
    uint64_t end = 0;

    qsort(pieces, count, sizeof(*pieces), by_size);
    for (uint32_t i = 0; i < count; i++) {
        pieces[i].offset = best_fit(placed, i, &pieces[i]);
        insert_by_offset(placed, i, &pieces[i]);
        if (pieces[i].offset + pieces[i].bytes > end)
            end = pieces[i].offset + pieces[i].bytes;
    }
    return end;
}

// The pieces that need room: buffers with memory of their own, and scratch.
static uint32_t collect(const struct memory *memory, struct piece *out)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < memory->buffers->value_count; i++)
        if (in_arena(memory, i) && memory->buffers->values[i].memory == i &&
            memory->pieces[i].first != NEVER)
            out[count++] = memory->pieces[i];
    for (uint32_t s = 0; s < memory->program->step_count; s++)
        if (memory->program->steps[s].scratch_bytes > 0)
            out[count++] =
                (struct piece){.bytes = ls_align(memory->program->steps[s].scratch_bytes),
                               .first = begin_of(memory->program, s),
                               .last = end_of(memory->program, s),
                               .step = s,
                               .value = LS_NO_VALUE};
    return count;
}

static uint64_t total_bytes(const struct piece *pieces, uint32_t count)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += pieces[i].bytes;
    return bytes;
}

static void assign(struct memory *memory, const struct piece *pieces, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (pieces[i].value == LS_NO_VALUE)
            memory->buffers->plans[pieces[i].step].scratch_offset = pieces[i].offset;
        else
            memory->buffers->values[pieces[i].value].offset = pieces[i].offset;
    }
}

// With the joins that the program has.
static void plan_once(struct memory *memory)
{
    struct ls_program *program = memory->program;

    for (uint32_t i = 0; i < memory->buffers->value_count; i++)
        memory->buffers->values[i].memory = memory->views[i];
    find_lifetimes(memory);
    program->unplanned_bytes = total_bytes(memory->list, collect(memory, memory->list));
    for (uint32_t s = 0; s < program->step_count; s++)
        place_over_input(memory, s);
    const uint32_t count = collect(memory, memory->list);
    program->arena_bytes = place_pieces(memory->list, count, memory->placed);
    assign(memory, memory->list, count);
}

// First without a branch, then with the one that joins latest of those that memory allows.
static void plan(struct memory *memory)
{
    static const uint32_t ahead[] = {UINT32_MAX, 64, 32, 16, 8, 4, 2, 1, 0};
    struct ls_program *program = memory->program;

    plan_once(memory);
    const uint64_t most = program->arena_bytes + program->arena_bytes / 100 * BRANCH_PERCENT;
    for (uint32_t i = 0; program->options.branch && i < sizeof(ahead) / sizeof(*ahead); i++) {
        ls_branch_set_joins(program, ahead[i]);
        plan_once(memory);
        if (program->arena_bytes <= most)
            return;
    }
}

enum ls_status ls_plan_memory(struct ls_program *program)
{
    struct memory memory = {.program = program, .buffers = program->buffers};
    const size_t values = memory.buffers->value_count;
    const size_t most = values + program->step_count + 1;
    enum ls_status status = LS_OUT_OF_MEMORY;

    memory.pieces = calloc(most, sizeof(*memory.pieces));
    memory.list = calloc(most, sizeof(*memory.list));
    memory.placed = calloc(most, sizeof(*memory.placed));
    memory.views = calloc(values + 1, sizeof(*memory.views));
    if (!memory.pieces || !memory.list || !memory.placed || !memory.views)
        goto out;
    for (uint32_t i = 0; i < values; i++)
        memory.views[i] = memory.buffers->values[i].memory;
    plan(&memory);
    status = LS_OK;

out:
    free(memory.pieces);
    free(memory.list);
    free(memory.placed);
    free(memory.views);
    return status;
}
