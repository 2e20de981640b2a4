// SPDX-License-Identifier: Apache-2.0
// The network around the ranks of a run, as --topology= says it: what collectives are told of it.
// [main thread]
#ifndef LS_RUN_TOPOLOGY_H
#define LS_RUN_TOPOLOGY_H

#include "core/cluster/cluster.h"
#include "core/loader/loader.h"
#include "core/topology/surroundings.h"

#include <stdbool.h>
#include <stdio.h>

#define LS_TOPOLOGY_SYSTEM "sys" // what Linux shows of each machine
#define LS_TOPOLOGY_SAYS 96

struct ls_run_topology {
    char *text; // as the user wrote it; NULL: nothing is known
    bool system; // it is LS_TOPOLOGY_SYSTEM
    struct ls_network network; // else: of the file
    char says[LS_TOPOLOGY_SAYS]; // that workers must have alike: "sys", "mine (a1b2...)"
    uint32_t world; // ranks of what follows
    struct ls_surroundings around;
};

// Reads the file: a network of networks/ by name, or a path. NULL: nothing is known. LS_USAGE,
// LS_BAD_INPUT, logged.
LS_STATUS ls_run_topology_read(const char *text, struct ls_run_topology *out);

// LS_USAGE, logged: Linux shows where cores are, and `device` has memory of its own.
LS_STATUS ls_run_topology_check_device(const struct ls_run_topology *topology,
                                       const struct ls_opened_plugin *device);

// The ranks are known: finds what collectives are told. All workers call it. LS_BAD_INPUT, logged:
// the file is for another world, or has ranks of several hosts in one node.
LS_STATUS ls_run_topology_fit(struct ls_run_topology *topology, struct ls_cluster *cluster);

void ls_run_topology_finish(struct ls_run_topology *topology); // takes a zeroed one

// What a file says of `world` ranks, as ls_run_topology_fit. `hosts` has the number of each rank's
// host.
LS_STATUS ls_topology_of_file(struct ls_network *network, const uint32_t *hosts, uint32_t world,
                              struct ls_surroundings *out);

// From where every rank is: the card that is nearest to it, and the order host by host, node by
// node.
struct ls_machine_place;
LS_STATUS ls_topology_of_places(const struct ls_machine_place *places, const uint32_t *hosts,
                                uint32_t world, struct ls_surroundings *out);

// A line: "topology mine.json, hosts 0 0 1 1, cards 0 0 1 1, order 0 1 3 2"; nothing without one.
void ls_run_topology_print(const struct ls_run_topology *topology, FILE *out);

#endif
