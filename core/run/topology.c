// SPDX-License-Identifier: Apache-2.0
#include "core/run/topology.h"

#include "core/base/log.h"
#include "core/base/random.h"
#include "core/plugin/device.h"
#include "core/run/networks.h"
#include "core/topology/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCOPE "--topology"
#define ELSE_WHAT LS_TOPOLOGY_SYSTEM " for what Linux shows, or " LS_NETWORK_ELSE

// ---- A file ----

// The hosts that collectives are told of are the file's nodes, so none may be on two machines.
static enum ls_status check_nodes(const struct ls_network *network, const uint32_t *nodes,
                                  const uint32_t *hosts, uint32_t world)
{
    for (uint32_t i = 1; nodes && i < world; i++)
        if (nodes[i] == nodes[i - 1] && hosts[i] != hosts[i - 1]) {
            ls_error(SCOPE,
                     "%s: ranks %u and %u are in one node of %u, but on different hosts; give "
                     "nodes as many ranks as a host has",
                     network->name, i - 1, i, network->ranks_per_node);
            return LS_BAD_INPUT;
        }
    return LS_OK;
}

enum ls_status ls_topology_of_file(struct ls_network *network, const uint32_t *hosts,
                                   uint32_t world, struct ls_surroundings *out)
{
    enum ls_status status = ls_network_fit(network, world);
    if (status)
        return status;
    status = ls_surroundings_init(network, world, out);
    if (!status)
        status = check_nodes(network, out->hosts, hosts, world);
    if (status)
        ls_surroundings_finish(out);
    return status;
}

// ---- What Linux shows ----

// How many ranks of the host are on the same node, and how many of them come before this one.
static void count_on_node(const struct ls_machine_place *places, const uint32_t *hosts,
                          uint32_t world, uint32_t rank, uint32_t *before, uint32_t *all)
{
    *before = *all = 0;
    for (uint32_t i = 0; i < world; i++) {
        const bool here = hosts[i] == hosts[rank] && places[i].node == places[rank].node;
        *all += here;
        *before += here && i < rank;
    }
}

// The cards of the rank's node, or all of its host if none is there, go to the ranks of the node in
// turn.
static uint32_t card_on_host(const struct ls_machine_place *places, const uint32_t *hosts,
                             uint32_t world, uint32_t rank)
{
    const struct ls_machine_place *here = &places[rank];
    uint32_t before, all, near = 0, seen = 0;
    for (uint32_t i = 0; i < here->card_count; i++)
        near += here->node >= 0 && here->card_nodes[i] == here->node;
    const uint32_t count = near ? near : here->card_count;
    count_on_node(places, hosts, world, rank, &before, &all);
    const uint32_t wanted = (uint32_t)((uint64_t)before * count / all);
    for (uint32_t i = 0; i < here->card_count; i++)
        if ((!near || here->card_nodes[i] == here->node) && seen++ == wanted)
            return i;
    return 0;
}

static bool all_have_cards(const struct ls_machine_place *places, uint32_t world)
{
    for (uint32_t i = 0; i < world; i++)
        if (!places[i].card_count)
            return false;
    return true;
}

// Numbers count on from host to host. A host has the cards that its first rank has seen.
static enum ls_status find_cards(const struct ls_machine_place *places, const uint32_t *hosts,
                                 uint32_t world, uint32_t **out)
{
    uint32_t *first = calloc(world + 1, sizeof(*first)), next = 0;
    *out = calloc(world, sizeof(**out));
    for (uint32_t host = 0; first && host < world; host++) {
        uint32_t rank = 0;
        while (rank < world && hosts[rank] != host)
            rank++;
        first[host] = next;
        next += rank < world ? places[rank].card_count : 0;
    }
    for (uint32_t i = 0; first && *out && i < world; i++)
        (*out)[i] = first[hosts[i]] + card_on_host(places, hosts, world, i);
    const bool done = first && *out;
    free(first);
    return done ? LS_OK : LS_OUT_OF_MEMORY;
}

// Host by host in the order of their ranks, node by node; ranks of a node in their order.
static enum ls_status find_order(const struct ls_machine_place *places, const uint32_t *hosts,
                                 uint32_t world, uint32_t **out)
{
    uint32_t *order = malloc(world * sizeof(*order));
    bool same = true;
    if (!order)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < world; i++) {
        uint32_t at = i;
        for (; at > 0; at--) {
            const uint32_t before = order[at - 1];
            if (hosts[before] < hosts[i] ||
                (hosts[before] == hosts[i] && places[before].node <= places[i].node))
                break;
            order[at] = before;
        }
        order[at] = i;
    }
    for (uint32_t i = 0; i < world; i++)
        same = same && order[i] == i;
    if (same)
        free(order);
    else
        *out = order;
    return LS_OK;
}

enum ls_status ls_topology_of_places(const struct ls_machine_place *places, const uint32_t *hosts,
                                     uint32_t world, struct ls_surroundings *out)
{
    *out = (struct ls_surroundings){0};
    enum ls_status status = find_order(places, hosts, world, &out->order);
    if (!status && all_have_cards(places, world))
        status = find_cards(places, hosts, world, &out->cards);
    if (status)
        ls_surroundings_finish(out);
    return status;
}

static enum ls_status fit_system(struct ls_run_topology *topology, struct ls_cluster *cluster)
{
    const uint32_t *hosts = ls_cluster_hosts(cluster);
    const uint32_t world = ls_cluster_world(cluster), first = ls_cluster_first_rank(cluster);
    const uint32_t count = ls_cluster_count(cluster);
    struct ls_machine_place *own = calloc(count, sizeof(*own)), *all = calloc(world, sizeof(*all));
    uint32_t before = 0, ranks = 0;
    enum ls_status status = own && all ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < world; i++) {
        ranks += hosts[i] == hosts[first];
        before += hosts[i] == hosts[first] && i < first;
    }
    for (uint32_t i = 0; !status && i < count; i++)
        ls_machine_look("", before + i, ranks, &own[i]);
    if (!status)
        status = ls_cluster_gather(cluster, own, sizeof(*own), all);
    if (!status)
        status = ls_topology_of_places(all, hosts, world, &topology->around);
    free(own);
    free(all);
    return status;
}

// ---- Either ----

// Of all that collectives are told by it, whatever each worker calls the file.
static uint64_t key_of(const struct ls_network *network)
{
    uint64_t key = ls_random_key(network->topology, network->ranks_per_node);
    key = ls_random_key(key, network->cards_per_node);
    for (uint32_t i = 0; i < network->dimensions; i++)
        key = ls_random_key(key, network->sides[i]);
    for (uint32_t i = 0; i < network->order_count; i++)
        key = ls_random_key(key, network->order[i]);
    return key;
}

enum ls_status ls_run_topology_read(const char *text, struct ls_run_topology *out)
{
    struct ls_run_topology topology = {.text = text ? strdup(text) : NULL, .says = "(none)"};
    enum ls_status status = text && !topology.text ? LS_OUT_OF_MEMORY : LS_OK;
    topology.system = text && strcmp(text, LS_TOPOLOGY_SYSTEM) == 0;
    if (!status && topology.system)
        snprintf(topology.says, sizeof(topology.says), "%s", text);
    else if (!status && text &&
             !(status = ls_network_open(SCOPE, text, ELSE_WHAT, &topology.network)))
        snprintf(topology.says, sizeof(topology.says), "%s (%016llx)", topology.network.name,
                 (unsigned long long)key_of(&topology.network));
    if (status)
        ls_run_topology_finish(&topology);
    else
        *out = topology;
    return status;
}

enum ls_status ls_run_topology_check_device(const struct ls_run_topology *topology,
                                            const struct ls_opened_plugin *device)
{
    const struct ls_device_interface *ops = device->plugin->interface;
    if (!topology->system || ops->memory_kind == LS_MEMORY_HOST)
        return LS_OK;
    ls_error(SCOPE,
             "%s shows where cores are, not where device %s is attached; name a network file",
             topology->text, device->plugin->name);
    return LS_USAGE;
}

enum ls_status ls_run_topology_fit(struct ls_run_topology *topology, struct ls_cluster *cluster)
{
    topology->world = ls_cluster_world(cluster);
    if (!topology->text)
        return LS_OK;
    return topology->system ? fit_system(topology, cluster)
                            : ls_topology_of_file(&topology->network, ls_cluster_hosts(cluster),
                                                  topology->world, &topology->around);
}

void ls_run_topology_finish(struct ls_run_topology *topology)
{
    ls_surroundings_finish(&topology->around);
    ls_network_finish(&topology->network);
    free(topology->text);
    *topology = (struct ls_run_topology){0};
}

// ", cards 0 0 1 1" behind what is there.
static void append(const char *name, const uint32_t *numbers, uint32_t count, FILE *out)
{
    if (!numbers)
        return;
    fprintf(out, ", %s", name);
    for (uint32_t i = 0; i < count; i++)
        fprintf(out, " %u", numbers[i]);
}

void ls_run_topology_print(const struct ls_run_topology *topology, FILE *out)
{
    const struct ls_surroundings *around = &topology->around;
    if (!topology->text)
        return;
    fprintf(out, "topology %s", topology->text);
    append("hosts", around->hosts, topology->world, out);
    append("cards", around->cards, topology->world, out);
    append("order", around->order, topology->world, out);
    if (!around->hosts && !around->cards && !around->order)
        fprintf(out, ": the order of ranks, nothing else is known");
    fprintf(out, "\n");
}
