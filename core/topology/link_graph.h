// SPDX-License-Identifier: Apache-2.0
// A network given link by link: ranks and switches are vertices, and every pair of ranks has one
// way. [any thread]
#ifndef LS_TOPOLOGY_LINK_GRAPH_H
#define LS_TOPOLOGY_LINK_GRAPH_H

#include "core/base/status.h"

#include <stdint.h>

#define LS_GRAPH_RANKS_MOST 4096
#define LS_GRAPH_VERTICES_MOST 16384

// One direction of a link.
struct ls_graph_link {
    uint32_t from, to; // vertices: ranks, then switches
    double latency; // seconds
    double bandwidth; // bytes a second
};

// A way that the file gives.
struct ls_graph_route {
    uint32_t from, to; // ranks
    uint32_t first, count; // of `route_links`
};

// Who creates it fills in ranks, vertices, links and routes; all memory is the graph's, for free().
struct ls_link_graph {
    uint32_t ranks, vertices;
    struct ls_graph_link *links;
    uint32_t link_count;
    struct ls_graph_route *routes;
    uint32_t route_count;
    uint32_t *route_links;
    // What ls_link_graph_find_ways finds:
    uint32_t *last_link; // of the way from rank r to vertex v: at r * vertices + v
    uint32_t longest; // links of the longest way between two ranks
    double least_latency; // seconds, of all ways
};

// Finds the way from every rank to every other: that of `routes`, else one of fewest links. Ways
// spread from the sender, and at each vertex that they reach go on over its links in their order;
// the first to reach a vertex counts. LS_BAD_INPUT: there is no way between the two ranks in
// `apart`.
LS_STATUS ls_link_graph_find_ways(struct ls_link_graph *graph, uint32_t apart[2]);
void ls_link_graph_destroy(struct ls_link_graph *graph); // takes NULL

// The link from one vertex to another; UINT32_MAX: there is none.
uint32_t ls_link_graph_link_between(const struct ls_link_graph *graph, uint32_t from, uint32_t to);

// Writes the links from one rank to another into `links` (`longest` of them, or NULL), returns
// their number; `latency` gets the sum of theirs.
uint32_t ls_link_graph_route(const struct ls_link_graph *graph, uint32_t from, uint32_t to,
                             uint32_t *links, double *latency);

#endif
