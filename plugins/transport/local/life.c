// SPDX-License-Identifier: Apache-2.0
// How endpoints end each other's sleep, and how one leaves while others may still use its memory.
#include "plugins/transport/local/local.h"

#include "core/plugin/waiting.h"

#include <sched.h>

// ---- Waking ----

static void wake(struct local_endpoint *endpoint)
{
    if (!atomic_load(&endpoint->sleeping) || !atomic_exchange(&endpoint->sleeping, 0))
        return;
    atomic_fetch_add(&endpoint->wakes, 1);
    ls_wake_word(&endpoint->wakes);
}

void local_wake(struct ls_transport *transport, uint32_t peer)
{
    wake(&transport->shared->endpoints[peer]);
}

void local_wake_all(struct local_shared *shared)
{
    for (uint32_t i = 0; i < shared->world; i++)
        wake(&shared->endpoints[i]);
}

void local_abort(struct ls_transport *transport)
{
    atomic_store(&transport->shared->aborted, 1);
    local_wake_all(transport->shared);
}

// ---- Leaving ----

// A peer is in the middle of a pass over memory of others and does not end it.
static int32_t give_up(struct ls_transport *transport, uint32_t peer)
{
    struct local_shared *shared = transport->shared;
    if (atomic_exchange(&shared->hangs, 1)) // was said
        return LS_PEER_LOST;
    return ls_host_fail(shared->host, LS_PEER_LOST,
                        "endpoint %u still reads memory of others %.1f s after endpoint %u left; "
                        "its thread hangs",
                        peer, (double)shared->patience_ns * 1e-9, transport->index);
}

int32_t local_leave(struct ls_transport *transport)
{
    struct local_shared *shared = transport->shared;
    const uint64_t begin = shared->host->clock_ns(shared->host);
    for (uint32_t i = 0; i < shared->world; i++)
        while (i != transport->index && atomic_load(&shared->endpoints[i].active)) {
            if (shared->host->clock_ns(shared->host) - begin > shared->patience_ns)
                return give_up(transport, i);
            sched_yield();
        }
    for (uint32_t i = 0; shared->places && i < shared->world; i++)
        local_device_leave(transport, i);
    return LS_ABORTED;
}

// Which peer it is is looked up only when any has left.
bool local_peer_left(const struct ls_transport *transport, const struct ls_transfer *transfer)
{
    const struct local_shared *shared = transport->shared;
    if (!atomic_load(&shared->closings))
        return false;
    const bool receives = transfer->kind != LS_TRANSFER_SEND;
    const bool sends = !receives || transfer->kind == LS_TRANSFER_RECEIVE_REDUCE_SEND;
    return (receives && atomic_load(&shared->endpoints[transfer->source].closed)) ||
           (sends && atomic_load(&shared->endpoints[transfer->destination].closed));
}

bool local_pass_begin(struct ls_transport *transport, const struct ls_transfer *transfer)
{
    struct local_endpoint *own = &transport->shared->endpoints[transport->index];
    atomic_store(&own->active, 1);
    if (!atomic_load(&transport->shared->aborted) && !local_peer_left(transport, transfer))
        return true;
    atomic_store_explicit(&own->active, 0, memory_order_release);
    return false;
}

void local_pass_end(struct ls_transport *transport)
{
    struct local_endpoint *own = &transport->shared->endpoints[transport->index];
    atomic_store_explicit(&own->active, 0, memory_order_release);
}
