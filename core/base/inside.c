// SPDX-License-Identifier: Apache-2.0
// Notes of threads: one record in each thread's own memory, in a list that is read when something goes wrong.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // MAP_ANONYMOUS, MAP_STACK
#endif
#include "core/base/inside_internal.h"

#include "core/attributes.h"
#include "core/base/log.h"

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>

#define SIGNAL_STACK_BYTES (64 << 10)

pthread_mutex_t ls_inside_lock = PTHREAD_MUTEX_INITIALIZER;
struct ls_inside *_Atomic ls_inside_list;
_Atomic(void (*)(int64_t replica)) ls_inside_lost_thread;

// Initial-exec: a signal handler reads it, which must not allocate.
static _Thread_local LS_INITIAL_EXEC struct ls_inside mine = {.replica = -1};

static _Atomic uint32_t all_reasons;

static pthread_key_t end_key;
static pthread_once_t end_once = PTHREAD_ONCE_INIT;
static atomic_bool has_end_key, wants_signal_stacks;

static void set(_Atomic(const char *) *place, const char *text)
{
    atomic_store_explicit(place, text, memory_order_relaxed);
}

static const char *get(_Atomic(const char *) *place)
{
    return atomic_load_explicit(place, memory_order_relaxed);
}

static void count(_Atomic uint32_t *number)
{
    atomic_store_explicit(number, atomic_load_explicit(number, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

// ---- The list ----

static void give_back_signal_stack(struct ls_inside *record)
{
    const stack_t none = {.ss_flags = SS_DISABLE};
    if (!record->signal_stack)
        return;
    sigaltstack(&none, NULL);
    munmap(record->signal_stack, SIGNAL_STACK_BYTES);
}

// The thread ends, and its memory with it. One that ends within a plugin's call was ended by the plugin: whoever waits
// for the thread would wait for ever.
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

static void make_end_key(void)
{
    atomic_store(&has_end_key, pthread_key_create(&end_key, end_thread) == 0);
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
    mine.listed = true;
    if (!atomic_load(&has_end_key) || pthread_setspecific(end_key, &mine))
        return;
    if (atomic_load(&wants_signal_stacks))
        take_signal_stack(&mine);
    pthread_mutex_lock(&ls_inside_lock);
    mine.next = atomic_load(&ls_inside_list);
    atomic_store(&ls_inside_list, &mine);
    pthread_mutex_unlock(&ls_inside_lock);
}

struct ls_inside *ls_inside_mine(void)
{
    if (!mine.listed)
        list_mine();
    return &mine;
}

void ls_inside_use_signal_stacks(void)
{
    atomic_store(&wants_signal_stacks, true);
    (void)ls_inside_mine();
}

// ---- Writing ----

struct ls_inside_call ls_inside_enter(const char *plugin, const char *name)
{
    struct ls_inside *record = &mine;
    if (!record->listed)
        list_mine();
    const struct ls_inside_call before = ls_inside_now();
    set(&record->name, name);
    set(&record->about, record->next_about);
    set(&record->plugin, plugin);
    record->next_about = NULL;
    count(&record->moves);
    if (!before.plugin) {
        set(&record->outer_plugin, plugin);
        set(&record->outer_name, name);
        count(&record->outer_moves);
    }
    return before;
}

void ls_inside_leave(struct ls_inside_call before)
{
    struct ls_inside *record = &mine;
    set(&record->last_plugin, get(&record->plugin));
    set(&record->last_name, get(&record->name));
    set(&record->plugin, before.plugin);
    set(&record->name, before.name);
    set(&record->about, before.about);
    count(&record->moves);
    if (!before.plugin)
        count(&record->outer_moves);
}

struct ls_inside_call ls_inside_now(void)
{
    return (struct ls_inside_call){
        .plugin = get(&mine.plugin), .name = get(&mine.name), .about = get(&mine.about)};
}

void ls_inside_return(struct ls_inside_call before)
{
    if (get(&mine.plugin) != before.plugin || get(&mine.name) != before.name)
        ls_inside_leave(before);
}

void ls_inside_about(const char *text)
{
    mine.next_about = text;
}

void ls_inside_set_replica(uint32_t rank)
{
    atomic_store(&ls_inside_mine()->replica, (int64_t)rank);
}

void ls_inside_note_reason(void)
{
    mine.reasons++;
    atomic_fetch_add_explicit(&all_reasons, 1, memory_order_relaxed);
}

uint32_t ls_inside_reasons(void)
{
    return mine.reasons;
}

uint32_t ls_inside_all_reasons(void)
{
    return atomic_load(&all_reasons);
}

// ---- Reading ----

struct ls_inside_call ls_inside_read(struct ls_inside *record)
{
    struct ls_inside_call call = {.plugin = get(&record->plugin),
                                  .name = get(&record->name),
                                  .about = get(&record->about),
                                  .outer_plugin = get(&record->outer_plugin),
                                  .outer_name = get(&record->outer_name)};
    if (call.plugin == call.outer_plugin)
        call.outer_plugin = NULL;
    return call;
}

static bool view(struct ls_inside *record, struct ls_inside_view *out)
{
    *out = (struct ls_inside_view){
        .call = ls_inside_read(record),
        .own = record == &mine,
        .replica = atomic_load_explicit(&record->replica, memory_order_relaxed),
    };
    out->under_way = out->call.plugin != NULL;
    if (!out->under_way)
        out->call = (struct ls_inside_call){.plugin = get(&record->last_plugin),
                                            .name = get(&record->last_name)};
    return out->call.plugin != NULL;
}

bool ls_inside_look(struct ls_inside_view *out)
{
    return view(&mine, out);
}

size_t ls_inside_look_at_others(struct ls_inside_view *out, size_t most)
{
    size_t found = 0;
    for (struct ls_inside *record = atomic_load(&ls_inside_list); record && found < most;
         record = record->next)
        found += record != &mine && view(record, &out[found]) && out[found].under_way;
    return found;
}

bool ls_inside_of_replica(uint32_t rank, struct ls_inside_call *out)
{
    struct ls_inside_view seen;
    bool found = false;
    pthread_mutex_lock(&ls_inside_lock);
    for (struct ls_inside *record = atomic_load(&ls_inside_list); record && !found;
         record = record->next) {
        found =
            atomic_load(&record->replica) == (int64_t)rank && view(record, &seen) && seen.under_way;
        if (found)
            *out = seen.call;
    }
    pthread_mutex_unlock(&ls_inside_lock);
    return found;
}

const char *ls_inside_last_plugin(void)
{
    const char *plugin = get(&mine.last_plugin);
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
