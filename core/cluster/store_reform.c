// SPDX-License-Identifier: Apache-2.0
// The next generation of an elastic cluster: the workers that are left, and the new ones that wait.
//
// Only one part of the workers may go on. A worker that is stopped or cut off may be alive, and may
// be with others that look for a store, too. So the workers that are here must be more than half of
// all that are not certainly dead, or half of them with the lowest. A worker is dead if its machine
// says that nobody listens any more at the port that the worker keeps. That does not count for a
// process that was itself stopped when it lost them: they may have gone on without it, and have
// ended.
#include "core/cluster/store_internal.h"

#include "core/base/log.h"
#include "core/wire/sockets.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAY_AFTER_NS UINT64_C(5000000000)
#define CERTAIN_NS \
    UINT64_C(1000000000) // after which a worker that still listens is taken to be alive
#define PROBE_NS UINT64_C(1000000000) // for an answer
#define PROBE_AGAIN_NS UINT64_C(200000000)

bool ls_store_take_reform(struct ls_store *store, uint32_t number, struct ls_frame_reader *reader)
{
    const uint64_t deadline = ls_frame_get_u64(reader);
    if (reader->wrong || !store->most_workers || number >= store->workers)
        return false;
    store->member[number].ready = true;
    if (!store->reforming) {
        store->reforming = true;
        store->reform_since_ns = store->clock.now_ns;
        store->reform_deadline_ns = deadline;
        store->say_at_ns = 0;
    }
    return true;
}

// ---- New workers ----

static struct ls_peer *next_joiner(const struct ls_store *store, uint64_t from)
{
    struct ls_peer *found = NULL;
    for (struct ls_peer *peer = store->peers; peer; peer = peer->next)
        if (peer->stage == LS_PEER_WAITING && peer->arrival >= from &&
            (!found || peer->arrival < found->arrival))
            found = peer;
    return found;
}

static uint32_t count_joiners(const struct ls_store *store)
{
    uint32_t count = 0;
    for (const struct ls_peer *peer = store->peers; peer; peer = peer->next)
        count += peer->stage == LS_PEER_WAITING;
    return count;
}

void ls_store_count_waiting(struct ls_store *store)
{
    uint32_t here = 0;
    for (uint32_t i = 0; store->most_workers && i < store->workers; i++)
        here += !store->member[i].gone && !store->member[i].left;
    const uint32_t room = store->most_workers > here ? store->most_workers - here : 0;
    const uint32_t count = room ? count_joiners(store) : 0;
    const bool begun = store->phase == LS_STORE_FORMED || store->phase == LS_STORE_LOST;
    atomic_store(&store->waiting, !begun ? 0 : count < room ? count : room);
}

uint32_t ls_store_waiting(const struct ls_store *store)
{
    return atomic_load(&store->waiting);
}

// ---- Which workers are dead ----

// Moves the probe of a worker's reserve on.
static void probe(struct ls_store *store, struct ls_store_member *member)
{
    const uint64_t now = store->clock.now_ns;
    int result;
    if (member->dead || now < member->probe_at_ns)
        return;
    if (!member->reserve.port || !member->reserve.address[0]) {
        member->probed = true;
        return;
    }
    if (member->probe < 0) {
        member->probe_since_ns = now;
        member->probe = ls_socket_probe_begin(member->reserve.address, member->reserve.port);
        result = member->probe < 0 ? errno : ls_socket_probe_result(member->probe);
    } else {
        result = ls_socket_probe_result(member->probe);
    }
    if (result == EINPROGRESS && now - member->probe_since_ns < PROBE_NS)
        return;
    if (member->probe >= 0)
        close(member->probe);
    member->probe = -1;
    member->probed = true;
    member->probe_at_ns = now + PROBE_AGAIN_NS;
    member->dead = result == ECONNREFUSED;
    if (result == 0)
        member->unreachable_ns = 0;
    else if (!member->unreachable_ns)
        member->unreachable_ns = member->probe_since_ns + 1;
}

// It certainly does not go on with others.
static bool is_out(const struct ls_store_member *member)
{
    return member->left || (member->dead && !member->doubtful);
}

// Workers of the last generation: each is ready, missing, or gone.
struct census {
    uint32_t ready, missing, dead, unknown; // unknown: gone, and perhaps dead
    bool doubtful; // some have ended, but perhaps not before they had gone on
    bool lowest; // the lowest that is not dead is ready
    bool chief; // the worker of this store is ready
    uint32_t first_missing;
};

static struct census count_workers(struct ls_store *store)
{
    struct census census = {0};
    bool seen = false;
    for (uint32_t i = 0; i < store->workers; i++) {
        struct ls_store_member *member = &store->member[i];
        const bool here = member->peer && !member->gone && !member->left;
        if (!here && !member->left)
            probe(store, member);
        if (!here && !member->gone && member->dead)
            ls_store_lose(store, i, "it has ended");
        else if (!here && member->unreachable_ns &&
                 store->clock.now_ns - member->unreachable_ns > store->silence_ns)
            ls_store_lose(store, i, "it cannot be reached");
        const bool dead = is_out(member);
        if (!dead && !seen) {
            seen = true;
            census.lowest = here && member->ready;
        }
        if (dead) {
            census.dead++;
        } else if (member->gone) {
            census.unknown += !member->probed;
            census.doubtful = census.doubtful || member->dead;
        } else if (here && member->ready) {
            census.ready++;
            census.chief = census.chief || member->peer->own;
        } else {
            census.first_missing = census.missing++ ? census.first_missing : i;
        }
    }
    return census;
}

// ---- The next generation ----

static void end_entry(struct ls_store *store, struct ls_store_member *member)
{
    if (member->peer && !member->peer->own) {
        ls_frame_begin(&store->frame, LS_FRAME_GOODBYE, store->generation);
        ls_peer_dismiss(store, member->peer);
    }
    if (member->probe >= 0)
        close(member->probe);
    free(member->agreement);
}

static void put_entry(struct ls_store_member *entry, const struct ls_store_member *from,
                      struct ls_peer *peer, uint32_t number, uint32_t former)
{
    *entry = *from;
    entry->peer = peer;
    entry->former = former;
    entry->unreachable_ns = 0;
    entry->ready = entry->has_block = entry->probed = false;
    entry->doubtful = false;
    if (entry->probe >= 0)
        close(entry->probe);
    entry->probe = -1;
    peer->member = number;
}

static void move_workers(struct ls_store *store, struct ls_store_member *to, uint32_t joiners)
{
    uint32_t number = 0;
    for (uint32_t i = 0; i < store->workers; i++) {
        struct ls_store_member *member = &store->member[i];
        if (member->ready && !member->gone && !member->left) {
            put_entry(&to[number], member, member->peer, number, i);
            number++;
        } else {
            end_entry(store, member);
        }
    }
    for (; joiners > 0; joiners--, number++) {
        struct ls_peer *peer = next_joiner(store, 0);
        struct ls_store_member *joiner = peer->joiner;
        put_entry(&to[number], joiner, peer, number, LS_NO_WORKER);
        peer->joiner = NULL;
        peer->stage = LS_PEER_MEMBER;
        free(joiner);
    }
}

static void form(struct ls_store *store, uint32_t survivors, uint32_t joiners)
{
    const uint32_t workers = survivors + joiners, before = store->workers;
    const size_t part = ls_store_part(workers);
    struct ls_store_member *members = calloc(workers, sizeof(*members));
    uint8_t *blocks = malloc(workers * part), *result = malloc(workers * (part + 4));
    if (!members || !blocks || !result) {
        free(members);
        free(blocks);
        free(result);
        ls_store_refuse(store, LS_OUT_OF_MEMORY, "worker 0 has no memory for the next generation");
        return;
    }
    move_workers(store, members, joiners);
    free(store->member);
    free(store->blocks);
    free(store->result);
    store->member = members;
    store->blocks = blocks;
    store->result = result;
    store->part = part;
    store->workers = store->members = store->joined = workers;
    store->survivors = survivors;
    store->sequence = 0;
    store->blocks_here = 0;
    store->reforming = false;
    store->clock.stood_ns = 0;
    store->generation++;
    ls_info("cluster", "continuing with %u worker%s (%u lost, %u new)", workers,
            workers == 1 ? "" : "s", before - survivors, joiners);
    ls_store_welcome(store);
}

static void refuse_few(struct ls_store *store, uint32_t here)
{
    char text[LS_TEXT_BYTES];
    snprintf(text, sizeof(text),
             "%u %s left, fewer than the %u of --elastic=%u:%u, and no new ones came within %g s",
             here, here == 1 ? "worker is" : "workers are", store->least_workers,
             store->least_workers, store->most_workers, (double)store->reform_deadline_ns * 1e-9);
    ls_store_refuse(store, LS_PEER_LOST, text);
}

static void refuse_without_chief(struct ls_store *store)
{
    char text[LS_TEXT_BYTES];
    snprintf(text, sizeof(text),
             "worker 0 (%s), which has the store, did not come within %g s when the others formed "
             "anew",
             store->member[0].host, (double)store->reform_deadline_ns * 1e-9);
    ls_store_refuse(store, LS_PEER_LOST, text);
}

static void refuse_part(struct ls_store *store, const struct census *census)
{
    char text[LS_TEXT_BYTES], others[LS_TEXT_BYTES / 2] = "", name[LS_NAME_BYTES + 32];
    size_t length = 0;
    for (uint32_t i = 0; i < store->workers && length < sizeof(others); i++) {
        const struct ls_store_member *member = &store->member[i];
        if (!member->gone || is_out(member))
            continue;
        ls_store_name_member(store, i, name, sizeof(name));
        length += (size_t)snprintf(others + length, sizeof(others) - length, "%s%s",
                                   length ? ", " : "; not here: ", name);
    }
    snprintf(text, sizeof(text),
             "only %u of %u workers %s left here, and the others %s: this part ends%s",
             census->ready, store->workers, census->ready == 1 ? "is" : "are",
             census->doubtful ? "may have gone on while this process was stopped"
                              : "are perhaps cut off and go on without them",
             others);
    ls_store_refuse(store, LS_PEER_LOST, text);
}

static void say(struct ls_store *store, uint64_t waited, uint64_t after, const char *whom)
{
    if (waited < after || store->clock.now_ns < store->say_at_ns)
        return;
    store->say_at_ns = store->clock.now_ns + ls_log_wait_ns();
    ls_info("cluster", "waiting for %s to continue, %.0f s of %g s", whom, (double)waited * 1e-9,
            (double)store->reform_deadline_ns * 1e-9);
}

// One worker has lost another one that the store has not lost, or is far ahead: the others must not
// wait for it in what they do.
static void call_others(struct ls_store *store)
{
    char name[LS_NAME_BYTES + 32], text[LS_TEXT_BYTES];
    for (uint32_t i = 0; i < store->workers; i++) {
        if (!store->member[i].ready || store->member[i].gone)
            continue;
        ls_member_name(i, store->workers, store->apart, store->member[i].host, name, sizeof(name));
        snprintf(text, sizeof(text), "%s waits until all form anew", name);
        ls_store_tell_lost(store, LS_PEER_LOST, LS_NO_MEMBER, text);
        return;
    }
}

// The workers that have not come in time.
static void lose_missing(struct ls_store *store)
{
    char why[96];
    snprintf(why, sizeof(why), "it did not come within %g s when the others formed anew",
             (double)store->reform_deadline_ns * 1e-9);
    for (uint32_t i = 0; i < store->workers; i++) {
        const struct ls_store_member *member = &store->member[i];
        if (!member->ready && !member->gone && !member->left)
            ls_store_lose(store, i, why);
    }
}

static uint32_t agreeing_joiners(struct ls_store *store)
{
    uint64_t from = 0;
    for (struct ls_peer *peer = next_joiner(store, 0); peer; peer = next_joiner(store, from)) {
        from = peer->arrival + 1;
        (void)ls_store_differs(store, peer);
    }
    return count_joiners(store);
}

void ls_store_watch_reform(struct ls_store *store)
{
    char whom[64];
    if (!store->reforming || store->phase == LS_STORE_REFUSED || atomic_load(&store->stopping))
        return;
    const uint64_t waited = store->clock.now_ns - store->reform_since_ns;
    const bool late = waited >= store->reform_deadline_ns;
    struct census census = count_workers(store);
    if (census.missing && late && !census.chief) {
        refuse_without_chief(store);
        return;
    }
    if (census.missing && late) {
        lose_missing(store);
        census = count_workers(store);
    }
    if (census.missing && store->phase == LS_STORE_FORMED && waited > store->silence_ns)
        call_others(store);
    if (census.missing) {
        ls_member_name(census.first_missing, store->workers, store->apart,
                       store->member[census.first_missing].host, whom, sizeof(whom));
        say(store, waited, SAY_AFTER_NS, whom);
        return;
    }
    if (!census.chief)
        return; // it has given up: the others will notice when it closes the store
    const uint32_t alive = store->workers - census.dead;
    const bool most = 2 * census.ready > alive || (2 * census.ready == alive && census.lowest);
    if (!most && (census.unknown || waited < CERTAIN_NS))
        return; // the probes tell soon; a process that was killed closes its sockets a little later
    if (!most) {
        refuse_part(store, &census);
        return;
    }
    const uint32_t room =
        store->most_workers > census.ready ? store->most_workers - census.ready : 0;
    const uint32_t waiting = agreeing_joiners(store), joiners = waiting < room ? waiting : room;
    if (census.ready + joiners >= store->least_workers) {
        form(store, census.ready, joiners);
    } else if (late) {
        refuse_few(store, census.ready + joiners);
    } else {
        snprintf(whom, sizeof(whom), "%u new %s", store->least_workers - census.ready - joiners,
                 store->least_workers - census.ready - joiners == 1 ? "worker" : "workers");
        say(store, waited, 0, whom);
    }
}
