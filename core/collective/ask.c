// SPDX-License-Identifier: Apache-2.0
// What is known of other ranks' calls, for messages about a failure. Ranks of this process answer with their flight recorders.
// Those of another process do not answer yet; when workers tell each other where they are, their answers belong here.
#include "core/collective/internal.h"

// NULL: the rank belongs to another process.
static struct ls_flight_recorder *recorder_of(const struct ls_communicator_group *group,
                                              uint32_t rank)
{
    return rank - group->first_rank < group->count ? &group->recorders[rank - group->first_rank]
                                                   : NULL;
}

enum ls_rank_state ls_ask_state(const struct ls_communicator_group *group, uint32_t rank,
                                uint64_t sequence)
{
    struct ls_flight_recorder *recorder = recorder_of(group, rank);
    if (!recorder)
        return LS_RANK_UNKNOWN;
    return atomic_load(&recorder->begun) > sequence ? LS_RANK_CALLED : LS_RANK_ABSENT;
}

bool ls_ask_call(const struct ls_communicator_group *group, uint32_t rank, uint64_t sequence,
                 struct ls_call_signature *out)
{
    struct ls_flight_recorder *recorder = recorder_of(group, rank);
    return recorder && ls_flight_recorder_get(recorder, sequence, out);
}
