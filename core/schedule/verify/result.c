// SPDX-License-Identifier: Apache-2.0
// Compares what the buffers have in the end with what the operation promises.
#include "core/schedule/verify/symbols.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMED_RANKS 8

struct check {
    struct ls_verifier *verifier;
    const struct ls_symbols *symbols;
    uint8_t *complete; // of each symbol: has every rank's contribution once
    uint32_t *seen; // of each rank: how often its contribution was met
    uint32_t *stack; // symbols to be looked at
};

// ---- Sums ----

// Counts the contributions of a sum, giving up when there are more than ranks: then one is there
// twice. False: so it is, or it is mixed.
static bool count_contributions(struct check *check, uint32_t symbol)
{
    const uint32_t world = check->symbols->world;
    uint32_t depth = 0, reductions = 0;
    memset(check->seen, 0, world * sizeof(*check->seen));
    check->stack[depth++] = symbol;
    while (depth) {
        const uint32_t top = check->stack[--depth];
        const struct ls_expression *expression = ls_symbols_expression(check->symbols, top);
        if (!expression) {
            if (check->seen[top - 1]++)
                return false;
            continue;
        }
        if (!expression->left) { // rounded
            check->stack[depth++] = expression->right;
            continue;
        }
        // `world` reductions have more than `world` contributions. The stack holds at most one
        // each.
        if (expression->mixed || ++reductions == world)
            return false;
        check->stack[depth++] = expression->left;
        check->stack[depth++] = expression->right;
    }
    return true;
}

// What is wrong with a sum began where both of its parts are still right.
static enum ls_status refuse_sum(struct check *check, uint32_t symbol, uint32_t rank,
                                 const struct ls_range *range)
{
    const struct ls_expression *expression = ls_symbols_expression(check->symbols, symbol);
    for (;;) {
        if (!expression->left) { // rounded
            expression = ls_symbols_expression(check->symbols, expression->right);
            continue;
        }
        const bool left = count_contributions(check, expression->left);
        if (left && count_contributions(check, expression->right))
            break;
        expression =
            ls_symbols_expression(check->symbols, left ? expression->right : expression->left);
    }
    char text[128], seen[64] = "";
    ls_elements_text(range, text, sizeof(text));
    if (rank != expression->rank)
        snprintf(seen, sizeof(seen), " (seen in the result of rank %u)", rank);
    if (expression->mixed)
        return ls_verifier_refuse(check->verifier, LS_VERDICT_RESULT, expression->rank,
                                  expression->round, range,
                                  "adds other elements to %s of the result%s", text, seen);
    uint32_t twice = 0;
    uint8_t *there = calloc(check->symbols->world, 1);
    if (!there)
        return LS_OUT_OF_MEMORY;
    (void)!count_contributions(check, expression->left);
    for (uint32_t i = 0; i < check->symbols->world; i++)
        there[i] = check->seen[i] != 0;
    (void)!count_contributions(check, expression->right);
    while (twice + 1 < check->symbols->world && !(there[twice] && check->seen[twice]))
        twice++;
    free(there);
    return ls_verifier_refuse(
        check->verifier, LS_VERDICT_RESULT, expression->rank, expression->round, range,
        "adds to %s what rank %u had, which is already in there%s", text, twice, seen);
}

// "what ranks 1, 4 and 5 had" of those not seen, or seen.
static const char *ranks_text(const struct check *check, bool seen, char *text, size_t bytes)
{
    const uint32_t world = check->symbols->world;
    uint32_t count = 0, named = 0;
    for (uint32_t i = 0; i < world; i++)
        count += (check->seen[i] != 0) == seen;
    size_t used = (size_t)snprintf(text, bytes, "what rank%s ", count == 1 ? "" : "s");
    for (uint32_t i = 0; i < world && named < NAMED_RANKS; i++) {
        if ((check->seen[i] != 0) != seen)
            continue;
        const char *before = named == 0 ? "" : named + 1 == count ? " and " : ", ";
        used += (size_t)snprintf(text + used, bytes - used, "%s%u", before, i);
        named++;
    }
    if (named < count)
        used += (size_t)snprintf(text + used, bytes - used, " and %u more", count - named);
    snprintf(text + used, bytes - used, " had");
    return text;
}

static enum ls_status refuse_missing(struct check *check, uint32_t rank,
                                     const struct ls_range *range)
{
    char elements[128], missing[160];
    return ls_verifier_refuse(check->verifier, LS_VERDICT_RESULT, rank, UINT32_MAX, range,
                              "%s %s %s", ls_elements_text(range, elements, sizeof(elements)),
                              range->count == 1 ? "lacks" : "lack",
                              ranks_text(check, false, missing, sizeof(missing)));
}

static enum ls_status check_sum(struct check *check, uint32_t symbol, uint32_t rank,
                                const struct ls_range *range)
{
    if (check->complete[symbol])
        return LS_OK;
    if (!count_contributions(check, symbol))
        return refuse_sum(check, symbol, rank, range);
    for (uint32_t i = 0; i < check->symbols->world; i++)
        if (!check->seen[i])
            return refuse_missing(check, rank, range);
    check->complete[symbol] = 1;
    return LS_OK;
}

// ---- Copies ----

static enum ls_status refuse_copy(struct check *check, uint32_t symbol, uint32_t rank,
                                  const struct ls_range *range, uint32_t owner)
{
    const struct ls_expression *expression = ls_symbols_expression(check->symbols, symbol);
    char elements[128], what[64] = "a reduction";
    if (!expression)
        snprintf(what, sizeof(what), "what rank %u had", symbol - 1);
    return ls_verifier_refuse(check->verifier, LS_VERDICT_RESULT, rank, UINT32_MAX, range,
                              "%s %s %s instead of what rank %u had",
                              ls_elements_text(range, elements, sizeof(elements)),
                              range->count == 1 ? "is" : "are", what, owner);
}

// The elements of this range should be those `shift` further on.
static enum ls_status refuse_place(struct check *check, const struct ls_interval *interval,
                                   uint32_t rank, const struct ls_range *range, uint64_t shift)
{
    const struct ls_range found = ls_data_range(range->offset + interval->shift, range->count);
    const struct ls_range wanted = ls_data_range(range->offset + shift, range->count);
    char here[128], there[128], instead[128];
    if (check->verifier->verified->operation == LS_ALL_TO_ALL)
        return ls_verifier_refuse(
            check->verifier, LS_VERDICT_RESULT, rank, UINT32_MAX, range,
            "%s %s %s of rank %u instead of its %s", ls_elements_text(range, here, sizeof(here)),
            range->count == 1 ? "is" : "are", ls_elements_text(&found, there, sizeof(there)),
            interval->symbol - 1, ls_elements_text(&wanted, instead, sizeof(instead)));
    return ls_verifier_refuse(
        check->verifier, LS_VERDICT_RESULT, rank, UINT32_MAX, range, "%s %s what belongs to %s",
        ls_elements_text(range, here, sizeof(here)), range->count == 1 ? "has" : "have",
        ls_elements_text(&found, there, sizeof(there)));
}

// ---- The result of one rank ----

// `owner`: the rank whose elements are wanted, from `shift` elements further on; UINT32_MAX: the
// sum over all.
static enum ls_status check_shifted(struct check *check, uint32_t rank,
                                    const struct ls_range *wanted, uint32_t owner, uint64_t shift)
{
    const struct ls_intervals *data = ls_symbols_data(check->symbols, rank);
    const uint64_t end = wanted->offset + wanted->count;
    enum ls_status status = LS_OK;
    if (!wanted->count)
        return LS_OK;
    for (uint32_t i = ls_intervals_find(data, wanted->offset);
         !status && i < data->count && data->list[i].begin < end; i++) {
        const struct ls_interval *interval = &data->list[i];
        const uint64_t from = interval->begin > wanted->offset ? interval->begin : wanted->offset;
        const uint64_t to = ls_interval_end(data, i) < end ? ls_interval_end(data, i) : end;
        const struct ls_range range = ls_data_range(from, to - from);
        const bool other = owner != UINT32_MAX && interval->symbol != owner + 1;
        if (other && check->verifier->verified->operation == LS_ALL_TO_ALL)
            status = refuse_copy(check, interval->symbol, rank, &range, owner);
        else if (interval->shift != shift)
            status = refuse_place(check, interval, rank, &range, shift);
        else if (owner == UINT32_MAX)
            status = check_sum(check, interval->symbol, rank, &range);
        else if (other)
            status = refuse_copy(check, interval->symbol, rank, &range, owner);
    }
    return status;
}

static enum ls_status check_range(struct check *check, uint32_t rank, const struct ls_range *wanted,
                                  uint32_t owner)
{
    return check_shifted(check, rank, wanted, owner, 0);
}

static enum ls_status check_rank(struct check *check, uint32_t rank)
{
    const struct ls_verify_case *verified = check->verifier->verified;
    const struct ls_collective_call call = {.world = verified->world, .count = verified->count};
    const struct ls_range all = ls_data_range(0, verified->count);
    const struct ls_range own = ls_chunk(&call, rank);
    enum ls_status status = LS_OK;
    switch (verified->operation) {
    case LS_ALL_REDUCE: return check_range(check, rank, &all, UINT32_MAX);
    case LS_REDUCE_SCATTER: return check_range(check, rank, &own, UINT32_MAX);
    case LS_BROADCAST: return check_range(check, rank, &all, verified->root);
    case LS_REDUCE:
        return rank == verified->root ? check_range(check, rank, &all, UINT32_MAX) : LS_OK;
    default: break;
    }
    for (uint32_t owner = 0; !status && owner < verified->world; owner++) {
        const bool all_to_all = verified->operation == LS_ALL_TO_ALL;
        const struct ls_range part = all_to_all ? ls_block(&call, owner) : ls_chunk(&call, owner);
        const uint64_t shift = all_to_all ? ls_block(&call, rank).offset - part.offset : 0;
        status = check_shifted(check, rank, &part, owner, shift);
    }
    return status;
}

// ---- The order of additions ----

// "((0 + 1) + 2)", with an ellipsis where the text is full.
struct order_text {
    char text[90];
    size_t used;
    bool cut;
};

static void put(struct order_text *order, const char *word)
{
    const size_t letters = strlen(word);
    if (order->cut)
        return;
    order->cut = order->used + letters + sizeof("...") > sizeof(order->text);
    memcpy(order->text + order->used, order->cut ? "..." : word, (order->cut ? 3 : letters) + 1);
    order->used += letters;
}

static void write_order(const struct ls_symbols *symbols, uint32_t symbol, struct order_text *order)
{
    const struct ls_expression *expression = ls_symbols_expression(symbols, symbol);
    char number[16];
    if (order->cut)
        return;
    if (!expression) {
        snprintf(number, sizeof(number), "%u", symbol - 1);
        put(order, number);
        return;
    }
    put(order, expression->left ? "(" : "~");
    if (expression->left) {
        write_order(symbols, expression->left, order);
        put(order, " + ");
    }
    write_order(symbols, expression->right, order);
    if (expression->left)
        put(order, ")");
}

static enum ls_status refuse_order(struct check *check, uint32_t rank, uint64_t begin, uint64_t end,
                                   uint32_t mine, uint32_t first)
{
    const struct ls_range range = ls_data_range(begin, end - begin);
    struct order_text here = {.used = 0}, there = {.used = 0};
    char elements[128];
    write_order(check->symbols, mine, &here);
    write_order(check->symbols, first, &there);
    const bool halves = check->verifier->verified->halves;
    return ls_verifier_refuse(
        check->verifier, halves ? LS_VERDICT_ROUNDING : LS_VERDICT_ORDER, rank, UINT32_MAX, &range,
        "%s %s %s than at rank 0: %s here, %s there%s",
        ls_elements_text(&range, elements, sizeof(elements)), range.count == 1 ? "is" : "are",
        halves ? "rounded or added in another order" : "added in another order", here.text,
        there.text, halves ? " (~: rounded)" : "");
}

// Equal neighbours are joined and expressions hash-consed: so equal results are equal lists.
static enum ls_status compare_ranks(struct check *check, bool deterministic)
{
    const struct ls_intervals *first = ls_symbols_data(check->symbols, 0);
    check->verifier->out->same_order = true;
    for (uint32_t rank = 1; rank < check->symbols->world; rank++) {
        const struct ls_intervals *data = ls_symbols_data(check->symbols, rank);
        uint32_t i = 0, j = 0;
        while (i < first->count && j < data->count &&
               first->list[i].symbol == data->list[j].symbol) {
            const uint64_t one = ls_interval_end(first, i), other = ls_interval_end(data, j);
            i += one <= other;
            j += other <= one;
        }
        if (i == first->count && j == data->count)
            continue;
        check->verifier->out->same_order = false;
        if (!deterministic)
            return LS_OK;
        const uint64_t begin =
            first->list[i].begin > data->list[j].begin ? first->list[i].begin : data->list[j].begin;
        const uint64_t one = ls_interval_end(first, i), other = ls_interval_end(data, j);
        return refuse_order(check, rank, begin, one < other ? one : other, data->list[j].symbol,
                            first->list[i].symbol);
    }
    return LS_OK;
}

// What several ranks have is rounded in the end.
static enum ls_status round_results(struct ls_verifier *verifier)
{
    const struct ls_verify_case *verified = verifier->verified;
    const struct ls_range all = ls_data_range(0, verified->count);
    enum ls_status status = LS_OK;
    if (verified->operation != LS_ALL_REDUCE || !all.count)
        return LS_OK;
    for (uint32_t rank = 0; !status && rank < verified->world; rank++)
        status = ls_symbols_round(verifier->symbols, verifier, rank, verifier->rounds[rank], &all);
    return status;
}

enum ls_status ls_verifier_check_result(struct ls_verifier *verifier, bool deterministic)
{
    const uint32_t world = verifier->verified->world;
    const size_t symbols = (size_t)world + 1 + verifier->symbols->expression_count;
    struct check check = {
        .verifier = verifier,
        .symbols = verifier->symbols,
        .complete = calloc(symbols, 1),
        .seen = calloc(world, sizeof(*check.seen)),
        .stack = malloc(((size_t)world + 2) * sizeof(*check.stack)),
    };
    enum ls_status status = LS_OUT_OF_MEMORY;
    if (check.complete && check.seen && check.stack) {
        status = LS_OK;
        for (uint32_t rank = 0; !status && rank < world; rank++)
            status = check_rank(&check, rank);
        verifier->out->same_order = true;
        if (!status && verifier->verified->halves)
            status = round_results(verifier);
        if (!status && verifier->verified->operation == LS_ALL_REDUCE)
            status = compare_ranks(&check, deterministic);
    }
    free(check.complete);
    free(check.seen);
    free(check.stack);
    return status;
}
