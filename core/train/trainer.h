// SPDX-License-Identifier: Apache-2.0
// The machinery behind one fit or evaluation: replica threads, replicas, the strategy that keeps them
// together. Private to train/. [main thread]
#ifndef LS_TRAIN_TRAINER_H
#define LS_TRAIN_TRAINER_H

#include "core/data/stream.h"
#include "core/replica/group.h"
#include "core/strategy/driver.h"
#include "core/train/model.h"

#include <stdatomic.h>

struct ls_trainer_options {
    uint64_t global_batch;
    uint64_t training_examples; // of an epoch; 0: evaluation only
    struct ls_model_order order; // at the first step
    uint64_t evaluation_examples; // 0: training only
    uint32_t slices; // of a share in training; 0: 1
    float byte_divisor; // of all data, where it has 8 bits (ls_data_byte_divisor); else 0
};

struct ls_trainer {
    struct ls_model *model;
    struct ls_run *run;
    struct ls_trainer_options options;
    struct ls_group *group;
    struct ls_driver *driver; // NULL in evaluation only
    struct ls_cluster *cluster;
    struct ls_replica **replicas;
    uint32_t count;
    atomic_bool hung; // somebody has waited in vain for a peer or for a device
    struct ls_stream *training; // open from the first step to the last
    struct ls_stream *
        *own; // the same, one a replica, where replicas do not wait for each other; else NULL
    struct ls_stream *_Atomic stream; // that replicas read from now; NULL: from their own
};

LS_STATUS ls_trainer_open(struct ls_model *model, const struct ls_trainer_options *options,
                          struct ls_trainer **out);
// Takes NULL. LS_PEER_LOST (logged): a thread of the strategy's hangs, and what it may use was not freed.
LS_STATUS ls_trainer_close(struct ls_trainer *trainer);

// Runs `function` on all replicas' threads, and waits. `doing` ("training") is named where a replica runs out of memory, or
// fails without a message.
LS_STATUS ls_trainer_run(struct ls_trainer *trainer, const char *doing,
                         enum ls_status (*function)(void *context, uint32_t rank), void *context);

// Opens the driver and makes parameters equal. Before the first step.
LS_STATUS ls_trainer_start(struct ls_trainer *trainer);

// Opens the stream of the training data, from options.order on. The dataset is borrowed until the trainer is closed.
LS_STATUS ls_trainer_set_data(struct ls_trainer *trainer, const struct ls_dataset *dataset,
                              enum ls_shuffle shuffle, uint64_t shuffle_buffer);
// A stream of `dataset` for ranks `first` .. `first` + `count` - 1, in batches of the trainer. `order`: shuffle, epoch
// and first example; the rest is filled in.
LS_STATUS ls_trainer_open_stream(const struct ls_trainer *trainer, const struct ls_dataset *dataset,
                                 const struct ls_stream_options *order, uint32_t first,
                                 uint32_t count, struct ls_stream **out);
// The next share of `rank`, as a replica takes it. [replica thread]
LS_STATUS ls_trainer_next(struct ls_trainer *trainer, uint32_t rank, struct ls_replica_batch *out,
                          uint64_t *waited_ns);

// Loss and metrics over `dataset`, under their names for validation where that is asked for. LS_INTERRUPTED after ls_run_interrupt. When a replica fails whose failure the
// strategy survives, the others evaluate again.
LS_STATUS ls_trainer_evaluate(struct ls_trainer *trainer, const struct ls_dataset *dataset,
                              bool validation, struct ls_scores *out);

// The lowest rank that was not lost.
uint32_t ls_trainer_first(const struct ls_trainer *trainer);
bool ls_trainer_is_lost(const struct ls_trainer *trainer, uint32_t rank);
// One line: replica `rank` failed, and who does its work. `doing`: "step 12".
void ls_trainer_say_lost(const struct ls_trainer *trainer, uint32_t rank, const char *doing);

// Hashes of all replicas' parameters; LS_FAILED (logged, names replicas and hashes) when they differ. 0 for one that was
// lost.
LS_STATUS ls_trainer_hashes(struct ls_trainer *trainer, uint64_t *out);

// Copies the model's parameters and, where it has it, optimizer state to the replica of `rank`. [replica thread]
LS_STATUS ls_trainer_give_weights(struct ls_trainer *trainer, uint32_t rank);
// Copies parameters and optimizer state of the first replica back to the model. LS_FAILED (logged) when a parameter is not
// finite: then nothing was copied.
LS_STATUS ls_trainer_take_weights(struct ls_trainer *trainer);

#endif
