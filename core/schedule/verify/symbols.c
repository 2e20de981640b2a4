// SPDX-License-Identifier: Apache-2.0
// Moves symbols between buffers, cutting intervals where a step begins or ends and joining equal
// neighbours.
#include "core/schedule/verify/symbols.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BUFFERS 2
#define SMALLEST_TABLE 256

// A described step takes so much work, in intervals that are read, written or moved, before it
// counts as too much.
#define WORK_A_STEP UINT64_C(512)

// ---- Intervals ----

uint32_t ls_intervals_find(const struct ls_intervals *intervals, uint64_t offset)
{
    uint32_t low = 0, high = intervals->count; // the one looked for is in [low, high)
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (intervals->list[middle].begin <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static enum ls_status reserve(struct ls_intervals *intervals, uint32_t count)
{
    if (count <= intervals->capacity)
        return LS_OK;
    const uint32_t capacity = count + count / 2 + 4;
    struct ls_interval *list = realloc(intervals->list, (size_t)capacity * sizeof(*list));
    if (!list)
        return LS_OUT_OF_MEMORY;
    intervals->list = list;
    intervals->capacity = capacity;
    return LS_OK;
}

// Appends, where there is room, unless the last one goes on.
static void append(struct ls_intervals *intervals, uint64_t begin, uint64_t shift, uint32_t symbol)
{
    if (intervals->count) {
        const struct ls_interval *last = &intervals->list[intervals->count - 1];
        if (last->symbol == symbol && last->shift == shift)
            return;
    }
    intervals->list[intervals->count++] = (struct ls_interval){begin, shift, symbol};
}

// Copies elements `offset` to `offset + count - 1`, as they will stand at `place`.
static enum ls_status read_intervals(const struct ls_intervals *from, uint64_t offset,
                                     uint64_t count, uint64_t place, struct ls_intervals *out)
{
    const uint32_t first = ls_intervals_find(from, offset);
    uint32_t end = first + 1;
    while (end < from->count && from->list[end].begin < offset + count)
        end++;
    const enum ls_status status = reserve(out, end - first);
    if (status)
        return status;
    out->count = 0;
    out->length = place + count;
    for (uint32_t i = first; i < end; i++) {
        const struct ls_interval *interval = &from->list[i];
        const uint64_t begin = interval->begin > offset ? interval->begin - offset : 0;
        append(out, place + begin, interval->shift + offset - place, interval->symbol);
    }
    return LS_OK;
}

static enum ls_status too_much_work(struct ls_verifier *verifier, uint32_t rank, uint32_t round)
{
    return ls_verifier_refuse(verifier, LS_VERDICT_LIMIT, rank, round, NULL,
                              "the schedule cuts the buffers so finely that more than %" PRIu64
                              " pieces would have to be moved; it takes too long to verify",
                              WORK_A_STEP * ls_verifier_most_steps(verifier));
}

static enum ls_status too_large(struct ls_verifier *verifier, uint32_t rank, uint32_t round)
{
    return ls_verifier_refuse(verifier, LS_VERDICT_LIMIT, rank, round, NULL,
                              "the schedule cuts the buffers, or adds, in more than %" PRIu64
                              " different ways; it is too large to verify",
                              LS_VERIFY_STEPS);
}

static enum ls_status check_limits(const struct ls_symbols *symbols, struct ls_verifier *verifier,
                                   uint32_t rank, uint32_t round)
{
    if (symbols->interval_count + symbols->expression_count > LS_VERIFY_STEPS)
        return too_large(verifier, rank, round);
    if (symbols->work > WORK_A_STEP * ls_verifier_most_steps(verifier))
        return too_much_work(verifier, rank, round);
    return LS_OK;
}

// Replaces the intervals of elements `offset` to `in->length - 1` by those of `in`.
static enum ls_status write_intervals(struct ls_symbols *symbols, struct ls_intervals *to,
                                      uint64_t offset, const struct ls_intervals *in)
{
    struct ls_intervals *written = &symbols->written;
    const uint64_t end = in->length;
    uint32_t first = ls_intervals_find(to, offset);
    uint32_t last = ls_intervals_find(to, end - 1);
    enum ls_status status = reserve(written, in->count + 4);
    if (status)
        return status;
    // The neighbours are written anew, too, so that equal ones join.
    const struct ls_interval tail = to->list[last];
    const bool has_tail = ls_interval_end(to, last) > end;
    if (first > 0 && to->list[first].begin == offset)
        first--;
    written->count = 0;
    if (to->list[first].begin < offset)
        append(written, to->list[first].begin, to->list[first].shift, to->list[first].symbol);
    for (uint32_t i = 0; i < in->count; i++)
        append(written, in->list[i].begin, in->list[i].shift, in->list[i].symbol);
    if (has_tail) {
        append(written, end, tail.shift, tail.symbol);
    } else if (last + 1 < to->count) {
        last++;
        append(written, to->list[last].begin, to->list[last].shift, to->list[last].symbol);
    }

    const uint32_t rest = to->count - (last + 1), count = first + written->count + rest;
    const uint32_t capacity = to->capacity;
    status = reserve(to, count);
    if (status)
        return status;
    symbols->interval_count += to->capacity - capacity;
    symbols->work += in->count + rest;
    memmove(&to->list[first + written->count], &to->list[last + 1], rest * sizeof(*to->list));
    memcpy(&to->list[first], written->list, written->count * sizeof(*to->list));
    to->count = count;
    return LS_OK;
}

// ---- Expressions ----

static uint32_t slot_of(const struct ls_symbols *symbols, uint32_t left, uint32_t right)
{
    const uint64_t key = ((uint64_t)left << 32 | right) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(key >> 32) & (symbols->table_size - 1);
}

static void enter(struct ls_symbols *symbols, uint32_t index)
{
    const struct ls_expression *expression = &symbols->expressions[index];
    uint32_t slot = slot_of(symbols, expression->left, expression->right);
    while (symbols->table[slot])
        slot = (slot + 1) & (symbols->table_size - 1);
    symbols->table[slot] = index + 1;
}

// Room for one more expression.
static enum ls_status grow_expressions(struct ls_symbols *symbols)
{
    if (symbols->expression_count < symbols->expression_capacity)
        return LS_OK;
    const uint32_t capacity = 2 * symbols->expression_capacity + SMALLEST_TABLE / 2;
    uint32_t size = SMALLEST_TABLE;
    while (size < 2 * capacity)
        size *= 2;
    struct ls_expression *expressions =
        realloc(symbols->expressions, (size_t)capacity * sizeof(*expressions));
    if (!expressions)
        return LS_OUT_OF_MEMORY;
    symbols->expressions = expressions;
    uint32_t *table = calloc(size, sizeof(*table));
    if (!table)
        return LS_OUT_OF_MEMORY;
    free(symbols->table);
    symbols->table = table;
    symbols->table_size = size;
    symbols->expression_capacity = capacity;
    for (uint32_t i = 0; i < symbols->expression_count; i++)
        if (!symbols->expressions[i].mixed)
            enter(symbols, i);
    return LS_OK;
}

static enum ls_status combine(struct ls_symbols *symbols, struct ls_expression made, uint32_t *out)
{
    if (made.left > made.right) {
        const uint32_t left = made.left;
        made.left = made.right;
        made.right = left;
    }
    const enum ls_status status = grow_expressions(symbols);
    if (status)
        return status;
    uint32_t slot = slot_of(symbols, made.left, made.right);
    for (; !made.mixed && symbols->table[slot]; slot = (slot + 1) & (symbols->table_size - 1)) {
        const uint32_t index = symbols->table[slot] - 1;
        const struct ls_expression *there = &symbols->expressions[index];
        if (there->left == made.left && there->right == made.right) {
            *out = symbols->world + 1 + index;
            return LS_OK;
        }
    }
    symbols->expressions[symbols->expression_count] = made;
    if (!made.mixed)
        symbols->table[slot] = symbols->expression_count + 1;
    *out = symbols->world + 1 + symbols->expression_count++;
    return LS_OK;
}

// `joined` becomes what stands at `offset` (+) `read`, which begins there.
static enum ls_status join(struct ls_symbols *symbols, const struct ls_intervals *to,
                           uint64_t offset, uint32_t rank, uint32_t round)
{
    const struct ls_intervals *read = &symbols->read;
    struct ls_intervals *joined = &symbols->joined;
    uint32_t mine = ls_intervals_find(to, offset), theirs = 0, end = mine;
    while (end < to->count && to->list[end].begin < read->length)
        end++;
    enum ls_status status = reserve(joined, read->count + end - mine);
    joined->count = 0;
    joined->length = read->length;
    for (uint64_t at = offset; !status && at < read->length;) {
        const struct ls_interval *a = &to->list[mine], *b = &read->list[theirs];
        const bool mixed = a->shift != b->shift;
        uint32_t symbol;
        status = combine(symbols, (struct ls_expression){a->symbol, b->symbol, rank, round, mixed},
                         &symbol);
        if (status)
            break;
        append(joined, at, a->shift, symbol);
        const uint64_t my_end = ls_interval_end(to, mine),
                       their_end = ls_interval_end(read, theirs);
        at = my_end < their_end ? my_end : their_end;
        mine += at == my_end;
        theirs += at == their_end;
    }
    return status;
}

// ---- Steps ----

static enum ls_status check_defined(const struct ls_intervals *read, struct ls_verifier *verifier,
                                    uint32_t rank, uint32_t round, const struct ls_range *range,
                                    uint64_t place)
{
    for (uint32_t i = 0; i < read->count; i++) {
        if (read->list[i].symbol)
            continue;
        const uint64_t begin = read->list[i].begin;
        const struct ls_range undefined = {range->buffer, 0, begin - place + range->offset,
                                           ls_interval_end(read, i) - begin};
        char text[128];
        return ls_verifier_refuse(verifier, LS_VERDICT_UNDEFINED, rank, round, &undefined,
                                  "reads %s, which nobody has written",
                                  ls_elements_text(&undefined, text, sizeof(text)));
    }
    return LS_OK;
}

enum ls_status ls_symbols_move(struct ls_symbols *symbols, struct ls_verifier *verifier,
                               uint32_t rank, const struct ls_verified_step *step,
                               uint32_t from_rank, const struct ls_range *from)
{
    const struct ls_intervals *source = &symbols->buffers[BUFFERS * from_rank + from->buffer];
    struct ls_intervals *to = &symbols->buffers[BUFFERS * rank + step->buffer];
    const struct ls_range range = ls_step_range(step);
    const uint32_t from_round =
        from_rank == rank ? step->round : verifier->steps[step->partner].round;
    struct ls_intervals *in = &symbols->read;
    enum ls_status status = read_intervals(source, from->offset, from->count, step->offset, in);
    if (!status)
        status = check_defined(in, verifier, from_rank, from_round, from, step->offset);
    if (!status && ls_step_reduces(step)) {
        status = read_intervals(to, step->offset, step->count, step->offset, &symbols->joined);
        if (!status)
            status =
                check_defined(&symbols->joined, verifier, rank, step->round, &range, step->offset);
        if (!status)
            status = join(symbols, to, step->offset, rank, step->round);
        in = &symbols->joined;
    }
    if (!status)
        status = write_intervals(symbols, to, step->offset, in);
    return status ? status : check_limits(symbols, verifier, rank, step->round);
}

enum ls_status ls_symbols_round(struct ls_symbols *symbols, struct ls_verifier *verifier,
                                uint32_t rank, uint32_t round, const struct ls_range *range)
{
    struct ls_intervals *buffer = &symbols->buffers[BUFFERS * rank + range->buffer];
    struct ls_intervals *read = &symbols->read, *rounded = &symbols->joined;
    enum ls_status status =
        read_intervals(buffer, range->offset, range->count, range->offset, read);
    if (!status)
        status = reserve(rounded, read->count);
    rounded->count = 0;
    rounded->length = read->length;
    for (uint32_t i = 0; !status && i < read->count; i++) {
        const struct ls_interval *interval = &read->list[i];
        const struct ls_expression *there = ls_symbols_expression(symbols, interval->symbol);
        uint32_t symbol = interval->symbol;
        if (symbol && !(there && there->left == 0))
            status =
                combine(symbols, (struct ls_expression){0, symbol, rank, round, false}, &symbol);
        if (!status)
            append(rounded, interval->begin, interval->shift, symbol);
    }
    if (!status)
        status = write_intervals(symbols, buffer, range->offset, rounded);
    return status ? status : check_limits(symbols, verifier, rank, round);
}

// ---- Beginning and end ----

enum ls_status ls_symbols_init(struct ls_symbols *symbols, const struct ls_verifier *verifier)
{
    const uint32_t world = verifier->verified->world;
    *symbols = (struct ls_symbols){.world = world};
    symbols->buffers = calloc((size_t)BUFFERS * world, sizeof(*symbols->buffers));
    if (!symbols->buffers)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < BUFFERS * world; i++) {
        struct ls_intervals *buffer = &symbols->buffers[i];
        const bool data = i % BUFFERS == LS_BUFFER_DATA;
        buffer->length = data ? verifier->verified->count : verifier->scratch[i / BUFFERS];
        if (!buffer->length)
            continue;
        if (reserve(buffer, 1))
            return LS_OUT_OF_MEMORY;
        append(buffer, 0, 0, data ? i / BUFFERS + 1 : 0);
    }
    return LS_OK;
}

void ls_symbols_finish(struct ls_symbols *symbols)
{
    if (!symbols->buffers)
        return;
    for (uint32_t i = 0; i < BUFFERS * symbols->world; i++)
        free(symbols->buffers[i].list);
    free(symbols->buffers);
    free(symbols->expressions);
    free(symbols->table);
    free(symbols->read.list);
    free(symbols->joined.list);
    free(symbols->written.list);
    *symbols = (struct ls_symbols){0};
}
