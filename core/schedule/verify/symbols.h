// SPDX-License-Identifier: Apache-2.0
// The buffers of all ranks as symbols. A buffer is a list of intervals; each says which expression
// stands in it, and from where: element x holds the expression of element x + shift of what the
// ranks had. Expressions are hash-consed, so that equal ones have equal numbers; a (+) b and b (+)
// a are equal.
#ifndef LS_SCHEDULE_VERIFY_SYMBOLS_H
#define LS_SCHEDULE_VERIFY_SYMBOLS_H

#include "core/schedule/verify/internal.h"

// A symbol is 0: undefined; 1 .. world: what rank 0, 1, ... had; beyond: reductions.

struct ls_interval {
    uint64_t begin; // to the next one's, the last one to the end of the buffer
    uint64_t shift; // modulo 2^64
    uint32_t symbol;
};

struct ls_intervals {
    struct ls_interval *list;
    uint32_t count, capacity;
    uint64_t length; // of the buffer
};

struct ls_expression {
    uint32_t left, right; // left <= right; left 0: `right`, rounded
    uint32_t rank, round; // where it was first made
    bool mixed; // of elements of different places
};

struct ls_symbols {
    uint32_t world;
    struct ls_intervals *buffers; // rank 0: data, scratch; rank 1: ...
    uint64_t interval_count; // room for, in all buffers
    struct ls_expression *expressions; // the first is symbol world + 1
    uint32_t expression_count, expression_capacity;
    uint32_t *table; // expressions by their parts; 0: free, else 1 + index
    uint32_t table_size; // a power of two
    uint64_t work; // intervals that were read, written or moved, so far
    struct ls_intervals read, joined, written; // while one step is done
};

// All ranks as they begin.
LS_STATUS ls_symbols_init(struct ls_symbols *symbols, const struct ls_verifier *verifier);
void ls_symbols_finish(struct ls_symbols *symbols);

// Does what `step` of `rank` does with `count` elements that rank `from_rank` has in `from`.
LS_STATUS ls_symbols_move(struct ls_symbols *symbols, struct ls_verifier *verifier, uint32_t rank,
                          const struct ls_verified_step *step, uint32_t from_rank,
                          const struct ls_range *from);

// Rounds a range of a rank. What is rounded already, or undefined, stays as it is.
LS_STATUS ls_symbols_round(struct ls_symbols *symbols, struct ls_verifier *verifier, uint32_t rank,
                           uint32_t round, const struct ls_range *range);

static inline const struct ls_intervals *ls_symbols_data(const struct ls_symbols *symbols,
                                                         uint32_t rank)
{
    return &symbols->buffers[2 * (size_t)rank + LS_BUFFER_DATA];
}

// NULL for what a rank had.
static inline const struct ls_expression *ls_symbols_expression(const struct ls_symbols *symbols,
                                                                uint32_t symbol)
{
    return symbol > symbols->world ? &symbols->expressions[symbol - symbols->world - 1] : NULL;
}

// The interval that has element `offset`, by its index; the buffer is not empty.
uint32_t ls_intervals_find(const struct ls_intervals *intervals, uint64_t offset);
static inline uint64_t ls_interval_end(const struct ls_intervals *intervals, uint32_t index)
{
    return index + 1 < intervals->count ? intervals->list[index + 1].begin : intervals->length;
}

#endif
