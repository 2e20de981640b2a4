// SPDX-License-Identifier: Apache-2.0
// The device's memory that a replica has. Private to replica/. [replica thread]
#ifndef LS_REPLICA_BUFFERS_H
#define LS_REPLICA_BUFFERS_H

#include "core/replica/internal.h"

// Device memory, counted in device_bytes; nowhere: there is none.
struct ls_memory ls_replica_take_memory(struct ls_replica *replica, uint64_t bytes);
// Nowhere: does nothing.
void ls_replica_give_memory(struct ls_replica *replica, struct ls_memory memory, uint64_t bytes);
// The room has `bytes` at least afterwards; it may move. Nothing that is under way uses it: steps
// and evaluations have ended.
LS_STATUS ls_replica_grow(struct ls_replica *replica, struct ls_replica_room *room, uint64_t bytes);
// A kernel of the replica's own needs so much scratch. Before ls_replica_need.
void ls_replica_need_scratch(struct ls_replica *replica, uint64_t bytes);
// Passes `status` on, and logs how much was needed where it is LS_OUT_OF_MEMORY.
enum ls_status ls_replica_say_no_memory(const struct ls_replica *replica, enum ls_status status);

// What ls_replica_allocate and ls_replica_need took, but for that of the input.
void ls_buffers_release(struct ls_replica *replica);

#endif
