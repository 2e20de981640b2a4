// SPDX-License-Identifier: Apache-2.0
// How an endpoint waits until a transfer can go on: by itself, or armed, together with other
// things.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "plugins/transport/shared-memory/shared_memory.h"

#include "core/plugin/waiting.h"

#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// Between spinning and sleeping. Where other programs need the cores, a yield takes as long as
// their turns, and a thread that sleeps is given a core sooner than one that yields.
#define YIELD_NS UINT64_C(100000)

// A sleeper looks this often by itself, because the end of a pushed message, which frees a slot of
// the window, wakes nobody. Only what is a whole window ahead of its peer ever waits for that.
#define WINDOW_POLL_NS UINT64_C(1000000)

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

// ---- Waiting ----

static bool any_ready(struct ls_transport *transport, struct ls_transfer *const *transfers,
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

// How long a wait for these transfers may sleep at a time.
static uint64_t poll_ns_for(struct ls_transfer *const *transfers, uint64_t count)
{
    return any_waits_for_window(transfers, count) ? WINDOW_POLL_NS : SHM_LIFE_POLL_NS;
}

static void sleep_once(struct ls_transport *transport, struct ls_transfer *const *transfers,
                       uint64_t count, uint64_t timeout_ns)
{
    struct shm_endpoint *own = transport->own;
    const uint64_t poll_ns = poll_ns_for(transfers, count);
    if (timeout_ns > poll_ns)
        timeout_ns = poll_ns;
    const uint32_t seen = atomic_load(&own->wakes);
    atomic_store(&own->sleeping, SHM_SLEEPING);
    if (!any_ready(transport, transfers, count))
        ls_wait_shared_word(&own->wakes, seen, timeout_ns);
    atomic_store(&own->sleeping, 0);
}

int32_t shm_wait_any(struct ls_transport *transport, struct ls_transfer *const *transfers,
                     uint64_t count, uint64_t timeout_ns)
{
    struct shm_shared *shared = transport->shared;
    bool ready = any_ready(transport, transfers, count);
    for (uint32_t i = 0; !ready && timeout_ns && i < shared->spins; i++) {
        ls_relax();
        ready = any_ready(transport, transfers, count);
    }
    const uint64_t begin = ready || !timeout_ns ? 0 : shared->host->clock_ns(shared->host);
    for (uint64_t waited = 0; !ready && waited < timeout_ns;) {
        if (waited < YIELD_NS) {
            sched_yield();
        } else {
            shm_poll_life_sometimes(shared, begin + waited);
            sleep_once(transport, transfers, count, timeout_ns - waited);
        }
        ready = any_ready(transport, transfers, count);
        waited = shared->host->clock_ns(shared->host) - begin;
    }
    if (atomic_load(&shared->header->aborted))
        return shm_leave(transport);
    return ready ? LS_OK : LS_AGAIN;
}

// ---- Waiting for other things, too ----

// A futex cannot be polled, so an endpoint that is armed is woken by a datagram, sent to the
// abstract socket whose name is in the arena. Anybody on this host may send one: the endpoint then
// looks in vain, and sleeps again.

// The first time an endpoint is armed; bound without a name, its socket gets one from the kernel.
static int32_t open_socket(struct ls_transport *transport)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t bytes = sizeof(address);
    const int fd = shm_waker_open();
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(sa_family_t)) ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) ||
        bytes <= offsetof(struct sockaddr_un, sun_path) ||
        bytes - offsetof(struct sockaddr_un, sun_path) > SHM_SOCKET_BYTES) {
        const int32_t status = ls_host_fail(transport->shared->host, LS_UNAVAILABLE,
                                            "a socket to be woken by: %s", strerror(errno));
        if (fd >= 0)
            close(fd);
        return status;
    }
    transport->own->socket_bytes = (uint32_t)(bytes - offsetof(struct sockaddr_un, sun_path));
    memcpy(transport->own->socket, address.sun_path,
           bytes - offsetof(struct sockaddr_un, sun_path));
    transport->socket = fd;
    return LS_OK;
}

int32_t shm_arm(struct ls_transport *transport, struct ls_transfer *const *transfers,
                uint64_t count, int32_t *fd, uint64_t *poll_ns)
{
    struct shm_shared *shared = transport->shared;
    char news;
    const int32_t status = transport->socket < 0 ? open_socket(transport) : LS_OK;
    if (status)
        return status;
    shm_poll_life_sometimes(shared, shared->host->clock_ns(shared->host));
    while (recv(transport->socket, &news, sizeof(news), 0) >= 0)
        ; // of earlier waits
    atomic_store(&transport->own->sleeping, SHM_ARMED);
    *fd = transport->socket;
    *poll_ns = poll_ns_for(transfers, count);
    if (!any_ready(transport, transfers, count))
        return LS_OK;
    atomic_store(&transport->own->sleeping, SHM_AWAKE);
    return atomic_load(&shared->header->aborted) ? shm_leave(transport) : LS_AGAIN;
}

void shm_disarm(struct ls_transport *transport)
{
    if (transport->socket >= 0)
        close(transport->socket);
    transport->socket = -1;
}
