// SPDX-License-Identifier: Apache-2.0
// A collective's schedule played through for all ranks in one thread, out of the steps alone: every message is matched
// within its round, no step touches what another of the round writes, each contribution is in the result once, in one
// order of additions on all ranks. A case that does not hold fails the test.
#ifndef LOCKSTEP_TESTS_PLUGINS_COLLECTIVE_WORLD_H
#define LOCKSTEP_TESTS_PLUGINS_COLLECTIVE_WORLD_H

#include "core/schedule/schedule.h"
#include "tests/support/plugin.h"

#include <stdbool.h>

#define WORLDS 64

// One case, and the ranks on their way through it.
struct world {
    const char *collective, *option, *value;
    struct ls_collective_call call;
    struct ls_drawn_schedule drawn[WORLDS];
    struct cell *cells[WORLDS][2]; // data, scratch
    unsigned char *touched[WORLDS][2];
    uint64_t limits[WORLDS][2]; // elements of each
    size_t at[WORLDS]; // next step
    struct message *messages;
    struct cell *pool;
    size_t message_count, message_capacity, pool_count, pool_capacity;
    uint32_t first[WORLDS][WORLDS], last[WORLDS][WORLDS]; // messages of the round, from, to
    uint64_t sent[WORLDS], received[WORLDS], reduced[WORLDS]; // elements in all
    uint64_t longest; // sum over the rounds of the most that a rank sends or receives
    uint64_t most_reduced; // the same of what it reduces
    struct test_host host;
};

// What the ranks are told of the network around them, as in struct ls_collective_call.
struct world_network {
    const uint32_t *hosts, *cards, *order;
};
struct world *world_run_on(const struct world_network *network, const char *collective,
                           const char *option, const char *value, uint32_t operation,
                           uint32_t ranks, uint32_t root, uint64_t count);

// Draws, runs and checks one case; the caller looks at the sums and calls world_finish.
struct world *world_run(const char *collective, const char *option, const char *value,
                        uint32_t operation, uint32_t ranks, uint32_t root, uint64_t count);
void world_finish(struct world *world);

// The option of a host table that is a world's.
const char *world_option(const struct ls_host *host, const char *name);

void world_fail(const struct world *world, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));

// Check's own macros write a line to a file each time, which is too slow for every step.
#define EXPECT(world, condition, ...)       \
    do {                                    \
        if (!(condition))                   \
            world_fail(world, __VA_ARGS__); \
    } while (0)

#endif
