// SPDX-License-Identifier: Apache-2.0
// A share computed in parts: the gradients of the parts are added, bucket by bucket. Private to replica/. [replica thread]
#ifndef LS_REPLICA_SLICING_H
#define LS_REPLICA_SLICING_H

#include "core/replica/replica.h"

struct ls_slicing {
    bool first, last; // of the parts of a share
};

// The bucket's gradients of this part are complete: adds them to those of the parts before it, and in the last part those to
// them.
LS_STATUS ls_slicing_add(const struct ls_slicing *slicing, struct ls_replica *replica,
                         uint32_t bucket);

// The kernels for it; nothing with one slice. After the buckets are known.
LS_STATUS ls_slicing_prepare(struct ls_replica *replica);

// A kernel of the replica's own needs so much scratch. Before the buffers are allocated.
void ls_replica_need_scratch(struct ls_replica *replica, uint64_t bytes);

#endif
