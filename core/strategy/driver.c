// SPDX-License-Identifier: Apache-2.0
// How a run ends: what failed, what is lost, what is said of it; and what the report asks.
#include "core/strategy/internal.h"

#include "core/base/inside.h"
#include "core/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ls_driver_note_silent(struct ls_driver *driver, int32_t status)
{
    int32_t none = LS_OK;
    atomic_compare_exchange_strong(&driver->silent, &none, status);
}

void ls_driver_fail(struct ls_driver *driver, enum ls_status status)
{
    int32_t none = LS_OK;
    atomic_compare_exchange_strong(&driver->failure, &none, (int32_t)status);
    ls_driver_abort(driver);
}

void ls_driver_end_at_nan(struct ls_driver *driver, bool ends)
{
    driver->ends_at_nan = ends;
}

// ---- Ends ----

// Where the host looked later, the replica has the parameters of that step, but the examples of another.
static void say_nothing_found(const struct ls_driver *driver, unsigned long long step,
                              unsigned long long looked)
{
    if (driver->defers && looked != step)
        ls_error("train",
                 "step %llu: the loss is not finite; the parameters are, and with the examples of "
                 "step %llu all values are: check the data of step %llu, or try a smaller learning "
                 "rate",
                 step, looked, step);
    else
        ls_error("train",
                 "step %llu: the loss is not finite, though all values that it is made of are: the "
                 "sum overflows; try a smaller learning rate, or check the data",
                 step);
}

// Where the loss is finite, all values of the step that lead to it may be.
static void say_skipped(const struct ls_driver *driver, unsigned long long step, const char *text,
                        const char *whose)
{
    const struct ls_replica *replica = driver->members[0].replica;
    ls_error("train",
             "step %llu: %d steps in a row were skipped, as their gradients were not finite, the "
             "last with loss scale %g%s%s%s%s; try a smaller learning rate, or check the data",
             step, LS_MOST_SKIPS, (double)ls_replica_scale_before(replica)->scale,
             text[0] ? "; the first value that is not finite is in '" : "", text,
             text[0] ? "'" : "", whose);
}

uint64_t ls_driver_explain(struct ls_driver *driver)
{
    const int32_t silent = atomic_load(&driver->silent);
    const bool elsewhere = silent == LS_ABORTED && driver->count < driver->world; // its reason is
    if (silent && !elsewhere && driver->reasons == ls_inside_all_reasons())
        ls_error(ls_driver_name(driver),
                 "a call of strategy %s answered '%s', and no reason was given",
                 ls_driver_name(driver), ls_status_text((enum ls_status)silent));
    if (!atomic_exchange(&driver->not_finite, false))
        return 0;
    ls_driver_wait_for_threads(driver);
    // One replica may be steps ahead of another that has left: nothing on its device ends before that is aborted.
    ls_driver_end_communicators(driver);
    const unsigned long long step = atomic_load(&driver->not_finite_step);
    char text[128] = "", whose[32] = "";
    uint32_t i = 0;
    for (; i < driver->count && !text[0]; i++)
        if (ls_replica_find_not_finite(driver->members[i].replica, text, sizeof(text)))
            text[0] = '\0';
    if (!text[0] && !atomic_load(&driver->skipped_too_many)) {
        say_nothing_found(driver, step, driver->members[0].step);
        return step;
    }
    if (driver->world > 1 && text[0])
        snprintf(whose, sizeof(whose), " of replica %u", driver->first_rank + i - 1);
    if (atomic_load(&driver->skipped_too_many))
        say_skipped(driver, step, text, whose);
    else
        ls_error("train",
                 "step %llu: the loss is not finite; the first value that is not finite is in "
                 "'%s'%s; try a smaller learning rate, or check the data",
                 step, text, whose);
    return step;
}

void ls_driver_abort(struct ls_driver *driver)
{
    atomic_store(&driver->aborted, true);
    ls_barrier_abort(&driver->barrier);
    ls_driver_abort_endpoints(driver);
    for (uint32_t i = 0; driver->communicators && i < driver->count; i++)
        if (driver->communicators[i])
            ls_communicator_abort(driver->communicators[i]);
    for (uint32_t i = 0; driver->total_communicators && i < driver->count; i++)
        if (driver->total_communicators[i])
            ls_communicator_abort(driver->total_communicators[i]);
}

bool ls_driver_aborted(const struct ls_driver *driver)
{
    return atomic_load(&driver->aborted);
}

bool ls_driver_lost(const struct ls_driver *driver, uint32_t *rank)
{
    return (driver->communicators && ls_communicator_lost(driver->communicators[0], rank)) ||
           (driver->total_communicators &&
            ls_communicator_lost(driver->total_communicators[0], rank));
}

bool ls_driver_not_finite(const struct ls_driver *driver)
{
    return atomic_load(&driver->not_finite);
}

static uint32_t count_left(const struct ls_driver *driver)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < driver->count; i++)
        count += !atomic_load(&driver->members[i].lost);
    return count;
}

bool ls_driver_survives(const struct ls_driver *driver)
{
    return driver->traits.survives && driver->ops->lost && driver->count > 1 &&
           ls_driver_asynchronous(driver);
}

bool ls_driver_survive(struct ls_driver *driver, uint32_t index, enum ls_status status)
{
    struct ls_driver_member *member = &driver->members[index];
    if (!ls_driver_survives(driver) || status == LS_ABORTED || status == LS_INTERRUPTED ||
        status == LS_PEER_LOST || member->not_finite || atomic_load(&driver->aborted))
        return false;
    pthread_mutex_lock(&driver->lock);
    const bool last = count_left(driver) == 1;
    if (!last)
        atomic_store(&member->lost, true);
    pthread_mutex_unlock(&driver->lock);
    if (last)
        return false;
    ls_barrier_leave(&driver->barrier, index);
    return driver->ops->lost(driver->strategy, index) == LS_OK;
}

bool ls_driver_is_lost(const struct ls_driver *driver, uint32_t replica)
{
    return atomic_load(&driver->members[replica].lost);
}

bool ls_driver_asynchronous(const struct ls_driver *driver)
{
    return driver->traits.divisor == LS_DIVISOR_OWN;
}

bool ls_driver_adds_counts(const struct ls_driver *driver)
{
    return driver->members[0].counts != NULL;
}

const char *ls_driver_schedule_check(const struct ls_driver *driver, double *seconds)
{
    const struct ls_communicator *first = driver->communicators ? driver->communicators[0] : NULL;
    if (seconds)
        *seconds = first ? (double)ls_communicator_check_ns(first) * 1e-9 : 0;
    return ls_schedule_check_text(first ? ls_communicator_check(first) : LS_CHECK_NONE);
}

uint64_t ls_driver_bytes_per_step(const struct ls_driver *driver)
{
    const struct ls_driver_member *first = &driver->members[0];
    uint64_t bytes = 0;
    for (uint32_t i = 0; driver->communicators && i < driver->bucket_count; i++) {
        if (first->whole[i])
            bytes += ls_collective_plan_bytes(first->whole[i]);
        if (first->reduce[i]) // else the driver could not be attached
            bytes += ls_collective_plan_bytes(first->reduce[i]);
    }
    if (first->counts)
        bytes += ls_collective_plan_bytes(first->counts);
    return bytes + (first->all_steps ? first->all_bytes / first->all_steps : 0);
}

struct ls_driver_totals ls_driver_totals(const struct ls_driver *driver)
{
    return (struct ls_driver_totals){.collective = driver->total_collective,
                                     .transport = driver->total_transport,
                                     .count = driver->plan->total_count,
                                     .bytes = ls_driver_total_bytes(driver)};
}
