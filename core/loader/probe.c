// SPDX-License-Identifier: Apache-2.0
// First contact with a plugin, in a child process: its constructors, its entry, the reading of its
// tables, its probe. A plugin that crashes, exits or hangs in one of these harms nobody else.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // dladdr1
#endif
#include "core/loader/internal.h"

#include "core/base/child.h"
#include "core/base/inside.h"
#include "core/base/log.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

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

// Signals do what they do by default: the program's handlers are not for this process.
static void reset_signals(void)
{
    for (int number = 1; number < 32; number++)
        signal(number, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
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

static void run_child(void *path, void *shared)
{
    struct report *report = shared;
    const struct ls_plugin *plugin = NULL;
    reset_signals();
    if (ls_module_load(path, &report->stage, &plugin, &report->result.reason)) {
        copy_text(report->result.version, sizeof(report->result.version), plugin->version);
        copy_text(report->result.summary, sizeof(report->result.summary), plugin->summary);
        call_probe(plugin, report);
    }
    report->stage = STAGE_DONE;
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

static void judge(const struct report *report, const struct ls_child_end *end, uint64_t deadline_ns,
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
    if (end->result == LS_CHILD_HUNG)
        ls_refuse(&out->reason, "hung %s (no answer within %.3g s)", where,
                  (double)deadline_ns * 1e-9);
    else if (end->result == LS_CHILD_CRASHED)
        ls_refuse(&out->reason, "crashed %s (signal %d)", where, end->signal);
    else
        ls_refuse(&out->reason, "exited %s; a plugin must never end the program", where);
}

enum ls_status ls_probe_file(const char *path, uint64_t deadline_ns, struct ls_probe_result *out)
{
    struct report *report = ls_child_memory_create(sizeof(*report));
    if (!report) {
        ls_error(SCOPE, "%s: out of memory", path);
        return LS_OUT_OF_MEMORY;
    }
    const struct ls_child_work work = {.scope = SCOPE,
                                       .run = run_child,
                                       .argument = (void *)(uintptr_t)path,
                                       .shared = report,
                                       .deadline_ns = deadline_ns};
    struct ls_child_end end;
    report->result.outcome = LS_PROBE_REFUSED;
    const enum ls_status status = ls_child_run(&work, &end);
    if (!status)
        judge(report, &end, deadline_ns, out);
    ls_child_memory_destroy(report, sizeof(*report));
    return status;
}
