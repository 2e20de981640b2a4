// SPDX-License-Identifier: Apache-2.0
// Threads and cores of Linux.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // pthread_setname_np, sched_getaffinity
#endif
#include "core/base/threads.h"

#include "core/base/caller.h"
#include "core/base/cpu_quota.h"
#include "core/base/log.h"
#include "core/base/plain_locale.h"
#include "core/base/trace.h"
#include "core/plugin/waiting.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define LONGEST_BEGIN_NS UINT64_C(250000000) // between two looks whether a thread has begun

// ---- Denormals ----
// Numbers below the smallest normal one count as zero in threads of ours. To a parameter they do nothing (unless Adam's
// epsilon is itself as small as they are), but its averages run through them wherever a gradient stays zero, and
// Intel's processors take some 150 cycles for each. Other threads keep their setting: an application that calls the
// library may want its denormals.

#if defined(__x86_64__)
typedef unsigned int float_mode;
static float_mode read_float_mode(void)
{
    return __builtin_ia32_stmxcsr();
}
static void write_float_mode(float_mode mode)
{
    __builtin_ia32_ldmxcsr(mode);
}
enum { FLUSH_DENORMALS = 1 << 15 | 1 << 6 }; // of results, of operands
#elif defined(__aarch64__)
typedef uint64_t float_mode;
static float_mode read_float_mode(void)
{
    float_mode mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
static void write_float_mode(float_mode mode)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
}
enum { FLUSH_DENORMALS = 1 << 24 };
#else
typedef int float_mode;
static float_mode read_float_mode(void)
{
    return 0;
}
static void write_float_mode(float_mode mode)
{
    (void)mode;
}
enum { FLUSH_DENORMALS = 0 };
#endif

// What a new thread is given. It is on the stack of the thread that starts it, which waits until it was read.
struct started {
    void *(*run)(void *);
    void *argument;
    struct ls_trace_track *track; // NULL: it is not recorded
    struct ls_caller *caller;
    _Atomic uint32_t begun; // waited on
};

static void *run_started(void *argument)
{
    struct started *given = argument;
    const struct started started = {
        .run = given->run, .argument = given->argument, .track = given->track};
    ls_caller_adopt(given->caller);
    (void)ls_locale_enter_plain();
    if (started.track)
        ls_trace_attach(started.track);
    atomic_store(&given->begun, 1);
    ls_wake_word((const uint32_t *)&given->begun);
    void *result = started.run(started.argument);
    if (started.track)
        ls_trace_detach(started.track);
    return result;
}

// ---- Starting ----
// A thread that begins holds locks of libc and of sanitizers: a child process that is forked in that moment finds them
// held for ever. So no process is forked while a thread begins, and a thread has begun when ls_thread_start returns.

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;

void ls_thread_hold_starts(void)
{
    pthread_mutex_lock(&start_lock);
}

void ls_thread_allow_starts(void)
{
    pthread_mutex_unlock(&start_lock);
}

// The new thread inherits the mask of signals and the mode of floating-point numbers (POSIX, pthread_create).
static int create_thread(pthread_t *out, void *(*run)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    // A fault is the thread's own: blocked, it would end the process without a word.
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const float_mode mode = read_float_mode();
    write_float_mode(mode | FLUSH_DENORMALS);
    const int error = pthread_create(out, NULL, run, argument);
    write_float_mode(mode);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

enum ls_status ls_thread_start(pthread_t *out, const char *name, void *(*run)(void *),
                               void *argument)
{
    struct started started = {.run = run,
                              .argument = argument,
                              .track = ls_trace_on() ? ls_trace_fork(name) : NULL,
                              .caller = ls_caller_share()};
    pthread_t thread;
    ls_thread_hold_starts();
    const int error = create_thread(&thread, run_started, &started);
    while (!error && !atomic_load(&started.begun))
        ls_wait_word((const uint32_t *)&started.begun, 0, LONGEST_BEGIN_NS);
    ls_thread_allow_starts();
    if (error) {
        if (started.track)
            ls_trace_detach(started.track);
        ls_caller_release(started.caller);
        ls_error("threads",
                 "cannot start thread %s: %s; use fewer of them: --replicas, --threads, servers=",
                 name, strerror(error));
        return LS_FAILED;
    }
    char short_name[16];
    snprintf(short_name, sizeof(short_name), "%s", name);
    pthread_setname_np(thread, short_name);
    *out = thread;
    return LS_OK;
}

static void pin_among(const cpu_set_t *set, int cores, size_t bytes, uint32_t number)
{
    cpu_set_t *one = CPU_ALLOC(cores);
    const int count = CPU_COUNT_S(bytes, set);
    if (!one || count < 1) {
        CPU_FREE(one);
        return;
    }
    int left = (int)(number % (uint32_t)count), core = 0;
    while (!CPU_ISSET_S(core, bytes, set) || left-- > 0)
        core++;
    CPU_ZERO_S(bytes, one);
    CPU_SET_S(core, bytes, one);
    (void)pthread_setaffinity_np(pthread_self(), bytes, one);
    CPU_FREE(one);
}

// Pins the calling thread to the `number`-th of the cores that the process may use, modulo their count;
// has no effect where the system refuses.
static void pin(uint32_t number)
{
    for (int cores = 1024; cores <= 1 << 20; cores *= 4) {
        cpu_set_t *set = CPU_ALLOC(cores);
        if (!set)
            return;
        const size_t bytes = CPU_ALLOC_SIZE(cores);
        const bool known = sched_getaffinity(0, bytes, set) == 0;
        if (known)
            pin_among(set, cores, bytes, number);
        CPU_FREE(set);
        if (known)
            return;
    }
}

void ls_thread_pin_rank(const uint32_t *hosts, uint32_t world, uint32_t rank)
{
    uint32_t before = 0, count = 0;
    for (uint32_t i = 0; i < world; i++) {
        const bool here = !hosts || hosts[i] == hosts[rank];
        count += here;
        before += here && i < rank;
    }
    if (count <= ls_core_count())
        pin(before);
}

// The kernel refuses a mask that is smaller than its own, so larger ones are tried.
static uint32_t count_allowed(void)
{
    for (int cores = 1024; cores <= 1 << 20; cores *= 4) {
        cpu_set_t *set = CPU_ALLOC(cores);
        if (!set)
            break;
        const size_t bytes = CPU_ALLOC_SIZE(cores);
        const int count = sched_getaffinity(0, bytes, set) ? 0 : CPU_COUNT_S(bytes, set);
        CPU_FREE(set);
        if (count > 0)
            return (uint32_t)count;
    }
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint32_t)online : 1;
}

uint32_t ls_core_count(void)
{
    const uint32_t allowed = count_allowed(), quota = ls_cpu_quota("");
    return quota && quota < allowed ? quota : allowed;
}

void ls_thread_step_back(void)
{
    (void)!setpriority(PRIO_PROCESS, 0, 19); // 0: the calling thread; refused: it competes
}

// VmHWM and not getrusage(): that one also counts what the process was before exec.
uint64_t ls_peak_rss_bytes(void)
{
    unsigned long long kibibytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    while (file && !kibibytes && fgets(line, sizeof(line), file))
        if (sscanf(line, "VmHWM: %llu", &kibibytes) != 1)
            kibibytes = 0;
    if (file)
        fclose(file);
    if (kibibytes)
        return (uint64_t)kibibytes * 1024;
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) ? 0 : (uint64_t)usage.ru_maxrss * 1024;
}

void ls_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

void ls_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t nanoseconds)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += (time_t)(nanoseconds / 1000000000);
    end.tv_nsec += (long)(nanoseconds % 1000000000);
    if (end.tv_nsec >= 1000000000) {
        end.tv_nsec -= 1000000000;
        end.tv_sec++;
    }
    pthread_cond_timedwait(condition, lock, &end);
}
