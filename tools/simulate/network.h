// SPDX-License-Identifier: Apache-2.0
// What a network is made of, as a JSON file gives it (docs/simulate.md has the form): how ranks are connected, and
// what a message costs. [any thread]
#ifndef LS_TOOLS_SIMULATE_NETWORK_H
#define LS_TOOLS_SIMULATE_NETWORK_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define LS_NETWORK_NAME 64
#define LS_SWITCH_LAYERS 4
#define LS_TORUS_DIMENSIONS 3
#define LS_SPEED_POINTS 32

enum ls_topology {
    LS_TOPOLOGY_FLAT, // every rank has a port of a switch that never blocks
    LS_TOPOLOGY_NODES, // nodes with fast links inside, and network cards to such a switch
    LS_TOPOLOGY_FAT_TREE, // the same, over layers of switches
    LS_TOPOLOGY_TORUS, // links to the neighbours in two or three dimensions
};

// Of one link, each way.
struct ls_link_speed {
    double latency; // seconds
    double bandwidth; // bytes a second
};

// How fast a message moves that has a link for itself, by the size of what the collective works on: between threads it
// is the memory that is fast or slow.
struct ls_speed_point {
    double bytes; // of the whole buffer
    double bandwidth; // bytes a second, at most the link's
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
    double reduction; // seconds for each byte that a rank reduces or copies
    struct ls_link_speed link; // a port (flat), a network card (nodes, fat tree), one hop (torus)
    struct ls_speed_point points[LS_SPEED_POINTS]; // of a flat network, by growing size
    uint32_t point_count; // 0: every message moves as fast as the link
    bool
        reduces_in_place; // of a flat network: a rank reduces while it receives, so its port is busy for both
    struct ls_link_speed inside; // between the ranks of a node
    uint32_t ranks_per_node; // 1 where there are no nodes
    uint32_t cards_per_node;
    struct ls_switch_layer layers[LS_SWITCH_LAYERS];
    uint32_t layer_count;
    uint32_t dimensions; // of a torus
    uint32_t sides[LS_TORUS_DIMENSIONS]; // 0: as even as the world allows
};

// LS_BAD_INPUT, logged with path and line: no such file, malformed JSON, a key that is unknown or missing, a value
// that cannot be.
LS_STATUS ls_network_read(const char *path, struct ls_network *out);

// How many times as long messages take as the link's bandwidth says, while a collective works on so many bytes: at
// least 1.
double ls_network_slowness(const struct ls_network *network, double bytes);

#endif
