// SPDX-License-Identifier: Apache-2.0
// Custom training loops: data whose batches are shared out among the replicas of a model, and step
// functions that run on each replica's thread. [main thread, but where said]
#ifndef LS_LOOPS_DISTRIBUTED_H
#define LS_LOOPS_DISTRIBUTED_H

#include "core/train/session.h"

// How far a replica has come in the step of this run.
enum ls_context_part { LS_PART_NONE, LS_PART_FORWARD, LS_PART_GRADIENTS, LS_PART_APPLIED };

// A replica while it runs a step function. Only its own thread touches it meanwhile.
struct ls_replica_context {
    struct ls_distributed *dataset;
    uint32_t index; // of the replica, in this worker
    bool active; // its step function runs
    enum ls_context_part part;
    bool forwarded; // outputs and loss are there: of a training step until its gradients are made
    bool updates_metrics;
    bool has_gradient, has_loss; // of a loss that the step function computes
    struct ls_replica_batch batch;
    uint64_t step; // of the model, from 1
    double sums[LS_SUMS]; // of this replica's share
    struct ls_step_result result; // of the step, where it was applied
    enum ls_status
        failed; // of the first call that failed: what the step function returns does not hide it
    float *outputs; // a copy where the device's memory is its own; NULL: none yet
    uint64_t output_room; // examples that it has room for
};

struct ls_distributed {
    struct ls_model *model;
    struct ls_data *data; // held
    bool evaluates; // step functions evaluate; else they train
    struct ls_session_need need;
    enum ls_shuffle shuffle;
    uint64_t shuffle_buffer;
    struct ls_model_order order; // of the next batch
    bool own_order; // the model's order of examples stays as it is
    bool ended; // an epoch has, and ls_distributed_next has not said so yet
    struct ls_stream *stream; // NULL: not open
    uint64_t session; // for which it was opened
    struct ls_replica_context *contexts; // one a replica of this worker
    uint32_t count; // of them
    uint64_t graph_number; // of the model, whose metrics counted what follows
    uint32_t slots; // of the counts below
    // What the metrics have counted in the last run, and since they were reset.
    double step_statistics[LS_STATISTICS], statistics[LS_STATISTICS];
    double *step_counts, *counts;
    // Of the run under way.
    // In the low half the replicas that have begun a step, in the high half one more than the index
    // of the last one that has returned without a step, 0: none. One word: whoever writes knows
    // whether the others see it.
    _Atomic uint64_t begun_and_left;
    _Atomic int32_t status; // of the first step function that failed without a step
};

// As ls_distribute_dataset and ls_strategy_run, but may fail without a message (calls.c).
// `own_order`: the model's place in the order of its examples stays as it is.
LS_STATUS ls_open_distributed(struct ls_model *model, struct ls_data *data,
                              const struct ls_distribute_options *options, bool own_order,
                              struct ls_distributed **out);
// The whole step of a batch, for a step function that looks at nothing in between: with logical
// shards, of which a replica computes any number. Metrics are updated. [replica thread]
LS_STATUS ls_context_train(struct ls_replica_context *replica);
LS_STATUS ls_run_step_function(struct ls_distributed *dataset,
                               enum ls_status (*function)(struct ls_replica_context *replica,
                                                          void *context),
                               void *context);
// As ls_check_replicas and ls_broadcast_variables.
LS_STATUS ls_compare_replicas(struct ls_model *model);
LS_STATUS ls_broadcast_model(struct ls_model *model, uint32_t root);

#endif
