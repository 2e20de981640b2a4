// SPDX-License-Identifier: Apache-2.0
// Lets the ranks go through their rounds as strictly as they may be run: a message moves when both
// ranks are in its rounds, a rank goes on when all of its round is done. A rank that stops for ever
// is in a deadlock.
//
// The executor is laxer: a step waits only for steps of this rank that the ranges order before it,
// all of which the strict model orders before it, too. So what gets through here gets through
// there, whatever overtakes what.
#include "core/schedule/verify/symbols.h"

#include <stdio.h>
#include <stdlib.h>

#define NAMED_RANKS 8

struct place {
    uint32_t begin, end; // steps of the round that the rank is in; equal: it is through
    uint32_t remaining; // of them
    bool listed; // in `entered`
};

struct walk {
    struct ls_verifier *verifier;
    struct place *places; // of each rank
    uint32_t *entered; // ranks that have entered a round and not yet tried its steps
    uint32_t entered_count;
};

// What a rank sends in its round is rounded when that begins.
static enum ls_status round_sends(const struct walk *walk, uint32_t rank)
{
    struct ls_verifier *verifier = walk->verifier;
    const struct place *place = &walk->places[rank];
    enum ls_status status = LS_OK;
    for (uint32_t i = place->begin; !status && i < place->end; i++) {
        const struct ls_range range = ls_step_range(&verifier->steps[i]);
        if (verifier->steps[i].kind == LS_STEP_SEND)
            status = ls_symbols_round(verifier->symbols, verifier, rank, verifier->steps[i].round,
                                      &range);
    }
    return status;
}

// To the next round that has steps.
static enum ls_status enter_round(struct walk *walk, uint32_t rank)
{
    const struct ls_verifier *verifier = walk->verifier;
    struct place *place = &walk->places[rank];
    const uint32_t last = verifier->first[rank + 1];
    place->begin = place->end;
    while (place->end < last &&
           verifier->steps[place->end].round == verifier->steps[place->begin].round)
        place->end++;
    place->remaining = place->end - place->begin;
    if (place->remaining && !place->listed) {
        place->listed = true;
        walk->entered[walk->entered_count++] = rank;
    }
    return verifier->verified->halves ? round_sends(walk, rank) : LS_OK;
}

static bool is_reached(const struct walk *walk, uint32_t rank, uint32_t step)
{
    return walk->places[rank].begin <= step && step < walk->places[rank].end;
}

static enum ls_status finish_step(struct walk *walk, uint32_t rank, struct ls_verified_step *step)
{
    step->done = 1;
    return --walk->places[rank].remaining == 0 ? enter_round(walk, rank) : LS_OK;
}

// Does a step if it can be done; then `next` is a step of rank `*next_rank` that waited for it, or
// LS_NO_STEP.
static enum ls_status try_step(struct walk *walk, uint32_t rank, uint32_t index, uint32_t *next,
                               uint32_t *next_rank)
{
    struct ls_verifier *verifier = walk->verifier;
    struct ls_verified_step *step = &verifier->steps[index];
    enum ls_status status;
    *next = LS_NO_STEP;
    if (step->done)
        return LS_OK;
    if (ls_step_is_local(step)) {
        if (step->waits)
            return LS_OK;
        const struct ls_range from = ls_step_from(step);
        status = ls_symbols_move(verifier->symbols, verifier, rank, step, rank, &from);
        *next = step->next;
        *next_rank = rank;
        if (!status)
            status = finish_step(walk, rank, step);
    } else {
        struct ls_verified_step *other = &verifier->steps[step->partner];
        const bool sends = step->kind == LS_STEP_SEND;
        struct ls_verified_step *send = sends ? step : other, *receive = sends ? other : step;
        const uint32_t sender = receive->peer, receiver = send->peer;
        if (receive->waits || !is_reached(walk, step->peer, step->partner))
            return LS_OK;
        const struct ls_range from = ls_step_range(send);
        status = ls_symbols_move(verifier->symbols, verifier, receiver, receive, sender, &from);
        *next = receive->next;
        *next_rank = receiver;
        if (!status)
            status = finish_step(walk, sender, send);
        if (!status)
            status = finish_step(walk, receiver, receive);
    }
    if (*next != LS_NO_STEP)
        verifier->steps[*next].waits = 0;
    return status;
}

static enum ls_status try_round(struct walk *walk, uint32_t rank)
{
    const struct place place = walk->places[rank];
    enum ls_status status = LS_OK;
    walk->places[rank].listed = false;
    for (uint32_t i = place.begin; !status && i < place.end; i++) {
        uint32_t step = i, of = rank;
        while (!status && step != LS_NO_STEP) {
            const uint32_t tried = step, tried_of = of;
            status = try_step(walk, tried_of, tried, &step, &of);
        }
    }
    return status;
}

// ---- Deadlock ----

// The step that keeps a rank in its round: one whose peer has not come so far.
static const struct ls_verified_step *blocked_step(const struct walk *walk, uint32_t rank)
{
    const struct ls_verified_step *steps = walk->verifier->steps, *any = NULL;
    for (uint32_t i = walk->places[rank].begin; i < walk->places[rank].end; i++) {
        const struct ls_verified_step *step = &steps[i];
        if (step->done || ls_step_is_local(step))
            continue;
        if (!is_reached(walk, step->peer, step->partner))
            return step;
        if (!any)
            any = step;
    }
    return any;
}

// Follows from each rank to the one that it waits for, from `rank` on, until one comes twice: a
// rank of the circle.
static uint32_t find_circle(const struct walk *walk, uint32_t rank)
{
    for (uint32_t i = 0; i < walk->verifier->verified->world; i++)
        rank = blocked_step(walk, rank)->peer;
    return rank;
}

static enum ls_status refuse_deadlock(struct walk *walk, uint32_t stuck)
{
    struct ls_verifier *verifier = walk->verifier;
    uint32_t least = find_circle(walk, stuck);
    uint32_t length = 0, rank = least;
    const uint32_t start = least;
    do {
        least = rank < least ? rank : least;
        rank = blocked_step(walk, rank)->peer;
        length++;
    } while (rank != start);

    const struct ls_verified_step *step = blocked_step(walk, least);
    const struct ls_verified_step *partner = &verifier->steps[step->partner];
    const struct ls_range range = ls_step_range(step);
    const bool sends = step->kind == LS_STEP_SEND;
    const uint32_t peer_round = verifier->steps[walk->places[step->peer].begin].round;
    char circle[160], elements[128], where[96];
    size_t used = 0;
    rank = least;
    for (uint32_t i = 0; i <= length && used + 16 < sizeof(circle); i++) {
        if (i == NAMED_RANKS && i < length) {
            snprintf(circle + used, sizeof(circle) - used, ", ... (%u in all)", length);
            break;
        }
        used += (size_t)snprintf(circle + used, sizeof(circle) - used, "%s%u", i ? ", " : "", rank);
        rank = blocked_step(walk, rank)->peer;
    }
    if (partner->round == peer_round)
        snprintf(where, sizeof(where), "only after another reduction of its round %u", peer_round);
    else
        snprintf(where, sizeof(where), "only in its round %u and cannot leave its round %u",
                 partner->round, peer_round);
    return ls_verifier_refuse(
        verifier, LS_VERDICT_DEADLOCK, least, step->round, &range,
        "deadlock: %s %s %s rank %u, which %s it %s; each waits for the next: "
        "ranks %s",
        sends ? "sends" : "receives", ls_elements_text(&range, elements, sizeof(elements)),
        sends ? "to" : "from", step->peer, sends ? "receives" : "sends", where, circle);
}

// ---- All ranks ----

static enum ls_status run(struct walk *walk)
{
    const struct ls_verifier *verifier = walk->verifier;
    const uint32_t world = verifier->verified->world;
    enum ls_status status = LS_OK;
    for (uint32_t rank = 0; !status && rank < world; rank++) {
        walk->places[rank].end = verifier->first[rank];
        status = enter_round(walk, rank);
    }
    while (!status && walk->entered_count)
        status = try_round(walk, walk->entered[--walk->entered_count]);
    for (uint32_t rank = 0; !status && rank < world; rank++)
        if (walk->places[rank].remaining)
            return refuse_deadlock(walk, rank);
    return status;
}

enum ls_status ls_verifier_run(struct ls_verifier *verifier)
{
    const uint32_t world = verifier->verified->world;
    struct walk walk = {
        .verifier = verifier,
        .places = calloc(world, sizeof(*walk.places)),
        .entered = malloc(world * sizeof(*walk.entered)),
    };
    enum ls_status status = LS_OUT_OF_MEMORY;
    if (walk.places && walk.entered)
        status = ls_symbols_init(verifier->symbols, verifier);
    if (!status)
        status = run(&walk);
    free(walk.places);
    free(walk.entered);
    return status;
}
