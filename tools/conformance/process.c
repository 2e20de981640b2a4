// SPDX-License-Identifier: Apache-2.0
// Reads signal handlers, environment, floating-point mode and the like of this process, and compares them.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // environ
#endif
#include "tools/conformance/process.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// Control bits only: which exceptions have happened is nobody's promise.
static uint64_t floating_point_mode(void)
{
#if defined(__x86_64__)
    uint32_t vector;
    uint16_t stack;
    __asm__ volatile("stmxcsr %0" : "=m"(vector));
    __asm__ volatile("fnstcw %0" : "=m"(stack));
    return (uint64_t)(vector & 0xffc0) << 16 | stack;
#elif defined(__aarch64__)
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control;
#else
    return 0;
#endif
}

static uint32_t count_entries(const char *folder)
{
    uint32_t count = 0;
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        count += entry->d_name[0] != '.';
    if (directory)
        closedir(directory);
    return count;
}

static mode_t current_umask(void)
{
    const mode_t mask = umask(0);
    umask(mask);
    return mask;
}

static char **copy_environment(void)
{
    size_t count = 0;
    while (environ && environ[count])
        count++;
    char **copy = calloc(count + 1, sizeof(*copy));
    for (size_t i = 0; copy && i < count; i++) {
        copy[i] = strdup(environ[i]);
        if (copy[i])
            continue;
        while (i) // what is missing would be held against the plugin
            free(copy[--i]);
        free(copy);
        return NULL;
    }
    return copy;
}

enum ls_status ls_process_state_init(struct ls_process_state *state)
{
    struct stat here = {0};
    memset(state, 0, sizeof(*state));
    for (int number = 1; number < LS_PROCESS_SIGNAL_COUNT; number++)
        sigaction(number, NULL, &state->actions[number]);
    sigprocmask(SIG_BLOCK, NULL, &state->mask);
    state->floating_point = floating_point_mode();
    if (!stat(".", &here)) {
        state->directory_device = here.st_dev;
        state->directory = here.st_ino;
    }
    state->umask = current_umask();
    for (int i = 0; i < (int)RLIM_NLIMITS; i++)
        getrlimit(i, &state->limits[i]);
    state->threads = count_entries("/proc/self/task");
    state->files = count_entries("/proc/self/fd");
    state->environment = copy_environment();
    return state->environment ? LS_OK : LS_OUT_OF_MEMORY;
}

void ls_process_state_finish(struct ls_process_state *state)
{
    for (size_t i = 0; state->environment && state->environment[i]; i++)
        free(state->environment[i]);
    free(state->environment);
    state->environment = NULL;
}

static bool say(char *text, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bool say(char *text, size_t bytes, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(text, bytes, format, list);
    va_end(list);
    return false;
}

static bool signals_hold(const struct ls_process_state *before, char *text, size_t bytes)
{
    for (int number = 1; number < LS_PROCESS_SIGNAL_COUNT; number++) {
        struct sigaction now = {0};
        if (sigaction(number, NULL, &now))
            continue;
        if (now.sa_handler != before->actions[number].sa_handler)
            return say(text, bytes, "changed the handler of signal %d (%s)", number,
                       strsignal(number));
    }
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    for (int number = 1; number < LS_PROCESS_SIGNAL_COUNT; number++)
        if (sigismember(&mask, number) != sigismember(&before->mask, number))
            return say(text, bytes, "changed whether signal %d (%s) is blocked", number,
                       strsignal(number));
    return true;
}

static bool has_entry(char *const *list, const char *entry)
{
    for (size_t i = 0; list && list[i]; i++)
        if (strcmp(list[i], entry) == 0)
            return true;
    return false;
}

static bool environment_holds(const struct ls_process_state *before, char *text, size_t bytes)
{
    for (size_t i = 0; environ && environ[i]; i++)
        if (!has_entry(before->environment, environ[i]))
            return say(text, bytes, "changed the environment variable %.*s",
                       (int)strcspn(environ[i], "="), environ[i]);
    for (size_t i = 0; before->environment[i]; i++)
        if (!has_entry(environ, before->environment[i]))
            return say(text, bytes, "removed the environment variable %.*s",
                       (int)strcspn(before->environment[i], "="), before->environment[i]);
    return true;
}

static bool directory_holds(const struct ls_process_state *before, char *text, size_t bytes)
{
    struct stat here = {0};
    if (stat(".", &here) || here.st_dev != before->directory_device ||
        here.st_ino != before->directory)
        return say(text, bytes, "changed the working directory");
    return true;
}

static bool limits_hold(const struct ls_process_state *before, char *text, size_t bytes)
{
    for (int i = 0; i < (int)RLIM_NLIMITS; i++) {
        struct rlimit now = {0};
        if (!getrlimit(i, &now) && (now.rlim_cur != before->limits[i].rlim_cur ||
                                    now.rlim_max != before->limits[i].rlim_max))
            return say(text, bytes, "changed resource limit %d (see getrlimit)", i);
    }
    return true;
}

static bool threads_hold(const struct ls_process_state *before, char *text, size_t bytes)
{
    const struct timespec moment = {.tv_nsec = 10000000};
    uint32_t now = count_entries("/proc/self/task");
    for (int i = 0; i < 100 && now > before->threads; i++) {
        nanosleep(&moment, NULL);
        now = count_entries("/proc/self/task");
    }
    if (now > before->threads)
        return say(text, bytes, "left %u threads behind", now - before->threads);
    return true;
}

static bool files_hold(const struct ls_process_state *before, char *text, size_t bytes)
{
    const uint32_t now = count_entries("/proc/self/fd");
    if (now > before->files)
        return say(text, bytes, "left %u files open", now - before->files);
    if (now < before->files)
        return say(text, bytes, "closed %u files that are not its own", before->files - now);
    return true;
}

bool ls_process_state_holds(const struct ls_process_state *before, uint32_t aspects, char *text,
                            size_t bytes)
{
    if (aspects & LS_PROCESS_SIGNALS && !signals_hold(before, text, bytes))
        return false;
    if (aspects & LS_PROCESS_ENVIRONMENT && !environment_holds(before, text, bytes))
        return false;
    if (aspects & LS_PROCESS_FLOATING_POINT && floating_point_mode() != before->floating_point)
        return say(text, bytes, "changed the floating-point mode (rounding, denormals or traps)");
    if (aspects & LS_PROCESS_DIRECTORY && !directory_holds(before, text, bytes))
        return false;
    if (aspects & LS_PROCESS_UMASK && current_umask() != before->umask)
        return say(text, bytes, "changed the umask to %03o", (unsigned)current_umask());
    if (aspects & LS_PROCESS_LIMITS && !limits_hold(before, text, bytes))
        return false;
    if (aspects & LS_PROCESS_THREADS && !threads_hold(before, text, bytes))
        return false;
    return !(aspects & LS_PROCESS_FILES) || files_hold(before, text, bytes);
}
