// SPDX-License-Identifier: Apache-2.0
// A thread that looks at a clock.
#include "core/schedule/watch.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/threads.h"
#include "core/plugin/waiting.h"

#include <unistd.h>

#define LOOK_NS UINT64_C(1000000000)
#define IDLE_NS UINT64_C(3600000000000)

static _Thread_local struct ls_describe_watch *watching;

static void look(const struct ls_describe_watch *watch)
{
    const uint64_t began_ns = atomic_load(&watch->began_ns), now_ns = ls_clock_ns();
    if (began_ns && now_ns > began_ns && now_ns - began_ns >= watch->deadline_ns) {
        ls_error(
            watch->scope,
            "collective %s: build_schedule for rank %u of %u has not returned after %.3g s; the "
            "plugin hangs, and the program ends",
            watch->name, atomic_load(&watch->rank), watch->world,
            (double)watch->deadline_ns * 1e-9);
        _exit(ls_status_exit_code(watch->status));
    }
    if (watch->tick)
        watch->tick(watch->context);
}

static void *watch_calls(void *argument)
{
    struct ls_describe_watch *watch = argument;
    const uint64_t look_ns = watch->deadline_ns < LOOK_NS ? watch->deadline_ns : LOOK_NS;
    for (;;) {
        const uint32_t changes = __atomic_load_n(&watch->changes, __ATOMIC_ACQUIRE);
        if (atomic_load(&watch->over))
            return NULL;
        const bool entered = atomic_load(&watch->entered);
        ls_wait_word(&watch->changes, changes, entered ? look_ns : IDLE_NS);
        if (entered && __atomic_load_n(&watch->changes, __ATOMIC_ACQUIRE) == changes)
            look(watch);
    }
}

static void change(struct ls_describe_watch *watch)
{
    __atomic_fetch_add(&watch->changes, 1, __ATOMIC_RELEASE);
    ls_wake_word(&watch->changes);
}

enum ls_status ls_describe_watch_start(struct ls_describe_watch *watch)
{
    const enum ls_status status = ls_thread_start(&watch->thread, "watch", watch_calls, watch);
    watch->started = !status;
    return status;
}

void ls_describe_watch_stop(struct ls_describe_watch *watch)
{
    if (!watch->started)
        return;
    atomic_store(&watch->over, true);
    change(watch);
    pthread_join(watch->thread, NULL);
    watch->started = false;
}

void ls_describe_watch_enter(struct ls_describe_watch *watch)
{
    if (!watch->started)
        return;
    watching = watch;
    atomic_store(&watch->entered, true);
    change(watch);
}

void ls_describe_watch_leave(struct ls_describe_watch *watch)
{
    if (!watch->started)
        return;
    watching = NULL;
    atomic_store(&watch->entered, false);
    change(watch);
}

struct ls_describe_note ls_describe_note_begin(uint32_t rank)
{
    struct ls_describe_note before = {.inside = ls_inside_now(), .watch = watching};
    if (!before.watch)
        return before;
    before.began_ns = atomic_load(&before.watch->began_ns);
    before.rank = atomic_load(&before.watch->rank);
    atomic_store(&before.watch->rank, rank);
    atomic_store(&before.watch->began_ns, ls_clock_ns());
    return before;
}

void ls_describe_note_end(const struct ls_describe_note *note)
{
    ls_inside_return(note->inside);
    if (!note->watch)
        return;
    atomic_store(&note->watch->rank, note->rank);
    atomic_store(&note->watch->began_ns, note->began_ns ? ls_clock_ns() : 0);
}
