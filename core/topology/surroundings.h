// SPDX-License-Identifier: Apache-2.0
// What a collective is told of the network around its ranks (struct ls_collective_call). [any
// thread]
#ifndef LS_TOPOLOGY_SURROUNDINGS_H
#define LS_TOPOLOGY_SURROUNDINGS_H

#include "core/topology/network.h"

// A number for each rank; NULL: unknown, or in the order of ranks.
struct ls_surroundings {
    uint32_t *hosts; // where there are nodes of several ranks
    uint32_t *cards; // likewise
    uint32_t *order; // from neighbour to neighbour: as the file says, or around a torus
};

LS_STATUS ls_surroundings_init(const struct ls_network *network, uint32_t world,
                               struct ls_surroundings *out);
// NULL: nothing is known.
LS_STATUS ls_surroundings_copy(const struct ls_surroundings *from, uint32_t world,
                               struct ls_surroundings *out);
void ls_surroundings_finish(struct ls_surroundings *surroundings); // takes a zeroed one

#endif
