// SPDX-License-Identifier: Apache-2.0
// Ways through a network that is given link by link.
#include "core/topology/link_graph.h"

#include <math.h>
#include <stdlib.h>

#define NONE UINT32_MAX

// Links by the vertex that they leave, in the order of the file.
struct leaving {
    uint32_t *first; // by vertex, and one more
    uint32_t *links;
};

static enum ls_status list_leaving(const struct ls_link_graph *graph, struct leaving *out)
{
    out->first = calloc((size_t)graph->vertices + 2, sizeof(*out->first));
    out->links = malloc(graph->link_count * sizeof(*out->links) + 1);
    if (!out->first || !out->links)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < graph->link_count; i++)
        out->first[graph->links[i].from + 2]++;
    for (uint32_t v = 0; v < graph->vertices; v++)
        out->first[v + 1] += out->first[v];
    // first[v + 1] moves from where v begins to where it ends.
    for (uint32_t i = 0; i < graph->link_count; i++)
        out->links[out->first[graph->links[i].from + 1]++] = i;
    return LS_OK;
}

// Breadth first from one rank.
static void spread(const struct ls_link_graph *graph, const struct leaving *leaving, uint32_t from,
                   uint32_t *line, uint32_t *last_link)
{
    uint32_t begin = 0, end = 1;
    for (uint32_t v = 0; v < graph->vertices; v++)
        last_link[v] = NONE;
    line[0] = from;
    while (begin < end) {
        const uint32_t at = line[begin++];
        for (uint32_t i = leaving->first[at]; i < leaving->first[at + 1]; i++) {
            const uint32_t to = graph->links[leaving->links[i]].to;
            if (to == from || last_link[to] != NONE)
                continue;
            last_link[to] = leaving->links[i];
            line[end++] = to;
        }
    }
}

static int compare_routes(const void *left, const void *right)
{
    const struct ls_graph_route *a = left, *b = right;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    return a->to < b->to ? -1 : a->to > b->to;
}

uint32_t ls_link_graph_route(const struct ls_link_graph *graph, uint32_t from, uint32_t to,
                             uint32_t *links, double *latency)
{
    const struct ls_graph_route key = {.from = from, .to = to};
    const struct ls_graph_route *given = graph->route_count
                                             ? bsearch(&key, graph->routes, graph->route_count,
                                                       sizeof(*graph->routes), compare_routes)
                                             : NULL;
    const uint32_t *last_link = graph->last_link + (size_t)from * graph->vertices;
    uint32_t count = 0;
    *latency = 0;
    if (given) {
        for (; count < given->count; count++) {
            const uint32_t link = graph->route_links[given->first + count];
            *latency += graph->links[link].latency;
            if (links)
                links[count] = link;
        }
        return count;
    }
    for (uint32_t at = to; at != from; at = graph->links[last_link[at]].from) {
        *latency += graph->links[last_link[at]].latency;
        count++;
    }
    uint32_t place = count;
    for (uint32_t at = to; links && at != from; at = graph->links[last_link[at]].from)
        links[--place] = last_link[at];
    return count;
}

// Every rank to every other. LS_BAD_INPUT: two are apart.
static enum ls_status spread_all(struct ls_link_graph *graph, const struct leaving *leaving,
                                 uint32_t *line, uint32_t apart[2])
{
    for (uint32_t from = 0; from < graph->ranks; from++) {
        uint32_t *last_link = graph->last_link + (size_t)from * graph->vertices;
        spread(graph, leaving, from, line, last_link);
        for (uint32_t to = 0; to < graph->ranks; to++) {
            apart[0] = from, apart[1] = to;
            if (to != from && last_link[to] == NONE)
                return LS_BAD_INPUT;
        }
    }
    return LS_OK;
}

static void measure_ways(struct ls_link_graph *graph)
{
    graph->longest = 1;
    graph->least_latency = INFINITY;
    for (uint32_t from = 0; from < graph->ranks; from++)
        for (uint32_t to = 0; to < graph->ranks; to++) {
            double latency;
            if (from == to)
                continue;
            const uint32_t count = ls_link_graph_route(graph, from, to, NULL, &latency);
            graph->longest = count > graph->longest ? count : graph->longest;
            graph->least_latency = fmin(graph->least_latency, latency);
        }
}

enum ls_status ls_link_graph_find_ways(struct ls_link_graph *graph, uint32_t apart[2])
{
    struct leaving leaving = {0};
    enum ls_status status = list_leaving(graph, &leaving);
    uint32_t *line = malloc(graph->vertices * sizeof(*line));
    graph->last_link = malloc((size_t)graph->ranks * graph->vertices * sizeof(*graph->last_link));
    if (!line || !graph->last_link)
        status = LS_OUT_OF_MEMORY;
    if (!status)
        status = spread_all(graph, &leaving, line, apart);
    if (!status && graph->route_count)
        qsort(graph->routes, graph->route_count, sizeof(*graph->routes), compare_routes);
    if (!status)
        measure_ways(graph);
    free(leaving.first);
    free(leaving.links);
    free(line);
    return status;
}

void ls_link_graph_destroy(struct ls_link_graph *graph)
{
    if (!graph)
        return;
    free(graph->links);
    free(graph->routes);
    free(graph->route_links);
    free(graph->last_link);
    free(graph);
}

uint32_t ls_link_graph_link_between(const struct ls_link_graph *graph, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < graph->link_count; i++)
        if (graph->links[i].from == from && graph->links[i].to == to)
            return i;
    return NONE;
}
