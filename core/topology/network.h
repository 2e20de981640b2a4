// SPDX-License-Identifier: Apache-2.0
// What a network is made of, as a JSON file gives it (docs/simulate.md has the form): how ranks are connected, and
// what a message costs. [any thread]
#ifndef LS_TOPOLOGY_NETWORK_H
#define LS_TOPOLOGY_NETWORK_H

#include "core/base/status.h"
#include "core/topology/link_graph.h"

#include <stdbool.h>
#include <stdint.h>

#define LS_NETWORK_NAME 64
#define LS_SWITCH_LAYERS 4
#define LS_TORUS_DIMENSIONS 3
#define LS_SPEED_POINTS 32
#define LS_PROTOCOLS 4

enum ls_topology {
    LS_TOPOLOGY_FLAT, // every rank has a port of a switch that never blocks
    LS_TOPOLOGY_NODES, // nodes with fast links inside, and network cards to such a switch
    LS_TOPOLOGY_FAT_TREE, // the same, over layers of switches
    LS_TOPOLOGY_TORUS, // links to the neighbours in two or three dimensions
    LS_TOPOLOGY_GRAPH, // given link by link
};

// Of one link, each way.
struct ls_link_speed {
    double latency; // seconds
    double bandwidth; // bytes a second, of what is sent: the file's times its efficiency
};

// How fast a message moves that has a link for itself, by the size of what the collective works on: between threads it
// is the memory that is fast or slow, between GPUs the pieces that a protocol cuts it into.
struct ls_speed_point {
    double bytes; // as `protocols_by_whole` says
    double bandwidth; // bytes a second on `link`, at most the link's; on others in proportion
};

// How messages are sent while a collective works on fewer than `below` bytes. Libraries change it
// with the size: one that waits for no acknowledgement but wastes bandwidth for small buffers,
// another for large ones. On m bytes with a bandwidth B for itself, a message takes latency of its
// way + `latency` + m / (B e(s)), where s are the bytes of the buffer for each rank (a ring's
// message) and 1 / e goes in a line over log s between the points. (NCCL's own model,
// src/graph/tuning.cc, has the same terms.)
struct ls_protocol {
    double below; // bytes; INFINITY: the last one
    double latency; // seconds
    struct ls_speed_point points[LS_SPEED_POINTS]; // by growing size
    uint32_t point_count; // 0: every message moves as fast as the link
};

// One layer of switches of a fat tree, from the nodes upwards. Above the last one nothing blocks.
struct ls_switch_layer {
    uint32_t below; // nodes, or switches of the layer below, under one switch
    double oversubscription; // what comes from below divided by what goes up
    double
        latency; // seconds, added to a message that goes over this layer, there and back together
};

struct ls_network {
    char name[LS_NETWORK_NAME];
    uint32_t topology; // enum ls_topology
    double
        overhead; // seconds that a message keeps its sender and its receiver busy before it travels
    double reduction; // seconds for each byte that a rank reduces
    double copy; // likewise, that it copies from one place of its own to another
    struct ls_link_speed link; // a port (flat), a network card (nodes, fat tree), one hop (torus)
    double launch; // seconds from the call of a collective until its first step
    struct ls_protocol protocols[LS_PROTOCOLS]; // by growing size
    uint32_t protocol_count; // 0: messages cost what their links say, whatever the size
    bool
        protocols_by_whole; // sizes in them are those of the whole buffer, else of its share for each rank
    bool
        reduces_in_place; // of a flat network: a rank reduces while it receives, so its port is busy for both
    struct ls_link_speed inside; // between the ranks of a node
    uint32_t ranks_per_node; // 1 where there are no nodes
    uint32_t cards_per_node;
    struct ls_switch_layer layers[LS_SWITCH_LAYERS];
    uint32_t layer_count;
    uint32_t dimensions; // of a torus
    uint32_t sides[LS_TORUS_DIMENSIONS]; // 0: as even as the world allows
    struct ls_link_graph *graph; // of a graph; else NULL
    uint32_t
        *order; // all ranks, so that neighbours in this list are near each other; NULL: not given
    uint32_t order_count;
};

// LS_BAD_INPUT, logged with path and line: no such file, malformed JSON, a key that is unknown or missing, a value
// that cannot be.
LS_STATUS ls_network_read(const char *path, struct ls_network *out);
void ls_network_finish(struct ls_network *network); // takes a zeroed one

// Sets the sides of a torus, as even as the world allows, largest first.
void ls_network_choose_sides(struct ls_network *network, uint32_t world);

// The same where the file gives none. LS_BAD_INPUT, logged: it is for another world, by its sides,
// its graph (which may have more ranks) or its order.
LS_STATUS ls_network_fit(struct ls_network *network, uint32_t world);

// The card that a rank uses, counted over all nodes.
uint32_t ls_network_card(const struct ls_network *network, uint32_t rank);

// The protocol while `ranks` ranks work on a buffer of so many bytes; NULL: the network has none.
const struct ls_protocol *ls_network_protocol(const struct ls_network *network, double bytes,
                                              uint32_t ranks);

// How many times as long the bytes of messages take then as the link's bandwidth says: at least 1.
double ls_network_slowness(const struct ls_network *network, double bytes, uint32_t ranks);

#endif
