// SPDX-License-Identifier: Apache-2.0
// Simulations in tests: of plugins as they are built, with options, and of schedules written by a test.
#ifndef LS_TESTS_SIMULATION_H
#define LS_TESTS_SIMULATION_H

#include "tools/simulate/simulation.h"
#include "tests/core/collective/support.h"

// A host that gives one option a value.
struct test_option_host {
    struct test_host test; // first: its callbacks cast back
    const char *name, *value;
};

static inline const char *test_option_get(const struct ls_host *host, const char *name)
{
    const struct test_option_host *test = (const struct test_option_host *)host->context;
    if (test->name && strcmp(test->name, name) == 0)
        return test->value;
    return test_host_option(host, name);
}

// `option` may be NULL.
static inline void test_option_host_init(struct test_option_host *host,
                                         const struct ls_plugin *plugin, const char *option,
                                         const char *value)
{
    test_host_init(&host->test, plugin);
    host->test.host.option = test_option_get;
    host->name = option;
    host->value = value;
}

// 1 us, 10 GB/s, 20 GB/s reduced.
static inline struct ls_network test_flat_network(void)
{
    return (struct ls_network){.name = "flat",
                               .topology = LS_TOPOLOGY_FLAT,
                               .link = {1e-6, 10e9},
                               .reduction = 1 / 20e9,
                               .copy = 1 / 20e9,
                               .ranks_per_node = 1,
                               .cards_per_node = 1};
}

static inline struct ls_simulation test_simulation(const struct ls_collective_interface *collective,
                                                   const struct ls_host *host,
                                                   const struct ls_network *network, uint32_t world,
                                                   uint64_t count)
{
    return (struct ls_simulation){.collective = collective,
                                  .name = "test",
                                  .host = host,
                                  .network = network,
                                  .operation = LS_ALL_REDUCE,
                                  .world = world,
                                  .element_bytes = 4,
                                  .count = count};
}

static inline struct ls_simulation_result test_simulate(const struct ls_simulation *simulation)
{
    struct ls_simulation_result result;
    ck_assert_int_eq(ls_simulate(simulation, &result), LS_OK);
    return result;
}

// All-reduce of a described schedule, whatever it computes.
static inline struct ls_collective_interface test_interface(test_build_schedule build_schedule)
{
    return (struct ls_collective_interface){.struct_size = sizeof(struct ls_collective_interface),
                                            .operations = 1u << LS_ALL_REDUCE,
                                            .build_schedule = build_schedule};
}

static inline double test_seconds(test_build_schedule build_schedule,
                                  const struct ls_network *network, uint32_t world, uint64_t count)
{
    const struct ls_collective_interface interface = test_interface(build_schedule);
    const struct ls_simulation simulation =
        test_simulation(&interface, NULL, network, world, count);
    return test_simulate(&simulation).seconds;
}

static inline void test_near(double found, double wanted, double tolerance)
{
    ck_assert_msg(found >= wanted * (1 - tolerance) && found <= wanted * (1 + tolerance),
                  "%.9g s instead of %.9g s", found, wanted);
}

#endif
