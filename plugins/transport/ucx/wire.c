// SPDX-License-Identifier: Apache-2.0
// Between messages and UCX: headers, parts on their way, and what arrives.
#include "plugins/transport/ucx/ucx.h"

// ---- Out ----

static bool is_greeting(uint32_t kind)
{
    return kind == UCX_HELLO || kind == UCX_READY;
}

// [callback of UCX] It no longer reads the memory of the part.
static void part_ended(void *request, ucs_status_t status, void *argument)
{
    struct ucx_part *part = argument;
    struct ls_transport *transport = part->peer->transport;
    transport->acknowledging -= part->header.kind == UCX_ACKNOWLEDGE;
    transport->greeting -= is_greeting(part->header.kind);
    if (status)
        ucx_peer_lose(part->peer);
    if (part->operation) {
        part->operation->parts--;
        transport->lent--;
        ucx_operation_look(part->operation);
        ucx_peer_look(part->peer);
    }
    ucx_part_release(transport, part);
    transport->shared->library->ucp_request_free(request);
}

bool ucx_send(struct ucx_peer *peer, const struct ucx_header *header, const void *data,
              uint64_t bytes, struct ucx_operation *operation)
{
    struct ls_transport *transport = peer->transport;
    const struct ucx_library *library = transport->shared->library;
    if (!ucx_peer_connect(peer))
        return false;
    struct ucx_part *part = ucx_part_take(transport);
    if (!part) {
        transport->out_of_memory = true;
        return false;
    }
    part->operation = operation;
    part->peer = peer;
    part->header = *header;
    part->header.token = transport->shared->tokens[peer->index];
    part->header.source = transport->index;
    part->header.consumed_below = peer->received.below;
    part->header.consumed = peer->received.bits;
    peer->acknowledge = false;
    const ucp_request_param_t parameters = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .flags = UCP_AM_SEND_FLAG_EAGER,
        .cb = {.send = part_ended},
        .user_data = part,
    };
    void *request = library->ucp_am_send_nbx(peer->endpoint, UCX_MESSAGE_ID, &part->header,
                                             sizeof(part->header), data, bytes, &parameters);
    if (UCS_PTR_IS_PTR(request)) {
        transport->acknowledging += header->kind == UCX_ACKNOWLEDGE;
        transport->greeting += is_greeting(header->kind);
        if (operation) {
            operation->parts++;
            transport->lent++;
        }
        return true;
    }
    ucx_part_release(transport, part);
    if (UCS_PTR_IS_ERR(request))
        ucx_peer_lose(peer);
    return !UCS_PTR_IS_ERR(request);
}

void ucx_acknowledge_all(struct ls_transport *transport)
{
    const struct ucx_header header = {.kind = UCX_ACKNOWLEDGE};
    for (struct ucx_peer *peer = transport->used; peer; peer = peer->next)
        if (peer->acknowledge && !ucx_peer_is_lost(peer))
            (void)ucx_send(peer, &header, NULL, 0, NULL);
}

// ---- In ----

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
        ucx_deliver(peer, &header, data, bytes);
    return UCS_OK;
}
