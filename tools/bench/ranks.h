// SPDX-License-Identifier: Apache-2.0
// A benchmark over several workers: they join as for a training, agree on what they time, and hear
// in each barrier what the ranks of all have done.
#ifndef LS_TOOLS_BENCH_RANKS_H
#define LS_TOOLS_BENCH_RANKS_H

#include "core/run/run.h"
#include "core/run/workers.h"
#include "tools/bench/lanes.h"

struct bench_workers;

// `place` is that of one of several workers. `transport`: a name; NULL: what fits their hosts.
// `options` has the cluster's options, replicas, deadline and plugin path; the rest is set here.
// [main thread]
LS_STATUS bench_workers_open(const struct ls_run_options *options, const char *transport,
                             struct bench_workers **out);
// Takes NULL. After the communicators of all lanes were closed. [main thread]
void bench_workers_close(struct bench_workers *workers);

struct ls_run *bench_workers_run(const struct bench_workers *workers);
// Fills in which ranks this process has, and what the memory needs to know of the other processes.
void bench_workers_divide(struct bench_workers *workers, struct bench_task *task);

// What the ranks of a worker tell the others.
struct bench_word {
    int status; // enum ls_status; of the first that failed
    double seconds; // sum over the ranks
    double wrong; // sum over the ranks
    bool enough; // as the first worker says
};

// `word` becomes what all workers have said; all call this equally often. A worker that failed is
// named. [one thread at a time]
void bench_workers_tell(struct bench_workers *workers, struct bench_word *word);

// While the ranks run: when a worker is lost, none of the task's communicators waits any more. Both
// may be NULL. [main thread]
void bench_workers_watch(struct bench_workers *workers, const struct bench_task *task);

// The end: LS_OK where all workers have come to it without a failure, else `status`, or that of the
// first that failed. `together`: a failure here has ended the others in the same place.
// [main thread]
LS_STATUS bench_workers_conclude(struct bench_workers *workers, enum ls_status status,
                                 bool together);

#endif
