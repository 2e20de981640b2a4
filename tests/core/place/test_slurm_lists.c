// SPDX-License-Identifier: Apache-2.0
// Slurm's lists of hosts and of tasks for each node.
#include "core/place/resolvers/slurm_lists.h"
#include "tests/support/suite.h"

#include <stdio.h>
#include <string.h>

TEST(lists_of_hosts_are_expanded)
{
    static const struct {
        const char *list, *hosts; // separated by spaces
    } rows[] = {
        {"n1", "n1"},
        {"n1,m2", "n1 m2"},
        {"n[1-3]", "n1 n2 n3"},
        {"n[3]", "n3"},
        {"n[1-2,5]", "n1 n2 n5"},
        {"n[08-11]", "n08 n09 n10 n11"},
        {"n[8-10]", "n8 n9 n10"},
        {"n[001,3]", "n001 n3"},
        {"login,n[1-2],x-y_z.example.org", "login n1 n2 x-y_z.example.org"},
        {"n[1-2]-ib", "n1-ib n2-ib"},
        {"rack[0-1]n[1-2]", "rack0n1 rack0n2 rack1n1 rack1n2"},
        {"n[000000007-000000008]", "n000000007 n000000008"},
        {"[1-2]", "1 2"},
    };
    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
        char all[512] = "", host[LS_HOST_BYTES];
        uint32_t count = 1;
        for (uint32_t i = 0; i < count; i++) {
            ck_assert_msg(ls_slurm_host(rows[row].list, i, host, &count), "%s", rows[row].list);
            const size_t used = strlen(all);
            snprintf(all + used, sizeof(all) - used, "%s%s", i ? " " : "", host);
        }
        ck_assert_str_eq(all, rows[row].hosts);
        ck_assert(ls_slurm_host(rows[row].list, count, host, &count));
        ck_assert_str_eq(host, "");
    }
}

TEST(large_lists_are_counted_without_being_made)
{
    char host[LS_HOST_BYTES];
    uint32_t count;
    ck_assert(ls_slurm_host("n[1-65536]", 65535, host, &count));
    ck_assert_uint_eq(count, 65536);
    ck_assert_str_eq(host, "n65536");
    ck_assert(ls_slurm_host("a[1-256]b[1-256]", 65535, host, &count));
    ck_assert_uint_eq(count, 65536);
    ck_assert_str_eq(host, "a256b256");
}

TEST(what_is_no_list_of_hosts_is_refused)
{
    static const char *const lists[] = {"",
                                        ",",
                                        "n1,",
                                        ",n1",
                                        "n1,,n2",
                                        "n[",
                                        "n[1",
                                        "n]",
                                        "n[]",
                                        "n[1-]",
                                        "n[-1]",
                                        "n[2-1]",
                                        "n[1,]",
                                        "n[,1]",
                                        "n[a]",
                                        "n[1-2",
                                        "n[1-2]]",
                                        "n[[1]]",
                                        "n 1",
                                        "n/1",
                                        "n[1-65537]",
                                        "n[1-256]m[1-257]",
                                        "n[1-40000],m[1-40000]",
                                        "n[0-4294967295]",
                                        "n[0-99999999999999999999]",
                                        "a[1]b[1]c[1]d[1]e[1]f[1]g[1]h[1]i[1]",
                                        "n[00000000001]"};
    char host[LS_HOST_BYTES], name[400];
    uint32_t count;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        ck_assert_msg(!ls_slurm_host(lists[i], 0, host, &count), "%s", lists[i]);
    memset(name, 'n', sizeof(name));
    name[LS_HOST_BYTES] = '\0';
    ck_assert(!ls_slurm_host(name, 0, host, &count));
    name[LS_HOST_BYTES - 1] = '\0';
    ck_assert(ls_slurm_host(name, 0, host, &count));
    strcpy(name + LS_HOST_BYTES - 4, "[10000-10001]");
    ck_assert(!ls_slurm_host(name, 0, host, &count));
}

TEST(tasks_of_a_node)
{
    static const struct {
        const char *list;
        uint32_t node, tasks, total, nodes;
    } rows[] = {
        {"4", 0, 4, 4, 1},       {"2(x2)", 1, 2, 4, 2},         {"2(x2),1", 2, 1, 5, 3},
        {"3,1", 0, 3, 4, 2},     {"1,2(x3),4", 3, 2, 11, 5},    {"1,2(x3),4", 4, 4, 11, 5},
        {"2(x2),1", 3, 0, 5, 3}, {"65536", 0, 65536, 65536, 1},
    };
    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
        uint32_t tasks, total, nodes;
        ck_assert(ls_slurm_tasks(rows[row].list, rows[row].node, &tasks, &total, &nodes));
        ck_assert_uint_eq(tasks, rows[row].tasks);
        ck_assert_uint_eq(total, rows[row].total);
        ck_assert_uint_eq(nodes, rows[row].nodes);
    }
}

TEST(what_is_no_list_of_tasks_is_refused)
{
    static const char *const lists[] = {"",
                                        ",",
                                        "2,",
                                        ",2",
                                        "2(x",
                                        "2(x)",
                                        "2(x2",
                                        "2(x2)3",
                                        "(x2)",
                                        "2(2)",
                                        "-1",
                                        "0",
                                        "2(x0)",
                                        "a",
                                        "2 ",
                                        "65537",
                                        "2(x65536)",
                                        "99999999999999999999",
                                        "1(x99999999999999999999)"};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        uint32_t tasks, total, nodes;
        ck_assert_msg(!ls_slurm_tasks(lists[i], 0, &tasks, &total, &nodes), "%s", lists[i]);
    }
}
