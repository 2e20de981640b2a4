// SPDX-License-Identifier: Apache-2.0
// What a collective is told of the network around its ranks (struct ls_collective_call). [any
// thread]
#ifndef LS_TOOLS_SIMULATE_SURROUNDINGS_H
#define LS_TOOLS_SIMULATE_SURROUNDINGS_H

#include "tools/simulate/network.h"

// `world` numbers each; NULL: unknown, or in the order of ranks.
struct ls_surroundings {
    uint32_t *hosts; // where there are nodes of several ranks
    uint32_t *cards; // likewise
    uint32_t *order; // of a torus: from neighbour to neighbour
};

LS_STATUS ls_surroundings_init(const struct ls_network *network, uint32_t world,
                               struct ls_surroundings *out);
void ls_surroundings_finish(struct ls_surroundings *surroundings); // takes a zeroed one

#endif
