// SPDX-License-Identifier: Apache-2.0
// Replica threads that wait for work.
#include "core/replica/group.h"

#include "core/base/clock.h"
#include "core/base/inside.h"
#include "core/base/log.h"
#include "core/base/threads.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define POLL_NS 20000000

struct member {
    struct ls_group *group;
    uint32_t index;
    pthread_t thread;
    bool started;
    bool running; // in this round
    char *error; // its first one in this round, not written yet
};

struct ls_group {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    uint64_t round; // of work handed out
    uint32_t running; // members still in this round
    bool leave;
    bool first_error_only, logged; // whether somebody has said why a round failed
    enum ls_status status;
    enum ls_status (*function)(void *context, uint32_t index);
    void *function_context;
    void (*failed)(void *context, enum ls_status status);
    void *failed_context;
    void (*stuck)(void *context, uint32_t rank); // NULL: none
    uint64_t patience_ns;
    uint64_t failed_ns; // when the first of this round failed; 0: none
    uint32_t first_rank, count;
    struct member members[];
};

static void note_result(struct member *member, enum ls_status status)
{
    struct ls_group *group = member->group;
    pthread_mutex_lock(&group->lock);
    member->running = false;
    if (status && (group->status == LS_OK || group->status == LS_ABORTED))
        group->status = status;
    if (status && !group->failed_ns) {
        group->failed_ns = ls_clock_ns();
        pthread_cond_signal(&group->done);
    }
    if (--group->running == 0)
        pthread_cond_signal(&group->done);
    pthread_mutex_unlock(&group->lock);
}

// Waits for a round later than `seen`; false: leave.
static bool next_round(struct ls_group *group, uint64_t *seen)
{
    pthread_mutex_lock(&group->lock);
    while (group->round == *seen && !group->leave)
        pthread_cond_wait(&group->work, &group->lock);
    *seen = group->round;
    const bool stay = !group->leave;
    pthread_mutex_unlock(&group->lock);
    return stay;
}

static void log_error(struct member *member, enum ls_status status)
{
    struct ls_group *group = member->group;
    pthread_mutex_lock(&group->lock);
    const bool drop = status == LS_ABORTED || group->logged;
    group->logged = group->logged || (!drop && status && member->error);
    pthread_mutex_unlock(&group->lock);
    if (!drop)
        ls_log_write_kept(&member->error);
    free(member->error);
    member->error = NULL;
}

static enum ls_status run_member(struct member *member)
{
    struct ls_group *group = member->group;
    if (!group->first_error_only)
        return group->function(group->function_context, member->index);
    ls_log_keep(&member->error);
    const enum ls_status status = group->function(group->function_context, member->index);
    ls_log_keep(NULL);
    log_error(member, status);
    return status;
}

static void *member_main(void *argument)
{
    struct member *member = argument;
    struct ls_group *group = member->group;
    uint64_t seen = 0;
    const uint32_t rank = group->first_rank + member->index;
    ls_log_set_rank(rank || group->count > 1 ? (int32_t)rank : -1);
    ls_inside_set_replica(rank);
    while (next_round(group, &seen)) {
        const enum ls_status status = run_member(member);
        if (status && group->failed)
            group->failed(group->failed_context, status);
        note_result(member, status);
    }
    return NULL;
}

enum ls_status ls_group_create(uint32_t first_rank, uint32_t count,
                               void (*failed)(void *context, enum ls_status status), void *context,
                               struct ls_group **out)
{
    struct ls_group *group = calloc(1, sizeof(*group) + count * sizeof(group->members[0]));
    if (!group)
        return LS_OUT_OF_MEMORY;
    pthread_mutex_init(&group->lock, NULL);
    pthread_cond_init(&group->work, NULL);
    ls_condition_init(&group->done);
    group->failed = failed;
    group->failed_context = context;
    group->first_rank = first_rank;
    group->count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct member *member = &group->members[i];
        member->group = group;
        member->index = i;
        char name[16];
        snprintf(name, sizeof(name), "replica %u", (first_rank + i) % 1000000);
        const enum ls_status status = ls_thread_start(&member->thread, name, member_main, member);
        if (status) {
            ls_group_destroy(group);
            return status;
        }
        member->started = true;
    }
    *out = group;
    return LS_OK;
}

void ls_group_destroy(struct ls_group *group)
{
    if (!group)
        return;
    pthread_mutex_lock(&group->lock);
    group->leave = true;
    pthread_cond_broadcast(&group->work);
    pthread_mutex_unlock(&group->lock);
    for (uint32_t i = 0; i < group->count; i++)
        if (group->members[i].started)
            pthread_join(group->members[i].thread, NULL);
    pthread_cond_destroy(&group->work);
    pthread_cond_destroy(&group->done);
    pthread_mutex_destroy(&group->lock);
    free(group);
}

void ls_group_set_patience(struct ls_group *group, uint64_t nanoseconds,
                           void (*stuck)(void *context, uint32_t rank))
{
    group->patience_ns = nanoseconds;
    group->stuck = stuck;
}

void ls_group_set_first_error_only(struct ls_group *group, bool on)
{
    group->first_error_only = on;
}

bool ls_group_has_logged(const struct ls_group *group)
{
    return group && group->logged;
}

static void say_stuck(uint32_t rank)
{
    struct ls_inside_call call;
    char text[256];
    if (ls_inside_of_replica(rank, &call))
        ls_error(NULL, "replica %u does not come back: it hangs in %s", rank,
                 ls_inside_text(&call, text, sizeof(text)));
    else
        ls_error(NULL, "replica %u does not come back: it hangs in a library or in Lockstep itself",
                 rank);
}

// Says who is stuck, once it is time. The lock is held, but not while it is said.
static void look_for_stuck(struct ls_group *group, bool *said)
{
    uint32_t first = 0;
    if (*said || ls_clock_ns() - group->failed_ns < group->patience_ns)
        return;
    while (first + 1 < group->count && !group->members[first].running)
        first++;
    *said = true;
    pthread_mutex_unlock(&group->lock);
    say_stuck(group->first_rank + first);
    group->stuck(group->failed_context, group->first_rank + first);
    pthread_mutex_lock(&group->lock);
}

// Until all have returned. After a failure the thread looks now and then whether somebody is stuck.
static void wait_for_all(struct ls_group *group)
{
    bool said = false;
    while (group->running) {
        if (!group->failed_ns || !group->stuck || said) {
            pthread_cond_wait(&group->done, &group->lock);
            continue;
        }
        ls_condition_wait(&group->done, &group->lock, POLL_NS);
        if (group->running)
            look_for_stuck(group, &said);
    }
}

enum ls_status ls_group_run(struct ls_group *group,
                            enum ls_status (*function)(void *context, uint32_t index),
                            void *context)
{
    pthread_mutex_lock(&group->lock);
    group->function = function;
    group->function_context = context;
    group->status = LS_OK;
    group->running = group->count;
    group->failed_ns = 0;
    for (uint32_t i = 0; i < group->count; i++)
        group->members[i].running = true;
    group->round++;
    pthread_cond_broadcast(&group->work);
    wait_for_all(group);
    const enum ls_status status = group->status;
    pthread_mutex_unlock(&group->lock);
    return status;
}
