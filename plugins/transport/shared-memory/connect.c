// SPDX-License-Identifier: Apache-2.0
// How the processes of a host find each other: each tells the others the name of a socket and a
// token (through `exchange`), and every two of them hand each other their arena and segment over a
// connection, which stays: when it ends, or the process that was at its other end does, that
// process is lost.
//
// The sockets are in the abstract name space, so no file is left behind. A process that connects
// must be of the same user and know the token; any other one is turned away.
#define _GNU_SOURCE
#include "plugins/transport/shared-memory/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define LIFE_POLL_NS UINT64_C(200000000) // between two looks at the processes that are waited for
#define STRANGER_MS 1000 // a connection that says nothing for so long is a stranger's
#define MILLISECOND UINT64_C(1000000)
#define MOST_NS UINT64_C(86400000000000) // that an open may take, whatever the deadline

// Processes that differ in it do not understand each other.
#define SHM_FORM \
    ((uint32_t)(sizeof(struct shm_pair) ^ (sizeof(struct shm_card) << 20) ^ SHM_PIECE_BYTES ^ 2))

// What goes over a connection, once each way, with the descriptors of arena and segment.
struct hello {
    unsigned char to[SHM_TOKEN_BYTES]; // of the process that is meant
    unsigned char from[SHM_TOKEN_BYTES];
};

// An open under way.
struct meeting {
    struct shm_shared *shared;
    const struct ls_transport_config *config;
    uint64_t end_ns;
    struct shm_card card; // of this process
};

static int32_t fail(const struct meeting *meeting, const char *what)
{
    return ls_host_fail(meeting->shared->host, LS_UNAVAILABLE, "%s: %s", what, strerror(errno));
}

static uint64_t now_ns(const struct meeting *meeting)
{
    return meeting->shared->host->clock_ns(meeting->shared->host);
}

// Milliseconds until then, at least 0.
static int left_ms(const struct meeting *meeting, uint64_t end_ns)
{
    const uint64_t now = now_ns(meeting);
    return now < end_ns ? (int)((end_ns - now) / MILLISECOND + 1) : 0;
}

// Waits until there is something to read on `fd`; false: not by then.
static bool await_input(const struct meeting *meeting, int fd, uint64_t end_ns)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int count = 0;
    do
        count = poll(&ready, 1, left_ms(meeting, end_ns));
    while (count < 0 && errno == EINTR);
    return count == 1;
}

// ---- This process ----

static int32_t create_arena(struct meeting *meeting, uint64_t bytes)
{
    const int fd = memfd_create("lockstep-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    meeting->shared->arena_fd = fd;
    // Sealed, so that no process can cut off what another one looks at.
    if (fd < 0 || ftruncate(fd, (off_t)bytes) ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        return fail(meeting, "memory that processes share");
    return LS_OK;
}

static int32_t create_listener(struct meeting *meeting)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t bytes = sizeof(address);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    meeting->shared->listener = fd;
    // Bound without a name it gets one of its own from the kernel.
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(sa_family_t)) || listen(fd, 4096) ||
        getsockname(fd, (struct sockaddr *)&address, &bytes))
        return fail(meeting, "a socket between the processes of this host");
    bytes -= (socklen_t)offsetof(struct sockaddr_un, sun_path);
    if (bytes == 0 || bytes > SHM_NAME_BYTES)
        return ls_host_fail(meeting->shared->host, LS_UNAVAILABLE,
                            "a socket without a name of its own; this needs Linux");
    meeting->card.name_bytes = bytes;
    memcpy(meeting->card.name, address.sun_path, bytes);
    return LS_OK;
}

static int32_t present(struct meeting *meeting, uint64_t arena_bytes)
{
    struct shm_card *card = &meeting->card;
    const struct ls_transport_segment *segment =
        LS_HAS(meeting->config, segment) ? meeting->config->segment : NULL;
    cpu_set_t cores;
    int32_t status = create_arena(meeting, arena_bytes);
    if (!status && meeting->config->count < meeting->config->world)
        status = create_listener(meeting);
    if (status)
        return status;
    if (getrandom(card->token, SHM_TOKEN_BYTES, 0) != SHM_TOKEN_BYTES)
        return fail(meeting, "random bytes");
    card->form = SHM_FORM;
    card->arena_bytes = arena_bytes;
    card->segment_bytes = segment ? segment->bytes : 0;
    if (sched_getaffinity(0, sizeof(cores), &cores) == 0)
        memcpy(card->cores, &cores, sizeof(card->cores));
    return LS_OK;
}

// ---- Everybody's cards ----

static int32_t exchange(const struct meeting *meeting, const void *card, uint64_t bytes, void *all)
{
    const struct ls_transport_config *config = meeting->config;
    const struct ls_host *host = meeting->shared->host;
    char *own = host->allocate(host, config->count * bytes, SHM_APART);
    if (!own)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < config->count; i++)
        memcpy(own + i * bytes, card, bytes);
    const int32_t status = config->exchange(config->context, own, bytes, all);
    host->release(host, own);
    return status;
}

static int32_t exchange_cards(struct meeting *meeting)
{
    struct shm_shared *shared = meeting->shared;
    const struct ls_host *host = shared->host;
    struct shm_card *cards = host->allocate(host, shared->world * sizeof(*cards), SHM_APART);
    int32_t status = cards ? exchange(meeting, &meeting->card, sizeof(*cards), cards)
                           : (int32_t)LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < shared->world; i++) {
        uint32_t k = 0;
        while (k < shared->process_count &&
               memcmp(shared->processes[k].card.token, cards[i].token, SHM_TOKEN_BYTES) != 0)
            k++;
        struct shm_process *process = &shared->processes[k];
        if (k == shared->process_count) {
            shared->process_count++;
            *process =
                (struct shm_process){.card = cards[i], .first = i, .socket = -1, .pidfd = -1};
            if (memcmp(cards[i].token, meeting->card.token, SHM_TOKEN_BYTES) == 0)
                shared->self = k;
        }
        shared->process_of[i] = k;
        shared->place_of[i] = process->count++;
        if (cards[i].form == 0)
            status = ls_host_fail(host, LS_UNAVAILABLE, "rank %u has no memory to share", i);
        else if (cards[i].form != SHM_FORM || cards[i].name_bytes > SHM_NAME_BYTES)
            status = ls_host_fail(host, LS_UNAVAILABLE,
                                  "rank %u runs another version of transport shared-memory; start "
                                  "all workers from one installation",
                                  i);
    }
    host->release(host, cards);
    return status;
}

// ---- Connections ----

static int32_t lost(const struct meeting *meeting, const struct shm_process *process, bool over)
{
    if (!over)
        return ls_host_fail(
            meeting->shared->host, LS_PEER_LOST,
            "the process of rank %u ended before it was connected, or is in another "
            "network name space",
            process->first);
    return ls_host_fail(meeting->shared->host, LS_PEER_LOST,
                        "the process of rank %u did not connect within %.1f s", process->first,
                        (double)meeting->config->deadline_ns * 1e-9);
}

static socklen_t address_of(const struct shm_process *process, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(out->sun_path, process->card.name, process->card.name_bytes);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + process->card.name_bytes);
}

static bool is_own_user(int fd)
{
    struct ucred other;
    socklen_t bytes = sizeof(other);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &bytes) == 0 && other.uid == geteuid();
}

// A descriptor that turns readable when the process at the other end ends; -1: the kernel has none.
static int pidfd_of(int fd)
{
    struct ucred other;
    socklen_t bytes = sizeof(int);
    int pidfd = -1;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &bytes) == 0)
        return pidfd;
    bytes = sizeof(other);
    // It waits for our answer, so its number still means it.
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &bytes) == 0 && other.pid > 0)
        return (int)syscall(SYS_pidfd_open, other.pid, 0);
    return -1;
}

static bool send_hello(const struct meeting *meeting, int fd, const struct shm_process *to)
{
    const struct shm_shared *shared = meeting->shared;
    const struct ls_transport_config *config = meeting->config;
    struct hello hello;
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {0};
    int fds[2] = {shared->arena_fd, -1};
    const size_t count = meeting->card.segment_bytes ? 2 : 1;
    if (count == 2)
        fds[1] = config->segment->fd;
    memcpy(hello.to, to->card.token, SHM_TOKEN_BYTES);
    memcpy(hello.from, meeting->card.token, SHM_TOKEN_BYTES);
    struct iovec part = {&hello, sizeof(hello)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(rights), fds, count * sizeof(int));
    return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)sizeof(hello);
}

static void close_fds(const int fds[2])
{
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

// A message with its descriptors, -1 where there is none. LS_AGAIN: none that could be a peer's
// came. LS_UNAVAILABLE: a peer's did, but this process has no descriptors for what came with it.
static int32_t receive_hello(const struct meeting *meeting, int fd, uint64_t end_ns,
                             struct hello *hello, int fds[2])
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
    struct iovec part = {hello, sizeof(*hello)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    int got[4], count = 0;
    fds[0] = fds[1] = -1;
    if (!await_input(meeting, fd, end_ns))
        return LS_AGAIN;
    const ssize_t bytes = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (bytes < 0)
        return LS_AGAIN;
    for (struct cmsghdr *part_of = CMSG_FIRSTHDR(&message); part_of;
         part_of = CMSG_NXTHDR(&message, part_of))
        if (part_of->cmsg_level == SOL_SOCKET && part_of->cmsg_type == SCM_RIGHTS && !count) {
            count = (int)((part_of->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            memcpy(got, CMSG_DATA(part_of), (size_t)count * sizeof(int));
        }
    for (int i = 0; i < count; i++)
        if (i < 2)
            fds[i] = got[i];
        else
            close(got[i]);
    const bool whole = bytes == (ssize_t)sizeof(*hello) && !(message.msg_flags & MSG_TRUNC);
    if (whole && !(message.msg_flags & MSG_CTRUNC))
        return LS_OK;
    close_fds(fds);
    if (!whole || count > 2 || memcmp(hello->to, meeting->card.token, SHM_TOKEN_BYTES) != 0)
        return LS_AGAIN;
    errno = EMFILE;
    return fail(meeting, "a descriptor for the memory of another process");
}

// A mapping of the whole file; NULL: it is smaller than was said, could become so, or there is no
// room.
static char *map(int fd, uint64_t bytes)
{
    struct stat file;
    const int seals = fd >= 0 ? fcntl(fd, F_GET_SEALS) : -1;
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &file) || (uint64_t)file.st_size < bytes)
        return NULL;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (memory == MAP_FAILED)
        return NULL;
    madvise(memory, bytes, MADV_DONTDUMP);
    madvise(memory, bytes, MADV_HUGEPAGE); // a wish; without it all works, slower
    return memory;
}

// The mappings stay when the descriptors are closed.
static void keep(struct shm_process *process, int fd, const int fds[2])
{
    process->socket = fd;
    process->pidfd = pidfd_of(fd);
    process->arena = map(fds[0], process->card.arena_bytes);
    if (process->card.segment_bytes)
        process->segment = map(fds[1], process->card.segment_bytes);
    close_fds(fds);
}

// connect() and sendmsg() wait no longer than the deadline, for a peer whose queue strangers have
// filled.
static bool limit_waits(const struct meeting *meeting, int fd)
{
    const int left = left_ms(meeting, meeting->end_ns) + 1; // 0 would be for ever
    const struct timeval limit = {.tv_sec = left / 1000, .tv_usec = left % 1000 * 1000};
    return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) == 0;
}

static int32_t connect_to(struct meeting *meeting, struct shm_process *process)
{
    struct sockaddr_un address;
    const socklen_t bytes = address_of(process, &address);
    process->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (process->socket < 0 || !limit_waits(meeting, process->socket))
        return fail(meeting, "a socket between the processes of this host");
    int connected;
    do
        connected = connect(process->socket, (struct sockaddr *)&address, bytes);
    while (connected && errno == EINTR);
    if (connected || !is_own_user(process->socket) ||
        !send_hello(meeting, process->socket, process))
        return ls_host_fail(meeting->shared->host, LS_PEER_LOST,
                            "the process of rank %u is not there, or in another network name space "
                            "or of another user: %s",
                            process->first, strerror(errno));
    return LS_OK;
}

// The process that says hello on `fd`; NULL: a stranger.
static struct shm_process *recognize(const struct meeting *meeting, const struct hello *hello)
{
    struct shm_shared *shared = meeting->shared;
    if (memcmp(hello->to, meeting->card.token, SHM_TOKEN_BYTES) != 0)
        return NULL;
    for (uint32_t i = shared->self + 1; i < shared->process_count; i++)
        if (shared->processes[i].socket < 0 &&
            memcmp(hello->from, shared->processes[i].card.token, SHM_TOKEN_BYTES) == 0)
            return &shared->processes[i];
    return NULL;
}

// Accepts one connection; `waiting` is one less when it was a peer's.
static int32_t accept_one(struct meeting *meeting, uint32_t *waiting)
{
    struct hello hello;
    int fds[2];
    const int fd = accept4(meeting->shared->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) // one that has gone again is none of ours
        return errno == EAGAIN || errno == ECONNABORTED || errno == EINTR
                   ? (int32_t)LS_OK
                   : fail(meeting, "a connection between the processes of this host");
    const uint64_t stranger_ns = now_ns(meeting) + STRANGER_MS * MILLISECOND;
    const uint64_t end_ns = stranger_ns < meeting->end_ns ? stranger_ns : meeting->end_ns;
    const int32_t heard =
        is_own_user(fd) ? receive_hello(meeting, fd, end_ns, &hello, fds) : (int32_t)LS_AGAIN;
    const bool came = heard == LS_OK;
    struct shm_process *process = came ? recognize(meeting, &hello) : NULL;
    if (process && send_hello(meeting, fd, process)) {
        keep(process, fd, fds);
        --*waiting;
        return LS_OK;
    }
    if (came)
        close_fds(fds);
    close(fd);
    return heard == LS_AGAIN ? (int32_t)LS_OK : heard;
}

// A process that has ended refuses connections. One that lives takes this one for a stranger's.
static bool has_ended(const struct shm_process *process)
{
    struct sockaddr_un address;
    const socklen_t bytes = address_of(process, &address);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool refused =
        fd >= 0 && connect(fd, (struct sockaddr *)&address, bytes) && errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return refused;
}

static int32_t await_later(struct meeting *meeting)
{
    struct shm_shared *shared = meeting->shared;
    uint32_t waiting = shared->process_count - shared->self - 1;
    int32_t status = LS_OK;
    while (!status && waiting) {
        const uint64_t now = now_ns(meeting), next_ns = now + LIFE_POLL_NS;
        const bool over = now >= meeting->end_ns;
        if (!over && await_input(meeting, shared->listener, next_ns))
            status = accept_one(meeting, &waiting);
        else
            for (uint32_t i = shared->self + 1; !status && i < shared->process_count; i++)
                if (shared->processes[i].socket < 0 && (over || has_ended(&shared->processes[i])))
                    status = lost(meeting, &shared->processes[i], over);
    }
    return status;
}

static int32_t await_answer(struct meeting *meeting, struct shm_process *process)
{
    struct hello hello;
    int fds[2];
    const int32_t heard = receive_hello(meeting, process->socket, meeting->end_ns, &hello, fds);
    if (heard)
        return heard == LS_AGAIN ? lost(meeting, process, now_ns(meeting) >= meeting->end_ns)
                                 : heard;
    if (memcmp(hello.to, meeting->card.token, SHM_TOKEN_BYTES) == 0 &&
        memcmp(hello.from, process->card.token, SHM_TOKEN_BYTES) == 0) {
        keep(process, process->socket, fds);
        return LS_OK;
    }
    close_fds(fds);
    return lost(meeting, process, false);
}

// This process connects to those before it, and those after it connect to this one. First all say
// hello, so that nobody waits for an answer that cannot come.
static int32_t connect_all(struct meeting *meeting)
{
    struct shm_shared *shared = meeting->shared;
    int32_t status = LS_OK;
    for (uint32_t i = 0; !status && i < shared->self; i++)
        status = connect_to(meeting, &shared->processes[i]);
    if (!status)
        status = await_later(meeting);
    for (uint32_t i = 0; !status && i < shared->self; i++)
        status = await_answer(meeting, &shared->processes[i]);
    return status;
}

static int32_t map_own(const struct meeting *meeting)
{
    struct shm_process *self = &meeting->shared->processes[meeting->shared->self];
    self->arena = map(meeting->shared->arena_fd, self->card.arena_bytes);
    if (self->card.segment_bytes)
        self->segment = meeting->config->segment->base;
    for (uint32_t i = 0; i < meeting->shared->process_count; i++)
        if (!meeting->shared->processes[i].arena)
            return fail(meeting, "mapping the memory of another process");
    return LS_OK;
}

// Tells the others how this process fared, and learns it of them. Segments are used by all, or by
// none.
static int32_t agree(const struct meeting *meeting, int32_t status)
{
    struct shm_shared *shared = meeting->shared;
    const struct ls_host *host = shared->host;
    struct outcome {
        int32_t status;
        uint32_t segments;
    } own = {.status = status, .segments = 1}, *all = NULL;
    for (uint32_t i = 0; i < shared->process_count; i++)
        own.segments &= !shared->processes[i].card.segment_bytes || shared->processes[i].segment;
    all = host->allocate(host, shared->world * sizeof(*all), SHM_APART);
    int32_t ended = all ? exchange(meeting, &own, sizeof(own), all) : (int32_t)LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && !ended && i < shared->world; i++) {
        own.segments &= all[i].segments;
        if (all[i].status)
            ended = ls_host_fail(host, LS_UNAVAILABLE,
                                 "rank %u could not connect to the other processes of its host", i);
    }
    host->release(host, all);
    for (uint32_t i = 0; !own.segments && i < shared->process_count; i++) {
        struct shm_process *process = &shared->processes[i];
        if (process->segment && i != shared->self)
            munmap(process->segment, process->card.segment_bytes);
        process->segment = NULL;
    }
    return status ? status : ended;
}

int32_t shm_connect(struct shm_shared *shared, const struct ls_transport_config *config,
                    uint64_t arena_bytes)
{
    const uint64_t begin = shared->host->clock_ns(shared->host);
    const uint64_t patience = config->deadline_ns < MOST_NS ? config->deadline_ns : MOST_NS;
    struct meeting meeting = {.shared = shared, .config = config, .end_ns = begin + patience};
    int32_t status = present(&meeting, arena_bytes);
    const int32_t met = exchange_cards(&meeting); // also when that failed: the others wait for it
    if (met)
        return status ? status : met;
    if (!status)
        status = connect_all(&meeting);
    if (!status)
        status = map_own(&meeting);
    for (uint32_t i = 0; status && i < shared->process_count; i++) { // nobody waits for this one
        close_fds((int[2]){shared->processes[i].socket, shared->processes[i].pidfd});
        shared->processes[i].socket = shared->processes[i].pidfd = -1;
    }
    if (status && shared->listener >= 0)
        close(shared->listener);
    shared->listener = status ? -1 : shared->listener;
    status = agree(&meeting, status);
    close_fds((int[2]){shared->arena_fd, shared->listener}); // the mapping stays
    shared->arena_fd = shared->listener = -1;
    return status;
}

void shm_disconnect(struct shm_shared *shared)
{
    for (uint32_t i = 0; i < shared->process_count; i++) {
        struct shm_process *process = &shared->processes[i];
        close_fds((int[2]){process->socket, process->pidfd});
        if (process->arena)
            munmap(process->arena, process->card.arena_bytes);
        if (process->segment && i != shared->self)
            munmap(process->segment, process->card.segment_bytes);
    }
    shared->process_count = 0;
    close_fds((int[2]){shared->arena_fd, shared->listener});
}
