// SPDX-License-Identifier: Apache-2.0
// How long a schedule takes on a network that need not exist. Times come from the schedule alone: every message of every
// rank is followed from the moment when both sides are ready for it. docs/simulate.md has the model. [any thread]
#ifndef LS_TOOLS_SIMULATE_SIMULATION_H
#define LS_TOOLS_SIMULATE_SIMULATION_H

#include "core/topology/network.h"
#include "core/plugin/collective.h"

#define LS_SIMULATED_WORLD_MOST (1u << 24)
#define LS_SIMULATED_STEPS_MOST (1u << 24) // of a rank, and rounds; what is longer never ends

// Messages from and to this rank, and its reductions, take `factor` times as long.
struct ls_straggler {
    uint32_t rank;
    double factor; // at least 1
};

struct ls_simulation {
    const struct ls_collective_interface *collective;
    const char *name; // of the collective, for messages
    const struct ls_host *host; // of the collective
    const struct ls_network *network;
    uint32_t operation; // enum ls_collective_operation
    uint32_t world; // 1 .. LS_SIMULATED_WORLD_MOST
    uint32_t root;
    uint32_t element_bytes;
    uint64_t count; // elements of the whole buffer
    const struct ls_straggler *stragglers;
    size_t straggler_count;
    double jitter; // each message and reduction takes up to this share longer, at random
    uint64_t seed;
    uint64_t memory_limit; // bytes; 0: three quarters of this machine's
    struct ls_simulation_progress *progress; // optional
    bool rings; // the result shall have them
};

// For a watching thread; relaxed atomics.
struct ls_simulation_progress {
    uint64_t ranks_described;
    uint64_t steps, steps_done; // 0 until all ranks are described
};

struct ls_simulation_result {
    double seconds;
    double bound_seconds; // no schedule is faster on this network
    double busiest_share; // of the time, that the busiest link was needed at its full bandwidth
    char busiest[64]; // "send port of rank 3"; "": no messages
    uint64_t messages, steps;
    uint32_t rounds; // of the rank that has most
    uint64_t sent_bytes; // by all ranks
    char *rings; // orders of ranks, if asked for: ls_outline_rings. For free(); NULL: none
};

// LS_FAILED, logged: the schedule is broken, or never ends. LS_USAGE: too large for memory, a straggler outside the
// world, options that do not fit. LS_BAD_INPUT: the network does not fit the world.
LS_STATUS ls_simulate(const struct ls_simulation *simulation, struct ls_simulation_result *out);

// Looks at some ranks alone: LS_USAGE, logged with the figures, when the schedules of all cannot fit into the memory.
LS_STATUS ls_simulation_fits(const struct ls_simulation *simulation);

// busbw / algbw in nccl-tests: 2 (n - 1) / n for all-reduce, (n - 1) / n for reduce-scatter and all-gather, else 1.
double ls_bus_factor(uint32_t operation, uint32_t world);

#endif
