// SPDX-License-Identifier: Apache-2.0
// auto: each call gets the schedule of the candidate that is fastest on the network.
#include "core/collective/auto.h"
#include "core/collective/schedule.h"
#include "tests/core/collective/simulation.h"
#include "tests/support/suite.h"

#include <math.h>

#define CANDIDATES 4

static const char *const names[CANDIDATES] = {"direct", "halving-doubling", "ring", "tree"};
static struct test_host hosts[CANDIDATES];
static struct ls_candidate candidates[CANDIDATES];
static struct test_host auto_host;
static const struct ls_plugin auto_plugin = {LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE), .name = "auto"};

static bool open_candidates(void)
{
    for (int i = 0; i < CANDIDATES; i++) {
        char name[64];
        snprintf(name, sizeof(name), "collective-%s", names[i]);
        const struct ls_plugin *plugin = test_plugin_open(name);
        if (!plugin)
            return false;
        test_host_init(&hosts[i], plugin);
        candidates[i] = (struct ls_candidate){.plugin = plugin, .host = &hosts[i].host};
    }
    test_host_init(&auto_host, NULL);
    return true;
}

static struct ls_auto *create(const struct ls_network *network)
{
    struct ls_auto *choice = NULL;
    ck_assert_int_eq(
        ls_auto_create(&auto_plugin, &auto_host.host, candidates, CANDIDATES, network, &choice),
        LS_OK);
    return choice;
}

static struct ls_collective_call call_of(const struct ls_auto *choice, uint32_t operation,
                                         uint32_t world, uint64_t count)
{
    return (struct ls_collective_call){.struct_size = sizeof(struct ls_collective_call),
                                       .operation = operation,
                                       .world = world,
                                       .count = count,
                                       .element_bytes = 4,
                                       .host = ls_auto_host(choice)};
}

static const char *chosen(struct ls_auto *choice, uint32_t operation, uint32_t world,
                          uint64_t count)
{
    const struct ls_collective_call call = call_of(choice, operation, world, count);
    const char *name = NULL;
    ck_assert_int_eq(ls_auto_choose(choice, &call, &name), LS_OK);
    return name;
}

static double time_of(int candidate, const struct ls_network *network, uint32_t operation,
                      uint32_t world, uint64_t count)
{
    struct ls_simulation simulation = test_simulation(
        candidates[candidate].plugin->interface, candidates[candidate].host, network, world, count);
    simulation.operation = operation;
    return test_simulate(&simulation).seconds;
}

// Neighbours only: what goes far shares links.
static struct ls_network torus(void)
{
    struct ls_network network = test_flat_network();
    network.topology = LS_TOPOLOGY_TORUS;
    network.dimensions = 2;
    return network;
}

START_TEST(the_choice_is_the_least_simulated_time)
{
    static const uint32_t operations[] = {LS_ALL_REDUCE, LS_REDUCE_SCATTER, LS_BROADCAST};
    static const uint32_t worlds[] = {1, 2, 3, 4, 7, 8, 16};
    static const uint64_t counts[] = {0, 1, 17, 1000, 65537, 1 << 20, 1 << 24};
    const struct ls_network network = torus();
    struct ls_auto *choice = create(&network);
    int differ = 0;
    const char *last = "";
    for (size_t o = 0; o < 3; o++)
        for (size_t w = 0; w < sizeof(worlds) / sizeof(*worlds); w++)
            for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
                const char *name = chosen(choice, operations[o], worlds[w], counts[c]);
                int best = 0;
                double least = INFINITY;
                for (int i = 0; i < CANDIDATES; i++) {
                    const double time = time_of(i, &network, operations[o], worlds[w], counts[c]);
                    if (time < least) {
                        least = time;
                        best = i;
                    }
                }
                ck_assert_str_eq(name, names[best]);
                differ += strcmp(last, name) != 0;
                last = name;
            }
    ck_assert_int_gt(differ, 3); // it is a choice: not one of them wins everywhere
    ls_auto_destroy(choice);
}
END_TEST

START_TEST(small_and_large_buffers_get_different_ones)
{
    const struct ls_network network = torus();
    struct ls_auto *choice = create(&network);
    ck_assert_str_eq(chosen(choice, LS_ALL_REDUCE, 64, 2), "direct");
    ck_assert_str_eq(chosen(choice, LS_ALL_REDUCE, 64, 1 << 24), "ring");
    ls_auto_destroy(choice);
}
END_TEST

static bool same_schedule(const struct ls_drawn_schedule *a, const struct ls_drawn_schedule *b)
{
    if (a->step_count != b->step_count || a->round_count != b->round_count ||
        a->scratch_count != b->scratch_count)
        return false;
    for (size_t i = 0; i < a->step_count; i++)
        if (a->steps[i].round != b->steps[i].round ||
            memcmp(&a->steps[i].step, &b->steps[i].step, sizeof(struct ls_step)) != 0)
            return false;
    return true;
}

START_TEST(every_rank_gets_the_schedule_of_the_chosen_one)
{
    const struct ls_network network = test_flat_network();
    struct ls_auto *choice = create(&network);
    for (uint64_t count = 1; count <= 1 << 20; count *= 32) {
        const char *name = chosen(choice, LS_ALL_REDUCE, 5, count);
        int index = 0;
        while (strcmp(names[index], name) != 0)
            index++;
        for (uint32_t rank = 0; rank < 5; rank++) {
            struct ls_collective_call call = call_of(choice, LS_ALL_REDUCE, 5, count);
            struct ls_drawn_schedule mine, expected;
            call.rank = rank;
            ck_assert_int_eq(
                ls_schedule_draw(ls_auto_plugin(choice)->interface, "auto", &call, &mine), LS_OK);
            call.host = candidates[index].host;
            ck_assert_int_eq(
                ls_schedule_draw(candidates[index].plugin->interface, name, &call, &expected),
                LS_OK);
            ck_assert(same_schedule(&mine, &expected));
            ls_drawn_schedule_finish(&mine);
            ls_drawn_schedule_finish(&expected);
        }
    }
    ls_auto_destroy(choice);
}
END_TEST

static int32_t refuse(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)schedule;
    return ls_host_fail(call->host, LS_USAGE, "not this world");
}

START_TEST(who_does_not_do_a_call_is_not_chosen)
{
    static const struct ls_collective_interface refusing = {.struct_size = sizeof(refusing),
                                                            .operations = 1u << LS_ALL_REDUCE,
                                                            .deterministic = 1,
                                                            .describe = refuse};
    const struct ls_plugin plugin = {.name = "refusing", .interface = &refusing};
    const struct ls_network network = test_flat_network();
    struct ls_auto *choice = NULL;
    test_log_begin();
    struct ls_candidate two[] = {{&plugin, &auto_host.host}, candidates[2]};
    ck_assert_int_eq(ls_auto_create(&auto_plugin, &auto_host.host, two, 2, &network, &choice),
                     LS_OK);
    ck_assert_str_eq(chosen(choice, LS_ALL_REDUCE, 4, 100), "ring");
    ck_assert_str_eq(test_log.text, ""); // that was no error
    ls_auto_destroy(choice);

    ck_assert_int_eq(ls_auto_create(&auto_plugin, &auto_host.host, two, 1, &network, &choice),
                     LS_OK);
    const struct ls_collective_call call = call_of(choice, LS_ALL_REDUCE, 4, 100);
    const char *name = NULL;
    ck_assert_int_eq(ls_auto_choose(choice, &call, &name), LS_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(test_log.text, "none of the candidates does all-reduce on 4"));
    ls_auto_destroy(choice);
}
END_TEST

START_TEST(who_does_not_do_everything_is_no_candidate)
{
    struct ls_collective_interface partial =
        *(const struct ls_collective_interface *)candidates[0].plugin->interface;
    const struct ls_plugin plugin = {.name = "partial", .interface = &partial};
    const struct ls_candidate one = {&plugin, &auto_host.host};
    const struct ls_network network = test_flat_network();
    struct ls_auto *choice = NULL;
    test_log_begin();
    partial.dtypes = 1u << LS_F32;
    ck_assert_int_eq(ls_auto_create(&auto_plugin, &auto_host.host, &one, 1, &network, &choice),
                     LS_UNAVAILABLE);
    partial.dtypes = 0;
    partial.deterministic = 0;
    ck_assert_int_eq(ls_auto_create(&auto_plugin, &auto_host.host, &one, 1, &network, &choice),
                     LS_UNAVAILABLE);
    ck_assert_ptr_null(choice);
    ck_assert_ptr_nonnull(strstr(test_log.text, "equal bits"));
}
END_TEST

START_TEST(a_network_that_does_not_fit_the_world_is_said)
{
    struct ls_network network = test_flat_network();
    network.topology = LS_TOPOLOGY_TORUS;
    network.dimensions = 2;
    network.sides[0] = network.sides[1] = 3;
    struct ls_auto *choice = create(&network);
    const struct ls_collective_call call = call_of(choice, LS_ALL_REDUCE, 4, 100);
    const char *name = NULL;
    test_log_begin();
    ck_assert_int_eq(ls_auto_choose(choice, &call, &name), LS_BAD_INPUT);
    ck_assert_str_ne(test_log.text, "");
    ls_auto_destroy(choice);
    ls_auto_destroy(NULL);
}
END_TEST

int main(void)
{
    if (!open_candidates())
        return TEST_SKIPPED;
    TCase *cases = tcase_create("auto");
    tcase_set_timeout(cases, 120);
    tcase_add_test(cases, the_choice_is_the_least_simulated_time);
    tcase_add_test(cases, small_and_large_buffers_get_different_ones);
    tcase_add_test(cases, every_rank_gets_the_schedule_of_the_chosen_one);
    tcase_add_test(cases, who_does_not_do_a_call_is_not_chosen);
    tcase_add_test(cases, who_does_not_do_everything_is_no_candidate);
    tcase_add_test(cases, a_network_that_does_not_fit_the_world_is_said);
    Suite *suite = suite_create("auto");
    suite_add_tcase(suite, cases);
    return test_suite_run(suite);
}
