// SPDX-License-Identifier: Apache-2.0
// The threads of a Lockstep process, described once:
// - the main thread opens, prepares, reports and closes;
// - one replica thread per replica runs steps, and drives communication between kernels of devices that
//   compute on the calling thread;
// - one input thread per dataset stream gathers batches ahead;
// - a device may have a pool of its own (OpenMP for `cpu`) that belongs to the replica thread.
// Thread tags in headers ([main thread], [replica thread], [any thread]) mean these.
#ifndef LS_BASE_THREADS_H
#define LS_BASE_THREADS_H

#include "core/base/status.h"

#include <pthread.h>
#include <stdint.h>

// A condition whose timed waits go by CLOCK_MONOTONIC: setting the clock of the machine neither
// shortens nor lengthens them. Cannot fail.
void ls_condition_init(pthread_cond_t *condition);
// Waits for `condition` for at most `nanoseconds`; may wake early. `lock` is held.
void ls_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t nanoseconds);

// Starts a thread with a name of at most 15 letters. It blocks all signals except those of faults,
// and treats denormal numbers as zero (x86-64 and AArch64), as do the threads that it starts. Join
// it with pthread_join.
// The new thread works for the caller of this one (core/base/caller.h), and has begun when the call
// returns.
LS_STATUS ls_thread_start(pthread_t *out, const char *name, void *(*run)(void *), void *argument);
// Around a fork: no thread of Lockstep begins in between.
void ls_thread_hold_starts(void);
void ls_thread_allow_starts(void);

// Cores that this process may use: by its affinity mask, and by the quota of its control group.
uint32_t ls_core_count(void);

// Pins the calling thread, that of `rank`, one of `world`, to a core: each rank on a host takes another one,
// whatever process it is in. `hosts` has the number of each rank's host; NULL: all are on one. Has
// no effect where a host has more ranks than this process may use cores, or the system refuses.
void ls_thread_pin_rank(const uint32_t *hosts, uint32_t world, uint32_t rank);

// The calling thread computes when others do not: it has the lowest priority from here on (Linux gives
// each thread its own).
void ls_thread_step_back(void);

// Peak resident memory of this process.
uint64_t ls_peak_rss_bytes(void);

#endif
