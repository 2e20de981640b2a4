// SPDX-License-Identifier: Apache-2.0
#include "tools/simulate/surroundings.h"

#include "tools/simulate/fabric.h"
#include "core/schedule/schedule.h"

#include <stdlib.h>

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

static enum ls_status torus_order(const struct ls_network *given, uint32_t world, uint32_t **out)
{
    struct ls_network network = *given;
    uint64_t ranks = 1;
    if (!network.sides[0])
        ls_fabric_choose_sides(&network, world);
    for (uint32_t d = 0; d < network.dimensions; d++)
        ranks *= network.sides[d];
    if (ranks != world) // refused elsewhere; a smaller world may be verified all the same
        return LS_OK;
    *out = malloc(world * sizeof(**out));
    for (uint32_t i = 0; *out && i < world; i++)
        (*out)[i] = torus_rank(&network, i);
    return *out ? LS_OK : LS_OUT_OF_MEMORY;
}

static enum ls_status list_cards(const struct ls_network *network, uint32_t world, uint32_t **out)
{
    *out = malloc(world * sizeof(**out));
    for (uint32_t i = 0; *out && i < world; i++)
        (*out)[i] = ls_network_card(network, i);
    return *out ? LS_OK : LS_OUT_OF_MEMORY;
}

enum ls_status ls_surroundings_init(const struct ls_network *network, uint32_t world,
                                    struct ls_surroundings *out)
{
    *out = (struct ls_surroundings){0};
    enum ls_status status = LS_OK;
    if (network->topology == LS_TOPOLOGY_TORUS)
        status = torus_order(network, world, &out->order);
    else if (network->ranks_per_node > 1) {
        status = ls_uniform_hosts(world, network->ranks_per_node, &out->hosts);
        if (!status)
            status = list_cards(network, world, &out->cards);
    }
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
