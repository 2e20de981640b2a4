// SPDX-License-Identifier: Apache-2.0
// On whose behalf a thread works: a thread of the program, and all threads that Lockstep starts for
// it, have one caller. Several threads of a program may train at the same time, and what one of
// them is told (its last error, whether a reason was given, which replica hangs) must not be
// another's. [any thread]
#ifndef LS_BASE_CALLER_H
#define LS_BASE_CALLER_H

#include "core/attributes.h"

#include <stddef.h>
#include <stdint.h>

struct ls_caller;

// That of the calling thread, which begins one of its own unless it was started with one. Never
// NULL: where memory is short, threads share one. It lasts as long as a thread works for it.
struct ls_caller *ls_caller_mine(void);

// For a thread that is about to be started: the caller of the calling thread, with one more user.
// The new thread adopts it; where it cannot be started, it is released.
struct ls_caller *ls_caller_share(void);
void ls_caller_adopt(struct ls_caller *caller);
void ls_caller_release(struct ls_caller *caller);

// Errors that were written on its behalf (core/base/log.h).
void ls_caller_note_error(const char *line); // NULL: one without a line of this process
uint64_t ls_caller_errors(void);
// Copies the last line; where the caller has none, the last of the process; "" before the first.
void ls_caller_last_error(char *text, size_t bytes);

// Counts a reason, logged or about to be logged, why a call on this thread fails; ls_error does
// this. A plugin that fails without increasing the count has given no reason.
void ls_caller_note_reason(void);
uint32_t ls_caller_reasons(void); // of all threads of this caller

extern _Thread_local LS_INITIAL_EXEC uint32_t ls_thread_reason_count;

static inline uint32_t ls_thread_reasons(void) // of this thread
{
    return ls_thread_reason_count;
}

// Before and after a fork: the child must not find the lock taken by a thread that it does not
// have.
void ls_caller_lock(void);
void ls_caller_unlock(void);

#endif
