// SPDX-License-Identifier: Apache-2.0
// The device's memory that a replica has: what it takes and gives back, and its flat buffers.
#include "core/replica/buffers.h"

#include <stdlib.h>

void ls_replica_need_scratch(struct ls_replica *replica, uint64_t bytes)
{
    if (bytes > replica->scratch_bytes)
        replica->scratch_bytes = bytes;
}

struct ls_memory ls_replica_take_memory(struct ls_replica *replica, uint64_t bytes)
{
    bytes = bytes ? bytes : LS_ALIGNMENT;
    replica->device_bytes += bytes;
    return ls_device_allocate(replica->device, bytes);
}

void ls_replica_give_memory(struct ls_replica *replica, struct ls_memory memory, uint64_t bytes)
{
    if (ls_memory_is_null(memory))
        return;
    ls_device_release(replica->device, memory);
    replica->device_bytes -= bytes ? bytes : LS_ALIGNMENT;
}

enum ls_status ls_replica_say_no_memory(const struct ls_replica *replica, enum ls_status status)
{
    const bool is_small = replica->device_bytes < 100000;
    if (status == LS_OUT_OF_MEMORY)
        ls_host_fail(replica->host, (int32_t)status,
                     "the device has no %.1f %s of memory left for this model; a smaller batch "
                     "needs less",
                     (double)replica->device_bytes * (is_small ? 1e-3 : 1e-6),
                     is_small ? "kB" : "MB");
    return status;
}

enum ls_status ls_replica_grow(struct ls_replica *replica, struct ls_replica_room *room,
                               uint64_t bytes)
{
    if (!ls_memory_is_null(room->memory) && bytes <= room->bytes)
        return LS_OK;
    ls_replica_give_memory(replica, room->memory, room->bytes);
    room->memory = ls_replica_take_memory(replica, bytes);
    room->bytes = bytes;
    return ls_memory_is_null(room->memory) ? LS_OUT_OF_MEMORY : LS_OK;
}

// ---- Flat buffers ----

static bool is_there(struct ls_memory memory)
{
    return !ls_memory_is_null(memory);
}

// Where all is held, the ranges lie as in the flat buffers. `ranges`: NULL: all.
static enum ls_status place(struct ls_replica *replica, enum ls_held kind,
                            const struct ls_held_range *ranges, uint64_t *floats)
{
    const uint64_t unit = LS_ALIGNMENT / sizeof(float);
    const struct ls_buckets *buckets = &replica->buckets;
    const uint32_t count = kind == LS_HELD_PARAMETERS ? buckets->all : buckets->count;
    struct ls_held_part *held = calloc(count, sizeof(*held));
    replica->held[kind] = held;
    if (!held)
        return LS_OUT_OF_MEMORY;
    replica->holds_all[kind] = true;
    *floats = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct ls_held_range whole = {buckets->list[i].offset / sizeof(float),
                                            buckets->list[i].bytes / sizeof(float)};
        const struct ls_held_range range = ranges ? ranges[i] : whole;
        held[i] = (struct ls_held_part){range, *floats};
        replica->holds_all[kind] = replica->holds_all[kind] && range.count == whole.count;
        *floats += (range.count + unit - 1) / unit * unit;
    }
    return LS_OK;
}

static enum ls_status make_slots(struct ls_replica *replica,
                                 const struct ls_replica_placement *placement)
{
    const struct ls_parameter_plan *plan = replica->plan;
    enum ls_status status = LS_OK;
    if (placement && placement->held[LS_HELD_GRADIENTS] && !placement->forward)
        status = ls_slots_of_gradients(plan, replica->graph, &replica->buckets,
                                       &replica->slots[LS_HELD_GRADIENTS]);
    if (!status && placement && placement->held[LS_HELD_PARAMETERS])
        status = ls_slots_of_parameters(plan, replica->graph, &replica->buckets,
                                        &replica->slots[LS_HELD_PARAMETERS], &replica->walks[0],
                                        &replica->walks[1]);
    return status;
}

enum ls_status ls_replica_allocate(struct ls_replica *replica,
                                   const struct ls_replica_placement *placement)
{
    uint64_t held[LS_HELD_KINDS] = {0}; // floats
    for (uint32_t kind = 0; kind < LS_HELD_KINDS; kind++)
        if (place(replica, kind, placement ? placement->held[kind] : NULL, &held[kind]))
            return LS_OUT_OF_MEMORY;
    if (make_slots(replica, placement))
        return LS_OUT_OF_MEMORY;
    const struct ls_slots *slots = replica->slots;
    const uint64_t reduced = placement && placement->forward  ? 0
                             : slots[LS_HELD_GRADIENTS].count ? slots[LS_HELD_GRADIENTS].bytes
                                                              : replica->plan->reduced_bytes;
    const uint64_t parameters = slots[LS_HELD_PARAMETERS].count ? slots[LS_HELD_PARAMETERS].bytes
                                                                : replica->plan->flat_bytes;
    bool complete = true;
    for (uint32_t kind = 0; kind < LS_HELD_STATES; kind++) {
        if (!slots[kind].count)
            continue;
        replica->parts[kind] = ls_replica_take_memory(replica, held[kind] * sizeof(float));
        complete = complete && is_there(replica->parts[kind]);
    }
    const uint32_t states = held[LS_HELD_STATES] ? replica->optimizer.state_count : 0;
    replica->room = ls_replica_take_memory(replica, LS_STEP_STATS_BYTES + parameters);
    replica->reduced_is_lent = placement && is_there(placement->reduced);
    if (replica->reduced_is_lent) {
        replica->reduced = placement->reduced;
        replica->device_bytes += LS_STEP_STATS_BYTES + reduced;
    } else {
        replica->reduced = ls_replica_take_memory(replica, LS_STEP_STATS_BYTES + reduced);
    }
    if (replica->graph->count_slots) {
        const uint32_t count = replica->graph->count_slots;
        replica->counts = ls_replica_take_memory(replica, count * sizeof(float));
        replica->found = calloc(count, sizeof(*replica->found));
        replica->found_before = calloc(count, sizeof(*replica->found_before));
        replica->counted = calloc(count, sizeof(*replica->counted));
        if (!is_there(replica->counts) || !replica->found || !replica->found_before ||
            !replica->counted)
            return ls_replica_say_no_memory(replica, LS_OUT_OF_MEMORY);
    }
    replica->evaluation_sums = ls_replica_take_memory(replica, LS_STEP_STATS_BYTES);
    if (replica->plan->total_count)
        replica->totals = ls_replica_take_memory(replica, replica->plan->total_bytes);
    const bool measures = ls_optimizer_measures_variables(&replica->optimizer) ||
                          ls_optimizer_measures_all(&replica->optimizer);
    if (measures)
        replica->measures = ls_replica_take_memory(
            replica, LS_UPDATER_OWN + 2 * sizeof(double) * (1 + replica->plan->reduced_count));
    if (ls_optimizer_scales(&replica->optimizer)) {
        replica->measured =
            calloc(2 * (1 + replica->plan->reduced_count), sizeof(*replica->measured));
        if (!replica->measured)
            return LS_OUT_OF_MEMORY;
    }
    if (replica->guard)
        replica->failed = ls_replica_take_memory(replica, sizeof(int32_t));
    complete = complete && is_there(replica->room) && is_there(replica->reduced) &&
               is_there(replica->evaluation_sums) &&
               (!replica->plan->total_count || is_there(replica->totals)) &&
               (!replica->guard || is_there(replica->failed)) &&
               (!measures || is_there(replica->measures));
    for (uint32_t i = 0; i < states; i++) {
        replica->states[i] = ls_replica_take_memory(replica, held[LS_HELD_STATES] * sizeof(float));
        complete = complete && is_there(replica->states[i]);
    }
    if (!complete)
        return ls_replica_say_no_memory(replica, LS_OUT_OF_MEMORY);
    replica->gradients = ls_memory_at(replica->reduced, LS_STEP_STATS_BYTES);
    replica->parameters = ls_memory_at(replica->room, LS_STEP_STATS_BYTES);
    return LS_OK;
}

struct ls_held_range ls_replica_held(const struct ls_replica *replica, enum ls_held kind,
                                     uint32_t bucket)
{
    return replica->held[kind][bucket].range;
}

struct ls_memory ls_replica_place_memory(const struct ls_replica *replica, uint32_t buffer,
                                         uint32_t place)
{
    const struct ls_memory flat = ls_replica_memory(replica, buffer);
    return is_there(flat) ? ls_memory_at(flat, replica->plan->places[place].offset) : flat;
}

uint32_t ls_replica_slot(const struct ls_replica *replica, enum ls_held kind, uint32_t bucket)
{
    return replica->slots[kind].count ? replica->slots[kind].of[bucket] : LS_NO_SLOT;
}

struct ls_memory ls_replica_bucket_memory(const struct ls_replica *replica, uint32_t buffer,
                                          uint32_t bucket)
{
    const bool parameters = buffer == LS_BUFFER_PARAMETERS;
    const struct ls_slots *slots =
        &replica->slots[parameters ? LS_HELD_PARAMETERS : LS_HELD_GRADIENTS];
    const uint64_t at = slots->count ? slots->at[bucket] : replica->buckets.list[bucket].offset;
    if (buffer == LS_BUFFER_REDUCED && bucket == 0)
        return replica->reduced;
    return ls_memory_at(parameters ? replica->parameters : replica->gradients, at);
}

struct ls_memory ls_replica_held_memory(const struct ls_replica *replica, uint32_t buffer,
                                        uint32_t bucket)
{
    const enum ls_held kind = buffer == LS_BUFFER_PARAMETERS  ? LS_HELD_PARAMETERS
                              : buffer == LS_BUFFER_GRADIENTS ? LS_HELD_GRADIENTS
                                                              : LS_HELD_STATES;
    const struct ls_memory all = kind == LS_HELD_STATES ? replica->states[buffer - LS_BUFFER_STATE]
                                 : is_there(replica->parts[kind]) ? replica->parts[kind]
                                 : kind == LS_HELD_PARAMETERS     ? replica->parameters
                                                                  : replica->gradients;
    return ls_memory_at(all, replica->held[kind][bucket].at * sizeof(float));
}

struct ls_memory ls_replica_memory(const struct ls_replica *replica, uint32_t buffer)
{
    const struct ls_memory nowhere = {NULL, 0};
    switch (buffer) {
    case LS_BUFFER_PARAMETERS:
        return replica->slots[LS_HELD_PARAMETERS].count ? nowhere : replica->parameters;
    case LS_BUFFER_GRADIENTS:
        return replica->slots[LS_HELD_GRADIENTS].count ? nowhere : replica->gradients;
    case LS_BUFFER_REDUCED: return replica->reduced;
    case LS_BUFFER_TOTALS: return replica->totals;
    case LS_BUFFER_COUNTS: return replica->counts;
    default:
        return replica->holds_all[LS_HELD_STATES] ? replica->states[buffer - LS_BUFFER_STATE]
                                                  : nowhere;
    }
}

// ---- Slots ----

enum ls_status ls_replica_begin_bucket(struct ls_replica *replica, uint32_t bucket)
{
    const struct ls_slots *slots = &replica->slots[LS_HELD_GRADIENTS];
    return slots->count && slots->shared[bucket]
               ? ls_device_zero(replica->device,
                                ls_replica_bucket_memory(replica, LS_BUFFER_GRADIENTS, bucket),
                                replica->buckets.list[bucket].bytes, NULL)
               : LS_OK;
}

// Between the part that the replica holds of a bucket and the bucket's slot.
static enum ls_status copy_part(struct ls_replica *replica, enum ls_held kind, uint32_t buffer,
                                uint32_t bucket, bool to_slot)
{
    const struct ls_held_range held = ls_replica_held(replica, kind, bucket);
    const uint64_t in_bucket = held.first * sizeof(float) - replica->buckets.list[bucket].offset;
    const struct ls_memory part = ls_replica_held_memory(replica, buffer, bucket);
    if (!replica->slots[kind].count || !held.count)
        return LS_OK;
    const struct ls_memory slot =
        ls_memory_at(ls_replica_bucket_memory(replica, buffer, bucket), in_bucket);
    return ls_device_copy(replica->device, to_slot ? slot : part, to_slot ? part : slot,
                          held.count * sizeof(float), NULL);
}

enum ls_status ls_replica_keep_gradients(struct ls_replica *replica, uint32_t bucket)
{
    return copy_part(replica, LS_HELD_GRADIENTS, LS_BUFFER_GRADIENTS, bucket, false);
}

enum ls_status ls_replica_fill_slot(struct ls_replica *replica, uint32_t bucket)
{
    return copy_part(replica, LS_HELD_PARAMETERS, LS_BUFFER_PARAMETERS, bucket, true);
}

void ls_buffers_release(struct ls_replica *replica)
{
    const struct ls_memory buffers[] = {
        replica->room,           replica->shadows.memory, replica->arena.memory,
        replica->scratch.memory, replica->totals,         replica->evaluation_sums,
        replica->failed,         replica->measures,       replica->counts};
    if (!replica->reduced_is_lent)
        ls_device_release(replica->device, replica->reduced);
    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++)
        ls_device_release(replica->device, buffers[i]);
    for (uint32_t i = 0; i < LS_OPTIMIZER_STATES; i++)
        ls_device_release(replica->device, replica->states[i]);
    for (uint32_t i = 0; i < replica->levels; i++)
        ls_device_release(replica->device, replica->accumulated[i]);
    free(replica->walks[0].list);
    free(replica->walks[1].list);
    free(replica->shadows_at);
    for (uint32_t kind = 0; kind < LS_HELD_KINDS; kind++) {
        ls_device_release(replica->device, replica->parts[kind]);
        ls_slots_finish(&replica->slots[kind]);
        free(replica->held[kind]);
    }
}
