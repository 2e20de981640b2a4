// SPDX-License-Identifier: Apache-2.0
// Network files: those that come with Lockstep are read, and what cannot be is refused with one line.
#include "core/topology/network.h"
#include "tests/core/collective/support.h"

#include <dirent.h>
#include <unistd.h>

static char path[64];

static void write_file(const char *text)
{
    strcpy(path, "/tmp/lockstep-network-XXXXXX");
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static enum ls_status read_text(const char *text, struct ls_network *out)
{
    write_file(text);
    test_log_begin();
    const enum ls_status status = ls_network_read(path, out);
    ls_log_set_writer(NULL, NULL);
    unlink(path);
    return status;
}

TEST(networks_that_come_with_lockstep_are_read)
{
    const char *folder = getenv("LOCKSTEP_NETWORK_PATH");
    ck_assert_ptr_nonnull(folder);
    DIR *directory = opendir(folder);
    ck_assert_ptr_nonnull(directory);
    int found = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        char file[4096];
        struct ls_network network;
        const size_t length = strlen(entry->d_name);
        if (length < 6 || strcmp(entry->d_name + length - 5, ".json") != 0)
            continue;
        snprintf(file, sizeof(file), "%s/%s", folder, entry->d_name);
        ck_assert_int_eq(ls_network_read(file, &network), LS_OK);
        ck_assert_uint_eq(strlen(network.name), length - 5); // the name is that of the file
        ck_assert_int_eq(strncmp(entry->d_name, network.name, length - 5), 0);
        found++;
    }
    closedir(directory);
    ck_assert_int_ge(found, 6);
}

TEST(values_are_turned_into_seconds_and_bytes)
{
    struct ls_network network;
    ck_assert_int_eq(
        read_text(
            "{\"name\": \"mine\", \"topology\": \"fat-tree\", \"latency_us\": 2,"
            "\"bandwidth_gb_s\": 12.5, \"overhead_us\": 0.5,"
            "\"reduction_gb_s\": 20, \"copy_gb_s\": 10, \"node\": {\"ranks\": 4, \"cards\": 2,"
            "\"latency_us\": 0, \"bandwidth_gb_s\": 100}, \"switches\":"
            "[{\"below\": 16, \"oversubscription\": 2}, {\"below\": 8,"
            "\"latency_us\": 1}]}",
            &network),
        LS_OK);
    ck_assert_str_eq(network.name, "mine");
    ck_assert_uint_eq(network.topology, LS_TOPOLOGY_FAT_TREE);
    ck_assert_double_eq_tol(network.link.latency, 2e-6, 1e-15);
    ck_assert_double_eq_tol(network.link.bandwidth, 12.5e9, 1);
    ck_assert_double_eq_tol(network.overhead, 0.5e-6, 1e-15);
    ck_assert_double_eq_tol(network.reduction, 5e-11, 1e-20);
    ck_assert_double_eq_tol(network.copy, 1e-10, 1e-20);
    ck_assert_uint_eq(network.ranks_per_node, 4);
    ck_assert_uint_eq(network.cards_per_node, 2);
    ck_assert_uint_eq(network.layer_count, 2);
    ck_assert_uint_eq(network.layers[0].below, 16);
    ck_assert_double_eq_tol(network.layers[0].oversubscription, 2, 1e-12);
    ck_assert_double_eq_tol(network.layers[1].oversubscription, 1, 1e-12);
    ck_assert_double_eq_tol(network.layers[1].latency, 1e-6, 1e-15);
}

TEST(reductions_cost_nothing_where_none_is_given)
{
    struct ls_network network;
    ck_assert_int_eq(read_text("{\"name\":\"a\",\"topology\":\"flat\",\"latency_us\":0,"
                               "\"bandwidth_gb_s\":1}",
                               &network),
                     LS_OK);
    ck_assert(network.reduction == 0);
    ck_assert(network.overhead == 0);
    ck_assert_uint_eq(network.ranks_per_node, 1);
    ck_assert(network.launch == 0);
    ck_assert_ptr_null(ls_network_protocol(&network, 8, 2));
    ck_assert(ls_network_slowness(&network, 8, 2) == 1);
}

#define PROTOCOLS                                                                             \
    "{\"name\":\"a\",\"topology\":\"nodes\",\"latency_us\":1,\"bandwidth_gb_s\":50,"          \
    "\"efficiency\":0.9,\"launch_us\":20,\"node\":{\"ranks\":2,\"latency_us\":1,"             \
    "\"bandwidth_gb_s\":400,\"efficiency\":0.75},\"protocols\":[{\"name\":\"small\","         \
    "\"below\":1024,\"latency_us\":0.5,\"efficiency_by_bytes\":[[8,0.1]]},{\"latency_us\":3," \
    "\"efficiency_by_bytes\":[[1024,0.25],[4096,0.5]]}]}"

// Sizes are those of the buffer's share for each of 4 ranks.
TEST(a_protocol_is_chosen_by_the_bytes_for_each_rank)
{
    struct ls_network network;
    ck_assert_int_eq(read_text(PROTOCOLS, &network), LS_OK);
    ck_assert_double_eq_tol(network.link.bandwidth, 45e9, 1);
    ck_assert_double_eq_tol(network.inside.bandwidth, 300e9, 1);
    ck_assert_double_eq_tol(network.launch, 20e-6, 1e-15);
    ck_assert_double_eq_tol(ls_network_protocol(&network, 4095, 4)->latency, 0.5e-6, 1e-15);
    ck_assert_double_eq_tol(ls_network_protocol(&network, 4096, 4)->latency, 3e-6, 1e-15);
    ck_assert_double_eq_tol(ls_network_protocol(&network, 4096, 5)->latency, 0.5e-6, 1e-15);
    static const double wanted[][2] = {
        {1, 10},       {4095, 10},
        {4096, 4},     {4 * 2048, 3}, // half the way from 1 / 0.25 to 1 / 0.5, over the logarithm
        {4 * 4096, 2}, {1000 * 4096, 2}};
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        ck_assert_double_eq_tol(ls_network_slowness(&network, wanted[i][0], 4), wanted[i][1], 1e-9);
}

// The curve of a flat network goes by the whole buffer, as it always has.
TEST(bandwidth_by_bytes_goes_by_the_whole_buffer)
{
    struct ls_network network;
    ck_assert_int_eq(read_text("{\"name\":\"a\",\"topology\":\"flat\",\"latency_us\":0,"
                               "\"bandwidth_gb_s\":8,\"bandwidth_by_bytes\":[[16,2],[64,4]]}",
                               &network),
                     LS_OK);
    for (uint32_t ranks = 1; ranks < 100; ranks += 7) {
        ck_assert_double_eq_tol(ls_network_slowness(&network, 16, ranks), 4, 1e-9);
        ck_assert_double_eq_tol(ls_network_slowness(&network, 32, ranks), 3, 1e-9);
        ck_assert_double_eq_tol(ls_network_slowness(&network, 640, ranks), 2, 1e-9);
    }
}

#define FLAT "\"name\":\"a\",\"topology\":\"flat\",\"latency_us\":1"
#define TORUS "{\"name\":\"a\",\"topology\":\"torus\",\"latency_us\":1,\"bandwidth_gb_s\":1,"
#define TREE "{\"name\":\"a\",\"topology\":\"fat-tree\",\"latency_us\":1,\"bandwidth_gb_s\":1,"
#define NODES "{\"name\":\"a\",\"topology\":\"nodes\",\"latency_us\":1,\"bandwidth_gb_s\":1,"

#define GRAPH "{\"name\":\"a\",\"topology\":\"graph\",\"latency_us\":1,\"bandwidth_gb_s\":1,"

// Switches 3 and 4 between ranks 0 and 1; rank 2 hangs on switch 3, by a link with speeds of its
// own one way.
TEST(ways_of_a_graph_are_the_shortest_and_first_or_given)
{
    struct ls_network network;
    uint32_t links[3];
    double latency;
    ck_assert_int_eq(read_text(GRAPH "\"ranks\":3,\"links\":[{\"from\":0,\"to\":4},"
                                     "{\"from\":0,\"to\":3},{\"from\":3,\"to\":1},"
                                     "{\"from\":4,\"to\":1},{\"from\":3,\"to\":2,"
                                     "\"latency_us\":5,\"bandwidth_gb_s\":8,\"one_way\":true},"
                                     "{\"from\":2,\"to\":3,\"one_way\":true}],"
                                     "\"routes\":[[1,3,0]]}",
                               &network),
                     LS_OK);
    const struct ls_link_graph *graph = network.graph;
    ck_assert_uint_eq(graph->vertices, 5);
    ck_assert_uint_eq(graph->longest, 2);
    ck_assert_uint_eq(ls_link_graph_route(graph, 0, 1, links, &latency), 2);
    ck_assert_uint_eq(graph->links[links[0]].to, 4); // its link stands first
    ck_assert_uint_eq(ls_link_graph_route(graph, 1, 0, links, &latency), 2);
    ck_assert_uint_eq(graph->links[links[0]].to, 3); // by the file's way
    ck_assert_uint_eq(ls_link_graph_route(graph, 0, 2, links, &latency), 2);
    ck_assert_double_eq_tol(latency, 6e-6, 1e-15);
    ck_assert_double_eq_tol(graph->links[links[1]].bandwidth, 8e9, 1);
    ck_assert_uint_eq(ls_link_graph_route(graph, 2, 0, links, &latency), 2);
    ck_assert_double_eq_tol(latency, 2e-6, 1e-15);
    ls_network_finish(&network);
    ck_assert_ptr_null(network.graph);
}

TEST(what_cannot_be_is_refused_in_one_line)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "line 1"},
        {"{", "line 1, column 1"},
        {"{\n \"name\": \"a\",\n \"topology\" \"flat\"}", "line 3, column"},
        {"[]", "expected one JSON object"},
        {"{" FLAT "}", "bandwidth_gb_s: is missing"},
        {"{" FLAT ",\"bandwidth_gb_s\":1e-320}", "bandwidth_gb_s: must be from 1e-9 to 1e15"},
        {"{" FLAT ",\"bandwidth_gb_s\":1,\"launch_us\":1e300}", "must be from 0 to 1e15"},
        {"{" FLAT ",\"bandwidth_gb_s\":0}", "bandwidth_gb_s: must be from 1e-9 to 1e15"},
        {"{" FLAT ",\"bandwidth_gb_s\":-1}", "bandwidth_gb_s: must be from 1e-9 to 1e15"},
        {"{" FLAT ",\"bandwidth_gb_s\":\"1\"}", "bandwidth_gb_s: expected a number"},
        {"{" FLAT ",\"bandwidth_gb_s\":1e999}", "line 1"},
        {"{" FLAT ",\"bandwidth_gb_s\":1e308}", "bandwidth_gb_s: must be from 1e-9 to 1e15"},
        {"{" FLAT ",\"bandwidth_gb_s\":1,\"bandwidth_gb_s\":1}", "duplicate"},
        {"{" FLAT ",\"bandwidth_gbs\":1}", "did you mean bandwidth_gb_s?"},
        {"{" FLAT ",\"bandwidth_gb_s\":1,\"sides\":[2]}", "sides: there is no such key here"},
        {"{" FLAT ",\"bandwidth_gb_s\":1,\"reduction_gb_s\":0}", "must be from 1e-9 to 1e15"},
        {"{" FLAT ",\"bandwidth_gb_s\":1,\"copy_gb_s\":0}", "must be from 1e-9 to 1e15"},
        {"{" FLAT ",\"bandwidth_gb_s\":1,\"order\":[]}", "order: expected a list of ranks"},
        {"{" FLAT ",\"bandwidth_gb_s\":1,\"order\":2}", "order: expected a list of ranks"},
        {"{" FLAT ",\"bandwidth_gb_s\":1,\"order\":[1,1]}", "order: expected all ranks"},
        {"{" FLAT ",\"bandwidth_gb_s\":1,\"order\":[0,2]}", "order: expected all ranks"},
        {"{" FLAT ",\"bandwidth_gb_s\":1,\"order\":[0,-1]}", "order: expected all ranks"},
        {"{" FLAT ",\"bandwidth_gb_s\":1,\"overhead_us\":-1}", "must be from 0 to 1e15"},
        {"{\"name\":\"a\",\"topology\":\"star\"}", "topology: expected"},
        {"{\"name\":\"\",\"topology\":\"flat\",\"latency_us\":1,\"bandwidth_gb_s\":1}", "name"},
        {"{\"name\":3,\"topology\":\"flat\"}", "name: expected a text"},
        {NODES "\"about\":\"\"}", "node: is missing"},
        {NODES "\"node\":[]}", "node: expected an object"},
        {NODES "\"node\":{\"ranks\":0,\"latency_us\":1,\"bandwidth_gb_s\":1}}", "node.ranks"},
        {NODES "\"node\":{\"ranks\":2,\"cards\":3,\"latency_us\":1,\"bandwidth_gb_s\":1}}",
         "node.cards"},
        {NODES "\"node\":{\"ranks\":2,\"latency_us\":1}}", "node.bandwidth_gb_s: is missing"},
        {NODES "\"node\":{\"rank\":2}}", "did you mean ranks?"},
        {TREE "\"switches\":[]}", "switches: expected a list of 1 to 4"},
        {TREE "\"switches\":[1]}", "switches[0]: expected an object"},
        {TREE "\"switches\":[{\"below\":2,\"oversubscription\":0}]}",
         "switches[0].oversubscription"},
        {TREE "\"switches\":[{\"below\":1.5}]}", "switches[0].below: expected an integer"},
        {TREE "\"sources\":[1],\"switches\":[{\"below\":2}]}", "sources: expected a list"},
        {"{" FLAT ",\"bandwidth_gb_s\":1,\"efficiency\":1.5}", "efficiency: no message is faster"},
        {"{" FLAT ",\"bandwidth_gb_s\":1,\"launch_us\":-1}", "must be from 0 to 1e15"},
        {"{" FLAT ",\"bandwidth_gb_s\":1,\"protocols\":[]}",
         "protocols: expected a list of 1 to 4"},
        {"{" FLAT ",\"bandwidth_gb_s\":1,\"protocols\":[3]}", "protocols[0]: expected an object"},
        {"{" FLAT ",\"bandwidth_gb_s\":1,\"protocols\":[{\"below\":8}]}",
         "protocols[0].below: the last protocol"},
        {"{" FLAT ",\"bandwidth_gb_s\":1,\"protocols\":[{},{}]}", "protocols[0].below: is missing"},
        {"{" FLAT ",\"bandwidth_gb_s\":1,\"protocols\":[{\"below\":8},{\"below\":8},{}]}",
         "protocols[1].below: expected protocols in increasing order"},
        {"{" FLAT ",\"bandwidth_gb_s\":1,\"protocols\":[{\"name\":1}]}", "name: expected a text"},
        {"{" FLAT ",\"bandwidth_gb_s\":1,\"protocols\":[{\"efficiency_by_bytes\":[[8,1.1]]}]}",
         "efficiency_by_bytes: no message is faster"},
        {"{" FLAT ",\"bandwidth_gb_s\":1,\"bandwidth_by_bytes\":[[8,1]],\"protocols\":[{}]}",
         "not both"},
        {GRAPH "\"links\":[]}", "ranks: is missing"},
        {GRAPH "\"ranks\":4097,\"links\":[{}]}", "ranks: a graph has at most 4096"},
        {GRAPH "\"ranks\":2,\"links\":[]}", "links: expected a list"},
        {GRAPH "\"ranks\":2,\"links\":[1]}", "links[0]: expected an object"},
        {GRAPH "\"ranks\":2,\"links\":[{\"from\":0,\"to\":1},{\"from\":1,\"to\":0}]}",
         "links: there are two from 0 to 1"},
        {GRAPH "\"ranks\":2,\"links\":[{\"from\":0}]}", "links[0].to: expected a rank"},
        {GRAPH "\"ranks\":2,\"links\":[{\"from\":0,\"to\":0}]}", "leads to another"},
        {GRAPH "\"ranks\":2,\"links\":[{\"from\":0,\"to\":16384}]}", "links[0].to: expected"},
        {GRAPH "\"ranks\":2,\"links\":[{\"from\":0,\"to\":1,\"one_way\":1}]}", "true or false"},
        {GRAPH "\"ranks\":2,\"links\":[{\"from\":0,\"to\":1,\"one_way\":true}]}",
         "links: there is no way from rank 1 to rank 0"},
        {GRAPH "\"ranks\":2,\"links\":[{\"from\":0,\"to\":1}],\"routes\":[[0]]}",
         "routes[0]: expected a list"},
        {GRAPH "\"ranks\":2,\"links\":[{\"from\":0,\"to\":1}],\"routes\":[[0,2,1]]}",
         "routes[0]: there is no link from 0 to 2"},
        {GRAPH "\"ranks\":2,\"links\":[{\"from\":0,\"to\":2},{\"from\":2,\"to\":1}],"
               "\"routes\":[[0,2,0,2,1]]}",
         "routes[0]: passes 0 twice"},
        {GRAPH "\"ranks\":1,\"links\":[{\"from\":0,\"to\":1}],\"routes\":[[0,1]]}",
         "routes[0]: a way leads from one rank to another"},
        {GRAPH "\"ranks\":2,\"links\":[{\"from\":0,\"to\":1}],\"routes\":[[0,1],[0,1]]}",
         "routes: there are two from 0 to 1"},
        {TORUS "\"dimensions\":2,\"sides\":[2,2]}", "either sides, or dimensions"},
        {TORUS "\"about\":\"\"}", "either sides, or dimensions"},
        {TORUS "\"dimensions\":4}", "dimensions: expected 2 or 3"},
        {TORUS "\"sides\":[4]}", "sides: expected a list of 2 or 3"},
        {TORUS "\"sides\":[4,0]}", "sides: expected integers"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ls_network network = {.overhead = 42};
        ck_assert_int_eq(read_text(cases[i].text, &network), LS_BAD_INPUT);
        ck_assert_msg(strstr(test_log.text, cases[i].says) != NULL, "%s: %s", cases[i].text,
                      test_log.text);
        ck_assert_ptr_nonnull(strstr(test_log.text, path));
        ck_assert_ptr_eq(strchr(test_log.text, '\n') + 1,
                         test_log.text + strlen(test_log.text)); // one line
        ck_assert(network.overhead == 42);
    }
}

TEST(files_that_are_none_are_refused)
{
    struct ls_network network;
    test_log_begin();
    ck_assert_int_eq(ls_network_read("/nonexistent/network.json", &network), LS_BAD_INPUT);
    ck_assert_int_eq(ls_network_read("/tmp", &network), LS_BAD_INPUT);
    ck_assert_int_eq(ls_network_read("/dev/zero", &network), LS_BAD_INPUT);
    ls_log_set_writer(NULL, NULL);
}

TEST_SECONDS(300);
