// SPDX-License-Identifier: Apache-2.0
// One small object for each thread of the program that calls Lockstep.
#include "core/base/caller.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct ls_caller {
    _Atomic uint32_t users; // threads
    _Atomic uint32_t reasons;
    _Atomic uint64_t errors;
    char last[1024]; // under the lock, as that of the process
};

static struct ls_caller everybody = {.users = 1}; // where there is no memory
static _Thread_local struct ls_caller *mine;
static _Thread_local bool ending;
_Thread_local LS_INITIAL_EXEC uint32_t ls_thread_reason_count;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last_of_all[1024];

static pthread_key_t end_key;
static pthread_once_t end_once = PTHREAD_ONCE_INIT;
static bool has_end_key;

void ls_caller_release(struct ls_caller *caller)
{
    if (caller && caller != &everybody && atomic_fetch_sub(&caller->users, 1) == 1)
        free(caller);
}

// Other keys of the thread may still log when it ends, so the first round only asks for another one.
static void end_thread(void *caller)
{
    if (!ending) {
        ending = true;
        if (!pthread_setspecific(end_key, caller))
            return;
    }
    mine = NULL;
    ls_caller_release(caller);
}

static void make_end_key(void)
{
    has_end_key = pthread_key_create(&end_key, end_thread) == 0;
}

// Without a key for the thread's end the object would stay for ever.
void ls_caller_adopt(struct ls_caller *caller)
{
    pthread_once(&end_once, make_end_key);
    mine = caller;
    if (caller != &everybody && (!has_end_key || pthread_setspecific(end_key, caller))) {
        ls_caller_release(caller);
        mine = &everybody;
    }
}

struct ls_caller *ls_caller_mine(void)
{
    if (!mine) {
        struct ls_caller *caller = calloc(1, sizeof(*caller));
        if (caller)
            atomic_init(&caller->users, 1);
        ls_caller_adopt(caller ? caller : &everybody);
    }
    return mine;
}

struct ls_caller *ls_caller_share(void)
{
    struct ls_caller *caller = ls_caller_mine();
    if (caller != &everybody)
        atomic_fetch_add(&caller->users, 1);
    return caller;
}

void ls_caller_note_error(const char *line)
{
    struct ls_caller *caller = ls_caller_mine();
    if (line) {
        pthread_mutex_lock(&lock);
        snprintf(caller->last, sizeof(caller->last), "%s", line);
        snprintf(last_of_all, sizeof(last_of_all), "%s", line);
        pthread_mutex_unlock(&lock);
    }
    atomic_fetch_add(&caller->errors, 1);
}

void ls_caller_note_reason(void)
{
    ls_thread_reason_count++;
    atomic_fetch_add_explicit(&ls_caller_mine()->reasons, 1, memory_order_relaxed);
}

uint64_t ls_caller_errors(void)
{
    return atomic_load(&ls_caller_mine()->errors);
}

uint32_t ls_caller_reasons(void)
{
    return atomic_load(&ls_caller_mine()->reasons);
}

void ls_caller_last_error(char *text, size_t bytes)
{
    const struct ls_caller *caller = ls_caller_mine();
    pthread_mutex_lock(&lock);
    snprintf(text, bytes, "%s", caller->last[0] ? caller->last : last_of_all);
    pthread_mutex_unlock(&lock);
}

void ls_caller_lock(void)
{
    pthread_mutex_lock(&lock);
}

void ls_caller_unlock(void)
{
    pthread_mutex_unlock(&lock);
}
