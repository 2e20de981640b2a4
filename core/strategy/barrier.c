// SPDX-License-Identifier: Apache-2.0
// The barrier of the replicas of a worker. The last one to arrive raises a number that the others
// watch: first spinning, then asleep.
#include "core/strategy/internal.h"

#include "core/base/clock.h"
#include "core/base/compiling.h"
#include "core/base/inside.h"
#include "core/base/log.h"
#include "core/base/threads.h"
#include "core/plugin/waiting.h"

#include <stdio.h>
#include <stdlib.h>

#define YIELDS 100
#define SLEEP_NS UINT64_C(100000000)

enum ls_status ls_barrier_init(struct ls_barrier *barrier, const char *name, uint32_t first_rank,
                               uint32_t count)
{
    barrier->name = name;
    barrier->first_rank = first_rank;
    pthread_mutex_init(&barrier->lock, NULL);
    barrier->count = count;
    barrier->spins = ls_spins(count, ls_core_count());
    barrier->came = calloc(count, sizeof(*barrier->came));
    barrier->gone = calloc(count, sizeof(*barrier->gone));
    return barrier->came && barrier->gone ? LS_OK : LS_OUT_OF_MEMORY;
}

void ls_barrier_finish(struct ls_barrier *barrier)
{
    if (!barrier->count)
        return;
    free(barrier->came);
    free(barrier->gone);
    pthread_mutex_destroy(&barrier->lock);
    *barrier = (struct ls_barrier){0};
}

static void wake(struct ls_barrier *barrier)
{
    atomic_fetch_add(&barrier->generation, 1);
    ls_wake_word(&barrier->generation);
}

// With the lock held: ends the barrier when no replica is missing.
static bool end_if_complete(struct ls_barrier *barrier)
{
    if (!barrier->came_count || barrier->came_count + barrier->gone_count < barrier->count)
        return false;
    for (uint32_t i = 0; i < barrier->count; i++)
        barrier->came[i] = false;
    barrier->came_count = 0;
    wake(barrier);
    return true;
}

// Names the replicas that have not come, once for all that wait.
static enum ls_status say_who_is_missing(struct ls_barrier *barrier, uint32_t replica,
                                         uint32_t seen, uint64_t waited_ns)
{
    char names[128] = "";
    size_t length = 0;
    uint32_t missing = 0, count = 0;
    const char *name = barrier->name;
    pthread_mutex_lock(&barrier->lock);
    const bool ended = atomic_load(&barrier->generation) != seen;
    const bool first = !barrier->said && !ended;
    barrier->said = barrier->said || first;
    for (uint32_t i = 0; first && i < barrier->count && length + 12 < sizeof(names); i++)
        if (!barrier->came[i] && !barrier->gone[i]) {
            missing = i;
            count++;
            length += (size_t)snprintf(names + length, sizeof(names) - length, "%s%u",
                                       length ? ", " : "", barrier->first_rank + i);
        }
    pthread_mutex_unlock(&barrier->lock);
    if (ended)
        return atomic_load(&barrier->aborted) ? LS_ABORTED : LS_OK;
    if (!first)
        return LS_ABORTED;
    struct ls_inside_call call;
    char where[256];
    const bool inside = count == 1 && ls_inside_of_replica(barrier->first_rank + missing, &call);
    ls_error(name,
             "replica %u waited %.1f s in a barrier of strategy %s for replica %s, which did not "
             "come%s%s; look there, or raise --deadline",
             barrier->first_rank + replica, (double)waited_ns * 1e-9, name, names,
             inside ? " and is in " : "",
             inside ? ls_inside_text(&call, where, sizeof(where)) : "");
    return LS_PEER_LOST;
}

static enum ls_status wait_for_end(struct ls_barrier *barrier, uint32_t replica, uint32_t seen,
                                   uint64_t deadline_ns)
{
    for (uint32_t i = 0; ls_pause(i, barrier->spins, YIELDS); i++)
        if (atomic_load_explicit(&barrier->generation, memory_order_acquire) != seen)
            return atomic_load(&barrier->aborted) ? LS_ABORTED : LS_OK;
    const uint64_t begin = ls_clock_ns();
    for (uint64_t waited = 0; waited < deadline_ns || ls_compiling_excuses(begin, deadline_ns);
         waited = ls_clock_ns() - begin) {
        const uint64_t left = waited < deadline_ns ? deadline_ns - waited : SLEEP_NS;
        ls_wait_word(&barrier->generation, seen, left < SLEEP_NS ? left : SLEEP_NS);
        if (atomic_load(&barrier->generation) != seen)
            return atomic_load(&barrier->aborted) ? LS_ABORTED : LS_OK;
    }
    return say_who_is_missing(barrier, replica, seen, ls_clock_ns() - begin);
}

enum ls_status ls_barrier_wait(struct ls_barrier *barrier, uint32_t replica, uint64_t deadline_ns)
{
    pthread_mutex_lock(&barrier->lock);
    const bool aborted = atomic_load(&barrier->aborted);
    const uint32_t seen = atomic_load(&barrier->generation);
    bool ended = false;
    if (!aborted && !barrier->came[replica] && !barrier->gone[replica]) {
        barrier->came[replica] = true;
        barrier->came_count++;
        ended = end_if_complete(barrier);
    }
    pthread_mutex_unlock(&barrier->lock);
    if (aborted)
        return LS_ABORTED;
    return ended ? LS_OK : wait_for_end(barrier, replica, seen, deadline_ns);
}

void ls_barrier_leave(struct ls_barrier *barrier, uint32_t replica)
{
    pthread_mutex_lock(&barrier->lock);
    if (barrier->came[replica])
        barrier->came_count--;
    if (!barrier->gone[replica])
        barrier->gone_count++;
    barrier->came[replica] = false;
    barrier->gone[replica] = true;
    end_if_complete(barrier);
    pthread_mutex_unlock(&barrier->lock);
}

void ls_barrier_abort(struct ls_barrier *barrier)
{
    if (!barrier->count || atomic_exchange(&barrier->aborted, true))
        return;
    pthread_mutex_lock(&barrier->lock);
    wake(barrier);
    pthread_mutex_unlock(&barrier->lock);
}
