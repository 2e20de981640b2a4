// SPDX-License-Identifier: Apache-2.0
// my-plugin: an all-reduce that passes chunks around a ring, once to add and once to share.
#include "core/plugin/collective.h"

// Describes the steps of one rank, round by round. The host calls it for every rank; the schedules of
// all ranks must match. Begin here: change which ranks communicate, and let `lockstep plugin check`
// tell you whether all ranks still end with the sum.
static int32_t build_schedule(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const uint32_t world = call->world, rank = call->rank;
    const uint32_t next = (rank + 1) % world;
    const uint32_t previous = (rank + world - 1) % world;

    // Once around to add: afterwards rank r has the sum of chunk r + 1.
    for (uint32_t step = 0; step + 1 < world; step++) {
        ls_send(schedule, next, ls_chunk(call, rank + world - step));
        ls_receive_and_reduce(schedule, previous, ls_chunk(call, rank + world - step - 1));
        ls_end_round(schedule);
    }
    // Once around to share: each rank passes on the sum that it got last.
    for (uint32_t step = 0; step + 1 < world; step++) {
        ls_send(schedule, next, ls_chunk(call, rank + 1 + world - step));
        ls_receive(schedule, previous, ls_chunk(call, rank + world - step));
        ls_end_round(schedule);
    }
    return LS_OK; // the host keeps the first failure of the calls above
}

static const struct ls_collective_interface interface = {
    .struct_size = sizeof(struct ls_collective_interface),
    .operations = 1u << LS_ALL_REDUCE, // the host builds the others from it
    .deterministic = 1, // each chunk is added in one order, so all ranks get the same bits
    .build_schedule = build_schedule,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE),
    .name = "my-plugin",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "a ring: each rank talks to its two neighbours",
    .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
