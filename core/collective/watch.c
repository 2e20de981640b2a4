// SPDX-License-Identifier: Apache-2.0
// A thread that looks at a clock.
#include "core/collective/watch.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/threads.h"

#include <unistd.h>

#define LOOK_NS UINT64_C(1000000000)

static _Thread_local struct ls_describe_watch *watching;

static void *watch_calls(void *argument)
{
    struct ls_describe_watch *watch = argument;
    const uint64_t look_ns = watch->deadline_ns < LOOK_NS ? watch->deadline_ns : LOOK_NS;
    while (!__atomic_load_n(&watch->over, __ATOMIC_ACQUIRE)) {
        ls_wait_word(&watch->over, 0, look_ns);
        if (__atomic_load_n(&watch->over, __ATOMIC_ACQUIRE))
            break;
        const uint64_t began_ns = atomic_load(&watch->began_ns), now_ns = ls_clock_ns();
        if (began_ns && now_ns > began_ns && now_ns - began_ns >= watch->deadline_ns) {
            ls_error(watch->scope,
                     "collective %s: describe for rank %u of %u has not returned after %.3g s; the "
                     "plugin hangs, and the program ends",
                     watch->name, atomic_load(&watch->rank), watch->world,
                     (double)watch->deadline_ns * 1e-9);
            _exit(ls_status_exit_code(watch->status));
        }
        if (watch->tick)
            watch->tick(watch->context);
    }
    return NULL;
}

enum ls_status ls_describe_watch_begin(struct ls_describe_watch *watch)
{
    const enum ls_status status = ls_thread_start(&watch->thread, "watch", watch_calls, watch);
    if (status)
        return status;
    watch->outer = watching;
    watching = watch;
    return LS_OK;
}

void ls_describe_watch_end(struct ls_describe_watch *watch)
{
    watching = watch->outer;
    __atomic_store_n(&watch->over, 1, __ATOMIC_RELEASE);
    ls_wake_word(&watch->over);
    pthread_join(watch->thread, NULL);
}

struct ls_describe_note ls_describe_note_begin(uint32_t rank)
{
    struct ls_describe_watch *watch = watching;
    if (!watch)
        return (struct ls_describe_note){0};
    const struct ls_describe_note before = {watch, atomic_load(&watch->began_ns),
                                            atomic_load(&watch->rank)};
    atomic_store(&watch->rank, rank);
    atomic_store(&watch->began_ns, ls_clock_ns());
    return before;
}

void ls_describe_note_end(const struct ls_describe_note *note)
{
    if (!note->watch)
        return;
    atomic_store(&note->watch->rank, note->rank);
    atomic_store(&note->watch->began_ns, note->began_ns ? ls_clock_ns() : 0);
}
