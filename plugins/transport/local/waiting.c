// SPDX-License-Identifier: Apache-2.0
// Who waits for a peer, who is woken, and how an endpoint leaves.
#include "plugins/transport/local/local.h"

#include "core/plugin/waiting.h"

#include <sched.h>

// Between spinning and sleeping; a yield costs little where the peer needs this very core.
#define YIELDS 500

// A sleeper looks this often by itself, because the end of a pushed message, which frees a slot of the window, wakes
// nobody. Only what is a whole window ahead of its peer ever waits for that.
#define WINDOW_GLANCE_NS UINT64_C(1000000)

uint32_t local_choose_spins(uint32_t world)
{
    return ls_ranks_have_cores(world, world) ? LS_SPINS_OWN_CORE : LS_SPINS_SHARED_CORE;
}

// ---- Waking and leaving ----

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

// ---- Waiting ----

static bool any_ready(struct ls_transport *transport, struct ls_transfer *const *transfers,
                      uint64_t count)
{
    if (atomic_load(&transport->shared->aborted))
        return true;
    for (uint64_t i = 0; i < count; i++)
        if (local_is_ready(transport, transfers[i]) || local_peer_left(transport, transfers[i]))
            return true;
    return false;
}

static bool any_waits_for_window(struct ls_transfer *const *transfers, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (STAGE(transfers[i]) == STAGE_UNPUBLISHED)
            return true;
    return false;
}

static void sleep_once(struct ls_transport *transport, struct ls_transfer *const *transfers,
                       uint64_t count, uint64_t timeout_ns)
{
    struct local_endpoint *own = &transport->shared->endpoints[transport->index];
    if (timeout_ns > WINDOW_GLANCE_NS && any_waits_for_window(transfers, count))
        timeout_ns = WINDOW_GLANCE_NS;
    const uint32_t seen = atomic_load(&own->wakes);
    atomic_store(&own->sleeping, 1);
    if (!any_ready(transport, transfers, count))
        ls_wait_word(&own->wakes, seen, timeout_ns);
    atomic_store(&own->sleeping, 0);
}

int32_t local_wait_any(struct ls_transport *transport, struct ls_transfer *const *transfers,
                       uint64_t count, uint64_t timeout_ns)
{
    struct local_shared *shared = transport->shared;
    bool ready = any_ready(transport, transfers, count);
    for (uint32_t i = 0; !ready && timeout_ns && ls_pause(i, shared->spins, YIELDS); i++)
        ready = any_ready(transport, transfers, count);
    if (!ready && timeout_ns) {
        const uint64_t begin = shared->host->clock_ns(shared->host);
        for (uint64_t waited = 0; !ready && waited < timeout_ns;) {
            sleep_once(transport, transfers, count, timeout_ns - waited);
            ready = any_ready(transport, transfers, count);
            waited = shared->host->clock_ns(shared->host) - begin;
        }
    }
    if (atomic_load(&shared->aborted))
        return local_leave(transport);
    return ready ? LS_OK : LS_AGAIN;
}

void local_abort(struct ls_transport *transport)
{
    atomic_store(&transport->shared->aborted, 1);
    local_wake_all(transport->shared);
}
