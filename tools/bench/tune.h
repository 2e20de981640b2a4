// SPDX-License-Identifier: Apache-2.0
// The file of --tune: for each size that was timed the collective that `auto:table=FILE` takes.
#ifndef LS_TOOLS_BENCH_TUNE_H
#define LS_TOOLS_BENCH_TUNE_H

#include "tools/bench/lanes.h"

#include <stddef.h>

struct bench_tune {
    const struct bench_task *task;
    const char *transport, *device; // as core/run/tuning.h names them
    const uint64_t *bytes; // sizes, growing
    size_t size_count;
    struct bench_result (*results)[BENCH_LANES_MOST][BENCH_PLACES]; // by size
};

// Whether the task is one that a training does: an all-reduce in place of two ranks or more,
// float32, sum. LS_USAGE, logged.
LS_STATUS bench_tune_check(const struct bench_task *task);

// LS_USAGE, logged: no lane may be chosen, as collectives that run themselves, and files.
LS_STATUS bench_tune_write(const struct bench_tune *tune, const char *path);

#endif
