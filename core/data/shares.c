// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a stream: shares, sizes, and the order of examples in an epoch.
#include "core/data/stream.h"

#include "core/base/log.h"
#include "core/base/random.h"

static void cut_evenly(uint64_t count, uint32_t ranks, uint32_t blocks, uint32_t rank,
                       uint64_t *offset, uint64_t *size)
{
    const uint64_t all = (uint64_t)ranks * blocks, first = (uint64_t)rank * blocks;
    const uint64_t base = count / all, larger = count % all, end = first + blocks;
    *offset = first * base + (first < larger ? first : larger);
    *size = end * base + (end < larger ? end : larger) - *offset;
}

// The row of shards that a rank has.
static void row_of(const struct ls_shares *shares, uint32_t rank, uint64_t *first, uint64_t *count)
{
    cut_evenly(shares->shards, shares->world, 1, rank, first, count);
}

uint32_t ls_most_shards(const struct ls_shares *shares)
{
    uint64_t first, count;
    row_of(shares, 0, &first, &count);
    return (uint32_t)count;
}

// The part of group `index`: its quota rounded down, and one example more where its remainder is
// among the largest. The remainders add up to the examples that are left, times all weights.
static uint64_t part_of(const struct ls_shares *shares, uint64_t count, uint32_t index)
{
    const struct ls_share_group *groups = shares->groups;
    uint64_t weights = 0, remainders = 0, ahead = 0;
    for (uint32_t i = 0; i < shares->group_count; i++)
        weights += groups[i].weight;
    const uint64_t rest = count % weights; // products with it are small
    const uint64_t scaled = rest * groups[index].weight, own = scaled % weights;
    for (uint32_t i = 0; i < shares->group_count; i++) {
        const uint64_t remainder = rest * groups[i].weight % weights;
        remainders += remainder;
        ahead += remainder > own || (remainder == own && i < index);
    }
    return count / weights * groups[index].weight + scaled / weights +
           (ahead < remainders / weights);
}

void ls_share(const struct ls_shares *shares, uint64_t count, uint32_t blocks, uint32_t rank,
              uint64_t *offset, uint64_t *size)
{
    uint64_t first = 0, part = count;
    uint32_t ranks = shares->world;
    if (shares->shards) {
        uint64_t row, length, end, last;
        row_of(shares, rank, &row, &length);
        cut_evenly(count, shares->shards, 1, (uint32_t)row, offset, size);
        cut_evenly(count, shares->shards, 1, (uint32_t)(row + length) - 1, &end, &last);
        *size = end + last - *offset;
        return;
    }
    if (shares->blocks_first && blocks > 1) { // which have two sizes
        const uint64_t larger = count % blocks;
        uint64_t of_larger = 0, of_others;
        ls_share(shares, count / blocks, 1, rank, offset, &of_others);
        if (larger)
            ls_share(shares, count / blocks + 1, 1, rank, offset, &of_larger);
        *size = larger * of_larger + (blocks - larger) * of_others;
        return;
    }
    for (uint32_t i = 0; i < shares->group_count; i++) {
        part = part_of(shares, count, i);
        ranks = shares->groups[i].ranks;
        if (rank < ranks)
            break;
        rank -= ranks;
        first += part;
    }
    cut_evenly(part, ranks, blocks, rank, offset, size);
    *offset += first;
}

bool ls_shares_are_even(const struct ls_shares *shares, uint64_t count)
{
    return !shares->group_count && !shares->shards && count % shares->world == 0;
}

void ls_share_block(const struct ls_shares *shares, uint64_t count, uint32_t blocks, uint32_t rank,
                    uint32_t index, uint64_t *offset, uint64_t *size)
{
    uint64_t first, whole;
    if (shares->shards) {
        row_of(shares, rank, &first, &whole);
        const bool none = index >= whole;
        cut_evenly(count, shares->shards, 1, (uint32_t)(first + (none ? whole - 1 : index)), offset,
                   size);
        *offset += none ? *size : 0;
        *size = none ? 0 : *size;
        return;
    }
    if (shares->blocks_first) {
        cut_evenly(count, blocks, 1, index, &first, &whole);
        ls_share(shares, whole, 1, rank, offset, size);
    } else {
        ls_share(shares, count, blocks, rank, &first, &whole);
        cut_evenly(whole, blocks, 1, index, offset, size);
    }
    *offset += first;
}

uint64_t ls_largest_share(const struct ls_shares *shares, uint64_t count, uint32_t blocks)
{
    uint64_t offset, size, largest = 0;
    uint32_t rank = 0;
    if (!shares->group_count) // of equal ranks the first has the largest
        ls_share(shares, count, blocks, 0, &offset, &largest);
    for (uint32_t i = 0; i < shares->group_count; i++) {
        ls_share(shares, count, blocks, rank, &offset, &size);
        largest = size > largest ? size : largest;
        rank += shares->groups[i].ranks;
    }
    return largest;
}

uint64_t ls_largest_block(const struct ls_shares *shares, uint64_t count, uint32_t blocks)
{
    uint64_t offset, first;
    if (shares->shards)
        blocks = shares->shards;
    else if (!shares->blocks_first)
        count = ls_largest_share(shares, count, blocks);
    cut_evenly(count, blocks, 1, 0, &offset, &first);
    return shares->blocks_first ? ls_largest_share(shares, first, 1) : first;
}

uint64_t ls_stream_steps(uint64_t count, uint64_t global_batch)
{
    return count / global_batch + (count % global_batch != 0);
}

static void identity(uint32_t *order, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        order[i] = (uint32_t)i;
}

// What comes out of a buffer that is filled in order and from which a random element is taken, the next one filling
// its place (tf.data.Dataset.shuffle). order[i .. i + buffer) is what the buffer holds before draw i, so taking an
// element is an exchange with order[i], and the buffer needs no memory of its own.
static void shuffle_through_buffer(uint64_t key, uint64_t buffer, uint32_t *order, uint64_t count)
{
    identity(order, count);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t held = count - i < buffer ? count - i : buffer;
        const uint64_t taken = i + ((ls_random_u64(key, i) >> 32) * held >> 32);
        const uint32_t kept = order[i];
        order[i] = order[taken];
        order[taken] = kept;
    }
}

enum ls_status ls_stream_order(const struct ls_stream_options *options, uint64_t count,
                               uint64_t epoch, uint32_t *order)
{
    const uint64_t key = ls_random_key(ls_random_key_text(options->seed, "shuffle"), epoch);
    switch (options->shuffle) {
    case LS_SHUFFLE_OFF: identity(order, count); return LS_OK;
    case LS_SHUFFLE_ALL: ls_random_permutation(key, order, count); return LS_OK;
    case LS_SHUFFLE_BUFFER:
        if (!options->shuffle_buffer)
            break;
        shuffle_through_buffer(key, options->shuffle_buffer, order, count);
        return LS_OK;
    }
    ls_error("data", "a shuffle buffer must hold at least 1 example");
    return LS_USAGE;
}
