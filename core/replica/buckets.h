// SPDX-License-Identifier: Apache-2.0
// The bucket plan: the flat gradient buffer cut into contiguous ranges, each reduced as one, in the
// order in which a pass finishes them. Bucket 0 begins with the step's statistics (the step's
// sums), which the moving statistics of the model follow. Frozen parameters are in buckets of their
// own behind these, as nothing is reduced of them: they count where replicas hold parts of
// parameters alone. [main thread]
#ifndef LS_REPLICA_BUCKETS_H
#define LS_REPLICA_BUCKETS_H

#include "core/base/status.h"
#include "core/graph/program.h"

#include <stdint.h>

// The step_stats, in floats: the loss operation's LS_SUMS, then how many ranks ask to stop after
// this step, then zeros up to the alignment.
#define LS_STEP_STATS (LS_ALIGNMENT / 4)
#define LS_STEP_STATS_BYTES (LS_STEP_STATS * sizeof(float))
#define LS_STEP_STATS_STOP LS_SUMS

// As in PyTorch's DistributedDataParallel: 25 MiB, and a small first one so that communication
// starts early.
#define LS_BUCKET_BYTES (UINT64_C(25) << 20)
#define LS_FIRST_BUCKET_BYTES (UINT64_C(1) << 20)

struct ls_bucket {
    uint64_t offset; // bytes from the start of the flat parameters
    uint64_t bytes; // of the parameters in it
    uint32_t first_place; // of the parameter plan
    uint32_t place_count;
};

struct ls_buckets {
    struct ls_bucket *list;
    uint32_t count; // of those that are reduced, at least 1
    uint32_t all; // with those of frozen parameters
};

// A parameter is never split: one kernel writes its whole gradient, so pieces would be ready no
// earlier, and where the thread that computes also communicates, cutting 63 MB into three changed
// neither the exposed time nor the step (measured with two replicas on two cores). The first bucket
// ends before it would exceed `first_bytes`, the others before `bytes`, unless a single parameter
// is larger.
LS_STATUS ls_buckets_create(const struct ls_parameter_plan *plan, uint64_t first_bytes,
                            uint64_t bytes, struct ls_buckets *out);
// What a bucket is reduced as, in floats of the buffer of statistics and gradients
// (LS_BUFFER_REDUCED): bucket 0 carries the step's statistics. [any thread]
void ls_buckets_reduced(const struct ls_buckets *buckets, uint32_t bucket, uint64_t *first,
                        uint64_t *count);
// The bucket that has a place of the plan. [any thread]
uint32_t ls_buckets_find(const struct ls_buckets *buckets, uint32_t place);
void ls_buckets_finish(struct ls_buckets *buckets);

#endif
