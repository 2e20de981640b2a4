// SPDX-License-Identifier: Apache-2.0
// Ranks of the fake in several processes of one host. Each process keeps the whole clique, and tells the others what its own
// ranks do: they join, an operation of theirs arrives with its input, they finalize. The process that made the unique id passes
// on what the others say. The id names a Unix socket in the abstract namespace, so that no file is left behind. A connection
// that closes before all ranks have finalized is ncclRemoteError on all of them.
//
// Nothing here waits for another process under a lock: what is said is queued, and a thread of the line writes it.
#include "tests/support/nccl-fake/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { FLUSH_SECONDS = 5 };

// What follows a message on the line is its input.
struct parcel {
    struct parcel *next;
    struct nccl_fake_message message;
    unsigned char input[];
};

// A connection to another process. It is never freed: its threads end by themselves.
struct line {
    struct nccl_fake_link *link;
    int fd;
    struct parcel *first, **last;
    int writing;
    struct line *next;
};

struct nccl_fake_link {
    ncclUniqueId id;
    int listener; // -1: another process has made the id, or nobody is waited for any more
    int begun, closed;
    pthread_mutex_t lock; // over what follows; taken alone
    pthread_cond_t changed;
    struct line *lines;
    struct nccl_fake_message joined[NCCL_FAKE_RANKS]; // for those that connect later
    uint32_t joined_count;
    struct nccl_fake_clique *clique;
    struct nccl_fake_link *next;
};

static pthread_mutex_t links_lock = PTHREAD_MUTEX_INITIALIZER;
static struct nccl_fake_link *links;

static struct nccl_fake_link *find_link(const ncclUniqueId *id)
{
    pthread_mutex_lock(&links_lock);
    struct nccl_fake_link *link = links;
    while (link && memcmp(&link->id, id, sizeof(*id)))
        link = link->next;
    if (!link) {
        link = calloc(1, sizeof(*link));
        if (!link)
            nccl_fake_stop("no memory");
        *link = (struct nccl_fake_link){.id = *id, .listener = -1, .next = links};
        pthread_mutex_init(&link->lock, NULL);
        pthread_cond_init(&link->changed, NULL);
        links = link;
    }
    pthread_mutex_unlock(&links_lock);
    return link;
}

static socklen_t fill_address(const ncclUniqueId *id, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX}; // the first byte 0: abstract
    const int length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1,
                                "nccl-fake %s", id->internal);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

void nccl_fake_listen(const ncclUniqueId *id)
{
    struct sockaddr_un address;
    const socklen_t bytes = fill_address(id, &address);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, bytes) || listen(fd, NCCL_FAKE_RANKS))
        nccl_fake_stop("no socket for the id \"%s\"", id->internal);
    find_link(id)->listener = fd;
}

// ---- Speaking ----

static int write_all(int fd, const void *data, size_t bytes)
{
    for (const char *at = data; bytes;) {
        const ssize_t wrote = send(fd, at, bytes, MSG_NOSIGNAL);
        if (wrote <= 0)
            return 0;
        at += wrote;
        bytes -= (size_t)wrote;
    }
    return 1;
}

static void *serve_writing(void *argument)
{
    struct line *line = argument;
    struct nccl_fake_link *link = line->link;
    for (int works = 1;;) {
        pthread_mutex_lock(&link->lock);
        line->writing = 0;
        pthread_cond_broadcast(&link->changed);
        while (!line->first && !link->closed)
            pthread_cond_wait(&link->changed, &link->lock);
        struct parcel *parcel = line->first;
        if (!parcel) {
            pthread_mutex_unlock(&link->lock);
            return NULL;
        }
        line->writing = 1;
        line->first = parcel->next;
        if (!line->first)
            line->last = &line->first;
        pthread_mutex_unlock(&link->lock);
        works = works && write_all(line->fd, &parcel->message, sizeof(parcel->message)) &&
                write_all(line->fd, parcel->input, parcel->message.bytes);
        free(parcel);
    }
}

static void append(struct line *line, const struct nccl_fake_message *message, const void *input)
{
    struct parcel *parcel = malloc(sizeof(*parcel) + message->bytes);
    if (!parcel)
        nccl_fake_stop("no memory");
    parcel->next = NULL;
    parcel->message = *message;
    if (input)
        memcpy(parcel->input, input, message->bytes);
    *line->last = parcel;
    line->last = &parcel->next;
}

// To all other processes but the one it comes from.
static void pass_on(struct nccl_fake_link *link, const struct line *from,
                    const struct nccl_fake_message *message, const void *input)
{
    pthread_mutex_lock(&link->lock);
    if (message->kind == NCCL_FAKE_JOINS && link->joined_count < NCCL_FAKE_RANKS)
        link->joined[link->joined_count++] = *message;
    for (struct line *line = link->lines; line && !link->closed; line = line->next)
        if (line != from)
            append(line, message, input);
    pthread_cond_broadcast(&link->changed);
    pthread_mutex_unlock(&link->lock);
}

void nccl_fake_tell(struct nccl_fake_clique *clique, const struct nccl_fake_message *message,
                    const void *input)
{
    if (clique->link)
        pass_on(clique->link, NULL, message, input);
}

// ---- Listening ----

static int read_all(int fd, void *data, size_t bytes)
{
    for (char *at = data; bytes;) {
        const ssize_t got = recv(fd, at, bytes, 0);
        if (got <= 0)
            return 0;
        at += got;
        bytes -= (size_t)got;
    }
    return 1;
}

static void *serve_reading(void *argument)
{
    struct line *line = argument;
    struct nccl_fake_link *link = line->link;
    struct nccl_fake_message message;
    while (read_all(line->fd, &message, sizeof(message))) {
        void *input = malloc(message.bytes + 1);
        if (!input)
            nccl_fake_stop("no memory");
        const int whole = read_all(line->fd, input, message.bytes);
        if (whole && link->listener >= 0)
            pass_on(link, line, &message, input);
        if (whole)
            nccl_fake_hear(link->clique, &message, input); // takes the input
        else
            free(input);
    }
    message = (struct nccl_fake_message){.kind = NCCL_FAKE_IS_LOST};
    if (nccl_fake_hear(link->clique, &message, NULL) && link->listener >= 0)
        pass_on(link, line, &message, NULL);
    return NULL;
}

static void start(void *(*serve)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, serve, argument))
        nccl_fake_stop("no thread");
    pthread_detach(thread);
}

static void add_line(struct nccl_fake_link *link, int fd)
{
    struct line *line = calloc(1, sizeof(*line));
    if (!line)
        nccl_fake_stop("no memory");
    *line = (struct line){.link = link, .fd = fd};
    line->last = &line->first;
    pthread_mutex_lock(&link->lock);
    line->next = link->lines;
    link->lines = line;
    for (uint32_t i = 0; i < link->joined_count; i++)
        append(line, &link->joined[i], NULL);
    const int closed = link->closed;
    pthread_mutex_unlock(&link->lock);
    if (closed)
        shutdown(fd, SHUT_RDWR);
    start(serve_writing, line);
    start(serve_reading, line);
}

static void *serve_listening(void *argument)
{
    struct nccl_fake_link *link = argument;
    for (int fd; (fd = accept(link->listener, NULL, NULL)) >= 0;)
        add_line(link, fd);
    return NULL;
}

// ---- Life ----

void nccl_fake_connect(struct nccl_fake_clique *clique)
{
    struct sockaddr_un address;
    struct nccl_fake_link *link = find_link(&clique->id);
    const socklen_t bytes = fill_address(&clique->id, &address);
    pthread_mutex_lock(&link->lock);
    const int begun = link->begun;
    link->begun = 1;
    link->clique = clique;
    pthread_mutex_unlock(&link->lock);
    if (begun)
        return;
    clique->link = link;
    if (link->listener >= 0) {
        start(serve_listening, link);
        return;
    }
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        nccl_fake_stop("no socket");
    if (connect(fd, (struct sockaddr *)&address, bytes))
        nccl_fake_hear(clique, &(struct nccl_fake_message){.kind = NCCL_FAKE_IS_LOST}, NULL);
    else
        add_line(link, fd);
}

static int has_more_to_write(const struct nccl_fake_link *link)
{
    int more = 0;
    for (const struct line *line = link->lines; line; line = line->next)
        more = more || line->first || line->writing;
    return more;
}

void nccl_fake_disconnect(struct nccl_fake_clique *clique, int well)
{
    struct nccl_fake_link *link = find_link(&clique->id);
    struct timespec end;
    int late = 0;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += FLUSH_SECONDS;
    pthread_mutex_lock(&link->lock);
    while (well && !late && has_more_to_write(link))
        late = pthread_cond_timedwait(&link->changed, &link->lock, &end);
    link->closed = 1;
    pthread_cond_broadcast(&link->changed);
    if (link->listener >= 0)
        shutdown(link->listener, SHUT_RDWR);
    for (struct line *line = link->lines; line; line = line->next)
        shutdown(line->fd, well ? SHUT_WR : SHUT_RDWR);
    pthread_mutex_unlock(&link->lock);
}
