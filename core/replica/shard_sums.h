// SPDX-License-Identifier: Apache-2.0
// The sums of a step over logical shards (--reproducible): statistics of the step, what metrics
// count, moving statistics and gradients. A replica keeps each of them for every shard that it
// computes, until the largest magnitude of each among all shards is known; then it adds its own as
// integers (core/replica/integers.h), which are added over all replicas by whatever collective
// there is, and rounded once. All of this in host memory: what a device has in its own is copied
// there and back, and the device is waited for. Private to replica/. [replica thread]
#ifndef LS_REPLICA_SHARD_SUMS_H
#define LS_REPLICA_SHARD_SUMS_H

#include "core/replica/internal.h"

// `shards`: of all replicas; `blocks`: of this one, at most. When the replica has its buffers.
LS_STATUS ls_shard_sums_create(struct ls_replica *replica, uint32_t shards, uint32_t blocks);
void ls_shard_sums_destroy(struct ls_replica *replica); // does nothing where there are none

#endif
