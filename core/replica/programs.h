// SPDX-License-Identifier: Apache-2.0
// The programs of a replica, made when they are first needed, and the memory that they share.
// Private to replica/. [replica thread]
#ifndef LS_REPLICA_PROGRAMS_H
#define LS_REPLICA_PROGRAMS_H

#include "core/replica/buffers.h"

void ls_programs_destroy(struct ls_replica *replica);

// The program for blocks of `count` examples and a purpose; NULL: there is none.
struct ls_replica_program *ls_programs_find(const struct ls_replica *replica, uint64_t count,
                                            enum ls_purpose purpose);

// The times of its kernels count from now on.
void ls_programs_forget_times(struct ls_replica_program *entry);

// Kernels that update the buckets; none without an optimizer.
LS_STATUS ls_updates_prepare(struct ls_replica *replica);
void ls_updates_release(struct ls_replica *replica); // takes one that was not prepared

#endif
