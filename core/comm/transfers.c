// SPDX-License-Identifier: Apache-2.0
// Transfers of messages: headers and payloads, the list of those that the transport has, and memory
// for payloads that nobody waits for.
#include "core/comm/messages.h"

#include <stdlib.h>
#include <string.h>

#define SIGNATURE UINT64_C(0x6d65737361676531) // of all transfers: sizes are in headers

// ---- Unexpected payloads ----

struct ls_unexpected *ls_unexpected_add(struct ls_comm_messages *messages, uint32_t source,
                                        uint64_t tag, uint64_t bytes)
{
    struct ls_unexpected *unexpected = calloc(1, sizeof(*unexpected)),
                         **link = &messages->unexpected;
    if (!unexpected)
        return NULL;
    unexpected->source = source;
    unexpected->tag = tag;
    unexpected->bytes = bytes;
    unexpected->data = malloc(bytes + 1);
    if (!unexpected->data) {
        free(unexpected);
        return NULL;
    }
    while (*link)
        link = &(*link)->next;
    *link = unexpected;
    return unexpected;
}

void ls_unexpected_drop(struct ls_comm_messages *messages, struct ls_unexpected *unexpected)
{
    struct ls_unexpected **link = &messages->unexpected;
    while (*link != unexpected)
        link = &(*link)->next;
    *link = unexpected->next;
    free(unexpected->data);
    free(unexpected);
}

// ---- Transfers ----

static struct ls_message_transfer *new_transfer(enum ls_message_transfer_kind kind, uint32_t peer)
{
    struct ls_message_transfer *transfer = calloc(1, sizeof(*transfer));
    if (!transfer)
        return NULL;
    transfer->kind = kind;
    transfer->peer = peer;
    return transfer;
}

static enum ls_status make_room(struct ls_comm_messages *messages)
{
    if (messages->transfer_count < messages->transfer_room)
        return LS_OK;
    const uint32_t room = 2 * messages->transfer_room + 16;
    struct ls_message_transfer **transfers =
        realloc(messages->transfers, room * sizeof(*transfers));
    if (!transfers)
        return LS_OUT_OF_MEMORY;
    messages->transfers = transfers;
    messages->transfer_room = room;
    return LS_OK;
}

// Takes the transfer. Only what the transport has is in the list.
static enum ls_status post(struct ls_comm_messages *messages, struct ls_message_transfer *transfer,
                           void *memory, uint64_t bytes, uint64_t number)
{
    const bool sends = transfer->kind <= LS_MESSAGE_REFUSAL;
    const uint32_t own = messages->comm->rank;
    transfer->posted = (struct ls_transfer){
        .struct_size = sizeof(transfer->posted),
        .kind = sends ? LS_TRANSFER_SEND : LS_TRANSFER_RECEIVE,
        .source = sends ? own : transfer->peer,
        .destination = sends ? transfer->peer : own,
        .receive_number = number,
        .send_number = number,
        .after = LS_TRANSFER_AT_ONCE,
        .signature = SIGNATURE,
        .memory = memory,
        .count = bytes,
        .dtype = LS_U8,
        .reduction = LS_SUM,
    };
    enum ls_status status = make_room(messages);
    if (!status)
        status = (enum ls_status)messages->interface->post(messages->endpoint, &transfer->posted);
    if (status)
        free(transfer);
    else
        messages->transfers[messages->transfer_count++] = transfer;
    return status;
}

enum ls_status ls_message_send_header(struct ls_comm_messages *messages, uint32_t peer,
                                      const struct ls_header *header,
                                      enum ls_message_transfer_kind kind,
                                      struct ls_message_transfer **out)
{
    struct ls_message_transfer *transfer = new_transfer(kind, peer);
    if (!transfer)
        return LS_OUT_OF_MEMORY;
    transfer->header = *header;
    const enum ls_status status = post(messages, transfer, &transfer->header,
                                       sizeof(transfer->header), messages->pairs[peer].next_send++);
    if (!status)
        *out = transfer;
    return status;
}

enum ls_status ls_message_send(struct ls_comm_messages *messages, struct ls_comm_work *work)
{
    const struct ls_comm_request *request = &work->request;
    struct ls_pair *pair = &messages->pairs[request->peer];
    struct ls_message_transfer *transfer;
    work->serial = pair->serial++;
    const struct ls_header header = {.kind = LS_HEADER_MESSAGE,
                                     .tag = request->tag,
                                     .bytes = request->count,
                                     .serial = work->serial};
    const enum ls_status status =
        ls_message_send_header(messages, request->peer, &header, LS_MESSAGE_HEADER, &transfer);
    if (status)
        return status;
    if (!request->count) {
        transfer->work = work; // over when the header was taken
        return LS_OK;
    }
    transfer = new_transfer(LS_MESSAGE_PAYLOAD, request->peer);
    if (!transfer)
        return LS_OUT_OF_MEMORY;
    transfer->work = work;
    return post(messages, transfer, request->mine, request->count, pair->next_send++);
}

enum ls_status ls_message_listen(struct ls_comm_messages *messages, uint32_t peer)
{
    struct ls_pair *pair = &messages->pairs[peer];
    struct ls_message_transfer *transfer = new_transfer(LS_MESSAGE_NEXT, peer);
    if (!transfer)
        return LS_OUT_OF_MEMORY;
    const enum ls_status status =
        post(messages, transfer, &transfer->header, sizeof(transfer->header), pair->next_receive++);
    pair->listens = !status;
    return status;
}

enum ls_status ls_message_receive(struct ls_comm_messages *messages, uint32_t peer, uint64_t number,
                                  struct ls_comm_work *work, struct ls_unexpected *unexpected)
{
    struct ls_message_transfer *transfer = new_transfer(LS_MESSAGE_COMING, peer);
    if (!transfer)
        return LS_OUT_OF_MEMORY;
    transfer->work = work;
    transfer->unexpected = unexpected;
    return post(messages, transfer, work ? work->request.mine : unexpected->data,
                work ? work->request.count : unexpected->bytes, number);
}

struct ls_message_transfer *ls_message_take_transfer(struct ls_comm_messages *messages,
                                                     uint32_t index)
{
    struct ls_message_transfer *transfer = messages->transfers[index];
    messages->transfer_count--;
    memmove(messages->transfers + index, messages->transfers + index + 1,
            (messages->transfer_count - index) * sizeof(*messages->transfers));
    return transfer;
}
