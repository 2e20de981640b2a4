// SPDX-License-Identifier: Apache-2.0
// What the files of `lockstep bench` share: a benchmark as the command line describes it, and what
// it prints and writes.
#ifndef LS_TOOLS_BENCH_BENCH_H
#define LS_TOOLS_BENCH_BENCH_H

#include "tools/bench/lanes.h"
#include "tools/bench/network.h"
#include "tools/bench/ranks.h"
#include "tools/report/rows.h"
#include "tools/size_list.h"

// Values of options by name; the last has no text.
struct bench_name {
    const char *text;
    uint32_t value;
};

extern const struct bench_name bench_operations[], bench_dtypes[], bench_wires[],
    bench_reductions[];

struct bench {
    struct bench_task task;
    struct size_list sizes;
    uint64_t deadline_ns;
    struct ls_run_options cluster; // of the command line
    struct bench_workers *workers; // NULL: this process is alone
    const struct ls_run_topology *topology; // the workers', or `alone`
    struct ls_run_topology alone;
    bool silent; // worker 0 prints and writes
    bool together; // what fails from here on is told to the other workers
    struct ls_loader *loader; // the workers' where there are some
    const struct ls_opened_plugin *transport;
    struct bench_lane lanes[BENCH_LANES_MOST];
    uint32_t lane_count;
    struct bench_network *network; // to be written; NULL: none
    struct ls_plugin_entry *entries; // whose names lanes may have
    size_t entry_count;
    struct bench_result (*results)[BENCH_LANES_MOST][BENCH_PLACES]; // by size
    bool right; // nothing was wrong
    bool on_device; // which says itself when its memory is full
};

void bench_print_heading(const struct bench *bench);
void bench_print_row(const struct bench *bench, const struct bench_lane *lane,
                     const struct bench_result *result);
void bench_add_json(const struct bench *bench, const struct bench_lane *lane,
                    const struct bench_result *results, struct ls_rows *rows);
LS_STATUS bench_write_chart(const struct bench *bench, const char *path);

#endif
