// SPDX-License-Identifier: Apache-2.0
// A member's thread: from the first message of a connection to the goodbye.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // eventfd
#endif
#include "core/cluster/member_internal.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/threads.h"
#include "core/wire/sockets.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define FAREWELL_NS UINT64_C(1000000000)
#define WAKE_MS 5 // between two looks whether a goodbye has been heard

// ---- Failing ----

static void wake_thread(struct ls_member *member)
{
    const uint64_t one = 1;
    (void)!write(member->wake, &one, sizeof(one));
}

// The sentence of the store says what the lost worker was at; here follows what this one was at, and
// so what the other has missed: "; this worker was in step 118, bucket 0".
static void add_own_spot(struct ls_member *member, const char *text, char *out, size_t bytes)
{
    struct ls_spot spot = {.step = LS_NO_STEP};
    char where[LS_WHERE_BYTES + 40] = "";
    ls_said_read(&member->said, &spot);
    if (spot.step != LS_NO_STEP)
        ls_spot_text(&spot, where, sizeof(where));
    snprintf(out, bytes, "%s%s%s", text, *where ? "; this worker was" : "", where);
}

void ls_member_fail(struct ls_member *member, enum ls_status status, const char *reason)
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

void ls_member_lose_chief(struct ls_member *member, const char *why)
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
    ls_member_fail(member, LS_PEER_LOST, text);
}

// ---- Sending ----

void ls_member_send(struct ls_member *member)
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
    ls_member_send(member);
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
    ls_member_send(member);
    pthread_mutex_unlock(&member->lock);
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
    ls_member_lose_chief(member, why);
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
        if (count > 0 && fds[0].revents & ~POLLOUT && !ls_member_read(member))
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
    ls_welcome_finish(&member->welcome);
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
        ls_member_send(member);
    }
    member->closing = true;
    pthread_mutex_unlock(&member->lock);
    if (!member->threadless)
        end_thread(member);
    destroy(member);
}

// ---- Another store ----

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
    return ls_member_wait_reform(member, deadline_ns, out);
}
