// SPDX-License-Identifier: Apache-2.0
// What Linux shows of this machine: its NUMA nodes and network cards. [any thread]
#ifndef LS_TOPOLOGY_MACHINE_H
#define LS_TOPOLOGY_MACHINE_H

#include <stdint.h>

#define LS_MACHINE_CARDS 64 // more than any has
#define LS_NODE_UNKNOWN (-1)

// Where a rank is, and the cards of its machine: what every rank tells the others. No padding.
struct ls_machine_place {
    int16_t node; // NUMA node; LS_NODE_UNKNOWN
    uint16_t card_count;
    int16_t card_nodes[LS_MACHINE_CARDS]; // that each card is attached to, or LS_NODE_UNKNOWN
};

// Number `place` of `ranks` ranks that share this machine is taken to compute on as much of the
// cores that this process may use: the node is that of the first of them. Where a launcher has
// bound each process to a node, all of its cores are there.
//
// Cards are those of InfiniBand and RoCE (/sys/class/infiniband), or else the network interfaces
// with a device that are up (/sys/class/net), in the order of their names. `root` is in front of
// every path; "" but for tests. What is not there is unknown, and no error.
void ls_machine_look(const char *root, uint32_t place, uint32_t ranks,
                     struct ls_machine_place *out);

#endif
