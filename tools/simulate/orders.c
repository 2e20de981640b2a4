// SPDX-License-Identifier: Apache-2.0
// Finds rings in a schedule: the orders of ranks in which data goes around. They are read from the
// messages, whatever the collective meant.
#include "tools/simulate/outline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MOST 4096
#define RINGS_MOST 64
#define RANK_LETTERS 6 // "4095, "

// The peer of a rank's n-th send, if the rank sends it as many messages as there are in a ring;
// else the rank itself.
static uint32_t peer_of(const struct ls_outline *outline, uint32_t rank, uint32_t n)
{
    const struct ls_rank_outline *here = &outline->ranks[rank];
    const struct ls_step_graph *shape = here->shape;
    for (uint32_t i = 0; i < shape->step_count; i++) {
        const uint32_t kind = shape->steps[i].kind_peer & 7, peer = shape->steps[i].kind_peer >> 3;
        if (kind != LS_STEP_SEND || n-- > 0)
            continue;
        const uint32_t messages = shape->first_send[peer + 1] - shape->first_send[peer];
        return messages + 1 >= outline->world ? outline->pairs[here->first_pair + peer].peer : rank;
    }
    return rank;
}

// Follows the n-th send of each rank, from rank 0 on. True if that is a ring through all ranks.
static bool follow(const struct ls_outline *outline, uint32_t n, uint32_t *ring)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < outline->world; i++) {
        ring[i] = at;
        at = peer_of(outline, at, n);
        if (at == 0)
            return i + 1 == outline->world;
    }
    return false;
}

static bool is_known(const uint32_t *rings, uint32_t count, uint32_t world)
{
    for (uint32_t i = 0; i < count; i++)
        if (memcmp(rings + i * (size_t)world, rings + count * (size_t)world,
                   world * sizeof(*rings)) == 0)
            return true;
    return false;
}

static char *text_of(const uint32_t *rings, uint32_t count, uint32_t world)
{
    const size_t numbers = (size_t)count * world;
    char *text = malloc(numbers * RANK_LETTERS + 1);
    size_t length = 0;
    for (size_t i = 0; text && i < numbers; i++)
        length += (size_t)snprintf(text + length, RANK_LETTERS + 1, "%s%u",
                                   i == 0      ? ""
                                   : i % world ? " "
                                               : ", ",
                                   rings[i] % RANKS_MOST);
    return text;
}

char *ls_outline_rings(const struct ls_outline *outline)
{
    const uint32_t world = outline->world;
    uint32_t *rings = world > 1 && world <= RANKS_MOST
                          ? malloc((RINGS_MOST + 1) * (size_t)world * sizeof(*rings))
                          : NULL;
    uint32_t count = 0;
    for (uint32_t n = 0; rings && n < RINGS_MOST; n++) {
        if (!follow(outline, n, rings + count * (size_t)world))
            break;
        count += !is_known(rings, count, world);
    }
    char *text = count ? text_of(rings, count, world) : NULL;
    free(rings);
    return text;
}
