// SPDX-License-Identifier: Apache-2.0
// A member of the cluster, which is connected to the store: its thread, what the store says, and
// the calls that wait for it.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // eventfd
#endif
#include "core/cluster/member.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/threads.h"
#include "core/cluster/frames.h"
#include "core/cluster/liveness.h"
#include "core/wire/sockets.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define FAREWELL_NS UINT64_C(1000000000)
#define WAKE_MS 5 // between two looks whether a goodbye has been heard
#define PATIENCE_NS UINT64_C(2000000000) // for the store's own message about a deadline
#define WELCOME_PATIENCE_NS UINT64_C(3000000000)
#define LOOK_NS UINT64_C(200000000) // how often a waiting call looks at its clock
#define SAY_AFTER_NS UINT64_C(5000000000)

enum ls_member_phase {
    LS_MEMBER_JOINING,
    LS_MEMBER_FORMED,
    LS_MEMBER_ENDED, // worker 0 has ended in order
    LS_MEMBER_FAILED, // `status` and `text` say how
};

// A thread that waits for the other members of a meeting; on its stack.
struct ls_meet_call {
    uint64_t sequence;
    char *all;
    size_t bytes, arrived; // of all members
    bool waits;
    enum ls_status status; // LS_OK, or why it failed; `text` says it
    char text[LS_TEXT_BYTES];
    struct ls_meet_call *next;
};

struct ls_member {
    struct ls_connection connection; // received from by the thread; sent to under the lock
    int wake;
    int reserve; // borrowed; -1: none. Under the lock
    pthread_t thread;
    bool threadless; // it could not be started again
    uint32_t number, workers; // number: among all members
    uint32_t generation;
    bool elastic; // a loss is no error
    uint64_t deadline_ns, silence_ns, beat_ns;
    const atomic_bool *interrupted; // NULL: never
    void (*lost)(void *context, const char *text);
    void (*departed)(void *context, uint32_t worker, bool lost, const char *text);
    void (*told)(void *context, uint32_t worker, const char *key, const char *text);
    void *context;
    char address[LS_HOST_BYTES + 16]; // of the store
    struct ls_said said;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    _Atomic uint32_t phase; // enum ls_member_phase; changes under the lock
    bool formed; // all were there once, whatever came after
    bool claimed; // somebody is reporting the failure
    bool chief_lost; // the connection, or worker 0 itself
    bool stood; // and this process was stopped then, so that it may be the lost one
    bool cast_out; // the others go on without this worker
    bool reforming; // the main thread waits for a new generation
    bool joins; // a training that has begun takes this worker in when it forms anew
    bool outside; // it knows
    enum ls_status reform_status; // why it will not form anew
    enum ls_status status;
    char text[LS_TEXT_BYTES + LS_WHERE_BYTES + 64];
    bool closing; // in order, with a goodbye
    bool leaving; // the thread ends, because the connection will be replaced
    char chief_host[LS_NAME_BYTES];
    struct ls_welcome welcome;
    // The exchange under way.
    bool wants_result;
    uint64_t sequence;
    uint8_t *result;
    size_t result_room, result_bytes, result_total;
    struct ls_meet_call *meetings; // that are waited for
    uint64_t meeting_sequence;
    struct ls_frame frame; // to send; under the lock

    // The thread's own.
    struct ls_own_clock clock;
    uint64_t heard_ns, beat_at_ns; // own clock
    struct ls_spot chief; // where worker 0 was
    uint8_t plain[LS_FRAME_PLAIN];
};

// ---- Failing ----

static void wake_thread(struct ls_member *member)
{
    const uint64_t one = 1;
    (void)!write(member->wake, &one, sizeof(one));
}

// The sentence of the store says what the lost worker was at; here follows what this one was at,
// and so what the other has missed: "; this worker was in step 118, bucket 0".
static void add_own_spot(struct ls_member *member, const char *text, char *out, size_t bytes)
{
    struct ls_spot spot = {.step = LS_NO_STEP};
    char where[LS_WHERE_BYTES + 40] = "";
    ls_said_read(&member->said, &spot);
    if (spot.step != LS_NO_STEP)
        ls_spot_text(&spot, where, sizeof(where));
    snprintf(out, bytes, "%s%s%s", text, *where ? "; this worker was" : "", where);
}

// The first failure is reported, before anybody sees that there is one. [any thread, without the
// lock]
static void fail(struct ls_member *member, enum ls_status status, const char *reason)
{
    char text[LS_TEXT_BYTES + LS_WHERE_BYTES + 64];
    if (status == LS_PEER_LOST)
        add_own_spot(member, reason, text, sizeof(text));
    else
        snprintf(text, sizeof(text), "%s", reason);
    pthread_mutex_lock(&member->lock);
    const bool first = !member->claimed && !member->closing;
    const bool formed = member->formed, cast_out = member->cast_out;
    const bool goes_on = member->elastic && formed && status == LS_PEER_LOST && !member->cast_out;
    member->claimed = true;
    pthread_mutex_unlock(&member->lock);
    if (!first)
        return;
    if (goes_on)
        ls_warn("cluster", "%s", text);
    else
        ls_error("cluster", "%s", text);
    pthread_mutex_lock(&member->lock);
    member->status = status;
    snprintf(member->text, sizeof(member->text), "%s", text);
    atomic_store(&member->phase, LS_MEMBER_FAILED);
    pthread_cond_broadcast(&member->changed);
    pthread_mutex_unlock(&member->lock);
    if (formed && member->lost)
        member->lost(member->context, member->text);
    if (formed && member->departed) // this worker, or the store's
        member->departed(member->context, cast_out ? member->number : 0, true, member->text);
}

// Worker 0 is gone, or its store is.
static void lose_chief(struct ls_member *member, const char *why)
{
    char name[LS_NAME_BYTES + 32], text[LS_TEXT_BYTES];
    pthread_mutex_lock(&member->lock);
    const uint32_t phase = atomic_load(&member->phase);
    const bool formed = member->formed;
    const bool another = member->reforming || (member->joins && !formed); // may be found
    member->chief_lost = true;
    member->stood = ls_own_clock_stood(&member->clock);
    pthread_cond_broadcast(&member->changed);
    pthread_mutex_unlock(&member->lock);
    if (phase == LS_MEMBER_ENDED || another)
        return;
    if (!formed) {
        snprintf(text, sizeof(text), "worker 0 (%s) was lost before all workers were there: %s",
                 member->address, why);
    } else {
        ls_member_name(0, member->workers, member->departed != NULL, member->chief_host, name,
                       sizeof(name));
        ls_lost_sentence(name, &member->chief, why, text, sizeof(text));
    }
    fail(member, LS_PEER_LOST, text);
}

// ---- Sending ----

// Sends member->frame, under the lock. What the socket does not take now, the thread sends later.
static void send_frame(struct ls_member *member)
{
    // A full queue: worker 0 does not read, so its silence ends this.
    if (ls_connection_send(&member->connection, member->frame.data, member->frame.bytes) == LS_OK &&
        ls_connection_flush(&member->connection) == LS_AGAIN)
        wake_thread(member);
}

static enum ls_status send_join(struct ls_member *member, const struct ls_cluster_options *options,
                                enum ls_join_kind kind)
{
    const struct ls_worker_place *place = options->place;
    struct ls_frame *frame = &member->frame;
    char identity[160], name[LS_NAME_BYTES];
    ls_machine_identity(identity, sizeof(identity));
    ls_machine_name(name);
    ls_frame_begin(frame, LS_FRAME_JOIN, member->generation);
    ls_frame_put_u8(frame, (uint8_t)place->role);
    ls_frame_put_u8(frame, (uint8_t)kind);
    ls_frame_put_u32(frame, kind == LS_JOIN_AGAIN ? member->number : place->number);
    ls_frame_put_u32(frame, kind == LS_JOIN_AGAIN ? member->workers : place->workers);
    ls_frame_put_u32(frame, place->servers);
    ls_frame_put_u32(frame, place->role == LS_ROLE_SERVER ? 0 : options->count);
    ls_frame_put_u32(frame, place->restart);
    ls_frame_put_u64(frame, (uint64_t)getpid());
    ls_frame_put_u16(frame, member->reserve < 0 ? 0 : ls_socket_port(member->reserve));
    ls_frame_put_text(frame, options->host ? options->host : identity);
    ls_frame_put_text(frame, options->host ? options->host : name);
    const bool names_job = *place->job || !place->joins;
    ls_frame_put_u16(frame, (uint16_t)(options->agreements + (names_job ? 2 : 1)));
    ls_frame_put_text(frame, "store protocol");
    ls_frame_put_text(frame, "2");
    if (names_job) {
        ls_frame_put_text(frame, "job");
        ls_frame_put_text(frame, *place->job ? place->job : "without a name");
    }
    for (uint32_t i = 0; i < options->agreements; i++) {
        ls_frame_put_text(frame, options->agreement[i].name);
        ls_frame_put_text(frame, options->agreement[i].value);
    }
    if (frame->full) {
        ls_error("cluster", "what the workers must agree on is longer than %zu bytes",
                 LS_FRAME_PLAIN);
        return LS_USAGE;
    }
    send_frame(member);
    return LS_OK;
}

static void send_beat(struct ls_member *member)
{
    struct ls_spot spot = {.step = LS_NO_STEP};
    ls_said_read(&member->said, &spot);
    pthread_mutex_lock(&member->lock);
    ls_frame_begin(&member->frame, LS_FRAME_BEAT, member->generation);
    ls_frame_put_u64(&member->frame, spot.step);
    ls_frame_put_text(&member->frame, spot.where);
    send_frame(member);
    pthread_mutex_unlock(&member->lock);
}

// ---- What the store says ----

// Functions that take a frame return false where it makes no sense.

static void welcome_finish(struct ls_welcome *welcome)
{
    free(welcome->counts);
    free(welcome->hosts);
    free(welcome->former);
    free(welcome->reserves);
    free(welcome->gone);
    memset(welcome, 0, sizeof(*welcome));
}

static bool welcome_init(struct ls_welcome *welcome)
{
    welcome->counts = calloc(welcome->workers, sizeof(*welcome->counts));
    welcome->hosts = calloc(welcome->workers, sizeof(*welcome->hosts));
    welcome->former = calloc(welcome->workers, sizeof(*welcome->former));
    welcome->reserves = calloc(welcome->workers, sizeof(*welcome->reserves));
    welcome->gone = calloc(welcome->workers, sizeof(*welcome->gone));
    return welcome->counts && welcome->hosts && welcome->former && welcome->reserves &&
           welcome->gone;
}

// The store knows no address of its own worker 0, but this worker has just connected to it.
static void get_workers(struct ls_frame_reader *reader, bool elastic, int store,
                        struct ls_welcome *welcome)
{
    for (uint32_t i = 0; i < welcome->workers; i++) {
        welcome->counts[i] = ls_frame_get_u32(reader);
        welcome->hosts[i] = ls_frame_get_u32(reader);
        if (welcome->counts[i] == 0 || welcome->hosts[i] >= welcome->workers)
            reader->wrong = true;
        if (!elastic)
            continue;
        struct ls_reserve *reserve = &welcome->reserves[i];
        welcome->former[i] = ls_frame_get_u32(reader);
        reserve->port = ls_frame_get_u16(reader);
        ls_frame_get_text(reader, reserve->address, sizeof(reserve->address));
        if (reserve->port && !reserve->address[0])
            ls_socket_peer_host(store, reserve->address, sizeof(reserve->address));
    }
}

// Everything of the last generation is over.
static bool begin_generation(struct ls_member *member, struct ls_welcome *welcome)
{
    const size_t room = welcome->workers * (ls_store_part(welcome->workers) + 4);
    uint8_t *result = malloc(room);
    if (!result)
        return false;
    pthread_mutex_lock(&member->lock);
    free(member->result);
    member->result = result;
    member->result_room = room;
    welcome_finish(&member->welcome);
    member->welcome = *welcome;
    member->number = welcome->number;
    member->workers = welcome->workers;
    member->generation = welcome->generation;
    member->sequence = 0;
    if (!member->claimed || member->reforming) {
        member->claimed = false;
        member->formed = true;
        atomic_store(&member->phase, LS_MEMBER_FORMED);
    }
    member->reforming = member->outside = false;
    pthread_cond_broadcast(&member->changed);
    pthread_mutex_unlock(&member->lock);
    return true;
}

static bool take_welcome(struct ls_member *member, uint32_t generation,
                         struct ls_frame_reader *reader)
{
    struct ls_welcome welcome = {.generation = generation};
    pthread_mutex_lock(&member->lock);
    const bool joins = member->phase == LS_MEMBER_JOINING, reforming = member->reforming,
               outside = member->outside;
    pthread_mutex_unlock(&member->lock);
    welcome.number = ls_frame_get_u32(reader);
    welcome.workers = ls_frame_get_u32(reader);
    welcome.survivors = ls_frame_get_u32(reader);
    ls_frame_get_text(reader, member->chief_host, sizeof(member->chief_host));
    const bool elastic = ls_frame_get_u8(reader);
    const bool expected = reforming ? generation > member->generation : joins;
    const bool same = reforming || outside || welcome.workers == member->workers;
    if (reader->wrong || !expected || !same || welcome.workers == 0 ||
        welcome.workers > LS_MOST_MEMBERS || welcome.survivors > welcome.workers)
        return false;
    bool good = welcome_init(&welcome);
    if (good)
        get_workers(reader, elastic, member->connection.fd, &welcome);
    good = good && !reader->wrong && begin_generation(member, &welcome);
    if (!good)
        welcome_finish(&welcome);
    return good;
}

static bool take_result(struct ls_member *member, struct ls_frame_reader *reader)
{
    const uint64_t sequence = ls_frame_get_u64(reader);
    const uint32_t total = ls_frame_get_u32(reader), offset = ls_frame_get_u32(reader);
    pthread_mutex_lock(&member->lock);
    const bool late = !reader->wrong && sequence < member->sequence; // nobody waits any more
    const bool good = !reader->wrong && member->wants_result && sequence == member->sequence &&
                      total <= member->result_room && total >= 4 * (size_t)member->workers &&
                      offset == member->result_bytes && reader->left <= total - offset;
    if (good) {
        memcpy(member->result + offset, reader->at, reader->left);
        member->result_bytes += reader->left;
        member->result_total = total;
        if (member->result_bytes == total) {
            member->wants_result = false;
            pthread_cond_broadcast(&member->changed);
        }
    }
    pthread_mutex_unlock(&member->lock);
    return good || late;
}

static bool take_beat(struct ls_member *member, struct ls_frame_reader *reader)
{
    struct ls_spot chief;
    chief.step = ls_frame_get_u64(reader);
    ls_frame_get_text(reader, chief.where, sizeof(chief.where));
    if (!reader->wrong)
        member->chief = chief;
    return !reader->wrong;
}

// While this worker waits for a new generation, a loss is what the generation is for.
static void take_loss_apart(struct ls_member *member, bool of_this, enum ls_status status,
                            const char *text)
{
    if (!of_this && status == LS_PEER_LOST)
        return;
    ls_error("cluster", "%s", text);
    pthread_mutex_lock(&member->lock);
    member->reform_status = status;
    pthread_cond_broadcast(&member->changed);
    pthread_mutex_unlock(&member->lock);
}

// Why the training does not begin, or cannot go on: status, member (of LS_FRAME_LOST), text.
static bool take_failure(struct ls_member *member, uint8_t kind, struct ls_frame_reader *reader)
{
    char text[LS_TEXT_BYTES], whole[LS_TEXT_BYTES + 64];
    const uint32_t status = ls_frame_get_u32(reader);
    const uint32_t number = kind == LS_FRAME_LOST ? ls_frame_get_u32(reader) : UINT32_MAX;
    ls_frame_get_text(reader, text, sizeof(text));
    const bool known = status == LS_PEER_LOST || status == LS_USAGE || status == LS_FAILED ||
                       status == LS_OUT_OF_MEMORY;
    if (reader->wrong || !known)
        return false;
    const bool of_this = status == LS_PEER_LOST && number == member->number;
    if (member->departed && member->formed && status == LS_PEER_LOST && !of_this) {
        ls_warn("cluster", "%s", text);
        member->departed(member->context, number, true, text);
        return true;
    }
    snprintf(whole, sizeof(whole), "%s%s", text,
             !of_this           ? ""
             : member->departed ? "; that is this process"
                                : "; that is this worker");
    pthread_mutex_lock(&member->lock);
    const bool reforming = member->reforming;
    member->cast_out = member->cast_out || of_this;
    if (status == LS_PEER_LOST && member->welcome.gone && number < member->welcome.workers)
        member->welcome.gone[number] = true;
    if (status == LS_PEER_LOST && number == 0 && member->elastic)
        member->chief_lost = true; // it says so itself, and will close the store
    pthread_cond_broadcast(&member->changed);
    pthread_mutex_unlock(&member->lock);
    if (reforming)
        take_loss_apart(member, of_this || kind == LS_FRAME_REFUSED, (enum ls_status)status, whole);
    else
        fail(member, (enum ls_status)status, whole);
    return true;
}

static bool take_end(struct ls_member *member)
{
    pthread_mutex_lock(&member->lock);
    const bool early = !member->formed || member->reforming;
    const bool ends = !early && member->phase == LS_MEMBER_FORMED && !member->claimed;
    if (ends)
        atomic_store(&member->phase, LS_MEMBER_ENDED);
    pthread_cond_broadcast(&member->changed);
    pthread_mutex_unlock(&member->lock);
    if (early)
        lose_chief(member, "it has ended");
    if (ends && member->departed && member->number) {
        char name[LS_NAME_BYTES + 32], text[LS_TEXT_BYTES];
        ls_member_name(0, member->workers, true, member->chief_host, name, sizeof(name));
        snprintf(text, sizeof(text), "%s has left the job", name);
        member->departed(member->context, 0, false, text);
    }
    return true;
}

// A worker that is apart has ended in order.
static bool take_left(struct ls_member *member, struct ls_frame_reader *reader)
{
    char text[LS_TEXT_BYTES];
    const uint32_t number = ls_frame_get_u32(reader);
    ls_frame_get_text(reader, text, sizeof(text));
    if (reader->wrong || !member->departed)
        return false;
    if (number != member->number)
        member->departed(member->context, number, false, text);
    return true;
}

static bool take_told(struct ls_member *member, struct ls_frame_reader *reader)
{
    char key[LS_KEY_BYTES], text[LS_TEXT_BYTES];
    const uint32_t number = ls_frame_get_u32(reader);
    ls_frame_get_text(reader, key, sizeof(key));
    ls_frame_get_text(reader, text, sizeof(text));
    if (!reader->wrong && member->told)
        member->told(member->context, number, key, text);
    return !reader->wrong;
}

static struct ls_meet_call *find_meeting(const struct ls_member *member, uint64_t sequence)
{
    struct ls_meet_call *call = member->meetings;
    while (call && call->sequence != sequence)
        call = call->next;
    return call;
}

// A part of what all members of a meeting gave, or why it has failed. The call that waited for it
// may have given up.
static bool take_met(struct ls_member *member, struct ls_frame_reader *reader)
{
    const uint64_t sequence = ls_frame_get_u64(reader);
    const uint32_t status = ls_frame_get_u32(reader);
    const uint32_t offset = status ? 0 : ls_frame_get_u32(reader);
    bool good = !reader->wrong;
    pthread_mutex_lock(&member->lock);
    struct ls_meet_call *call = good ? find_meeting(member, sequence) : NULL;
    if (call && status) {
        ls_frame_get_text(reader, call->text, sizeof(call->text));
        call->status = status == LS_PEER_LOST ? LS_PEER_LOST : LS_FAILED;
        call->waits = false;
    } else if (call) {
        good = offset == call->arrived && reader->left <= call->bytes - offset;
        if (good && reader->left)
            memcpy(call->all + offset, reader->at, reader->left);
        call->arrived += good ? reader->left : 0;
        call->waits = call->arrived < call->bytes;
    }
    pthread_cond_broadcast(&member->changed);
    pthread_mutex_unlock(&member->lock);
    return good && !reader->wrong;
}

static bool take_wait(struct ls_member *member)
{
    pthread_mutex_lock(&member->lock);
    const bool good = member->phase == LS_MEMBER_JOINING && member->elastic;
    member->outside = member->joins = good;
    pthread_mutex_unlock(&member->lock);
    return good;
}

static bool take_frame(struct ls_member *member, size_t bytes)
{
    struct ls_frame_reader reader = {.at = member->plain, .left = bytes};
    const uint8_t kind = ls_frame_get_u8(&reader);
    const uint32_t generation = ls_frame_get_u32(&reader);
    if (reader.wrong)
        return false;
    if (kind == LS_FRAME_WELCOME)
        return take_welcome(member, generation, &reader);
    const bool comes_late = kind == LS_FRAME_REFUSED; // the others have formed anew without it
    if (generation != member->generation && member->formed && !comes_late)
        return false;
    switch (kind) {
    case LS_FRAME_RESULT: return take_result(member, &reader);
    case LS_FRAME_BEAT: return take_beat(member, &reader);
    case LS_FRAME_REFUSED:
    case LS_FRAME_LOST: return take_failure(member, kind, &reader);
    case LS_FRAME_GOODBYE: return take_end(member);
    case LS_FRAME_WAIT: return take_wait(member);
    case LS_FRAME_MET: return take_met(member, &reader);
    case LS_FRAME_LEFT: return take_left(member, &reader);
    case LS_FRAME_TOLD: return take_told(member, &reader);
    default: return false;
    }
}

// Reads all that is there. False: the connection is over.
static bool read_frames(struct ls_member *member)
{
    for (;;) {
        size_t bytes;
        const enum ls_status status = ls_connection_receive(&member->connection, member->plain,
                                                            sizeof(member->plain), &bytes);
        if (status == LS_AGAIN)
            return true;
        if (!status && take_frame(member, bytes)) {
            member->heard_ns = member->clock.now_ns;
            continue;
        }
        lose_chief(member, status == LS_PEER_LOST   ? "its connection closed"
                           : status == LS_BAD_INPUT ? "what arrived was not what it sent"
                           : status                 ? "this worker has no memory for its message"
                                                    : "its message makes no sense");
        return false;
    }
}

// ---- The thread ----

// After a goodbye: until the machine of worker 0 has it, unless nothing comes from there any more.
static void say_farewell(struct ls_member *member)
{
    const uint64_t end = ls_clock_ns() + FAREWELL_NS;
    for (bool waits = true; waits && ls_clock_ns() < end;) {
        pthread_mutex_lock(&member->lock);
        waits = ls_connection_flush(&member->connection) != LS_PEER_LOST && !member->chief_lost &&
                ls_connection_is_unconfirmed(&member->connection);
        pthread_mutex_unlock(&member->lock);
        if (waits)
            poll(NULL, 0, WAKE_MS);
    }
}

static void watch_chief(struct ls_member *member)
{
    const uint64_t silence = member->clock.now_ns - member->heard_ns;
    char why[96];
    if (silence <= member->silence_ns)
        return;
    snprintf(why, sizeof(why), "it was silent for %.1f s, so it is stopped or cut off",
             (double)silence * 1e-9);
    lose_chief(member, why);
}

static void drain_reserve(struct ls_member *member)
{
    pthread_mutex_lock(&member->lock);
    if (member->reserve >= 0)
        ls_socket_drain(member->reserve);
    pthread_mutex_unlock(&member->lock);
}

void ls_member_leave_reserve(struct ls_member *member)
{
    pthread_mutex_lock(&member->lock);
    member->reserve = -1;
    pthread_mutex_unlock(&member->lock);
}

static void *run(void *argument)
{
    struct ls_member *member = argument;
    for (;;) {
        pthread_mutex_lock(&member->lock);
        const bool closing = member->closing, leaving = member->leaving;
        const bool waits = ls_connection_flush(&member->connection) == LS_AGAIN;
        const int reserve = member->reserve;
        pthread_mutex_unlock(&member->lock);
        if (closing)
            say_farewell(member);
        if (closing || leaving)
            return NULL;
        struct pollfd fds[] = {
            {.fd = member->connection.fd, .events = (short)(waits ? POLLIN | POLLOUT : POLLIN)},
            {.fd = member->wake, .events = POLLIN},
            {.fd = reserve, .events = POLLIN},
        };
        const int count = poll(fds, 3, (int)(member->beat_ns / 2000000));
        ls_own_clock_look(&member->clock, member->beat_ns);
        uint64_t woken;
        if (count > 0 && fds[1].revents)
            (void)!read(member->wake, &woken, sizeof(woken));
        if (count > 0 && fds[2].revents)
            drain_reserve(member);
        if (count > 0 && fds[0].revents & ~POLLOUT && !read_frames(member))
            return NULL;
        if (member->clock.now_ns >= member->beat_at_ns) {
            member->beat_at_ns = member->clock.now_ns + member->beat_ns;
            send_beat(member);
        }
        watch_chief(member);
    }
}

// ---- Opening, closing ----

static void destroy(struct ls_member *member)
{
    ls_connection_finish(&member->connection);
    if (member->wake >= 0)
        close(member->wake);
    pthread_mutex_destroy(&member->lock);
    pthread_cond_destroy(&member->changed);
    welcome_finish(&member->welcome);
    free(member->result);
    free(member);
}

static void take_connection(struct ls_member *member, struct ls_connection *connection)
{
    member->connection = *connection;
    sodium_memzero(connection, sizeof(*connection));
    connection->fd = -1;
}

static struct ls_member *create(struct ls_connection *connection,
                                const struct ls_cluster_options *options)
{
    const struct ls_worker_place *place = options->place;
    struct ls_member *member = calloc(1, sizeof(*member));
    if (!member) {
        ls_connection_finish(connection);
        return NULL;
    }
    take_connection(member, connection);
    pthread_mutex_init(&member->lock, NULL);
    ls_condition_init(&member->changed);
    member->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    member->workers = place->workers;
    member->number = place->number + (place->role == LS_ROLE_SERVER ? place->workers : 0);
    member->elastic = options->most_workers > 0;
    member->joins = place->joins;
    member->deadline_ns = options->deadline_ns;
    member->silence_ns = options->silence_ns;
    member->beat_ns = ls_beat_ns(options->silence_ns);
    member->clock.stand_ns = ls_stand_ns(options->silence_ns);
    member->interrupted = options->interrupted;
    member->lost = options->lost;
    member->departed = options->departed;
    member->told = options->told;
    member->context = options->context;
    member->chief.step = LS_NO_STEP;
    snprintf(member->address, sizeof(member->address), "%s:%u", place->address, place->port);
    if (member->wake >= 0)
        return member;
    destroy(member);
    return NULL;
}

static enum ls_status begin(struct ls_member *member, const struct ls_cluster_options *options,
                            enum ls_join_kind kind, int reserve)
{
    member->reserve = reserve;
    const enum ls_status status = send_join(member, options, kind);
    if (status)
        return status;
    member->heard_ns = member->clock.now_ns;
    ls_own_clock_look(&member->clock, 0);
    return ls_thread_start(&member->thread, "cluster", run, member);
}

enum ls_status ls_member_open(struct ls_connection *connection,
                              const struct ls_cluster_options *options, int reserve,
                              struct ls_member **out)
{
    struct ls_member *member = create(connection, options);
    if (!member)
        return LS_OUT_OF_MEMORY;
    const enum ls_join_kind kind = options->place->joins ? LS_JOIN_LATER : LS_JOIN_FIRST;
    const enum ls_status status = begin(member, options, kind, reserve);
    if (status) {
        destroy(member);
        return status;
    }
    *out = member;
    return LS_OK;
}

static void end_thread(struct ls_member *member)
{
    wake_thread(member);
    pthread_join(member->thread, NULL);
}

void ls_member_close(struct ls_member *member)
{
    if (!member)
        return;
    pthread_mutex_lock(&member->lock);
    if (member->phase != LS_MEMBER_FAILED && !member->claimed) {
        ls_frame_begin(&member->frame, LS_FRAME_GOODBYE, member->generation);
        send_frame(member);
    }
    member->closing = true;
    pthread_mutex_unlock(&member->lock);
    if (!member->threadless)
        end_thread(member);
    destroy(member);
}

// ---- Waiting ----

// Until *waits is false. The lock is held. Time counts only as far as this thread runs, so that a
// job that was stopped as a whole, and continues, has lost nothing. LS_AGAIN: the deadline passed.
static enum ls_status wait_while(struct ls_member *member, const bool *waits, uint64_t deadline_ns)
{
    struct ls_own_clock clock = {0};
    ls_own_clock_look(&clock, 0);
    while (*waits) {
        if (member->phase == LS_MEMBER_FAILED)
            return member->status;
        if (member->phase == LS_MEMBER_ENDED)
            return LS_PEER_LOST;
        if (clock.now_ns >= deadline_ns)
            return LS_AGAIN;
        const uint64_t left = deadline_ns - clock.now_ns;
        ls_condition_wait(&member->changed, &member->lock, left < LOOK_NS ? left : LOOK_NS);
        ls_own_clock_look(&clock, 2 * LOOK_NS);
    }
    return LS_OK;
}

// The store ends exchanges whose deadline has passed, and says for whom it waited; this worker
// waits a little longer, so that it hears that.
static enum ls_status end_exchange(struct ls_member *member, enum ls_status status,
                                   const char *operation)
{
    char text[LS_TEXT_BYTES];
    if (status != LS_AGAIN && atomic_load(&member->phase) != LS_MEMBER_ENDED)
        return status;
    if (status == LS_AGAIN)
        snprintf(text, sizeof(text), "%s: worker 0 (%s) did not answer within %.1f s", operation,
                 member->chief_host, (double)(member->deadline_ns + PATIENCE_NS) * 1e-9);
    else
        snprintf(text, sizeof(text), "%s: worker 0 (%s) has ended, but this worker waits for it",
                 operation, member->chief_host);
    fail(member, LS_PEER_LOST, text);
    return LS_PEER_LOST;
}

// Says for what it waits: a new worker is told nothing until the others form anew.
static void say_outside(const struct ls_member *member, uint64_t passed_ns, uint64_t deadline_ns,
                        uint64_t *say_at)
{
    if (!member->outside || passed_ns < *say_at)
        return;
    *say_at = passed_ns + ls_log_wait_ns();
    ls_info("cluster", "waiting until the training at %s takes this worker in, %.0f s of %g s",
            member->address, (double)passed_ns * 1e-9, (double)deadline_ns * 1e-9);
}

enum ls_status ls_member_wait_welcome(struct ls_member *member, uint64_t deadline_ns,
                                      const struct ls_welcome **out)
{
    uint64_t say_at = SAY_AFTER_NS;
    char text[LS_TEXT_BYTES];
    pthread_mutex_lock(&member->lock);
    enum ls_status status = LS_OK;
    struct ls_own_clock clock = {0};
    ls_own_clock_look(&clock, 0);
    // The store tells by itself when its deadline passed, but tells a new worker nothing.
    const uint64_t patience = member->joins ? 0 : WELCOME_PATIENCE_NS;
    while (member->phase == LS_MEMBER_JOINING && clock.now_ns < deadline_ns + patience &&
           !(member->joins && member->chief_lost)) {
        ls_condition_wait(&member->changed, &member->lock, LOOK_NS);
        ls_own_clock_look(&clock, 2 * LOOK_NS);
        say_outside(member, clock.now_ns, deadline_ns, &say_at);
    }
    if (member->phase == LS_MEMBER_JOINING && member->joins && member->chief_lost)
        status = LS_AGAIN;
    const bool waited_in_vain = !status && member->phase == LS_MEMBER_JOINING;
    const bool outside = member->outside;
    if (member->phase == LS_MEMBER_FAILED && !member->formed)
        status = member->status;
    pthread_mutex_unlock(&member->lock);
    if (waited_in_vain && outside) {
        snprintf(text, sizeof(text), "the training at %s did not take this worker in within %g s",
                 member->address, (double)deadline_ns * 1e-9);
        fail(member, LS_PEER_LOST, text);
    } else if (waited_in_vain) {
        lose_chief(member, "its store does not answer");
    }
    if (waited_in_vain)
        status = LS_PEER_LOST;
    if (!status)
        *out = &member->welcome;
    return status;
}

// ---- A new generation ----

// Waits until the store forms a new generation (member->reforming), or not.
static enum ls_status wait_reform(struct ls_member *member, uint64_t deadline_ns,
                                  const struct ls_welcome **out)
{
    struct ls_own_clock clock = {0};
    enum ls_status status = LS_OK;
    ls_own_clock_look(&clock, 0);
    pthread_mutex_lock(&member->lock);
    while (!status && member->reforming) {
        if (member->reform_status) {
            status = member->reform_status;
        } else if (member->interrupted && atomic_load(member->interrupted)) {
            status = LS_INTERRUPTED;
        } else if (member->chief_lost) {
            status = LS_AGAIN;
        } else if (clock.now_ns >= deadline_ns + PATIENCE_NS) {
            status = LS_PEER_LOST;
            ls_error("cluster", "the workers did not form anew within %g s: %s says nothing",
                     (double)clock.now_ns * 1e-9, member->address);
        } else {
            ls_condition_wait(&member->changed, &member->lock, LOOK_NS);
            ls_own_clock_look(&clock, 2 * LOOK_NS);
        }
    }
    if (!status)
        *out = &member->welcome;
    pthread_mutex_unlock(&member->lock);
    return status;
}

enum ls_status ls_member_reform(struct ls_member *member, uint64_t deadline_ns,
                                const struct ls_welcome **out)
{
    pthread_mutex_lock(&member->lock);
    const bool cast_out = member->cast_out;
    const bool reachable = !member->chief_lost && member->phase != LS_MEMBER_ENDED;
    member->reforming = reachable && !cast_out;
    member->reform_status = LS_OK;
    if (member->reforming) {
        ls_frame_begin(&member->frame, LS_FRAME_REFORM, member->generation);
        ls_frame_put_u64(&member->frame, deadline_ns);
        send_frame(member);
    }
    pthread_mutex_unlock(&member->lock);
    if (cast_out) {
        ls_error("cluster", "the others go on without this worker: start it again to join them");
        return LS_PEER_LOST;
    }
    return reachable ? wait_reform(member, deadline_ns, out) : LS_AGAIN;
}

bool ls_member_is_gone(struct ls_member *member, uint32_t worker, struct ls_reserve *out)
{
    pthread_mutex_lock(&member->lock);
    const bool gone = member->welcome.gone[worker];
    *out = member->welcome.reserves[worker];
    pthread_mutex_unlock(&member->lock);
    return gone;
}

bool ls_member_stood(struct ls_member *member)
{
    pthread_mutex_lock(&member->lock);
    const bool stood = member->stood;
    pthread_mutex_unlock(&member->lock);
    return stood;
}

enum ls_status ls_member_reform_at(struct ls_member *member, struct ls_connection *connection,
                                   const struct ls_cluster_options *options, int reserve,
                                   const char *address, uint64_t deadline_ns,
                                   const struct ls_welcome **out)
{
    pthread_mutex_lock(&member->lock);
    member->leaving = true;
    pthread_mutex_unlock(&member->lock);
    if (!member->threadless)
        end_thread(member);
    member->threadless = true;
    ls_connection_finish(&member->connection);
    take_connection(member, connection);
    pthread_mutex_lock(&member->lock);
    member->leaving = member->chief_lost = false;
    member->reforming = true;
    member->reform_status = LS_OK;
    snprintf(member->address, sizeof(member->address), "%s", address);
    pthread_mutex_unlock(&member->lock);
    const enum ls_status status = begin(member, options, LS_JOIN_AGAIN, reserve);
    if (status)
        return status;
    member->threadless = false;
    return wait_reform(member, deadline_ns, out);
}

// ---- Exchanges ----

enum ls_status ls_member_exchange(struct ls_member *member, enum ls_operation operation,
                                  uint32_t root, uint64_t bytes, const void *data, size_t part,
                                  const uint8_t **result, size_t *result_bytes)
{
    static const char *const names[] = {"", "gather", "broadcast", "barrier"};
    pthread_mutex_lock(&member->lock);
    member->result_bytes = 0;
    member->wants_result = true;
    ls_frame_begin(&member->frame, LS_FRAME_BLOCK, member->generation);
    ls_frame_put_u64(&member->frame, member->sequence);
    ls_frame_put_u8(&member->frame, (uint8_t)operation);
    ls_frame_put_u32(&member->frame, root);
    ls_frame_put_u64(&member->frame, bytes);
    ls_frame_put_bytes(&member->frame, data, part);
    if (member->phase == LS_MEMBER_FORMED)
        send_frame(member);
    enum ls_status status =
        wait_while(member, &member->wants_result, member->deadline_ns + PATIENCE_NS);
    member->wants_result = false;
    member->sequence++;
    pthread_mutex_unlock(&member->lock);
    if (status)
        return end_exchange(member, status, names[operation]);
    *result = member->result;
    *result_bytes = member->result_total;
    return LS_OK;
}

static void begin_meeting(struct ls_member *member, const struct ls_meeting *meeting,
                          const void *own, size_t bytes, struct ls_meet_call *call)
{
    struct ls_frame *frame = &member->frame;
    call->sequence = ++member->meeting_sequence;
    call->next = member->meetings;
    member->meetings = call;
    ls_frame_begin(frame, LS_FRAME_MEET, member->generation);
    ls_frame_put_u64(frame, call->sequence);
    ls_frame_put_u64(frame, meeting->deadline_ns);
    ls_frame_put_text(frame, meeting->key);
    ls_frame_put_u32(frame, (uint32_t)bytes);
    ls_frame_put_u32(frame, meeting->count);
    for (uint32_t i = 0; i < meeting->count; i++)
        ls_frame_put_u32(frame, meeting->members[i]);
    ls_frame_put_bytes(frame, own, bytes);
    if (member->phase == LS_MEMBER_FORMED)
        send_frame(member);
}

static void end_meeting(struct ls_member *member, const struct ls_meet_call *call)
{
    struct ls_meet_call **link = &member->meetings;
    while (*link != call)
        link = &(*link)->next;
    *link = call->next;
}

// The store ends a meeting whose deadline has passed, and says who did not come; this worker waits
// a little longer, so that it hears that.
enum ls_status ls_member_meet(struct ls_member *member, const struct ls_meeting *meeting,
                              const void *own, size_t bytes, char *all)
{
    struct ls_meet_call call = {.all = all, .bytes = meeting->count * bytes, .waits = bytes > 0};
    pthread_mutex_lock(&member->lock);
    begin_meeting(member, meeting, own, bytes, &call);
    enum ls_status status = wait_while(member, &call.waits, meeting->deadline_ns + PATIENCE_NS);
    end_meeting(member, &call);
    const bool ended = member->phase == LS_MEMBER_ENDED;
    pthread_mutex_unlock(&member->lock);
    if (!status && !call.status)
        return LS_OK;
    if (call.status)
        ls_error("cluster", "%s: %s", meeting->key, call.text);
    else if (status == LS_AGAIN || ended)
        ls_error("cluster", "%s: process 0 (%s) %s, and the others meet at its store", meeting->key,
                 member->chief_host, ended ? "has left the job" : "does not answer");
    else
        ls_error("cluster", "%s: %s", meeting->key, member->text);
    return call.status ? call.status : status == LS_AGAIN ? LS_PEER_LOST : status;
}

void ls_member_tell(struct ls_member *member, const char *key, const uint32_t *members,
                    uint32_t count, const char *text)
{
    char news[LS_TEXT_BYTES];
    snprintf(news, sizeof(news), "%s", text);
    pthread_mutex_lock(&member->lock);
    if (member->phase == LS_MEMBER_FORMED) {
        ls_frame_begin(&member->frame, LS_FRAME_TELL, member->generation);
        ls_frame_put_text(&member->frame, key);
        ls_frame_put_text(&member->frame, news);
        ls_frame_put_u32(&member->frame, count);
        for (uint32_t i = 0; i < count; i++)
            ls_frame_put_u32(&member->frame, members[i]);
        send_frame(member);
    }
    pthread_mutex_unlock(&member->lock);
}

// ---- Any thread ----

void ls_member_say(struct ls_member *member, uint64_t step, const char *where)
{
    ls_said_write(&member->said, step, where);
}

// The text is written before the phase, and then stays.
enum ls_status ls_member_check(struct ls_member *member, const char **text)
{
    if (atomic_load(&member->phase) != LS_MEMBER_FAILED)
        return LS_OK;
    if (text)
        *text = member->text;
    return member->status;
}

// The reason was said by the caller, so that this worker says no more.
void ls_member_give_up(struct ls_member *member, const char *why)
{
    char text[LS_TEXT_BYTES / 2];
    snprintf(text, sizeof(text), "%s", why);
    pthread_mutex_lock(&member->lock);
    if (member->phase == LS_MEMBER_FORMED && !member->claimed) {
        ls_frame_begin(&member->frame, LS_FRAME_GIVE_UP, member->generation);
        ls_frame_put_text(&member->frame, text);
        send_frame(member);
        member->claimed = true;
        member->status = LS_FAILED;
        snprintf(member->text, sizeof(member->text), "%s", text);
        atomic_store(&member->phase, LS_MEMBER_FAILED);
        pthread_cond_broadcast(&member->changed);
    }
    pthread_mutex_unlock(&member->lock);
}
