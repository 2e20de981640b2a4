// SPDX-License-Identifier: Apache-2.0
// Reads a network from its JSON file. Every key is checked: one that is misspelt is refused, not ignored.
#include "core/topology/network.h"

#include "core/base/log.h"
#include "core/base/options.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_BYTES_MOST (1 << 20)
#define KEYS_MOST 16
#define MICRO 1e-6
#define GIGA 1e9
#define COUNT_MOST 1e6
// What a file may say, in its own units: beyond, times would overflow, or be no numbers.
#define NUMBER_LEAST 1e-9
#define NUMBER_MOST 1e15
#define NUMBER_RANGE "from 1e-9 to 1e15"

// An object of the file while it is read.
struct reader {
    const char *path;
    const char *place; // "node", "switches[0]"; "": the whole
    const json_t *object;
};

static const char *const topology_names[] = {"flat", "nodes", "fat-tree", "torus", "graph", NULL};

static enum ls_status refuse(const struct reader *reader, const char *key, const char *reason)
{
    ls_error("network", "%s: %s%s%s: %s", reader->path, reader->place,
             *reader->place && *key ? "." : "", key, reason);
    return LS_BAD_INPUT;
}

// ---- Keys and values ----

static enum ls_status check_keys(const struct reader *reader, const char *const *known)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)reader->object, key, value)
    {
        bool found = false;
        for (size_t i = 0; known[i]; i++)
            found = found || strcmp(known[i], key) == 0;
        if (found)
            continue;
        char reason[512];
        const char *nearest = ls_nearest(key, known);
        size_t length = (size_t)snprintf(reason, sizeof(reason), "there is no such key here; %s",
                                         nearest ? "did you mean " : "there are");
        if (nearest)
            snprintf(reason + length, sizeof(reason) - length, "%s?", nearest);
        for (size_t i = 0; !nearest && known[i] && length < sizeof(reason); i++)
            length += (size_t)snprintf(reason + length, sizeof(reason) - length, "%s%s",
                                       i ? ", " : " ", known[i]);
        return refuse(reader, key, reason);
    }
    return LS_OK;
}

struct number {
    const char *key;
    bool required;
    bool zero; // may be zero
    double unit; // the value is multiplied by it
    double *out; // untouched where the key is missing
};

static bool is_in_range(double value)
{
    return value >= NUMBER_LEAST && value <= NUMBER_MOST;
}

static enum ls_status read_number(const struct reader *reader, const struct number *number)
{
    const json_t *value = json_object_get(reader->object, number->key);
    if (!value)
        return number->required ? refuse(reader, number->key, "is missing; expected a number")
                                : LS_OK;
    if (!json_is_number(value))
        return refuse(reader, number->key, "expected a number");
    const double found = json_number_value(value);
    if (!is_in_range(found) && !(number->zero && found >= 0 && found < NUMBER_LEAST))
        return refuse(reader, number->key,
                      number->zero ? "must be from 0 to 1e15" : "must be " NUMBER_RANGE);
    *number->out = found * number->unit;
    return LS_OK;
}

static enum ls_status read_count(const struct reader *reader, const char *key, bool required,
                                 uint32_t *out)
{
    const json_t *value = json_object_get(reader->object, key);
    if (!value)
        return required ? refuse(reader, key, "is missing; expected an integer") : LS_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 1 ||
        json_integer_value(value) > (json_int_t)COUNT_MOST)
        return refuse(reader, key, "expected an integer from 1 to 1000000");
    *out = (uint32_t)json_integer_value(value);
    return LS_OK;
}

// `required`: else `out` has what holds where the file says nothing.
static enum ls_status read_speed(const struct reader *reader, bool required,
                                 struct ls_link_speed *out)
{
    const struct number latency = {"latency_us", required, true, MICRO, &out->latency};
    const struct number bandwidth = {"bandwidth_gb_s", required, false, GIGA, &out->bandwidth};
    double share = 1;
    const struct number efficiency = {"efficiency", false, false, 1, &share};
    enum ls_status status = read_number(reader, &latency);
    if (!status)
        status = read_number(reader, &bandwidth);
    if (!status)
        status = read_number(reader, &efficiency);
    if (!status && share > 1)
        status = refuse(reader, "efficiency", "no message is faster than its link");
    out->bandwidth *= share;
    return status;
}

// ---- Parts ----

static enum ls_status read_node(const struct reader *whole, bool required, struct ls_network *out)
{
    static const char *const known[] = {"ranks",      "latency_us", "bandwidth_gb_s",
                                        "efficiency", "cards",      NULL};
    const struct reader node = {whole->path, "node", json_object_get(whole->object, "node")};
    out->ranks_per_node = 1;
    out->cards_per_node = 1;
    if (!node.object)
        return required ? refuse(whole, "node", "is missing; expected an object") : LS_OK;
    if (!json_is_object(node.object))
        return refuse(whole, "node", "expected an object");
    enum ls_status status = check_keys(&node, known);
    if (!status)
        status = read_count(&node, "ranks", true, &out->ranks_per_node);
    out->cards_per_node = out->ranks_per_node;
    if (!status)
        status = read_count(&node, "cards", false, &out->cards_per_node);
    if (!status && out->cards_per_node > out->ranks_per_node)
        status = refuse(&node, "cards", "are more than ranks; some would never be used");
    return status ? status : read_speed(&node, true, &out->inside);
}

static enum ls_status read_layer(const struct reader *reader, struct ls_switch_layer *out)
{
    static const char *const known[] = {"below", "oversubscription", "latency_us", NULL};
    if (!json_is_object(reader->object))
        return refuse(reader, "", "expected an object");
    const struct number ratio = {"oversubscription", false, false, 1, &out->oversubscription};
    const struct number latency = {"latency_us", false, true, MICRO, &out->latency};
    *out = (struct ls_switch_layer){.oversubscription = 1};
    enum ls_status status = check_keys(reader, known);
    if (!status)
        status = read_count(reader, "below", true, &out->below);
    if (!status)
        status = read_number(reader, &ratio);
    return status ? status : read_number(reader, &latency);
}

static enum ls_status read_layers(const struct reader *whole, struct ls_network *out)
{
    const json_t *list = json_object_get(whole->object, "switches");
    const size_t count = json_array_size(list);
    if (count < 1 || count > LS_SWITCH_LAYERS)
        return refuse(whole, "switches",
                      "expected a list of 1 to 4 layers, from the nodes upwards");
    enum ls_status status = LS_OK;
    for (size_t i = 0; !status && i < count; i++) {
        char place[32];
        snprintf(place, sizeof(place), "switches[%zu]", i);
        const struct reader layer = {whole->path, place, json_array_get(list, i)};
        status = read_layer(&layer, &out->layers[i]);
    }
    out->layer_count = (uint32_t)count;
    return status;
}

// A list of [bytes, speed] in `key`; `unit` is the speed in bytes a second on the network's link.
static enum ls_status read_points(const struct reader *reader, const char *key, double unit,
                                  double link_bandwidth, struct ls_protocol *out)
{
    const json_t *list = json_object_get(reader->object, key);
    if (!list)
        return LS_OK;
    if (json_array_size(list) < 1 || json_array_size(list) > LS_SPEED_POINTS)
        return refuse(reader, key, "expected a list of 1 to 32 pairs of numbers: [bytes, speed]");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *pair = json_array_get(list, i);
        const double bytes = json_number_value(json_array_get(pair, 0));
        const double speed = json_number_value(json_array_get(pair, 1)), bandwidth = speed * unit;
        if (json_array_size(pair) != 2 || !is_in_range(bytes) || !is_in_range(speed))
            return refuse(reader, key,
                          "expected pairs of numbers " NUMBER_RANGE ": [bytes, speed]");
        if (i && bytes <= out->points[i - 1].bytes)
            return refuse(reader, key, "expected pairs in increasing order of bytes");
        if (bandwidth > link_bandwidth * (1 + 1e-9))
            return refuse(reader, key, "no message is faster than its link");
        out->points[i] = (struct ls_speed_point){bytes, bandwidth};
    }
    out->point_count = (uint32_t)json_array_size(list);
    return LS_OK;
}

static enum ls_status read_protocol(const struct reader *reader, bool last, double link_bandwidth,
                                    struct ls_protocol *out)
{
    static const char *const known[] = {"name", "below", "latency_us", "efficiency_by_bytes", NULL};
    if (!json_is_object(reader->object))
        return refuse(reader, "", "expected an object");
    *out = (struct ls_protocol){.below = INFINITY};
    const json_t *name = json_object_get(reader->object, "name");
    const struct number below = {"below", !last, false, 1, &out->below};
    const struct number latency = {"latency_us", false, true, MICRO, &out->latency};
    enum ls_status status = check_keys(reader, known);
    if (!status && name && !json_is_string(name))
        status = refuse(reader, "name", "expected a text");
    if (!status && last && json_object_get(reader->object, "below"))
        status = refuse(reader, "below", "the last protocol is for all sizes above");
    if (!status)
        status = read_number(reader, &below);
    if (!status)
        status = read_number(reader, &latency);
    return status ? status
                  : read_points(reader, "efficiency_by_bytes", link_bandwidth, link_bandwidth, out);
}

// A flat network may have "bandwidth_by_bytes" instead, the curve of its only protocol.
static enum ls_status read_protocols(const struct reader *whole, struct ls_network *out)
{
    const json_t *list = json_object_get(whole->object, "protocols");
    const size_t count = json_array_size(list);
    if (json_object_get(whole->object, "bandwidth_by_bytes")) {
        if (list)
            return refuse(whole, "protocols", "expected these or bandwidth_by_bytes, not both");
        out->protocol_count = 1;
        out->protocols_by_whole = true;
        out->protocols[0].below = INFINITY;
        return read_points(whole, "bandwidth_by_bytes", GIGA, out->link.bandwidth,
                           &out->protocols[0]);
    }
    if (!list)
        return LS_OK;
    if (count < 1 || count > LS_PROTOCOLS)
        return refuse(whole, "protocols", "expected a list of 1 to 4, for small buffers first");
    for (size_t i = 0; i < count; i++) {
        char place[32];
        snprintf(place, sizeof(place), "protocols[%zu]", i);
        const struct reader protocol = {whole->path, place, json_array_get(list, i)};
        const enum ls_status status =
            read_protocol(&protocol, i + 1 == count, out->link.bandwidth, &out->protocols[i]);
        if (status)
            return status;
        if (i && out->protocols[i].below <= out->protocols[i - 1].below)
            return refuse(&protocol, "below", "expected protocols in increasing order of bytes");
    }
    out->protocol_count = (uint32_t)count;
    return LS_OK;
}

static enum ls_status read_in_place(const struct reader *whole, struct ls_network *out)
{
    const json_t *value = json_object_get(whole->object, "reduces_in_place");
    if (value && !json_is_boolean(value))
        return refuse(whole, "reduces_in_place", "expected true or false");
    out->reduces_in_place = json_is_true(value);
    return LS_OK;
}

static enum ls_status read_sides(const struct reader *whole, struct ls_network *out)
{
    const json_t *sides = json_object_get(whole->object, "sides");
    const json_t *dimensions = json_object_get(whole->object, "dimensions");
    if (!sides == !dimensions)
        return refuse(whole, "sides",
                      "expected either sides, or dimensions (2 or 3) for any world");
    if (dimensions) {
        const enum ls_status status = read_count(whole, "dimensions", true, &out->dimensions);
        if (!status && (out->dimensions < 2 || out->dimensions > LS_TORUS_DIMENSIONS))
            return refuse(whole, "dimensions", "expected 2 or 3");
        return status;
    }
    const size_t count = json_array_size(sides);
    if (count < 2 || count > LS_TORUS_DIMENSIONS)
        return refuse(whole, "sides", "expected a list of 2 or 3 integers");
    for (size_t i = 0; i < count; i++) {
        const json_t *side = json_array_get(sides, i);
        if (!json_is_integer(side) || json_integer_value(side) < 1 ||
            json_integer_value(side) > (json_int_t)COUNT_MOST)
            return refuse(whole, "sides", "expected integers from 1 to 1000000");
        out->sides[i] = (uint32_t)json_integer_value(side);
    }
    out->dimensions = (uint32_t)count;
    return LS_OK;
}

// ---- Graphs ----

static enum ls_status read_vertex(const struct reader *reader, const char *key, const json_t *value,
                                  uint32_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) >= LS_GRAPH_VERTICES_MOST)
        return refuse(reader, key, "expected a rank, or a switch with a number above: 0 to 16383");
    *out = (uint32_t)json_integer_value(value);
    return LS_OK;
}

// A link goes both ways unless it says otherwise. It has the speed of the whole network where it
// gives none.
static enum ls_status read_link(const struct reader *reader, const struct ls_link_speed *usual,
                                struct ls_link_graph *graph)
{
    static const char *const known[] = {"from",       "to",      "latency_us", "bandwidth_gb_s",
                                        "efficiency", "one_way", NULL};
    if (!json_is_object(reader->object))
        return refuse(reader, "", "expected an object with from and to");
    struct ls_graph_link link = {0};
    const json_t *one_way = json_object_get(reader->object, "one_way");
    struct ls_link_speed own = *usual;
    enum ls_status status = check_keys(reader, known);
    if (!status)
        status = read_vertex(reader, "from", json_object_get(reader->object, "from"), &link.from);
    if (!status)
        status = read_vertex(reader, "to", json_object_get(reader->object, "to"), &link.to);
    if (!status && link.from == link.to)
        status = refuse(reader, "to", "a link leads to another rank or switch");
    if (!status && one_way && !json_is_boolean(one_way))
        status = refuse(reader, "one_way", "expected true or false");
    if (!status)
        status = read_speed(reader, false, &own);
    if (status)
        return status;
    link.latency = own.latency;
    link.bandwidth = own.bandwidth;
    graph->links[graph->link_count++] = link;
    if (!json_is_true(one_way)) {
        graph->links[graph->link_count] = link;
        graph->links[graph->link_count].from = link.to;
        graph->links[graph->link_count++].to = link.from;
    }
    const uint32_t last = link.from > link.to ? link.from : link.to;
    graph->vertices = last >= graph->vertices ? last + 1 : graph->vertices;
    return LS_OK;
}

static int compare_keys(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static enum ls_status refuse_repeated(const struct reader *whole, const char *key, uint64_t *pairs,
                                      size_t count)
{
    if (count)
        qsort(pairs, count, sizeof(*pairs), compare_keys);
    for (size_t i = 1; i < count; i++) {
        char reason[96];
        if (pairs[i] != pairs[i - 1])
            continue;
        snprintf(reason, sizeof(reason), "there are two from %u to %u; expected one",
                 (uint32_t)(pairs[i] >> 32), (uint32_t)pairs[i]);
        return refuse(whole, key, reason);
    }
    return LS_OK;
}

static enum ls_status read_links(const struct reader *whole, const struct ls_link_speed *usual,
                                 struct ls_link_graph *graph)
{
    const json_t *list = json_object_get(whole->object, "links");
    const size_t count = json_array_size(list);
    if (count < 1)
        return refuse(whole, "links", "expected a list of links");
    graph->links = calloc(2 * count, sizeof(*graph->links));
    uint64_t *pairs = calloc(2 * count, sizeof(*pairs));
    enum ls_status status = graph->links && pairs ? LS_OK : LS_OUT_OF_MEMORY;
    for (size_t i = 0; !status && i < count; i++) {
        char place[32];
        snprintf(place, sizeof(place), "links[%zu]", i);
        const struct reader link = {whole->path, place, json_array_get(list, i)};
        status = read_link(&link, usual, graph);
    }
    for (uint32_t i = 0; !status && i < graph->link_count; i++)
        pairs[i] = (uint64_t)graph->links[i].from << 32 | graph->links[i].to;
    if (!status)
        status = refuse_repeated(whole, "links", pairs, graph->link_count);
    free(pairs);
    return status;
}

// Whether the part of the route that was read leaves this rank or switch.
static bool passes(const struct ls_link_graph *graph, const struct ls_graph_route *route,
                   uint32_t vertex)
{
    for (uint32_t i = 0; i < route->count; i++)
        if (graph->links[graph->route_links[route->first + i]].from == vertex)
            return true;
    return false;
}

// [sender, switch, ..., receiver]
static enum ls_status read_route(const struct reader *reader, struct ls_link_graph *graph)
{
    const size_t count = json_array_size(reader->object);
    struct ls_graph_route *route = &graph->routes[graph->route_count];
    uint32_t *links = graph->route_links;
    uint32_t at = 0, next = 0;
    if (count < 2 || count > LS_GRAPH_VERTICES_MOST)
        return refuse(reader, "", "expected a list: sender, what is passed, receiver");
    route->first = graph->route_count ? route[-1].first + route[-1].count : 0;
    for (size_t i = 0; i < count; i++) {
        char reason[96];
        const enum ls_status status =
            read_vertex(reader, "", json_array_get(reader->object, i), &next);
        if (status)
            return status;
        const uint32_t link = i ? ls_link_graph_link_between(graph, at, next) : 0;
        snprintf(reason, sizeof(reason), "there is no link from %u to %u", at, next);
        if (link == UINT32_MAX)
            return refuse(reader, "", reason);
        snprintf(reason, sizeof(reason), "passes %u twice", next);
        if (i && passes(graph, route, next))
            return refuse(reader, "", reason);
        if (i)
            links[route->first + route->count++] = link;
        else
            route->from = next;
        at = next;
    }
    route->to = at;
    if (route->from >= graph->ranks || route->to >= graph->ranks || route->from == route->to)
        return refuse(reader, "", "a way leads from one rank to another");
    graph->route_count++;
    return LS_OK;
}

static enum ls_status read_routes(const struct reader *whole, struct ls_link_graph *graph)
{
    const json_t *list = json_object_get(whole->object, "routes");
    const size_t count = json_array_size(list);
    size_t longest = 0;
    if (!list)
        return LS_OK;
    if (!json_is_array(list))
        return refuse(whole, "routes", "expected a list of ways");
    for (size_t i = 0; i < count; i++)
        longest += json_array_size(json_array_get(list, i));
    graph->routes = calloc(count + 1, sizeof(*graph->routes));
    graph->route_links = calloc(longest + 1, sizeof(*graph->route_links));
    uint64_t *pairs = calloc(count + 1, sizeof(*pairs));
    enum ls_status status = graph->routes && graph->route_links && pairs ? LS_OK : LS_OUT_OF_MEMORY;
    for (size_t i = 0; !status && i < count; i++) {
        char place[32];
        snprintf(place, sizeof(place), "routes[%zu]", i);
        const struct reader route = {whole->path, place, json_array_get(list, i)};
        status = read_route(&route, graph);
    }
    for (uint32_t i = 0; !status && i < graph->route_count; i++)
        pairs[i] = (uint64_t)graph->routes[i].from << 32 | graph->routes[i].to;
    if (!status)
        status = refuse_repeated(whole, "routes", pairs, graph->route_count);
    free(pairs);
    return status;
}

static enum ls_status read_graph(const struct reader *whole, struct ls_network *out)
{
    uint32_t apart[2];
    char reason[96];
    struct ls_link_graph *graph = out->graph = calloc(1, sizeof(*graph));
    if (!graph)
        return LS_OUT_OF_MEMORY;
    enum ls_status status = read_count(whole, "ranks", true, &graph->ranks);
    if (!status && graph->ranks > LS_GRAPH_RANKS_MOST)
        status = refuse(whole, "ranks", "a graph has at most 4096");
    graph->vertices = graph->ranks;
    if (!status)
        status = read_links(whole, &out->link, graph);
    if (!status)
        status = read_routes(whole, graph);
    if (status)
        return status;
    status = ls_link_graph_find_ways(graph, apart);
    if (status != LS_BAD_INPUT)
        return status;
    snprintf(reason, sizeof(reason), "there is no way from rank %u to rank %u", apart[0], apart[1]);
    return refuse(whole, "links", reason);
}

// [2, 0, 1]: each rank once.
static enum ls_status read_order(const struct reader *whole, struct ls_network *out)
{
    const json_t *list = json_object_get(whole->object, "order");
    const size_t count = json_array_size(list);
    if (!list)
        return LS_OK;
    if (count < 1)
        return refuse(whole, "order", "expected a list of ranks");
    out->order = malloc(count * sizeof(*out->order));
    bool *found = calloc(count, sizeof(*found));
    enum ls_status status = out->order && found ? LS_OK : LS_OUT_OF_MEMORY;
    for (size_t i = 0; !status && i < count; i++) {
        const json_t *value = json_array_get(list, i);
        const json_int_t rank = json_is_integer(value) ? json_integer_value(value) : -1;
        if (rank < 0 || rank >= (json_int_t)count || found[rank]) {
            status = refuse(whole, "order", "expected all ranks from 0 on, each once");
            break;
        }
        found[rank] = true;
        out->order[i] = (uint32_t)rank;
    }
    free(found);
    out->order_count = (uint32_t)count;
    return status;
}

static enum ls_status read_topology(const struct reader *whole, struct ls_network *out)
{
    const char *name = json_string_value(json_object_get(whole->object, "topology"));
    for (uint32_t i = 0; name && topology_names[i]; i++)
        if (strcmp(name, topology_names[i]) == 0) {
            out->topology = i;
            return LS_OK;
        }
    return refuse(whole, "topology",
                  "expected \"flat\", \"nodes\", \"fat-tree\", \"torus\" or \"graph\"");
}

#define COMMON_KEYS                                                                       \
    "name", "about", "sources", "topology", "latency_us", "bandwidth_gb_s", "efficiency", \
        "overhead_us", "reduction_gb_s", "copy_gb_s", "launch_us", "protocols", "order"

static enum ls_status read_texts(const struct reader *whole, struct ls_network *out)
{
    const json_t *name = json_object_get(whole->object, "name");
    const json_t *about = json_object_get(whole->object, "about");
    const json_t *sources = json_object_get(whole->object, "sources");
    if (!json_is_string(name) || json_string_length(name) == 0 ||
        json_string_length(name) >= LS_NETWORK_NAME)
        return refuse(whole, "name", "expected a text of 1 to 63 letters");
    snprintf(out->name, sizeof(out->name), "%s", json_string_value(name));
    if (about && !json_is_string(about))
        return refuse(whole, "about", "expected a text");
    bool texts = !sources || json_is_array(sources);
    for (size_t i = 0; texts && i < json_array_size(sources); i++)
        texts = json_is_string(json_array_get(sources, i));
    return texts ? LS_OK : refuse(whole, "sources", "expected a list of texts");
}

static enum ls_status read_whole(const struct reader *whole, struct ls_network *out)
{
    static const char *const flat[] = {COMMON_KEYS, "bandwidth_by_bytes", "reduces_in_place", NULL};
    static const char *const nodes[] = {COMMON_KEYS, "node", NULL};
    static const char *const fat_tree[] = {COMMON_KEYS, "node", "switches", NULL};
    static const char *const torus[] = {COMMON_KEYS, "sides", "dimensions", NULL};
    static const char *const graph[] = {COMMON_KEYS, "ranks", "links", "routes", NULL};
    static const char *const *const known[] = {flat, nodes, fat_tree, torus, graph};
    double speed = INFINITY, copied = 0;
    const struct number overhead = {"overhead_us", false, true, MICRO, &out->overhead};
    const struct number reduction = {"reduction_gb_s", false, false, GIGA, &speed};
    const struct number copy = {"copy_gb_s", false, false, GIGA, &copied};
    const struct number launch = {"launch_us", false, true, MICRO, &out->launch};

    enum ls_status status = read_topology(whole, out);
    if (!status)
        status = check_keys(whole, known[out->topology]);
    if (!status)
        status = read_texts(whole, out);
    if (!status)
        status = read_speed(whole, true, &out->link);
    if (!status)
        status = read_number(whole, &overhead);
    if (!status)
        status = read_number(whole, &reduction);
    if (!status)
        status = read_number(whole, &copy);
    out->reduction = 1 / speed;
    out->copy = copied > 0 ? 1 / copied : out->reduction;
    if (!status)
        status = read_number(whole, &launch);
    if (!status)
        status = read_protocols(whole, out);
    if (!status)
        status = read_order(whole, out);
    if (!status && out->topology == LS_TOPOLOGY_FLAT)
        status = read_in_place(whole, out);
    if (!status)
        status = read_node(whole, out->topology == LS_TOPOLOGY_NODES, out);
    if (!status && out->topology == LS_TOPOLOGY_FAT_TREE)
        status = read_layers(whole, out);
    if (!status && out->topology == LS_TOPOLOGY_TORUS)
        status = read_sides(whole, out);
    if (!status && out->topology == LS_TOPOLOGY_GRAPH)
        status = read_graph(whole, out);
    return status;
}

// ---- The world ----

static uint32_t largest_divisor(uint32_t value, uint32_t most)
{
    while (value % most)
        most--;
    return most;
}

// Largest side first; as even as the divisors of the world allow.
void ls_network_choose_sides(struct ls_network *network, uint32_t world)
{
    uint32_t rest = world;
    for (uint32_t i = network->dimensions; i > 1; i--) {
        const double even = pow(rest, 1.0 / i);
        const uint32_t side = largest_divisor(rest, (uint32_t)(even + 1e-6));
        network->sides[i - 1] = side;
        rest /= side;
    }
    network->sides[0] = rest;
}

static enum ls_status check_sides(const struct ls_network *network, uint32_t world)
{
    uint64_t product = 1;
    char text[64] = "";
    for (uint32_t i = 0, length = 0; i < network->dimensions; i++) {
        product *= network->sides[i];
        length += (uint32_t)snprintf(text + length, sizeof(text) - length, "%s%u", i ? " x " : "",
                                     network->sides[i]);
    }
    if (product == world)
        return LS_OK;
    ls_error("network", "%s: a torus of %s has %llu ranks, not %u; change sides or the world",
             network->name, text, (unsigned long long)product, world);
    return LS_BAD_INPUT;
}

enum ls_status ls_network_fit(struct ls_network *network, uint32_t world)
{
    if (network->topology == LS_TOPOLOGY_TORUS && !network->sides[0])
        ls_network_choose_sides(network, world);
    if (network->graph && world > network->graph->ranks) {
        ls_error("network", "%s: the graph has %u ranks, not %u; change it or the world",
                 network->name, network->graph->ranks, world);
        return LS_BAD_INPUT;
    }
    if (network->order && network->order_count != world) {
        ls_error("network", "%s: the order has %u ranks, not %u; change it or the world",
                 network->name, network->order_count, world);
        return LS_BAD_INPUT;
    }
    return network->topology == LS_TOPOLOGY_TORUS ? check_sides(network, world) : LS_OK;
}

uint32_t ls_network_card(const struct ls_network *network, uint32_t rank)
{
    const uint64_t place = rank % network->ranks_per_node;
    return rank / network->ranks_per_node * network->cards_per_node +
           (uint32_t)(place * network->cards_per_node / network->ranks_per_node);
}

// ---- The file ----

static enum ls_status load(const char *path, json_t **out)
{
    struct stat about;
    FILE *file = fopen(path, "r");
    if (!file || fstat(fileno(file), &about)) {
        ls_error("network", "cannot read '%s': %s", path, strerror(errno));
        if (file)
            fclose(file);
        return LS_BAD_INPUT;
    }
    json_error_t error;
    json_t *root = NULL;
    if (!S_ISREG(about.st_mode) || about.st_size > FILE_BYTES_MOST)
        ls_error("network", "'%s' is no network file: it is %s", path,
                 S_ISREG(about.st_mode) ? "larger than 1 MiB" : "not a regular file");
    else if (!(root = json_loadf(file, JSON_REJECT_DUPLICATES, &error)))
        ls_error("network", "%s: line %d, column %d: %s", path, error.line, error.column,
                 error.text);
    else if (!json_is_object(root))
        ls_error("network", "%s: expected one JSON object", path);
    fclose(file);
    if (!json_is_object(root)) {
        json_decref(root);
        return LS_BAD_INPUT;
    }
    *out = root;
    return LS_OK;
}

enum ls_status ls_network_read(const char *path, struct ls_network *out)
{
    json_t *root = NULL;
    struct ls_network network = {0};
    enum ls_status status = load(path, &root);
    if (status)
        return status;
    const struct reader whole = {path, "", root};
    status = read_whole(&whole, &network);
    json_decref(root);
    if (status)
        ls_network_finish(&network);
    else
        *out = network;
    return status;
}

void ls_network_finish(struct ls_network *network)
{
    ls_link_graph_destroy(network->graph);
    free(network->order);
    *network = (struct ls_network){0};
}

static double protocol_size(const struct ls_network *network, double bytes, uint32_t ranks)
{
    return network->protocols_by_whole ? bytes : bytes / ranks;
}

const struct ls_protocol *ls_network_protocol(const struct ls_network *network, double bytes,
                                              uint32_t ranks)
{
    const double size = protocol_size(network, bytes, ranks);
    uint32_t i = 0;
    if (!network->protocol_count)
        return NULL;
    while (i + 1 < network->protocol_count && size >= network->protocols[i].below)
        i++;
    return &network->protocols[i];
}

// Seconds a byte go in a line over the logarithm of the size; beyond the ends they stay.
double ls_network_slowness(const struct ls_network *network, double bytes, uint32_t ranks)
{
    const struct ls_protocol *protocol = ls_network_protocol(network, bytes, ranks);
    const double size = protocol_size(network, bytes, ranks);
    if (!protocol || !protocol->point_count)
        return 1;
    const struct ls_speed_point *points = protocol->points;
    const uint32_t count = protocol->point_count;
    uint32_t above = 0;
    while (above < count && points[above].bytes < size)
        above++;
    double slowness = 1 / points[above < count ? above : count - 1].bandwidth;
    if (above > 0 && above < count) {
        const double share = log(size / points[above - 1].bytes) /
                             log(points[above].bytes / points[above - 1].bytes);
        slowness = share * slowness + (1 - share) / points[above - 1].bandwidth;
    }
    return fmax(1, slowness * network->link.bandwidth);
}
