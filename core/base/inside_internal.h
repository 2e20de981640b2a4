// SPDX-License-Identifier: Apache-2.0
// What the notes of a thread are made of, for inside.c and watchdog.c.
#ifndef LS_BASE_INSIDE_INTERNAL_H
#define LS_BASE_INSIDE_INTERNAL_H

#include "core/base/inside.h"

#include <pthread.h>
#include <stdatomic.h>

// One a thread. Its own thread writes, others read: relaxed stores, which cost no more than plain ones.
struct ls_inside {
    _Atomic(const char *) plugin, name, about; // the call under way
    _Atomic(const char *) outer_plugin, outer_name; // the outermost call under way
    _Atomic(const char *) last_plugin, last_name; // the last that has returned
    _Atomic uint32_t moves; // calls begun and ended
    _Atomic uint32_t outer_moves; // of those, not from within another plugin's call
    _Atomic int64_t replica; // -1: none
    const char *next_about;
    uint32_t reasons;
    bool listed;
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

// Called for a thread that ends within a call; NULL: nothing is.
extern _Atomic(void (*)(int64_t replica)) ls_inside_lost_thread;

#endif
