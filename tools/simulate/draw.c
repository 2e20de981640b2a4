// SPDX-License-Identifier: Apache-2.0
// Draws one rank after the other into the same memory, and gives its ranges and peers numbers by first appearance: so
// the steps of ranks that do the same with other peers and other chunks become equal.
#include "tools/simulate/internal.h"

#include "core/base/log.h"
#include "core/base/watchdog.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// Plugins may ignore what the calls return, and then never end: so a failure leaves build_schedule at once.
static void leave(struct ls_drawing *drawing, enum ls_status status)
{
    drawing->status = status;
    longjmp(drawing->out_of_build, 1);
}

static void refuse(struct ls_drawing *drawing, const struct ls_step *step, const char *reason)
{
    char range[128];
    const char *kind = ls_step_kind_text(step->kind);
    ls_error("simulate", "%s: rank %u of %u, round %u: %s of %s, peer %u: %s; the plugin is wrong",
             drawing->options->name, drawing->call.rank, drawing->call.world, drawing->round_count,
             kind ? kind : "unknown step", ls_range_text(&step->range, range, sizeof(range)),
             step->peer, reason);
    leave(drawing, LS_FAILED);
}

static void refuse_length(struct ls_drawing *drawing, const char *what)
{
    ls_error(
        "simulate",
        "%s: rank %u of %u: more than %u %s: the schedule never ends, or is larger than memory",
        drawing->options->name, drawing->call.rank, drawing->call.world, LS_SIMULATED_STEPS_MOST,
        what);
    leave(drawing, LS_FAILED);
}

static void *grown(struct ls_drawing *drawing, void *array, uint32_t capacity, size_t size)
{
    void *larger = realloc(array, capacity * size);
    if (!larger)
        leave(drawing, LS_OUT_OF_MEMORY);
    return larger;
}

// ---- Numbers by first appearance ----

static uint64_t range_hash(const struct ls_range *range)
{
    return ls_mixed(range->offset * 2 + range->buffer +
                    range->count * UINT64_C(0x9e3779b97f4a7c15));
}

static void rebuild_slots(struct ls_drawing *drawing)
{
    const uint32_t count = 4 * drawing->range_capacity;
    drawing->range_slots = grown(drawing, drawing->range_slots, count, sizeof(uint32_t));
    drawing->slot_count = count;
    memset(drawing->range_slots, 0xff, count * sizeof(uint32_t));
    for (uint32_t i = 0; i < drawing->range_count; i++) {
        uint32_t slot = (uint32_t)range_hash(&drawing->ranges[i]) & (count - 1);
        while (drawing->range_slots[slot] != LS_OUTLINE_NONE)
            slot = (slot + 1) & (count - 1);
        drawing->range_slots[slot] = i;
    }
}

static uint32_t range_number(struct ls_drawing *drawing, const struct ls_range *range)
{
    const uint64_t hash = range_hash(range);
    uint32_t slot = (uint32_t)hash & (drawing->slot_count - 1);
    for (;; slot = (slot + 1) & (drawing->slot_count - 1)) {
        const uint32_t number = drawing->range_slots[slot];
        if (number == LS_OUTLINE_NONE)
            break;
        const struct ls_range *known = &drawing->ranges[number];
        if (known->offset == range->offset && known->count == range->count &&
            known->buffer == range->buffer)
            return number;
    }
    const uint32_t number = drawing->range_count++;
    drawing->range_slots[slot] = number;
    drawing->ranges[number] = *range;
    drawing->ranges_sum += ls_mixed(hash);
    if (drawing->range_count == drawing->range_capacity) {
        drawing->range_capacity *= 2;
        drawing->ranges =
            grown(drawing, drawing->ranges, drawing->range_capacity, sizeof(struct ls_range));
        rebuild_slots(drawing);
    }
    return number;
}

static uint32_t peer_number(struct ls_drawing *drawing, uint32_t peer)
{
    if (drawing->peer_marks[peer] != drawing->call.rank + 1) {
        drawing->peer_marks[peer] = drawing->call.rank + 1;
        drawing->peer_places[peer] = drawing->peer_count;
        drawing->peers[drawing->peer_count++] = peer;
    }
    return drawing->peer_places[peer];
}

// ---- The table that a plugin writes into ----

static bool is_local(uint32_t kind)
{
    return kind == LS_STEP_REDUCE || kind == LS_STEP_COPY;
}

static bool fits(const struct ls_drawing *drawing, const struct ls_range *range)
{
    const uint64_t count = range->buffer == LS_BUFFER_DATA      ? drawing->call.count
                           : range->buffer == LS_BUFFER_SCRATCH ? drawing->scratch_count
                                                                : 0;
    return range->buffer <= LS_BUFFER_SCRATCH && range->offset <= count &&
           range->count <= count - range->offset;
}

static bool overlap(const struct ls_range *a, const struct ls_range *b)
{
    return a->buffer == b->buffer && a->offset < b->offset + b->count &&
           b->offset < a->offset + a->count;
}

static void check(struct ls_drawing *drawing, const struct ls_step *step)
{
    const bool local = is_local(step->kind);
    if (step->kind < LS_STEP_SEND || step->kind > LS_STEP_COPY)
        refuse(drawing, step, "there is no such step");
    if (!local && (step->peer >= drawing->call.world || step->peer == drawing->call.rank))
        refuse(drawing, step, "the peer is no other rank");
    if (step->range.count == 0 && (!local || step->from.count == 0))
        return; // dropped, whatever its range
    if (!fits(drawing, &step->range) || (local && !fits(drawing, &step->from)))
        refuse(drawing, step, "the range lies outside its buffer");
    if (local && step->from.count != step->range.count)
        refuse(drawing, step, "the two ranges differ in length");
    if (local && step->range.count && overlap(&step->range, &step->from))
        refuse(drawing, step, "the two ranges overlap");
}

static int32_t add(struct ls_schedule *schedule, const struct ls_step *step)
{
    struct ls_drawing *drawing = schedule->context;
    check(drawing, step);
    if (step->range.count == 0)
        return LS_OK;
    if (drawing->step_count == drawing->step_capacity) {
        if (drawing->step_capacity >= LS_SIMULATED_STEPS_MOST)
            refuse_length(drawing, "steps");
        drawing->step_capacity *= 2;
        drawing->steps =
            grown(drawing, drawing->steps, drawing->step_capacity, sizeof(struct ls_raw_step));
    }
    struct ls_raw_step *raw = &drawing->steps[drawing->step_count];
    *raw = (struct ls_raw_step){.kind = step->kind,
                                .range = range_number(drawing, &step->range),
                                .round = drawing->round_count};
    if (is_local(step->kind))
        raw->from = range_number(drawing, &step->from);
    else
        raw->peer = peer_number(drawing, step->peer);
    const bool same_round = drawing->step_count && raw[-1].round == raw->round;
    drawing->step_count++;
    ls_key_add(drawing->key, raw->kind | (uint64_t)same_round << 3 | (uint64_t)raw->peer << 4 |
                                 (uint64_t)raw->range << 32);
    if (is_local(step->kind))
        ls_key_add(drawing->key, raw->from);
    return LS_OK;
}

static int32_t end_round(struct ls_schedule *schedule)
{
    struct ls_drawing *drawing = schedule->context;
    if (++drawing->round_count > LS_SIMULATED_STEPS_MOST)
        refuse_length(drawing, "rounds");
    return LS_OK;
}

static int32_t scratch(struct ls_schedule *schedule, uint64_t count)
{
    struct ls_drawing *drawing = schedule->context;
    if (count > drawing->scratch_count)
        drawing->scratch_count = count;
    return LS_OK;
}

// ---- A rank ----

static int compare_ranges(const void *left, const void *right)
{
    const struct ls_range *a = left, *b = right;
    if (a->buffer != b->buffer)
        return a->buffer < b->buffer ? -1 : 1;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

// Whether ranges are equal or have nothing in common. Ranks mostly use the same set of them.
static enum ls_status look_for_overlaps(struct ls_drawing *drawing)
{
    drawing->key_is_enough =
        drawing->ranges_sum == drawing->plain_sum && drawing->range_count == drawing->plain_count;
    if (drawing->key_is_enough)
        return LS_OK;
    const uint32_t count = drawing->range_count;
    struct ls_range *sorted = malloc((count + 1) * sizeof(*sorted));
    if (!sorted)
        return LS_OUT_OF_MEMORY;
    memcpy(sorted, drawing->ranges, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), compare_ranges);
    drawing->key_is_enough = true;
    for (uint32_t i = 1; i < count; i++)
        if (overlap(&sorted[i - 1], &sorted[i]))
            drawing->key_is_enough = false;
    free(sorted);
    if (drawing->key_is_enough) {
        drawing->plain_sum = drawing->ranges_sum;
        drawing->plain_count = count;
    }
    return LS_OK;
}

static void begin(struct ls_drawing *drawing, uint32_t rank)
{
    for (uint32_t i = 0; i < drawing->range_count; i++) {
        // Only the slots that were used are emptied: a rank may have few ranges after one that had many.
        uint32_t slot = (uint32_t)range_hash(&drawing->ranges[i]) & (drawing->slot_count - 1);
        while (drawing->range_slots[slot] != LS_OUTLINE_NONE) {
            drawing->range_slots[slot] = LS_OUTLINE_NONE;
            slot = (slot + 1) & (drawing->slot_count - 1);
        }
    }
    drawing->call.rank = rank;
    drawing->step_count = 0;
    drawing->round_count = 0;
    drawing->scratch_count = 0;
    drawing->range_count = 0;
    drawing->ranges_sum = 0;
    drawing->peer_count = 0;
    drawing->key[0] = drawing->key[1] = 0x6c6f636b73746570;
    drawing->status = LS_OK;
}

enum ls_status ls_drawing_draw(struct ls_drawing *drawing, uint32_t rank)
{
    struct ls_schedule schedule = {
        .struct_size = sizeof(schedule),
        .context = drawing,
        .add = add,
        .end_round = end_round,
        .scratch = scratch,
    };
    begin(drawing, rank);
    const struct ls_expected expected = ls_watchdog_expect(rank);
    if (!setjmp(drawing->out_of_build)) {
        const int32_t answer =
            ls_schedule_build(drawing->options->collective, &drawing->call, &schedule);
        drawing->status = (enum ls_status)answer;
    }
    ls_watchdog_returned(&expected);
    if (drawing->status)
        return drawing->status;
    if (drawing->step_count &&
        drawing->steps[drawing->step_count - 1].round == drawing->round_count)
        drawing->round_count++;
    return look_for_overlaps(drawing);
}

enum ls_status ls_drawing_init(struct ls_drawing *drawing, const struct ls_outline_options *options)
{
    const uint32_t world = options->call->world, slots = 256;
    *drawing = (struct ls_drawing){
        .options = options,
        .call = *options->call,
        .step_capacity = slots,
        .range_capacity = slots / 4,
        .slot_count = slots,
        .steps = malloc(slots * sizeof(struct ls_raw_step)),
        .ranges = malloc(slots / 4 * sizeof(struct ls_range)),
        .range_slots = malloc(slots * sizeof(uint32_t)),
        .peers = malloc(world * sizeof(uint32_t)),
        .peer_places = malloc(world * sizeof(uint32_t)),
        .peer_marks = calloc(world, sizeof(uint32_t)),
    };
    if (!drawing->steps || !drawing->ranges || !drawing->range_slots || !drawing->peers ||
        !drawing->peer_places || !drawing->peer_marks) {
        ls_drawing_finish(drawing);
        return LS_OUT_OF_MEMORY;
    }
    memset(drawing->range_slots, 0xff, slots * sizeof(uint32_t));
    return LS_OK;
}

void ls_drawing_finish(struct ls_drawing *drawing)
{
    free(drawing->steps);
    free(drawing->ranges);
    free(drawing->range_slots);
    free(drawing->peers);
    free(drawing->peer_places);
    free(drawing->peer_marks);
}
