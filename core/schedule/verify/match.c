// SPDX-License-Identifier: Apache-2.0
// Links both sides of every message: the n-th that a rank sends to a peer is the n-th that the peer
// receives from it. Where they do not fit, the mismatch of the earliest round is named.
#include "core/schedule/verify/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct message {
    uint32_t step;
    uint32_t from, to;
};

// The messages of one pair of ranks, seen from both sides.
struct pair {
    const struct message *sends, *receives;
    uint32_t send_count, receive_count;
};

struct mismatch {
    struct pair pair;
    uint32_t index; // of the message that does not fit
    uint32_t rank; // where it is reported
    uint32_t step; // of that rank
    bool found;
    bool counts; // both sides know the message, and differ in its length
};

// ---- Grouping ----

// A stable counting sort of `messages` by one of its ends.
static void sort_by(const struct message *messages, uint32_t count, bool by_to, uint32_t world,
                    uint32_t *places, struct message *sorted)
{
    for (uint32_t i = 0; i <= world; i++)
        places[i] = 0;
    for (uint32_t i = 0; i < count; i++)
        places[(by_to ? messages[i].to : messages[i].from) + 1]++;
    for (uint32_t i = 0; i < world; i++)
        places[i + 1] += places[i];
    for (uint32_t i = 0; i < count; i++)
        sorted[places[by_to ? messages[i].to : messages[i].from]++] = messages[i];
}

// Lists one side's messages by receiver, of these by sender, of these in the order written. `spare`
// is as long.
static uint32_t list(const struct ls_verifier *verifier, bool sends, uint32_t *places,
                     struct message *messages, struct message *spare)
{
    const uint32_t world = verifier->verified->world;
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < world; rank++)
        for (uint32_t i = verifier->first[rank]; i < verifier->first[rank + 1]; i++) {
            const struct ls_verified_step *step = &verifier->steps[i];
            if (ls_step_is_local(step) || (step->kind == LS_STEP_SEND) != sends)
                continue;
            messages[count++] =
                (struct message){i, sends ? rank : step->peer, sends ? step->peer : rank};
        }
    sort_by(messages, count, false, world, places, spare);
    sort_by(spare, count, true, world, places, messages);
    return count;
}

static bool comes_before(const struct message *a, const struct message *b)
{
    return a->to != b->to ? a->to < b->to : a->from < b->from;
}

// ---- Mismatches ----

static uint32_t round_of(const struct ls_verifier *verifier, const struct message *message)
{
    return verifier->steps[message->step].round;
}

static bool same_count(const struct ls_verifier *verifier, const struct message *a,
                       const struct message *b)
{
    return verifier->steps[a->step].count == verifier->steps[b->step].count;
}

// The first message of which one side knows nothing. Usually both sides are in the same round, so
// where they part, the earlier one is alone.
static struct mismatch find_lonely(const struct ls_verifier *verifier, const struct pair *pair)
{
    uint32_t i = 0;
    while (i < pair->send_count && i < pair->receive_count &&
           round_of(verifier, &pair->sends[i]) == round_of(verifier, &pair->receives[i]) &&
           same_count(verifier, &pair->sends[i], &pair->receives[i]))
        i++;
    struct mismatch found = {.pair = *pair, .index = i, .found = true};
    const bool ended = i == pair->send_count || i == pair->receive_count;
    found.counts =
        !ended && round_of(verifier, &pair->sends[i]) == round_of(verifier, &pair->receives[i]);
    const bool send_is_alone = i < pair->send_count && (i == pair->receive_count ||
                                                        round_of(verifier, &pair->sends[i]) <
                                                            round_of(verifier, &pair->receives[i]));
    const struct message *message = send_is_alone ? &pair->sends[i] : &pair->receives[i];
    found.step = message->step;
    found.rank = send_is_alone ? message->from : message->to;
    return found;
}

static struct mismatch link_pair(struct ls_verifier *verifier, const struct pair *pair)
{
    struct ls_verified_step *steps = verifier->steps;
    if (pair->send_count != pair->receive_count)
        return find_lonely(verifier, pair);
    for (uint32_t i = 0; i < pair->send_count; i++) {
        const struct message *send = &pair->sends[i], *receive = &pair->receives[i];
        if (!same_count(verifier, send, receive))
            return (struct mismatch){*pair, i, receive->to, receive->step, true, true};
        steps[send->step].partner = receive->step;
        steps[receive->step].partner = send->step;
    }
    return (struct mismatch){0};
}

static bool is_earlier(const struct ls_verifier *verifier, const struct mismatch *a,
                       const struct mismatch *b)
{
    const uint32_t left = verifier->steps[a->step].round, right = verifier->steps[b->step].round;
    return !b->found || left < right || (left == right && a->rank < b->rank);
}

static uint32_t in_round(const struct ls_verifier *verifier, const struct message *messages,
                         uint32_t count, uint32_t round)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++)
        found += round_of(verifier, &messages[i]) == round;
    return found;
}

static enum ls_status refuse_counts(struct ls_verifier *verifier, const struct mismatch *mismatch)
{
    const struct message *send = &mismatch->pair.sends[mismatch->index];
    const struct message *receive = &mismatch->pair.receives[mismatch->index];
    const struct ls_range sent = ls_step_range(&verifier->steps[send->step]);
    const struct ls_range received = ls_step_range(&verifier->steps[receive->step]);
    char from[128], to[128];
    return ls_verifier_refuse(
        verifier, LS_VERDICT_MATCH, receive->to, round_of(verifier, receive), &received,
        "receives %s from rank %u, which sends %s as that message (number %u between the two) in "
        "its round %u: %" PRIu64 " and %" PRIu64 " elements",
        ls_elements_text(&received, to, sizeof(to)), send->from,
        ls_elements_text(&sent, from, sizeof(from)), mismatch->index, round_of(verifier, send),
        received.count, sent.count);
}

static enum ls_status refuse_lonely(struct ls_verifier *verifier, const struct mismatch *mismatch)
{
    const struct pair *pair = &mismatch->pair;
    const struct ls_verified_step *step = &verifier->steps[mismatch->step];
    const struct ls_range range = ls_step_range(step);
    const bool sends = step->kind == LS_STEP_SEND;
    const uint32_t there =
        sends ? in_round(verifier, pair->receives, pair->receive_count, step->round)
              : in_round(verifier, pair->sends, pair->send_count, step->round);
    char text[128], more[96] = "";
    if (pair->send_count && pair->receive_count)
        snprintf(more, sizeof(more), " (in all, %u are sent and %u are received)", pair->send_count,
                 pair->receive_count);
    return ls_verifier_refuse(verifier, LS_VERDICT_MATCH, mismatch->rank, step->round, &range,
                              "%s %s %s rank %u, which %s %s %s rank %u in its round %u%s",
                              sends ? "sends" : "receives",
                              ls_elements_text(&range, text, sizeof(text)), sends ? "to" : "from",
                              step->peer, sends ? "receives" : "sends", there ? "less" : "nothing",
                              sends ? "from" : "to", mismatch->rank, step->round, more);
}

// ---- All pairs ----

static struct mismatch link_all(struct ls_verifier *verifier, const struct message *sends,
                                uint32_t send_count, const struct message *receives,
                                uint32_t receive_count)
{
    struct mismatch first = {0};
    uint32_t s = 0, r = 0;
    while (s < send_count || r < receive_count) {
        const struct message *pair_of =
            s == send_count || (r < receive_count && comes_before(&receives[r], &sends[s]))
                ? &receives[r]
                : &sends[s];
        struct pair pair = {.sends = &sends[s], .receives = &receives[r]};
        for (; s < send_count && sends[s].to == pair_of->to && sends[s].from == pair_of->from; s++)
            pair.send_count++;
        for (; r < receive_count && receives[r].to == pair_of->to &&
               receives[r].from == pair_of->from;
             r++)
            pair.receive_count++;
        const struct mismatch mismatch = link_pair(verifier, &pair);
        if (mismatch.found && is_earlier(verifier, &mismatch, &first))
            first = mismatch;
    }
    return first;
}

enum ls_status ls_verifier_match(struct ls_verifier *verifier)
{
    const size_t steps = (size_t)verifier->step_count + 1;
    const uint32_t world = verifier->verified->world;
    uint32_t *places = malloc(((size_t)world + 1) * sizeof(*places));
    struct message *sends = calloc(steps, sizeof(*sends));
    struct message *receives = calloc(steps, sizeof(*receives));
    struct message *spare = calloc(steps, sizeof(*spare));
    enum ls_status status = LS_OUT_OF_MEMORY;
    if (places && sends && receives && spare) {
        const uint32_t send_count = list(verifier, true, places, sends, spare);
        const uint32_t receive_count = list(verifier, false, places, receives, spare);
        const struct mismatch mismatch =
            link_all(verifier, sends, send_count, receives, receive_count);
        status = !mismatch.found   ? LS_OK
                 : mismatch.counts ? refuse_counts(verifier, &mismatch)
                                   : refuse_lonely(verifier, &mismatch);
    }
    free(places);
    free(sends);
    free(receives);
    free(spare);
    return status;
}
