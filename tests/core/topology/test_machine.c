// SPDX-License-Identifier: Apache-2.0
// What is read from trees that look like Linux's /sys and /proc, and what collectives are told
// then.
#include "core/run/topology.h"
#include "core/topology/machine.h"
#include "tests/core/collective/support.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[64]; // of this test

static void make_tree(void)
{
    snprintf(root, sizeof(root), "/tmp/lockstep-machine-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
}

static void remove_tree(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r '%s'", root);
    ck_assert_int_eq(system(command), 0);
}

// Writes a file of the tree, and the folders above it.
static void put(const char *path, const char *text)
{
    char whole[256];
    snprintf(whole, sizeof(whole), "%s%s", root, path);
    for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        (void)mkdir(whole, 0700);
        *at = '/';
    }
    FILE *file = fopen(whole, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static void put_allowed(const char *cores)
{
    char text[128];
    snprintf(text, sizeof(text), "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t%s\n", cores);
    put("/proc/self/status", text);
}

static struct ls_machine_place look(uint32_t place, uint32_t ranks)
{
    struct ls_machine_place found;
    ls_machine_look(root, place, ranks, &found);
    return found;
}

TEST(ranks_are_on_the_nodes_of_their_cores)
{
    make_tree();
    put("/sys/devices/system/node/node0/cpulist", "0-3,8-11\n");
    put("/sys/devices/system/node/node1/cpulist", "4-7,12-15\n");
    put("/sys/devices/system/node/possible", "0-1\n");
    put_allowed("0-15");
    const int16_t four[] = {0, 1, 0, 1}, three[] = {0, 1, 0};
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_int_eq(look(i, 4).node, four[i]);
    for (uint32_t i = 0; i < 3; i++) // cores 0, 5 and 10
        ck_assert_int_eq(look(i, 3).node, three[i]);
    put_allowed("12-15"); // by a launcher
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_int_eq(look(i, 4).node, 1);
    put_allowed("3,4");
    ck_assert_int_eq(look(0, 2).node, 0);
    ck_assert_int_eq(look(1, 2).node, 1);
    put_allowed("99"); // no node has it
    ck_assert_int_eq(look(0, 1).node, LS_NODE_UNKNOWN);
    put_allowed("");
    ck_assert_int_eq(look(0, 1).node, LS_NODE_UNKNOWN);
    remove_tree();
}

TEST(cards_are_those_of_infiniband_or_interfaces_that_are_up)
{
    make_tree();
    struct ls_machine_place found = look(0, 1);
    ck_assert_int_eq(found.node, LS_NODE_UNKNOWN);
    ck_assert_uint_eq(found.card_count, 0);

    put("/sys/class/net/lo/operstate", "unknown\n"); // no device
    put("/sys/class/net/eth1/operstate", "up\n");
    put("/sys/class/net/eth1/device/numa_node", "1\n");
    put("/sys/class/net/eth0/operstate", "up\n");
    put("/sys/class/net/eth0/device/vendor", "0x1\n"); // on a machine without NUMA
    put("/sys/class/net/eth2/operstate", "down\n");
    put("/sys/class/net/eth2/device/numa_node", "0\n");
    found = look(0, 1);
    ck_assert_uint_eq(found.card_count, 2);
    ck_assert_int_eq(found.card_nodes[0], LS_NODE_UNKNOWN);
    ck_assert_int_eq(found.card_nodes[1], 1);

    put("/sys/class/infiniband/mlx5_1/device/numa_node", "0\n");
    put("/sys/class/infiniband/mlx5_0/device/numa_node", "-1\n");
    found = look(0, 1);
    ck_assert_uint_eq(found.card_count, 2);
    ck_assert_int_eq(found.card_nodes[0], LS_NODE_UNKNOWN);
    ck_assert_int_eq(found.card_nodes[1], 0);
    remove_tree();
}

static void check_list(const uint32_t *found, uint32_t count, ...)
{
    va_list expected;
    va_start(expected, count);
    ck_assert_ptr_nonnull(found);
    for (uint32_t i = 0; i < count; i++)
        ck_assert_uint_eq(found[i], va_arg(expected, uint32_t));
    va_end(expected);
}

TEST(ranks_take_the_cards_of_their_node_and_nodes_are_neighbours)
{
    // Two hosts of four ranks; two cards on node 0 and one on node 1.
    const struct ls_machine_place on[] = {{0, 3, {0, 1, 0}}, {1, 3, {0, 1, 0}}};
    const struct ls_machine_place places[] = {on[1], on[0], on[1], on[0],
                                              on[0], on[0], on[1], on[1]};
    const uint32_t hosts[] = {0, 0, 0, 0, 1, 1, 1, 1};
    struct ls_surroundings around;
    ck_assert_int_eq(ls_topology_of_places(places, hosts, 8, &around), LS_OK);
    check_list(around.order, 8, 1, 3, 0, 2, 4, 5, 6, 7);
    check_list(around.cards, 8, 1, 0, 1, 2, 3, 5, 4, 4);
    ck_assert_ptr_null(around.hosts); // those of the run
    ls_surroundings_finish(&around);
}

TEST(three_ranks_of_which_hosts_and_nodes_are_mixed)
{
    const struct ls_machine_place bare = {.node = LS_NODE_UNKNOWN},
                                  one = {.node = 1, .card_count = 1, .card_nodes = {0}},
                                  zero = {.node = 0, .card_count = 1, .card_nodes = {0}};
    const uint32_t same[] = {0, 0, 0}, mixed[] = {0, 1, 0};
    struct ls_surroundings around;
    ck_assert_int_eq(
        ls_topology_of_places((const struct ls_machine_place[]){one, zero, one}, same, 3, &around),
        LS_OK);
    check_list(around.order, 3, 1, 0, 2);
    check_list(around.cards, 3, 0, 0, 0); // no other one is there
    ls_surroundings_finish(&around);

    ck_assert_int_eq(ls_topology_of_places((const struct ls_machine_place[]){one, zero, zero},
                                           mixed, 3, &around),
                     LS_OK);
    check_list(around.order, 3, 2, 0, 1);
    check_list(around.cards, 3, 0, 1, 0);
    ls_surroundings_finish(&around);

    // Nothing is known: as without a topology.
    ck_assert_int_eq(ls_topology_of_places((const struct ls_machine_place[]){bare, bare, bare},
                                           same, 3, &around),
                     LS_OK);
    ck_assert_ptr_null(around.order);
    ck_assert_ptr_null(around.cards);
    ls_surroundings_finish(&around);
}

TEST(a_node_of_a_file_is_on_one_host)
{
    struct ls_network network = {
        .name = "pairs", .topology = LS_TOPOLOGY_NODES, .ranks_per_node = 2, .cards_per_node = 1};
    const uint32_t one[] = {0, 0, 0, 0, 0}, two[] = {0, 0, 1, 1, 2}, mixed[] = {0, 0, 0, 1, 1};
    struct ls_surroundings around;
    ck_assert_int_eq(ls_topology_of_file(&network, one, 5, &around), LS_OK); // nodes in a machine
    check_list(around.hosts, 5, 0, 0, 1, 1, 2);
    check_list(around.cards, 5, 0, 0, 1, 1, 2);
    ck_assert_ptr_null(around.order);
    ls_surroundings_finish(&around);
    ck_assert_int_eq(ls_topology_of_file(&network, two, 5, &around), LS_OK);
    ls_surroundings_finish(&around);
    test_log_begin();
    ck_assert_int_eq(ls_topology_of_file(&network, mixed, 5, &around), LS_BAD_INPUT);
    ls_log_set_writer(NULL, NULL);
    ck_assert_ptr_nonnull(strstr(test_log.text, "ranks 2 and 3 are in one node of 2"));
}
