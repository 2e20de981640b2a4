// SPDX-License-Identifier: Apache-2.0
// Ring all-reduce: each rank passes chunks to the next one, once around to add, once around to share.
// Bytes sent by a rank: 2 (world - 1) / world of the buffer, the minimum. Rounds: 2 (world - 1).
// (Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.)
#include "core/plugin/collective.h"

// Once around to add: afterwards rank r has chunk r in full.
static void add(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const uint64_t world = call->world, rank = call->rank;
    const uint32_t next = (uint32_t)((rank + 1) % world),
                   previous = (uint32_t)((rank + world - 1) % world);

    for (uint64_t step = 1; step < world; step++) {
        ls_send(schedule, next, ls_chunk(call, rank + world - step));
        ls_receive_and_reduce(schedule, previous, ls_chunk(call, rank + 2 * world - step - 1));
        ls_end_round(schedule);
    }
}

// Once around to share: rank r begins with chunk r.
static void share(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const uint64_t world = call->world, rank = call->rank;
    const uint32_t next = (uint32_t)((rank + 1) % world),
                   previous = (uint32_t)((rank + world - 1) % world);

    for (uint64_t step = 0; step + 1 < world; step++) {
        ls_send(schedule, next, ls_chunk(call, rank + world - step));
        ls_receive(schedule, previous, ls_chunk(call, rank + world - step - 1));
        ls_end_round(schedule);
    }
}

static int32_t ring_build_schedule(const struct ls_collective_call *call,
                                   struct ls_schedule *schedule)
{
    if (call->operation != LS_ALL_GATHER)
        add(call, schedule);
    if (call->operation != LS_REDUCE_SCATTER)
        share(call, schedule);
    return LS_OK;
}

static const struct ls_collective_interface ring = {
    .struct_size = sizeof(struct ls_collective_interface),
    .operations = 1u << LS_ALL_REDUCE | 1u << LS_REDUCE_SCATTER | 1u << LS_ALL_GATHER,
    .deterministic = 1,
    .build_schedule = ring_build_schedule,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE),
    .name = "ring",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "ring all-reduce: least bytes, most rounds",
    .interface = &ring,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
