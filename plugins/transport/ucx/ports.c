// SPDX-License-Identifier: Apache-2.0
// UCX listens at TCP ports as long as a worker lives, and asserts that what comes there is
// well-formed: eight bytes that everybody can know and some noise end the process. All connections
// are made when an open ends, so the ports are closed then. UCX has no call for that, and does not
// expect its sockets to change, so they stay as they are, with a filter that drops all that comes.
#define _GNU_SOURCE
#include "plugins/transport/ucx/ucx.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <sys/socket.h>

static bool listens(int fd)
{
    int yes = 0;
    socklen_t bytes = sizeof(yes);
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &yes, &bytes) == 0 && yes;
}

// In network order; 0: it is no socket of IP.
static uint16_t port_of(int fd)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof(address);
    if (getsockname(fd, (struct sockaddr *)&address, &bytes))
        return 0;
    if (address.ss_family == AF_INET)
        return ((const struct sockaddr_in *)&address)->sin_port;
    return address.ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)&address)->sin6_port : 0;
}

// The next descriptor of this process that listens; -1: that was all.
static int next_listener(DIR *folder)
{
    for (struct dirent *entry; (entry = readdir(folder));) {
        char *end;
        const long fd = strtol(entry->d_name, &end, 10);
        if (end != entry->d_name && !*end && listens((int)fd))
            return (int)fd;
    }
    return -1;
}

int32_t ucx_ports_note(struct ucx_shared *shared)
{
    struct ucx_ports *ports = &shared->ports;
    DIR *folder = opendir("/proc/self/fd");
    uint32_t capacity = 0;
    if (!folder)
        return ls_host_fail(shared->host, LS_FAILED, "/proc/self/fd: %s", strerror(errno));
    for (int fd; (fd = next_listener(folder)) >= 0;) {
        if (ports->other_count == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            int *more = realloc(ports->others, capacity * sizeof(*more));
            if (!more) {
                closedir(folder);
                return LS_OUT_OF_MEMORY;
            }
            ports->others = more;
        }
        ports->others[ports->other_count++] = fd;
    }
    closedir(folder);
    return LS_OK;
}

static bool was_there(const struct ucx_ports *ports, int fd)
{
    for (uint32_t i = 0; i < ports->other_count; i++)
        if (ports->others[i] == fd)
            return true;
    return false;
}

static void drop_all(const struct ucx_shared *shared, int fd)
{
    struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
    const struct sock_fprog filter = {.len = 1, .filter = &nothing};
    char text[160];
    if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) == 0)
        return;
    snprintf(text, sizeof(text), "a port of UCX stays open, where strangers may disturb it: %s",
             strerror(errno));
    shared->host->log(shared->host, LS_LOG_WARN, text);
}

void ucx_ports_close(struct ucx_shared *shared, const char *address, uint64_t bytes)
{
    DIR *folder = opendir("/proc/self/fd");
    for (int fd; folder && (fd = next_listener(folder)) >= 0;) {
        const uint16_t port = port_of(fd);
        // Another thread may have opened a socket meanwhile: the ports of UCX are in its addresses.
        if (port && !was_there(&shared->ports, fd) && memmem(address, bytes, &port, sizeof(port)))
            drop_all(shared, fd);
    }
    if (folder)
        closedir(folder);
}

void ucx_ports_forget(struct ucx_shared *shared)
{
    free(shared->ports.others);
    shared->ports = (struct ucx_ports){0};
}
