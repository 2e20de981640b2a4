// SPDX-License-Identifier: Apache-2.0
// Notes of threads: one record in each thread's own memory, in a list that is read when something
// goes wrong.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // MAP_ANONYMOUS, MAP_STACK
#endif
#include "core/base/inside_internal.h"

#include "core/attributes.h"
#include "core/base/caller.h"
#include "core/base/log.h"

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>

#define SIGNAL_STACK_BYTES (64 << 10)

pthread_mutex_t ls_inside_lock = PTHREAD_MUTEX_INITIALIZER;
struct ls_inside *_Atomic ls_inside_list;
_Atomic(void (*)(int64_t replica)) ls_inside_lost_thread;

_Thread_local LS_INITIAL_EXEC struct ls_inside ls_inside_own = {.replica = -1};

static pthread_key_t end_key;
static pthread_once_t end_once = PTHREAD_ONCE_INIT;
static atomic_bool has_end_key, wants_signal_stacks;

// ---- The list ----

static void give_back_signal_stack(struct ls_inside *record)
{
    const stack_t none = {.ss_flags = SS_DISABLE};
    if (!record->signal_stack)
        return;
    sigaltstack(&none, NULL);
    munmap(record->signal_stack, SIGNAL_STACK_BYTES);
}

// The thread ends, and its memory with it. One that ends within a plugin's call was ended by the
// plugin: whoever waits for the thread would wait for ever.
static void end_thread(void *argument)
{
    struct ls_inside *record = argument;
    pthread_mutex_lock(&ls_inside_lock);
    struct ls_inside *before = atomic_load(&ls_inside_list);
    if (before == record)
        atomic_store(&ls_inside_list, record->next);
    else
        for (; before; before = before->next)
            if (before->next == record)
                before->next = record->next;
    pthread_mutex_unlock(&ls_inside_lock);
    const struct ls_inside_call call = ls_inside_read(record);
    if (call.plugin) {
        char text[256];
        ls_error(NULL, "%s ended the thread that called it; a plugin must never do that",
                 ls_inside_text(&call, text, sizeof(text)));
        void (*lost)(int64_t) = atomic_load(&ls_inside_lost_thread);
        if (lost)
            lost(atomic_load(&record->replica));
    }
    give_back_signal_stack(record);
}

static void before_fork(void)
{
    pthread_mutex_lock(&ls_inside_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&ls_inside_lock);
}

// Of the parent's threads a forked child has one, and gives the memory of the others to new
// threads.
static void after_fork_in_child(void)
{
    ls_inside_own.next = NULL;
    atomic_store(&ls_inside_list, ls_inside_own.in_list ? &ls_inside_own : NULL);
    pthread_mutex_unlock(&ls_inside_lock);
}

static void make_end_key(void)
{
    atomic_store(&has_end_key, pthread_atfork(before_fork, after_fork, after_fork_in_child) == 0 &&
                                   pthread_key_create(&end_key, end_thread) == 0);
}

static void take_signal_stack(struct ls_inside *record)
{
    void *memory = mmap(NULL, SIGNAL_STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    const stack_t stack = {.ss_sp = memory, .ss_size = SIGNAL_STACK_BYTES};
    if (memory == MAP_FAILED)
        return;
    if (sigaltstack(&stack, NULL))
        munmap(memory, SIGNAL_STACK_BYTES);
    else
        record->signal_stack = memory;
}

// A thread whose end nobody would notice is not listed.
static void list_mine(void)
{
    pthread_once(&end_once, make_end_key);
    ls_inside_own.listed = true;
    ls_inside_own.caller = ls_caller_mine();
    if (!atomic_load(&has_end_key) || pthread_setspecific(end_key, &ls_inside_own))
        return;
    if (atomic_load(&wants_signal_stacks))
        take_signal_stack(&ls_inside_own);
    pthread_mutex_lock(&ls_inside_lock);
    ls_inside_own.in_list = true;
    ls_inside_own.next = atomic_load(&ls_inside_list);
    atomic_store(&ls_inside_list, &ls_inside_own);
    pthread_mutex_unlock(&ls_inside_lock);
}

struct ls_inside *ls_inside_mine(void)
{
    if (!ls_inside_own.listed)
        list_mine();
    return &ls_inside_own;
}

void ls_inside_use_signal_stacks(void)
{
    atomic_store(&wants_signal_stacks, true);
    (void)ls_inside_mine();
}

// ---- Writing ----

struct ls_inside_call ls_inside_enter(const char *plugin, const char *name)
{
    struct ls_inside *record = ls_inside_mine();
    const struct ls_inside_call before = ls_inside_now();
    const bool outermost = !before.plugin;
    ls_inside_set(&record->name, name);
    ls_inside_set(&record->about, record->next_about);
    ls_inside_set(&record->plugin, plugin);
    atomic_store_explicit(&record->site, NULL, memory_order_relaxed);
    record->next_about = NULL;
    ls_inside_count(&record->moves);
    if (outermost) {
        ls_inside_set(&record->outer_plugin, before.site ? before.site->plugin : plugin);
        ls_inside_set(&record->outer_name, before.site ? before.site->name : name);
        ls_inside_count(&record->outer_moves);
    }
    return before;
}

void ls_inside_leave(struct ls_inside_call before)
{
    struct ls_inside *record = &ls_inside_own;
    ls_inside_set(&record->last_plugin, ls_inside_get(&record->plugin));
    ls_inside_set(&record->last_name, ls_inside_get(&record->name));
    atomic_store_explicit(&record->last_site, NULL, memory_order_relaxed);
    ls_inside_set(&record->plugin, before.plugin);
    ls_inside_set(&record->name, before.name);
    ls_inside_set(&record->about, before.about);
    atomic_store_explicit(&record->site, before.site, memory_order_relaxed);
    ls_inside_count(&record->moves);
    if (!before.plugin)
        ls_inside_count(&record->outer_moves);
}

struct ls_inside_call ls_inside_now(void)
{
    return (struct ls_inside_call){
        .plugin = ls_inside_get(&ls_inside_own.plugin),
        .name = ls_inside_get(&ls_inside_own.name),
        .about = ls_inside_get(&ls_inside_own.about),
        .site = atomic_load_explicit(&ls_inside_own.site, memory_order_relaxed),
    };
}

void ls_inside_return(struct ls_inside_call before)
{
    const struct ls_inside_call now = ls_inside_now();
    if (now.plugin != before.plugin || now.name != before.name || now.site != before.site)
        ls_inside_leave(before);
}

void ls_inside_about(const char *text)
{
    ls_inside_own.next_about = text;
}

void ls_inside_set_replica(uint32_t rank)
{
    atomic_store(&ls_inside_mine()->replica, (int64_t)rank);
}

// ---- Reading ----

struct ls_inside_call ls_inside_read(struct ls_inside *record)
{
    const struct ls_inside_site *site = atomic_load_explicit(&record->site, memory_order_relaxed);
    struct ls_inside_call call = {.plugin = ls_inside_get(&record->plugin),
                                  .name = ls_inside_get(&record->name),
                                  .about = ls_inside_get(&record->about),
                                  .outer_plugin = ls_inside_get(&record->outer_plugin),
                                  .outer_name = ls_inside_get(&record->outer_name)};
    if (site) {
        if (!call.plugin)
            call.outer_plugin = NULL;
        call.plugin = site->plugin;
        call.name = site->name;
        call.about = NULL;
    }
    if (call.plugin == call.outer_plugin)
        call.outer_plugin = NULL;
    return call;
}

static struct ls_inside_site read_last(struct ls_inside *record)
{
    const struct ls_inside_site *site =
        atomic_load_explicit(&record->last_site, memory_order_relaxed);
    return site ? *site
                : (struct ls_inside_site){ls_inside_get(&record->last_plugin),
                                          ls_inside_get(&record->last_name)};
}

static bool view(struct ls_inside *record, struct ls_inside_view *out)
{
    *out = (struct ls_inside_view){
        .call = ls_inside_read(record),
        .own = record == &ls_inside_own,
        .replica = atomic_load_explicit(&record->replica, memory_order_relaxed),
    };
    out->under_way = out->call.plugin != NULL;
    if (!out->under_way) {
        const struct ls_inside_site last = read_last(record);
        out->call = (struct ls_inside_call){.plugin = last.plugin, .name = last.name};
    }
    return out->call.plugin != NULL;
}

bool ls_inside_look(struct ls_inside_view *out)
{
    return view(&ls_inside_own, out);
}

size_t ls_inside_look_at_others(struct ls_inside_view *out, size_t most)
{
    size_t found = 0;
    for (struct ls_inside *record = atomic_load(&ls_inside_list); record && found < most;
         record = record->next)
        found += record != &ls_inside_own && view(record, &out[found]) && out[found].under_way;
    return found;
}

bool ls_inside_of_replica(uint32_t rank, struct ls_inside_call *out)
{
    struct ls_inside_view seen;
    const struct ls_caller *caller = ls_caller_mine();
    bool found = false;
    pthread_mutex_lock(&ls_inside_lock);
    for (struct ls_inside *record = atomic_load(&ls_inside_list); record && !found;
         record = record->next) {
        found = record->caller == caller && atomic_load(&record->replica) == (int64_t)rank &&
                view(record, &seen) && seen.under_way;
        if (found)
            *out = seen.call;
    }
    pthread_mutex_unlock(&ls_inside_lock);
    return found;
}

const char *ls_inside_last_plugin(void)
{
    const char *plugin = read_last(&ls_inside_own).plugin;
    return plugin ? plugin : "device";
}

const char *ls_inside_text(const struct ls_inside_call *call, char *text, size_t bytes)
{
    const bool within = call->outer_plugin != NULL;
    snprintf(text, bytes, "`%s` of plugin %s%s%s%s%s%s%s%s", call->name, call->plugin,
             call->about ? " (" : "", call->about ? call->about : "", call->about ? ")" : "",
             within ? ", within `" : "", within ? call->outer_name : "",
             within ? "` of plugin " : "", within ? call->outer_plugin : "");
    return text;
}
