// SPDX-License-Identifier: Apache-2.0
// What a strategy plugin implements: where variables live and how gradients become an update. One
// instance a worker (process); the hooks name the replica they are called for.
//
// The parameters of a model lie in one flat buffer per replica, in the order in which backward finishes
// their gradients (last layer first); gradients and optimizer state lie in buffers of the same shape. The
// buffer is cut into buckets, each a contiguous range; bucket 0 also carries the step's sums (loss,
// right predictions, examples) as a tail.
#ifndef LS_PLUGIN_STRATEGY_H
#define LS_PLUGIN_STRATEGY_H

#include "core/plugin/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ls_strategy; // each plugin's own

// What the host does for a strategy. Every call that blocks has the run's deadline and returns
// LS_ABORTED after an abort. Bucket numbers are those of the plan. [replica thread of `replica`]
struct ls_strategy_host {
    uint32_t struct_size;
    uint32_t replicas; // of this worker; hooks get 0 .. replicas - 1
    uint32_t world; // replicas of the whole job
    uint32_t bucket_count;
    void *context;
    const struct ls_host *host; // log, fail, options, ...

    // Sums the bucket's gradients (and tail) over all ranks. `start` returns at once; it must be called
    // in the same order on every rank. `wait` returns when this replica's bucket holds the sum.
    int32_t (*all_reduce_start)(const struct ls_strategy_host *host, uint32_t replica,
                                uint32_t bucket);
    int32_t (*all_reduce_wait)(const struct ls_strategy_host *host, uint32_t replica,
                               uint32_t bucket);

    // Copies the parameters of `root`'s replica to every rank.
    int32_t (*broadcast_parameters)(const struct ls_strategy_host *host, uint32_t replica,
                                    uint32_t root);

    // Looks at the step's sums, which must be final; LS_FAILED (the host says why) when the loss is not
    // finite: then nothing may be updated.
    int32_t (*decide)(const struct ls_strategy_host *host, uint32_t replica);

    // Runs the optimizer on the bucket's range of this replica's parameters.
    int32_t (*update)(const struct ls_strategy_host *host, uint32_t replica, uint32_t bucket);
};

enum ls_strategy_divisor {
    LS_DIVISOR_GLOBAL = 1, // gradients are divided by the examples of the global batch
    LS_DIVISOR_OWN = 2, // by the replica's own examples (asynchronous and local steps)
};

enum ls_replica_equality {
    LS_EQUAL_EVERY_STEP = 1,
    LS_EQUAL_AT_SYNCHRONISE = 2,
};

struct ls_strategy_interface {
    uint32_t struct_size;
    uint32_t divisor; // enum ls_strategy_divisor
    uint32_t equality; // enum ls_replica_equality
    uint32_t needs_collective; // 1: calls all_reduce or broadcast, so a collective must be chosen
    uint32_t maximum_replicas; // of the whole job; 0: any number
    uint32_t reserved;

    // [main thread]
    int32_t (*open)(const struct ls_strategy_host *host, struct ls_strategy **out);
    void (*close)(struct ls_strategy *strategy); // takes NULL

    // Once, before the first step: makes the initial parameters those of rank 0. [replica thread]
    int32_t (*place)(struct ls_strategy *strategy, uint32_t replica);
    // Optional: makes parameters current before forward. NULL: they always are. [replica thread]
    int32_t (*begin_step)(struct ls_strategy *strategy, uint32_t replica);
    // The bucket's gradients of this replica are complete; in the order of the plan, while backward of
    // earlier layers still runs. Must not wait for other replicas. [replica thread]
    int32_t (*gradient_ready)(struct ls_strategy *strategy, uint32_t replica, uint32_t bucket);
    // All buckets were ready: ends with the parameters updated. [replica thread]
    int32_t (*end_step)(struct ls_strategy *strategy, uint32_t replica);
    // Optional: before evaluation, checkpoint and the end. NULL: nothing to do. [replica thread]
    int32_t (*synchronise)(struct ls_strategy *strategy, uint32_t replica);
};

#ifdef __cplusplus
}
#endif

#endif
