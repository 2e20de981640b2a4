// SPDX-License-Identifier: Apache-2.0
// For tests of custom loops: a step function that trains as ls_fit does.
#ifndef LOCKSTEP_TESTS_CORE_TRAIN_LOOPS_H
#define LOCKSTEP_TESTS_CORE_TRAIN_LOOPS_H

#include "tests/core/train/fixture.h"

#include "core/loops/distributed.h"

struct setting {
    const char *strategy;
    uint32_t replicas;
};

#define EPOCHS 2
// 50 examples in batches whose quotients are not exact; the last of 2: uneven, and none for a third
// replica.
#define BATCH 12
#define STEPS 10

static double losses[3]; // by replica

static inline enum ls_status train_step(struct ls_replica_context *replica, void *context)
{
    double sum = 0;
    (void)context;
    enum ls_status status = ls_context_forward(replica);
    if (!status)
        status = ls_context_loss(replica, &sum, NULL);
    if (!status)
        status = ls_context_update_metrics(replica);
    if (!status)
        status = ls_context_gradients(replica);
    if (!status)
        status = ls_context_apply(replica);
    losses[ls_context_local_rank(replica)] = sum / (double)ls_context_global_examples(replica);
    return status;
}

static inline struct ls_distributed *distribute(struct ls_model *model, struct ls_data *data)
{
    struct ls_distributed *dataset = NULL;
    OK(ls_distribute_dataset(model, data, &(struct ls_distribute_options){.batch = BATCH},
                             &dataset));
    return dataset;
}

#endif
