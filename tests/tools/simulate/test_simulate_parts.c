// SPDX-License-Identifier: Apache-2.0
// What the simulator stands on: the queue of times, ways through networks, and dependencies as a plain search over all
// pairs of steps finds them.
#include "core/base/random.h"
#include "core/schedule/schedule.h"
#include "tools/simulate/fabric.h"
#include "tools/simulate/flow.h"
#include "tools/simulate/queue.h"
#include "tests/tools/simulate/simulation.h"

#include <math.h>

// ---- The queue ----

#define ITEMS 300

TEST(the_queue_hands_out_in_order_of_time_then_of_putting)
{
    struct ls_queue queue;
    double at[ITEMS];
    uint64_t put[ITEMS], turn = 0;
    ck_assert_int_eq(ls_queue_init(&queue), LS_OK);
    ck_assert_int_eq(ls_queue_reserve(&queue, ITEMS), LS_OK);
    for (uint32_t i = 0; i < ITEMS; i++)
        at[i] = -1;
    for (uint64_t draw = 0; draw < 20000; draw++) {
        const uint64_t random = ls_random_u64(1, draw);
        const uint32_t item = random % ITEMS;
        if (random >> 40 & 3) {
            at[item] = (double)(random >> 20 & 31) / 7; // few distinct times
            put[item] = turn++;
            ls_queue_put(&queue, item, at[item]);
            continue;
        }
        uint32_t wanted = ITEMS;
        for (uint32_t i = 0; i < ITEMS; i++)
            if (at[i] >= 0 && (wanted == ITEMS || at[i] < at[wanted] ||
                               (at[i] == at[wanted] && put[i] < put[wanted])))
                wanted = i;
        double next;
        ck_assert_int_eq(ls_queue_next(&queue, &next), wanted != ITEMS);
        if (wanted == ITEMS)
            continue;
        ck_assert(next == at[wanted]);
        ck_assert_uint_eq(ls_queue_take(&queue), wanted);
        at[wanted] = -1;
    }
    ls_queue_finish(&queue);
}

// ---- Ways ----

static void check_ways(const struct ls_network *network, uint32_t world)
{
    struct ls_fabric fabric;
    ck_assert_int_eq(ls_fabric_create(network, world, &fabric), LS_OK);
    uint32_t *links = calloc(fabric.longest, sizeof(*links));
    for (uint32_t from = 0; from < world; from++)
        for (uint32_t to = 0; to < world; to++) {
            double latency = -1;
            if (from == to)
                continue;
            const uint32_t count = ls_fabric_route(&fabric, from, to, links, &latency);
            ck_assert_uint_ge(count, 1);
            ck_assert_uint_le(count, fabric.longest);
            ck_assert(latency > 0);
            for (uint32_t i = 0; i < count; i++) {
                char text[64];
                ck_assert_uint_lt(links[i], fabric.link_count);
                ck_assert(fabric.bandwidth[links[i]] > 0);
                ck_assert_uint_gt(strlen(ls_fabric_link_text(&fabric, links[i], text, 64)), 5);
                for (uint32_t j = 0; j < i; j++)
                    ck_assert_uint_ne(links[i], links[j]);
            }
        }
    free(links);
    ls_fabric_finish(&fabric);
}

TEST(every_two_ranks_have_a_way)
{
    struct ls_network network = test_flat_network();
    static const uint32_t worlds[] = {1, 2, 3, 7, 8, 24, 45, 64};
    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
        network.layer_count = 0;
        network.ranks_per_node = network.cards_per_node = 1;
        network.inside = network.link;
        for (network.topology = LS_TOPOLOGY_FLAT; network.topology <= LS_TOPOLOGY_TORUS;
             network.topology++) {
            network.dimensions = network.topology == LS_TOPOLOGY_TORUS ? 2 + i % 2 : 0;
            if (network.topology == LS_TOPOLOGY_NODES || network.topology == LS_TOPOLOGY_FAT_TREE) {
                network.ranks_per_node = 1 + (uint32_t)i;
                network.cards_per_node = 1 + (uint32_t)i / 2;
            } else {
                network.ranks_per_node = network.cards_per_node = 1;
            }
            network.layer_count = network.topology == LS_TOPOLOGY_FAT_TREE ? 3 : 0;
            for (uint32_t layer = 0; layer < network.layer_count; layer++)
                network.layers[layer] = (struct ls_switch_layer){2 + layer, 1.5, 1e-6};
            check_ways(&network, worlds[i]);
        }
    }
}

static uint32_t around(uint32_t a, uint32_t b, uint32_t side)
{
    const uint32_t up = (b + side - a) % side;
    return up < side - up ? up : side - up;
}

TEST(ways_through_a_torus_are_as_short_as_can_be)
{
    struct ls_network network = test_flat_network();
    struct ls_fabric fabric;
    network.topology = LS_TOPOLOGY_TORUS;
    network.dimensions = 3;
    network.sides[0] = 5, network.sides[1] = 4, network.sides[2] = 3;
    ck_assert_int_eq(ls_fabric_create(&network, 60, &fabric), LS_OK);
    uint32_t links[16];
    for (uint32_t from = 0; from < 60; from++)
        for (uint32_t to = 0; to < 60; to++) {
            double latency = 0;
            const uint32_t hops = around(from % 5, to % 5, 5) +
                                  around(from / 5 % 4, to / 5 % 4, 4) +
                                  around(from / 20, to / 20, 3);
            ck_assert_uint_eq(ls_fabric_route(&fabric, from, to, links, &latency), hops);
            test_near(latency, hops * 1e-6, 1e-9);
        }
    ls_fabric_finish(&fabric);
}

TEST(sides_are_chosen_as_even_as_the_world_allows)
{
    static const uint32_t wanted[][4] = {{64, 4, 4, 4}, {60, 5, 4, 3},      {7, 7, 1, 1},
                                         {1, 1, 1, 1},  {4096, 16, 16, 16}, {8, 2, 2, 2}};
    struct ls_network network = test_flat_network();
    network.topology = LS_TOPOLOGY_TORUS;
    network.dimensions = 3;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        struct ls_fabric fabric;
        ck_assert_int_eq(ls_fabric_create(&network, wanted[i][0], &fabric), LS_OK);
        for (uint32_t d = 0; d < 3; d++)
            ck_assert_uint_eq(fabric.network.sides[d], wanted[i][d + 1]);
        ls_fabric_finish(&fabric);
    }
    struct ls_fabric fabric;
    network.sides[0] = 4, network.sides[1] = 4, network.sides[2] = 3;
    test_log_begin();
    ck_assert_int_eq(ls_fabric_create(&network, 64, &fabric), LS_BAD_INPUT);
    ls_log_set_writer(NULL, NULL);
    ck_assert_ptr_nonnull(strstr(test_log.text, "4 x 4 x 3 has 48 ranks, not 64"));
}

// ---- Graphs ----

#define VERTICES 9 // at most, so that all cuts can be tried
#define GRAPHS 300

// Links between random vertices, some of them one way, bandwidths 1 to 8, in every third graph up
// to 1e12 times as much; false: some ranks have no way to others.
static bool random_graph(uint64_t seed, struct ls_link_graph *out)
{
    uint64_t draw = 0;
    uint32_t apart[2];
    *out = (struct ls_link_graph){.ranks = 2 + (uint32_t)(ls_random_u64(seed, draw++) % 4)};
    out->vertices = out->ranks + (uint32_t)(ls_random_u64(seed, draw++) % 5);
    out->links = calloc((size_t)VERTICES * VERTICES, sizeof(*out->links));
    for (uint32_t from = 0; from < out->vertices; from++)
        for (uint32_t to = 0; to < out->vertices; to++) {
            const uint64_t random = ls_random_u64(seed, draw++);
            if (from != to && random % 100 < 45)
                out->links[out->link_count++] = (struct ls_graph_link){
                    from, to, 1e-6,
                    (double)(1 + random / 100 % 8) *
                        (seed % 3 ? 1 : pow(1e4, (double)(random / 800 % 4)))};
        }
    return ls_link_graph_find_ways(out, apart) == LS_OK;
}

static double leaves(const struct ls_link_graph *graph, uint32_t set)
{
    double sum = 0;
    for (uint32_t i = 0; i < graph->link_count; i++)
        if (set >> graph->links[i].from & 1 && !(set >> graph->links[i].to & 1))
            sum += graph->links[i].bandwidth;
    return sum;
}

// As flow.h has it, over all sets of vertices; a buffer of one byte.
static double bound_by_all_cuts(const struct ls_link_graph *graph, uint32_t operation,
                                uint32_t root)
{
    const uint32_t all = (1u << graph->ranks) - 1;
    const double n = graph->ranks;
    double bound = 0, out = 0, in = 0;
    for (uint32_t set = 1; set < 1u << graph->vertices; set++) {
        const uint32_t rest = ~set & ((1u << graph->vertices) - 1);
        const bool has_root = set >> root & 1;
        const double ranks = __builtin_popcount(set & all);
        if (!(set & all) || !(rest & all))
            continue;
        switch (operation) {
        case LS_ALL_GATHER: bound = fmax(bound, ranks / n / leaves(graph, set)); break;
        case LS_REDUCE_SCATTER: bound = fmax(bound, (n - ranks) / n / leaves(graph, set)); break;
        case LS_ALL_REDUCE: bound = fmax(bound, 1 / leaves(graph, set)); break;
        case LS_ALL_TO_ALL: bound = fmax(bound, (n - 1) / n / leaves(graph, set)); break;
        case LS_BROADCAST: bound = fmax(bound, has_root ? 1 / leaves(graph, set) : 0); break;
        default: bound = fmax(bound, has_root ? 0 : 1 / leaves(graph, set));
        }
    }
    for (uint32_t i = 0; i < graph->link_count; i++) {
        out += graph->links[i].from < graph->ranks ? graph->links[i].bandwidth : 0;
        in += graph->links[i].to < graph->ranks ? graph->links[i].bandwidth : 0;
    }
    return operation == LS_ALL_REDUCE ? fmax(bound, 2 * (n - 1) / fmin(in, out)) : bound;
}

TEST(flows_find_the_tightest_of_all_cuts)
{
    static const uint32_t operations[] = {LS_ALL_REDUCE, LS_REDUCE_SCATTER, LS_ALL_GATHER,
                                          LS_BROADCAST,  LS_REDUCE,         LS_ALL_TO_ALL};
    uint32_t connected = 0;
    for (uint64_t seed = 0; connected < GRAPHS; seed++) {
        struct ls_link_graph *graph = calloc(1, sizeof(*graph));
        const bool usable = random_graph(seed, graph);
        connected += usable;
        for (size_t i = 0; usable && i < sizeof(operations) / sizeof(operations[0]); i++) {
            const uint32_t root = (uint32_t)(seed % graph->ranks);
            double found;
            ck_assert_int_eq(ls_flow_bound(graph, graph->ranks, operations[i], root, 1, &found),
                             LS_OK);
            test_near(found, bound_by_all_cuts(graph, operations[i], root), 1e-5);
        }
        ls_link_graph_destroy(graph);
    }
}

// Ranks that do not take part pass on what others send.
TEST(ranks_beyond_the_world_only_pass_on)
{
    struct ls_link_graph *graph = calloc(1, sizeof(*graph));
    uint32_t apart[2], links[4];
    double found, latency;
    *graph = (struct ls_link_graph){.ranks = 3, .vertices = 3, .link_count = 4};
    graph->links = calloc(4, sizeof(*graph->links));
    for (uint32_t i = 0; i < 2; i++) { // 0 - 2 - 1
        graph->links[2 * i] = (struct ls_graph_link){i, 2, 1e-6, 4};
        graph->links[2 * i + 1] = (struct ls_graph_link){2, i, 2e-6, 4};
    }
    ck_assert_int_eq(ls_link_graph_find_ways(graph, apart), LS_OK);
    ck_assert_uint_eq(graph->longest, 2);
    ck_assert_double_eq_tol(graph->least_latency, 1e-6, 1e-15);
    ck_assert_uint_eq(ls_link_graph_route(graph, 0, 1, links, &latency), 2);
    ck_assert_double_eq_tol(latency, 3e-6, 1e-15);
    ck_assert_int_eq(ls_flow_bound(graph, 2, LS_ALL_GATHER, 0, 8, &found), LS_OK);
    test_near(found, 1, 1e-9);
    ck_assert_int_eq(ls_flow_bound(graph, 3, LS_ALL_GATHER, 0, 9, &found), LS_OK);
    test_near(found, 1.5, 1e-9); // two of three blocks over one link
    ls_link_graph_destroy(graph);
}

// ---- Dependencies ----

// With endless bandwidth, messages take `latency` and reductions nothing, so that a step ends one latency after the
// latest end of what it waits for: found here by looking at every pair of steps until nothing changes.
struct plain_rank {
    struct ls_drawn_schedule drawn;
    double *end; // of each step; NaN: not known
};

static bool touches(const struct ls_range *a, const struct ls_range *b)
{
    return a->buffer == b->buffer && a->offset < b->offset + b->count &&
           b->offset < a->offset + a->count;
}

static bool writes(const struct ls_step *step)
{
    return step->kind != LS_STEP_SEND;
}

static bool local(const struct ls_step *step)
{
    return step->kind == LS_STEP_REDUCE || step->kind == LS_STEP_COPY;
}

static bool conflict(const struct ls_step *a, const struct ls_step *b)
{
    return (touches(&a->range, &b->range) && (writes(a) || writes(b))) ||
           (local(a) && writes(b) && touches(&a->from, &b->range)) ||
           (local(b) && writes(a) && touches(&b->from, &a->range));
}

// Latest end of the earlier steps in conflict; NaN while one is not known. `same_round`: those of the step's round,
// which only their reductions wait for, or all others.
static double plain_ready(const struct plain_rank *rank, size_t number, bool same_round)
{
    const struct ls_scheduled_step *step = &rank->drawn.steps[number];
    double ready = 0;
    for (size_t i = 0; i < number; i++) {
        const struct ls_scheduled_step *earlier = &rank->drawn.steps[i];
        if ((earlier->round == step->round) != same_round || !conflict(&earlier->step, &step->step))
            continue;
        if (isnan(rank->end[i]))
            return NAN;
        ready = fmax(ready, rank->end[i]);
    }
    return ready;
}

static size_t plain_match(const struct plain_rank *ranks, uint32_t rank, size_t number)
{
    const struct ls_step *step = &ranks[rank].drawn.steps[number].step;
    const bool sends = step->kind == LS_STEP_SEND;
    size_t before = 0, i = 0;
    for (size_t j = 0; j < number; j++) {
        const struct ls_step *other = &ranks[rank].drawn.steps[j].step;
        before +=
            !local(other) && other->peer == step->peer && (other->kind == LS_STEP_SEND) == sends;
    }
    for (;; i++) {
        const struct ls_step *other = &ranks[step->peer].drawn.steps[i].step;
        if (!local(other) && other->peer == rank && (other->kind == LS_STEP_SEND) != sends &&
            before-- == 0)
            return i;
    }
}

static double plain_end(const struct plain_rank *ranks, uint32_t rank, size_t number,
                        double latency)
{
    const struct ls_step *step = &ranks[rank].drawn.steps[number].step;
    double ready = plain_ready(&ranks[rank], number, false);
    if (!local(step)) {
        const size_t match = plain_match(ranks, rank, number);
        const double other = plain_ready(&ranks[step->peer], match, false);
        ready = isnan(ready) || isnan(other) ? NAN : fmax(ready, other) + latency;
    }
    const double turn = plain_ready(&ranks[rank], number, true);
    return isnan(ready) || isnan(turn) ? NAN : fmax(ready, turn);
}

static double plain_seconds(const struct ls_simulation *simulation, double latency)
{
    struct plain_rank *ranks = calloc(simulation->world, sizeof(*ranks));
    struct ls_collective_call call = {.struct_size = sizeof(call),
                                      .operation = simulation->operation,
                                      .world = simulation->world,
                                      .count = simulation->count,
                                      .element_bytes = simulation->element_bytes,
                                      .host = simulation->host};
    double last = 0;
    for (call.rank = 0; call.rank < call.world; call.rank++) {
        struct plain_rank *rank = &ranks[call.rank];
        ck_assert_int_eq(ls_schedule_draw(simulation->collective, "test", &call, &rank->drawn),
                         LS_OK);
        rank->end = calloc(rank->drawn.step_count + 1, sizeof(double));
        for (size_t i = 0; i < rank->drawn.step_count; i++)
            rank->end[i] = NAN;
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t rank = 0; rank < call.world; rank++)
            for (size_t i = 0; i < ranks[rank].drawn.step_count; i++) {
                if (!isnan(ranks[rank].end[i]))
                    continue;
                ranks[rank].end[i] = plain_end(ranks, rank, i, latency);
                changed = changed || !isnan(ranks[rank].end[i]);
            }
    }
    for (uint32_t rank = 0; rank < call.world; rank++) {
        for (size_t i = 0; i < ranks[rank].drawn.step_count; i++) {
            ck_assert(!isnan(ranks[rank].end[i]));
            last = fmax(last, ranks[rank].end[i]);
        }
        free(ranks[rank].end);
        ls_drawn_schedule_finish(&ranks[rank].drawn);
    }
    free(ranks);
    return last;
}

static void check_dependencies(const char *name)
{
    static const uint32_t worlds[] = {2, 3, 4, 5, 6, 7, 9};
    static const uint64_t counts[] = {1, 70, 129, 1000, 5000};
    const struct ls_plugin *plugin = test_plugin_open(name);
    struct ls_network network = test_flat_network();
    struct test_option_host host;
    if (!plugin)
        return;
    network.link.bandwidth = 1e30;
    network.reduction = network.copy = 0;
    const bool tree = strcmp(name, "collective-tree") == 0;
    test_option_host_init(&host, plugin, tree ? "segments" : NULL, "3");
    const struct ls_collective_interface *interface = plugin->interface;
    for (uint32_t operation = LS_ALL_REDUCE; operation <= LS_ALL_TO_ALL; operation++)
        for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++)
            for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
                struct ls_simulation simulation =
                    test_simulation(interface, &host.test.host, &network, worlds[w],
                                    ls_collective_whole_count(operation, counts[c], worlds[w]));
                simulation.operation = operation;
                test_near(test_simulate(&simulation).seconds, plain_seconds(&simulation, 1e-6),
                          1e-9);
            }
}

TEST(steps_wait_for_what_a_plain_search_finds)
{
    static const char *const names[] = {
        "ring", "hierarchical-copy", "tree", "halving-doubling", "torus", "direct", "two-level"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char name[64];
        snprintf(name, sizeof(name), "collective-%s", names[i]);
        check_dependencies(name);
    }
}

TEST_SECONDS(300);
