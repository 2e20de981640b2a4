// SPDX-License-Identifier: Apache-2.0
// Bounds the time that one call of a plugin's describe may take. A thread watches from beside: nothing else can end a
// describe that neither returns nor calls the host, and nothing that it uses can be freed, so the process ends.
#ifndef LS_COLLECTIVE_WATCH_H
#define LS_COLLECTIVE_WATCH_H

#include "core/base/status.h"

#include <pthread.h>
#include <stdatomic.h>
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
    struct ls_describe_watch *outer;
    _Atomic uint64_t began_ns; // the call under way; 0: none
    _Atomic uint32_t rank; // of it
    uint32_t over; // a word to wait on
};

// From begin to end all calls of ls_schedule_describe() on this thread are watched. Watches may be nested; the inner one
// counts. LS_FAILED, logged, without a thread.
LS_STATUS ls_describe_watch_begin(struct ls_describe_watch *watch);
void ls_describe_watch_end(struct ls_describe_watch *watch);

// Around one call, on the thread that began the watch; a call may be inside another (auto's). What note_begin returns is
// given to note_end. [any thread; nothing happens where nobody watches]
struct ls_describe_note {
    struct ls_describe_watch *watch;
    uint64_t began_ns;
    uint32_t rank;
};
struct ls_describe_note ls_describe_note_begin(uint32_t rank);
void ls_describe_note_end(const struct ls_describe_note *note);

#endif
