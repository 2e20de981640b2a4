// SPDX-License-Identifier: Apache-2.0
// A network for a certain world: its links, the way between any two ranks, and the least time that an operation
// needs on it. [any thread]
#ifndef LS_TOOLS_SIMULATE_FABRIC_H
#define LS_TOOLS_SIMULATE_FABRIC_H

#include "core/topology/network.h"

#include <stddef.h>

struct ls_fabric {
    struct ls_network network; // sides of a torus filled in; its graph is borrowed
    uint32_t world;
    uint32_t nodes; // the last one may be smaller
    uint32_t units[LS_SWITCH_LAYERS]; // switches of each layer
    uint32_t first_card, first_up[LS_SWITCH_LAYERS]; // numbers of links
    uint32_t link_count;
    uint32_t longest; // links of the longest way
    double *bandwidth; // of each link, bytes a second
};

// LS_BAD_INPUT, logged, as ls_network_fit.
LS_STATUS ls_fabric_create(const struct ls_network *network, uint32_t world, struct ls_fabric *out);
void ls_fabric_finish(struct ls_fabric *fabric); // takes a zeroed one

// Writes the links from one rank to another into `links` (`longest` of them), returns their number; `latency` gets
// the seconds that a message travels.
uint32_t ls_fabric_route(const struct ls_fabric *fabric, uint32_t from, uint32_t to,
                         uint32_t *links, double *latency);

// "send port of rank 3", "+x link of rank 5". Returns `text`.
const char *ls_fabric_link_text(const struct ls_fabric *fabric, uint32_t link, char *text,
                                size_t bytes);

// No schedule can be faster: what must leave a rank, a node, the ranks under a switch, half of a torus, over the
// bandwidth there; the latency of the longest way; the additions, shared evenly. Before that comes
// the launch, and one message at least has the latency of the protocol. On a graph the bytes take
// what flow.h says, and the latency is the least of all ways.
LS_STATUS ls_fabric_bound(const struct ls_fabric *fabric, uint32_t operation, uint32_t root,
                          double bytes, double *out);

#endif
