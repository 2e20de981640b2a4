// SPDX-License-Identifier: Apache-2.0
// Members of the store: which processes take part, what must be equal, how long the store waits for
// them, and which of them are lost.
#include "core/cluster/store_internal.h"

#include "core/base/log.h"
#include "core/wire/sockets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAY_AFTER_NS UINT64_C(5000000000)
// A difference is told when all are here, so that each of them learns the reason; but not later.
#define REFUSE_AFTER_NS UINT64_C(3000000000)
#define MOST_REPLICAS 65536 // of a worker
#define NAMED 8 // missing members that are listed
#define SHOWN 200 // letters of a value in a message

// What a worker says of itself.
struct request {
    uint8_t role, kind; // kind: enum ls_join_kind
    uint16_t reserve_port;
    uint32_t number, workers, servers, count, restart;
    uint64_t process;
    char identity[LS_IDENTITY_BYTES], host[LS_NAME_BYTES];
    const uint8_t *agreement;
    size_t agreement_bytes;
};

// Names and values are texts: a length (16 bits) and so many letters.
static bool is_agreement(struct ls_frame_reader reader, uint32_t count)
{
    for (uint32_t i = 0; i < 2 * count; i++) {
        const uint16_t length = ls_frame_get_u16(&reader);
        const uint8_t *text = ls_frame_get_bytes(&reader, length);
        if (text && memchr(text, '\0', length))
            return false;
    }
    return !reader.wrong && reader.left == 0;
}

static bool read_request(struct ls_frame_reader *reader, struct request *out)
{
    out->role = ls_frame_get_u8(reader);
    out->kind = ls_frame_get_u8(reader);
    out->number = ls_frame_get_u32(reader);
    out->workers = ls_frame_get_u32(reader);
    out->servers = ls_frame_get_u32(reader);
    out->count = ls_frame_get_u32(reader);
    out->restart = ls_frame_get_u32(reader);
    out->process = ls_frame_get_u64(reader);
    out->reserve_port = ls_frame_get_u16(reader);
    ls_frame_get_text(reader, out->identity, sizeof(out->identity));
    ls_frame_get_text(reader, out->host, sizeof(out->host));
    const uint32_t agreements = ls_frame_get_u16(reader);
    out->agreement = reader->at;
    out->agreement_bytes = reader->left;
    return !reader->wrong && is_agreement(*reader, agreements) &&
           (out->role == LS_ROLE_WORKER || out->role == LS_ROLE_SERVER) &&
           out->kind <= LS_JOIN_AGAIN && (out->role == LS_ROLE_SERVER || out->count > 0) &&
           out->count <= (out->role == LS_ROLE_SERVER ? 0 : MOST_REPLICAS);
}

static bool is_new(const struct ls_store *store, const struct ls_store_member *member)
{
    return member < store->member || member >= store->member + store->members;
}

static void name_entry(const struct ls_store *store, const struct ls_store_member *member,
                       char *out, size_t bytes)
{
    if (!is_new(store, member))
        ls_member_name((uint32_t)(member - store->member), store->workers, store->apart,
                       member->host, out, bytes);
    else
        snprintf(out, bytes, "the new worker (%s)", member->host);
}

// ---- Agreement ----

struct text {
    const uint8_t *data;
    size_t bytes;
};

static struct text next_text(struct ls_frame_reader *reader)
{
    const uint16_t bytes = ls_frame_get_u16(reader);
    return (struct text){ls_frame_get_bytes(reader, bytes), bytes};
}

static bool same_text(struct text a, struct text b)
{
    return a.bytes == b.bytes && memcmp(a.data, b.data, a.bytes) == 0;
}

static bool find_value(const struct ls_store_member *member, struct text name, struct text *out)
{
    struct ls_frame_reader reader = {.at = member->agreement, .left = member->agreement_bytes};
    while (reader.left > 0) {
        const struct text at = next_text(&reader);
        *out = next_text(&reader);
        if (same_text(at, name))
            return true;
    }
    return false;
}

// A new worker that somebody starts by hand need not know the launcher's name of the job.
static bool is_job(struct text name)
{
    return name.bytes == 3 && memcmp(name.data, "job", 3) == 0;
}

static int shown(struct text text)
{
    return text.bytes > SHOWN ? SHOWN : (int)text.bytes;
}

// The first name of `one` for which `other` has another value, or none.
static bool find_difference(const struct ls_store *store, const struct ls_store_member *one,
                            const struct ls_store_member *other, char *out, size_t bytes)
{
    struct ls_frame_reader reader = {.at = one->agreement, .left = one->agreement_bytes};
    char names[2][LS_NAME_BYTES + 32];
    name_entry(store, one, names[0], sizeof(names[0]));
    name_entry(store, other, names[1], sizeof(names[1]));
    while (reader.left > 0) {
        const struct text name = next_text(&reader), mine = next_text(&reader);
        struct text theirs;
        const bool has = find_value(other, name, &theirs);
        if ((has && same_text(mine, theirs)) || (!has && is_job(name) && is_new(store, other)))
            continue;
        if (has)
            snprintf(out, bytes,
                     "%s has %.*s %.*s, but %s has %.*s: expected the same on all workers",
                     names[0], shown(name), (const char *)name.data, shown(mine),
                     (const char *)mine.data, names[1], shown(theirs), (const char *)theirs.data);
        else
            snprintf(out, bytes,
                     "%s has %.*s %.*s, but %s does not say it: expected the same on all workers, "
                     "and the same version of Lockstep",
                     names[0], shown(name), (const char *)name.data, shown(mine),
                     (const char *)mine.data, names[1]);
        return true;
    }
    return false;
}

// Compares a member with worker 0, or when it is worker 0, all others with it.
static void compare(struct ls_store *store, uint32_t number)
{
    const uint32_t first = number ? number : 1, end = number ? number + 1 : store->members;
    if (!store->member[0].peer)
        return;
    for (uint32_t i = first; i < end && !store->refusal[0]; i++) {
        if (!store->member[i].peer)
            continue;
        const struct ls_store_member *one = &store->member[i], *other = &store->member[0];
        if (find_difference(store, one, other, store->refusal, sizeof(store->refusal)) ||
            find_difference(store, other, one, store->refusal, sizeof(store->refusal))) {
            store->refusal_status = LS_USAGE;
            store->refuse_at_ns = store->clock.now_ns + REFUSE_AFTER_NS;
        }
    }
}

static void refuse_one(struct ls_store *store, struct ls_peer *peer, enum ls_status status,
                       const char *objection)
{
    ls_frame_begin(&store->frame, LS_FRAME_REFUSED, store->generation);
    ls_frame_put_u32(&store->frame, (uint32_t)status);
    ls_frame_put_text(&store->frame, objection);
    ls_peer_dismiss(store, peer);
}

bool ls_store_differs(struct ls_store *store, struct ls_peer *peer)
{
    char text[LS_TEXT_BYTES];
    for (uint32_t i = 0; i < store->workers; i++) {
        const struct ls_store_member *member = &store->member[i];
        if (!member->peer || !member->agreement)
            continue;
        if (!find_difference(store, peer->joiner, member, text, sizeof(text)) &&
            !find_difference(store, member, peer->joiner, text, sizeof(text)))
            return false; // members are all the same
        ls_warn("cluster", "%s", text);
        refuse_one(store, peer, LS_USAGE, text);
        return true;
    }
    return false;
}

// ---- Beginning, or not ----

void ls_store_refuse(struct ls_store *store, enum ls_status status, const char *text)
{
    store->phase = LS_STORE_REFUSED;
    store->refusal_status = status;
    if (text != store->refusal)
        snprintf(store->refusal, sizeof(store->refusal), "%s", text);
    ls_frame_begin(&store->frame, LS_FRAME_REFUSED, store->generation);
    ls_frame_put_u32(&store->frame, (uint32_t)status);
    ls_frame_put_text(&store->frame, text);
    ls_store_tell_all(store);
}

// Hosts are numbered in the order in which members first name them.
static uint32_t host_of(const struct ls_store *store, uint32_t number, uint32_t *known,
                        uint32_t *hosts)
{
    const char *identity = store->member[number].identity;
    for (uint32_t i = 0; i < *known; i++)
        if (strcmp(store->member[hosts[i]].identity, identity) == 0)
            return i;
    hosts[*known] = number;
    return (*known)++;
}

static void put_worker(struct ls_store *store, const struct ls_store_member *member, uint32_t host)
{
    ls_frame_put_u32(&store->frame, member->count);
    ls_frame_put_u32(&store->frame, host);
    if (!store->most_workers)
        return;
    ls_frame_put_u32(&store->frame, member->former);
    ls_frame_put_u16(&store->frame, member->reserve.port);
    ls_frame_put_text(&store->frame, member->reserve.address);
}

void ls_store_welcome(struct ls_store *store)
{
    uint32_t representatives[LS_MOST_MEMBERS], hosts[LS_MOST_MEMBERS], known = 0;
    store->phase = LS_STORE_FORMED;
    for (uint32_t i = 0; i < store->workers; i++)
        hosts[i] = host_of(store, i, &known, representatives);
    for (uint32_t number = 0; number < store->members; number++) {
        if (!store->member[number].peer)
            continue;
        ls_frame_begin(&store->frame, LS_FRAME_WELCOME, store->generation);
        ls_frame_put_u32(&store->frame, number);
        ls_frame_put_u32(&store->frame, store->workers);
        ls_frame_put_u32(&store->frame, store->survivors);
        ls_frame_put_text(&store->frame, store->member[0].host);
        ls_frame_put_u8(&store->frame, store->most_workers > 0);
        for (uint32_t i = 0; i < store->workers; i++)
            put_worker(store, &store->member[i], hosts[i]);
        ls_peer_send(store, store->member[number].peer);
    }
}

static void begin_or_refuse(struct ls_store *store)
{
    if (store->refusal[0])
        ls_store_refuse(store, store->refusal_status, store->refusal);
    else
        ls_store_welcome(store);
}

// "worker 3, worker 5 and 12 more".
static void name_missing(const struct ls_store *store, char *out, size_t bytes)
{
    const uint32_t missing = store->members - store->joined;
    uint32_t named = 0;
    size_t length = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < store->members && named < NAMED && length < bytes; i++) {
        if (store->member[i].peer)
            continue;
        char name[64];
        ls_member_name(i, store->workers, store->apart, "", name, sizeof(name));
        length += (size_t)snprintf(out + length, bytes - length, "%s%s", named ? ", " : "", name);
        named++;
    }
    if (missing > named && length < bytes)
        snprintf(out + length, bytes - length, " and %u more", missing - named);
}

static void give_up(struct ls_store *store, const char *missing)
{
    char text[LS_TEXT_BYTES];
    const unsigned long long others =
        (unsigned long long)ls_door_strangers(store->door, LS_STRANGER_SECRET);
    char all[24] = "both";
    if (store->workers != 2)
        snprintf(all, sizeof(all), "all %u", store->workers);
    int length =
        snprintf(text, sizeof(text), "%s did not connect to %s within %g s: start %s %s", missing,
                 store->address, (double)store->join_deadline_ns * 1e-9, all,
                 store->apart ? "processes" : "workers, or train alone with --cluster=none");
    if (others && length > 0 && (size_t)length < sizeof(text))
        snprintf(text + length, sizeof(text) - (size_t)length,
                 "; %llu connections with another secret were dropped", others);
    ls_store_refuse(store, LS_PEER_LOST, text);
}

void ls_store_watch_joining(struct ls_store *store)
{
    const uint64_t now = store->clock.now_ns;
    if (store->refuse_at_ns && now >= store->refuse_at_ns) {
        ls_store_refuse(store, store->refusal_status, store->refusal);
        return;
    }
    if (ls_door_is_starved(store->door)) {
        ls_store_refuse(store, LS_FAILED,
                        "worker 0 has no descriptor left for another worker: "
                        "raise the limit of open files (ulimit -n)");
        return;
    }
    if (now < SAY_AFTER_NS && now < store->join_deadline_ns)
        return;
    char missing[512];
    name_missing(store, missing, sizeof(missing));
    if (now >= store->join_deadline_ns) {
        give_up(store, missing);
    } else if (now >= store->say_at_ns) {
        store->say_at_ns = now + ls_log_wait_ns();
        ls_info("cluster", "waiting for %s at %s, %.0f s of %g s", missing, store->address,
                (double)now * 1e-9, (double)store->join_deadline_ns * 1e-9);
    }
}

// ---- One worker ----

// Why this one may not join at all, whatever the others are. "": it may.
static void find_objection(const struct ls_store *store, const struct request *request, char *out,
                           size_t bytes)
{
    const bool server = request->role == LS_ROLE_SERVER;
    const uint32_t all = server ? store->servers : store->workers;
    const char *role = server ? "server" : "worker";
    snprintf(out, bytes, "%s", store->phase == LS_STORE_REFUSED ? store->refusal : "");
    if (out[0])
        return;
    if (request->workers != store->workers || request->servers != store->servers) {
        snprintf(out, bytes,
                 "%s %u (%s) expects %u workers and %u servers, but worker 0 expects %u and %u",
                 role, request->number, request->host, request->workers, request->servers,
                 store->workers, store->servers);
        return;
    }
    if (request->number >= all) {
        snprintf(out, bytes, "%s %u (%s): there are only %u, numbered from 0", role,
                 request->number, request->host, all);
        return;
    }
    const uint32_t number = request->number + (server ? store->workers : 0);
    const struct ls_store_member *member = &store->member[number];
    if (member->peer)
        snprintf(out, bytes,
                 "%s %u is already here, process %llu on %s; process %llu on %s has the same "
                 "number: expected each number once",
                 role, request->number, (unsigned long long)member->process, member->host,
                 (unsigned long long)request->process, request->host);
    else if (store->phase != LS_STORE_JOINING)
        snprintf(out, bytes, "%s %u (%s) comes too late: the training at %s %s", role,
                 request->number, request->host, store->address,
                 store->phase == LS_STORE_FORMED ? "has begun" : "has ended");
}

static enum ls_status keep(struct ls_store_member *member, struct ls_peer *peer,
                           const struct request *request)
{
    uint8_t *agreement = malloc(request->agreement_bytes + 1);
    if (!agreement)
        return LS_OUT_OF_MEMORY;
    memcpy(agreement, request->agreement, request->agreement_bytes);
    free(member->agreement);
    member->agreement = agreement;
    member->agreement_bytes = request->agreement_bytes;
    member->count = request->count;
    member->restart = request->restart;
    member->process = request->process;
    member->reserve.port = request->reserve_port;
    ls_socket_peer_host(peer->connection.fd, member->reserve.address,
                        sizeof(member->reserve.address));
    memcpy(member->identity, request->identity, sizeof(member->identity));
    memcpy(member->host, request->host, sizeof(member->host));
    return LS_OK;
}

static void take_in(struct ls_store *store, struct ls_peer *peer, uint32_t number)
{
    peer->stage = LS_PEER_MEMBER;
    peer->member = number;
    peer->since_ns = store->clock.now_ns;
    store->member[number].peer = peer;
    store->joined++;
}

// One of the last generation, whose store was lost, at the store that takes over.
static void join_again(struct ls_store *store, struct ls_peer *peer, uint32_t generation,
                       const struct request *request)
{
    char text[LS_TEXT_BYTES];
    const uint32_t number = request->number;
    const bool expected = store->phase == LS_STORE_LOST && store->reforming &&
                          generation == store->generation && number < store->workers &&
                          !store->member[number].peer && !store->member[number].gone;
    if (!expected) {
        snprintf(text, sizeof(text),
                 "worker %u (%s) was given up, and the others at %s go on without it", number,
                 request->host, store->address);
        ls_warn("cluster", "%s", text);
        refuse_one(store, peer, LS_PEER_LOST, text);
    } else if (keep(&store->member[number], peer, request)) {
        refuse_one(store, peer, LS_OUT_OF_MEMORY, "worker 0 has no memory for a worker");
    } else {
        take_in(store, peer, number);
        store->member[number].ready = true;
    }
}

// A new worker waits until the others form anew.
static void join_later(struct ls_store *store, struct ls_peer *peer, const struct request *request)
{
    const char *refusal = request->role == LS_ROLE_WORKER ? NULL : "only workers join later";
    if (store->phase == LS_STORE_REFUSED) { // others may go on, with another store
        ls_frame_begin(&store->frame, LS_FRAME_GOODBYE, store->generation);
        ls_peer_dismiss(store, peer);
        return;
    }
    peer->joiner = refusal ? NULL : calloc(1, sizeof(*peer->joiner));
    if (!refusal && (!peer->joiner || keep(peer->joiner, peer, request)))
        refusal = "worker 0 has no memory for a new worker";
    if (refusal) {
        refuse_one(store, peer, LS_USAGE, refusal);
        return;
    }
    peer->joiner->probe = -1;
    peer->joiner->former = LS_NO_WORKER;
    peer->joiner->spot.step = LS_NO_STEP;
    if (store->phase != LS_STORE_JOINING && ls_store_differs(store, peer))
        return;
    peer->stage = LS_PEER_WAITING;
    peer->since_ns = store->clock.now_ns;
    peer->arrival = store->arrivals++;
    ls_frame_begin(&store->frame, LS_FRAME_WAIT, store->generation);
    ls_peer_send(store, peer);
}

// A worker that was started for another number of workers is a mistake of the whole job, which
// everybody is told; so are differences. One that comes too late or twice is told alone.
static void join_first(struct ls_store *store, struct ls_peer *peer, const struct request *request)
{
    char objection[LS_TEXT_BYTES];
    find_objection(store, request, objection, sizeof(objection));
    const uint32_t number =
        request->number + (request->role == LS_ROLE_SERVER ? store->workers : 0);
    const bool of_all = store->phase == LS_STORE_JOINING &&
                        (request->workers != store->workers || request->servers != store->servers);
    enum ls_status status = store->phase == LS_STORE_REFUSED ? store->refusal_status : LS_USAGE;
    if (!objection[0]) {
        status = keep(&store->member[number], peer, request);
        if (status)
            snprintf(objection, sizeof(objection), "worker 0 has no memory for it");
    }
    if (objection[0]) {
        if (store->phase != LS_STORE_REFUSED && !of_all) // else it is this process's error, too
            ls_warn("cluster", "%s", objection);
        refuse_one(store, peer, status, objection);
        if (of_all)
            ls_store_refuse(store, status, objection);
        return;
    }
    take_in(store, peer, number);
    compare(store, number);
    if (store->joined == store->members)
        begin_or_refuse(store);
}

bool ls_store_join(struct ls_store *store, struct ls_peer *peer, uint32_t generation,
                   struct ls_frame_reader *reader)
{
    struct request request;
    if (!read_request(reader, &request))
        return false;
    const bool begun = store->phase == LS_STORE_FORMED || store->phase == LS_STORE_LOST;
    if (request.kind == LS_JOIN_AGAIN)
        join_again(store, peer, generation, &request);
    else if (store->most_workers && (begun || request.kind == LS_JOIN_LATER))
        join_later(store, peer, &request);
    else if (request.kind == LS_JOIN_LATER)
        refuse_one(store, peer, LS_USAGE,
                   "LOCKSTEP_JOIN: worker 0 takes in no new workers, because it has no --elastic");
    else
        join_first(store, peer, &request);
    return true;
}

void ls_store_leave_early(struct ls_store *store, uint32_t number)
{
    store->member[number].peer = NULL;
    store->joined--;
}

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

// The first one ends the training, or the generation of an elastic one; a worker that is lost after
// it is lost because of it, or is missing in the next generation. Where workers are apart, nothing
// ends.
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
