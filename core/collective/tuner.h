// SPDX-License-Identifier: Apache-2.0
// The tuner behind `auto`: a collective that is another one for every size. A table says which of
// the candidates reduces a buffer of so many bytes. The table is measured on the communicators
// that the run uses, read from a file, or fixed; it never changes once a plan was made with it.
#ifndef LS_COLLECTIVE_TUNER_H
#define LS_COLLECTIVE_TUNER_H

#include "core/collective/communicator.h"
#include "core/plugin/collective.h"

#include <stdbool.h>
#include <stddef.h>

#define LS_TUNER_SECONDS 0.2 // all measurements of a run together take no longer
#define LS_TUNER_CANDIDATES 32

struct ls_candidate {
    const struct ls_plugin *plugin; // kind collective
    const struct ls_host *host;
    const char *name; // in tables and reports; borrowed, as long as the tuner lives
};

// What a candidate took for one size.
struct ls_tuner_time {
    double seconds; // a call: the median of the rounds
    double spread; // half the distance between the quartiles of the rounds
    uint32_t rounds; // 0: it was not timed
    uint32_t faster; // rounds in which it was faster than the baseline
    bool dropped; // it was so slow that it was not timed to the end
};

struct ls_tuner_row {
    uint32_t operation; // enum ls_collective_operation
    uint64_t bytes;
    size_t candidate; // chosen
    struct ls_tuner_time times[LS_TUNER_CANDIDATES]; // all zero where the table was given
};

struct ls_tuner;

// `candidates`: at most LS_TUNER_CANDIDATES are used. The first one is the baseline, which keeps
// every size for which no other is faster by more than the noise: `ring` where that is a
// candidate, else the first. Candidates that do not do all types and reductions, or do not
// promise equal bits on all ranks, are left out; LS_UNAVAILABLE, logged, when none is left.
// `plugin` and `host` are those of `auto` as the loader opened it; the clock is the host's. [main
// thread]
LS_STATUS ls_tuner_create(const struct ls_plugin *plugin, const struct ls_host *host,
                          const struct ls_candidate *candidates, size_t count,
                          struct ls_tuner **out);
void ls_tuner_destroy(
    struct ls_tuner *tuner); // takes NULL; nothing may draw its schedules any more

// What a communicator is opened with, in place of a collective's own. Owned by `tuner`.
const struct ls_plugin *ls_tuner_plugin(const struct ls_tuner *tuner);
const struct ls_host *ls_tuner_host(const struct ls_tuner *tuner);

// The number of each rank's host, for what is asked of the table before a communicator says so.
// Borrowed; NULL, as at first: all ranks are on one. [main thread]
void ls_tuner_set_hosts(struct ls_tuner *tuner, const uint32_t *hosts);

// ---- The table ----

// Adds a row of a given table: an all-reduce of `bytes` is done by the candidate `name`.
// LS_UNSUPPORTED, logged under `scope`, when that does not do it on `world` ranks, or is none.
// Before the first plan. [main thread]
LS_STATUS ls_tuner_add(struct ls_tuner *tuner, const char *scope, uint32_t world, uint64_t bytes,
                       const char *name);

// What is measured: one operation on buffers of several sizes.
struct ls_tuner_task {
    uint32_t operation; // enum ls_collective_operation
    uint32_t dtype, reduction;
    uint32_t wire; // as in struct ls_communicator_call
    const uint64_t *counts; // elements of the whole buffer
    size_t size_count;
};

// Times the candidates on `communicators`, the first of which is rank `first` of the world, and
// adds a row for each size that has none. It takes LS_TUNER_SECONDS at most, together with earlier
// measurements of this tuner. The schedule of each candidate is verified before it runs; one that
// cannot send the 16 bits of `wire` is left out from then on, and a line says so. Rank 0 decides,
// and tells the others over the communicators. Between ls_communicators_open and the first plan;
// all workers together. Fails as collectives do, logged. [main thread]
LS_STATUS ls_tuner_measure(struct ls_tuner *tuner, const struct ls_tuner_task *task,
                           struct ls_communicator *const *communicators, uint32_t count);

// The candidate that is faster than the baseline, the first that was timed, by more than the noise,
// and fastest of such; else the baseline. Faster by more than the noise means: the medians differ
// by more than both spreads together, and the candidate was faster in 7 of 8 rounds, of at least
// 5.
size_t ls_tuner_decide(const struct ls_tuner_time *times, size_t count);

// Median, spread and rounds of a candidate. `samples` are seconds by round, `baseline` those of the
// baseline.
struct ls_tuner_time ls_tuner_summarise(const double *samples, const double *baseline,
                                        uint32_t rounds);

// ---- What was decided ----

// Rows in the order in which they were made.
const struct ls_tuner_row *ls_tuner_rows(const struct ls_tuner *tuner, size_t *count);
size_t ls_tuner_candidates(const struct ls_tuner *tuner);
const char *ls_tuner_candidate(const struct ls_tuner *tuner, size_t index);
double ls_tuner_seconds(const struct ls_tuner *tuner); // that all measurements took

// The name of the candidate that does the call (whose rank does not matter), by the row whose
// size is nearest in proportion; NULL, logged, when no candidate does it. [any thread]
const char *ls_tuner_choose(const struct ls_tuner *tuner, const struct ls_collective_call *call);

// The name of what draws the schedule of a call that is made through `collective` and call->host:
// the candidate's, or that of `collective` where it is not `auto`. [any thread]
const char *ls_tuner_name(const struct ls_plugin *collective,
                          const struct ls_collective_call *call);
// Likewise its host, which is another one for each candidate. [any thread]
const struct ls_host *ls_tuner_drawer(const struct ls_plugin *collective,
                                      const struct ls_collective_call *call);

#endif
