// SPDX-License-Identifier: Apache-2.0
// How a thread waits until another one has changed something, on Linux. It first spins, because a
// thread on a core of its own is soon done; then it yields, because the other thread may need this
// very core; then it sleeps. The functions are inline, because plugins link nothing; the core uses
// the same ones.
#ifndef LS_PLUGIN_WAITING_H
#define LS_PLUGIN_WAITING_H

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#else
long syscall(long number, ...); // unistd.h hides it from programs that ask for POSIX alone
#endif

// ---- Spinning and yielding ----

#define LS_SPINS_OWN_CORE 4000 // about 100 us, for threads that can have a core each
#define LS_SPINS_SHARED_CORE 20 // for threads that share cores

// How often each of `threads` threads should spin on `cores` cores.
static inline uint32_t ls_spins(uint32_t threads, uint32_t cores)
{
    return threads <= cores ? LS_SPINS_OWN_CORE : LS_SPINS_SHARED_CORE;
}

// 1: each rank of this host can have a core of its own; 0: it cannot, or the system does not say.
// If the process may use only some of the cores, only its own ranks count, because other processes
// are usually bound to the other cores.
static inline uint32_t ls_ranks_have_cores(uint32_t own_ranks, uint32_t ranks_of_host)
{
    unsigned long mask[1024] = {0};
    const long bytes = syscall(SYS_sched_getaffinity, 0, sizeof(mask), mask);
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    long allowed = 0;
    for (size_t i = 0; bytes > 0 && i < sizeof(mask) / sizeof(*mask); i++)
        allowed += __builtin_popcountl(mask[i]);
    return online > 0 && (allowed < online ? own_ranks : ranks_of_host) <= (uint32_t)allowed;
}

// Tells the processor that a loop only waits.
static inline void ls_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Pauses between two polls; `turn` counts the polls from 0. The first `spins` pauses spin, the next
// `yields` ones yield. 0: it did not pause, because the thread has polled often enough and should
// sleep.
static inline uint32_t ls_pause(uint32_t turn, uint32_t spins, uint32_t yields)
{
    if (turn < spins)
        ls_relax();
    else if (turn - spins < yields)
        sched_yield();
    else
        return 0;
    return 1;
}

// ---- Sleeping ----

// For the two functions below.
static inline void ls_futex_wait(int operation, const void *word, uint32_t seen,
                                 uint64_t timeout_ns)
{
    const uint64_t second = UINT64_C(1000000000), longest = UINT64_C(1) << 60;
    struct timespec timeout;
    if (__atomic_load_n((const uint32_t *)word, __ATOMIC_ACQUIRE) != seen)
        return;
    if (timeout_ns > longest)
        timeout_ns = longest;
    timeout.tv_sec = (time_t)(timeout_ns / second);
    timeout.tv_nsec = (long)(timeout_ns % second);
    syscall(SYS_futex, word, operation, seen, &timeout, NULL, 0);
}

// Returns when the 32 bits at `word` are not `seen`, when the thread is woken, or after
// `timeout_ns`; may return early.
static inline void ls_wait_word(const void *word, uint32_t seen, uint64_t timeout_ns)
{
    ls_futex_wait(FUTEX_WAIT_PRIVATE, word, seen, timeout_ns);
}

// Wakes all threads that wait at the word. The caller has changed it.
static inline void ls_wake_word(const void *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

// As ls_wait_word(), for memory that several processes map.
static inline void ls_wait_shared_word(const void *word, uint32_t seen, uint64_t timeout_ns)
{
    ls_futex_wait(FUTEX_WAIT, word, seen, timeout_ns);
}

// As ls_wake_word(), for memory that several processes map.
static inline void ls_wake_shared_word(const void *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

#ifdef __cplusplus
}
#endif

#endif
