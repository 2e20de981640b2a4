// SPDX-License-Identifier: Apache-2.0
// The runs on a communicator's stream of which nobody knows yet that they are over: a list, and
// waiting until the stream is empty.
#include "core/collective/internal.h"

#include "core/base/clock.h"

#include <sched.h>
#include <time.h>

#define PAUSE_NS 50000
#define PATIENCE_NS UINT64_C(5000000000) // with a stream that should be empty soon

void ls_stream_remove(struct ls_communicator *communicator, const struct ls_collective_plan *plan)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < communicator->unsynchronized_count; i++)
        if (communicator->unsynchronized[i] != plan)
            communicator->unsynchronized[kept++] = communicator->unsynchronized[i];
    communicator->unsynchronized_count = kept;
}

void ls_stream_add(struct ls_collective_plan *plan, const struct ls_event *over)
{
    struct ls_communicator *communicator = plan->communicator;
    ls_stream_remove(communicator, plan);
    plan->over = over;
    communicator->unsynchronized[communicator->unsynchronized_count++] = plan;
}

struct ls_collective_plan *ls_stream_find_pending(const struct ls_communicator *communicator)
{
    const struct ls_rank_place *place = communicator->place;
    struct ls_collective_plan *first = NULL;
    for (uint32_t i = 0; i < communicator->unsynchronized_count; i++) {
        struct ls_collective_plan *plan = communicator->unsynchronized[i];
        if ((!first || plan->sequence < first->sequence) &&
            ls_device_event_query(place->device, plan->over) != LS_OK)
            first = plan;
    }
    return first;
}

void ls_stream_note_over(struct ls_communicator *communicator)
{
    if (!communicator->place)
        return;
    const struct ls_collective_plan *pending = ls_stream_find_pending(communicator);
    uint64_t end = pending ? pending->sequence : communicator->sequence;
    for (uint32_t i = 0; i < communicator->running_count; i++)
        if (communicator->running[i]->sequence < end)
            end = communicator->running[i]->sequence;
    uint64_t next = communicator->settled;
    if (end > next + LS_RECORDED_CALLS)
        next = end - LS_RECORDED_CALLS;
    for (; next < end; next++)
        ls_flight_recorder_end(communicator->recorder, next, 0);
    communicator->settled = next;
}

// ---- Waiting ----

void ls_stream_pause(uint64_t waited_ns)
{
    if (waited_ns < LS_STREAM_BRISK_NS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

void ls_stream_drain(struct ls_communicator *communicator)
{
    struct ls_communicator_group *group = communicator->group;
    const struct ls_rank_place *place = communicator->place;
    const uint64_t patience = group->deadline_ns < PATIENCE_NS ? group->deadline_ns : PATIENCE_NS;
    if (!place || atomic_load(&group->stuck) ||
        ls_device_event_record(place->device, place->drained, place->stream))
        return;
    const uint64_t begin = ls_clock_ns();
    while (ls_device_event_query(place->device, place->drained) == LS_AGAIN) {
        const uint64_t waited = ls_clock_ns() - begin;
        if (waited > patience) {
            atomic_store(&group->stuck, 1);
            ls_device_abandon(place->device);
            return;
        }
        ls_stream_pause(waited);
    }
}
