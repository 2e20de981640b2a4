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
    if (status == LS_OUT_OF_MEMORY)
        ls_host_fail(replica->host, (int32_t)status,
                     "the device has no %.1f MB of memory left for this model; a smaller batch "
                     "needs less",
                     (double)replica->device_bytes * 1e-6);
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

enum ls_status ls_replica_allocate(struct ls_replica *replica,
                                   const struct ls_replica_placement *placement)
{
    const uint64_t reduced = replica->plan->reduced_bytes;
    const uint32_t states = placement && placement->no_states ? 0 : replica->optimizer.state_count;
    replica->parameters = ls_replica_take_memory(replica, replica->plan->flat_bytes);
    replica->reduced_is_lent = placement && is_there(placement->reduced);
    if (replica->reduced_is_lent) {
        replica->reduced = placement->reduced;
        replica->device_bytes += LS_STEP_STATS_BYTES + reduced;
    } else {
        replica->reduced = ls_replica_take_memory(replica, LS_STEP_STATS_BYTES + reduced);
    }
    if (replica->graph->count_slots) {
        const uint32_t slots = replica->graph->count_slots;
        replica->counts = ls_replica_take_memory(replica, slots * sizeof(float));
        replica->found = calloc(slots, sizeof(*replica->found));
        replica->found_before = calloc(slots, sizeof(*replica->found_before));
        replica->counted = calloc(slots, sizeof(*replica->counted));
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
            replica, LS_UPDATER_OWN + 2 * sizeof(double) * replica->plan->reduced_count);
    if (ls_optimizer_scales(&replica->optimizer)) {
        replica->measured =
            calloc(2 * replica->plan->reduced_count + 1, sizeof(*replica->measured));
        if (!replica->measured)
            return LS_OUT_OF_MEMORY;
    }
    if (replica->guard)
        replica->failed = ls_replica_take_memory(replica, sizeof(int32_t));
    bool complete = is_there(replica->parameters) && is_there(replica->reduced) &&
                    is_there(replica->evaluation_sums) &&
                    (!replica->plan->total_count || is_there(replica->totals)) &&
                    (!replica->guard || is_there(replica->failed)) &&
                    (!measures || is_there(replica->measures));
    for (uint32_t i = 0; i < states; i++) {
        replica->states[i] = ls_replica_take_memory(replica, reduced);
        complete = complete && is_there(replica->states[i]);
    }
    if (!complete)
        return ls_replica_say_no_memory(replica, LS_OUT_OF_MEMORY);
    replica->gradients = ls_memory_at(replica->reduced, LS_STEP_STATS_BYTES);
    return LS_OK;
}

struct ls_memory ls_replica_memory(const struct ls_replica *replica, uint32_t buffer)
{
    switch (buffer) {
    case LS_BUFFER_PARAMETERS: return replica->parameters;
    case LS_BUFFER_GRADIENTS: return replica->gradients;
    case LS_BUFFER_REDUCED: return replica->reduced;
    case LS_BUFFER_TOTALS: return replica->totals;
    case LS_BUFFER_COUNTS: return replica->counts;
    default: return replica->states[buffer - LS_BUFFER_STATE];
    }
}

void ls_buffers_release(struct ls_replica *replica)
{
    const struct ls_memory buffers[] = {
        replica->parameters,     replica->shadows.memory, replica->arena.memory,
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
}
