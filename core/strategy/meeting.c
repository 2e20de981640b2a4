// SPDX-License-Identifier: Apache-2.0
// Where the replicas of a worker wait for each other. Who comes last ends the meeting by raising a number that the
// others watch: first spinning, then asleep.
#include "core/strategy/internal.h"

#include "core/base/clock.h"
#include "core/base/inside.h"
#include "core/base/log.h"
#include "core/base/threads.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

// About 100 us where each replica can have a core, because the others are soon done; else hardly.
#define SPINS_OWN_CORE 4000
#define SPINS_SHARED_CORE 20
#define YIELDS 100
#define SLEEP_NS UINT64_C(100000000)

enum ls_status ls_meeting_init(struct ls_meeting *meeting, const char *name, uint32_t count)
{
    meeting->name = name;
    pthread_mutex_init(&meeting->lock, NULL);
    meeting->count = count;
    meeting->spins = count <= ls_core_count() ? SPINS_OWN_CORE : SPINS_SHARED_CORE;
    meeting->came = calloc(count, sizeof(*meeting->came));
    meeting->gone = calloc(count, sizeof(*meeting->gone));
    return meeting->came && meeting->gone ? LS_OK : LS_OUT_OF_MEMORY;
}

void ls_meeting_finish(struct ls_meeting *meeting)
{
    if (!meeting->count)
        return;
    free(meeting->came);
    free(meeting->gone);
    pthread_mutex_destroy(&meeting->lock);
    *meeting = (struct ls_meeting){0};
}

static void pause_core(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void wake(struct ls_meeting *meeting)
{
    atomic_fetch_add(&meeting->generation, 1);
    ls_wake_word((const uint32_t *)&meeting->generation);
}

// With the lock held: ends the meeting when nobody is missing.
static bool end_if_complete(struct ls_meeting *meeting)
{
    if (!meeting->came_count || meeting->came_count + meeting->gone_count < meeting->count)
        return false;
    for (uint32_t i = 0; i < meeting->count; i++)
        meeting->came[i] = false;
    meeting->came_count = 0;
    wake(meeting);
    return true;
}

// Names who has not come, once for all who wait.
static enum ls_status say_who_is_missing(struct ls_meeting *meeting, uint32_t replica,
                                         uint32_t seen, uint64_t waited_ns)
{
    char names[128] = "";
    size_t length = 0;
    uint32_t missing = 0, count = 0;
    const char *name = meeting->name;
    pthread_mutex_lock(&meeting->lock);
    const bool ended = atomic_load(&meeting->generation) != seen;
    const bool first = !meeting->said && !ended;
    meeting->said = meeting->said || first;
    for (uint32_t i = 0; first && i < meeting->count && length + 12 < sizeof(names); i++)
        if (!meeting->came[i] && !meeting->gone[i]) {
            missing = i;
            count++;
            length += (size_t)snprintf(names + length, sizeof(names) - length, "%s%u",
                                       length ? ", " : "", i);
        }
    pthread_mutex_unlock(&meeting->lock);
    if (ended)
        return atomic_load(&meeting->aborted) ? LS_ABORTED : LS_OK;
    if (!first)
        return LS_ABORTED;
    struct ls_inside_call call;
    char where[256];
    const bool inside = count == 1 && ls_inside_of_replica(missing, &call);
    ls_error(name,
             "replica %u waited %.1f s in a meeting of strategy %s for replica %s, which did not "
             "come%s%s; look there, or raise --deadline",
             replica, (double)waited_ns * 1e-9, name, names, inside ? " and is in " : "",
             inside ? ls_inside_text(&call, where, sizeof(where)) : "");
    return LS_PEER_LOST;
}

static enum ls_status wait_for_end(struct ls_meeting *meeting, uint32_t replica, uint32_t seen,
                                   uint64_t deadline_ns)
{
    for (uint32_t i = 0; i < meeting->spins + YIELDS; i++) {
        if (atomic_load_explicit(&meeting->generation, memory_order_acquire) != seen)
            return atomic_load(&meeting->aborted) ? LS_ABORTED : LS_OK;
        if (i < meeting->spins)
            pause_core();
        else
            sched_yield();
    }
    const uint64_t begin = ls_clock_ns();
    for (uint64_t waited = 0; waited < deadline_ns; waited = ls_clock_ns() - begin) {
        const uint64_t left = deadline_ns - waited;
        ls_wait_word((const uint32_t *)&meeting->generation, seen,
                     left < SLEEP_NS ? left : SLEEP_NS);
        if (atomic_load(&meeting->generation) != seen)
            return atomic_load(&meeting->aborted) ? LS_ABORTED : LS_OK;
    }
    return say_who_is_missing(meeting, replica, seen, ls_clock_ns() - begin);
}

enum ls_status ls_meeting_come(struct ls_meeting *meeting, uint32_t replica, uint64_t deadline_ns)
{
    pthread_mutex_lock(&meeting->lock);
    const bool aborted = atomic_load(&meeting->aborted);
    const uint32_t seen = atomic_load(&meeting->generation);
    bool ended = false;
    if (!aborted && !meeting->came[replica] && !meeting->gone[replica]) {
        meeting->came[replica] = true;
        meeting->came_count++;
        ended = end_if_complete(meeting);
    }
    pthread_mutex_unlock(&meeting->lock);
    if (aborted)
        return LS_ABORTED;
    return ended ? LS_OK : wait_for_end(meeting, replica, seen, deadline_ns);
}

void ls_meeting_leave(struct ls_meeting *meeting, uint32_t replica)
{
    pthread_mutex_lock(&meeting->lock);
    if (meeting->came[replica])
        meeting->came_count--;
    if (!meeting->gone[replica])
        meeting->gone_count++;
    meeting->came[replica] = false;
    meeting->gone[replica] = true;
    end_if_complete(meeting);
    pthread_mutex_unlock(&meeting->lock);
}

void ls_meeting_abort(struct ls_meeting *meeting)
{
    if (!meeting->count || atomic_exchange(&meeting->aborted, true))
        return;
    pthread_mutex_lock(&meeting->lock);
    wake(meeting);
    pthread_mutex_unlock(&meeting->lock);
}
