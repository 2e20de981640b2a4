// SPDX-License-Identifier: Apache-2.0
// What a plugin does instead of what it should, for tests. The option `fault` names a call and a deed: "launch-hang". Each
// hostile plugin is a real one whose calls first ask hostile_call() whether they are the one.
#ifndef TESTS_PLUGINS_HOSTILE_H
#define TESTS_PLUGINS_HOSTILE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "core/plugin/plugin.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HOSTILE_OPTIONS                                                       \
    {                                                                         \
        {"fault", "text", "none", "the call, '-', and what it does instead"}, \
        {                                                                     \
            NULL, NULL, NULL, NULL                                            \
        }                                                                     \
    }

static const struct ls_host *_Atomic hostile_host;

// Whether this fault was asked for.
static inline int hostile_is(const char *fault)
{
    const struct ls_host *host = atomic_load(&hostile_host);
    const char *wanted = host ? host->option(host, "fault") : NULL;
    return wanted && strcmp(wanted, fault) == 0;
}

static inline void *hostile_crash(void *unused)
{
    volatile int *volatile nowhere = NULL;
    *nowhere = 1;
    return unused;
}

static inline int hostile_overflow(int depth) // more than any stack
{
    volatile char room[4096];
    room[0] = (char)depth;
    return depth < 1000000 ? hostile_overflow(depth + 1) + room[0] : 0;
}

static inline int hostile_first(void) // the first thread that asks
{
    static atomic_flag asked = ATOMIC_FLAG_INIT;
    return !atomic_flag_test_and_set(&asked);
}

// As libraries do that run a program: LS_OK when the child ends with the code that it says.
static inline int32_t hostile_child(void)
{
    int status = 0;
    const pid_t child = fork();
    if (child == 0)
        _exit(7);
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
                   WEXITSTATUS(status) == 7
               ? LS_OK
               : LS_FAILED;
}

// Does the deed, which may not return; else the status that the call answers at once, LS_OK: it goes on.
static inline int32_t hostile_deed(const char *deed)
{
    pthread_t other;
    static const struct {
        const char *deed;
        int32_t status;
    } answers[] = {{"silent", LS_FAILED},       {"unknown", -7},
                   {"huge", 123456789},         {"aborted", LS_ABORTED},
                   {"again", LS_AGAIN},         {"interrupted", LS_INTERRUPTED},
                   {"lost", LS_PEER_LOST},      {"unsupported", LS_UNSUPPORTED},
                   {"memory", LS_OUT_OF_MEMORY}};
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
        if (strcmp(deed, answers[i].deed) == 0)
            return answers[i].status;
    if (strcmp(deed, "crash") == 0)
        hostile_crash(NULL);
    if (strcmp(deed, "abort") == 0)
        abort();
    if (strcmp(deed, "bus") == 0)
        raise(SIGBUS);
    if (strcmp(deed, "divide") == 0)
        raise(SIGFPE);
    if (strcmp(deed, "illegal") == 0)
        raise(SIGILL);
    if (strcmp(deed, "overflow") == 0)
        (void)hostile_overflow(0);
    if (strcmp(deed, "thread") == 0 && pthread_create(&other, NULL, hostile_crash, NULL) == 0)
        pthread_join(other, NULL);
    if (strcmp(deed, "exit") == 0)
        exit(0);
    if (strcmp(deed, "leave") == 0)
        _exit(0);
    if (strcmp(deed, "quick") == 0)
        quick_exit(0);
    if (strcmp(deed, "end") == 0)
        pthread_exit(NULL);
    if (strcmp(deed, "child") == 0)
        return hostile_child();
    if (strcmp(deed, "slow") == 0)
        (void)nanosleep(&(const struct timespec){.tv_nsec = 60000000}, NULL);
    while (strcmp(deed, "hang") == 0 || (strcmp(deed, "first") == 0 && hostile_first()))
        pause();
    while (strcmp(deed, "spin") == 0)
        atomic_signal_fence(memory_order_seq_cst);
    return LS_OK;
}

static inline int32_t hostile_call(const char *call)
{
    const struct ls_host *host = atomic_load(&hostile_host);
    const char *fault = host ? host->option(host, "fault") : NULL;
    const size_t length = strlen(call);
    if (!fault || strncmp(fault, call, length) != 0 || fault[length] != '-')
        return LS_OK;
    return hostile_deed(fault + length + 1);
}

// What happens before any option is known, by a variable of the environment: "entry-exit". Only in the process that wants
// to work with the plugin, not in the child in which the loader tries it: that one ends with its parent.
static inline void hostile_early(const char *call)
{
    const char *fault = getenv("LOCKSTEP_HOSTILE");
    const size_t length = strlen(call);
    int parent_signal = 0;
    prctl(PR_GET_PDEATHSIG, &parent_signal);
    if (!fault || parent_signal || strncmp(fault, call, length) != 0 || fault[length] != '-')
        return;
    (void)hostile_deed(fault + length + 1);
}

__attribute__((constructor)) static inline void hostile_constructor(void)
{
    hostile_early("constructor");
}

__attribute__((destructor)) static inline void hostile_destructor(void)
{
    hostile_early("destructor");
}

#endif
