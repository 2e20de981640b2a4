// SPDX-License-Identifier: Apache-2.0
// The programs of a replica, made when they are first needed, and the memory that they share.
// Private to replica/. [replica thread]
#ifndef LS_REPLICA_PROGRAMS_H
#define LS_REPLICA_PROGRAMS_H

#include "core/replica/internal.h"

void ls_programs_destroy(struct ls_replica *replica);

// The program for blocks of `count` examples and a purpose; NULL: there is none.
struct ls_replica_program *ls_programs_find(const struct ls_replica *replica, uint64_t count,
                                            enum ls_purpose purpose);

// Device memory, counted in device_bytes; nowhere: there is none.
struct ls_memory ls_replica_take_memory(struct ls_replica *replica, uint64_t bytes);
// Nowhere: does nothing.
void ls_replica_give_memory(struct ls_replica *replica, struct ls_memory memory, uint64_t bytes);
// Passes `status` on, and logs how much was needed where it is LS_OUT_OF_MEMORY.
enum ls_status ls_replica_say_no_memory(const struct ls_replica *replica, enum ls_status status);

// Kernels that update the buckets; none without an optimizer.
LS_STATUS ls_updates_prepare(struct ls_replica *replica);
void ls_updates_release(struct ls_replica *replica); // takes one that was not prepared

// A kernel of the replica's own needs so much scratch. Before ls_replica_need.
void ls_replica_need_scratch(struct ls_replica *replica, uint64_t bytes);

#endif
