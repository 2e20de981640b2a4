// SPDX-License-Identifier: Apache-2.0
#include "core/topology/surroundings.h"

#include "core/schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

// The rank at a place of a way through a torus on which each step is one hop: forwards along a row,
// back along the next. Where the longest dimension but the first ends after an even number of rows,
// so is the step from its end to its begin.
static uint32_t torus_rank(const struct ls_network *network, uint32_t place)
{
    uint32_t sizes[LS_TORUS_DIMENSIONS + 1] = {1}, rank = 0;
    for (uint32_t d = 0; d < network->dimensions; d++)
        sizes[d + 1] = sizes[d] * network->sides[d];
    for (uint32_t d = network->dimensions; d > 0; d--) {
        const uint32_t digit = place / sizes[d - 1] % network->sides[d - 1];
        const bool backwards = place / sizes[d] % 2;
        rank += (backwards ? network->sides[d - 1] - 1 - digit : digit) * sizes[d - 1];
    }
    return rank;
}

static bool fits_torus(const struct ls_network *network, uint32_t world)
{
    uint64_t ranks = 1;
    for (uint32_t d = 0; d < network->dimensions; d++)
        ranks *= network->sides[d];
    return ranks == world;
}

// A world that does not fit is refused elsewhere; a smaller one may be verified all the same.
static enum ls_status list_order(const struct ls_network *network, uint32_t world, uint32_t **out)
{
    const bool given = network->order_count == world;
    if (!given && (network->topology != LS_TOPOLOGY_TORUS || !fits_torus(network, world)))
        return LS_OK;
    *out = malloc(world * sizeof(**out));
    for (uint32_t i = 0; *out && i < world; i++)
        (*out)[i] = given ? network->order[i] : torus_rank(network, i);
    return *out ? LS_OK : LS_OUT_OF_MEMORY;
}

static enum ls_status list_cards(const struct ls_network *network, uint32_t world, uint32_t **out)
{
    *out = malloc(world * sizeof(**out));
    for (uint32_t i = 0; *out && i < world; i++)
        (*out)[i] = ls_network_card(network, i);
    return *out ? LS_OK : LS_OUT_OF_MEMORY;
}

enum ls_status ls_surroundings_init(const struct ls_network *given, uint32_t world,
                                    struct ls_surroundings *out)
{
    struct ls_network network = *given;
    *out = (struct ls_surroundings){0};
    if (network.topology == LS_TOPOLOGY_TORUS && !network.sides[0])
        ls_network_choose_sides(&network, world);
    enum ls_status status = list_order(&network, world, &out->order);
    if (!status && network.ranks_per_node > 1)
        status = ls_uniform_hosts(world, network.ranks_per_node, &out->hosts);
    if (!status && network.ranks_per_node > 1)
        status = list_cards(&network, world, &out->cards);
    if (status)
        ls_surroundings_finish(out);
    return status;
}

static enum ls_status copy(const uint32_t *from, uint32_t world, uint32_t **out)
{
    if (!from)
        return LS_OK;
    *out = malloc(world * sizeof(**out));
    if (*out)
        memcpy(*out, from, world * sizeof(**out));
    return *out ? LS_OK : LS_OUT_OF_MEMORY;
}

enum ls_status ls_surroundings_copy(const struct ls_surroundings *from, uint32_t world,
                                    struct ls_surroundings *out)
{
    *out = (struct ls_surroundings){0};
    enum ls_status status = from ? copy(from->hosts, world, &out->hosts) : LS_OK;
    if (!status && from)
        status = copy(from->cards, world, &out->cards);
    if (!status && from)
        status = copy(from->order, world, &out->order);
    if (status)
        ls_surroundings_finish(out);
    return status;
}

void ls_surroundings_finish(struct ls_surroundings *surroundings)
{
    free(surroundings->hosts);
    free(surroundings->cards);
    free(surroundings->order);
    *surroundings = (struct ls_surroundings){0};
}
