// SPDX-License-Identifier: Apache-2.0
// The workers wait on a condition between two pieces of work, and take items from a counter.
#include "core/data/crew.h"

#include "core/base/log.h"
#include "core/base/threads.h"

#include <stdbool.h>
#include <stdlib.h>

struct helper {
    struct ls_crew *crew;
    pthread_t thread;
    uint32_t worker;
};

struct ls_crew {
    uint32_t workers, started; // helpers that were started
    struct helper *helpers; // (workers - 1)

    enum ls_status (*work)(void *context, uint32_t worker, uint64_t item);
    void *context;
    uint64_t count;
    const _Atomic uint32_t *stop;
    _Atomic uint64_t next; // item to be taken

    pthread_mutex_t lock; // of what follows
    pthread_cond_t begin, end;
    uint64_t round; // pieces of work so far
    uint32_t busy; // helpers that work on this one
    bool closing;
    enum ls_status status; // of `failed`, the first item that failed
    uint64_t failed;
    char *error; // that it would have logged
};

static void note_failure(struct ls_crew *crew, uint64_t item, enum ls_status status, char *error)
{
    pthread_mutex_lock(&crew->lock);
    if (!crew->status || item < crew->failed) {
        free(crew->error);
        crew->status = status;
        crew->failed = item;
        crew->error = error;
        error = NULL;
    }
    atomic_store(&crew->next, crew->count);
    pthread_mutex_unlock(&crew->lock);
    free(error);
}

static void take_items(struct ls_crew *crew, uint32_t worker)
{
    char *error = NULL;
    char **before = ls_log_keep(&error);
    for (;;) {
        const uint64_t item = atomic_fetch_add(&crew->next, 1);
        if (item >= crew->count || (crew->stop && atomic_load(crew->stop)))
            break;
        const enum ls_status status = crew->work(crew->context, worker, item);
        if (!status)
            continue;
        note_failure(crew, item, status, error);
        error = NULL;
        break;
    }
    ls_log_keep(before);
    free(error);
}

static void *helper_thread(void *argument)
{
    const struct helper *helper = argument;
    struct ls_crew *crew = helper->crew;
    uint64_t seen = 0;
    pthread_mutex_lock(&crew->lock);
    for (;;) {
        while (!crew->closing && crew->round == seen)
            pthread_cond_wait(&crew->begin, &crew->lock);
        if (crew->closing)
            break;
        seen = crew->round;
        pthread_mutex_unlock(&crew->lock);
        take_items(crew, helper->worker);
        pthread_mutex_lock(&crew->lock);
        if (--crew->busy == 0)
            pthread_cond_signal(&crew->end);
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

enum ls_status ls_crew_create(uint32_t workers, struct ls_crew **out)
{
    struct ls_crew *crew = calloc(1, sizeof(*crew));
    if (!crew)
        return LS_OUT_OF_MEMORY;
    crew->workers = workers;
    pthread_mutex_init(&crew->lock, NULL);
    ls_condition_init(&crew->begin);
    ls_condition_init(&crew->end);
    crew->helpers = calloc(workers, sizeof(*crew->helpers));
    enum ls_status status = crew->helpers ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 1; !status && i < workers; i++) {
        struct helper *helper = &crew->helpers[i - 1];
        *helper = (struct helper){.crew = crew, .worker = i};
        status = ls_thread_start(&helper->thread, "ls-load", helper_thread, helper);
        crew->started += !status;
    }
    if (status)
        ls_crew_destroy(crew);
    else
        *out = crew;
    return status;
}

void ls_crew_destroy(struct ls_crew *crew)
{
    if (!crew)
        return;
    pthread_mutex_lock(&crew->lock);
    crew->closing = true;
    pthread_cond_broadcast(&crew->begin);
    pthread_mutex_unlock(&crew->lock);
    for (uint32_t i = 0; i < crew->started; i++)
        pthread_join(crew->helpers[i].thread, NULL);
    pthread_cond_destroy(&crew->begin);
    pthread_cond_destroy(&crew->end);
    pthread_mutex_destroy(&crew->lock);
    free(crew->helpers);
    free(crew->error);
    free(crew);
}

uint32_t ls_crew_workers(const struct ls_crew *crew)
{
    return crew->workers;
}

enum ls_status ls_crew_run(struct ls_crew *crew,
                           enum ls_status (*work)(void *context, uint32_t worker, uint64_t item),
                           void *context, uint64_t count, const _Atomic uint32_t *stop)
{
    pthread_mutex_lock(&crew->lock);
    crew->work = work;
    crew->context = context;
    crew->count = count;
    crew->stop = stop;
    crew->status = LS_OK;
    atomic_store(&crew->next, 0);
    crew->busy = crew->started;
    crew->round++;
    pthread_cond_broadcast(&crew->begin);
    pthread_mutex_unlock(&crew->lock);

    take_items(crew, 0);

    pthread_mutex_lock(&crew->lock);
    while (crew->busy)
        pthread_cond_wait(&crew->end, &crew->lock);
    enum ls_status status = crew->status;
    pthread_mutex_unlock(&crew->lock);
    ls_log_write_kept(&crew->error);
    return !status && stop && atomic_load(stop) ? LS_ABORTED : status;
}

enum ls_status ls_crew_run_once(enum ls_status (*work)(void *context, uint32_t worker,
                                                       uint64_t item),
                                void *context, uint64_t count)
{
    struct ls_crew *crew = NULL;
    enum ls_status status = ls_crew_create(ls_core_count(), &crew);
    if (!status)
        status = ls_crew_run(crew, work, context, count, NULL);
    ls_crew_destroy(crew);
    return status;
}
