// SPDX-License-Identifier: Apache-2.0
// Links are numbered: first what leaves each rank and what enters it, then the cards of nodes (out, in), then what
// goes up from and down to the switches of each layer. A torus has two links a rank and dimension instead.
#include "tools/simulate/fabric.h"

#include "core/base/log.h"
#include "core/plugin/collective.h"
#include "tools/simulate/flow.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

// ---- Links ----

static uint32_t rounded_up(uint32_t a, uint32_t b)
{
    return a / b + (a % b != 0);
}

static void number_links(struct ls_fabric *fabric)
{
    const struct ls_network *network = &fabric->network;
    uint32_t next = 2 * fabric->world;
    if (network->graph) {
        fabric->link_count = network->graph->link_count;
        fabric->longest = network->graph->longest;
        return;
    }
    fabric->longest = 2;
    if (network->topology == LS_TOPOLOGY_TORUS) {
        next = 2 * network->dimensions * fabric->world;
        fabric->longest = 1;
        for (uint32_t i = 0; i < network->dimensions; i++)
            fabric->longest += network->sides[i] / 2;
    }
    fabric->nodes = rounded_up(fabric->world, network->ranks_per_node);
    fabric->first_card = next;
    if (network->topology == LS_TOPOLOGY_NODES || network->topology == LS_TOPOLOGY_FAT_TREE)
        next += 2 * fabric->nodes * network->cards_per_node;
    uint32_t units = fabric->nodes;
    for (uint32_t i = 0; i < network->layer_count; i++) {
        units = rounded_up(units, network->layers[i].below);
        fabric->units[i] = units;
        fabric->first_up[i] = next;
        next += 2 * units;
        fabric->longest += 2;
    }
    fabric->link_count = next;
}

// What goes up from one switch of a layer.
static double up_bandwidth(const struct ls_network *network, uint32_t layer)
{
    double bandwidth = network->link.bandwidth * network->cards_per_node;
    for (uint32_t i = 0; i <= layer; i++)
        bandwidth *= network->layers[i].below / network->layers[i].oversubscription;
    return bandwidth;
}

static void set_bandwidths(struct ls_fabric *fabric)
{
    const struct ls_network *network = &fabric->network;
    if (network->graph) {
        for (uint32_t i = 0; i < fabric->link_count; i++)
            fabric->bandwidth[i] = network->graph->links[i].bandwidth;
        return;
    }
    const bool has_cards =
        network->topology == LS_TOPOLOGY_NODES || network->topology == LS_TOPOLOGY_FAT_TREE;
    for (uint32_t i = 0; i < fabric->first_card; i++)
        fabric->bandwidth[i] = has_cards ? network->inside.bandwidth : network->link.bandwidth;
    for (uint32_t i = fabric->first_card; i < fabric->link_count; i++)
        fabric->bandwidth[i] = network->link.bandwidth;
    for (uint32_t layer = 0; layer < network->layer_count; layer++)
        for (uint32_t i = 0; i < 2 * fabric->units[layer]; i++)
            fabric->bandwidth[fabric->first_up[layer] + i] = up_bandwidth(network, layer);
}

enum ls_status ls_fabric_create(const struct ls_network *network, uint32_t world,
                                struct ls_fabric *out)
{
    struct ls_fabric fabric = {.network = *network, .world = world};
    const enum ls_status status = ls_network_fit(&fabric.network, world);
    if (status)
        return status;
    number_links(&fabric);
    fabric.bandwidth = malloc(fabric.link_count * sizeof(*fabric.bandwidth));
    if (!fabric.bandwidth)
        return LS_OUT_OF_MEMORY;
    set_bandwidths(&fabric);
    *out = fabric;
    return LS_OK;
}

void ls_fabric_finish(struct ls_fabric *fabric)
{
    free(fabric->bandwidth);
    *fabric = (struct ls_fabric){0};
}

// ---- Ways ----

// Dimension by dimension, the first one of which neighbours have neighbouring numbers; the shorter way around,
// upwards where both are as long.
static uint32_t torus_route(const struct ls_fabric *fabric, uint32_t from, uint32_t to,
                            uint32_t *links, double *latency)
{
    const struct ls_network *network = &fabric->network;
    uint32_t count = 0, stride = 1, at = from;
    for (uint32_t d = 0; d < network->dimensions; d++) {
        const uint32_t side = network->sides[d];
        uint32_t here = from / stride % side;
        const uint32_t there = to / stride % side;
        const uint32_t upwards = (there + side - here) % side;
        const bool up = 2 * (uint64_t)upwards <= side;
        for (uint32_t hops = up ? upwards : side - upwards; hops; hops--) {
            links[count++] = 2 * (at * network->dimensions + d) + !up;
            const uint32_t next = up ? (here + 1) % side : (here + side - 1) % side;
            at = at - here * stride + next * stride;
            here = next;
        }
        stride *= side;
    }
    *latency = count * network->link.latency;
    return count;
}

static uint32_t card_of(const struct ls_fabric *fabric, uint32_t rank)
{
    return fabric->first_card + 2 * ls_network_card(&fabric->network, rank);
}

// Out of the card, up to the layer where the two sides meet, down again, and in.
static uint32_t tree_route(const struct ls_fabric *fabric, uint32_t from, uint32_t to,
                           uint32_t *links, double *latency)
{
    const struct ls_network *network = &fabric->network;
    uint32_t up[LS_SWITCH_LAYERS], down[LS_SWITCH_LAYERS], height = 0, count = 0;
    uint32_t a = from / network->ranks_per_node, b = to / network->ranks_per_node;
    *latency = network->link.latency;
    for (uint32_t layer = 0; layer < network->layer_count; layer++) {
        a /= network->layers[layer].below;
        b /= network->layers[layer].below;
        if (a == b)
            break;
        up[height] = fabric->first_up[layer] + 2 * a;
        down[height++] = fabric->first_up[layer] + 2 * b + 1;
        *latency += network->layers[layer].latency;
    }
    links[count++] = card_of(fabric, from);
    for (uint32_t i = 0; i < height; i++)
        links[count++] = up[i];
    for (uint32_t i = height; i > 0; i--)
        links[count++] = down[i - 1];
    links[count++] = card_of(fabric, to) + 1;
    return count;
}

uint32_t ls_fabric_route(const struct ls_fabric *fabric, uint32_t from, uint32_t to,
                         uint32_t *links, double *latency)
{
    const struct ls_network *network = &fabric->network;
    if (network->topology == LS_TOPOLOGY_TORUS)
        return torus_route(fabric, from, to, links, latency);
    if (network->graph)
        return ls_link_graph_route(network->graph, from, to, links, latency);
    const bool flat = network->topology == LS_TOPOLOGY_FLAT;
    if (!flat && from / network->ranks_per_node != to / network->ranks_per_node)
        return tree_route(fabric, from, to, links, latency);
    links[0] = 2 * from;
    links[1] = 2 * to + 1;
    *latency = flat ? network->link.latency : network->inside.latency;
    return 2;
}

const char *ls_fabric_link_text(const struct ls_fabric *fabric, uint32_t link, char *text,
                                size_t bytes)
{
    const struct ls_network *network = &fabric->network;
    if (network->topology == LS_TOPOLOGY_TORUS) {
        const uint32_t place = link / 2;
        snprintf(text, bytes, "%c%c link of rank %u", link % 2 ? '-' : '+',
                 "xyz"[place % network->dimensions], place / network->dimensions);
        return text;
    }
    if (network->graph) {
        const struct ls_graph_link *found = &network->graph->links[link];
        snprintf(text, bytes, "link from %u to %u", found->from, found->to);
        return text;
    }
    if (link < fabric->first_card) {
        snprintf(text, bytes, "%s port of rank %u", link % 2 ? "receive" : "send", link / 2);
        return text;
    }
    for (uint32_t layer = network->layer_count; layer > 0; layer--)
        if (link >= fabric->first_up[layer - 1]) {
            link -= fabric->first_up[layer - 1];
            snprintf(text, bytes, "%s switch %u of layer %u", link % 2 ? "down to" : "up from",
                     link / 2, layer);
            return text;
        }
    link -= fabric->first_card;
    snprintf(text, bytes, "card %u of node %u, %s", link / 2 % network->cards_per_node,
             link / 2 / network->cards_per_node, link % 2 ? "in" : "out");
    return text;
}

// ---- The least time ----

// `groups` groups of ranks, each with so much bandwidth out of it (and as much into it).
struct cut {
    double groups;
    double bandwidth;
    double latency;
    double size; // ranks of the largest group
};

// Bytes that leave (or enter) at least one of the groups: that of which most must.
static double cut_bytes(const struct cut *cut, uint32_t operation, double world, double bytes)
{
    const double groups = cut->groups;
    switch (operation) {
    case LS_ALL_REDUCE: return 2 * bytes * (groups - 1) / groups;
    case LS_REDUCE_SCATTER:
    case LS_ALL_GATHER: return bytes * (groups - 1) / groups;
    case LS_ALL_TO_ALL: return bytes * cut->size * (world - cut->size) / world;
    default: return bytes; // broadcast, reduce
    }
}

static double cut_time(const struct ls_fabric *fabric, const struct cut *cut, uint32_t operation,
                       double bytes)
{
    if (cut->groups < 2)
        return 0;
    return fabric->network.overhead + cut->latency +
           cut_bytes(cut, operation, fabric->world, bytes) / cut->bandwidth;
}

static double torus_bound(const struct ls_fabric *fabric, uint32_t operation, double bytes)
{
    const struct ls_network *network = &fabric->network;
    struct cut rank = {fabric->world, 0, network->link.latency, 1};
    double bound = 0;
    for (uint32_t d = 0; d < network->dimensions; d++) {
        const double ways = network->sides[d] > 2 ? 2 : 1;
        if (network->sides[d] < 2)
            continue;
        rank.bandwidth += ways * network->link.bandwidth;
        const double across = (double)fabric->world / network->sides[d] * ways;
        const double half_size =
            (double)(network->sides[d] / 2) * fabric->world / network->sides[d];
        const struct cut half = {2, across * network->link.bandwidth, network->link.latency,
                                 half_size};
        bound = fmax(bound, cut_time(fabric, &half, operation, bytes));
    }
    bound = fmax(bound, cut_time(fabric, &rank, operation, bytes));
    return fmax(bound, network->overhead + (fabric->longest - 1) * network->link.latency);
}

static double tree_bound(const struct ls_fabric *fabric, uint32_t operation, double bytes)
{
    const struct ls_network *network = &fabric->network;
    double farthest = network->link.latency;
    struct cut rank = {fabric->world, network->link.bandwidth, network->link.latency, 1};
    if (network->ranks_per_node > 1) {
        rank.bandwidth = network->inside.bandwidth;
        rank.latency = fmin(network->inside.latency, network->link.latency);
        if (fabric->nodes > 1)
            rank.bandwidth += network->link.bandwidth;
        else
            farthest = network->inside.latency;
    }
    double size = network->ranks_per_node;
    const struct cut node = {fabric->nodes, network->link.bandwidth * network->cards_per_node,
                             network->link.latency, size};
    double bound =
        fmax(cut_time(fabric, &rank, operation, bytes), cut_time(fabric, &node, operation, bytes));
    for (uint32_t layer = 0; layer < network->layer_count; layer++) {
        if (fabric->units[layer] < 2)
            break;
        farthest += network->layers[layer].latency;
        size *= network->layers[layer].below;
        const struct cut layer_cut = {fabric->units[layer], up_bandwidth(network, layer),
                                      network->link.latency, size};
        bound = fmax(bound, cut_time(fabric, &layer_cut, operation, bytes));
    }
    return fmax(bound, network->overhead + farthest);
}

static enum ls_status graph_bound(const struct ls_fabric *fabric, uint32_t operation, uint32_t root,
                                  double bytes, double *out)
{
    const struct ls_link_graph *graph = fabric->network.graph;
    const enum ls_status status = ls_flow_bound(graph, fabric->world, operation, root, bytes, out);
    if (!status)
        *out += fabric->network.overhead + graph->least_latency;
    return status;
}

enum ls_status ls_fabric_bound(const struct ls_fabric *fabric, uint32_t operation, uint32_t root,
                               double bytes, double *out)
{
    const struct ls_network *network = &fabric->network;
    double messages = 0;
    if (fabric->world < 2 || bytes <= 0) {
        *out = 0;
        return LS_OK;
    }
    if (network->graph) {
        const enum ls_status status = graph_bound(fabric, operation, root, bytes, &messages);
        if (status)
            return status;
    } else {
        messages = network->topology == LS_TOPOLOGY_TORUS ? torus_bound(fabric, operation, bytes)
                                                          : tree_bound(fabric, operation, bytes);
    }
    const struct ls_protocol *protocol = ls_network_protocol(network, bytes, fabric->world);
    const double additions = bytes * (fabric->world - 1) / fabric->world;
    const double bound = messages + (protocol ? protocol->latency : 0);
    *out = network->launch +
           fmax(bound, ls_operation_reduces(operation) ? additions * network->reduction : 0);
    return LS_OK;
}
