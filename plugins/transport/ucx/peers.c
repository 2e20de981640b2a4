// SPDX-License-Identifier: Apache-2.0
// Peers: their windows, the lists of what waits for them, and how they are lost.
#include "plugins/transport/ucx/ucx.h"

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

bool ucx_peer_connect(struct ucx_peer *peer)
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
    ucx_peer_drop_flush(peer);
    peer->told = ucx_send(peer, &ready, NULL, 0, NULL);
    return peer->told;
}

// UCX insists on it before the worker ends.
void ucx_peer_drop_flush(struct ucx_peer *peer)
{
    if (peer->flushing)
        peer->transport->shared->library->ucp_request_free(peer->flushing);
    peer->flushing = NULL;
}

// What is still queued is dropped: to send it, UCX may need the peer, which need not listen any more.
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

bool ucx_peer_is_disconnected(struct ucx_peer *peer)
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
