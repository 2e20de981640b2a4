// SPDX-License-Identifier: Apache-2.0
// A share computed in parts: hooks around those of the strategy that add the gradients of the parts, bucket by
// bucket, and speak to the strategy only in the last part. Private to replica/. [replica thread]
#ifndef LS_REPLICA_SLICING_H
#define LS_REPLICA_SLICING_H

#include "core/replica/replica.h"

struct ls_slicing {
    const struct ls_replica_hooks *hooks; // of the strategy
    bool first, last; // of the parts of this share
};

struct ls_replica_hooks ls_slicing_hooks(struct ls_slicing *slicing);

// The kernels for it; nothing with one slice. After the buckets are known.
LS_STATUS ls_slicing_prepare(struct ls_replica *replica);

// A kernel of the replica's own needs so much scratch. Before the buffers are allocated.
void ls_replica_need_scratch(struct ls_replica *replica, uint64_t bytes);

#endif
