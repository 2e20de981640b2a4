// SPDX-License-Identifier: Apache-2.0
// How an endpoint waits until a transfer can go on.
#include "plugins/transport/local/local.h"

#include "core/plugin/waiting.h"

// Between spinning and sleeping; a yield costs little where the peer needs this very core.
#define YIELDS 500

// A sleeper looks this often by itself, because the end of a pushed message, which frees a slot of
// the window, wakes nobody. Only what is a whole window ahead of its peer ever waits for that.
#define WINDOW_POLL_NS UINT64_C(1000000)

uint32_t local_choose_spins(uint32_t world)
{
    return ls_ranks_have_cores(world, world) ? LS_SPINS_OWN_CORE : LS_SPINS_SHARED_CORE;
}

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
    if (timeout_ns > WINDOW_POLL_NS && any_waits_for_window(transfers, count))
        timeout_ns = WINDOW_POLL_NS;
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
