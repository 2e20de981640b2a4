// SPDX-License-Identifier: Apache-2.0
// Matches what has come with the receives that wait, and begins messages.
#include "core/comm/messages.h"

#include <stdlib.h>
#include <string.h>

// ---- Matching ----

static void fail_size(struct ls_comm_messages *messages, struct ls_comm_work *work, uint32_t source,
                      uint32_t destination, uint64_t sent, uint64_t expected)
{
    const struct ls_sizes sizes = {source, destination, sent, expected};
    ls_message_fail_size(messages, work, &sizes);
}

static bool fits(const struct ls_comm_request *receive, uint32_t source, uint64_t tag)
{
    return receive->tag == tag && (receive->peer == LS_ANY_RANK || receive->peer == source);
}

// Takes the first receive that waits for it; NULL: none does.
static struct ls_comm_work *take_receive(struct ls_comm_messages *messages, uint32_t source,
                                         uint64_t tag)
{
    struct ls_comm_work **link = &messages->receives;
    while (*link && !fits(&(*link)->request, source, tag))
        link = &(*link)->next;
    struct ls_comm_work *work = *link;
    if (work) {
        *link = work->next;
        work->next = NULL;
        work->source = source;
    }
    return work;
}

// The sender hears that before its payload is taken.
static enum ls_status refuse(struct ls_comm_messages *messages, uint32_t peer,
                             const struct ls_header *header, uint64_t expected, uint64_t number)
{
    struct ls_unexpected *unexpected =
        ls_unexpected_add(messages, peer, header->tag, header->bytes);
    struct ls_message_transfer *transfer;
    const struct ls_header refusal = {
        .kind = LS_HEADER_REFUSAL, .tag = header->tag, .bytes = expected, .serial = header->serial};
    if (!unexpected)
        return LS_OUT_OF_MEMORY;
    unexpected->refused = true;
    const enum ls_status status =
        ls_message_send_header(messages, peer, &refusal, LS_MESSAGE_REFUSAL, &transfer);
    if (status)
        return status;
    transfer->unexpected = unexpected;
    transfer->number = number;
    return LS_OK;
}

static enum ls_status take_payload(struct ls_comm_messages *messages, uint32_t peer,
                                   uint64_t number, struct ls_comm_work *work,
                                   struct ls_unexpected *unexpected)
{
    const enum ls_status status = ls_message_receive(messages, peer, number, work, unexpected);
    if (status && unexpected)
        ls_unexpected_drop(messages, unexpected);
    if (status && work)
        ls_message_fail(messages, work, peer, status);
    return status;
}

// Nobody waits for it.
static enum ls_status keep(struct ls_comm_messages *messages, uint32_t peer,
                           const struct ls_header *header, uint64_t number)
{
    struct ls_unexpected *unexpected =
        ls_unexpected_add(messages, peer, header->tag, header->bytes);
    if (!unexpected)
        return LS_OUT_OF_MEMORY;
    unexpected->here = header->bytes == 0;
    return unexpected->here ? LS_OK : take_payload(messages, peer, number, NULL, unexpected);
}

static enum ls_status take_message(struct ls_comm_messages *messages, uint32_t peer,
                                   const struct ls_header *header)
{
    const uint64_t bytes = header->bytes;
    const uint64_t number = bytes ? messages->pairs[peer].next_receive++ : 0;
    struct ls_comm_work *work = take_receive(messages, peer, header->tag);
    if (!work)
        return keep(messages, peer, header, number);
    const uint64_t expected = work->request.count;
    if (expected != bytes) {
        fail_size(messages, work, peer, messages->comm->rank, bytes, expected);
        return bytes ? refuse(messages, peer, header, expected, number) : LS_OK;
    }
    if (bytes)
        return take_payload(messages, peer, number, work, NULL);
    ls_message_end(messages, work, LS_OK);
    return LS_OK;
}

static void take_refusal(struct ls_comm_messages *messages, uint32_t peer,
                         const struct ls_header *header)
{
    for (uint32_t i = 0; i < messages->transfer_count; i++) {
        struct ls_comm_work *work = messages->transfers[i]->work;
        if (messages->transfers[i]->kind != LS_MESSAGE_PAYLOAD ||
            messages->transfers[i]->peer != peer || work->serial != header->serial)
            continue;
        work->refused = true;
        work->other_bytes = header->bytes;
    }
}

static enum ls_status take_header(struct ls_comm_messages *messages,
                                  const struct ls_message_transfer *transfer)
{
    enum ls_status status = LS_OK;
    messages->pairs[transfer->peer].listens = false;
    if (transfer->header.kind == LS_HEADER_MESSAGE)
        status = take_message(messages, transfer->peer, &transfer->header);
    else
        take_refusal(messages, transfer->peer, &transfer->header);
    return status ? status : ls_message_listen(messages, transfer->peer);
}

static void end_send(struct ls_comm_messages *messages, struct ls_comm_work *work)
{
    if (work->refused)
        fail_size(messages, work, messages->comm->rank, work->request.peer, work->request.count,
                  work->other_bytes);
    else
        ls_message_end(messages, work, LS_OK);
}

static void hand_over(struct ls_comm_messages *messages, struct ls_unexpected *unexpected)
{
    struct ls_comm_work *work = unexpected->claimed;
    if (unexpected->bytes)
        memcpy(work->request.mine, unexpected->data, unexpected->bytes);
    ls_unexpected_drop(messages, unexpected);
    ls_message_end(messages, work, LS_OK);
}

// A transfer is complete.
static enum ls_status land(struct ls_comm_messages *messages,
                           const struct ls_message_transfer *transfer)
{
    struct ls_unexpected *unexpected = transfer->unexpected;
    switch (transfer->kind) {
    case LS_MESSAGE_NEXT: return take_header(messages, transfer);
    case LS_MESSAGE_REFUSAL:
        return take_payload(messages, transfer->peer, transfer->number, NULL, unexpected);
    case LS_MESSAGE_COMING:
        if (transfer->work)
            ls_message_end(messages, transfer->work, LS_OK);
        else if (unexpected->refused)
            ls_unexpected_drop(messages, unexpected);
        else if (unexpected->claimed)
            hand_over(messages, unexpected);
        else
            unexpected->here = true;
        return LS_OK;
    default:
        if (transfer->work)
            end_send(messages, transfer->work);
        return LS_OK;
    }
}

// ---- Beginning ----

static void begin_receive(struct ls_comm_messages *messages, struct ls_comm_work *work)
{
    struct ls_unexpected *unexpected = messages->unexpected;
    struct ls_comm_work **link = &messages->receives;
    while (unexpected && (unexpected->refused || unexpected->claimed ||
                          !fits(&work->request, unexpected->source, unexpected->tag)))
        unexpected = unexpected->next;
    if (!unexpected) {
        while (*link)
            link = &(*link)->next;
        *link = work;
        return;
    }
    work->source = unexpected->source;
    if (unexpected->bytes == work->request.count) {
        unexpected->claimed = work;
        if (unexpected->here)
            hand_over(messages, unexpected);
        return;
    }
    const uint64_t sent = unexpected->bytes;
    unexpected->refused = true; // too late for its sender to hear
    if (unexpected->here)
        ls_unexpected_drop(messages, unexpected);
    fail_size(messages, work, work->source, messages->comm->rank, sent, work->request.count);
}

// To this rank itself: what is sent is there at once.
static enum ls_status send_to_self(struct ls_comm_messages *messages, struct ls_comm_work *work)
{
    const struct ls_comm_request *request = &work->request;
    const uint32_t own = messages->comm->rank;
    struct ls_comm_work *receive = take_receive(messages, own, request->tag);
    if (!receive) {
        struct ls_unexpected *unexpected =
            ls_unexpected_add(messages, own, request->tag, request->count);
        if (!unexpected)
            return LS_OUT_OF_MEMORY;
        if (request->count)
            memcpy(unexpected->data, request->mine, request->count);
        unexpected->here = true;
        ls_message_end(messages, work, LS_OK);
        return LS_OK;
    }
    if (receive->request.count != request->count) {
        const uint64_t expected = receive->request.count;
        fail_size(messages, receive, own, own, request->count, expected);
        fail_size(messages, work, own, own, request->count, expected);
        return LS_OK;
    }
    if (request->count)
        memmove(receive->request.mine, request->mine, request->count);
    ls_message_end(messages, receive, LS_OK);
    ls_message_end(messages, work, LS_OK);
    return LS_OK;
}

static void listen_to_all(struct ls_comm_messages *messages)
{
    const uint32_t own = messages->comm->rank;
    for (uint32_t i = 0; !messages->failed && i < messages->comm->ranks->world; i++)
        if (i != own)
            ls_comm_messages_note(messages, i, ls_message_listen(messages, i));
    messages->pairs[own].listens = true;
}

static void begin_send(struct ls_comm_messages *messages, struct ls_comm_work *work)
{
    const uint32_t peer = work->request.peer;
    enum ls_status status = LS_PEER_LOST;
    if (!messages->pairs[peer].gone)
        status = peer == messages->comm->rank ? send_to_self(messages, work)
                                              : ls_message_send(messages, work);
    if (status) // the transport does not have its memory
        ls_message_fail(messages, work, peer, status);
    ls_comm_messages_note(messages, peer, status);
}

void ls_comm_messages_begin(struct ls_comm_messages *messages, struct ls_comm_work *work)
{
    const uint32_t peer = work->request.peer;
    struct ls_pair *pair = peer == LS_ANY_RANK ? NULL : &messages->pairs[peer];
    if (!messages->failed && !messages->pairs[messages->comm->rank].listens)
        listen_to_all(messages);
    if (messages->failed) {
        ls_message_end_with_all(messages, work);
        return;
    }
    if (pair && pair->gone)
        pair->asked = true; // why is known by now, or will not be
    if (work->request.kind == LS_COMM_SEND) {
        begin_send(messages, work);
        return;
    }
    begin_receive(messages, work);
    if (pair && pair->gone)
        ls_pair_lose(messages, peer);
}

// ---- Looking ----

// What happens to a transfer that is no longer under way. The list may be another one afterwards.
static void finish(struct ls_comm_messages *messages, uint32_t index, enum ls_status status)
{
    const uint32_t peer = messages->transfers[index]->peer;
    const bool aborted = atomic_load(&messages->comm->aborted); // others hear that and leave first
    const bool lost = // else a peer does not let go of memory after an abort
        status == LS_PEER_LOST && !aborted &&
        messages->interface->peer_state(messages->endpoint, peer) != LS_ABORTED;
    if (status && !lost) {
        ls_comm_messages_fail_all(messages, aborted ? LS_ABORTED : status);
        return;
    }
    struct ls_message_transfer *transfer = ls_message_take_transfer(messages, index);
    if (lost) {
        ls_message_lose_transfer(messages, transfer);
        return;
    }
    status = land(messages, transfer);
    free(transfer);
    ls_comm_messages_note(messages, peer, status);
}

bool ls_comm_messages_test(struct ls_comm_messages *messages)
{
    bool moved = false;
    for (uint32_t i = 0; i < messages->transfer_count && !messages->failed;) {
        struct ls_transfer *posted = &messages->transfers[i]->posted;
        const enum ls_status status =
            posted->state == LS_TRANSFER_COMPLETE
                ? LS_OK
                : (enum ls_status)messages->interface->test(messages->endpoint, posted);
        if (status == LS_AGAIN) {
            i++;
            continue;
        }
        finish(messages, i, status);
        moved = true;
    }
    return moved;
}
