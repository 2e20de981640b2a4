// SPDX-License-Identifier: Apache-2.0
// Who waits for a peer, who is woken, and how an endpoint leaves.
#include "plugins/transport/shared-memory/shared_memory.h"

#include "core/plugin/waiting.h"

#include <sched.h>
#include <string.h>

// Between spinning and sleeping. Where other programs need the cores, a yield takes as long as their turns, and a thread that
// sleeps is given a core sooner than one that yields.
#define YIELD_NS UINT64_C(100000)

// A sleeper looks this often by itself, because the end of a pushed message, which frees a slot of the window, wakes
// nobody. Only what is a whole window ahead of its peer ever waits for that.
#define WINDOW_GLANCE_NS UINT64_C(1000000)
// And this often whether its peers live: a process that dies wakes nobody.
#define LIFE_GLANCE_NS UINT64_C(20000000)
#define LIFE_GLANCE_YIELDS 64

// The cores of all processes together: each may be bound to one of its own.
uint32_t shm_choose_spins(const struct shm_shared *shared)
{
    unsigned char all[SHM_CORES_BYTES] = {0};
    uint32_t available = 0;
    for (uint32_t i = 0; i < shared->process_count; i++)
        for (size_t k = 0; k < sizeof(all); k++)
            all[k] |= shared->processes[i].card.cores[k];
    for (size_t k = 0; k < sizeof(all); k++)
        available += (uint32_t)__builtin_popcount(all[k]);
    return ls_spins(shared->world, available);
}

// ---- Waking and leaving ----

void shm_wake(const struct shm_shared *shared, uint32_t endpoint)
{
    struct shm_endpoint *sleeper = shared->endpoints[endpoint];
    uint32_t how = atomic_load(&sleeper->sleeping);
    if (how)
        how = atomic_exchange(&sleeper->sleeping, 0);
    if (how == SHM_ARMED)
        shm_wake_armed(shared, sleeper);
    if (how != SHM_SLEEPING)
        return;
    atomic_fetch_add(&sleeper->wakes, 1);
    ls_wake_shared_word(&sleeper->wakes);
}

void shm_wake_all(const struct shm_shared *shared)
{
    for (uint32_t i = 0; i < shared->world; i++)
        shm_wake(shared, i);
}

void shm_tell_departure(struct shm_shared *shared)
{
    for (uint32_t i = 0; i < shared->process_count; i++) {
        struct shm_header *header = (struct shm_header *)(void *)shared->processes[i].arena;
        atomic_fetch_add(&header->departures, 1);
    }
    shm_wake_all(shared);
}

bool shm_is_gone(const struct shm_shared *shared, uint32_t endpoint)
{
    return atomic_load(&shared->endpoints[endpoint]->closed) ||
           atomic_load(&shared->processes[shared->process_of[endpoint]].lost);
}

// A peer is in the middle of a pass over memory of others and does not end it.
static int32_t give_up(struct ls_transport *transport, uint32_t peer)
{
    struct shm_shared *shared = transport->shared;
    if (shared->process_of[peer] == shared->self)
        atomic_store(&shared->hangs, 1);
    if (atomic_exchange(&shared->hung[peer], 1)) // was said
        return LS_PEER_LOST;
    return ls_host_fail(shared->host, LS_PEER_LOST,
                        "endpoint %u still uses memory of others %.1f s after endpoint %u left; "
                        "its thread or process hangs",
                        peer, (double)shared->patience_ns * 1e-9, transport->index);
}

// A process that has died touches nothing any more, whatever it was about to do.
static bool is_active(const struct shm_shared *shared, uint32_t peer)
{
    return atomic_load(&shared->endpoints[peer]->active) &&
           !atomic_load(&shared->processes[shared->process_of[peer]].lost);
}

// Says in all processes that this is over. Whoever aborts may die before the last of them hears of it.
static void tell_abort(struct shm_shared *shared)
{
    for (uint32_t i = 0; i < shared->process_count; i++)
        atomic_store(&((struct shm_header *)(void *)shared->processes[i].arena)->aborted, 1);
}

int32_t shm_leave(struct ls_transport *transport)
{
    struct shm_shared *shared = transport->shared;
    const uint64_t begin = shared->host->clock_ns(shared->host);
    uint32_t yields = 0;
    // A process that has not heard of the abort could begin a pass right after this looked at it.
    if (atomic_load(&shared->header->aborted))
        tell_abort(shared);
    for (uint32_t i = 0; i < shared->world; i++)
        while (i != transport->index && is_active(shared, i)) {
            // Nobody waits for it a second time.
            if (atomic_load(&shared->hung[i]) ||
                shared->host->clock_ns(shared->host) - begin > shared->patience_ns)
                return give_up(transport, i);
            if (++yields % LIFE_GLANCE_YIELDS == 0)
                shm_look(shared);
            sched_yield();
        }
    return LS_ABORTED;
}

// Which peer it is is looked up only when any has left.
bool shm_peer_left(const struct ls_transport *transport, const struct ls_transfer *transfer)
{
    const struct shm_shared *shared = transport->shared;
    if (!atomic_load(&shared->header->departures))
        return false;
    const bool receives =
        transfer->kind != LS_TRANSFER_SEND && transfer->state != LS_TRANSFER_REDUCED;
    const bool sends = !receives || transfer->kind == LS_TRANSFER_RECEIVE_REDUCE_SEND;
    return (receives && shm_is_gone(shared, transfer->source)) ||
           (sends && shm_is_gone(shared, transfer->destination));
}

bool shm_pass_begin(struct ls_transport *transport, const struct ls_transfer *transfer)
{
    atomic_store(&transport->own->active, 1);
    if (!atomic_load(&transport->shared->header->aborted) && !shm_peer_left(transport, transfer))
        return true;
    atomic_store_explicit(&transport->own->active, 0, memory_order_release);
    return false;
}

void shm_pass_end(struct ls_transport *transport)
{
    atomic_store_explicit(&transport->own->active, 0, memory_order_release);
}

// ---- Waiting ----

bool shm_any_ready(struct ls_transport *transport, struct ls_transfer *const *transfers,
                   uint64_t count)
{
    if (atomic_load(&transport->shared->header->aborted))
        return true;
    for (uint64_t i = 0; i < count; i++)
        if (shm_is_ready(transport, transfers[i]) || shm_peer_left(transport, transfers[i]))
            return true;
    return false;
}

static bool any_waits_for_window(struct ls_transfer *const *transfers, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (SHM_STAGE(transfers[i]) == SHM_UNPUBLISHED)
            return true;
    return false;
}

uint64_t shm_glance_ns(struct ls_transfer *const *transfers, uint64_t count)
{
    return any_waits_for_window(transfers, count) ? WINDOW_GLANCE_NS : LIFE_GLANCE_NS;
}

static void sleep_once(struct ls_transport *transport, struct ls_transfer *const *transfers,
                       uint64_t count, uint64_t timeout_ns)
{
    struct shm_endpoint *own = transport->own;
    const uint64_t glance_ns = shm_glance_ns(transfers, count);
    if (timeout_ns > glance_ns)
        timeout_ns = glance_ns;
    const uint32_t seen = atomic_load(&own->wakes);
    atomic_store(&own->sleeping, SHM_SLEEPING);
    if (!shm_any_ready(transport, transfers, count))
        ls_wait_shared_word(&own->wakes, seen, timeout_ns);
    atomic_store(&own->sleeping, 0);
}

void shm_look_sometimes(struct shm_shared *shared, uint64_t now_ns)
{
    if (now_ns - atomic_load(&shared->looked_ns) < LIFE_GLANCE_NS)
        return;
    atomic_store(&shared->looked_ns, now_ns);
    shm_look(shared);
}

int32_t shm_wait_any(struct ls_transport *transport, struct ls_transfer *const *transfers,
                     uint64_t count, uint64_t timeout_ns)
{
    struct shm_shared *shared = transport->shared;
    bool ready = shm_any_ready(transport, transfers, count);
    for (uint32_t i = 0; !ready && timeout_ns && i < shared->spins; i++) {
        ls_relax();
        ready = shm_any_ready(transport, transfers, count);
    }
    const uint64_t begin = ready || !timeout_ns ? 0 : shared->host->clock_ns(shared->host);
    for (uint64_t waited = 0; !ready && waited < timeout_ns;) {
        if (waited < YIELD_NS) {
            sched_yield();
        } else {
            shm_look_sometimes(shared, begin + waited);
            sleep_once(transport, transfers, count, timeout_ns - waited);
        }
        ready = shm_any_ready(transport, transfers, count);
        waited = shared->host->clock_ns(shared->host) - begin;
    }
    if (atomic_load(&shared->header->aborted))
        return shm_leave(transport);
    return ready ? LS_OK : LS_AGAIN;
}

void shm_abort(struct ls_transport *transport)
{
    tell_abort(transport->shared);
    shm_wake_all(transport->shared);
}
