// SPDX-License-Identifier: Apache-2.0
// Every collective of the tree passes the conformance suite over the local transport.
#include "tools/conformance/collective.h"
#include "tests/support/plugin.h"
#include "tests/support/suite.h"

#include <check.h>

static const struct ls_plugin *transport;

static void print_case(void *context, const struct ls_conformance_result *result)
{
    (void)context;
    if (result->outcome != LS_CONFORMANCE_PASSED)
        printf("%s: %s: %s\n", result->outcome == LS_CONFORMANCE_FAILED ? "failed" : "refused",
               result->name, result->message);
}

static void check_collective(const char *file)
{
    const struct ls_plugin *collective = test_plugin_open(file);
    struct test_host collective_host, transport_host;
    struct ls_conformance_counts counts = {0};
    ck_assert_ptr_nonnull(collective);
    test_host_init(&collective_host, collective);
    test_host_init(&transport_host, transport);
    const struct ls_collective_conformance_options options = {
        .collective = collective,
        .collective_host = &collective_host.host,
        .transport = transport,
        .transport_host = &transport_host.host,
        .seed = 1,
    };
    const enum ls_status status = ls_conformance_collective(&options, print_case, NULL, &counts);
    printf("%s: %u passed, %u failed, %u refused\n", file, counts.passed, counts.failed,
           counts.refused);
    ck_assert_int_eq(status, LS_OK);
    ck_assert_uint_gt(counts.passed, 150);
    ck_assert_uint_eq(counts.refused, 0);
}

START_TEST(ring_passes_the_conformance_suite)
{
    check_collective("collective-ring");
}
END_TEST

START_TEST(hierarchical_copy_passes_the_conformance_suite)
{
    check_collective("collective-hierarchical-copy");
}
END_TEST

START_TEST(tree_passes_the_conformance_suite)
{
    check_collective("collective-tree");
}
END_TEST

START_TEST(halving_doubling_passes_the_conformance_suite)
{
    check_collective("collective-halving-doubling");
}
END_TEST

START_TEST(torus_passes_the_conformance_suite)
{
    check_collective("collective-torus");
}
END_TEST

START_TEST(direct_passes_the_conformance_suite)
{
    check_collective("collective-direct");
}
END_TEST

START_TEST(two_level_passes_the_conformance_suite)
{
    check_collective("collective-two-level");
}
END_TEST

int main(void)
{
    transport = test_plugin_open("transport-local");
    if (!transport)
        return TEST_SKIPPED;
    Suite *suite = suite_create("plugins/collective/conformance");
    TCase *test_case = tcase_create("all");
    tcase_set_timeout(test_case, 600);
    tcase_add_test(test_case, ring_passes_the_conformance_suite);
    tcase_add_test(test_case, hierarchical_copy_passes_the_conformance_suite);
    tcase_add_test(test_case, tree_passes_the_conformance_suite);
    tcase_add_test(test_case, halving_doubling_passes_the_conformance_suite);
    tcase_add_test(test_case, torus_passes_the_conformance_suite);
    tcase_add_test(test_case, direct_passes_the_conformance_suite);
    tcase_add_test(test_case, two_level_passes_the_conformance_suite);
    suite_add_tcase(suite, test_case);
    return test_suite_run(suite);
}
