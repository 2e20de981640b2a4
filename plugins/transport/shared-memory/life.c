// SPDX-License-Identifier: Apache-2.0
// How endpoints end each other's sleep, how they find out that a process has died, and how one
// leaves while others may still use its memory.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "plugins/transport/shared-memory/shared_memory.h"

#include "core/plugin/waiting.h"

#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

// An endpoint that leaves looks after so many yields whether the processes of its peers live.
#define LIFE_POLL_YIELDS 64

// ---- Waking ----

int shm_waker_open(void)
{
    return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

// When the socket is full, it is readable. When no datagram can be sent at all, the sleeper finds
// out when it polls next.
static void wake_armed(const struct shm_shared *shared, const struct shm_endpoint *sleeper)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const uint32_t bytes = sleeper->socket_bytes;
    if (bytes > SHM_SOCKET_BYTES)
        return;
    memcpy(address.sun_path, sleeper->socket, bytes);
    (void)sendto(shared->waker, "", 1, MSG_NOSIGNAL, (const struct sockaddr *)&address,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes));
}

void shm_wake(const struct shm_shared *shared, uint32_t endpoint)
{
    struct shm_endpoint *sleeper = shared->endpoints[endpoint];
    uint32_t how = atomic_load(&sleeper->sleeping);
    if (how)
        how = atomic_exchange(&sleeper->sleeping, 0);
    if (how == SHM_ARMED)
        wake_armed(shared, sleeper);
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

// ---- Who lives ----

void shm_poll_life(struct shm_shared *shared)
{
    bool died = false;
    for (uint32_t i = 0; i < shared->process_count; i++) {
        struct shm_process *process = &shared->processes[i];
        struct pollfd ends[2] = {{.fd = process->pidfd, .events = POLLIN},
                                 {.fd = process->socket, .events = POLLIN | POLLRDHUP}};
        if (process->socket < 0 || atomic_load(&process->lost) || poll(ends, 2, 0) <= 0)
            continue;
        died |= !atomic_exchange(&process->lost, 1);
    }
    if (!died)
        return;
    atomic_fetch_add(&shared->header->departures, 1);
    for (uint32_t i = 0; i < shared->world; i++)
        if (shared->process_of[i] == shared->self)
            shm_wake(shared, i);
}

void shm_poll_life_sometimes(struct shm_shared *shared, uint64_t now_ns)
{
    if (now_ns - atomic_load(&shared->polled_ns) < SHM_LIFE_POLL_NS)
        return;
    atomic_store(&shared->polled_ns, now_ns);
    shm_poll_life(shared);
}

bool shm_is_gone(const struct shm_shared *shared, uint32_t endpoint)
{
    return atomic_load(&shared->endpoints[endpoint]->closed) ||
           atomic_load(&shared->processes[shared->process_of[endpoint]].lost);
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

// ---- Leaving ----

// Says in all processes that this is over. Whoever aborts may die before the last of them hears of
// it.
static void tell_abort(struct shm_shared *shared)
{
    for (uint32_t i = 0; i < shared->process_count; i++)
        atomic_store(&((struct shm_header *)(void *)shared->processes[i].arena)->aborted, 1);
}

void shm_abort(struct ls_transport *transport)
{
    tell_abort(transport->shared);
    shm_wake_all(transport->shared);
}

void shm_tell_departure(struct shm_shared *shared)
{
    for (uint32_t i = 0; i < shared->process_count; i++) {
        struct shm_header *header = (struct shm_header *)(void *)shared->processes[i].arena;
        atomic_fetch_add(&header->departures, 1);
    }
    shm_wake_all(shared);
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

// A process that has died touches nothing any more, whatever it was about to do.
static bool is_active(const struct shm_shared *shared, uint32_t peer)
{
    return atomic_load(&shared->endpoints[peer]->active) &&
           !atomic_load(&shared->processes[shared->process_of[peer]].lost);
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
            if (++yields % LIFE_POLL_YIELDS == 0)
                shm_poll_life(shared);
            sched_yield();
        }
    return LS_ABORTED;
}
