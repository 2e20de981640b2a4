// SPDX-License-Identifier: Apache-2.0
// Waiting for this transport and for other things at once. A futex cannot be polled, so an endpoint that is armed is woken by a
// datagram, sent to the abstract socket whose name is in the arena. Anybody on this host may send one: the endpoint then looks
// in vain, and sleeps again.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "plugins/transport/shared-memory/shared_memory.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define NAME_AT offsetof(struct sockaddr_un, sun_path)

int shm_waker_open(void)
{
    return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

// The first time an endpoint is armed; bound without a name, its socket gets one from the kernel.
static int32_t open_socket(struct ls_transport *transport)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t bytes = sizeof(address);
    const int fd = shm_waker_open();
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(sa_family_t)) ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) || bytes <= NAME_AT ||
        bytes - NAME_AT > SHM_SOCKET_BYTES) {
        const int32_t status = ls_host_fail(transport->shared->host, LS_UNAVAILABLE,
                                            "a socket to be woken by: %s", strerror(errno));
        if (fd >= 0)
            close(fd);
        return status;
    }
    transport->own->socket_bytes = (uint32_t)(bytes - NAME_AT);
    memcpy(transport->own->socket, address.sun_path, bytes - NAME_AT);
    transport->socket = fd;
    return LS_OK;
}

int32_t shm_arm(struct ls_transport *transport, struct ls_transfer *const *transfers,
                uint64_t count, int32_t *fd, uint64_t *glance_ns)
{
    struct shm_shared *shared = transport->shared;
    char news;
    const int32_t status = transport->socket < 0 ? open_socket(transport) : LS_OK;
    if (status)
        return status;
    shm_look_sometimes(shared, shared->host->clock_ns(shared->host));
    while (recv(transport->socket, &news, sizeof(news), 0) >= 0)
        ; // of earlier waits
    atomic_store(&transport->own->sleeping, SHM_ARMED);
    *fd = transport->socket;
    *glance_ns = shm_glance_ns(transfers, count);
    if (!shm_any_ready(transport, transfers, count))
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

// When the socket is full, it is readable. When no datagram can be sent at all, the sleeper finds out by its next glance.
void shm_wake_armed(const struct shm_shared *shared, const struct shm_endpoint *sleeper)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const uint32_t bytes = sleeper->socket_bytes;
    if (bytes > SHM_SOCKET_BYTES)
        return;
    memcpy(address.sun_path, sleeper->socket, bytes);
    (void)sendto(shared->waker, "", 1, MSG_NOSIGNAL, (const struct sockaddr *)&address,
                 (socklen_t)(NAME_AT + bytes));
}
