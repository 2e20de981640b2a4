// SPDX-License-Identifier: Apache-2.0
// A run: the plugins that take part and how many replicas. [main thread]
#ifndef LS_RUN_RUN_H
#define LS_RUN_RUN_H

#include "core/comm/mixed_transport.h"
#include "core/data/stream.h"
#include "core/graph/graph.h"
#include "core/report/progress.h"
#include "core/run/topology.h"
#include "core/run/tuning.h"
#include "core/run/workers.h"
#include "lockstep.h"

#include <stdatomic.h>
#include <stdbool.h>

#define LS_DEFAULT_REPLICA_BATCH 64
#define LS_MOST_SHARDS 1024 // of a batch
#define LS_DEFAULT_DEADLINE_SECONDS 60
#define LS_CHOSEN_DEVICES 64 // at most

struct ls_run {
    struct ls_loader *loader;
    struct ls_own_parts *parts; // layers, losses and metrics that are plugins
    struct ls_resolved_strategy strategy;
    // Where some workers share a host and others do not: the transport made of two.
    struct ls_mixed_transport mixed;
    struct ls_tuning tuning; // where the collective is `auto`
    // What adds up statistics of all replicas where the strategy has no collective; NULL: not
    // needed so far, or that of the strategy does.
    const struct ls_opened_plugin *total_collective, *total_transport;
    const struct ls_opened_plugin *device;
    bool by_default; // nobody named it, and another one takes its place where it lacks something
    uint32_t session_count; // that are open
    char hardware[128];
    uint32_t devices; // physical ones
    uint32_t chosen[LS_CHOSEN_DEVICES]; // numbers of those that the replicas take in turn
    uint32_t chosen_count;
    struct ls_run_topology topology; // around its ranks
    struct ls_workers workers; // that take part; sessions borrow their cluster
    // Of --share: a weight for each worker, or for each replica of a process alone; NULL: none
    struct ls_share_group *share_groups;
    uint32_t share_group_count; // 0: all replicas take as much
    uint32_t drivers_opened; // since the workers have formed
    uint32_t least_workers, most_workers; // of an elastic training; 0: not elastic
    enum ls_progress_kind chief_progress; // what the chief prints, whichever worker that is
    char *strategy_text, *network; // what the strategy was resolved from; NULL: nothing
    bool insecure;
    enum ls_route_choice route_choice; // of the transport
    uint32_t threads;
    uint64_t seed;
    uint32_t wire; // LS_BF16 or LS_F16; 0: float32
    const struct ls_opened_plugin *filter; // of gradients; NULL: none
    char *compress; // what it was opened from
    uint32_t shards; // logical ones of a batch (--reproducible); 0: none
    uint64_t deadline_ns;
    uint64_t silence_ns; // after which a worker that says nothing is lost; 0: the default
    enum ls_precision precision; // of the layers of its models
    bool verbose;
    enum ls_progress_kind progress;
    void (*stuck)(uint32_t rank); // NULL: none
    bool watched; // the watchdog runs
    atomic_bool interrupted;
    atomic_uint interrupted_by; // the number of a signal; 0: none, or ls_run_interrupt alone
    struct ls_symbols *symbols; // of functional models; NULL: none yet
    const char
        *doing; // what the call under way does, for failures without a message; NULL: its name
};

// As ls_run_open, but may fail without a message (calls.c).
LS_STATUS ls_open_run(const struct ls_run_options *options, struct ls_run **out);

// As ls_run_interrupt, for a signal, of which all workers hear. Safe in a signal handler. [any
// thread]
void ls_run_interrupt_by(struct ls_run *run, uint32_t signal);
// The last signal that interrupted this worker or another one; 0: none. [main thread]
uint32_t ls_run_interrupted_by(const struct ls_run *run);

// The workers are others now: sets which of them prints, and which transport connects them. [main
// thread]
LS_STATUS ls_run_follow_workers(struct ls_run *run);

// The cpu takes the place of a device that nobody named, because that one `lacks` something ("has
// no operation attention"); which is said. The replicas stay as many as they are, once they are
// counted. No session is open. All workers call this. [main thread]
LS_STATUS ls_run_take_cpu(struct ls_run *run, const char *lacks);

// Whether buffers are to be where other processes reach them (core/base/shared_memory.h).
bool ls_run_shares_memory(const struct ls_run *run);

// Passes `status` on. An interruption that ended a call is over: the next call runs.
LS_STATUS ls_run_end_interruption(struct ls_run *run, enum ls_status status);

// Shares of a batch in training: one for each replica of all workers, also of those that train for
// themselves; and which of them is that of this process's first replica.
uint32_t ls_run_shares(const struct ls_run *run);
uint32_t ls_run_first_share(const struct ls_run *run);
// How a batch is divided in training, or else in an evaluation or prediction. Borrowed; holds until
// workers are lost or join.
struct ls_shares ls_run_division(const struct ls_run *run, bool trains);

// Whether each replica has a logical shard, where there are any. LS_USAGE, logged. When workers have
// joined or were lost.
LS_STATUS ls_run_check_shards(const struct ls_run *run);

// What the collective calls of others ("NCCL 2.28.9"); empty: nothing. Asks the plugin.
void ls_run_library(const struct ls_run *run, char text[static 64]);

// What reduces a bucket of so many bytes; NULL without a collective.
const char *ls_run_algorithm(const struct ls_run *run, uint64_t bytes);

// The global batch of a fit or an evaluation.
uint64_t ls_run_global_batch(const struct ls_run *run, uint64_t batch, uint64_t replica_batch);

#endif
