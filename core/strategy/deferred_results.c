// SPDX-License-Identifier: Apache-2.0
// Sums of a step that the host looks at some steps later (core/replica/deferred_results.h says how many, and why).
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
    bool explained; // by the communicator
};

static enum ls_status poll(void *context)
{
    struct waiting *waiting = context;
    if (atomic_load(&waiting->driver->aborted))
        return LS_ABORTED;
    struct ls_communicator *communicator = waiting->member->communicator;
    enum ls_status status = communicator ? ls_communicator_progress(communicator) : LS_OK;
    if (!status && communicator)
        status = ls_communicator_poll(communicator, ls_clock_ns() - waiting->start);
    waiting->explained = status != LS_OK;
    return status;
}

static enum ls_status wait(struct ls_driver *driver, struct ls_driver_member *member)
{
    const struct ls_deferred_results *late = &member->replica->deferred;
    const uint64_t deadline_ns = driver->options.deadline_ns, start = ls_clock_ns();
    struct waiting waiting = {driver, member, start, false};
    const uint64_t step = late->steps[late->taken % (LS_DEFERRED_STEPS + 1)];
    enum ls_status status = ls_deferred_ask(late);
    if (status != LS_AGAIN)
        return status;
    status = ls_deferred_wait(late, deadline_ns, poll, &waiting);
    if (status == LS_PEER_LOST && !waiting.explained)
        ls_error("train",
                 "replica %u: the device is not done with step %" PRIu64
                 " after %.1f s; it hangs, or --deadline is too short for it",
                 member->replica->rank, step, (double)deadline_ns * 1e-9);
    ls_trace_span(&wait_span, start, ls_clock_ns(), step);
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
    uint64_t step;
    const uint64_t start = ls_clock_ns();
    enum ls_status status = wait(driver, member);
    out->waited_ns = ls_clock_ns() - start;
    if (status)
        return status;
    memcpy(member->step_stats, ls_deferred_take(&member->replica->deferred, &step),
           sizeof(member->step_stats));
    status = ls_driver_judge(driver, member, step);
    if (!status)
        fill(member, step, out);
    return status;
}

enum ls_status ls_driver_look_back(struct ls_driver *driver, struct ls_driver_member *member,
                                   struct ls_step_result *out)
{
    struct ls_deferred_results *late = &member->replica->deferred;
    out->step = 0;
    out->stop = false;
    out->waited_ns = 0;
    if (!member->checked_late) {
        fill(member, member->step, out);
        return LS_OK;
    }
    const bool first = late->put == 0; // waited for: it is when the run has started
    const enum ls_status status = ls_deferred_put(late, member->replica->reduced, member->step);
    if (status || (!first && ls_deferred_pending(late) <= LS_DEFERRED_STEPS))
        return status;
    return take(driver, member, out);
}

enum ls_status ls_driver_collect(struct ls_driver *driver, uint32_t replica,
                                 struct ls_step_result *out)
{
    struct ls_driver_member *member = &driver->members[replica];
    out->step = 0;
    out->stop = false;
    if (!member->checked_late || ls_deferred_pending(&member->replica->deferred) == 0)
        return LS_OK;
    return take(driver, member, out);
}
