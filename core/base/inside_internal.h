// SPDX-License-Identifier: Apache-2.0
// What the notes of a thread are made of, for inside.c and watchdog.c; and entering and leaving a
// call without a function call, for the guards of calls that a collective makes several times in a
// microsecond.
#ifndef LS_BASE_INSIDE_INTERNAL_H
#define LS_BASE_INSIDE_INTERNAL_H

#include "core/attributes.h"
#include "core/base/inside.h"

#include <pthread.h>
#include <stdatomic.h>

// Plugin and name of a call that is entered by ls_inside_begin; lasts as long as the process.
struct ls_inside_site {
    const char *plugin, *name;
};

// One a thread. Its own thread writes, others read: relaxed stores, which cost no more than plain
// ones.
struct ls_inside {
    _Atomic(const char *) plugin, name, about; // the call under way
    _Atomic(const struct ls_inside_site *) site; // the call under way instead of these; NULL: these
    _Atomic(const char *) outer_plugin, outer_name; // the outermost call under way
    _Atomic(const char *) last_plugin, last_name; // the last that has returned
    _Atomic(const struct ls_inside_site *) last_site; // the last instead of these; NULL: these
    _Atomic uint32_t moves; // calls begun and ended
    _Atomic uint32_t outer_moves; // of those, not from within another plugin's call nor of a site
    _Atomic int64_t replica; // -1: none
    const char *next_about;
    bool listed; // also where that failed, so that it is tried once
    bool in_list;
    const struct ls_caller *caller; // whom the thread works for; set when it is listed
    void *signal_stack;
    struct ls_inside *next; // of the list

    // The watchdog's: what it saw when it last looked, and since when that has not changed.
    bool watched;
    uint32_t seen, outer_seen;
    uint64_t since_ns, outer_since_ns;
};

// The list of all threads that were in a plugin and have not ended.
extern pthread_mutex_t ls_inside_lock;
extern struct ls_inside *_Atomic ls_inside_list;

struct ls_inside *ls_inside_mine(void); // listed from here on
struct ls_inside_call ls_inside_read(struct ls_inside *record);

// The calling thread's. Initial-exec: a signal handler reads it, which must not allocate.
extern _Thread_local LS_INITIAL_EXEC struct ls_inside ls_inside_own;

static inline void ls_inside_set(_Atomic(const char *) *place, const char *text)
{
    atomic_store_explicit(place, text, memory_order_relaxed);
}

static inline const char *ls_inside_get(_Atomic(const char *) *place)
{
    return atomic_load_explicit(place, memory_order_relaxed);
}

static inline void ls_inside_count(_Atomic uint32_t *number)
{
    atomic_store_explicit(number, atomic_load_explicit(number, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

// As ls_inside_enter and ls_inside_leave, for a call that is made several times in a microsecond:
// few stores, no function call. The caller keeps what begin returns for end.
LS_ALWAYS_INLINE const struct ls_inside_site *ls_inside_begin(const struct ls_inside_site *site)
{
    struct ls_inside *record = &ls_inside_own;
    if (!record->listed)
        (void)ls_inside_mine();
    const struct ls_inside_site *before = atomic_load_explicit(&record->site, memory_order_relaxed);
    atomic_store_explicit(&record->site, site, memory_order_relaxed);
    return before;
}

LS_ALWAYS_INLINE void ls_inside_end(const struct ls_inside_site *site,
                                    const struct ls_inside_site *before)
{
    struct ls_inside *record = &ls_inside_own;
    atomic_store_explicit(&record->last_site, site, memory_order_relaxed);
    atomic_store_explicit(&record->site, before, memory_order_relaxed);
    ls_inside_count(&record->moves);
}

// Called for a thread that ends within a call; NULL: nothing is.
extern _Atomic(void (*)(int64_t replica)) ls_inside_lost_thread;

#endif
