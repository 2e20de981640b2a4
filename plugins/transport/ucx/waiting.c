// SPDX-License-Identifier: Apache-2.0
// Waiting until a transfer can go on, and aborts, which end a wait.
#define _GNU_SOURCE
#include "plugins/transport/ucx/ucx.h"

#include "core/plugin/waiting.h"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

// A wait first asks UCX again and again, for about 0.5 ms where each rank of this host can have a
// core: to be woken by a socket costs ten times as much as a small message. Where cores are shared,
// it yields between, a few times. Then it sleeps until a socket has something to read.
#define SPINS_OWN_CORE 1000
#define SPINS_SHARED_CORE 4

// UCX looks whether silent peers live only when it is asked for news, so an armed endpoint asks
// this often.
#define POLL_NS UINT64_C(100000000)

uint32_t ucx_choose_spins(uint32_t ranks_here, uint32_t own_ranks)
{
    return ls_ranks_have_cores(own_ranks, ranks_here) ? SPINS_OWN_CORE : SPINS_SHARED_CORE;
}

static bool any_ready(const struct ls_transport *transport, struct ls_transfer *const *transfers,
                      uint64_t count)
{
    if (atomic_load_explicit(&transport->shared->aborted, memory_order_relaxed))
        return true;
    for (uint64_t i = 0; i < count; i++)
        if (ucx_is_ready(transport, transfers[i]))
            return true;
    return false;
}

// Until a socket is readable, or somebody aborts.
static void sleep_once(struct ls_transport *transport, uint64_t timeout_ns)
{
    struct ucx_shared *shared = transport->shared;
    const struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / UINT64_C(1000000000)),
                                     .tv_nsec = (long)(timeout_ns % UINT64_C(1000000000))};
    struct pollfd fds[] = {{.fd = transport->worker_fd, .events = POLLIN},
                           {.fd = shared->wake_fds[transport->own], .events = POLLIN}};
    if (shared->library->ucp_worker_arm(transport->worker) == UCS_OK) // else something is there
        (void)ppoll(fds, 2, &timeout, NULL);
}

// One descriptor for news of UCX and for aborts.
static int watch_both(const struct ls_transport *transport)
{
    const int fds[] = {transport->worker_fd, transport->shared->wake_fds[transport->own]};
    const int both = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    if (both >= 0 && !epoll_ctl(both, EPOLL_CTL_ADD, fds[0], &event) &&
        !epoll_ctl(both, EPOLL_CTL_ADD, fds[1], &event))
        return both;
    if (both >= 0)
        close(both);
    return -1;
}

int32_t ucx_wait_any(struct ls_transport *transport, struct ls_transfer *const *transfers,
                     uint64_t count, uint64_t timeout_ns)
{
    struct ucx_shared *shared = transport->shared;
    const struct ls_host *host = shared->host;
    bool ready = any_ready(transport, transfers, count);
    for (uint32_t i = 0; !ready && i < (timeout_ns ? shared->spins : 1); i++) {
        ucx_progress(transport);
        ready = any_ready(transport, transfers, count);
        if (!ready && shared->spins == SPINS_SHARED_CORE)
            sched_yield();
    }
    const uint64_t begin = host->clock_ns(host);
    for (uint64_t waited = 0; !ready && waited < timeout_ns;) {
        sleep_once(transport, timeout_ns - waited);
        ucx_progress(transport);
        ready = any_ready(transport, transfers, count);
        waited = host->clock_ns(host) - begin;
    }
    if (atomic_load(&shared->aborted))
        return ucx_give_up(transport);
    return ready ? LS_OK : LS_AGAIN;
}

int32_t ucx_arm(struct ls_transport *transport, struct ls_transfer *const *transfers,
                uint64_t count, int32_t *fd, uint64_t *poll_ns)
{
    struct ucx_shared *shared = transport->shared;
    ucx_progress(transport);
    const bool ready = any_ready(transport, transfers, count);
    if (atomic_load(&shared->aborted))
        return ucx_give_up(transport);
    if (!ready && transport->armed_fd < 0)
        transport->armed_fd = watch_both(transport);
    if (!ready && transport->armed_fd < 0)
        return ls_host_fail(shared->host, LS_FAILED, "no epoll file descriptor: ulimit -n");
    if (ready || shared->library->ucp_worker_arm(transport->worker) != UCS_OK)
        return LS_AGAIN;
    *fd = transport->armed_fd;
    *poll_ns = POLL_NS;
    return LS_OK;
}

void ucx_abort(struct ls_transport *transport)
{
    struct ucx_shared *shared = transport->shared;
    const uint64_t one = 1;
    atomic_store(&shared->aborted, 1);
    for (uint32_t i = 0; i < shared->count; i++)
        if (write(shared->wake_fds[i], &one, sizeof(one)) < 0)
            continue; // it is readable already
}
