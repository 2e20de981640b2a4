// SPDX-License-Identifier: Apache-2.0
// A share computed in blocks whose gradients are added in a binary tree, bucket by bucket, as a
// binary counter adds one: the sum of 2^k blocks waits at level k for that of the next 2^k.
// Private to replica/. [replica thread]
#ifndef LS_REPLICA_MICROBATCHES_H
#define LS_REPLICA_MICROBATCHES_H

#include "core/replica/internal.h"

// Levels at which sums wait while `microbatches` blocks are added.
uint32_t ls_microbatches_levels(uint32_t microbatches);

// Which of the passes LS_PASS_... block `index` is.
uint32_t ls_microbatches_pass(uint32_t index, uint32_t microbatches);

// The bucket's gradients of block `index` are complete. The sums that wait for it are added to
// them; then they wait themselves, or after the last block are those of the share.
LS_STATUS ls_microbatches_add(struct ls_replica *replica, uint32_t index, uint32_t bucket);

// The kernels for it; nothing with one slice, or where they are there. After the buckets are known.
LS_STATUS ls_microbatches_prepare(struct ls_replica *replica);

#endif
