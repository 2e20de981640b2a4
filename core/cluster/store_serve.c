// SPDX-License-Identifier: Apache-2.0
// What the store does for members during the training: it collects blocks, keeps values, and
// watches.
#include "core/cluster/store_internal.h"

#include "core/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Lost members ----

void ls_store_tell_lost(struct ls_store *store, enum ls_status status, uint32_t number,
                        const char *text)
{
    store->phase = LS_STORE_LOST;
    ls_frame_begin(&store->frame, LS_FRAME_LOST, store->generation);
    ls_frame_put_u32(&store->frame, (uint32_t)status);
    ls_frame_put_u32(&store->frame, number);
    ls_frame_put_text(&store->frame, text);
    ls_store_tell_all(store);
}

void ls_store_name_member(const struct ls_store *store, uint32_t number, char *out, size_t bytes)
{
    ls_member_name(number, store->workers, store->apart, store->member[number].host, out, bytes);
}

// The connection is given up, but a worker that was only stopped reads on it why.
static void strike_off(struct ls_store *store, uint32_t number, const char *text)
{
    struct ls_store_member *member = &store->member[number];
    member->gone = true;
    member->doubtful = ls_own_clock_stood(&store->clock);
    if (!member->peer || member->peer->own)
        return;
    ls_frame_begin(&store->frame, LS_FRAME_LOST, store->generation);
    ls_frame_put_u32(&store->frame, LS_PEER_LOST);
    ls_frame_put_u32(&store->frame, number);
    ls_frame_put_text(&store->frame, text);
    ls_peer_dismiss(store, member->peer);
}

// The others go on without it, but for what they do together with it.
static void lose_one(struct ls_store *store, uint32_t number, const char *text)
{
    strike_off(store, number, text);
    ls_frame_begin(&store->frame, LS_FRAME_LOST, store->generation);
    ls_frame_put_u32(&store->frame, LS_PEER_LOST);
    ls_frame_put_u32(&store->frame, number);
    ls_frame_put_text(&store->frame, text);
    ls_store_tell_all(store);
    ls_store_end_meetings(store, number, text);
}

// The first one ends the training, or the generation of an elastic one; who falls after it falls
// because of it, or is missing in the next generation. Where workers are apart, nothing ends.
void ls_store_lose(struct ls_store *store, uint32_t number, const char *why)
{
    char name[LS_NAME_BYTES + 32], text[LS_TEXT_BYTES];
    const bool first = store->phase == LS_STORE_FORMED;
    const bool again = store->phase == LS_STORE_LOST && store->most_workers;
    if ((!first && !again) || store->member[number].gone || atomic_load(&store->stopping))
        return;
    ls_store_name_member(store, number, name, sizeof(name));
    ls_lost_sentence(name, &store->member[number].spot, why, text, sizeof(text));
    if (store->apart) {
        lose_one(store, number, text);
        return;
    }
    if (store->most_workers)
        strike_off(store, number, text);
    if (first)
        ls_store_tell_lost(store, LS_PEER_LOST, number, text);
    else
        ls_warn("cluster", "%s", text);
}

// ---- Exchanges ----

static const char *operation_name(uint8_t operation)
{
    static const char *const names[] = {"?", "gather", "broadcast", "barrier"};
    return operation < sizeof(names) / sizeof(names[0]) ? names[operation] : names[0];
}

// Workers that ended in order contribute no more.
static void check_left(struct ls_store *store)
{
    for (uint32_t i = 0; store->blocks_here && i < store->workers; i++) {
        if (!store->member[i].left || store->member[i].has_block)
            continue;
        char name[LS_NAME_BYTES + 32], waits[LS_NAME_BYTES + 32], text[LS_TEXT_BYTES];
        ls_store_name_member(store, i, name, sizeof(name));
        ls_store_name_member(store, store->first_member, waits, sizeof(waits));
        snprintf(text, sizeof(text), "%s has ended, but %s waits for it (%s)", name, waits,
                 operation_name(store->operation));
        ls_store_tell_lost(store, LS_PEER_LOST, i, text);
        return;
    }
}

static void send_result(struct ls_store *store)
{
    size_t total = 4 * (size_t)store->workers;
    for (uint32_t i = 0; i < store->workers; i++) {
        struct ls_store_member *member = &store->member[i];
        for (size_t byte = 0; byte < 4; byte++)
            store->result[4 * (size_t)i + byte] = (uint8_t)(member->block_bytes >> 8 * byte);
        memcpy(store->result + total, store->blocks + i * store->part, member->block_bytes);
        total += member->block_bytes;
        member->has_block = false;
    }
    store->blocks_here = 0;
    const size_t most = LS_FRAME_PLAIN - 64;
    for (size_t offset = 0; offset < total; offset += most) {
        const size_t bytes = total - offset < most ? total - offset : most;
        ls_frame_begin(&store->frame, LS_FRAME_RESULT, store->generation);
        ls_frame_put_u64(&store->frame, store->sequence);
        ls_frame_put_u32(&store->frame, (uint32_t)total);
        ls_frame_put_u32(&store->frame, (uint32_t)offset);
        ls_frame_put_bytes(&store->frame, store->result + offset, bytes);
        for (uint32_t i = 0; i < store->workers; i++)
            if (store->member[i].peer)
                ls_peer_send(store, store->member[i].peer);
    }
    store->sequence++;
}

static void tell_mismatch(struct ls_store *store, uint32_t number, uint8_t operation, uint32_t root,
                          uint64_t bytes)
{
    char names[2][LS_NAME_BYTES + 32], text[LS_TEXT_BYTES];
    ls_store_name_member(store, store->first_member, names[0], sizeof(names[0]));
    ls_store_name_member(store, number, names[1], sizeof(names[1]));
    snprintf(text, sizeof(text),
             "%s calls %s (%llu bytes, worker %u), but %s calls %s (%llu bytes, worker %u): "
             "expected the same calls in the same order on all workers",
             names[0], operation_name(store->operation), (unsigned long long)store->operation_bytes,
             store->root, names[1], operation_name(operation), (unsigned long long)bytes, root);
    ls_store_tell_lost(store, LS_FAILED, number, text);
}

static bool take_block(struct ls_store *store, uint32_t number, struct ls_frame_reader *reader)
{
    const uint64_t sequence = ls_frame_get_u64(reader);
    const uint8_t operation = ls_frame_get_u8(reader);
    const uint32_t root = ls_frame_get_u32(reader);
    const uint64_t bytes = ls_frame_get_u64(reader);
    struct ls_store_member *member = &store->member[number];
    if (reader->wrong || number >= store->workers || reader->left > store->part)
        return false;
    if (store->phase != LS_STORE_FORMED)
        return true; // it crossed the message that tells why not
    if (sequence != store->sequence || member->has_block)
        return false;
    if (!store->blocks_here) {
        store->operation = operation;
        store->root = root;
        store->operation_bytes = bytes;
        store->first_member = number;
        store->exchange_since_ns = store->clock.now_ns;
    } else if (operation != store->operation || root != store->root ||
               bytes != store->operation_bytes) {
        tell_mismatch(store, number, operation, root, bytes);
        return true;
    }
    memcpy(store->blocks + number * store->part, reader->at, reader->left);
    member->block_bytes = reader->left;
    member->has_block = true;
    if (++store->blocks_here == store->workers)
        send_result(store);
    else
        check_left(store);
    return true;
}

// ---- Frames of members ----

static bool take_beat(struct ls_store_member *member, struct ls_frame_reader *reader)
{
    struct ls_spot spot;
    spot.step = ls_frame_get_u64(reader);
    ls_frame_get_text(reader, spot.where, sizeof(spot.where));
    if (!reader->wrong)
        member->spot = spot;
    return !reader->wrong;
}

static bool take_reason(struct ls_store *store, uint32_t number, struct ls_frame_reader *reader)
{
    char text[LS_TEXT_BYTES / 2];
    ls_frame_get_text(reader, text, sizeof(text));
    if (reader->wrong)
        return false;
    store->member[number].dead = true; // it does not go on elsewhere
    ls_store_lose(store, number, text);
    return true;
}

// Nobody waits for it in vain.
static void tell_left(struct ls_store *store, uint32_t number)
{
    char name[LS_NAME_BYTES + 32], text[LS_TEXT_BYTES];
    ls_store_name_member(store, number, name, sizeof(name));
    snprintf(text, sizeof(text), "%s has left the job", name);
    ls_frame_begin(&store->frame, LS_FRAME_LEFT, store->generation);
    ls_frame_put_u32(&store->frame, number);
    ls_frame_put_text(&store->frame, text);
    ls_store_tell_all(store);
    ls_store_end_meetings(store, number, text);
}

bool ls_store_serve(struct ls_store *store, struct ls_peer *peer, uint8_t kind, bool late,
                    struct ls_frame_reader *reader)
{
    const uint32_t number = peer->member;
    if (late && kind != LS_FRAME_BEAT && kind != LS_FRAME_GIVE_UP && kind != LS_FRAME_GOODBYE)
        return true; // nobody waits for it any more
    switch (kind) {
    case LS_FRAME_BEAT: return take_beat(&store->member[number], reader);
    case LS_FRAME_REFORM: return ls_store_take_reform(store, number, reader);
    case LS_FRAME_BLOCK: return take_block(store, number, reader);
    case LS_FRAME_GIVE_UP: return take_reason(store, number, reader);
    case LS_FRAME_MEET: return ls_store_meet(store, number, reader);
    case LS_FRAME_TELL: return ls_store_pass_on(store, number, reader);
    case LS_FRAME_GOODBYE:
        store->member[number].left = true;
        if (store->apart)
            tell_left(store, number);
        if (store->phase == LS_STORE_FORMED)
            check_left(store);
        return true;
    default: return false;
    }
}

// ---- Liveness ----

static void send_beats(struct ls_store *store)
{
    const struct ls_spot *spot = &store->member[0].spot;
    ls_frame_begin(&store->frame, LS_FRAME_BEAT, store->generation);
    ls_frame_put_u64(&store->frame, spot->step);
    ls_frame_put_text(&store->frame, spot->where);
    ls_store_tell_all(store);
    ls_store_tell_waiting(store);
}

// An exchange whose deadline has passed: the first worker that did not come is lost.
static void watch_exchange(struct ls_store *store)
{
    char first[LS_NAME_BYTES + 32], why[LS_TEXT_BYTES / 2];
    const uint64_t waited = store->clock.now_ns - store->exchange_since_ns;
    if (!store->blocks_here || waited <= store->deadline_ns)
        return;
    ls_store_name_member(store, store->first_member, first, sizeof(first));
    snprintf(why, sizeof(why), "it did not come to the %s that %s began %.1f s ago",
             operation_name(store->operation), first, (double)waited * 1e-9);
    for (uint32_t i = 0; i < store->workers; i++)
        if (!store->member[i].has_block) {
            ls_store_lose(store, i, why);
            return;
        }
}

void ls_store_watch_members(struct ls_store *store, bool all_read)
{
    const uint64_t now = store->clock.now_ns;
    if (now >= store->beat_at_ns) {
        store->beat_at_ns = now + store->beat_ns;
        send_beats(store);
    }
    for (uint32_t i = 0; i < store->members && all_read; i++) {
        const struct ls_store_member *member = &store->member[i];
        if (!member->peer || member->peer->own || member->left ||
            now - member->peer->since_ns <= store->silence_ns)
            continue;
        char why[96];
        snprintf(why, sizeof(why), "it was silent for %.1f s, so it is stopped or cut off",
                 (double)(now - member->peer->since_ns) * 1e-9);
        ls_store_lose(store, i, why);
    }
    if (store->phase == LS_STORE_FORMED && all_read)
        watch_exchange(store);
    ls_store_watch_meetings(store);
}
