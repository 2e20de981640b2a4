// SPDX-License-Identifier: Apache-2.0
// Sums of a step that the host looks at some steps later (core/replica/deferred_results.h says how many, and why).
#include "core/replica/deferred_results.h"
#include "core/strategy/internal.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/trace.h"

#include <inttypes.h>
#include <string.h>

static const struct ls_trace_label wait_span = {
    .category = "device", .name = "wait for the device", .value = "step"};

// The strategy must not look at what it decides on, nor do anything on the host that depends on it.
bool ls_driver_may_defer(const struct ls_driver *driver)
{
    for (uint32_t i = 0; i < driver->count; i++)
        if (!ls_replica_may_defer(driver->members[i].replica))
            return false;
    return driver->traits.capturable;
}

struct waiting {
    struct ls_driver *driver;
    struct ls_driver_member *member;
    uint64_t start;
    bool polled; // the sums were not there at once
    bool explained; // by the communicator
};

static enum ls_status poll(void *context)
{
    struct waiting *waiting = context;
    waiting->polled = true;
    if (atomic_load(&waiting->driver->aborted))
        return LS_ABORTED;
    const uint64_t waited_ns = ls_clock_ns() - waiting->start;
    struct ls_communicator *communicator = waiting->member->communicator;
    struct ls_communicator *totals = waiting->member->total_communicator;
    enum ls_status status = totals ? ls_communicator_poll(totals, waited_ns) : LS_OK;
    if (!status && communicator)
        status = ls_communicator_progress(communicator);
    if (!status && communicator)
        status = ls_communicator_poll(communicator, waited_ns);
    waiting->explained = status != LS_OK;
    return status;
}

static void fill(const struct ls_driver_member *member, uint64_t step, struct ls_step_result *out)
{
    out->step = step;
    memcpy(out->sums, member->step_stats, sizeof(out->sums));
    out->stop = member->step_stats[LS_STEP_STATS_STOP] > 0;
}

static enum ls_status take(struct ls_driver *driver, struct ls_driver_member *member,
                           struct ls_step_result *out)
{
    const uint64_t deadline_ns = driver->options.deadline_ns, start = ls_clock_ns();
    struct waiting waiting = {.driver = driver, .member = member, .start = start};
    uint64_t step = 0;
    ls_replica_pending_step_stats(member->replica, &step);
    enum ls_status status = ls_replica_take_step_stats(member->replica, deadline_ns, poll, &waiting,
                                                       member->step_stats);
    if (status == LS_PEER_LOST && waiting.polled && !waiting.explained)
        ls_error("train",
                 "replica %u: the device is not done with step %" PRIu64
                 " after %.1f s; it hangs, or --deadline is too short for it",
                 ls_replica_rank(member->replica), step, (double)deadline_ns * 1e-9);
    const uint64_t end = ls_clock_ns();
    if (waiting.polled)
        ls_trace_span(&wait_span, start, end, step);
    out->waited_ns = end - start;
    if (!status)
        status = ls_driver_judge(driver, member, step);
    if (!status)
        fill(member, step, out);
    return status;
}

enum ls_status ls_driver_look_back(struct ls_driver *driver, struct ls_driver_member *member,
                                   struct ls_step_result *out)
{
    out->step = 0;
    out->stop = false;
    out->waited_ns = 0;
    if (!member->checked_late) {
        fill(member, member->step, out);
        return LS_OK;
    }
    const bool first = member->all_steps == 0; // waited for: it is when the run has started
    const enum ls_status status = ls_replica_put_step_stats(member->replica, member->step);
    if (status ||
        (!first && ls_replica_pending_step_stats(member->replica, NULL) <= LS_DEFERRED_STEPS))
        return status;
    return take(driver, member, out);
}

enum ls_status ls_driver_collect(struct ls_driver *driver, uint32_t replica,
                                 struct ls_step_result *out)
{
    struct ls_driver_member *member = &driver->members[replica];
    out->step = 0;
    out->stop = false;
    if (!member->checked_late || ls_replica_pending_step_stats(member->replica, NULL) == 0)
        return LS_OK;
    return take(driver, member, out);
}
