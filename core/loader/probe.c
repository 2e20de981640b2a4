// SPDX-License-Identifier: Apache-2.0
// First contact with a plugin, in a child process: its constructors, its entry, the reading of its
// tables, its probe. A plugin that crashes, exits or hangs in one of these harms nobody else.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // dladdr1, MAP_ANONYMOUS
#endif
#include "core/loader/internal.h"

#include "core/base/clock.h"
#include "core/base/inside.h"
#include "core/base/log.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SCOPE "plugins"

enum stage { STAGE_START, STAGE_LOAD, STAGE_ENTRY, STAGE_TABLES, STAGE_PROBE, STAGE_DONE };

// Memory that child and parent share.
struct report {
    volatile uint32_t stage;
    struct ls_probe_result result;
};

// ---- Opening, in either process ----

// dlsym() also looks into the libraries that the plugin is linked with; theirs does not count.
static bool is_of_module(void *handle, ls_plugin_entry entry)
{
    void *address;
    memcpy(&address, &entry, sizeof(address));
    struct link_map *module = NULL, *owner = NULL;
    Dl_info info;
    return !dlinfo(handle, RTLD_DI_LINKMAP, &module) &&
           dladdr1(address, &info, (void **)&owner, RTLD_DL_LINKMAP) && owner == module;
}

// What dlerror() says, without the path that it often begins with.
static const char *loading_error(const char *path)
{
    const char *error = dlerror();
    const size_t length = strlen(path);
    if (!error)
        return "no reason given";
    return strncmp(error, path, length) || strncmp(error + length, ": ", 2) ? error
                                                                            : error + length + 2;
}

bool ls_module_load(const char *path, volatile uint32_t *stage, const struct ls_plugin **out,
                    struct ls_reason *reason)
{
    // The note of a call outlives it: what crashes later is said to have happened after it.
    static char noted[PATH_MAX];
    uint32_t nobody;
    snprintf(noted, sizeof(noted), "%s", path);
    if (!stage)
        stage = &nobody;
    *stage = STAGE_LOAD;
    struct ls_inside_call before = ls_inside_enter(noted, "(its constructors)");
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ls_inside_leave(before);
    if (!handle)
        return ls_refuse(reason, "cannot be loaded: %s", loading_error(path));
    ls_plugin_entry entry = NULL;
    void *address = dlsym(handle, LS_PLUGIN_ENTRY);
    memcpy(&entry, &address, sizeof(entry));
    if (!entry || !is_of_module(handle, entry))
        return ls_refuse(reason,
                         "is not a Lockstep plugin: it does not export " LS_PLUGIN_ENTRY "()");
    *stage = STAGE_ENTRY;
    before = ls_inside_enter(noted, LS_PLUGIN_ENTRY);
    const struct ls_plugin *plugin = entry();
    ls_inside_leave(before);
    *stage = STAGE_TABLES;
    if (!ls_tables_check(plugin, path, reason))
        return false;
    *out = plugin;
    return true;
}

// ---- The child ----

static void leave(void)
{
    _exit(EXIT_FAILURE);
}

// Makes the child harmless: signals do what they do by default (the program's handlers are not for it),
// it prints nothing, leaves no core, ends with its parent, and exit() does not flush the parent's files
// a second time: what was registered last runs first.
static void prepare_child(void)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int number = 1; number < 32; number++)
        signal(number, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    const int nowhere = open("/dev/null", O_RDWR);
    for (int fd = 0; nowhere >= 0 && fd <= 2; fd++)
        dup2(nowhere, fd);
    atexit(leave);
}

static void copy_text(char *to, size_t bytes, const char *from)
{
    snprintf(to, bytes, "%s", from);
}

static void call_probe(const struct ls_plugin *plugin, struct report *report)
{
    char text[sizeof(report->result.reason.text)] = "";
    report->stage = STAGE_PROBE;
    const int32_t status = plugin->probe ? plugin->probe(text, sizeof(text)) : LS_OK;
    text[sizeof(text) - 1] = '\0';
    report->result.outcome = status ? LS_PROBE_UNAVAILABLE : LS_PROBE_AVAILABLE;
    if (status)
        copy_text(report->result.reason.text, sizeof(text), *text ? text : "it does not say why");
}

static void run_child(const char *path, struct report *report)
{
    prepare_child();
    const struct ls_plugin *plugin = NULL;
    if (ls_module_load(path, &report->stage, &plugin, &report->result.reason)) {
        copy_text(report->result.version, sizeof(report->result.version), plugin->version);
        copy_text(report->result.summary, sizeof(report->result.summary), plugin->summary);
        call_probe(plugin, report);
    }
    report->stage = STAGE_DONE;
    _exit(EXIT_SUCCESS);
}

// ---- The parent ----

static const char *stage_text(uint32_t stage)
{
    switch (stage) {
    case STAGE_START: return "before it was loaded";
    case STAGE_LOAD: return "while it was loaded";
    case STAGE_ENTRY: return "in " LS_PLUGIN_ENTRY "()";
    case STAGE_TABLES: return "while its tables were read";
    default: return "in probe";
    }
}

// Waits until the child has ended: then nobody holds the other end of the pipe. A child of the child may
// still hold it, so that is not the only sign. False: the deadline passed, and it was killed. It is not
// reaped here, so that its number means it, and its process group, until both are ended.
static bool wait_for_child(pid_t child, int pipe_end, uint64_t deadline_ns)
{
    const uint64_t end = ls_clock_ns() + deadline_ns;
    for (;;) {
        struct pollfd closed = {.fd = pipe_end, .events = POLLIN};
        const uint64_t now = ls_clock_ns();
        const uint64_t left_ms = now < end ? (end - now) / 1000000 + 1 : 0;
        const int ready = poll(&closed, 1, left_ms < 50 ? (int)left_ms : 50);
        siginfo_t info = {.si_pid = 0};
        if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT)) {
            if (errno != EINTR)
                return true; // the program reaps its children elsewhere
        } else if (info.si_pid == child || !left_ms) {
            kill(-child, SIGKILL); // also what it started
            kill(child, SIGKILL);
            return info.si_pid == child;
        }
        if (ready > 0) { // its files are closed: it is about to end
            const struct timespec moment = {.tv_nsec = 50000};
            nanosleep(&moment, NULL);
        }
    }
}

// How the child ended; -1: that was told to somebody else.
static int reap_child(pid_t child)
{
    int status = -1;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return status;
}

static void judge(const struct report *report, bool ended, int status, uint64_t deadline_ns,
                  struct ls_probe_result *out)
{
    *out = report->result;
    out->reason.text[sizeof(out->reason.text) - 1] = '\0';
    out->version[sizeof(out->version) - 1] = '\0';
    out->summary[sizeof(out->summary) - 1] = '\0';
    if (report->stage == STAGE_DONE)
        return;
    const char *where = stage_text(report->stage);
    out->outcome = LS_PROBE_REFUSED;
    if (!ended)
        ls_refuse(&out->reason, "hung %s (no answer within %.3g s)", where,
                  (double)deadline_ns * 1e-9);
    else if (status >= 0 && WIFSIGNALED(status))
        ls_refuse(&out->reason, "crashed %s (signal %d)", where, WTERMSIG(status));
    else
        ls_refuse(&out->reason, "exited %s; a plugin must never end the program", where);
}

static enum ls_status no_child(const char *path)
{
    ls_error(SCOPE, "%s: cannot be probed in a child process: %s", path, strerror(errno));
    return LS_FAILED;
}

// `report` is in shared memory and zero, `ends` an open pipe.
static enum ls_status probe_in_child(const char *path, uint64_t deadline_ns, struct report *report,
                                     int ends[2], struct ls_probe_result *out)
{
    const pid_t child = fork();
    if (child < 0)
        return no_child(path);
    if (!child) {
        close(ends[0]);
        run_child(path, report);
    }
    close(ends[1]);
    ends[1] = -1;
    const bool ended = wait_for_child(child, ends[0], deadline_ns);
    const int status = reap_child(child);
    judge(report, ended, status, deadline_ns, out);
    return LS_OK;
}

enum ls_status ls_probe_file(const char *path, uint64_t deadline_ns, struct ls_probe_result *out)
{
    struct report *report =
        mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (report == MAP_FAILED)
        return no_child(path);
    report->result.outcome = LS_PROBE_REFUSED;
    int ends[2] = {-1, -1};
    enum ls_status status;
    if (pipe2(ends, O_CLOEXEC))
        status = no_child(path);
    else
        status = probe_in_child(path, deadline_ns, report, ends, out);
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0)
            close(ends[i]);
    munmap(report, sizeof(*report));
    return status;
}
