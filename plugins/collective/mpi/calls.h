// SPDX-License-Identifier: Apache-2.0
// Open MPI as a table of calls, found with dlopen, and started once in the process. Nothing of MPI
// is needed to compile this.
#ifndef LS_COLLECTIVE_MPI_CALLS_H
#define LS_COLLECTIVE_MPI_CALLS_H

#include "core/plugin/plugin.h"

#include <pthread.h>

// Open MPI's handles are pointers.
typedef struct ompi_communicator_t *mpi_comm;
typedef struct ompi_datatype_t *mpi_datatype;
typedef struct ompi_op_t *mpi_op;
typedef struct ompi_request_t *mpi_request;
typedef struct ompi_errhandler_t *mpi_errhandler;
typedef void mpi_function(void *from, void *to, int *count, mpi_datatype *type);

#define MPI_IN_PLACE ((void *)1)

enum {
#define MPI_CONSTANT(name, value) name = (value),
#include "plugins/collective/mpi/calls_list.h"
};

struct mpi_calls {
#define MPI_CALL(name, arguments) int(*name) arguments;
#include "plugins/collective/mpi/calls_list.h"
#define MPI_OBJECT(name, symbol) void *symbol;
#include "plugins/collective/mpi/calls_list.h"
};

// Every call of MPI is made under this lock: Open MPI was asked for MPI_THREAD_SERIALIZED. None of
// them waits, but those of opening.
extern pthread_mutex_t mpi_lock;

// Whether this process was started as one of several by an engine that Open MPI can ask, such as
// mpirun; else `reason`.
int mpi_was_launched(char *reason, size_t bytes);

// Loads Open MPI and starts it, unless the program has done so; once in the process. LS_UNAVAILABLE
// with `reason`. [main thread]
int32_t mpi_start(const struct mpi_calls **out, char *reason, size_t bytes);
// to = to (+) from, for 16-bit floats, which MPI does not know. [under mpi_lock]
mpi_op mpi_op_of_halves(uint32_t dtype, uint32_t reduction);
// NULL: it was not loaded.
const struct mpi_calls *mpi_loaded(void);
// An operation was left unfinished, which would write into memory that is somebody else's by now:
// MPI is not called any more.
void mpi_give_up(void);
int mpi_is_given_up(void);

// As ls_plugin.probe says it: whether there is a library. Starts nothing.
int32_t mpi_probe(char *reason, uint64_t bytes);

#endif
