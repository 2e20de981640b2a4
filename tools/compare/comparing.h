// SPDX-License-Identifier: Apache-2.0
// One comparison, from its command line to its result.
#ifndef LS_TOOLS_COMPARE_COMPARING_H
#define LS_TOOLS_COMPARE_COMPARING_H

#include "core/model/compiled.h"
#include "core/cluster/cluster.h"
#include "tools/command.h"
#include "tools/compare/list.h"
#include "tools/compare/race.h"
#include "tools/compare/yardstick.h"
#include "core/topology/network.h"

#define COUNTS_MOST 16

struct comparing {
    struct ls_worker_place place; // of this process among several workers
    struct compare_setting setting;
    struct compare_list strategies;
    struct compare_target target;
    uint32_t counts[COUNTS_MOST]; // of replicas of a worker, as given
    size_t count_count;
    uint32_t largest; // of them
    uint64_t batch; // of the reference
    uint64_t replica_batch; // 0: every run has `batch`
    uint64_t speed_steps; // to time in each run, at least; 0: none are timed
    const char *network_name; // to simulate the runs on; NULL: none
    struct ls_network network;
    double compute_scale, compute_seconds; // NaN: not given
    const char *report, *html;
    const char *model_name, *dataset_name; // in tables, page and report
    bool for_python; // advice is calls of the Python package
    struct ls_compile_config file; // what the model's file says where the command line does not
    const char *optimizer; // of all runs
    struct compare_race race;
    size_t reference; // runner
    struct compare_yardstick yardstick;
    bool default_list; // of strategies
    const char
        *unvalidated; // dataset that has nothing to validate on; NULL: it has, or nobody asks
    bool reference_is_ours; // nobody asked for it
    size_t *item_of; // item of the list of each runner; SIZE_MAX: ours
};

// Reads the command line of the worker at `place`. LS_USAGE, logged.
LS_STATUS comparing_read(const struct arguments *arguments, struct comparing *out);

// What all workers must have said alike. `items` borrows `dataset`, too, which gets a name.
#define COMPARING_AGREEMENTS 32
#define COMPARING_NAME 64
uint32_t comparing_agreement(const struct arguments *arguments, uint32_t shards,
                             char dataset[COMPARING_NAME], char logical[COMPARING_NAME],
                             struct ls_agreement items[COMPARING_AGREEMENTS]);

bool comparing_needs_validation(const struct comparing *comparing);

#endif
