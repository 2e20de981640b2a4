// SPDX-License-Identifier: Apache-2.0
// Connections come, and prove themselves or go.
#include "core/wire/door.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/wire/sockets.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#define ACCEPTS 64 // connections accepted at once
#define LEAST_STRANGERS 16
#define LISTENERS 2
#define LISTEN_PAUSE_NS UINT64_C(200000000) // where the process is out of descriptors
#define STARVED_NS UINT64_C(1000000000)
#define WARNINGS 3 // strangers that are reported one by one
#define FIRST_SUM 100 // of all; they are summed up then, and at ten times as many

// How much of the handshake is done. Each stage has a queue of its own, so that a
// stranger that has said nothing does not push out one that has greeted, and the other way round.
enum stage { STAGE_GREETING, STAGE_PROOF, STAGE_PROVED, STAGE_FREE, STAGES };

struct stranger {
    struct ls_connection connection;
    enum stage stage;
    uint64_t since_ns;
    struct stranger *next, *previous; // younger, older
};

struct queue {
    struct stranger *first, *last; // the oldest comes first
    uint32_t count;
};

struct ls_door {
    uint8_t key[LS_SECURE_KEY];
    int epoll, listeners[LISTENERS];
    uint32_t most; // strangers of a stage
    uint64_t listen_again_ns; // 0: it listens
    struct queue queues[STAGES];
    struct stranger *strangers; // all of them
    _Atomic uint64_t dropped[LS_STRANGER_REASONS];
    uint64_t starved_ns; // since when nobody could be accepted; 0: somebody could
    bool starved; // it was said
    uint32_t warned;
    uint64_t next_sum;
};

// ---- Queues ----

static void leave(struct ls_door *door, struct stranger *stranger)
{
    struct queue *queue = &door->queues[stranger->stage];
    *(stranger->previous ? &stranger->previous->next : &queue->first) = stranger->next;
    *(stranger->next ? &stranger->next->previous : &queue->last) = stranger->previous;
    queue->count--;
}

static void enter(struct ls_door *door, struct stranger *stranger, enum stage stage)
{
    struct queue *queue = &door->queues[stage];
    stranger->stage = stage;
    stranger->next = NULL;
    stranger->previous = queue->last;
    *(queue->last ? &queue->last->next : &queue->first) = stranger;
    queue->last = stranger;
    queue->count++;
}

static void move(struct ls_door *door, struct stranger *stranger, enum stage stage)
{
    leave(door, stranger);
    enter(door, stranger, stage);
}

// ---- Counting ----

uint64_t ls_door_strangers(const struct ls_door *door, enum ls_stranger_reason reason)
{
    return atomic_load_explicit(&door->dropped[reason], memory_order_relaxed);
}

uint64_t ls_door_all_strangers(const struct ls_door *door)
{
    uint64_t count = 0;
    for (int i = 0; i < LS_STRANGER_REASONS; i++)
        count += ls_door_strangers(door, (enum ls_stranger_reason)i);
    return count;
}

static void say_sum(const struct ls_door *door, const char *when)
{
    char at[128] = "?";
    if (door->listeners[0] >= 0)
        ls_socket_own(door->listeners[0], at, sizeof(at));
    ls_warn("cluster", "%llu connections to %s were dropped%s, %llu of them had another secret",
            (unsigned long long)ls_door_all_strangers(door), at, when,
            (unsigned long long)ls_door_strangers(door, LS_STRANGER_SECRET));
}

// One that says nothing is what a port scan or a health check does all day.
void ls_door_count(struct ls_door *door, const struct ls_connection *connection,
                   enum ls_stranger_reason reason)
{
    static const char *const texts[LS_STRANGER_REASONS] = {
        [LS_STRANGER_GREETING] = "it does not speak as a worker does",
        [LS_STRANGER_SECRET] = "it has another secret",
        [LS_STRANGER_SLOW] = "it did not show within 2 s who it is",
        [LS_STRANGER_CROWDED] = "too many connect at once",
        [LS_STRANGER_MALFORMED] = "its message makes no sense",
        [LS_STRANGER_SURPLUS] = "there are more of them than workers",
    };
    atomic_fetch_add_explicit(&door->dropped[reason], 1, memory_order_relaxed);
    if (texts[reason] && door->warned < WARNINGS) {
        char from[128];
        ls_socket_peer(connection->fd, from, sizeof(from));
        door->warned++;
        ls_warn("cluster", "a connection from %s was dropped: %s%s", from, texts[reason],
                door->warned == WARNINGS ? "; more of them are only counted" : "");
    }
    if (ls_door_all_strangers(door) >= door->next_sum) {
        door->next_sum *= 10;
        say_sum(door, " until now");
    }
}

// ---- Strangers ----

static void watch(struct ls_door *door, int operation, int fd, void *what)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = what}};
    (void)epoll_ctl(door->epoll, operation, fd, &event);
}

// The kernel takes a closed descriptor out of epoll, but not where a child of this process has it,
// too.
static void end(struct ls_door *door, struct stranger *stranger)
{
    watch(door, EPOLL_CTL_DEL, stranger->connection.fd, NULL);
    ls_connection_finish(&stranger->connection);
    move(door, stranger, STAGE_FREE);
}

static void turn_away(struct ls_door *door, struct stranger *stranger,
                      enum ls_stranger_reason reason)
{
    ls_door_count(door, &stranger->connection, reason);
    // So that a worker among them tries again at once, and this machine keeps nothing of the rest.
    if (reason == LS_STRANGER_CROWDED)
        ls_socket_reset(stranger->connection.fd);
    end(door, stranger);
}

static void make_room(struct ls_door *door, enum stage stage);

// Moves a handshake on, as far as it goes.
static void shake_hands(struct ls_door *door, struct stranger *stranger)
{
    struct ls_connection *connection = &stranger->connection;
    while (stranger->stage == STAGE_GREETING || stranger->stage == STAGE_PROOF) {
        const bool greets = stranger->stage == STAGE_GREETING;
        const enum ls_status status =
            ls_connection_read(connection, greets ? LS_SECURE_GREETING : LS_SECURE_PROOF);
        uint8_t out[LS_SECURE_PROOF];
        bool admitted = true;
        if (greets && !ls_secure_begins_greeting(connection->in, connection->in_bytes)) {
            turn_away(door, stranger, LS_STRANGER_GREETING);
            return;
        }
        if (status == LS_AGAIN)
            return;
        if (status) {
            turn_away(door, stranger, LS_STRANGER_SILENT);
            return;
        }
        connection->in_bytes = 0;
        if (greets)
            ls_secure_answer(&connection->secure, connection->in, out);
        else
            admitted = ls_secure_admit(&connection->secure, connection->in, out);
        // So few bytes go at once, or it is no worker.
        const bool sent =
            !ls_connection_queue(connection, out, greets ? LS_SECURE_NONCE : LS_SECURE_PROOF) &&
            !ls_connection_flush(connection);
        if (!admitted || !sent) {
            turn_away(door, stranger, admitted ? LS_STRANGER_SILENT : LS_STRANGER_SECRET);
            return;
        }
        if (greets)
            make_room(door, STAGE_PROOF);
        move(door, stranger, greets ? STAGE_PROOF : STAGE_PROVED);
    }
}

// The oldest of a full queue goes, if it still has nothing to say. It has had more time than all
// others.
static void make_room(struct ls_door *door, enum stage stage)
{
    while (door->queues[stage].count >= door->most) {
        struct stranger *oldest = door->queues[stage].first;
        shake_hands(door, oldest);
        if (oldest == door->queues[stage].first)
            turn_away(door, oldest, LS_STRANGER_CROWDED);
    }
}

static void let_in(struct ls_door *door, int fd)
{
    make_room(door, STAGE_GREETING);
    struct stranger *stranger = door->queues[STAGE_FREE].first;
    if (!stranger || ls_connection_init(&stranger->connection, fd, door->key)) {
        if (!stranger)
            close(fd);
        return;
    }
    stranger->since_ns = ls_clock_ns();
    move(door, stranger, STAGE_GREETING);
    watch(door, EPOLL_CTL_ADD, fd, stranger);
    shake_hands(door, stranger); // it has mostly greeted already
}

static void pause_listening(struct ls_door *door)
{
    const uint64_t now = ls_clock_ns();
    if (!door->starved)
        ls_warn("cluster", "this process has no descriptor for a connection that waits: raise the "
                           "limit of open files (ulimit -n)");
    door->starved = true;
    door->starved_ns = door->starved_ns ? door->starved_ns : now;
    door->listen_again_ns = now + LISTEN_PAUSE_NS;
    for (int i = 0; i < LISTENERS; i++)
        if (door->listeners[i] >= 0)
            watch(door, EPOLL_CTL_DEL, door->listeners[i], NULL);
}

bool ls_door_is_starved(const struct ls_door *door)
{
    return door->starved_ns && ls_clock_ns() - door->starved_ns > STARVED_NS;
}

// Where the process has no descriptor for another connection, the oldest stranger gives its own.
static bool free_descriptor(struct ls_door *door)
{
    for (int stage = STAGE_GREETING; stage <= STAGE_PROOF; stage++)
        if (door->queues[stage].first) {
            turn_away(door, door->queues[stage].first, LS_STRANGER_CROWDED);
            return true;
        }
    return false;
}

static void accept_some(struct ls_door *door, int listener)
{
    for (int i = 0; i < ACCEPTS && door->queues[STAGE_FREE].count; i++) {
        int fd;
        const enum ls_status status = ls_socket_accept(listener, &fd);
        if (status == LS_FAILED && free_descriptor(door))
            continue;
        if (status == LS_FAILED)
            pause_listening(door);
        if (status)
            return;
        door->starved_ns = 0;
        let_in(door, fd);
    }
}

static void drop_late(struct ls_door *door)
{
    const uint64_t now = ls_clock_ns();
    for (int stage = STAGE_GREETING; stage <= STAGE_PROOF; stage++)
        for (struct stranger *oldest = door->queues[stage].first, *next; oldest; oldest = next) {
            next = oldest->next;
            if (now - oldest->since_ns > LS_STRANGER_NS)
                turn_away(door, oldest, LS_STRANGER_SLOW);
            else if (stage == STAGE_GREETING)
                break; // all others are younger
        }
    if (!door->listen_again_ns || now < door->listen_again_ns)
        return;
    door->listen_again_ns = 0;
    for (int i = 0; i < LISTENERS; i++)
        if (door->listeners[i] >= 0)
            watch(door, EPOLL_CTL_ADD, door->listeners[i], &door->listeners[i]);
}

// An event of a stranger that has made room in the meantime finds none, or another one, which is
// then asked in vain.
static void take_events(struct ls_door *door)
{
    struct epoll_event events[ACCEPTS];
    const int count = epoll_wait(door->epoll, events, ACCEPTS, 0);
    for (int i = 0; i < count; i++) {
        int *listener = events[i].data.ptr;
        if (listener >= door->listeners && listener < door->listeners + LISTENERS)
            accept_some(door, *listener);
        else
            shake_hands(door, events[i].data.ptr);
    }
}

enum ls_status ls_door_next(struct ls_door *door, struct ls_connection *out)
{
    if (!door->queues[STAGE_PROVED].first) {
        take_events(door);
        drop_late(door);
    }
    struct stranger *proved = door->queues[STAGE_PROVED].first;
    if (!proved)
        return LS_AGAIN;
    watch(door, EPOLL_CTL_DEL, proved->connection.fd, NULL);
    *out = proved->connection;
    sodium_memzero(&proved->connection, sizeof(proved->connection));
    move(door, proved, STAGE_FREE);
    return LS_OK;
}

// ---- Opening, closing ----

// Each stranger has a descriptor, and the rest of the process needs some.
static uint32_t most_strangers(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur / 8 >= LS_MOST_STRANGERS)
        return LS_MOST_STRANGERS;
    return limit.rlim_cur / 8 > LEAST_STRANGERS ? (uint32_t)(limit.rlim_cur / 8) : LEAST_STRANGERS;
}

enum ls_status ls_door_open(const uint8_t key[LS_SECURE_KEY], struct ls_door **out)
{
    struct ls_door *door = calloc(1, sizeof(*door));
    if (!door)
        return LS_OUT_OF_MEMORY;
    memcpy(door->key, key, sizeof(door->key));
    door->listeners[0] = door->listeners[1] = -1;
    door->next_sum = FIRST_SUM;
    door->most = most_strangers();
    const uint32_t room = 2 * door->most + 2 * ACCEPTS;
    door->epoll = epoll_create1(EPOLL_CLOEXEC);
    const int error = errno;
    door->strangers = calloc(room, sizeof(*door->strangers));
    for (uint32_t i = 0; door->strangers && i < room; i++)
        enter(door, &door->strangers[i], STAGE_FREE);
    if (door->strangers && door->epoll >= 0) {
        *out = door;
        return LS_OK;
    }
    const bool memory = door->strangers;
    if (memory)
        ls_error("cluster", "a store or server cannot begin: %s", strerror(error));
    ls_door_close(door);
    return memory ? LS_FAILED : LS_OUT_OF_MEMORY;
}

enum ls_status ls_door_listen(struct ls_door *door, int listener)
{
    for (int i = 0; i < LISTENERS; i++)
        if (door->listeners[i] < 0) {
            door->listeners[i] = listener;
            watch(door, EPOLL_CTL_ADD, listener, &door->listeners[i]);
            return LS_OK;
        }
    close(listener);
    return LS_FAILED;
}

int ls_door_fd(const struct ls_door *door)
{
    return door->epoll;
}

void ls_door_close(struct ls_door *door)
{
    if (!door)
        return;
    const uint32_t here = door->queues[STAGE_GREETING].count + door->queues[STAGE_PROOF].count;
    atomic_fetch_add_explicit(&door->dropped[LS_STRANGER_SILENT], here, memory_order_relaxed);
    const uint64_t all = ls_door_all_strangers(door);
    if (all - ls_door_strangers(door, LS_STRANGER_SILENT) > WARNINGS || all >= FIRST_SUM)
        say_sum(door, "");
    for (int stage = STAGE_GREETING; door->strangers && stage <= STAGE_PROVED; stage++)
        while (door->queues[stage].first)
            end(door, door->queues[stage].first);
    for (int i = 0; i < LISTENERS; i++)
        if (door->listeners[i] >= 0)
            close(door->listeners[i]);
    if (door->epoll >= 0)
        close(door->epoll);
    free(door->strangers);
    sodium_memzero(door->key, sizeof(door->key));
    free(door);
}
