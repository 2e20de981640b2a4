// SPDX-License-Identifier: Apache-2.0
// Transfers of messages: headers and payloads, the list of those that the transport has, and memory
// for payloads that nobody waits for.
#include "core/comm/messages.h"

#include <stdlib.h>
#include <string.h>

#define SIGNATURE UINT64_C(0x6d65737361676531) // of all transfers: sizes are in headers

// ---- Strays ----

struct ls_stray *ls_stray_add(struct ls_comm_messages *messages, uint32_t source, uint64_t tag,
                              uint64_t bytes)
{
    struct ls_stray *stray = calloc(1, sizeof(*stray)), **link = &messages->strays;
    if (!stray)
        return NULL;
    stray->source = source;
    stray->tag = tag;
    stray->bytes = bytes;
    stray->data = malloc(bytes + 1);
    if (!stray->data) {
        free(stray);
        return NULL;
    }
    while (*link)
        link = &(*link)->next;
    *link = stray;
    return stray;
}

void ls_stray_drop(struct ls_comm_messages *messages, struct ls_stray *stray)
{
    struct ls_stray **link = &messages->strays;
    while (*link != stray)
        link = &(*link)->next;
    *link = stray->next;
    free(stray->data);
    free(stray);
}

// ---- Flights ----

static struct ls_flight *new_flight(enum ls_flight_kind kind, uint32_t peer)
{
    struct ls_flight *flight = calloc(1, sizeof(*flight));
    if (!flight)
        return NULL;
    flight->kind = kind;
    flight->peer = peer;
    return flight;
}

static enum ls_status make_room(struct ls_comm_messages *messages)
{
    if (messages->flight_count < messages->flight_room)
        return LS_OK;
    const uint32_t room = 2 * messages->flight_room + 16;
    struct ls_flight **flights = realloc(messages->flights, room * sizeof(*flights));
    if (!flights)
        return LS_OUT_OF_MEMORY;
    messages->flights = flights;
    messages->flight_room = room;
    return LS_OK;
}

// Takes the flight. Only what the transport has is in the list.
static enum ls_status post(struct ls_comm_messages *messages, struct ls_flight *flight,
                           void *memory, uint64_t bytes, uint64_t number)
{
    const bool sends = flight->kind <= LS_FLIGHT_REFUSAL;
    const uint32_t own = messages->comm->rank;
    flight->transfer = (struct ls_transfer){
        .struct_size = sizeof(flight->transfer),
        .kind = sends ? LS_TRANSFER_SEND : LS_TRANSFER_RECEIVE,
        .source = sends ? own : flight->peer,
        .destination = sends ? flight->peer : own,
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
        status = (enum ls_status)messages->interface->post(messages->endpoint, &flight->transfer);
    if (status)
        free(flight);
    else
        messages->flights[messages->flight_count++] = flight;
    return status;
}

enum ls_status ls_flight_send_header(struct ls_comm_messages *messages, uint32_t peer,
                                     const struct ls_header *header, enum ls_flight_kind kind,
                                     struct ls_flight **out)
{
    struct ls_flight *flight = new_flight(kind, peer);
    if (!flight)
        return LS_OUT_OF_MEMORY;
    flight->header = *header;
    const enum ls_status status = post(messages, flight, &flight->header, sizeof(flight->header),
                                       messages->pairs[peer].next_send++);
    if (!status)
        *out = flight;
    return status;
}

enum ls_status ls_flight_send(struct ls_comm_messages *messages, struct ls_comm_work *work)
{
    const struct ls_comm_request *request = &work->request;
    struct ls_pair *pair = &messages->pairs[request->peer];
    struct ls_flight *flight;
    work->serial = pair->serial++;
    const struct ls_header header = {.kind = LS_HEADER_MESSAGE,
                                     .tag = request->tag,
                                     .bytes = request->count,
                                     .serial = work->serial};
    const enum ls_status status =
        ls_flight_send_header(messages, request->peer, &header, LS_FLIGHT_HEADER, &flight);
    if (status)
        return status;
    if (!request->count) {
        flight->work = work; // over when the header was taken
        return LS_OK;
    }
    flight = new_flight(LS_FLIGHT_PAYLOAD, request->peer);
    if (!flight)
        return LS_OUT_OF_MEMORY;
    flight->work = work;
    return post(messages, flight, request->mine, request->count, pair->next_send++);
}

enum ls_status ls_flight_listen(struct ls_comm_messages *messages, uint32_t peer)
{
    struct ls_pair *pair = &messages->pairs[peer];
    struct ls_flight *flight = new_flight(LS_FLIGHT_NEXT, peer);
    if (!flight)
        return LS_OUT_OF_MEMORY;
    const enum ls_status status =
        post(messages, flight, &flight->header, sizeof(flight->header), pair->next_receive++);
    pair->listens = !status;
    return status;
}

enum ls_status ls_flight_receive(struct ls_comm_messages *messages, uint32_t peer, uint64_t number,
                                 struct ls_comm_work *work, struct ls_stray *stray)
{
    struct ls_flight *flight = new_flight(LS_FLIGHT_COMING, peer);
    if (!flight)
        return LS_OUT_OF_MEMORY;
    flight->work = work;
    flight->stray = stray;
    return post(messages, flight, work ? work->request.mine : stray->data,
                work ? work->request.count : stray->bytes, number);
}

struct ls_flight *ls_flight_take(struct ls_comm_messages *messages, uint32_t index)
{
    struct ls_flight *flight = messages->flights[index];
    messages->flight_count--;
    memmove(messages->flights + index, messages->flights + index + 1,
            (messages->flight_count - index) * sizeof(*messages->flights));
    return flight;
}
