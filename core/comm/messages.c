// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks, over endpoints of their own. A message is a header and, unless it is
// empty, its payload. What comes is matched with the receives that wait, by source and tag, in
// order; what nobody waits for is kept until somebody does. One thread at a time moves them: one
// that waits for a message, or the thread of the messages.
//
//   messages.c   which thread moves messages, and when
//   matching.c   what is done with what has come
//   transfers.c  what the transport has
//   failures.c   lost peers, deadlines, and the end of all
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // ppoll, eventfd
#endif
#include "core/comm/messages.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/plain_locale.h"
#include "core/base/threads.h"
#include "core/collective/endpoints.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define SPIN_NS UINT64_C(50000) // before the thread that moves messages sleeps
#define POLL_NS \
    UINT64_C(20000000) // of deadlines, and of transports without a descriptor: a twentieth

// ---- Opening and closing ----

enum ls_status ls_comm_messages_open(struct ls_comm *comm)
{
    const struct ls_comm_ranks *ranks = comm->ranks;
    struct ls_comm_messages *messages = calloc(1, sizeof(*messages));
    char name[256];
    if (!messages)
        return LS_OUT_OF_MEMORY;
    comm->messages = messages;
    messages->comm = comm;
    messages->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    messages->pairs = calloc(ranks->world, sizeof(*messages->pairs));
    pthread_mutex_init(&messages->lock, NULL);
    pthread_cond_init(&messages->changed, NULL);
    if (messages->wake < 0 || !messages->pairs)
        return LS_OUT_OF_MEMORY;
    if (ranks->world == 1)
        return LS_OK;
    snprintf(name, sizeof(name), "%s, messages", ranks->name);
    messages->interface = ranks->transport->interface;
    const struct ls_endpoints_options options = {
        .transport = messages->interface,
        .host = ranks->transport->host,
        .world = ranks->world,
        .own = &comm->rank,
        .count = 1,
        .hosts = ranks->hosts,
        .name = name,
        .exchange = {.call = ls_job_exchange, .context = comm->ranks},
        .deadline_ns = ranks->deadline_ns,
    };
    const enum ls_status status = ls_endpoints_open(&options, &messages->endpoint);
    if (status != LS_UNSUPPORTED)
        return status;
    ls_error(ranks->name, "transport %s cannot connect these %u ranks; choose another",
             ranks->transport->plugin->name, ranks->world);
    return LS_UNAVAILABLE;
}

void ls_comm_messages_stop(struct ls_comm_messages *messages)
{
    if (!messages)
        return;
    pthread_mutex_lock(&messages->lock);
    messages->closing = true;
    const bool busy = messages->works > 0;
    pthread_mutex_unlock(&messages->lock);
    if (busy) {
        ls_comm_abort_because(messages->comm, "it was closed while messages were under way");
    }
    ls_comm_messages_wake(messages);
    pthread_mutex_lock(&messages->lock);
    pthread_cond_broadcast(&messages->changed);
    while (messages->driven || messages->waiters) // whose works have all ended, or do so now
        pthread_cond_wait(&messages->changed, &messages->lock);
    pthread_mutex_unlock(&messages->lock);
    if (messages->threaded)
        pthread_join(messages->thread, NULL);
}

void ls_comm_messages_close(struct ls_comm_messages *messages)
{
    if (!messages)
        return;
    if (messages->endpoint)
        ls_endpoint_close(messages->interface, messages->endpoint);
    ls_comm_messages_forget(messages);
    if (messages->wake >= 0)
        close(messages->wake);
    pthread_mutex_destroy(&messages->lock);
    pthread_cond_destroy(&messages->changed);
    free(messages->pairs);
    free(messages->transfers);
    free(messages->waiting);
    free(messages->why);
    free(messages);
}

// ---- Moving ----

// Works that were started since. The lock is held.
static struct ls_comm_work *take_inbox(struct ls_comm_messages *messages)
{
    struct ls_comm_work *first = messages->inbox;
    messages->inbox = messages->inbox_last = NULL;
    return first;
}

static bool has_news(struct ls_comm_messages *messages)
{
    return atomic_load(&messages->started) != atomic_load(&messages->taken) ||
           atomic_load(&messages->aborted);
}

// One turn. True: something has moved.
static bool turn(struct ls_comm_messages *messages)
{
    bool moved = false;
    if (atomic_load(&messages->aborted) && !messages->failed)
        ls_comm_messages_fail_all(messages, LS_ABORTED);
    if (has_news(messages)) {
        pthread_mutex_lock(&messages->lock);
        atomic_store(&messages->taken, atomic_load(&messages->started));
        struct ls_comm_work *work = take_inbox(messages);
        pthread_mutex_unlock(&messages->lock);
        for (struct ls_comm_work *next; work; work = next) {
            next = work->next;
            work->next = NULL;
            ls_comm_messages_begin(messages, work);
            moved = true;
        }
    }
    return ls_comm_messages_test(messages) || moved;
}

static uint32_t list_transfers(struct ls_comm_messages *messages)
{
    if (messages->waiting_room < messages->transfer_count) {
        struct ls_transfer **waiting =
            realloc(messages->waiting, messages->transfer_count * sizeof(*waiting));
        if (!waiting)
            return 0; // then only what was started wakes, and a poll
        messages->waiting = waiting;
        messages->waiting_room = messages->transfer_count;
    }
    for (uint32_t i = 0; i < messages->transfer_count; i++)
        messages->waiting[i] = &messages->transfers[i]->posted;
    return messages->transfer_count;
}

// Readies a sleep of the owner, or of the thread when it is nobody's. False: there is something to
// move.
static bool arm(struct ls_comm_messages *messages, int32_t *fd, uint64_t *poll_ns)
{
    const uint32_t count = list_transfers(messages);
    *fd = -1;
    *poll_ns = POLL_NS;
    if (!messages->endpoint || messages->failed || !count)
        return true;
    if (!LS_HAS(messages->interface, arm) || !messages->interface->arm) {
        *poll_ns = POLL_NS / 20;
        return messages->interface->wait_any(messages->endpoint, messages->waiting, count, 0) ==
               LS_AGAIN;
    }
    return messages->interface->arm(messages->endpoint, messages->waiting, count, fd, poll_ns) ==
           LS_OK;
}

// Until the descriptor or what was started wakes, or the time has come.
static void doze(struct ls_comm_messages *messages, int32_t fd, uint64_t poll_ns, uint64_t end_ns)
{
    const uint64_t now = ls_clock_ns(), left = end_ns > now ? end_ns - now : 0;
    const uint64_t longest = poll_ns < POLL_NS ? poll_ns : POLL_NS;
    const uint64_t timeout_ns = left < longest ? left : longest;
    struct pollfd fds[2] = {{.fd = messages->wake, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    const struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / UINT64_C(1000000000)),
                                     .tv_nsec = (long)(timeout_ns % UINT64_C(1000000000))};
    uint64_t count;
    if (has_news(messages))
        return;
    (void)ppoll(fds, fd >= 0 ? 2 : 1, &timeout, NULL);
    if (fds[0].revents)
        (void)!read(messages->wake, &count, sizeof(count));
}

static bool is_done(const struct ls_comm_work *until)
{
    return until && ls_work_is_over(until);
}

// Moves what can be moved, and goes on for a moment after nothing could.
static void move_eagerly(struct ls_comm_messages *messages, const struct ls_comm_work *until,
                         uint64_t spin_ns)
{
    uint64_t still_since = 0;
    while (!is_done(until)) {
        if (turn(messages)) {
            still_since = 0;
            continue;
        }
        const uint64_t now = ls_clock_ns();
        if (!still_since)
            still_since = now;
        if (now - still_since >= spin_ns)
            break;
    }
    ls_comm_messages_watch_deadlines(messages);
}

// ---- Which thread moves ----

// The lock is held.
static bool take(struct ls_comm_messages *messages)
{
    const bool free = !messages->driven;
    messages->driven = true;
    return free;
}

static void leave(struct ls_comm_messages *messages)
{
    messages->driven = false;
    pthread_cond_broadcast(&messages->changed);
}

// The thread dozes while nobody owns the endpoint, so that one that comes to wait need not ask it.
static void *move_messages(void *argument)
{
    struct ls_comm_messages *messages = argument;
    pthread_mutex_lock(&messages->lock);
    while (!messages->closing || messages->works) {
        if (messages->waiters || !take(messages)) {
            pthread_cond_wait(&messages->changed, &messages->lock);
            continue;
        }
        int32_t fd;
        uint64_t poll_ns;
        pthread_mutex_unlock(&messages->lock);
        move_eagerly(messages, NULL, 0);
        const bool sleeps = arm(messages, &fd, &poll_ns);
        pthread_mutex_lock(&messages->lock);
        leave(messages);
        if (!sleeps || messages->closing)
            continue;
        pthread_mutex_unlock(&messages->lock);
        doze(messages, fd, poll_ns, UINT64_MAX);
        pthread_mutex_lock(&messages->lock);
    }
    pthread_mutex_unlock(&messages->lock);
    return NULL;
}

void ls_comm_messages_drive(struct ls_comm_work *work, uint64_t end_ns)
{
    struct ls_comm_messages *messages = work->comm->messages;
    pthread_mutex_lock(&messages->lock);
    messages->waiters++;
    while (!ls_work_is_over(work) && ls_clock_ns() < end_ns) {
        if (!take(messages)) {
            pthread_mutex_unlock(&messages->lock);
            const uint64_t now = ls_clock_ns();
            ls_work_sleep(work, now + SPIN_NS < end_ns ? now + SPIN_NS : end_ns);
            pthread_mutex_lock(&messages->lock);
            continue;
        }
        int32_t fd;
        uint64_t poll_ns;
        pthread_mutex_unlock(&messages->lock);
        move_eagerly(messages, work, SPIN_NS);
        if (!ls_work_is_over(work) && arm(messages, &fd, &poll_ns))
            doze(messages, fd, poll_ns, end_ns);
        pthread_mutex_lock(&messages->lock);
        leave(messages);
    }
    messages->waiters--;
    pthread_cond_broadcast(&messages->changed);
    pthread_mutex_unlock(&messages->lock);
}

// ---- Starting ----

static enum ls_status start(struct ls_comm_messages *messages, struct ls_comm_work *work)
{
    enum ls_status status = LS_OK;
    if (!messages->threaded)
        status = ls_thread_start(&messages->thread, "messages", move_messages, messages);
    if (status)
        return status;
    messages->threaded = true;
    messages->works++;
    if (messages->inbox_last)
        messages->inbox_last->next = work;
    else
        messages->inbox = work;
    messages->inbox_last = work;
    atomic_fetch_add(&messages->started, 1);
    return LS_OK;
}

static enum ls_status check(const struct ls_comm *comm, const struct ls_comm_request *request)
{
    const bool any = request->kind == LS_COMM_RECEIVE && request->peer == LS_ANY_RANK;
    const enum ls_status status = ls_comm_check_process(comm, request->name);
    if (status)
        return status;
    if (!comm->messages) {
        ls_error(request->name, "%s was opened without `messages`", comm->ranks->name);
        return LS_USAGE;
    }
    if (!any && request->peer >= comm->ranks->world) {
        ls_error(request->name, "peer %u: %s has %u ranks", request->peer, comm->ranks->name,
                 comm->ranks->world);
        return LS_USAGE;
    }
    if (request->count && !request->mine) {
        ls_error(request->name, "rank %u: expected a buffer, got NULL", comm->rank);
        return LS_USAGE;
    }
    return LS_OK;
}

// What is begun at once needs no other thread.
enum ls_status ls_comm_messages_start(struct ls_comm *comm, const struct ls_comm_request *request,
                                      struct ls_comm_work **out)
{
    LS_PLAIN_LOCALE;
    struct ls_comm_messages *messages = comm->messages;
    enum ls_status status = check(comm, request);
    if (status)
        return status;
    struct ls_comm_work *work = ls_work_create(comm, request);
    if (!work)
        return LS_OUT_OF_MEMORY;
    work->begun_ns = ls_clock_ns();
    pthread_mutex_lock(&messages->lock);
    status = start(messages, work);
    const bool mine = !status && take(messages);
    pthread_mutex_unlock(&messages->lock);
    if (status) {
        ls_work_discard(work);
        return status;
    }
    if (mine) {
        (void)turn(messages);
        pthread_mutex_lock(&messages->lock);
        leave(messages);
        pthread_mutex_unlock(&messages->lock);
    }
    if (!mine || !ls_work_is_over(work))
        ls_comm_messages_wake(messages);
    *out = work;
    return LS_OK;
}
