// SPDX-License-Identifier: Apache-2.0
// A run: the plugins that take part and how many replicas. Private to train/. [main thread]
#ifndef LS_TRAIN_RUN_H
#define LS_TRAIN_RUN_H

#include "core/cluster/cluster.h"
#include "core/graph/graph.h"
#include "core/report/progress.h"
#include "core/train/tuning.h"
#include "lockstep.h"

#include <stdatomic.h>
#include <stdbool.h>

#define LS_DEFAULT_REPLICA_BATCH 64
#define LS_DEFAULT_DEADLINE_SECONDS 60
#define LS_CHOSEN_DEVICES 64 // at most

struct ls_run {
    struct ls_loader *loader;
    struct ls_own_parts *parts; // layers, losses and metrics that are plugins
    struct ls_resolved_strategy strategy;
    struct ls_tuning tuning; // where the collective is `auto`
    // What adds up statistics of all replicas where the strategy has no collective; NULL: not needed
    // so far, or that of the strategy does.
    const struct ls_opened_plugin *total_collective, *total_transport;
    const struct ls_opened_plugin *device;
    char hardware[128];
    uint32_t devices; // physical ones
    uint32_t chosen[LS_CHOSEN_DEVICES]; // numbers of those that the replicas take in turn
    uint32_t chosen_count;
    struct ls_cluster *cluster; // who takes part; sessions borrow it
    uint32_t threads;
    uint64_t seed;
    uint32_t wire; // LS_BF16 or LS_F16; 0: float32
    uint64_t deadline_ns;
    enum ls_precision precision; // of the layers of its models
    bool verbose;
    enum ls_progress_kind progress;
    void (*stuck)(uint32_t rank); // NULL: none
    bool watched; // the watchdog runs
    atomic_bool interrupted;
    struct ls_symbols *symbols; // of functional models; NULL: none yet
    const char
        *doing; // what the call under way does, for failures without a message; NULL: its name
};

// As ls_run_open, but may fail without a message (calls.c).
LS_STATUS ls_open_run(const struct ls_run_options *options, struct ls_run **out);

// As ls_plugin_register, but may fail without a message (calls.c).
LS_STATUS ls_register(struct ls_run *run, const struct ls_plugin *plugin);

// Passes `status` on. An interruption that ended a call is over: the next call runs.
LS_STATUS ls_run_end_interruption(struct ls_run *run, enum ls_status status);

// What the collective calls of others ("NCCL 2.28.9"); empty: nothing. Asks the plugin.
void ls_run_library(const struct ls_run *run, char text[static 64]);

// What reduces a bucket of so many bytes; NULL without a collective.
const char *ls_run_algorithm(const struct ls_run *run, uint64_t bytes);

// The global batch of a fit or an evaluation.
uint64_t ls_run_global_batch(const struct ls_run *run, uint64_t batch, uint64_t replica_batch);

#endif
