// SPDX-License-Identifier: Apache-2.0
// Drives the runs under way.
#include "core/collective/internal.h"

#include "core/base/clock.h"
#include "core/base/compiling.h"
#include "core/base/instance.h"
#include "core/base/log.h"

#include <string.h>
#include <time.h>

// While a rank waits it looks this often whether the others have called the same.
#define POLL_NS UINT64_C(20000000)

// Between two questions whether a native collective is done.
#define LIBRARY_PAUSE_NS 20000

// Turns without a move before a wait looks at the clock: about a microsecond, the time in which a
// peer on another core answers.
#define EAGER_TURNS 32

// A wait that may only take so long does not sleep.
#define BRIEF_NS UINT64_C(200000)

static const struct ls_trace_label progress_span = {
    .category = "communication", .name = "move buckets", .value = "under way"};

// ---- Running ----

static void begin_recording(struct ls_collective_plan *plan)
{
    struct ls_communicator *communicator = plan->communicator;
    if (!communicator->track)
        communicator->track = ls_trace_open_track("communication");
    ls_messages_record(plan);
    plan->started_ns = ls_clock_ns();
}

// On a device everything has been put on the communicator's stream by now; the run itself may go
// on.
static enum ls_status end_run(struct ls_collective_plan *plan)
{
    if (ls_trace_on())
        ls_trace_slice_on(plan->communicator->track, plan->run_span, plan->started_ns,
                          ls_clock_ns(), plan->sequence);
    plan->running = false;
    plan->result = ls_plan_bring_back(plan);
    if (!plan->result)
        plan->result = ls_stream_end(plan);
    return plan->result;
}

// One turn over all runs under way.
static enum ls_status advance(struct ls_communicator *communicator, bool *moved)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < communicator->running_count; i++) {
        struct ls_collective_plan *plan = communicator->running[i];
        bool done = false;
        enum ls_status status = plan->executor ? ls_executor_advance(plan->executor, moved)
                                               : ls_library_done(plan, &done);
        if (plan->executor)
            done = !status && ls_executor_done(plan->executor);
        else
            *moved = *moved || done;
        if (done)
            status = end_run(plan);
        if (status) {
            while (i < communicator->running_count)
                communicator->running[kept++] = communicator->running[i++];
            communicator->running_count = kept;
            return ls_communicator_fail(communicator, plan, status);
        }
        if (!done)
            communicator->running[kept++] = plan;
    }
    communicator->running_count = kept;
    return LS_OK;
}

static enum ls_status begin(struct ls_collective_plan *plan)
{
    struct ls_communicator *communicator = plan->communicator;
    if (communicator->library)
        return ls_library_run(plan);
    return ls_executor_begin(plan->executor, communicator->group->interface,
                             communicator->transport, &communicator->numbers,
                             ls_call_signature_hash(&plan->signature, plan->sequence));
}

static bool is_handed_over(const struct ls_collective_plan *plan)
{
    return plan->executor ? ls_executor_done(plan->executor)
                          : !ls_library_overlaps(plan->communicator);
}

enum ls_status ls_collective_start(struct ls_collective_plan *plan)
{
    struct ls_communicator *communicator = plan->communicator;
    if (communicator->status)
        return communicator->status;
    if (atomic_load_explicit(&communicator->group->failed, memory_order_relaxed))
        return ls_communicator_give_up(communicator, LS_ABORTED);
    ls_guard_forget_reasons();
    if (plan->check == LS_CHECK_MISSING) {
        ls_error(communicator->group->scope, "rank %u starts a plan before its known answer",
                 communicator->rank);
        return LS_FAILED;
    }
    if (plan->running) {
        char text[160];
        ls_error(communicator->group->scope, "rank %u starts %s again before it waited for it",
                 communicator->rank, ls_call_text(&plan->signature, text));
        return LS_FAILED;
    }
    if (communicator->recording) {
        communicator->recorded[communicator->recorded_count++] = plan;
    } else {
        plan->sequence = communicator->sequence++;
        ls_flight_recorder_begin(communicator->recorder, plan->sequence, &plan->signature);
    }
    if (ls_trace_on())
        begin_recording(plan);
    enum ls_status status = ls_stream_barrier(plan);
    if (status)
        return status;
    plan->running = true;
    plan->blocked_since = 0;
    communicator->running[communicator->running_count++] = plan;
    status = ls_stream_begin(communicator);
    if (!status)
        status = ls_plan_fetch(plan);
    if (!status)
        status = begin(plan);
    if (!status && is_handed_over(plan)) {
        communicator->running_count--;
        status = end_run(plan);
    }
    return status ? ls_communicator_fail(communicator, plan, status) : ls_stream_part(plan);
}

enum ls_status ls_communicator_progress(struct ls_communicator *communicator)
{
    bool moved = false;
    if (communicator->status || !communicator->running_count)
        return communicator->status;
    const uint32_t under_way = communicator->running_count;
    const uint64_t begin = ls_clock_ns();
    const enum ls_status status = advance(communicator, &moved);
    const uint64_t end = ls_clock_ns();
    communicator->times.busy_ns += end - begin;
    if (moved)
        ls_trace_span(&progress_span, begin, end, under_way);
    return status;
}

// Waits until something can move, at most until the next poll at the others.
static enum ls_status wait_for_peers(struct ls_communicator *communicator, uint64_t timeout_ns)
{
    uint32_t count = 0, total = 0;
    struct ls_transfer *const *pending = NULL;
    if (communicator->library) { // which has no file descriptor or event to wait for
        const enum ls_status status = ls_library_poll(communicator);
        nanosleep(&(struct timespec){.tv_nsec = LIBRARY_PAUSE_NS}, NULL);
        return status ? status : LS_AGAIN;
    }
    for (uint32_t i = 0; i < communicator->running_count; i++) {
        pending = ls_executor_pending(communicator->running[i]->executor, &count);
        if (communicator->running_count > 1)
            memcpy(communicator->waiting + total, pending, count * sizeof(struct ls_transfer *));
        total += count;
    }
    if (communicator->running_count > 1)
        pending = communicator->waiting;
    return (enum ls_status)communicator->group->interface->wait_any(communicator->transport,
                                                                    pending, total, timeout_ns);
}

static enum ls_status wait_step(struct ls_communicator *communicator,
                                const struct ls_collective_plan *plan, uint64_t now,
                                uint64_t end_ns)
{
    const uint64_t deadline = communicator->deadline_ns, waited = now - plan->blocked_since;
    uint32_t peer;
    struct ls_call_signature theirs;
    if (waited >= deadline && !ls_compiling_excuses(plan->blocked_since, deadline))
        return ls_communicator_fail_deadline(communicator, plan, waited);
    uint64_t left = waited < deadline && deadline - waited < POLL_NS ? deadline - waited : POLL_NS;
    if (left > end_ns - now)
        left = end_ns - now;
    const enum ls_status status = wait_for_peers(communicator, left);
    if (status == LS_AGAIN)
        return ls_communicator_find_mismatch(communicator, plan, &peer, &theirs)
                   ? ls_communicator_fail_mismatch(communicator, plan, peer)
                   : LS_OK;
    return status ? ls_communicator_fail(communicator, plan, status) : LS_OK;
}

// Advances until the plan has ended, or nothing has moved for a number of turns.
static enum ls_status advance_eagerly(struct ls_communicator *communicator,
                                      const struct ls_collective_plan *plan, bool *moved)
{
    enum ls_status status = LS_OK;
    *moved = false;
    for (uint32_t still = 0; !status && plan->running && still < EAGER_TURNS; still++) {
        bool turn_moved = false;
        status = advance(communicator, &turn_moved);
        if (turn_moved) {
            *moved = true;
            still = 0;
        }
    }
    return status;
}

// LS_AGAIN: the run is not over by then. A transport may spin before it looks at a clock, so little
// time is spent here.
static enum ls_status move_until(struct ls_collective_plan *plan, uint64_t end_ns)
{
    struct ls_communicator *communicator = plan->communicator;
    enum ls_status status = LS_OK;
    while (!status && plan->running) {
        bool moved;
        status = advance_eagerly(communicator, plan, &moved);
        if (status || !plan->running)
            break;
        const uint64_t now = ls_clock_ns();
        if (moved || !plan->blocked_since)
            plan->blocked_since = now;
        if (now >= end_ns)
            return LS_AGAIN;
        if (end_ns - now > BRIEF_NS)
            status = wait_step(communicator, plan, now, end_ns);
    }
    return status;
}

enum ls_status ls_collective_wait(struct ls_collective_plan *plan)
{
    return ls_collective_wait_until(plan, UINT64_MAX);
}

enum ls_status ls_collective_wait_until(struct ls_collective_plan *plan, uint64_t end_ns)
{
    struct ls_communicator *communicator = plan->communicator;
    const uint64_t begin = ls_clock_ns();
    enum ls_status status = move_until(plan, end_ns);
    if (status == LS_AGAIN) {
        const uint64_t passed = ls_clock_ns() - begin;
        communicator->times.exposed_ns += passed;
        communicator->times.busy_ns += passed;
        return status;
    }
    if (!status && !plan->result && plan->executor && !plan->keeps_infinite &&
        ls_executor_overflowed(plan->executor))
        status = ls_communicator_fail_overflow(communicator, plan);
    if (!status && !plan->result)
        status = ls_stream_follow(plan);
    const uint64_t end = ls_clock_ns();
    communicator->times.exposed_ns += end - begin;
    communicator->times.busy_ns += end - begin;
    ls_trace_span(plan->wait_span, begin, end, plan->sequence);
    if (!status && !plan->result && !communicator->place)
        ls_flight_recorder_end(communicator->recorder, plan->sequence, end - begin);
    return status ? status : plan->result;
}

void ls_communicator_abort(struct ls_communicator *communicator)
{
    atomic_store(&communicator->group->failed, 1); // the caller has said why
    if (communicator->transport)
        communicator->group->interface->abort(communicator->transport);
    ls_library_abort(communicator->group);
}

void ls_communicator_set_deadline(struct ls_communicator *communicator, uint64_t deadline_ns)
{
    communicator->deadline_ns = deadline_ns;
}

enum ls_status ls_communicator_status(const struct ls_communicator *communicator)
{
    return communicator->status;
}

uint64_t ls_communicator_begun(const struct ls_communicator *communicator)
{
    return atomic_load(&communicator->recorder->begun);
}

bool ls_communicator_lost(const struct ls_communicator *communicator, uint32_t *rank)
{
    const uint32_t lost = atomic_load(&communicator->group->lost);
    *rank = lost - 1;
    return lost > 0;
}

bool ls_communicator_is_late(const struct ls_communicator *communicator)
{
    return communicator->late;
}

void ls_communicator_times(struct ls_communicator *communicator, int32_t reset,
                           struct ls_communication_times *out)
{
    *out = communicator->times;
    if (reset)
        communicator->times = (struct ls_communication_times){0};
}
