// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a stream: shares, sizes, and the order of examples in an epoch.
#include "core/data/stream.h"

#include "core/base/log.h"
#include "core/base/random.h"

void ls_share(uint64_t count, uint32_t world, uint32_t rank, uint64_t *offset, uint64_t *size)
{
    const uint64_t base = count / world, larger = count % world;
    *size = base + (rank < larger);
    *offset = rank * base + (rank < larger ? rank : larger);
}

uint64_t ls_stream_steps(uint64_t count, uint64_t global_batch)
{
    return count / global_batch + (count % global_batch != 0);
}

uint32_t ls_share_sizes(uint64_t count, uint64_t global_batch, uint32_t world, uint32_t rank,
                        uint64_t out[2])
{
    const uint64_t batches[2] = {global_batch, count % global_batch};
    const bool present[2] = {count >= global_batch, count % global_batch != 0};
    uint32_t found = 0;
    for (int i = 0; i < 2; i++) {
        uint64_t offset, size;
        ls_share(batches[i], world, rank, &offset, &size);
        if (present[i] && (!found || out[0] != size))
            out[found++] = size;
    }
    return found;
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
