// SPDX-License-Identifier: Apache-2.0
// Maximum flows by Dinic's algorithm: level by level from the source, ways of fewest arcs are
// filled until none is left. The source stands behind all vertices, so that it can feed every rank
// (all-gather) or one.
#include "tools/simulate/flow.h"

#include "core/plugin/collective.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#define NONE UINT32_MAX
#define SPARE 1e-12 // of the smallest bandwidth: less is nothing, what rounding leaves above all

// An arc and, beside it (number ^ 1), the same backwards, which takes back what was sent.
struct arc {
    uint32_t to, next; // the next arc of the vertex that this one leaves
    double capacity, left;
};

struct flow_graph {
    const struct ls_link_graph *graph;
    uint32_t world, source, vertices;
    struct arc *arcs;
    uint32_t arc_count, feeds; // arcs from here on leave the source, one for each rank
    uint32_t *first, *at, *level, *line;
    double nothing;
};

static void add_arc(struct flow_graph *flow, uint32_t from, uint32_t to, double capacity)
{
    flow->arcs[flow->arc_count] = (struct arc){to, flow->first[from], capacity, 0};
    flow->first[from] = flow->arc_count++;
    flow->arcs[flow->arc_count] = (struct arc){from, flow->first[to], 0, 0};
    flow->first[to] = flow->arc_count++;
}

static void flow_graph_finish(struct flow_graph *flow)
{
    free(flow->arcs);
    free(flow->first);
    free(flow->at);
    free(flow->level);
    free(flow->line);
}

static enum ls_status flow_graph_init(struct flow_graph *flow, const struct ls_link_graph *graph,
                                      uint32_t world, bool turned)
{
    const uint32_t vertices = graph->vertices + 1;
    *flow = (struct flow_graph){
        .graph = graph,
        .world = world,
        .source = graph->vertices,
        .vertices = vertices,
        .arcs = malloc(2 * ((size_t)graph->link_count + world) * sizeof(struct arc)),
        .first = malloc(vertices * sizeof(uint32_t)),
        .at = malloc(vertices * sizeof(uint32_t)),
        .level = malloc(vertices * sizeof(uint32_t)),
        .line = malloc(vertices * sizeof(uint32_t)),
    };
    if (!flow->arcs || !flow->first || !flow->at || !flow->level || !flow->line)
        return LS_OUT_OF_MEMORY;
    flow->nothing = INFINITY;
    for (uint32_t v = 0; v < vertices; v++)
        flow->first[v] = NONE;
    for (uint32_t i = 0; i < graph->link_count; i++) {
        const struct ls_graph_link *link = &graph->links[i];
        add_arc(flow, turned ? link->to : link->from, turned ? link->from : link->to,
                link->bandwidth);
        flow->nothing = fmin(flow->nothing, SPARE * link->bandwidth);
    }
    flow->feeds = flow->arc_count;
    for (uint32_t rank = 0; rank < world; rank++)
        add_arc(flow, flow->source, rank, 0);
    return LS_OK;
}

// Fewest arcs from the source; whether the sink is reached.
static bool find_levels(struct flow_graph *flow, uint32_t sink)
{
    uint32_t begin = 0, end = 1;
    for (uint32_t v = 0; v < flow->vertices; v++)
        flow->level[v] = NONE;
    flow->level[flow->source] = 0;
    flow->line[0] = flow->source;
    while (begin < end) {
        const uint32_t v = flow->line[begin++];
        for (uint32_t i = flow->first[v]; i != NONE; i = flow->arcs[i].next) {
            const uint32_t to = flow->arcs[i].to;
            if (flow->arcs[i].left <= flow->nothing || flow->level[to] != NONE)
                continue;
            flow->level[to] = flow->level[v] + 1;
            flow->line[end++] = to;
        }
    }
    return flow->level[sink] != NONE;
}

// Fills one way from the source to the sink; returns what it carries, 0 where there is none. `line`
// holds its arcs.
static double fill_way(struct flow_graph *flow, uint32_t sink)
{
    uint32_t depth = 0;
    for (uint32_t v = flow->source; v != sink;) {
        const uint32_t i = flow->at[v];
        if (i == NONE) { // a dead end: the arc that led here is passed by
            if (depth == 0)
                return 0;
            v = flow->arcs[flow->line[--depth] ^ 1].to;
            flow->at[v] = flow->arcs[flow->at[v]].next;
        } else if (flow->arcs[i].left > flow->nothing &&
                   flow->level[flow->arcs[i].to] == flow->level[v] + 1) {
            flow->line[depth++] = i;
            v = flow->arcs[i].to;
        } else {
            flow->at[v] = flow->arcs[i].next;
        }
    }
    double carries = INFINITY;
    for (uint32_t i = 0; i < depth; i++)
        carries = fmin(carries, flow->arcs[flow->line[i]].left);
    for (uint32_t i = 0; i < depth; i++) {
        flow->arcs[flow->line[i]].left -= carries;
        flow->arcs[flow->line[i] ^ 1].left += carries;
    }
    return carries;
}

// Afterwards `level` tells the vertices on the source's side of a smallest cut from the others.
static double maximum_flow(struct flow_graph *flow, uint32_t sink)
{
    double sum = 0;
    for (uint32_t i = 0; i < flow->arc_count; i++)
        flow->arcs[i].left = flow->arcs[i].capacity;
    while (find_levels(flow, sink)) {
        for (uint32_t v = 0; v < flow->vertices; v++)
            flow->at[v] = flow->first[v];
        for (double more; (more = fill_way(flow, sink)) > 0;)
            sum += more;
    }
    return sum;
}

// The number of the `i`th of `count` flows among `most` ranks.
static uint32_t spread_over(uint32_t i, uint32_t count, uint32_t most)
{
    return (uint32_t)((uint64_t)i * most / count);
}

// Bandwidth of the links out of the side of the cut that was found, for each of its ranks.
static double cut_ratio(const struct flow_graph *flow)
{
    double leaves = 0;
    uint32_t ranks = 0;
    for (uint32_t rank = 0; rank < flow->world; rank++)
        ranks += flow->level[rank] != NONE;
    for (uint32_t i = 0; i < flow->feeds; i += 2)
        if (flow->level[flow->arcs[i ^ 1].to] != NONE && flow->level[flow->arcs[i].to] == NONE)
            leaves += flow->arcs[i].capacity;
    return leaves / ranks;
}

// At which rate every rank can send its block to all others at once. A cut that lets less through
// says what is possible; a rate that is possible for one rank stays so when it becomes less for
// another, so each is looked at once.
static double gather_rate(struct flow_graph *flow)
{
    const uint32_t world = flow->world, flows = world < LS_FLOWS_MOST ? world : LS_FLOWS_MOST;
    double rate = INFINITY;
    for (uint32_t rank = 0; rank < world; rank++) {
        double enters = 0;
        for (uint32_t i = 0; i < flow->feeds; i += 2)
            enters += flow->arcs[i].to == rank ? flow->arcs[i].capacity : 0;
        rate = fmin(rate, enters / (world - 1));
    }
    for (uint32_t i = 0; i < flows; i++)
        for (;;) {
            for (uint32_t rank = 0; rank < world; rank++)
                flow->arcs[flow->feeds + 2 * rank].capacity = rate;
            const double found = maximum_flow(flow, spread_over(i, flows, world));
            const double possible = found < world * rate * (1 - 1e-6) ? cut_ratio(flow) : rate;
            if (possible >= rate)
                break;
            rate = possible;
        }
    return rate;
}

// The smallest of the cuts from `root` to each other rank.
static double smallest_cut(struct flow_graph *flow, uint32_t root)
{
    const uint32_t world = flow->world, flows = world < LS_FLOWS_MOST ? world : LS_FLOWS_MOST;
    double smallest = 0;
    for (uint32_t i = 0; i < flow->feeds; i += 2)
        smallest += flow->arcs[i].capacity;
    for (uint32_t i = 0; i < flows; i++) {
        const uint32_t to = spread_over(i, flows, world);
        flow->arcs[flow->feeds + 2 * root].capacity = smallest; // more need not be known
        if (to != root)
            smallest = fmin(smallest, maximum_flow(flow, to));
    }
    return smallest;
}

// Of all ranks together, out of them or into them.
static double rank_bandwidth(const struct flow_graph *flow, bool out)
{
    double sum = 0;
    for (uint32_t i = 0; i < flow->feeds; i += 2)
        sum += flow->arcs[i ^ out].to < flow->world ? flow->arcs[i].capacity : 0;
    return sum;
}

enum ls_status ls_flow_bound(const struct ls_link_graph *graph, uint32_t world, uint32_t operation,
                             uint32_t root, double bytes, double *out)
{
    const bool one_way = operation == LS_ALL_GATHER || operation == LS_BROADCAST;
    const bool turned = operation == LS_REDUCE_SCATTER || operation == LS_REDUCE;
    struct flow_graph flow, back = {0};
    enum ls_status status = flow_graph_init(&flow, graph, world, turned);
    if (!status && !one_way && !turned)
        status = flow_graph_init(&back, graph, world, true);
    if (status) {
        flow_graph_finish(&flow);
        flow_graph_finish(&back);
        return status;
    }
    if (operation == LS_ALL_GATHER || operation == LS_REDUCE_SCATTER) {
        *out = bytes / world / gather_rate(&flow);
    } else if (one_way || turned) {
        *out = bytes / smallest_cut(&flow, root);
    } else {
        const double cut = fmin(smallest_cut(&flow, 0), smallest_cut(&back, 0));
        const double all = fmin(rank_bandwidth(&flow, false), rank_bandwidth(&flow, true));
        *out = operation == LS_ALL_REDUCE ? fmax(bytes / cut, 2 * (world - 1.0) * bytes / all)
                                          : bytes * (world - 1.0) / world / cut;
    }
    flow_graph_finish(&flow);
    flow_graph_finish(&back);
    return LS_OK;
}
