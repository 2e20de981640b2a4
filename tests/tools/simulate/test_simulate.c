// SPDX-License-Identifier: Apache-2.0
// Simulated times equal the closed forms where there are some, and follow the schedule and the network where not.
#include "tests/tools/simulate/simulation.h"

#include <math.h>

// Chunks are whole blocks of elements, so the largest may be a little larger than n / p.
#define CLOSED_FORM_TOLERANCE 0.01
#define EXACT 1e-9

#define COUNT (UINT64_C(16) << 20) // elements: 64 MiB
#define BYTES (4.0 * COUNT)

static const double alpha = 1e-6, beta = 1e-10, gamma_ = 5e-11;

// Seconds of an all-reduce of COUNT elements by a plugin; NaN: it is not built.
static double plugin_seconds(const char *name, uint32_t world, const char *option,
                             const char *value)
{
    const struct ls_plugin *plugin = test_plugin_open(name);
    struct test_option_host host;
    const struct ls_network network = test_flat_network();
    if (!plugin)
        return NAN;
    test_option_host_init(&host, plugin, option, value);
    const struct ls_simulation simulation =
        test_simulation(plugin->interface, &host.test.host, &network, world, COUNT);
    return test_simulate(&simulation).seconds;
}

static void check_closed_form(double found, double wanted)
{
    if (!isnan(found))
        test_near(found, wanted, CLOSED_FORM_TOLERANCE);
}

// ---- Closed forms ----

TEST(ring_equals_its_closed_form)
{
    static const uint32_t worlds[] = {1, 2, 3, 4, 7, 8, 13, 64, 100, 512};
    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
        const double p = worlds[i];
        check_closed_form(plugin_seconds("collective-ring", worlds[i], NULL, NULL),
                          2 * (p - 1) * (alpha + BYTES / p * beta) + (p - 1) * BYTES / p * gamma_);
    }
}

TEST(halving_doubling_equals_its_closed_form)
{
    for (uint32_t world = 2; world <= 1024; world *= 2) {
        const double p = world;
        check_closed_form(plugin_seconds("collective-halving-doubling", world, NULL, NULL),
                          2 * log2(p) * alpha + 2 * BYTES * (p - 1) / p * beta +
                              BYTES * (p - 1) / p * gamma_);
    }
}

TEST(torus_equals_its_closed_form)
{
    static const double sides[] = {2, 4, 8, 16};
    for (size_t i = 0; i < 4; i++) {
        const double x = sides[i], y = sides[i], p = x * y;
        check_closed_form(plugin_seconds("collective-torus", (uint32_t)p, NULL, NULL),
                          (2 * (x - 1) + 2 * (y - 1)) * alpha +
                              (2 * BYTES * (x - 1) / x + 2 * BYTES / x * (y - 1) / y) * beta +
                              BYTES * (p - 1) / p * gamma_);
    }
}

TEST(direct_equals_its_closed_form)
{
    static const uint32_t worlds[] = {2, 5, 16, 64};
    for (size_t i = 0; i < 4; i++) {
        const double p = worlds[i];
        check_closed_form(plugin_seconds("collective-direct", worlds[i], "whole_below", "0"),
                          2 * alpha + 2 * BYTES * (p - 1) / p * beta +
                              BYTES * (p - 1) / p * gamma_);
    }
}

// The trees of the plugin: each round but two brings a rank two halves.
TEST(tree_of_one_segment_equals_its_closed_form)
{
    for (uint32_t world = 2; world <= 256; world *= 2) {
        const double h = log2(world);
        check_closed_form(plugin_seconds("collective-tree", world, "segments", "1"),
                          2 * h * alpha + (2 * h - 1) * BYTES * beta + (h - 0.5) * BYTES * gamma_);
    }
}

// Binomial reduce: in each round the upper half of those who remain sends to the lower one.
static int32_t binomial(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const struct ls_range all = ls_data_range(0, call->count);
    for (uint32_t bit = call->world / 2; bit; bit /= 2) {
        if (call->rank >= bit && call->rank < 2 * bit)
            ls_send(schedule, call->rank - bit, all);
        else if (call->rank < bit)
            ls_receive_and_reduce(schedule, call->rank + bit, all);
        ls_end_round(schedule);
    }
    return LS_OK;
}

TEST(binomial_reduce_equals_its_closed_form)
{
    const struct ls_network network = test_flat_network();
    for (uint32_t world = 2; world <= 64; world *= 2)
        test_near(test_seconds(binomial, &network, world, 1000000),
                  log2(world) * (alpha + 4e6 * (beta + gamma_)), EXACT);
}

// ---- Times come from the schedule ----

static uint32_t extra_messages; // from rank 0 to rank 1, after the first

static int32_t chain(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const struct ls_range all = ls_data_range(0, call->count);
    if (call->rank > 0)
        ls_receive(schedule, call->rank - 1, all);
    for (uint32_t i = 0; call->rank == 1 && i < extra_messages; i++) {
        ls_end_round(schedule);
        ls_receive(schedule, 0, all);
    }
    ls_end_round(schedule);
    for (uint32_t i = 0; call->rank == 0 && i < extra_messages; i++) {
        ls_send(schedule, 1, all);
        ls_end_round(schedule);
    }
    if (call->rank + 1 < call->world)
        ls_send(schedule, call->rank + 1, all);
    return LS_OK;
}

TEST(a_doubled_message_takes_its_time)
{
    const struct ls_network network = test_flat_network();
    const double message = alpha + 4000 * beta;
    extra_messages = 0;
    test_near(test_seconds(chain, &network, 4, 1000), 3 * message, EXACT);
    extra_messages =
        1; // receives of one range follow each other, so the message is there twice, one after the other
    test_near(test_seconds(chain, &network, 4, 1000), 4 * message, EXACT);
}

// Ring all-reduce in which one message may go twice.
static uint32_t doubled_round = UINT32_MAX;

static int32_t ring_with_double(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const uint32_t p = call->world, r = call->rank, next = (r + 1) % p, previous = (r + p - 1) % p;
    for (uint32_t s = 0; s + 1 < 2 * p - 1; s++) {
        const struct ls_range out = ls_chunk(call, r + 2 * p - 1 - s);
        const struct ls_range in = ls_chunk(call, r + 2 * p - 2 - s);
        ls_send(schedule, next, out);
        if (s < p - 1)
            ls_receive_and_reduce(schedule, previous, in);
        else
            ls_receive(schedule, previous, in);
        ls_end_round(schedule);
        if (s == doubled_round && r == 0)
            ls_send(schedule, next, out);
        if (s == doubled_round && r == 1)
            ls_receive(schedule, previous, in);
        ls_end_round(schedule);
    }
    return LS_OK;
}

TEST(one_doubled_message_of_a_ring_delays_all)
{
    const struct ls_network network = test_flat_network();
    doubled_round = UINT32_MAX;
    const double before = test_seconds(ring_with_double, &network, 8, COUNT);
    check_closed_form(before, 14 * (alpha + BYTES / 8 * beta) + 7 * BYTES / 8 * gamma_);
    for (doubled_round = 0; doubled_round < 14; doubled_round++) {
        const double after = test_seconds(ring_with_double, &network, 8, COUNT);
        ck_assert_double_gt(after, before + 0.99 * BYTES / 8 * beta);
        ck_assert_double_lt(after, before + 3 * (alpha + BYTES / 8 * beta));
    }
}

// ---- Sharing ----

// Ranks below half of the world send all to the rank half a world further on, the first ones `fan` at once to rank 0.
static uint32_t fan;

static int32_t fan_in(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const struct ls_range all = ls_data_range(0, call->count);
    if (call->rank >= 1 && call->rank <= fan)
        ls_send(schedule, 0, all);
    for (uint32_t i = 1; call->rank == 0 && i <= fan; i++)
        ls_receive_and_reduce(schedule, i, all);
    return LS_OK;
}

TEST(messages_share_a_port_and_are_reduced_one_after_the_other)
{
    struct ls_network network = test_flat_network();
    for (fan = 1; fan <= 7; fan++)
        test_near(test_seconds(fan_in, &network, 8, 1000000), alpha + fan * 4e6 * (beta + gamma_),
                  EXACT);
    network.overhead = 3e-6; // rank 0 takes one message after the other
    network.link.bandwidth = 1e30;
    network.reduction = network.copy = 0;
    for (fan = 1; fan <= 7; fan++)
        test_near(test_seconds(fan_in, &network, 8, 1000), alpha + fan * 3e-6, EXACT);
}

// All comes after the launch, each message has the protocol's latency, and its bytes move at the
// protocol's efficiency.
TEST(launch_and_protocol_come_into_the_closed_form)
{
    struct ls_network network = test_flat_network();
    network.launch = 20e-6;
    network.protocols[0] = (struct ls_protocol){.below = 600e3, .latency = 2e-6};
    network.protocols[1] = (struct ls_protocol){
        .below = INFINITY, .latency = 5e-6, .points = {{1, 5e9}}, .point_count = 1};
    network.protocol_count = 2;
    fan = 3;
    test_near(test_seconds(fan_in, &network, 8, 1000000), // 500,000 bytes a rank
              20e-6 + alpha + 2e-6 + 3 * 4e6 * (beta + gamma_), EXACT);
    test_near(test_seconds(fan_in, &network, 4, 1000000),
              20e-6 + alpha + 5e-6 + 3 * 4e6 * (2 * beta + gamma_), EXACT);
    fan = 0; // nothing is sent, nothing is launched
    ck_assert(test_seconds(fan_in, &network, 8, 1000000) == 0);
}

// Every rank of the first half sends to its partner in the second.
static int32_t halves(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const uint32_t half = call->world / 2;
    if (call->rank < half)
        ls_send(schedule, call->rank + half, ls_data_range(0, call->count));
    else
        ls_receive(schedule, call->rank - half, ls_data_range(0, call->count));
    return LS_OK;
}

TEST(cards_and_uplinks_are_shared)
{
    struct ls_network network = test_flat_network();
    network.topology = LS_TOPOLOGY_NODES;
    network.inside = (struct ls_link_speed){1e-7, 100e9};
    network.ranks_per_node = 4;
    for (network.cards_per_node = 1; network.cards_per_node <= 4; network.cards_per_node *= 2)
        test_near(test_seconds(halves, &network, 8, 1000000),
                  alpha + 4e6 * beta * 4 / network.cards_per_node, EXACT);
    // Two nodes under a leaf, four messages over an uplink of a third of two cards.
    network.topology = LS_TOPOLOGY_FAT_TREE;
    network.cards_per_node = 2;
    network.ranks_per_node = 2;
    network.layer_count = 1;
    network.layers[0] = (struct ls_switch_layer){2, 3, 5e-7};
    test_near(test_seconds(halves, &network, 8, 1000000), alpha + 5e-7 + 3 * 4e6 * beta, EXACT);
    // Inside a node.
    network.ranks_per_node = network.cards_per_node = 8;
    test_near(test_seconds(halves, &network, 8, 1000000), 1e-7 + 4e6 / 100e9, EXACT);
}

static int32_t to_opposite(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const uint32_t to = (call->rank + call->world / 2) % call->world;
    ls_send(schedule, to, ls_data_range(0, call->count / 2));
    ls_receive(schedule, to, ls_data_range(call->count / 2, call->count / 2));
    return LS_OK;
}

TEST(links_of_a_torus_are_shared_on_the_way)
{
    // A line around: half of it is four hops, all upwards, so each link carries four messages at a time.
    struct ls_network network = test_flat_network();
    network.topology = LS_TOPOLOGY_TORUS;
    network.dimensions = 2;
    network.sides[0] = 8;
    network.sides[1] = 1;
    test_near(test_seconds(to_opposite, &network, 8, 2000000), 4 * alpha + 4 * 4e6 * beta, EXACT);
}

// A flow that ends early leaves its share to the others: 1, 2 and 3 parts from one port.
static int32_t unequal(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const uint64_t part = call->count / 6;
    for (uint32_t i = 1; call->rank == 0 && i <= 3; i++)
        ls_send(schedule, i, ls_data_range(0, i * part));
    if (call->rank)
        ls_receive(schedule, 0, ls_data_range(0, call->rank * part));
    return LS_OK;
}

TEST(bandwidth_is_never_lost_while_a_port_has_work)
{
    const struct ls_network network = test_flat_network();
    test_near(test_seconds(unequal, &network, 4, 6000000), alpha + 24e6 * beta, EXACT);
}

#define SEGMENTS 10

static int32_t pipeline(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    for (uint32_t i = 0; i < SEGMENTS; i++) {
        const struct ls_range part = ls_part(ls_data_range(0, call->count), i, SEGMENTS);
        if (call->rank > 0)
            ls_receive(schedule, call->rank - 1, part);
        ls_end_round(schedule);
        if (call->rank + 1 < call->world)
            ls_send(schedule, call->rank + 1, part);
    }
    return LS_OK;
}

TEST(messages_of_a_pair_move_one_after_the_other)
{
    const struct ls_network network = test_flat_network();
    const uint64_t count = 640 * SEGMENTS;
    const double segment = 4.0 * 640 * beta;
    test_near(test_seconds(pipeline, &network, 5, count), 4 * alpha + (4 + SEGMENTS - 1) * segment,
              EXACT);
}

// ---- Stragglers and jitter ----

static double ring_seconds(const struct ls_straggler *straggler, double jitter, uint64_t seed)
{
    const struct ls_network network = test_flat_network();
    const struct ls_collective_interface interface = test_interface(ring_with_double);
    struct ls_simulation simulation = test_simulation(&interface, NULL, &network, 8, COUNT);
    doubled_round = UINT32_MAX;
    simulation.stragglers = straggler;
    simulation.straggler_count = straggler != NULL;
    simulation.jitter = jitter;
    simulation.seed = seed;
    return test_simulate(&simulation).seconds;
}

TEST(a_slow_rank_slows_the_ring_and_jitter_follows_the_seed)
{
    const double plain = ring_seconds(NULL, 0, 0);
    ck_assert(ring_seconds(NULL, 0, 1) == plain);
    const struct ls_straggler none = {3, 1}, slow = {3, 4};
    ck_assert(ring_seconds(&none, 0, 0) == plain);
    const double slowed = ring_seconds(&slow, 0, 0);
    ck_assert_double_gt(slowed, 2 * plain);
    ck_assert_double_lt(slowed, 4.01 * plain);
    const double jittered = ring_seconds(NULL, 0.5, 7);
    ck_assert_double_gt(jittered, 1.05 * plain);
    ck_assert_double_lt(jittered, 1.5 * plain);
    ck_assert(ring_seconds(NULL, 0.5, 7) == jittered);
    ck_assert(ring_seconds(NULL, 0.5, 8) != jittered);
}

TEST(results_count_what_the_schedule_sends)
{
    const struct ls_network network = test_flat_network();
    const struct ls_collective_interface interface = test_interface(ring_with_double);
    const struct ls_simulation simulation = test_simulation(&interface, NULL, &network, 8, COUNT);
    doubled_round = UINT32_MAX;
    const struct ls_simulation_result result = test_simulate(&simulation);
    ck_assert_uint_eq(result.messages, 8 * 14);
    ck_assert_uint_eq(result.steps, 2 * 8 * 14);
    ck_assert_uint_eq(result.sent_bytes, 14 * (uint64_t)BYTES);
    ck_assert_uint_eq(result.rounds, 28);
    test_near(result.bound_seconds, alpha + 2 * BYTES * 7 / 8 * beta, EXACT);
    test_near(result.busiest_share, 2 * BYTES * 7 / 8 * beta / result.seconds, EXACT);
    ck_assert_str_eq(result.busiest, "send port of rank 0");
}

TEST(nothing_takes_no_time)
{
    const struct ls_network network = test_flat_network();
    ck_assert(test_seconds(ring_with_double, &network, 1, COUNT) == 0);
    ck_assert(test_seconds(ring_with_double, &network, 5, 0) == 0);
    ck_assert_double_gt(test_seconds(ring_with_double, &network, 5, 1), 0);
}

// ---- Broken schedules ----

static void check_broken(test_build_schedule build_schedule, const char *words)
{
    const struct ls_network network = test_flat_network();
    const struct ls_collective_interface interface = test_interface(build_schedule);
    const struct ls_simulation simulation = test_simulation(&interface, NULL, &network, 3, 600);
    struct ls_simulation_result result = {.seconds = 42};
    test_log_begin();
    ck_assert_int_eq(ls_simulate(&simulation, &result), LS_FAILED);
    ls_log_set_writer(NULL, NULL);
    ck_assert_msg(strstr(test_log.text, words) != NULL, "%s: %s", words, test_log.text);
    ck_assert_ptr_eq(strchr(test_log.text, '\n') + 1,
                     test_log.text + strlen(test_log.text)); // one line
    ck_assert(result.seconds == 42);
}

static int32_t all_wait(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const uint32_t next = (call->rank + 1) % 3, previous = (call->rank + 2) % 3;
    ls_receive(schedule, previous, ls_data_range(64, 32));
    ls_end_round(schedule);
    ls_send(schedule, next, ls_data_range(64, 32));
    return LS_OK;
}

static int32_t unmatched(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    if (call->rank == 1)
        ls_send(schedule, 2, ls_data_range(0, 1));
    return LS_OK;
}

static int32_t never_sent(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    if (call->rank < 2)
        ls_send(schedule, 2, ls_data_range(0, 1));
    else
        for (uint32_t i = 0; i < 3; i++)
            ls_receive(schedule, i % 2, ls_data_range(i, 1));
    return LS_OK;
}

static int32_t unequal_lengths(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    if (call->rank == 0)
        ls_send(schedule, 2, ls_data_range(0, 10));
    else if (call->rank == 2)
        ls_receive(schedule, 0, ls_data_range(0, 11));
    return LS_OK;
}

static int32_t endless(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    for (;;)
        ls_send(schedule, (call->rank + 1) % 3, ls_data_range(0, 1));
    return LS_OK;
}

static int32_t endless_rounds(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    for (;;)
        ls_end_round(schedule);
    return LS_OK;
}

static int32_t peer_outside(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    ls_end_round(schedule);
    ls_send(schedule, call->rank + 1, ls_data_range(0, 1));
    return LS_OK;
}

static int32_t range_outside(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    ls_receive(schedule, (call->rank + 1) % 3, ls_data_range(599, 2));
    return LS_OK;
}

static int32_t read_and_written(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    ls_send(schedule, (call->rank + 1) % 3, ls_data_range(0, 100));
    ls_receive(schedule, (call->rank + 2) % 3, ls_data_range(99, 100));
    return LS_OK;
}

static int32_t written_twice(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    ls_receive(schedule, (call->rank + 1) % 3, ls_data_range(0, 100));
    ls_receive_and_reduce(schedule, (call->rank + 2) % 3, ls_data_range(0, 100));
    return LS_OK;
}

TEST(broken_schedules_are_refused_in_one_line)
{
    check_broken(all_wait, "rank 0 of 3, round 0: receive of 32 elements from 64 of the data "
                           "buffer, peer 2, never ends");
    check_broken(unmatched, "rank 1 sends 1 message to rank 2, which receives 0");
    check_broken(never_sent, "rank 0 sends 1 message to rank 2, which receives 2");
    check_broken(unequal_lengths, "40 bytes where it is sent and 44 where it is received");
    check_broken(endless, "never ends, or is larger than memory");
    check_broken(endless_rounds, "never ends, or is larger than memory");
    check_broken(peer_outside, "rank 2 of 3, round 1: send of 1 elements from 0 of the data "
                               "buffer, peer 3: the peer is no other rank");
    check_broken(range_outside, "outside its buffer");
    check_broken(read_and_written, "same round");
    check_broken(written_twice, "two steps of one round write it");
}

TEST(a_world_too_large_for_the_memory_is_refused)
{
    const struct ls_network network = test_flat_network();
    const struct ls_collective_interface interface = test_interface(ring_with_double);
    struct ls_simulation simulation = test_simulation(&interface, NULL, &network, 512, COUNT);
    struct ls_simulation_result result;
    doubled_round = UINT32_MAX;
    simulation.memory_limit = 1 << 20;
    test_log_begin();
    ck_assert_int_eq(ls_simulate(&simulation, &result), LS_USAGE);
    ls_log_set_writer(NULL, NULL);
    ck_assert_ptr_nonnull(strstr(test_log.text, "choose a smaller world"));
}

TEST_SECONDS(300);
