// SPDX-License-Identifier: Apache-2.0
// What a member hears from the store. Functions that take a frame return false where it makes no
// sense.
#include "core/cluster/member_internal.h"

#include "core/base/log.h"
#include "core/wire/sockets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ls_welcome_finish(struct ls_welcome *welcome)
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
    ls_welcome_finish(&member->welcome);
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
        ls_welcome_finish(&welcome);
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
        ls_member_fail(member, (enum ls_status)status, whole);
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
        ls_member_lose_chief(member, "it has ended");
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

// A part of what all members of a meeting gave, or why it has failed. Whoever waited for it may
// have given up.
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

bool ls_member_read(struct ls_member *member)
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
        ls_member_lose_chief(member, status == LS_PEER_LOST   ? "its connection closed"
                                     : status == LS_BAD_INPUT ? "what arrived was not what it sent"
                                     : status ? "this worker has no memory for its message"
                                              : "its message makes no sense");
        return false;
    }
}
