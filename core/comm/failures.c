// SPDX-License-Identifier: Apache-2.0
// How messages end that fail: with a lost peer, by a deadline, or all of them.
//
// The memory of a message, and its transfer, belong to the transport until `test` says that the
// transfer is over, or the endpoint was aborted; what an abort leaves to it, until the endpoint is
// closed. So a lost peer ends each transfer with it by itself, and after an abort transfers stay in
// the list without their works.
#include "core/comm/messages.h"

#include "core/base/clock.h"
#include "core/base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS UINT64_C(10000000) // between two looks at deadlines

// ---- Works ----

void ls_message_end(struct ls_comm_messages *messages, struct ls_comm_work *work,
                    enum ls_status status)
{
    pthread_mutex_lock(&messages->lock);
    messages->works--;
    pthread_mutex_unlock(&messages->lock);
    ls_work_end(work, status);
}

void ls_message_end_with_all(struct ls_comm_messages *messages, struct ls_comm_work *work)
{
    work->line = messages->why ? strdup(messages->why) : NULL;
    work->ends_all = messages->why != NULL;
    ls_message_end(messages, work, messages->failed);
}

static const char *rank_text(const struct ls_comm_work *work, char text[16])
{
    if (work->request.peer == LS_ANY_RANK)
        return "any rank";
    snprintf(text, 16, "rank %u", work->request.peer);
    return text;
}

// What ends: a call, or messages.
static void tell_end(const struct ls_comm *comm, const char *what, enum ls_status status)
{
    if (status == LS_ABORTED || status == LS_PEER_LOST)
        ls_error(comm->ranks->name,
                 "rank %u: %s because another rank failed or the communicator was aborted; "
                 "close it on all ranks, and open another one",
                 comm->rank, what);
    else
        ls_error(comm->ranks->name, "rank %u: %s: %s", comm->rank, what, ls_status_text(status));
}

void ls_message_fail(struct ls_comm_messages *messages, struct ls_comm_work *work, uint32_t peer,
                     enum ls_status status)
{
    const struct ls_comm *comm = messages->comm;
    struct ls_pair *pair = &messages->pairs[peer];
    const bool sends = work->request.kind == LS_COMM_SEND, waits = !pair->asked;
    char text[80];
    char **before = ls_log_keep(&work->line);
    pair->asked = true;
    const enum ls_status blamed = ls_work_blame_process(comm, work, status, waits, &work->line);
    if (blamed) {
        status = blamed;
    } else if (status == LS_PEER_LOST) {
        ls_error(comm->ranks->name,
                 "rank %u: a message %s %s, tag %" PRIu64 ": it has closed the communicator",
                 comm->rank, sends ? "to" : "from", rank_text(work, text), work->request.tag);
    } else {
        snprintf(text, sizeof(text), "%s ends", work->request.name);
        tell_end(comm, text, status);
    }
    ls_log_keep(before);
    ls_message_end(messages, work, status);
}

void ls_message_fail_size(struct ls_comm_messages *messages, struct ls_comm_work *work,
                          const struct ls_sizes *sizes)
{
    char **before = ls_log_keep(&work->line);
    ls_error(messages->comm->ranks->name,
             "a message of tag %" PRIu64 ": rank %u sends %" PRIu64 " bytes, but rank %u expects "
             "%" PRIu64,
             work->request.tag, sizes->source, sizes->sent, sizes->destination, sizes->expected);
    ls_log_keep(before);
    ls_message_end(messages, work, LS_FAILED);
}

// ---- A lost peer ----

void ls_pair_lose(struct ls_comm_messages *messages, uint32_t peer)
{
    struct ls_pair *pair = &messages->pairs[peer];
    pair->gone = true;
    if (pair->listens) // what it had sent may still come
        return;
    for (struct ls_comm_work **link = &messages->receives; *link;) {
        struct ls_comm_work *work = *link;
        if (work->request.peer != peer) {
            link = &work->next;
            continue;
        }
        *link = work->next;
        work->next = NULL;
        ls_message_fail(messages, work, peer, LS_PEER_LOST);
    }
}

static struct ls_comm_work *work_of(const struct ls_message_transfer *transfer)
{
    if (transfer->work || !transfer->unexpected)
        return transfer->work;
    return transfer->unexpected->claimed;
}

void ls_message_lose_transfer(struct ls_comm_messages *messages,
                              struct ls_message_transfer *transfer)
{
    struct ls_comm_work *work = work_of(transfer);
    const uint32_t peer = transfer->peer;
    if (transfer->kind == LS_MESSAGE_NEXT)
        messages->pairs[peer].listens = false;
    if (transfer->unexpected)
        ls_unexpected_drop(messages, transfer->unexpected);
    free(transfer);
    if (work)
        ls_message_fail(messages, work, peer, LS_PEER_LOST);
    ls_pair_lose(messages, peer);
}

void ls_comm_messages_note(struct ls_comm_messages *messages, uint32_t peer, enum ls_status status)
{
    if (status == LS_PEER_LOST)
        ls_pair_lose(messages, peer);
    else if (status)
        ls_comm_messages_fail_all(messages, status);
}

// ---- All ----

// Waits until no peer touches memory of this rank any more. Only a peer that stays is worth an
// error: why messages end is said otherwise.
static void leave_transport(struct ls_comm_messages *messages)
{
    char *error = NULL;
    messages->interface->abort(messages->endpoint);
    char **before = ls_log_keep(&error);
    const int32_t left = messages->interface->wait_any(messages->endpoint, NULL, 0, 0);
    ls_log_keep(before);
    if (left == LS_PEER_LOST)
        ls_log_write_kept(&error);
    free(error);
}

static void begin_to_fail(struct ls_comm_messages *messages, enum ls_status status)
{
    const struct ls_comm *comm = messages->comm;
    struct ls_comm_work about = {
        .comm = messages->comm, .request = {.name = "a message"}, .line = messages->why};
    if (messages->endpoint)
        leave_transport(messages);
    char **before = ls_log_keep(&about.line);
    const enum ls_status blamed =
        about.line ? LS_OK : ls_work_blame_process(comm, &about, status, true, &about.line);
    if (blamed)
        status = blamed;
    else if (!about.line)
        tell_end(comm, "messages end", status);
    ls_log_keep(before);
    messages->why = about.line;
    messages->failed = status;
}

void ls_comm_messages_fail_all(struct ls_comm_messages *messages, enum ls_status status)
{
    if (!messages->failed)
        begin_to_fail(messages, status);
    for (uint32_t i = 0; i < messages->transfer_count; i++) {
        struct ls_comm_work *work = messages->transfers[i]->work;
        messages->transfers[i]->work = NULL;
        if (work)
            ls_message_end_with_all(messages, work);
    }
    for (struct ls_unexpected *unexpected = messages->unexpected; unexpected;
         unexpected = unexpected->next) {
        struct ls_comm_work *work = unexpected->claimed;
        unexpected->claimed = NULL;
        if (work)
            ls_message_end_with_all(messages, work);
    }
    while (messages->receives) {
        struct ls_comm_work *work = messages->receives;
        messages->receives = work->next;
        ls_message_end_with_all(messages, work);
    }
}

void ls_comm_messages_forget(struct ls_comm_messages *messages)
{
    while (messages->transfer_count)
        free(ls_message_take_transfer(messages, messages->transfer_count - 1));
    while (messages->unexpected)
        ls_unexpected_drop(messages, messages->unexpected);
}

// ---- Deadlines ----

static bool is_late(const struct ls_comm_work *work, uint64_t now)
{
    return now - work->begun_ns > work->deadline_ns;
}

static void tell_late(const struct ls_comm_messages *messages, struct ls_comm_work *work,
                      uint64_t now, const char *why)
{
    const bool sends = work->request.kind == LS_COMM_SEND;
    char text[16];
    char **before = ls_log_keep(&work->line);
    ls_error(messages->comm->ranks->name,
             "rank %u waited %.1f s for %s: a message of %" PRIu64 " bytes, tag %" PRIu64
             ", was not %s%s; look there, or raise --deadline",
             messages->comm->rank, (double)(now - work->begun_ns) * 1e-9, rank_text(work, text),
             work->request.count, work->request.tag, sends ? "taken" : "sent", why);
    ls_log_keep(before);
}

// A message that is under way holds memory of the caller, so that all end with it. A receive that
// still waits for one ends alone.
void ls_comm_messages_watch_deadlines(struct ls_comm_messages *messages)
{
    const uint64_t now = ls_clock_ns();
    if (now - messages->polled_ns < LOOK_NS)
        return;
    messages->polled_ns = now;
    for (uint32_t i = 0; i < messages->transfer_count; i++) {
        struct ls_comm_work *work = work_of(messages->transfers[i]);
        if (!work || !is_late(work, now))
            continue;
        tell_late(messages, work, now, " to its end");
        messages->why = work->line ? strdup(work->line) : NULL;
        ls_comm_messages_fail_all(messages, LS_PEER_LOST);
        return;
    }
    for (struct ls_comm_work **link = &messages->receives; *link;) {
        struct ls_comm_work *work = *link;
        if (!is_late(work, now)) {
            link = &work->next;
            continue;
        }
        *link = work->next;
        work->next = NULL;
        tell_late(messages, work, now, "");
        ls_message_end(messages, work, LS_PEER_LOST);
    }
}
