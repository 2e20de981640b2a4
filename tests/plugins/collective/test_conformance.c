// SPDX-License-Identifier: Apache-2.0
// The conformance suite over the local transport, for a sanitizer: ring passes the whole of it, every
// other collective the cases in which algorithms differ. In a release build `plugin check` runs the
// whole suite for each.
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

static bool differs_between_algorithms(void *context, const char *name)
{
    (void)context;
    return (strstr(name, "float32 sum") && !strstr(name, "_large")) ||
           strstr(name, "in_flight ranks=3") || strstr(name, "lost_rank ranks=3");
}

static void check_collective(const char *file, ls_conformance_wanted wanted, uint32_t least)
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
        .wanted = wanted,
    };
    const enum ls_status status = ls_conformance_collective(&options, print_case, NULL, &counts);
    printf("%s: %u passed, %u failed, %u refused\n", file, counts.passed, counts.failed,
           counts.refused);
    ck_assert_int_eq(status, LS_OK);
    ck_assert_uint_ge(counts.passed, least);
    ck_assert_uint_eq(counts.refused, 0);
}

TEST(ring_passes_the_whole_suite)
{
    check_collective("collective-ring", NULL, 151);
}

TEST(hierarchical_copy_passes_what_differs_between_algorithms)
{
    check_collective("collective-hierarchical-copy", differs_between_algorithms, 20);
}

TEST(tree_passes_what_differs_between_algorithms)
{
    check_collective("collective-tree", differs_between_algorithms, 20);
}

TEST(halving_doubling_passes_what_differs_between_algorithms)
{
    check_collective("collective-halving-doubling", differs_between_algorithms, 20);
}

TEST(torus_passes_what_differs_between_algorithms)
{
    check_collective("collective-torus", differs_between_algorithms, 20);
}

TEST(direct_passes_what_differs_between_algorithms)
{
    check_collective("collective-direct", differs_between_algorithms, 20);
}

TEST(two_level_passes_what_differs_between_algorithms)
{
    check_collective("collective-two-level", differs_between_algorithms, 20);
}

TEST_SECONDS(600);

int main(void)
{
    transport = test_plugin_open("transport-local");
    if (!transport)
        return TEST_SKIPPED;
    return test_suite_run("plugins/collective/conformance");
}
