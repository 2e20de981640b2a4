// SPDX-License-Identifier: Apache-2.0
// A driver on replicas that have their buffers already.
#ifndef LS_TESTS_STRATEGY_OPEN_H
#define LS_TESTS_STRATEGY_OPEN_H

#include "core/strategy/driver.h"

#include <check.h>

#define TEST_MOST_REPLICAS 8

// Fills cluster and parts of `options`; `cluster` is closed after the driver.
static inline enum ls_status test_driver_open(struct ls_driver_options options,
                                              struct ls_replica **replicas, uint32_t count,
                                              struct ls_cluster **cluster, struct ls_driver **out)
{
    struct ls_driver_part parts[TEST_MOST_REPLICAS];
    struct ls_driver *driver = NULL;
    ck_assert_uint_le(count, TEST_MOST_REPLICAS);
    for (uint32_t i = 0; i < count; i++)
        parts[i] = ls_driver_part_of(replicas[i]);
    if (!*cluster)
        ck_assert_int_eq(ls_cluster_open_alone(count, cluster), LS_OK);
    options.cluster = *cluster;
    options.parts = parts;
    enum ls_status status = ls_driver_open(&options, &driver);
    if (!status)
        status = ls_driver_attach(driver, replicas);
    if (status)
        (void)ls_driver_close(driver);
    else
        *out = driver;
    return status;
}

#endif
