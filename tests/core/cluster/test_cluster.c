// SPDX-License-Identifier: Apache-2.0
// The cluster of one worker: its ranks, its host, and what gather returns.
#include "core/cluster/cluster.h"
#include "tests/support/suite.h"

#include <check.h>

TEST(a_worker_alone_has_all_ranks)
{
    struct ls_cluster *cluster = NULL;
    ck_assert_int_eq(ls_cluster_open_alone(3, &cluster), LS_OK);
    ck_assert_uint_eq(ls_cluster_worker(cluster), 0);
    ck_assert_uint_eq(ls_cluster_workers(cluster), 1);
    ck_assert_uint_eq(ls_cluster_first_rank(cluster), 0);
    ck_assert_uint_eq(ls_cluster_count(cluster), 3);
    ck_assert_uint_eq(ls_cluster_world(cluster), 3);
    for (int rank = 0; rank < 3; rank++)
        ck_assert_uint_eq(ls_cluster_hosts(cluster)[rank], 0);
    ls_cluster_close(cluster);
}

TEST(gather_returns_what_each_rank_has_in_rank_order)
{
    struct ls_cluster *cluster = NULL;
    const uint64_t mine[4] = {11, 22, 33, 44};
    uint64_t all[4] = {0};
    ck_assert_int_eq(ls_cluster_open_alone(4, &cluster), LS_OK);
    ck_assert_int_eq(ls_cluster_gather(cluster, mine, sizeof(mine[0]), all), LS_OK);
    for (int rank = 0; rank < 4; rank++)
        ck_assert_uint_eq(all[rank], mine[rank]);
    ls_cluster_close(cluster);
}

TEST(close_takes_null)
{
    ls_cluster_close(NULL);
}
