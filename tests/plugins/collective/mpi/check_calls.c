// SPDX-License-Identifier: Apache-2.0
// Our own declarations of Open MPI's calls (calls_list.h) against mpi.h: it compiles, or it says where they part.
#include <mpi.h>

typedef MPI_Comm mpi_comm;
typedef MPI_Datatype mpi_datatype;
typedef MPI_Op mpi_op;
typedef MPI_Request mpi_request;
typedef MPI_Errhandler mpi_errhandler;
typedef MPI_User_function mpi_function;

// MPI_Status is not looked at.
static int test_without_status(MPI_Request *request, int *flag, void *status)
{
    return (MPI_Test)(request, flag, status);
}
#define MPI_Test test_without_status
#define MPI_CALL(name, arguments)                                                             \
    _Static_assert(__builtin_types_compatible_p(__typeof__(name), __typeof__(int arguments)), \
                   #name " is declared otherwise");
#include "plugins/collective/mpi/calls_list.h"
#undef MPI_Test

#define MPI_CONSTANT(name, value) \
    _Static_assert((long long)(name) == (value), #name " has another value");
#include "plugins/collective/mpi/calls_list.h"

_Static_assert(sizeof(MPI_Comm) == sizeof(void *), "handles are pointers");

// What the header calls by this name, and what the linker knows under the name that the plugin looks for.
struct object {
    const void *named, *found;
};

int main(void)
{
    static const struct object objects[] = {
#define MPI_OBJECT(name, symbol) {name, &symbol},
#include "plugins/collective/mpi/calls_list.h"
        {MPI_IN_PLACE, (void *)1},
        {MPI_STATUS_IGNORE, (void *)0},
    };
    for (unsigned i = 0; i < sizeof(objects) / sizeof(*objects); i++)
        if (objects[i].named != objects[i].found)
            return 1;
    (void)test_without_status;
    return 0;
}
