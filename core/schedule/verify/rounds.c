// SPDX-License-Identifier: Apache-2.0
// Looks into each round of each rank: no element that one step writes may be read or written by
// another, except by reductions, which are chained in the order written. Also counts messages and
// bytes.
#include "core/schedule/verify/internal.h"

#include <stdlib.h>

enum access_kind { ACCESS_READ, ACCESS_WRITE, ACCESS_REDUCE, ACCESS_KINDS };

struct access {
    uint64_t begin, end;
    uint32_t step;
    uint8_t buffer;
    uint8_t kind; // enum access_kind
};

struct accesses {
    struct access *list;
    uint32_t count, capacity;
};

static int compare_places(const void *left, const void *right)
{
    const struct access *a = left, *b = right;
    if (a->buffer != b->buffer)
        return a->buffer < b->buffer ? -1 : 1;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return (a->step > b->step) - (a->step < b->step);
}

static int compare_steps(const void *left, const void *right)
{
    const struct access *a = left, *b = right;
    return (a->step > b->step) - (a->step < b->step);
}

static void sort_places(struct access *list, uint32_t count)
{
    uint32_t i = 1;
    while (i < count && compare_places(&list[i - 1], &list[i]) <= 0)
        i++;
    if (i < count)
        qsort(list, count, sizeof(*list), compare_places);
}

static void add_access(struct accesses *accesses, const struct ls_range *range, uint32_t step,
                       enum access_kind kind)
{
    accesses->list[accesses->count++] = (struct access){
        range->offset, range->offset + range->count, step, (uint8_t)range->buffer, (uint8_t)kind};
}

static enum ls_status collect(struct accesses *accesses, const struct ls_verifier *verifier,
                              uint32_t begin, uint32_t end)
{
    const uint32_t most = 2 * (end - begin);
    if (most > accesses->capacity) {
        struct access *list = realloc(accesses->list, (size_t)most * sizeof(*list));
        if (!list)
            return LS_OUT_OF_MEMORY;
        accesses->list = list;
        accesses->capacity = most;
    }
    accesses->count = 0;
    for (uint32_t i = begin; i < end; i++) {
        const struct ls_verified_step *step = &verifier->steps[i];
        const struct ls_range range = ls_step_range(step), from = ls_step_from(step);
        add_access(accesses, &range, i,
                   step->kind == LS_STEP_SEND ? ACCESS_READ
                   : ls_step_reduces(step)    ? ACCESS_REDUCE
                                              : ACCESS_WRITE);
        if (ls_step_is_local(step))
            add_access(accesses, &from, i, ACCESS_READ);
    }
    return LS_OK;
}

// ---- Conflicts ----

static bool may_meet(enum access_kind a, enum access_kind b)
{
    return a == b && a != ACCESS_WRITE;
}

static enum ls_status refuse(struct ls_verifier *verifier, uint32_t rank, const struct access *one,
                             const struct access *other)
{
    static const char *const words[] = {"reads", "writes", "reduces into"};
    // First what writes, then what it disturbs.
    const struct access *a = one->kind == ACCESS_READ ? other : one;
    const struct access *b = a == one ? other : one;
    const uint64_t begin = a->begin > b->begin ? a->begin : b->begin;
    const uint64_t end = a->end < b->end ? a->end : b->end;
    const struct ls_range range = {a->buffer, 0, begin, end - begin};
    char text[128];
    return ls_verifier_refuse(verifier, LS_VERDICT_CONFLICT, rank, verifier->steps[a->step].round,
                              &range, "one step %s %s, which %s step of the same round %s",
                              words[a->kind], ls_elements_text(&range, text, sizeof(text)),
                              a->step == b->step ? "the very same" : "another",
                              b->kind == ACCESS_READ ? "reads" : words[b->kind]);
}

// Goes over the sorted list, remembering for each kind what reaches farthest.
static enum ls_status find_conflict(struct ls_verifier *verifier, uint32_t rank,
                                    const struct accesses *accesses)
{
    const struct access *farthest[ACCESS_KINDS] = {NULL, NULL, NULL};
    for (uint32_t i = 0; i < accesses->count; i++) {
        const struct access *access = &accesses->list[i];
        if (i && access->buffer != accesses->list[i - 1].buffer)
            farthest[0] = farthest[1] = farthest[2] = NULL;
        for (uint32_t kind = 0; kind < ACCESS_KINDS; kind++)
            if (farthest[kind] && farthest[kind]->end > access->begin &&
                !may_meet(kind, access->kind))
                return refuse(verifier, rank, access, farthest[kind]);
        if (!farthest[access->kind] || farthest[access->kind]->end < access->end)
            farthest[access->kind] = access;
    }
    return LS_OK;
}

// ---- Reductions into one range ----

static void chain(struct ls_verifier *verifier, struct access *list, uint32_t count)
{
    if (count > 1)
        qsort(list, count, sizeof(*list), compare_steps);
    for (uint32_t i = 1; i < count; i++) {
        verifier->steps[list[i - 1].step].next = list[i].step;
        verifier->steps[list[i].step].waits = 1;
    }
}

// Reductions whose ranges touch, be it through others, come one after the other.
static void chain_reductions(struct ls_verifier *verifier, struct accesses *accesses)
{
    struct access *list = accesses->list;
    uint32_t count = 0;
    for (uint32_t i = 0; i < accesses->count; i++)
        if (list[i].kind == ACCESS_REDUCE)
            list[count++] = list[i];
    for (uint32_t begin = 0; begin < count;) {
        uint64_t reach = list[begin].end;
        uint32_t end = begin + 1;
        for (; end < count && list[end].buffer == list[begin].buffer && list[end].begin < reach;
             end++)
            if (list[end].end > reach)
                reach = list[end].end;
        chain(verifier, &list[begin], end - begin);
        begin = end;
    }
}

// ---- Counting ----

static void count_round(struct ls_verifier *verifier, uint32_t begin, uint32_t end, uint64_t *sent,
                        uint64_t *received)
{
    uint32_t sends = 0, receives = 0;
    for (uint32_t i = begin; i < end; i++) {
        const struct ls_verified_step *step = &verifier->steps[i];
        if (ls_step_is_local(step))
            continue;
        if (step->kind == LS_STEP_SEND) {
            sends++;
            *sent += step->count;
        } else {
            receives++;
            *received += step->count;
        }
    }
    const uint32_t most = sends > receives ? sends : receives;
    if (most > verifier->out->messages_at_once)
        verifier->out->messages_at_once = most;
}

static enum ls_status check_rank(struct ls_verifier *verifier, uint32_t rank,
                                 struct accesses *accesses)
{
    const struct ls_verified_step *steps = verifier->steps;
    uint64_t sent = 0, received = 0;
    uint32_t begin = verifier->first[rank];
    const uint32_t last = verifier->first[rank + 1];
    while (begin < last) {
        uint32_t end = begin + 1;
        while (end < last && steps[end].round == steps[begin].round)
            end++;
        count_round(verifier, begin, end, &sent, &received);
        enum ls_status status = collect(accesses, verifier, begin, end);
        if (status)
            return status;
        sort_places(accesses->list, accesses->count);
        status = find_conflict(verifier, rank, accesses);
        if (status)
            return status;
        chain_reductions(verifier, accesses);
        begin = end;
    }
    const uint64_t most = (sent > received ? sent : received) * verifier->verified->element_bytes;
    if (most > verifier->out->most_bytes)
        verifier->out->most_bytes = most;
    return LS_OK;
}

enum ls_status ls_verifier_check_rounds(struct ls_verifier *verifier)
{
    struct accesses accesses = {0};
    enum ls_status status = LS_OK;
    for (uint32_t rank = 0; !status && rank < verifier->verified->world; rank++)
        status = check_rank(verifier, rank, &accesses);
    free(accesses.list);
    return status;
}
