// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a stream: shares, sizes, and the order of examples in an epoch.
#include "core/data/stream.h"

#include "core/base/log.h"
#include "core/base/random.h"

void ls_share_blocks(uint64_t count, uint32_t world, uint32_t blocks, uint32_t rank,
                     uint64_t *offset, uint64_t *size)
{
    const uint64_t all = (uint64_t)world * blocks, first = (uint64_t)rank * blocks;
    const uint64_t base = count / all, larger = count % all, end = first + blocks;
    *offset = first * base + (first < larger ? first : larger);
    *size = end * base + (end < larger ? end : larger) - *offset;
}

void ls_share(uint64_t count, uint32_t world, uint32_t rank, uint64_t *offset, uint64_t *size)
{
    ls_share_blocks(count, world, 1, rank, offset, size);
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
