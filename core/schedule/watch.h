// SPDX-License-Identifier: Apache-2.0
// Bounds the time that one call of a plugin's build_schedule may take. A thread watches from beside: nothing else can end a
// call that neither returns nor calls the host, and nothing that it uses can be freed, so the process ends.
#ifndef LS_SCHEDULE_WATCH_H
#define LS_SCHEDULE_WATCH_H

#include "core/base/inside.h"
#include "core/base/status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

// In the caller's memory, zeroed but for the first part.
struct ls_describe_watch {
    const char *scope, *name; // of messages, of the collective
    uint32_t world;
    uint64_t deadline_ns; // of each call
    enum ls_status status; // that the process ends with, as an exit code

    // Optional: called about once a second, for messages of progress. [the watching thread]
    void (*tick)(void *context);
    void *context;

    pthread_t thread;
    bool started;
    _Atomic uint64_t began_ns; // the call under way; 0: none
    _Atomic uint32_t rank; // of it
    _Atomic bool entered, over;
    uint32_t changes; // of these two; a word to wait on
};

// The thread sleeps while nobody has entered. LS_FAILED, logged, without one. Stopping takes one
// that was not started.
LS_STATUS ls_describe_watch_start(struct ls_describe_watch *watch);
void ls_describe_watch_stop(struct ls_describe_watch *watch);

// From enter to leave what this thread lets a plugin describe is watched, if the watch was started.
// One thread at a time.
void ls_describe_watch_enter(struct ls_describe_watch *watch);
void ls_describe_watch_leave(struct ls_describe_watch *watch);

// Around one call of build_schedule, on the thread that entered the watch; a call may be inside another
// (auto's). What note_begin returns is given to note_end. [any thread]
struct ls_describe_note {
    struct ls_inside_call inside; // where the thread was: the call may be left by longjmp
    struct ls_describe_watch *watch; // NULL: nobody watches
    uint64_t began_ns;
    uint32_t rank;
};
struct ls_describe_note ls_describe_note_begin(uint32_t rank);
void ls_describe_note_end(const struct ls_describe_note *note);

#endif
