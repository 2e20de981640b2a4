// SPDX-License-Identifier: Apache-2.0
// What is known of other ranks' calls, for messages about a failure. Ranks of this process answer
// with their flight recorders, those of another process, if the opener of the communicator can ask
// them, with how many calls they have begun.
#include "core/collective/internal.h"

#include <stdlib.h>

#define LS_NO_ANSWER UINT64_MAX

// NULL: the rank belongs to another process.
static struct ls_flight_recorder *recorder_of(const struct ls_communicator_group *group,
                                              uint32_t rank)
{
    return rank - group->first_rank < group->count ? &group->recorders[rank - group->first_rank]
                                                   : NULL;
}

void ls_ask_all(struct ls_communicator_group *group)
{
    if (!group->ask || group->answers)
        return;
    group->answers = calloc(group->world, sizeof(*group->answers));
    for (uint32_t i = 0; group->answers && i < group->world; i++)
        group->answers[i] = LS_NO_ANSWER;
    if (group->answers)
        group->ask(group->ask_context, group->answers);
}

enum ls_rank_state ls_ask_state(const struct ls_communicator_group *group, uint32_t rank,
                                uint64_t sequence)
{
    struct ls_flight_recorder *recorder = recorder_of(group, rank);
    if (!recorder && (!group->answers || group->answers[rank] == LS_NO_ANSWER))
        return LS_RANK_UNKNOWN;
    if (!recorder)
        return group->answers[rank] > sequence ? LS_RANK_CALLED : LS_RANK_ABSENT;
    return atomic_load(&recorder->begun) > sequence ? LS_RANK_CALLED : LS_RANK_ABSENT;
}

bool ls_ask_call(const struct ls_communicator_group *group, uint32_t rank, uint64_t sequence,
                 struct ls_call_signature *out)
{
    struct ls_flight_recorder *recorder = recorder_of(group, rank);
    return recorder && ls_flight_recorder_get(recorder, sequence, out);
}
