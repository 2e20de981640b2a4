// SPDX-License-Identifier: Apache-2.0
// Runs on a device that computes beside the caller: events between its own stream and the
// communicator's, and the one place where a host waits for it.
#include "core/collective/internal.h"

#include "core/base/clock.h"
#include "core/base/compiling.h"
#include "core/base/log.h"

#include <string.h>

#define MEETING_NS UINT64_C(1000000000) // with a rank that may have nothing to make ready

static const struct ls_trace_label settle_span = {
    .category = "communication", .name = "wait for the device", .value = "plans"};

// ---- Opening ----

static enum ls_status open_place(struct ls_rank_place *place)
{
    enum ls_status status = ls_device_stream_open_urgent(place->device, &place->stream);
    if (!status)
        status = ls_device_event_open(place->device, &place->begun);
    if (!status)
        status = ls_device_event_open(place->device, &place->replayed);
    if (!status)
        status = ls_device_event_open(place->device, &place->drained);
    return status;
}

enum ls_status ls_streams_open(struct ls_communicator_group *group)
{
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; group->given && !status && i < group->count; i++) {
        const struct ls_communicator_place *given = &group->given[i];
        if ((ls_device_blocking(given->device) && ls_device_in_host_memory(given->device)) ||
            ls_works_on_copies(group->algorithm, given->device))
            continue; // as host memory without a device
        if (!ls_device_has_streams(given->device)) {
            ls_error(group->scope,
                     "rank %u: its device has memory of its own, but no streams and events, which "
                     "collectives need there; central-storage does without",
                     group->first_rank + i);
            return LS_UNAVAILABLE;
        }
        group->places[i] = (struct ls_rank_place){.device = given->device};
        status = open_place(&group->places[i]);
    }
    return status;
}

// A stream that hangs is left to its device: closing would wait for it.
void ls_streams_close(struct ls_communicator_group *group)
{
    for (uint32_t i = 0; group->places && i < group->count; i++) {
        const struct ls_rank_place *place = &group->places[i];
        if (!place->device)
            continue;
        if (!atomic_load(&group->stuck))
            ls_device_stream_close(place->device, place->stream);
        ls_device_event_close(place->device, place->begun);
        ls_device_event_close(place->device, place->replayed);
        ls_device_event_close(place->device, place->drained);
    }
}

// ---- A run ----

enum ls_status ls_stream_begin(struct ls_communicator *communicator)
{
    const struct ls_rank_place *place = communicator->place;
    if (!place)
        return LS_OK;
    enum ls_status status = ls_device_event_record(place->device, place->begun, NULL);
    if (!status)
        status = ls_device_event_wait(place->device, place->begun, place->stream);
    return status;
}

enum ls_status ls_stream_end(struct ls_collective_plan *plan)
{
    const struct ls_rank_place *place = plan->communicator->place;
    if (!place)
        return LS_OK;
    const enum ls_status status = ls_device_event_record(place->device, plan->done, place->stream);
    if (!status && !plan->communicator->recording)
        ls_stream_add(plan, plan->done);
    return status;
}

enum ls_status ls_stream_follow(struct ls_collective_plan *plan)
{
    const struct ls_rank_place *place = plan->communicator->place;
    if (!place)
        return LS_OK;
    const enum ls_status status = ls_device_event_wait(place->device, plan->done, NULL);
    return status ? ls_communicator_fail(plan->communicator, plan, status) : LS_OK;
}

void ls_stream_forget(struct ls_collective_plan *plan)
{
    const struct ls_rank_place *place = plan->communicator->place;
    if (!place)
        return;
    ls_stream_drain(plan->communicator);
    ls_stream_remove(plan->communicator, plan);
    ls_device_event_close(place->device, plan->done);
}

// ---- Waiting for the device ----

// What else may have happened while the device is not done with `plan` (NULL: with something else).
static enum ls_status poll_others(struct ls_communicator *communicator,
                                  const struct ls_collective_plan *plan, uint64_t waited_ns)
{
    uint32_t peer;
    struct ls_call_signature theirs;
    if (atomic_load(&communicator->group->failed))
        return ls_communicator_give_up(communicator, LS_ABORTED);
    if (!plan)
        return LS_OK;
    const enum ls_status status = ls_library_poll(communicator);
    if (status)
        return ls_communicator_fail(communicator, plan, status);
    if (waited_ns >= LS_STREAM_BRISK_NS &&
        ls_communicator_find_mismatch(communicator, plan, &peer, &theirs))
        return ls_communicator_fail_mismatch(communicator, plan, peer);
    const uint64_t deadline = communicator->group->deadline_ns;
    return waited_ns >= deadline && !ls_compiling_excuses(ls_clock_ns() - waited_ns, deadline)
               ? ls_communicator_fail_deadline(communicator, plan, waited_ns)
               : LS_OK;
}

// The end of a run that failed or was aborted comes, too.
static enum ls_status end_of_run(struct ls_communicator *communicator,
                                 const struct ls_collective_plan *plan)
{
    const enum ls_status status = ls_library_poll(communicator);
    return status ? ls_communicator_fail(communicator, plan, status) : LS_OK;
}

static enum ls_status wait_for_device(struct ls_communicator *communicator,
                                      const struct ls_collective_plan *plan, uint64_t begin)
{
    const struct ls_rank_place *place = communicator->place;
    for (;;) {
        const enum ls_status over = ls_device_event_query(place->device, plan->over);
        if (over == LS_OK)
            return end_of_run(communicator, plan);
        if (over != LS_AGAIN)
            return ls_communicator_fail(communicator, plan, over);
        const uint64_t waited = ls_clock_ns() - begin;
        const enum ls_status status = poll_others(communicator, plan, waited);
        if (status)
            return status;
        ls_stream_pause(waited);
    }
}

static bool is_first_of_library(const struct ls_collective_plan *plan)
{
    const struct ls_communicator *communicator = plan->communicator;
    return communicator->place && communicator->library && !communicator->recording &&
           plan->met < communicator->refreshes;
}

enum ls_status ls_stream_barrier(struct ls_collective_plan *plan)
{
    struct ls_communicator *communicator = plan->communicator;
    struct ls_communicator_group *group = communicator->group;
    const uint64_t begin = ls_clock_ns();
    for (uint32_t i = 0; i < group->count && is_first_of_library(plan); i++)
        while (ls_ask_state(group, group->first_rank + i, plan->sequence) == LS_RANK_ABSENT) {
            const uint64_t waited = ls_clock_ns() - begin;
            const enum ls_status status = poll_others(communicator, plan, waited);
            if (status)
                return status;
            ls_stream_pause(waited);
        }
    return LS_OK;
}

enum ls_status ls_stream_part(struct ls_collective_plan *plan)
{
    if (!is_first_of_library(plan))
        return LS_OK;
    plan->met = plan->communicator->refreshes;
    return wait_for_device(plan->communicator, plan, ls_clock_ns());
}

enum ls_status ls_communicator_poll(struct ls_communicator *communicator, uint64_t waited_ns)
{
    if (communicator->status || !communicator->place)
        return communicator->status;
    return poll_others(communicator, ls_stream_find_pending(communicator), waited_ns);
}

enum ls_status ls_communicator_synchronize(struct ls_communicator *communicator)
{
    const uint64_t begin = ls_clock_ns();
    if (communicator->status || !communicator->place)
        return communicator->status;
    const uint32_t count = communicator->unsynchronized_count;
    for (uint32_t i = 0; i < count; i++) {
        const enum ls_status status =
            wait_for_device(communicator, communicator->unsynchronized[i], begin);
        if (status)
            return status;
    }
    ls_stream_note_over(communicator);
    communicator->unsynchronized_count = 0;
    ls_trace_span(&settle_span, begin, ls_clock_ns(), count);
    return LS_OK;
}

void ls_communicator_end(struct ls_communicator *communicator)
{
    if (atomic_load(&communicator->group->failed) && !communicator->status)
        (void)ls_communicator_give_up(communicator, LS_ABORTED);
    else
        ls_stream_drain(communicator);
}

// ---- Recorded steps ----

bool ls_communicator_capturable(const struct ls_communicator *communicator)
{
    if (!communicator->place)
        return false;
    return communicator->library ? communicator->group->algorithm->capturable
                                 : !communicator->transport; // alone
}

bool ls_communicator_records_alike(const struct ls_communicator *communicator)
{
    return communicator->library && communicator->group->algorithm->same_recordings;
}

void ls_communicator_record(struct ls_communicator *communicator, bool on)
{
    communicator->recording = on;
    if (on)
        communicator->recorded_count = 0;
}

enum ls_status ls_communicator_refresh(struct ls_communicator *communicator)
{
    communicator->refreshes++;
    return communicator->library ? ls_communicator_synchronize(communicator) : communicator->status;
}

// A rank that does not come has recorded nothing: that is no failure, and what could go wrong has a
// deadline of its own.
enum ls_status ls_communicator_barrier(struct ls_communicator *communicator)
{
    const struct ls_communicator_group *group = communicator->group;
    const uint64_t begin = ls_clock_ns();
    if (!communicator->library || !communicator->place)
        return communicator->status;
    const uint64_t number = atomic_fetch_add(&communicator->place->meetings, 1) + 1;
    for (uint32_t i = 0; i < group->count; i++)
        while (atomic_load(&group->places[i].meetings) < number) {
            const uint64_t waited = ls_clock_ns() - begin;
            const enum ls_status status = poll_others(communicator, NULL, waited);
            if (status || waited > MEETING_NS)
                return status;
            ls_stream_pause(waited);
        }
    return LS_OK;
}

static void begin_replayed(struct ls_collective_plan *plan)
{
    struct ls_communicator *communicator = plan->communicator;
    plan->sequence = communicator->sequence++;
    ls_flight_recorder_begin(communicator->recorder, plan->sequence, &plan->signature);
    ls_stream_add(plan, communicator->place->replayed);
}

enum ls_status ls_communicator_replayed(struct ls_communicator *communicator)
{
    const struct ls_rank_place *place = communicator->place;
    if (communicator->status || !communicator->recorded_count)
        return communicator->status;
    for (uint32_t i = 0; i < communicator->recorded_count; i++)
        begin_replayed(communicator->recorded[i]);
    const enum ls_status status = ls_device_event_record(place->device, place->replayed, NULL);
    return status ? ls_communicator_fail(communicator, communicator->recorded[0], status) : LS_OK;
}
