// SPDX-License-Identifier: Apache-2.0
// What the schedules of ring, tree, halving-doubling, torus, direct and two-level promise, for
// worlds 1 to 64: they hold (world.h), and rounds and bytes are those that their head comments
// give. Options that do not fit are refused in one line.
#include "tests/plugins/collective/world.h"
#include "tests/support/suite.h"

#include <check.h>

// Counts that leave parts empty, uneven, and even.
static void check_values(const char *collective, const char *option, const char *value,
                         uint32_t operation, uint32_t ranks, uint32_t root)
{
    const uint64_t counts[] = {0, 1, 64, 1000, 64 * (uint64_t)ranks + 7};
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
        world_finish(world_run(collective, option, value, operation, ranks, root, counts[i]));
}

static void check_rounds(const struct world *world, uint64_t rounds)
{
    EXPECT(world, world->drawn[0].round_count == rounds, "%u rounds instead of %u",
           world->drawn[0].round_count, (unsigned)rounds);
}

// Every rank sends, and receives, exactly so many elements.
static void check_sent(const struct world *world, uint64_t count)
{
    for (uint32_t rank = 0; rank < world->call.world; rank++)
        EXPECT(world, world->sent[rank] == count && world->received[rank] == count,
               "rank %u sends %u elements and receives %u instead of %u", rank,
               (unsigned)world->sent[rank], (unsigned)world->received[rank], (unsigned)count);
}

static uint64_t total_sent(const struct world *world)
{
    uint64_t total = 0;
    for (uint32_t rank = 0; rank < world->call.world; rank++)
        total += world->sent[rank];
    return total;
}

static uint64_t floor_log2(uint64_t value)
{
    uint64_t log = 0;
    while (value >>= 1)
        log++;
    return log;
}

static uint64_t ceil_log2(uint64_t value)
{
    return value > 1 ? floor_log2(value - 1) + 1 : 0;
}

// All operations with parts, whose bytes are the minimum: rounds of an all-reduce, and of half of one.
static void check_minimum(const char *collective, const char *option, const char *value,
                          uint32_t ranks, uint64_t rounds)
{
    const uint64_t count = 128 * (uint64_t)ranks, half = count / ranks * (ranks - 1);
    for (uint32_t operation = LS_ALL_REDUCE; operation <= LS_ALL_GATHER; operation++) {
        const uint64_t halves = operation == LS_ALL_REDUCE ? 2 : 1;
        check_values(collective, option, value, operation, ranks, 0);
        struct world *world = world_run(collective, option, value, operation, ranks, 0, count);
        check_rounds(world, rounds * halves / 2);
        check_sent(world, half * halves);
        EXPECT(world, world->longest == half * halves, "no round has one message of each rank");
        EXPECT(world, operation == LS_ALL_GATHER || world->reduced[0] == half,
               "rank 0 reduces %u elements", (unsigned)world->reduced[0]);
        world_finish(world);
    }
}

// A round for each prime factor up to 13, and as many as halve the product of the others.
static uint64_t halving_rounds(uint64_t ranks)
{
    static const uint64_t primes[] = {2, 3, 5, 7, 11, 13};
    uint64_t rounds = 0;
    for (size_t i = 0; i < sizeof(primes) / sizeof(*primes); i++)
        for (; ranks % primes[i] == 0; ranks /= primes[i])
            rounds++;
    return rounds + ceil_log2(ranks);
}

TEST(halving_doubling_sends_the_minimum_in_every_world)
{
    for (uint32_t ranks = 1; ranks <= WORLDS; ranks++) {
        check_minimum("halving-doubling", NULL, NULL, ranks, 2 * halving_rounds(ranks));
        ck_assert_uint_le(halving_rounds(ranks), ceil_log2(ranks));
    }
}

TEST(a_torus_of_any_shape_sends_the_minimum)
{
    for (uint32_t ranks = 1; ranks <= WORLDS; ranks++) {
        uint32_t near = 1;
        for (uint32_t rows = 1; rows <= ranks; rows++) {
            char text[16];
            if (ranks % rows)
                continue;
            near = rows * rows <= ranks ? rows : near;
            snprintf(text, sizeof(text), "%u", rows);
            check_minimum("torus", "rows", text, ranks, 2 * (rows - 1) + 2 * (ranks / rows - 1));
        }
        check_minimum("torus", NULL, NULL, ranks, 2 * (near - 1) + 2 * (ranks / near - 1));
    }
}

TEST(direct_takes_two_rounds_or_one)
{
    for (uint32_t ranks = 1; ranks <= WORLDS; ranks++) {
        check_minimum("direct", "whole_below", "0", ranks, ranks > 1 ? 2 : 0);
        check_values("direct", "whole_below", "1000000000", LS_ALL_REDUCE, ranks, 0);
        struct world *world =
            world_run("direct", "whole_below", "1000000000", LS_ALL_REDUCE, ranks, 0, 100);
        check_rounds(world, ranks > 1 ? 3 : 0); // of which two are the rank's own
        check_sent(world, 100 * (ranks - 1));
        world_finish(world);
        for (uint32_t operation = LS_BROADCAST; operation <= LS_REDUCE; operation++) {
            check_values("direct", NULL, NULL, operation, ranks, ranks / 2);
            world = world_run("direct", NULL, NULL, operation, ranks, ranks - 1, 128);
            check_rounds(world, ranks > 1);
            EXPECT(world, world->longest == 128 * (ranks - 1), "%u elements",
                   (unsigned)world->longest);
            world_finish(world);
        }
    }
}

// The host's pairs, which every collective has that offers none of its own, and the one round of direct.
TEST(an_all_to_all_sends_the_minimum_in_every_world)
{
    for (uint32_t ranks = 1; ranks <= WORLDS; ranks++) {
        const bool even = (ranks & (ranks - 1)) == 0;
        const uint64_t pairs = even ? ranks : ranks + 1; // the last is the rank's own
        for (int direct = 0; direct < 2; direct++) {
            struct world *world = world_run(direct ? "direct" : "ring", NULL, NULL, LS_ALL_TO_ALL,
                                            ranks, 0, 128 * ranks);
            check_rounds(world, ranks == 1 ? 0 : direct ? 2 : pairs);
            check_sent(world, 128 * (ranks - 1));
            EXPECT(world,
                   world->drawn[0].scratch_count <= (direct ? 128 * ranks : 2 * UINT64_C(128)),
                   "%u elements of scratch", (unsigned)world->drawn[0].scratch_count);
            world_finish(world);
        }
    }
}

// 5 ranks send 4 buffers each: one round as long as these are fewer bytes than the option says.
TEST(direct_goes_in_one_round_below_its_limit)
{
    static const struct {
        const char *value;
        uint64_t count, rounds;
    } cases[] = {{"1600", 100, 2}, {"1601", 100, 3}, {"1600", 99, 3},
                 {NULL, 1023, 3},  {NULL, 1024, 2},  {"9223372036854775807", 100000, 3}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct world *world = world_run("direct", cases[i].value ? "whole_below" : NULL,
                                        cases[i].value, LS_ALL_REDUCE, 5, 0, cases[i].count);
        check_rounds(world, cases[i].rounds);
        world_finish(world);
    }
}

// ---- Several channels, and segments ----

// Ranks on hosts of 1, 2, 3, ... ranks, of which two share a card; each seventh rank is on the
// first host; the order is that of ranks backwards.
static void make_network(uint32_t ranks, uint32_t *hosts, uint32_t *cards, uint32_t *order)
{
    for (uint32_t rank = 0, host = 0, left = 1; rank < ranks; rank++) {
        order[rank] = ranks - 1 - rank;
        hosts[rank] = rank % 7 == 6 ? 0 : host;
        cards[rank] = hosts[rank] * WORLDS + rank / 2;
        if (--left == 0)
            left = ++host + 1;
    }
}

// The least bytes for every operation with parts, whatever the ranks know of the network.
TEST(rings_of_several_channels_send_the_minimum_on_any_hosts)
{
    static const char *const channels[] = {"1", "2", "3", "8", "0"};
    uint32_t hosts[WORLDS], cards[WORLDS], order[WORLDS];
    const struct world_network networks[] = {
        {NULL, NULL, NULL}, {NULL, NULL, order}, {hosts, NULL, NULL}, {hosts, cards, order}};
    for (uint32_t ranks = 1; ranks <= WORLDS; ranks++) {
        make_network(ranks, hosts, cards, order);
        for (uint32_t operation = LS_ALL_REDUCE; operation <= LS_ALL_GATHER; operation++) {
            const uint64_t halves = operation == LS_ALL_REDUCE ? 2 : 1;
            const uint32_t c = (ranks + operation) % 5, n = (ranks / 5 + operation) % 4;
            const uint64_t counts[] = {0, 1, 64 * (uint64_t)ranks + 7, 24 * 64 * (uint64_t)ranks};
            for (size_t i = (ranks + n) % 3; i < 4; i += 3 - (ranks + n) % 3) {
                struct world *world = world_run_on(&networks[n], "ring", "channels", channels[c],
                                                   operation, ranks, 0, counts[i]);
                check_rounds(world, halves * (ranks - 1));
                if (i == 3)
                    check_sent(world, halves * 24 * 64 * (ranks - 1));
                world_finish(world);
            }
        }
    }
}

// Elements that leave over each card, and those that come, of a world on hosts of 8 ranks with 4
// cards.
static void count_by_card(const struct world *world, uint64_t *out, uint64_t *in)
{
    for (uint32_t rank = 0; rank < world->call.world; rank++)
        for (size_t i = 0; i < world->drawn[rank].step_count; i++) {
            const struct ls_step *step = &world->drawn[rank].steps[i].step;
            if (step->kind != LS_STEP_SEND || step->peer / 8 == rank / 8)
                continue;
            out[world->call.cards[rank]] += step->range.count;
            in[world->call.cards[step->peer]] += step->range.count;
        }
}

// One ring leaves a host over one card; as many channels as cards, or twice as many, use all of
// them alike, and go from a card to one of the same number.
TEST(channels_use_all_cards_of_a_host_alike)
{
    static const struct {
        const char *collective, *value;
        uint32_t used;
    } cases[] = {{"ring", "1", 1}, {"ring", "2", 2}, {"ring", "4", 4}, {"ring", "8", 4},
                 {"ring", "0", 4}, {"tree", "4", 4}, {"tree", "0", 4}};
    uint32_t hosts[32], cards[32];
    const struct world_network network = {hosts, cards, NULL};
    for (uint32_t rank = 0; rank < 32; rank++) {
        hosts[rank] = rank / 8;
        cards[rank] = rank / 2;
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const uint64_t count = UINT64_C(64) * 32 * 1024;
        const bool tree = strcmp(cases[i].collective, "tree") == 0;
        uint64_t out[16] = {0}, in[16] = {0};
        struct world *world = world_run_on(&network, cases[i].collective, "channels",
                                           cases[i].value, LS_ALL_REDUCE, 32, 0, count);
        count_by_card(world, out, in);
        for (uint32_t host = 0; host < 4; host++) {
            uint32_t used = 0;
            for (uint32_t card = 4 * host; card < 4 * host + 4; card++) {
                used += out[card] > 0;
                EXPECT(world,
                       tree || out[card] == 0 || out[card] == 2 * count / 32 * 31 / cases[i].used,
                       "card %u sends %u elements", card, (unsigned)out[card]);
                EXPECT(world, !tree || out[card] == out[4 * host], "card %u sends %u elements",
                       card, (unsigned)out[card]);
                EXPECT(world, out[card] == in[card] || cases[i].used < 4,
                       "card %u sends more than it receives", card);
            }
            EXPECT(world, used == cases[i].used, "host %u uses %u cards", host, used);
        }
        world_finish(world);
    }
}

// On one host of a known order, a second ring goes the other way around.
TEST(two_rings_in_an_order_go_both_ways)
{
    static const uint32_t order[] = {0, 1, 2, 5, 4, 3};
    const struct world_network network = {NULL, NULL, order};
    struct world *world =
        world_run_on(&network, "ring", "channels", "2", LS_ALL_GATHER, 6, 0, 6 * 128);
    for (uint32_t i = 0; i < 6; i++) {
        const struct ls_drawn_schedule *drawn = &world->drawn[order[i]];
        ck_assert_uint_eq(drawn->steps[0].step.peer, order[(i + 1) % 6]);
        ck_assert_uint_eq(drawn->steps[2].step.peer, order[(i + 5) % 6]);
        ck_assert(drawn->steps[2].step.kind == LS_STEP_SEND && drawn->steps[2].round == 0);
    }
    world_finish(world);
}

TEST(trees_of_several_channels_serve_every_root)
{
    static const char *const channels[] = {"2", "3", "0", "9"};
    uint32_t hosts[WORLDS], cards[WORLDS], order[WORLDS];
    const struct world_network networks[] = {
        {NULL, NULL, NULL}, {NULL, NULL, order}, {hosts, NULL, NULL}, {hosts, cards, order}};
    for (uint32_t ranks = 1; ranks <= WORLDS; ranks++) {
        make_network(ranks, hosts, cards, order);
        for (uint32_t i = 0; i < 4; i++) {
            static const uint32_t operations[] = {LS_ALL_REDUCE, LS_BROADCAST, LS_REDUCE};
            const uint64_t counts[] = {0, 1, 64 * 17 + 7, 64 * 50};
            const uint32_t operation = operations[(ranks + i) % 3];
            const uint32_t root = operation == LS_ALL_REDUCE ? 0 : ranks * i / 4;
            const uint64_t count = counts[(ranks / 3 + i) % 4];
            struct world *world =
                world_run_on(&networks[i], "tree", "channels", channels[(ranks + i) % 4], operation,
                             ranks, root, count);
            EXPECT(world,
                   total_sent(world) == (operation == LS_ALL_REDUCE ? 2 : 1) * count * (ranks - 1),
                   "%u elements are sent", (unsigned)total_sent(world));
            world_finish(world);
        }
    }
}

// Segments add rounds, and no bytes.
TEST(two_level_in_segments_sends_the_same_bytes)
{
    static const struct {
        const char *segments;
        uint64_t more; // rounds
    } cases[] = {{"2", 1}, {"65536", 5}};
    uint32_t hosts[WORLDS];
    const struct world_network network = {hosts, NULL, NULL};
    for (uint32_t ranks = 1; ranks <= WORLDS; ranks++) {
        const uint32_t node = 1 + ranks / 3, nodes = (ranks + node - 1) / node;
        for (uint32_t rank = 0; rank < ranks; rank++)
            hosts[rank] = rank / node;
        for (uint32_t operation = LS_ALL_REDUCE; operation <= LS_ALL_GATHER; operation++) {
            const uint64_t halves = operation == LS_ALL_REDUCE ? 2 : 1;
            const uint64_t once = nodes - 1 + (node > 1), count = 64 * 5 * node * nodes;
            for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
                struct world *world = world_run_on(&network, "two-level", "segments",
                                                   cases[i].segments, operation, ranks, 0, count);
                struct world *plain =
                    world_run_on(&network, "two-level", NULL, NULL, operation, ranks, 0, count);
                if (nodes > 1)
                    check_rounds(world, halves * once + cases[i].more);
                EXPECT(world, ranks % node || total_sent(world) == total_sent(plain),
                       "%u elements are sent", (unsigned)total_sent(world));
                world_finish(plain);
                world_finish(world);
            }
            world_finish(world_run_on(&network, "two-level", "segments", "3", operation, ranks, 0,
                                      1 + ranks % 2 * 64 * 200));
        }
    }
}

TEST(hierarchical_copy_in_segments_sends_the_same_bytes)
{
    for (uint32_t ranks = 1; ranks <= WORLDS; ranks++) {
        const uint64_t count = 64 * 3 * ranks;
        struct world *plain =
            world_run("hierarchical-copy", NULL, NULL, LS_ALL_REDUCE, ranks, 0, count);
        struct world *world =
            world_run("hierarchical-copy", "segments", "3", LS_ALL_REDUCE, ranks, 0, count);
        check_rounds(world, plain->drawn[0].round_count + 2);
        for (uint32_t rank = 0; rank < ranks; rank++)
            EXPECT(world, world->sent[rank] == plain->sent[rank], "rank %u", rank);
        world_finish(plain);
        world_finish(world);
        check_values("hierarchical-copy", "segments", "7", LS_ALL_REDUCE, ranks, 0);
    }
}

// As many groups as hosts: then only two ranks of a host have to do with a piece that leaves it.
TEST(hierarchical_copy_takes_its_groups_from_the_hosts)
{
    uint32_t hosts[24];
    const struct world_network network = {hosts, NULL, NULL};
    for (uint32_t rank = 0; rank < 24; rank++)
        hosts[rank] = rank / 8;
    struct world *world =
        world_run_on(&network, "hierarchical-copy", "groups", "0", LS_ALL_REDUCE, 24, 0, 64 * 24);
    uint64_t crossing = 0;
    for (uint32_t rank = 0; rank < 24; rank++)
        for (size_t i = 0; i < world->drawn[rank].step_count; i++) {
            const struct ls_step *step = &world->drawn[rank].steps[i].step;
            crossing +=
                step->kind == LS_STEP_SEND && step->peer / 8 != rank / 8 ? step->range.count : 0;
        }
    ck_assert_uint_eq(crossing, 2 * 2 * 64 * 24);
    world_finish(world);
}

TEST(two_level_serves_nodes_of_any_size)
{
    for (uint32_t ranks = 1; ranks <= WORLDS; ranks++) {
        for (uint32_t node = 1; node <= ranks; node++) {
            const uint64_t nodes = (ranks + node - 1) / node;
            char text[16];
            snprintf(text, sizeof(text), "%u", node);
            if (ranks % node == 0)
                check_minimum("two-level", "node", text, ranks,
                              2 * (nodes - 1) + (node > 1 ? 2 : 0));
            for (uint32_t operation = LS_ALL_REDUCE; operation <= LS_ALL_GATHER; operation++)
                world_finish(world_run("two-level", "node", text, operation, ranks, 0, 5000));
        }
        check_values("two-level", NULL, NULL, LS_ALL_REDUCE, ranks, 0);
    }
}

// Of all-reduce only n / g elements of each rank go to other nodes, once around and once back.
TEST(two_level_keeps_to_its_node_what_need_not_leave_it)
{
    for (uint32_t operation = LS_ALL_REDUCE; operation <= LS_ALL_GATHER; operation++) {
        struct world *world = world_run("two-level", "node", "8", operation, 32, 0, 64 * 32);
        for (uint32_t rank = 0; rank < 32; rank++) {
            uint64_t out = 0;
            for (size_t i = 0; i < world->drawn[rank].step_count; i++) {
                const struct ls_step *step = &world->drawn[rank].steps[i].step;
                if (step->kind == LS_STEP_SEND && step->peer / 8 != rank / 8)
                    out += step->range.count;
            }
            ck_assert_uint_eq(out, (operation == LS_ALL_REDUCE ? 2u : 1u) * 64 * 32 / 8 * 3 / 4);
        }
        world_finish(world);
    }
}

// Ranks with children in one tree send n and n / 2 for each child; none has more than two.
static void check_tree(uint32_t ranks, const char *text, uint64_t segments)
{
    const uint64_t count = 2 * 64 * 12, height = floor_log2(ranks);
    struct world *world = world_run("tree", "segments", text, LS_ALL_REDUCE, ranks, 0, count);
    uint64_t total = 0;
    check_rounds(world, ranks > 1 ? 2 * height + segments - 1 : 0);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        total += world->sent[rank];
        EXPECT(world, world->sent[rank] <= 2 * count && world->received[rank] <= 2 * count,
               "rank %u sends more than two buffers", rank);
    }
    EXPECT(world, total == 2 * count * (ranks - 1), "%u elements are sent", (unsigned)total);
    if (segments == 1 && ranks > 1 && (ranks & (ranks - 1)) == 0) {
        EXPECT(world, world->longest == (2 * height - 1) * count, "the longest way is %u",
               (unsigned)world->longest);
        EXPECT(world, world->most_reduced == (2 * height - 1) * count / 2, "reduced: %u",
               (unsigned)world->most_reduced);
    }
    world_finish(world);
}

TEST(the_double_tree_has_logarithmic_rounds_and_sends_two_buffers_at_most)
{
    for (uint32_t ranks = 1; ranks <= WORLDS; ranks++) {
        check_tree(ranks, "1", 1);
        check_tree(ranks, "6", 6);
        check_values("tree", "segments", "3", LS_ALL_REDUCE, ranks, 0);
        check_values("tree", NULL, NULL, LS_ALL_REDUCE, ranks, 0);
    }
}

TEST(the_double_tree_serves_every_root)
{
    const uint64_t count = 2 * 64 * 12;
    for (uint32_t ranks = 1; ranks <= WORLDS; ranks++) {
        for (uint32_t root = 0; root < ranks; root += 1 + ranks / 8) {
            for (uint32_t operation = LS_BROADCAST; operation <= LS_REDUCE; operation++) {
                check_values("tree", "segments", "5", operation, ranks, root);
                struct world *world =
                    world_run("tree", "segments", "4", operation, ranks, root, count);
                check_rounds(world, ranks > 1 ? floor_log2(ranks - 1) + 4 : 0);
                for (uint32_t rank = 0; rank < ranks; rank++) {
                    const uint64_t leaving =
                        operation == LS_REDUCE ? world->sent[rank] : world->received[rank];
                    const uint64_t coming =
                        operation == LS_REDUCE ? world->received[rank] : world->sent[rank];
                    EXPECT(world, leaving == (rank == root ? 0 : count), "rank %u", rank);
                    EXPECT(world,
                           coming <= count && (rank != root || ranks == 1 || coming == count),
                           "rank %u", rank);
                }
                world_finish(world);
            }
        }
    }
}

// sqrt((rounds - 1) x bytes / 64 KiB): 16 ranks have 8 rounds; 4 MiB are 64 times 64 KiB; no more than there are
// blocks, and none of a small buffer.
TEST(the_double_tree_cuts_by_size)
{
    static const struct {
        const char *value;
        uint64_t count, segments;
    } cases[] = {{NULL, 1, 1},    {NULL, 1 << 10, 1}, {NULL, 1 << 20, 21},
                 {"65536", 0, 1}, {"9", 256, 3},      {"65536", 1 << 16, 513}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct world *world = world_run("tree", cases[i].value ? "segments" : NULL, cases[i].value,
                                        LS_ALL_REDUCE, 16, 0, cases[i].count);
        check_rounds(world, 8 + cases[i].segments - 1);
        world_finish(world);
    }
}

TEST(options_that_do_not_fit_are_refused_in_one_line)
{
    static const struct {
        const char *collective, *option, *value, *message;
    } cases[] = {
        {"tree", "segments", "-1",
         "segments=-1 is out of range; choose 1 to 65536, or 0 to leave it to the size"},
        {"tree", "segments", "65537",
         "segments=65537 is out of range; choose 1 to 65536, or 0 to leave it to the size"},
        {"torus", "rows", "5",
         "rows=5 does not divide 12 ranks; choose a divisor, or 0 for the one nearest to "
         "the square root"},
        {"torus", "rows", "-3",
         "rows=-3 does not divide 12 ranks; choose a divisor, or 0 for the one nearest to "
         "the square root"},
        {"torus", "rows", "99999999999999999999", NULL},
        {"direct", "whole_below", "-1", "whole_below=-1 is no number of bytes; choose 0 or more"},
        {"two-level", "node", "13",
         "node=13 does not fit 12 ranks; choose 1 to 12, or 0 for the ranks of a host"},
        {"two-level", "node", "-1", NULL},
        {"two-level", "segments", "-1",
         "segments=-1 does not fit 12 ranks; choose 1 to 65536, or 0 to leave it to the size"},
        {"two-level", "segments", "65537", NULL},
        {"ring", "channels", "-1",
         "channels=-1 is out of range; choose 1 to 64, or 0 to leave it to the network cards and "
         "the size"},
        {"ring", "channels", "65", NULL},
        {"tree", "channels", "65",
         "channels=65 is out of range; choose 1 to 64, or 0 to leave it to the size"},
        {"hierarchical-copy", "segments", "0", "segments=0 is out of range; choose 1 to 65536"},
        {"hierarchical-copy", "groups", "0",
         "groups=0 does not fit 12 ranks; choose 1 to 12, or 0 where hosts are known"},
        {"two-level", "node", "99999999999999999999", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct world world = {.option = cases[i].option, .value = cases[i].value};
        struct ls_drawn_schedule drawn;
        char name[64];
        snprintf(name, sizeof(name), "collective-%s", cases[i].collective);
        const struct ls_plugin *plugin = test_plugin_open(name);
        ck_assert_ptr_nonnull(plugin);
        test_host_init(&world.host, plugin);
        world.host.host.option = world_option;
        for (uint32_t rank = 0; rank < 12; rank++) {
            world.call = (struct ls_collective_call){.struct_size = sizeof(world.call),
                                                     .operation = LS_ALL_REDUCE,
                                                     .rank = rank,
                                                     .world = 12,
                                                     .count = 1000,
                                                     .element_bytes = 4,
                                                     .host = &world.host.host};
            ck_assert_int_eq(ls_schedule_draw(plugin->interface, name, &world.call, &drawn),
                             LS_USAGE);
        }
        if (cases[i].message)
            ck_assert_str_eq(world.host.message, cases[i].message);
        ck_assert(world.host.message[0] && !strchr(world.host.message, '\n'));
    }
}

// Of a world of 65,536, a rank is drawn from its own few steps.
TEST(halving_doubling_is_drawn_quickly_in_a_large_world)
{
    static const uint32_t worlds[] = {65536, 65535, 65521, 4096 * 9};
    struct test_host host;
    const struct ls_plugin *plugin = test_plugin_open("collective-halving-doubling");
    ck_assert_ptr_nonnull(plugin);
    test_host_init(&host, plugin);
    for (size_t i = 0; i < sizeof(worlds) / sizeof(*worlds); i++) {
        for (uint32_t rank = 0; rank < worlds[i]; rank += 97) {
            const struct ls_collective_call call = {.struct_size = sizeof(call),
                                                    .operation = LS_ALL_REDUCE,
                                                    .rank = rank,
                                                    .world = worlds[i],
                                                    .count = 64 * 65536,
                                                    .element_bytes = 4,
                                                    .host = &host.host};
            struct ls_drawn_schedule drawn;
            ck_assert_int_eq(ls_schedule_draw(plugin->interface, "test", &call, &drawn), LS_OK);
            ck_assert_uint_eq(drawn.round_count, 2 * halving_rounds(worlds[i]));
            ck_assert_uint_le(drawn.step_count, 128);
            ls_drawn_schedule_finish(&drawn);
        }
    }
}

// Ranks that share a host are a node, if there are several hosts.
TEST(two_level_takes_its_nodes_from_the_hosts)
{
    static const struct {
        uint32_t ranks, per_host, rounds;
    } cases[] = {{16, 0, 8}, {16, 16, 8},  {16, 8, 4}, {16, 2, 16},
                 {13, 8, 4}, {13, 13, 24}, {13, 0, 24}};
    struct test_host host;
    const struct ls_plugin *plugin = test_plugin_open("collective-two-level");
    ck_assert_ptr_nonnull(plugin);
    test_host_init(&host, plugin);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint32_t *hosts;
        ck_assert_int_eq(ls_uniform_hosts(cases[i].ranks, cases[i].per_host, &hosts), LS_OK);
        const struct ls_collective_call call = {.struct_size = sizeof(call),
                                                .operation = LS_ALL_REDUCE,
                                                .world = cases[i].ranks,
                                                .hosts = hosts,
                                                .count = 10000,
                                                .element_bytes = 4,
                                                .host = &host.host};
        struct ls_drawn_schedule drawn;
        ck_assert_int_eq(ls_schedule_draw(plugin->interface, "test", &call, &drawn), LS_OK);
        ck_assert_uint_eq(drawn.round_count, cases[i].rounds);
        ls_drawn_schedule_finish(&drawn);
        free(hosts);
    }
}

static const char *node_of_two(const struct ls_host *host, const char *name)
{
    return strcmp(name, "node") == 0 ? "2" : test_host_option(host, name);
}

// Hosts of unequally many ranks are refused by name, unless the user says how the ranks are cut.
LOOP_TEST(two_level_refuses_uneven_hosts, 0, 3)
{
    static const uint32_t hosts[][6] = {{0, 0, 1, 1, 1, 2}, {0, 0, 0, 1, 1, 2}, {0, 1, 0, 1, 0, 1}};
    struct test_host host;
    const struct ls_plugin *plugin = test_plugin_open("collective-two-level");
    ck_assert_ptr_nonnull(plugin);
    test_host_init(&host, plugin);
    const struct ls_collective_call call = {.struct_size = sizeof(call),
                                            .operation = LS_ALL_REDUCE,
                                            .world = 6,
                                            .hosts = hosts[_i],
                                            .count = 10000,
                                            .element_bytes = 4,
                                            .host = &host.host};
    struct ls_drawn_schedule drawn;
    ck_assert_int_eq(ls_schedule_draw(plugin->interface, "test", &call, &drawn), LS_UNSUPPORTED);
    ck_assert_msg(strstr(host.message, "unequally many ranks") && strstr(host.message, "node=N"),
                  "%s", host.message);
    host.host.option = node_of_two;
    ck_assert_int_eq(ls_schedule_draw(plugin->interface, "test", &call, &drawn), LS_OK);
    ls_drawn_schedule_finish(&drawn);
}

TEST_SECONDS(300);
