// SPDX-License-Identifier: Apache-2.0
// Detects plugin calls that do not return: while nothing else makes progress, or after a time that
// is said for a call. One thread of the process looks at both.
#ifndef LS_BASE_WATCHDOG_H
#define LS_BASE_WATCHDOG_H

#include "core/base/inside.h"
#include "core/base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

// ---- Replicas ----

#define LS_NO_REPLICA UINT32_MAX // the thread that called ls_watchdog_start

// Every wait for a peer has a deadline of its own, but if all replicas hang, or the thread that
// prepares a run hangs, no thread waits for a peer. So the watchdog periodically checks the
// replicas of this caller (core/base/caller.h) and the calling thread; the replicas of other
// callers are watched apart from them. If one of them is in a plugin, and none has entered or left
// a plugin for `deadline_ns`, it logs plugin, call and operation, and calls `stuck` with the rank
// of the replica, once. A long call does not count as a hang while another replica makes progress,
// and neither does waiting for data. A call that compiles (core/base/compiling.h) may take longer,
// and is said to, once. Starts and stops are counted; the longest deadline applies.
LS_STATUS ls_watchdog_start(uint64_t deadline_ns, void (*stuck)(uint32_t rank));
void ls_watchdog_stop(void);

// ---- Calls of build_schedule ----

// What is expected of the calls that describe a collective: each returns within the deadline. A
// call that neither returns nor calls the host cannot be ended, and nothing that it uses can be
// freed. Therefore the watchdog logs the call and ends the process. In the caller's memory, zeroed
// but for the first part.
struct ls_expectation {
    const char *scope, *name; // of the message, of the collective
    uint32_t world;
    uint64_t deadline_ns; // of each call
    enum ls_status status; // that the process ends with, as an exit code

    // Optional: called about once a second, for messages of progress. [the watchdog's thread]
    void (*tick)(void *context);
    void *context;

    bool started;
    _Atomic bool entered;
    _Atomic uint64_t began_ns; // the call under way; 0: none
    _Atomic uint32_t rank; // of this call
    _Atomic uint64_t next_tick_ns;
    struct ls_expectation *next;
};

// The watchdog's thread runs from start to stop, and sleeps while nobody has entered. LS_FAILED,
// logged, without one. Stopping takes one that was not started.
LS_STATUS ls_expectation_start(struct ls_expectation *expectation);
void ls_expectation_stop(struct ls_expectation *expectation);

// From enter to leave the calls of this thread are expected to return, if the expectation was
// started. One thread at a time.
void ls_expectation_enter(struct ls_expectation *expectation);
void ls_expectation_leave(struct ls_expectation *expectation);

// Around one call of build_schedule for `rank`, on the thread that has entered, or on another one,
// where nothing is expected. A call may be within another one (of `auto`), and may be left by
// longjmp. What ls_watchdog_expect returns is given to ls_watchdog_returned. [any thread]
struct ls_expected {
    struct ls_inside_call inside; // where the thread was
    struct ls_expectation *expectation; // NULL: nothing is expected
    uint64_t began_ns; // of the outer call
    uint32_t rank;
};
struct ls_expected ls_watchdog_expect(uint32_t rank);
void ls_watchdog_returned(const struct ls_expected *call);

#endif
