// SPDX-License-Identifier: Apache-2.0
// A transfer from post to its end, and the messages that arrive for it.
#include "plugins/transport/ucx/ucx.h"

static struct ucx_operation *operation_of(const struct ls_transfer *transfer)
{
    return (struct ucx_operation *)(uintptr_t)transfer->own[0];
}

static bool passes_on(const struct ls_transfer *transfer)
{
    return transfer->kind == LS_TRANSFER_RECEIVE_REDUCE_SEND;
}

// ---- Receiving ----

#define BLOCK_BYTES 4096

// What arrives over TCP is seldom aligned to its elements, so it is reduced by way of a small block
// that is.
static void reduce(const struct local_kernels *kernels, const struct ls_transfer *transfer,
                   char *memory, const char *data, uint64_t bytes)
{
    const uint64_t size = ls_dtype_bytes(transfer->dtype);
    void (*const function)(void *, const void *, uint64_t) =
        kernels->reduce[transfer->dtype][transfer->reduction];
    _Alignas(64) char block[BLOCK_BYTES];
    if ((uintptr_t)data % size == 0) {
        function(memory, data, bytes / size);
        return;
    }
    for (uint64_t done = 0; done < bytes; done += BLOCK_BYTES) {
        const uint64_t part = bytes - done < BLOCK_BYTES ? bytes - done : BLOCK_BYTES;
        memcpy(block, data + done, part);
        function(memory + done, block, part / size);
    }
}

static void consume(struct ucx_peer *peer, struct ucx_operation *operation)
{
    const uint64_t number = operation->transfer->receive_number;
    peer->incoming[number % UCX_WINDOW] = (struct ucx_incoming){0};
    ucx_record_add(&peer->received, number);
    peer->acknowledge = true;
    operation->receive_ended = true;
    if (!passes_on(operation->transfer))
        operation->status = LS_OK;
    if (peer->receives.first) // the window has moved
        ucx_peer_look(peer);
}

static void receive_part(struct ucx_peer *peer, struct ucx_operation *operation,
                         const struct ucx_header *header, const void *data, uint64_t bytes)
{
    struct ls_transfer *transfer = operation->transfer;
    const uint64_t size = ls_dtype_bytes(transfer->dtype);
    const bool fits = header->bytes == operation->bytes &&
                      header->signature == transfer->signature && header->offset % size == 0 &&
                      bytes % size == 0 && bytes <= operation->bytes - operation->received &&
                      header->offset <= operation->bytes - bytes;
    if (operation->status != LS_AGAIN)
        return;
    if (!fits) {
        operation->status = LS_FAILED;
        return;
    }
    char *memory = (char *)transfer->memory + header->offset;
    if (bytes && transfer->kind == LS_TRANSFER_RECEIVE)
        memcpy(memory, data, bytes);
    else if (bytes)
        reduce(peer->transport->shared->kernels, transfer, memory, data, bytes);
    operation->scattered |= header->offset != operation->received;
    operation->received += bytes;
    if (operation->received == operation->bytes)
        consume(peer, operation);
    if (operation->destination)
        ucx_peer_look(operation->destination);
}

// Only the first part comes before the receive is posted.
static void keep(struct ucx_peer *peer, struct ucx_incoming *slot, const struct ucx_header *header,
                 const void *data, uint64_t bytes)
{
    if (slot->early || header->offset || bytes > UCX_EARLY_BYTES || bytes > header->bytes)
        return;
    slot->early = ucx_early_take(peer->transport);
    if (!slot->early) {
        peer->transport->out_of_memory = true;
        return;
    }
    slot->early->part_bytes = bytes;
    slot->early->bytes = header->bytes;
    slot->early->signature = header->signature;
    if (bytes)
        memcpy(slot->early->data, data, bytes);
}

// A part of message `header->number`, which is in the window, has arrived.
static void deliver(struct ucx_peer *peer, const struct ucx_header *header, const void *data,
                    uint64_t bytes)
{
    struct ucx_incoming *slot = &peer->incoming[header->number % UCX_WINDOW];
    if (slot->operation && !slot->operation->after)
        receive_part(peer, slot->operation, header, data, bytes);
    else
        keep(peer, slot, header, data, bytes);
}

static void take_early(struct ucx_peer *peer, struct ucx_operation *operation)
{
    struct ucx_incoming *slot = &peer->incoming[operation->transfer->receive_number % UCX_WINDOW];
    struct ucx_early *early = slot->early;
    if (!early)
        return;
    const struct ucx_header header = {.bytes = early->bytes, .signature = early->signature};
    slot->early = NULL;
    receive_part(peer, operation, &header, early->data, early->part_bytes);
    ucx_early_release(peer->transport, early);
}

// The peer, or UCX, has read all of message `number` to this peer.
static bool was_read(const struct ucx_peer *peer, uint64_t number)
{
    const struct ucx_operation *operation = peer->outgoing[number % UCX_WINDOW].operation;
    if (ucx_record_has(&peer->sent, number))
        return true;
    return operation && operation->transfer->send_number == number && operation->begun &&
           operation->given == operation->bytes && operation->parts == 0;
}

// True: nothing keeps its message from being received any more.
static bool begin_receive(struct ucx_peer *peer, struct ucx_operation *operation)
{
    const struct ls_transfer *transfer = operation->transfer;
    if (!operation->bound) {
        if (!ucx_record_reaches(&peer->received, transfer->receive_number))
            return false;
        peer->incoming[transfer->receive_number % UCX_WINDOW].operation = operation;
        operation->bound = true;
    }
    if (operation->after && !was_read(peer, transfer->after))
        return false;
    operation->after = false;
    const struct ucx_header want = {.kind = UCX_WANT,
                                    .number = transfer->receive_number,
                                    .bytes = operation->bytes,
                                    .signature = transfer->signature};
    if (operation->bytes > UCX_EARLY_BYTES)
        (void)ucx_send(peer, &want, NULL, 0, NULL);
    return true;
}

// ---- Sending ----

// What of the message is in its memory. Parts that came out of order are not sent on before all are
// there.
static uint64_t available(const struct ucx_operation *operation)
{
    if (!operation->source || operation->receive_ended)
        return operation->bytes;
    return operation->scattered ? operation->given : operation->received;
}

static bool send_part(struct ucx_peer *peer, struct ucx_operation *operation, uint64_t bytes)
{
    const struct ls_transfer *transfer = operation->transfer;
    const struct ucx_header header = {.kind = UCX_DATA,
                                      .number = transfer->send_number,
                                      .signature = transfer->signature,
                                      .bytes = operation->bytes,
                                      .offset = operation->given};
    if (!ucx_send(peer, &header, (const char *)transfer->memory + operation->given, bytes,
                  operation))
        return false;
    operation->given += bytes;
    operation->begun = true;
    return true;
}

// True: UCX has been given all of it, or it is over.
static bool advance_send(struct ucx_peer *peer, struct ucx_operation *operation)
{
    const struct ls_transfer *transfer = operation->transfer;
    if (!operation->send_bound && !ucx_record_reaches(&peer->sent, transfer->send_number))
        return false;
    struct ucx_outgoing *slot = &peer->outgoing[transfer->send_number % UCX_WINDOW];
    slot->operation = operation;
    operation->send_bound = true;
    const bool differs = slot->wanted && (slot->wanted_bytes != operation->bytes ||
                                          slot->wanted_signature != transfer->signature);
    const uint64_t bytes = operation->bytes;
    const uint64_t early = bytes < UCX_EARLY_BYTES ? bytes : UCX_EARLY_BYTES;
    const uint64_t most = slot->wanted && !differs ? bytes : early;
    const uint64_t there = available(operation);
    while (operation->parts < UCX_PARTS_UNDER_WAY &&
           (operation->given < most || !operation->begun)) {
        const uint64_t left = most - operation->given;
        const uint64_t part = left < UCX_PART_BYTES ? left : UCX_PART_BYTES;
        const bool is_there = bytes ? there >= operation->given + part
                                    : !operation->source || operation->receive_ended;
        if (!is_there || !send_part(peer, operation, part))
            return false;
    }
    if (differs && operation->begun) // the peer sees that, too
        operation->status = LS_FAILED;
    return (operation->begun && operation->given == bytes) || operation->status != LS_AGAIN;
}

// Moves on all that waits for this peer.
static void advance(struct ucx_peer *peer)
{
    struct ucx_operation *next;
    if (peer->closing && peer->endpoint)
        ucx_peer_disconnect(peer);
    if (peer->greeted && !peer->endpoint)
        (void)ucx_peer_greet(peer);
    for (struct ucx_operation *operation = peer->receives.first; operation; operation = next) {
        next = operation->next;
        if (!begin_receive(peer, operation))
            continue;
        ucx_list_remove(&peer->receives, operation);
        if (operation->destination) {
            ucx_list_add(&operation->destination->sends, operation);
            ucx_peer_look(operation->destination);
        }
        take_early(peer, operation);
    }
    for (struct ucx_operation *operation = peer->sends.first; operation; operation = next) {
        next = operation->next;
        if (advance_send(peer, operation))
            ucx_list_remove(&peer->sends, operation);
    }
}

// ---- What arrives ----

// What the peer says it has consumed. Headers may come out of order, so an old one may know less.
static void note_consumed(struct ucx_peer *peer, const struct ucx_record *news)
{
    const uint64_t first = peer->sent.below;
    if (news->below == first && news->bits == peer->sent.bits)
        return;
    for (uint64_t number = first; number < first + UCX_WINDOW; number++) {
        if (ucx_record_has(&peer->sent, number) || !ucx_record_has(news, number))
            continue;
        struct ucx_outgoing *slot = &peer->outgoing[number % UCX_WINDOW];
        struct ucx_operation *operation = slot->operation;
        *slot = (struct ucx_outgoing){0};
        ucx_record_add(&peer->sent, number);
        if (operation) {
            operation->acknowledged = true;
            ucx_operation_look(operation);
        }
    }
    ucx_peer_look(peer);
}

static void note_wanted(struct ucx_peer *peer, const struct ucx_header *header)
{
    struct ucx_outgoing *slot = &peer->outgoing[header->number % UCX_WINDOW];
    if (!ucx_record_reaches(&peer->sent, header->number) ||
        ucx_record_has(&peer->sent, header->number))
        return;
    slot->wanted = true;
    slot->wanted_bytes = header->bytes;
    slot->wanted_signature = header->signature;
    ucx_peer_look(peer);
}

static void note_hello(struct ucx_peer *peer)
{
    peer->transport->greeted += !peer->greeted;
    peer->greeted = true;
    ucx_peer_look(peer);
}

static void note_ready(struct ucx_peer *peer)
{
    peer->transport->ready += !peer->ready;
    peer->ready = true;
}

ucs_status_t ucx_receive(void *argument, const void *header_bytes, size_t header_length, void *data,
                         size_t bytes, const ucp_am_recv_param_t *parameters)
{
    struct ls_transport *transport = argument;
    const struct ucx_shared *shared = transport->shared;
    struct ucx_header header;
    if (header_length != sizeof(header) || transport->given_up ||
        parameters->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)
        return UCS_OK;
    memcpy(&header, header_bytes, sizeof(header));
    if (header.token != shared->tokens[transport->index] || header.source >= shared->world)
        return UCS_OK; // a stranger
    struct ucx_peer *peer = ucx_peer_get(transport, header.source);
    if (!peer) {
        transport->out_of_memory = true;
        return UCS_OK;
    }
    note_consumed(peer, &(struct ucx_record){header.consumed_below, header.consumed});
    if (header.kind == UCX_HELLO)
        note_hello(peer);
    else if (header.kind == UCX_READY)
        note_ready(peer);
    else if (header.kind == UCX_WANT)
        note_wanted(peer, &header);
    else if (header.kind == UCX_DATA && ucx_record_reaches(&peer->received, header.number) &&
             !ucx_record_has(&peer->received, header.number))
        deliver(peer, &header, data, bytes);
    return UCS_OK;
}

void ucx_progress(struct ls_transport *transport)
{
    transport->shared->library->ucp_worker_progress(transport->worker);
    while (transport->attention) {
        struct ucx_peer *peer = transport->attention;
        transport->attention = peer->next_attention;
        peer->attention = false;
        advance(peer);
    }
    ucx_acknowledge_all(transport); // the owner may not come back for a while
    transport->turn++;
}

// ---- Ends ----

static bool has_lost_peer(const struct ucx_operation *operation)
{
    const struct ucx_peer *source = operation->source, *destination = operation->destination;
    return (source && !operation->receive_ended && ucx_peer_is_lost(source)) ||
           (destination && !operation->acknowledged && ucx_peer_is_lost(destination));
}

// What the operation ends with, when that is known; LS_AGAIN: not yet. UCX may still read the
// memory of a failed one.
static int32_t result_of(const struct ucx_operation *operation)
{
    if (operation->parts && operation->status != LS_OK)
        return LS_AGAIN;
    if (operation->status == LS_AGAIN && has_lost_peer(operation))
        return LS_PEER_LOST;
    return operation->status;
}

static void forget(struct ucx_operation *operation)
{
    const struct ls_transfer *transfer = operation->transfer;
    struct ucx_peer *source = operation->source, *destination = operation->destination;
    if (source) {
        struct ucx_incoming *slot = &source->incoming[transfer->receive_number % UCX_WINDOW];
        ucx_list_remove(&source->receives, operation);
        if (slot->operation == operation)
            slot->operation = NULL;
    }
    if (destination) {
        struct ucx_outgoing *slot = &destination->outgoing[transfer->send_number % UCX_WINDOW];
        ucx_list_remove(&destination->sends, operation);
        if (slot->operation == operation)
            slot->operation = NULL;
    }
}

static int32_t finish(struct ls_transport *transport, struct ls_transfer *transfer, int32_t status)
{
    struct ucx_operation *operation = operation_of(transfer);
    forget(operation);
    transfer->own[0] = 0;
    ucx_operation_release(transport, operation);
    if (status == LS_FAILED)
        transfer->state = LS_TRANSFER_MISMATCH;
    else if (!status)
        transfer->state = LS_TRANSFER_COMPLETE;
    return status;
}

bool ucx_is_ready(const struct ls_transport *transport, const struct ls_transfer *transfer)
{
    const struct ucx_operation *operation = operation_of(transfer);
    return !operation || transport->out_of_memory || result_of(operation) != LS_AGAIN ||
           (operation->receive_ended && transfer->state == LS_TRANSFER_PENDING);
}

int32_t ucx_test(struct ls_transport *transport, struct ls_transfer *transfer)
{
    struct ucx_operation *operation = operation_of(transfer);
    const struct ucx_shared *shared = transport->shared;
    if (!operation)
        return transfer->state == LS_TRANSFER_MISMATCH ? LS_FAILED : LS_OK;
    if (atomic_load_explicit(&shared->aborted, memory_order_relaxed))
        return ucx_give_up(transport);
    // A caller that tests many transfers in turn asks UCX for news once a turn.
    if (operation->status == LS_AGAIN && operation->turn == transport->turn)
        ucx_progress(transport);
    operation->turn = transport->turn;
    if (transport->out_of_memory)
        return ls_host_fail(shared->host, LS_OUT_OF_MEMORY,
                            "endpoint %u: no memory for messages that arrive", transport->index);
    const int32_t status = result_of(operation);
    if (status != LS_AGAIN)
        return finish(transport, transfer, status);
    if (operation->receive_ended)
        transfer->state = LS_TRANSFER_REDUCED;
    return LS_AGAIN;
}

static int32_t post_without_peer(const struct ls_transport *transport, struct ls_transfer *transfer)
{
    const struct local_kernels *kernels = transport->shared->kernels;
    if (transfer->kind == LS_TRANSFER_COPY)
        memcpy(transfer->memory, transfer->from, transfer->count * ls_dtype_bytes(transfer->dtype));
    else if (transfer->kind == LS_TRANSFER_DIVIDE)
        kernels->divide[transfer->dtype](transfer->memory, transfer->count, transfer->divisor);
    else
        kernels->reduce[transfer->dtype][transfer->reduction](transfer->memory, transfer->from,
                                                              transfer->count);
    transfer->own[0] = 0;
    transfer->state = LS_TRANSFER_COMPLETE;
    return LS_OK;
}

int32_t ucx_post(struct ls_transport *transport, struct ls_transfer *transfer)
{
    const uint32_t kind = transfer->kind;
    if (kind >= LS_TRANSFER_REDUCE)
        return post_without_peer(transport, transfer);
    if (atomic_load_explicit(&transport->shared->aborted, memory_order_relaxed))
        return ucx_give_up(transport);
    struct ucx_operation *operation = ucx_operation_take(transport);
    const bool receives = kind != LS_TRANSFER_SEND;
    const bool sends = kind == LS_TRANSFER_SEND || passes_on(transfer);
    if (!operation)
        return LS_OUT_OF_MEMORY;
    operation->transfer = transfer;
    operation->bytes = transfer->count * ls_dtype_bytes(transfer->dtype);
    operation->source = receives ? ucx_peer_get(transport, transfer->source) : NULL;
    operation->destination = sends ? ucx_peer_get(transport, transfer->destination) : NULL;
    operation->after = kind == LS_TRANSFER_RECEIVE && transfer->after != LS_TRANSFER_AT_ONCE;
    if ((receives && !operation->source) || (sends && !operation->destination)) {
        ucx_operation_release(transport, operation);
        return LS_OUT_OF_MEMORY;
    }
    transfer->own[0] = (uintptr_t)operation;
    transfer->state = LS_TRANSFER_PENDING;
    struct ucx_peer *peer = receives ? operation->source : operation->destination;
    ucx_list_add(receives ? &peer->receives : &peer->sends, operation);
    advance(peer); // at once, so that the peer sees it before this endpoint does anything else
    ucx_acknowledge_all(transport);
    if (operation->status == LS_OK)
        (void)finish(transport, transfer, LS_OK);
    return LS_OK;
}
