// SPDX-License-Identifier: Apache-2.0
// The gradient of the model's output that the host gives where the graph has no loss. Private to replica/. [replica thread]
#ifndef LS_REPLICA_SEED_H
#define LS_REPLICA_SEED_H

#include "core/replica/internal.h"

// For replica->largest_batch examples; nothing where the graph has a loss. LS_OUT_OF_MEMORY is not logged.
LS_STATUS ls_seed_make_room(struct ls_replica *replica);
void ls_seed_bind(const struct ls_replica *replica, struct ls_program *program);
void ls_seed_release(struct ls_replica *replica);

#endif
