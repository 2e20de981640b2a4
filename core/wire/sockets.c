// SPDX-License-Identifier: Apache-2.0
// Listening and connecting, each with an end.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // accept4
#endif
#include "core/wire/sockets.h"

#include "core/base/clock.h"
#include "core/base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LISTEN_PATIENCE_NS UINT64_C(5000000000) // for an earlier job that holds the port
#define LISTEN_PAUSE_NS 100000000L
#define SLICE_MS 100 // after which a wait asks whether it shall stop
#define DRAINED 64 // connections that are dropped at once

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 ==
               127;
    if (address->sa_family != AF_INET6)
        return address->sa_family == AF_UNIX;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
}

bool ls_socket_listens_here(int fd)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof(address);
    return getsockname(fd, (struct sockaddr *)&address, &bytes) == 0 &&
           is_loopback((const struct sockaddr *)&address);
}

bool ls_socket_leads_here(int fd)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof(address);
    return getpeername(fd, (struct sockaddr *)&address, &bytes) == 0 &&
           is_loopback((const struct sockaddr *)&address);
}

uint16_t ls_socket_port(int fd)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof(address);
    if (getsockname(fd, (struct sockaddr *)&address, &bytes))
        return 0;
    return ntohs(address.ss_family == AF_INET6
                     ? ((const struct sockaddr_in6 *)(const void *)&address)->sin6_port
                     : ((const struct sockaddr_in *)(const void *)&address)->sin_port);
}

// An IPv4 address that came to a socket for IPv6.
static const char *without_prefix(const char *host)
{
    return strncmp(host, "::ffff:", 7) == 0 && strchr(host, '.') ? host + 7 : host;
}

static void write_name(const struct sockaddr_storage *address, socklen_t length, char *out,
                       size_t bytes)
{
    char host[INET6_ADDRSTRLEN], port[16];
    if (getnameinfo((const struct sockaddr *)address, length, host, sizeof(host), port,
                    sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV))
        snprintf(out, bytes, "somewhere");
    else
        snprintf(out, bytes, strchr(without_prefix(host), ':') ? "[%s]:%s" : "%s:%s",
                 without_prefix(host), port);
}

void ls_socket_peer(int fd, char *out, size_t bytes)
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t length = sizeof(address);
    (void)getpeername(fd, (struct sockaddr *)&address, &length);
    write_name(&address, length, out, bytes);
}

void ls_socket_own(int fd, char *out, size_t bytes)
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t length = sizeof(address);
    (void)getsockname(fd, (struct sockaddr *)&address, &length);
    write_name(&address, length, out, bytes);
}

static void write_host(const struct sockaddr_storage *address, socklen_t length, char *out,
                       size_t bytes)
{
    char host[INET6_ADDRSTRLEN] = "";
    if (address->ss_family != AF_UNIX)
        (void)getnameinfo((const struct sockaddr *)address, length, host, sizeof(host), NULL, 0,
                          NI_NUMERICHOST);
    snprintf(out, bytes, "%s", without_prefix(host));
}

void ls_socket_peer_host(int fd, char *out, size_t bytes)
{
    struct sockaddr_storage address = {.ss_family = AF_UNIX};
    socklen_t length = sizeof(address);
    (void)getpeername(fd, (struct sockaddr *)&address, &length);
    write_host(&address, length, out, bytes);
}

void ls_socket_own_host(int fd, char *out, size_t bytes)
{
    struct sockaddr_storage address = {.ss_family = AF_UNIX};
    socklen_t length = sizeof(address);
    (void)getsockname(fd, (struct sockaddr *)&address, &length);
    write_host(&address, length, out, bytes);
}

static int resolve(const char *address, uint16_t port, int flags, struct addrinfo **out)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
    char service[8];
    snprintf(service, sizeof(service), "%u", port);
    return getaddrinfo(address, service, &hints, out);
}

static int open_socket(const struct addrinfo *at)
{
    const int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int on = 1;
    if (fd >= 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

// ---- Listening ----

// -1 and errno where none of the addresses works. On all interfaces (NULL), a socket for IPv6 takes
// IPv4, too; of a name that has both, IPv4 is what everybody can reach.
static int listen_at(const char *address, uint16_t port)
{
    struct addrinfo *all;
    int error = EADDRNOTAVAIL, found = -1;
    if (resolve(address, port, AI_PASSIVE, &all))
        all = NULL;
    for (int turn = 0; found < 0 && turn < 2; turn++)
        for (const struct addrinfo *at = all; at && found < 0; at = at->ai_next) {
            if ((at->ai_family == AF_INET6) != ((address == NULL) == (turn == 0)))
                continue;
            const int fd = open_socket(at), on = 1, off = 0;
            if (fd < 0)
                continue;
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
            if (at->ai_family == AF_INET6)
                setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
            if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) {
                found = fd;
            } else {
                error = errno;
                close(fd);
            }
        }
    if (all)
        freeaddrinfo(all);
    errno = error;
    return found;
}

enum ls_status ls_socket_listen_at(const char *address, uint16_t port, int *out)
{
    uint8_t numeric[sizeof(struct in6_addr)];
    if (inet_pton(AF_INET, address, numeric) != 1 && inet_pton(AF_INET6, address, numeric) != 1)
        return LS_FAILED;
    const int fd = listen_at(address, port);
    if (fd < 0)
        return errno == EADDRINUSE ? LS_AGAIN : LS_FAILED;
    *out = fd;
    return LS_OK;
}

enum ls_status ls_socket_listen_beside(int like, int *out)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof(address);
    if (getsockname(like, (struct sockaddr *)&address, &bytes) || address.ss_family == AF_UNIX)
        return LS_FAILED;
    if (address.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)&address)->sin6_port = 0;
    else
        ((struct sockaddr_in *)(void *)&address)->sin_port = 0;
    const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return LS_FAILED;
    if (bind(fd, (struct sockaddr *)&address, bytes) || listen(fd, SOMAXCONN)) {
        close(fd);
        return LS_FAILED;
    }
    *out = fd;
    return LS_OK;
}

static enum ls_status take_inherited(int fd, int *out)
{
    int listens = 0;
    const int on = 1;
    socklen_t bytes = sizeof(listens);
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) || !listens) {
        ls_error("cluster", "descriptor %d is no listening socket: LOCKSTEP_LISTEN_FD is wrong",
                 fd);
        close(fd);
        return LS_USAGE;
    }
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)); // for a store that takes over
    *out = fd;
    return LS_OK;
}

enum ls_status ls_socket_listen(const struct ls_listening *where, int *out)
{
    if (where->inherited >= 0)
        return take_inherited(where->inherited, out);
    const uint64_t begin = ls_clock_ns();
    for (;;) {
        int fd = where->everywhere ? -1 : listen_at(where->address, where->port);
        if (fd < 0 && (where->everywhere || errno == EADDRNOTAVAIL))
            fd = listen_at(NULL, where->port);
        if (fd >= 0) {
            *out = fd;
            return LS_OK;
        }
        if (errno != EADDRINUSE || ls_clock_ns() - begin > LISTEN_PATIENCE_NS)
            break;
        nanosleep(&(struct timespec){.tv_nsec = LISTEN_PAUSE_NS}, NULL);
    }
    ls_error("cluster", "%s cannot listen at %s:%u: %s; start all processes with another port",
             where->name, where->address, where->port, strerror(errno));
    return LS_FAILED;
}

enum ls_status ls_socket_accept(int listener, int *out)
{
    const int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    const int on = 1;
    if (fd < 0)
        return errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM
                   ? LS_FAILED
                   : LS_AGAIN; // none, or one that is gone already
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    // For a store that takes over: one that came before the listener had this option does not have
    // it.
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    *out = fd;
    return LS_OK;
}

void ls_socket_reset(int fd)
{
    const struct linger none = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

void ls_socket_drain(int listener)
{
    int fd;
    for (int i = 0; i < DRAINED && ls_socket_accept(listener, &fd) == LS_OK; i++) {
        ls_socket_reset(fd);
        close(fd);
    }
}

// ---- Connecting ----

// While nobody listens at a port of the range that the system gives out, a connection to it on the
// same machine may be given that port, and then TCP connects it to itself.
static bool is_connected_to_itself(int fd)
{
    struct sockaddr_storage own, peer;
    memset(&own, 0, sizeof(own));
    memset(&peer, 0, sizeof(peer));
    socklen_t own_bytes = sizeof(own), peer_bytes = sizeof(peer);
    return getsockname(fd, (struct sockaddr *)&own, &own_bytes) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) == 0 && own_bytes == peer_bytes &&
           memcmp(&own, &peer, own_bytes) == 0;
}

enum ls_status ls_socket_wait(int fd, short event, uint64_t end_ns, const struct ls_stop *stop)
{
    for (;;) {
        const uint64_t now = ls_clock_ns();
        struct pollfd wait = {.fd = fd, .events = event};
        if (now >= end_ns)
            return LS_AGAIN;
        const uint64_t left_ms = (end_ns - now) / 1000000 + 1;
        if (poll(&wait, 1, left_ms < SLICE_MS ? (int)left_ms : SLICE_MS) > 0)
            return LS_OK;
        if (stop->asked && stop->asked(stop->context))
            return LS_ABORTED;
    }
}

static int connect_to(const struct addrinfo *at, uint64_t patience_ns, const struct ls_stop *stop)
{
    const int fd = open_socket(at);
    if (fd < 0)
        return -1;
    int error = connect(fd, at->ai_addr, at->ai_addrlen) ? errno : 0;
    if (error == EINPROGRESS || error == EINTR) {
        const enum ls_status status =
            ls_socket_wait(fd, POLLOUT, ls_clock_ns() + patience_ns, stop);
        socklen_t bytes = sizeof(error);
        if (status)
            error = status == LS_AGAIN ? ETIMEDOUT : ECANCELED;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes))
            error = errno;
    }
    if (!error && is_connected_to_itself(fd))
        error = ECONNREFUSED;
    if (!error)
        return fd;
    close(fd);
    errno = error;
    return -1;
}

bool ls_socket_leads_away(const char *address, uint16_t port)
{
    struct addrinfo *all;
    if (resolve(address, port, 0, &all))
        return false;
    bool away = true;
    for (const struct addrinfo *at = all; at; at = at->ai_next)
        away = away && !is_loopback(at->ai_addr);
    freeaddrinfo(all);
    return away;
}

enum ls_status ls_socket_connect(const char *address, uint16_t port, uint64_t patience_ns,
                                 const struct ls_stop *stop, int *out, char *why, size_t bytes)
{
    struct addrinfo *all;
    const int error = resolve(address, port, 0, &all);
    if (error) {
        snprintf(why, bytes, "%s", error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
        return LS_AGAIN;
    }
    int fd = -1;
    for (const struct addrinfo *at = all; at && fd < 0; at = at->ai_next) {
        fd = connect_to(at, patience_ns, stop);
        if (fd < 0)
            snprintf(why, bytes, "%s", strerror(errno));
    }
    const int reason = errno;
    freeaddrinfo(all);
    errno = reason;
    if (fd < 0)
        return reason == ECANCELED ? LS_ABORTED : LS_AGAIN;
    *out = fd;
    return LS_OK;
}

// ---- Probing ----

int ls_socket_probe_begin(const char *address, uint16_t port)
{
    struct addrinfo *at;
    int error = EINVAL, fd = -1;
    if (resolve(address, port, AI_NUMERICHOST, &at) == 0) {
        fd = open_socket(at);
        error = fd < 0 || connect(fd, at->ai_addr, at->ai_addrlen) ? errno : 0;
        freeaddrinfo(at);
    }
    if (fd >= 0 && error && error != EINPROGRESS) {
        close(fd);
        fd = -1;
    }
    errno = error;
    return fd;
}

int ls_socket_probe_result(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t bytes = sizeof(error);
    if (poll(&wait, 1, 0) <= 0)
        return EINPROGRESS;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes))
        return errno;
    if (error == ECONNRESET) // it was connected, and then dropped
        return 0;
    return !error && is_connected_to_itself(fd) ? ECONNREFUSED : error;
}
