// SPDX-License-Identifier: Apache-2.0
// Meetings: some of the workers give a block each and get those of all. A meeting is known by its
// key until all of its members have come, or one of them cannot; nothing of it is kept afterwards.
#include "core/cluster/store_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESULT_MOST ((size_t)1 << 20) // bytes of all blocks of a meeting
#define HEAD_BYTES 512 // of a frame, before the members
#define ALL_MOST ((size_t)64 << 20) // bytes of all meetings under way

struct ls_store_meeting {
    char key[LS_KEY_BYTES];
    uint32_t count, here; // members; those that have come
    uint32_t first; // place of the member that came first
    uint32_t bytes; // of a block
    uint32_t *members;
    uint64_t *sequences; // of each member's call; 0: it has not come
    uint8_t *blocks;
    size_t size; // of it all
    uint64_t since_ns, deadline_ns; // own clock
    struct ls_store_meeting *next;
};

size_t ls_store_meeting_part(uint32_t members)
{
    const size_t frame = LS_FRAME_PLAIN - HEAD_BYTES - 4 * (size_t)members;
    const size_t part = RESULT_MOST / members;
    return part < frame ? part : frame;
}

static void destroy(struct ls_store *store, struct ls_store_meeting *meeting)
{
    struct ls_store_meeting **link = &store->meetings;
    while (*link && *link != meeting)
        link = &(*link)->next;
    if (*link)
        *link = meeting->next;
    store->meeting_bytes -= meeting->size;
    free(meeting->members);
    free(meeting->sequences);
    free(meeting->blocks);
    free(meeting);
}

void ls_store_finish_meetings(struct ls_store *store)
{
    while (store->meetings)
        destroy(store, store->meetings);
}

// ---- The end of a meeting ----

static void begin_answer(struct ls_store *store, uint64_t sequence, enum ls_status status)
{
    ls_frame_begin(&store->frame, LS_FRAME_MET, store->generation);
    ls_frame_put_u64(&store->frame, sequence);
    ls_frame_put_u32(&store->frame, (uint32_t)status);
}

static void refuse(struct ls_store *store, uint32_t number, uint64_t sequence,
                   enum ls_status status, const char *text)
{
    if (!store->member[number].peer)
        return;
    begin_answer(store, sequence, status);
    ls_frame_put_text(&store->frame, text);
    ls_peer_send(store, store->member[number].peer);
}

static void fail(struct ls_store *store, struct ls_store_meeting *meeting, enum ls_status status,
                 const char *text)
{
    for (uint32_t i = 0; i < meeting->count; i++)
        if (meeting->sequences[i])
            refuse(store, meeting->members[i], meeting->sequences[i], status, text);
    destroy(store, meeting);
}

static void send_blocks(struct ls_store *store, const struct ls_store_meeting *meeting,
                        uint32_t place)
{
    const size_t total = (size_t)meeting->count * meeting->bytes, most = LS_FRAME_PLAIN - 64;
    struct ls_peer *peer = store->member[meeting->members[place]].peer;
    for (size_t offset = 0; peer && offset < total; offset += most) {
        begin_answer(store, meeting->sequences[place], LS_OK);
        ls_frame_put_u32(&store->frame, (uint32_t)offset);
        ls_frame_put_bytes(&store->frame, meeting->blocks + offset,
                           total - offset < most ? total - offset : most);
        ls_peer_send(store, peer);
    }
}

static void complete(struct ls_store *store, struct ls_store_meeting *meeting)
{
    for (uint32_t i = 0; i < meeting->count; i++)
        send_blocks(store, meeting, i);
    destroy(store, meeting);
}

void ls_store_end_meetings(struct ls_store *store, uint32_t number, const char *text)
{
    for (struct ls_store_meeting *meeting = store->meetings, *next; meeting; meeting = next) {
        bool concerned = false;
        next = meeting->next;
        for (uint32_t i = 0; i < meeting->count; i++)
            concerned |= meeting->members[i] == number;
        if (concerned)
            fail(store, meeting, LS_PEER_LOST, text);
    }
}

void ls_store_watch_meetings(struct ls_store *store)
{
    for (struct ls_store_meeting *meeting = store->meetings, *next; meeting; meeting = next) {
        const uint64_t waited = store->clock.now_ns - meeting->since_ns;
        char names[2][LS_NAME_BYTES + 32], text[LS_TEXT_BYTES];
        uint32_t missing = 0;
        next = meeting->next;
        if (waited < meeting->deadline_ns)
            continue;
        while (meeting->sequences[missing])
            missing++;
        ls_store_name_member(store, meeting->members[missing], names[0], sizeof(names[0]));
        ls_store_name_member(store, meeting->members[meeting->first], names[1], sizeof(names[1]));
        snprintf(text, sizeof(text),
                 "%s has not come within %.1f s; %s was there first (%u of %u are)", names[0],
                 (double)waited * 1e-9, names[1], meeting->here, meeting->count);
        fail(store, meeting, LS_PEER_LOST, text);
    }
}

// ---- A member comes ----

// What a member says of a meeting.
struct call {
    uint64_t sequence, deadline_ns;
    char key[LS_KEY_BYTES];
    uint32_t bytes, count;
    uint32_t place; // of this member
    uint32_t *members; // `count`
    const uint8_t *block;
};

// False: it makes no sense. `members` is to be freed in any case.
static bool read_call(const struct ls_store *store, uint32_t number, struct ls_frame_reader *reader,
                      struct call *out)
{
    out->sequence = ls_frame_get_u64(reader);
    out->deadline_ns = ls_frame_get_u64(reader);
    ls_frame_get_text(reader, out->key, sizeof(out->key));
    out->bytes = ls_frame_get_u32(reader);
    out->count = ls_frame_get_u32(reader);
    out->place = out->count;
    if (reader->wrong || !out->sequence || !out->key[0] || out->count < 2 ||
        out->count > store->workers)
        return false;
    out->members = calloc(out->count, sizeof(*out->members));
    for (uint32_t i = 0; out->members && i < out->count; i++) {
        out->members[i] = ls_frame_get_u32(reader);
        if (out->members[i] >= store->workers)
            return false;
        if (out->members[i] == number)
            out->place = i;
    }
    out->block = reader->at;
    return out->members && !reader->wrong && out->place < out->count && out->bytes &&
           reader->left == out->bytes && out->bytes <= ls_store_meeting_part(out->count);
}

// A member that cannot come any more.
static bool find_gone(const struct ls_store *store, const struct call *call, char *text,
                      size_t bytes)
{
    char name[LS_NAME_BYTES + 32];
    for (uint32_t i = 0; i < call->count; i++) {
        const struct ls_store_member *member = &store->member[call->members[i]];
        if (!member->gone && !member->left)
            continue;
        ls_store_name_member(store, call->members[i], name, sizeof(name));
        snprintf(text, bytes, "%s %s", name, member->gone ? "is lost" : "has left the job");
        return true;
    }
    return false;
}

// Takes the call's list of members. NULL: there is no memory for it.
static struct ls_store_meeting *create(struct ls_store *store, struct call *call)
{
    const size_t size = sizeof(struct ls_store_meeting) +
                        call->count * (sizeof(uint32_t) + sizeof(uint64_t) + (size_t)call->bytes);
    struct ls_store_meeting *meeting =
        store->meeting_bytes + size > ALL_MOST ? NULL : calloc(1, sizeof(*meeting));
    if (!meeting)
        return NULL;
    snprintf(meeting->key, sizeof(meeting->key), "%s", call->key);
    meeting->count = call->count;
    meeting->first = call->place;
    meeting->bytes = call->bytes;
    meeting->members = call->members;
    call->members = NULL;
    meeting->sequences = calloc(call->count, sizeof(*meeting->sequences));
    meeting->blocks = malloc((size_t)call->count * call->bytes);
    meeting->size = size;
    meeting->since_ns = store->clock.now_ns;
    meeting->deadline_ns = call->deadline_ns;
    meeting->next = store->meetings;
    store->meetings = meeting;
    store->meeting_bytes += size;
    if (meeting->sequences && meeting->blocks)
        return meeting;
    destroy(store, meeting);
    return NULL;
}

static struct ls_store_meeting *find(const struct ls_store *store, const char *key)
{
    struct ls_store_meeting *meeting = store->meetings;
    while (meeting && strcmp(meeting->key, key) != 0)
        meeting = meeting->next;
    return meeting;
}

static void tell_difference(struct ls_store *store, uint32_t number, const struct call *call,
                            struct ls_store_meeting *meeting)
{
    char names[2][LS_NAME_BYTES + 32], text[LS_TEXT_BYTES];
    ls_store_name_member(store, meeting->members[meeting->first], names[0], sizeof(names[0]));
    ls_store_name_member(store, number, names[1], sizeof(names[1]));
    snprintf(text, sizeof(text),
             "%s and %s disagree: %u and %u processes, %u and %u bytes of each; expected the same "
             "on all, each process once",
             names[0], names[1], meeting->count, call->count, meeting->bytes, call->bytes);
    fail(store, meeting, LS_FAILED, text);
    refuse(store, number, call->sequence, LS_FAILED, text);
}

static void take_call(struct ls_store *store, uint32_t number, struct call *call)
{
    char text[LS_TEXT_BYTES];
    struct ls_store_meeting *meeting = find(store, call->key);
    if (find_gone(store, call, text, sizeof(text))) {
        refuse(store, number, call->sequence, LS_PEER_LOST, text);
        return;
    }
    if (meeting &&
        (meeting->count != call->count || meeting->bytes != call->bytes ||
         memcmp(meeting->members, call->members, call->count * sizeof(*call->members)) != 0 ||
         meeting->sequences[call->place])) {
        tell_difference(store, number, call, meeting);
        return;
    }
    if (!meeting)
        meeting = create(store, call);
    if (!meeting) {
        refuse(store, number, call->sequence, LS_FAILED,
               "process 0 has no memory for it: too many meetings are under way");
        return;
    }
    memcpy(meeting->blocks + (size_t)call->place * call->bytes, call->block, call->bytes);
    meeting->sequences[call->place] = call->sequence;
    if (++meeting->here == meeting->count)
        complete(store, meeting);
}

bool ls_store_meet(struct ls_store *store, uint32_t number, struct ls_frame_reader *reader)
{
    struct call call = {0};
    const bool good =
        store->apart && number < store->workers && read_call(store, number, reader, &call);
    if (good && store->phase == LS_STORE_FORMED)
        take_call(store, number, &call);
    free(call.members);
    return good;
}

// ---- News of a member to some others ----

bool ls_store_pass_on(struct ls_store *store, uint32_t number, struct ls_frame_reader *reader)
{
    char key[LS_KEY_BYTES], text[LS_TEXT_BYTES];
    ls_frame_get_text(reader, key, sizeof(key));
    ls_frame_get_text(reader, text, sizeof(text));
    const uint32_t count = ls_frame_get_u32(reader);
    if (reader->wrong || !store->apart || reader->left != 4 * (size_t)count)
        return false;
    ls_frame_begin(&store->frame, LS_FRAME_TOLD, store->generation);
    ls_frame_put_u32(&store->frame, number);
    ls_frame_put_text(&store->frame, key);
    ls_frame_put_text(&store->frame, text);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t to = ls_frame_get_u32(reader);
        if (to < store->workers && to != number && store->member[to].peer)
            ls_peer_send(store, store->member[to].peer);
    }
    return true;
}
