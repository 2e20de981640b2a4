// SPDX-License-Identifier: Apache-2.0
// What the files of the plugin share: the rank of this process, and its operations under way.
#ifndef LS_COLLECTIVE_MPI_INTERNAL_H
#define LS_COLLECTIVE_MPI_INTERNAL_H

#include "core/plugin/collective.h"
#include "plugins/collective/mpi/calls.h"

#include <stdatomic.h>
#include <stdbool.h>

// An operation under way. MPI counts elements by int, so a long one is several of MPI.
struct mpi_operation {
    struct mpi_operation *next; // given later, or free
    struct ls_collective_run run;
    mpi_request *requests;
    uint32_t count, capacity; // of requests
    int *parts; // counts of a reduce-scatter, while it is under way
};

// One rank.
struct ls_collective {
    const struct ls_host *host;
    const struct mpi_calls *calls; // NULL: there is only one rank, and nothing to do
    mpi_comm comm;
    uint32_t rank, world;
    struct mpi_operation *first, **end; // under way, in their order
    struct mpi_operation *free;
    uint64_t ended; // operations
    int32_t status; // LS_OK, or what one of them failed with
    atomic_bool aborted;
};

// ---- operations.c: as collective.h says them ----

int32_t mpi_run(struct ls_collective *collective, const struct ls_collective_run *run);
int32_t mpi_done(struct ls_collective *collective, uint64_t *ended);
int32_t mpi_poll(struct ls_collective *collective);
void mpi_operations_destroy(struct mpi_operation *first);

#endif
