// SPDX-License-Identifier: Apache-2.0
// Finds, starts and ends Open MPI. MPI can be started once in a process and not again after its end, so it is ended when the
// process ends, and not with an instance.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // NSIG
#endif
#include "plugins/collective/mpi/calls.h"
#include "plugins/transport/local/kernels.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#define MPI_LIBRARY "libmpi.so.40"
#define MISSING "missing library: " MPI_LIBRARY " (Open MPI 4; Debian: libopenmpi3)"
#define END_SECONDS 5 // that the end of the process waits for the other processes

pthread_mutex_t mpi_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mpi_calls calls;
static bool loaded, started;
static atomic_bool given_up;

// ---- The library ----

int32_t mpi_probe(char *reason, uint64_t bytes)
{
    void *handle = dlopen(MPI_LIBRARY, RTLD_LAZY | RTLD_LOCAL);
    if (!handle) {
        snprintf(reason, bytes, MISSING);
        return LS_UNAVAILABLE;
    }
    dlclose(handle);
    return LS_OK;
}

int mpi_was_launched(char *reason, size_t bytes)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
        if (getenv(variables[i]))
            return 1;
    snprintf(
        reason, bytes,
        "Open MPI knows of no other process: start the workers by mpirun, or by srun --mpi=pmix");
    return 0;
}

static bool find(void *handle, const char *name, void *out, char *reason, size_t bytes)
{
    *(void **)out = dlsym(handle, name);
    if (*(void **)out)
        return true;
    snprintf(reason, bytes, MPI_LIBRARY " has no %s: Open MPI 4 is needed (Debian: libopenmpi3)",
             name);
    return false;
}

static bool load(char *reason, size_t bytes)
{
    void *handle = dlopen(MPI_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) {
        snprintf(reason, bytes, MISSING);
        return false;
    }
#define MPI_CALL(name, arguments)                                 \
    if (!find(handle, #name, (void *)&calls.name, reason, bytes)) \
        return false;
#include "plugins/collective/mpi/calls_list.h"
#define MPI_OBJECT(name, symbol)                                      \
    if (!find(handle, #symbol, (void *)&calls.symbol, reason, bytes)) \
        return false;
#include "plugins/collective/mpi/calls_list.h"
    return true;
}

const struct mpi_calls *mpi_loaded(void)
{
    return loaded ? &calls : NULL;
}

// ---- The end ----

void mpi_give_up(void)
{
    atomic_store(&given_up, true);
}

int mpi_is_given_up(void)
{
    return atomic_load(&given_up);
}

// MPI_Finalize waits for all processes, for ever. So it is called only when all have come as far.
static void end_library(void)
{
    mpi_request request;
    int there = 0, finalized = 0;
    struct timespec begin, now;
    if (mpi_is_given_up() || calls.MPI_Finalized(&finalized) || finalized ||
        calls.MPI_Ibarrier((mpi_comm)calls.ompi_mpi_comm_world, &request))
        return;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        if (calls.MPI_Test(&request, &there, NULL))
            return;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (!there && now.tv_sec - begin.tv_sec < END_SECONDS &&
             nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL) == 0);
    if (there)
        calls.MPI_Finalize();
}

// ---- Reductions of halves ----

// Rounded after each addition, as Lockstep's own transports do it. To add up in float32 instead would double what travels.
static void reduce_halves(void *from, void *to, int count, uint32_t dtype, uint32_t reduction)
{
    local_kernels_best()->reduce[dtype][reduction](to, from, (uint64_t)count);
}

#define HALVES(CALL)          \
    CALL(LS_F16, LS_SUM)      \
    CALL(LS_F16, LS_PRODUCT)  \
    CALL(LS_F16, LS_MIN)      \
    CALL(LS_F16, LS_MAX)      \
    CALL(LS_BF16, LS_SUM)     \
    CALL(LS_BF16, LS_PRODUCT) \
    CALL(LS_BF16, LS_MIN)     \
    CALL(LS_BF16, LS_MAX)

// MPI tells a function of ours neither the type that is meant nor the reduction, so there is one for each.
#define HALF_FUNCTION(dtype, reduction)                                                            \
    static void reduce_##dtype##_##reduction(void *from, void *to, int *count, mpi_datatype *type) \
    {                                                                                              \
        (void)type;                                                                                \
        reduce_halves(from, to, *count, dtype, reduction);                                         \
    }
HALVES(HALF_FUNCTION)

static mpi_function *const half_functions[LOCAL_DTYPES][LOCAL_REDUCTIONS] = {
#define HALF_ENTRY(dtype, reduction) [dtype][reduction] = reduce_##dtype##_##reduction,
    HALVES(HALF_ENTRY)};
static mpi_op half_ops[LOCAL_DTYPES][LOCAL_REDUCTIONS];

static int create_half_ops(void)
{
    int error = 0;
    for (uint32_t dtype = 0; dtype < LOCAL_DTYPES; dtype++)
        for (uint32_t reduction = 0; reduction < LOCAL_REDUCTIONS; reduction++)
            if (half_functions[dtype][reduction] && !half_ops[dtype][reduction] && !error)
                error = calls.MPI_Op_create(half_functions[dtype][reduction], 1,
                                            &half_ops[dtype][reduction]);
    return error;
}

mpi_op mpi_op_of_halves(uint32_t dtype, uint32_t reduction)
{
    // A mean is a sum that is divided afterwards.
    return half_ops[dtype][reduction == LS_MEAN ? LS_SUM : reduction];
}

// ---- The start ----

// Open MPI takes over the handlers of crashes; where somebody else has them, it prints a warning. So it finds the default
// ones, and what was there before comes back.
static int start_library(int *provided)
{
    struct sigaction before[NSIG];
    bool known[NSIG] = {false};
    for (int i = 1; i < NSIG; i++)
        known[i] = sigaction(i, NULL, &before[i]) == 0;
    static const int crashes[] = {SIGABRT, SIGBUS, SIGFPE, SIGSEGV};
    for (size_t i = 0; i < sizeof(crashes) / sizeof(*crashes); i++)
        sigaction(crashes[i], &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    const int error = calls.MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, provided);
    for (int i = 1; i < NSIG; i++)
        if (known[i])
            sigaction(i, &before[i], NULL);
    return error;
}

static int32_t start(char *reason, size_t bytes)
{
    int initialized = 0, finalized = 0, provided = 0;
    calls.MPI_Initialized(&initialized);
    calls.MPI_Finalized(&finalized);
    if (finalized || mpi_is_given_up()) {
        snprintf(reason, bytes,
                 finalized
                     ? "this program has ended MPI, and MPI cannot be started again"
                     : "an operation of MPI was aborted in this process, which cannot use MPI "
                       "any more: start it again");
        return LS_UNAVAILABLE;
    }
    if (initialized) {
        calls.MPI_Query_thread(&provided);
        if (started || provided >= MPI_THREAD_MULTIPLE)
            return LS_OK;
        snprintf(
            reason, bytes,
            "this program has started MPI without MPI_THREAD_MULTIPLE, so nobody else may use it");
        return LS_UNAVAILABLE;
    }
    if (start_library(&provided) || provided < MPI_THREAD_SERIALIZED) {
        snprintf(reason, bytes, "Open MPI does not start, or not with MPI_THREAD_SERIALIZED");
        return LS_UNAVAILABLE;
    }
    started = true;
    atexit(end_library);
    return LS_OK;
}

int32_t mpi_start(const struct mpi_calls **out, char *reason, size_t bytes)
{
    pthread_mutex_lock(&mpi_lock);
    loaded = loaded || load(reason, bytes);
    int32_t status = loaded ? start(reason, bytes) : LS_UNAVAILABLE;
    if (!status && create_half_ops()) {
        snprintf(reason, bytes, "Open MPI takes no reductions for 16-bit floats");
        status = LS_UNAVAILABLE;
    }
    pthread_mutex_unlock(&mpi_lock);
    *out = &calls;
    return status;
}
