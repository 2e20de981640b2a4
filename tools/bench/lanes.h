// SPDX-License-Identifier: Apache-2.0
// Times several collectives side by side: the same ranks, buffers and sizes, in turn, round after
// round.
#ifndef LS_TOOLS_BENCH_LANES_H
#define LS_TOOLS_BENCH_LANES_H

#include "core/base/status.h"
#include "core/collective/communicator.h"
#include "core/collective/known_values.h"
#include "core/run/tuning.h"
#include "tools/bench/memory.h"

#include <stdbool.h>

#define BENCH_LANES_MOST 32

enum bench_place { BENCH_OUT_OF_PLACE, BENCH_IN_PLACE, BENCH_PLACES };

// A collective to time, opened for all ranks.
struct bench_lane {
    const char *name; // as the user wrote it
    const struct ls_opened_plugin *collective;
    struct ls_tuning tuning; // where that is `auto`
    struct ls_communicator **communicators; // of each rank of this process
};

struct bench_workers;

struct bench_task {
    const struct bench_lane *lanes;
    uint32_t lane_count;
    struct ls_known_call call;
    uint32_t first_rank, count; // ranks of this process; count 0: all of call.world
    const uint32_t *hosts; // of all ranks; NULL: all are on one
    struct bench_workers *workers; // with the other ranks; NULL: there are none
    struct bench_memory memory; // of the buffers
    uint64_t
        iterations; // calls in a row that are timed together; 0: about two milliseconds of them
    uint64_t warmup; // calls before
    double seconds; // for which rounds are repeated
    bool places[BENCH_PLACES];
    bool pin; // each rank to a core, if there are enough
    bool fresh; // ranks write their buffers before each call, and each call is timed on its own
};

// Seconds a call, averaged over the ranks, as nccl-tests does.
struct bench_result {
    double median;
    double least;
    double low, high; // a quarter of the rounds was faster, a quarter slower
    uint64_t iterations;
    uint32_t rounds;
    uint64_t wrong; // elements, on all ranks
};

// Writes out[lane][place], and leaves entries that are not timed unchanged. Fails with the status
// of a collective that fails, logged; over workers on all of them with the same. [main thread]
LS_STATUS bench_lanes_run(const struct bench_task *task, struct bench_result (*out)[BENCH_PLACES]);

#endif
