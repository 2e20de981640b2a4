// SPDX-License-Identifier: Apache-2.0
// A peer from its first message to the end of its connection: its window, what is sent to it, and
// how it is lost.
#include "plugins/transport/ucx/ucx.h"

#include <sched.h>
#include <stdio.h>

void ucx_record_add(struct ucx_record *record, uint64_t number)
{
    record->bits |= UINT64_C(1) << (number - record->below);
    while (record->bits & 1) {
        record->bits >>= 1;
        record->below++;
    }
}

void ucx_list_add(struct ucx_list *list, struct ucx_operation *operation)
{
    operation->next = NULL;
    *list->end = operation;
    list->end = &operation->next;
}

void ucx_list_remove(struct ucx_list *list, struct ucx_operation *operation)
{
    struct ucx_operation **place = &list->first;
    while (*place && *place != operation)
        place = &(*place)->next;
    if (!*place)
        return;
    *place = operation->next;
    if (!*place)
        list->end = place;
}

struct ucx_peer *ucx_peer_get(struct ls_transport *transport, uint32_t index)
{
    struct ucx_peer *peer = transport->peers[index];
    if (peer)
        return peer;
    peer = ucx_allocate(transport->shared, sizeof(*peer));
    if (!peer)
        return NULL;
    peer->index = index;
    peer->transport = transport;
    peer->receives.end = &peer->receives.first;
    peer->sends.end = &peer->sends.first;
    peer->next = transport->used;
    transport->used = peer;
    transport->peers[index] = peer;
    return peer;
}

void ucx_peer_look(struct ucx_peer *peer)
{
    struct ls_transport *transport = peer->transport;
    if (peer->attention)
        return;
    peer->attention = true;
    peer->next_attention = transport->attention;
    transport->attention = peer;
}

void ucx_peer_lose(struct ucx_peer *peer)
{
    atomic_store(&peer->transport->lost[peer->index], 1);
    peer->closing = true;
    ucx_peer_look(peer);
}

// ---- Connections ----

// [callback of UCX] The process of the peer has ended, or its endpoint was closed.
static void connection_failed(void *argument, ucp_ep_h endpoint, ucs_status_t status)
{
    struct ucx_peer *peer = argument;
    const struct ucx_shared *shared = peer->transport->shared;
    char text[160];
    (void)endpoint;
    snprintf(text, sizeof(text), "endpoint %u: the connection with endpoint %u has ended: %s",
             peer->transport->index, peer->index, shared->library->ucs_status_string(status));
    shared->host->log(shared->host, LS_LOG_DEBUG, text);
    ucx_peer_lose(peer);
}

// False: it is lost.
static bool reach(struct ucx_peer *peer)
{
    struct ls_transport *transport = peer->transport;
    const struct ucx_shared *shared = transport->shared;
    const ucp_ep_params_t parameters = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)(shared->addresses + peer->index * shared->address_bytes),
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = connection_failed, .arg = peer},
    };
    if (peer->endpoint)
        return true;
    if (ucx_peer_is_lost(peer) || transport->given_up)
        return false;
    const ucs_status_t status =
        shared->library->ucp_ep_create(transport->worker, &parameters, &peer->endpoint);
    if (!status)
        return true;
    peer->endpoint = NULL;
    connection_failed(peer, NULL, status);
    return false;
}

// ---- Sending ----

void ucx_operation_look(struct ucx_operation *operation)
{
    if (operation->acknowledged && operation->parts == 0 && operation->status == LS_AGAIN)
        operation->status = LS_OK;
}

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
    if (!reach(peer))
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

// ---- Greetings ----

// UCX insists on it before the worker ends.
static void drop_flush(struct ucx_peer *peer)
{
    if (peer->flushing)
        peer->transport->shared->library->ucp_request_free(peer->flushing);
    peer->flushing = NULL;
}

bool ucx_peer_greet(struct ucx_peer *peer)
{
    static const struct ucx_header hello = {.kind = UCX_HELLO};
    return ucx_send(peer, &hello, NULL, 0, NULL);
}

// Everything is flushed on all ways that UCX has chosen to this peer, so they are there.
bool ucx_peer_get_ready(struct ucx_peer *peer)
{
    static const struct ucx_header ready = {.kind = UCX_READY};
    static const ucp_request_param_t parameters = {0};
    const struct ucx_library *library = peer->transport->shared->library;
    if (peer->told || !peer->greeted || !peer->endpoint)
        return peer->told;
    if (!peer->flushed) {
        void *request = library->ucp_ep_flush_nbx(peer->endpoint, &parameters);
        peer->flushed = true;
        if (UCS_PTR_IS_ERR(request))
            ucx_peer_lose(peer);
        peer->flushing = UCS_PTR_IS_PTR(request) ? request : NULL;
    }
    if (peer->flushing && library->ucp_request_check_status(peer->flushing) == UCS_INPROGRESS)
        return false;
    drop_flush(peer);
    peer->told = ucx_send(peer, &ready, NULL, 0, NULL);
    return peer->told;
}

// ---- Leaving ----

// An endpoint that leaves waits at most that long for UCX.
#define PATIENCE_NS UINT64_C(2000000000)

// What is still queued is dropped: to send it, UCX may need the peer, which need not listen any
// more.
void ucx_peer_disconnect(struct ucx_peer *peer)
{
    static const ucp_request_param_t parameters = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                                   .flags = UCP_EP_CLOSE_FLAG_FORCE};
    const struct ucx_library *library = peer->transport->shared->library;
    ucp_ep_h endpoint = peer->endpoint;
    peer->endpoint = NULL;
    if (!endpoint)
        return;
    void *request = library->ucp_ep_close_nbx(endpoint, &parameters);
    if (UCS_PTR_IS_PTR(request))
        peer->disconnecting = request;
}

static bool peer_is_disconnected(struct ucx_peer *peer)
{
    const struct ucx_library *library = peer->transport->shared->library;
    if (!peer->disconnecting)
        return true;
    if (library->ucp_request_check_status(peer->disconnecting) == UCS_INPROGRESS)
        return false;
    library->ucp_request_free(peer->disconnecting);
    peer->disconnecting = NULL;
    return true;
}

static bool is_disconnected(const struct ls_transport *transport)
{
    bool all = true;
    for (struct ucx_peer *peer = transport->used; peer; peer = peer->next)
        all = peer_is_disconnected(peer) && all;
    return all;
}

// False: the deadline has passed.
static bool progress_for(struct ls_transport *transport, uint64_t begin)
{
    const struct ucx_shared *shared = transport->shared;
    const uint64_t patience = shared->deadline_ns < PATIENCE_NS ? shared->deadline_ns : PATIENCE_NS;
    if (!shared->library->ucp_worker_progress(transport->worker))
        sched_yield();
    return shared->host->clock_ns(shared->host) - begin < patience;
}

bool ucx_disconnect(struct ls_transport *transport, bool gently)
{
    const struct ucx_shared *shared = transport->shared;
    const uint64_t begin = shared->host->clock_ns(shared->host);
    if (gently)
        ucx_acknowledge_all(transport);
    transport->given_up = true; // what arrives from now on is dropped
    while (gently && transport->acknowledging)
        gently = progress_for(transport, begin);
    for (struct ucx_peer *peer = transport->used; peer; peer = peer->next)
        ucx_peer_disconnect(peer);
    bool patient = true, all = is_disconnected(transport);
    while (!all && patient) {
        patient = progress_for(transport, begin);
        all = is_disconnected(transport);
    }
    for (struct ucx_peer *peer = transport->used; peer; peer = peer->next) {
        if (peer->disconnecting) // UCX insists on it before the worker ends
            shared->library->ucp_request_free(peer->disconnecting);
        drop_flush(peer);
    }
    return all;
}

int32_t ucx_give_up(struct ls_transport *transport)
{
    if (transport->given_up)
        return transport->stuck ? LS_PEER_LOST : LS_ABORTED;
    transport->stuck = !ucx_disconnect(transport, false);
    if (!transport->stuck)
        return LS_ABORTED;
    return ls_host_fail(transport->shared->host, LS_PEER_LOST,
                        "endpoint %u: UCX still has connections after an abort; memory that is "
                        "being sent may be read until the process ends",
                        transport->index);
}
