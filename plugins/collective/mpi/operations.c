// SPDX-License-Identifier: Apache-2.0
// Operations of MPI: begun, tested, and finished by what MPI does not do, the division of a mean.
#include "plugins/collective/mpi/internal.h"
#include "plugins/transport/local/kernels.h"

#include <limits.h>
#include <string.h>

#define MOST_ELEMENTS (UINT64_C(1) << 30) // of one operation of MPI

static mpi_datatype type_of(const struct mpi_calls *calls, uint32_t dtype)
{
    switch (dtype) {
    case LS_F32: return (mpi_datatype)calls->ompi_mpi_float;
    case LS_F64: return (mpi_datatype)calls->ompi_mpi_double;
    case LS_I32: return (mpi_datatype)calls->ompi_mpi_int32_t;
    case LS_I64: return (mpi_datatype)calls->ompi_mpi_int64_t;
    case LS_F16:
    case LS_BF16: return (mpi_datatype)calls->ompi_mpi_uint16_t;
    default: return (mpi_datatype)calls->ompi_mpi_uint8_t;
    }
}

static mpi_op op_of(const struct mpi_calls *calls, uint32_t dtype, uint32_t reduction)
{
    if (dtype == LS_F16 || dtype == LS_BF16)
        return mpi_op_of_halves(dtype, reduction);
    switch (reduction) {
    case LS_PRODUCT: return (mpi_op)calls->ompi_mpi_op_prod;
    case LS_MIN: return (mpi_op)calls->ompi_mpi_op_min;
    case LS_MAX: return (mpi_op)calls->ompi_mpi_op_max;
    default: return (mpi_op)calls->ompi_mpi_op_sum; // a mean is divided afterwards
    }
}

static struct ls_range part_of(const struct ls_collective *collective,
                               const struct ls_collective_run *run, uint32_t rank)
{
    return ls_part(ls_data_range(0, run->count), rank, collective->world);
}

static char *at(const struct ls_collective_run *run, uint64_t offset)
{
    return (char *)run->buffer + offset * ls_dtype_bytes(run->dtype);
}

// ---- Memory ----

void mpi_operations_destroy(struct mpi_operation *first)
{
    while (first) {
        struct mpi_operation *next = first->next;
        free(first->requests);
        free(first->parts);
        free(first);
        first = next;
    }
}

static struct mpi_operation *take(struct ls_collective *collective, uint32_t requests)
{
    struct mpi_operation *operation = collective->free;
    if (operation)
        collective->free = operation->next;
    else
        operation = calloc(1, sizeof(*operation));
    if (operation && operation->capacity < requests) {
        free(operation->requests);
        operation->requests = calloc(requests, sizeof(*operation->requests));
        operation->capacity = operation->requests ? requests : 0;
    }
    if (operation && !operation->parts)
        operation->parts = calloc(collective->world, sizeof(*operation->parts));
    if (!operation || operation->capacity < requests || !operation->parts) {
        mpi_operations_destroy(operation);
        return NULL;
    }
    operation->next = NULL;
    operation->count = 0;
    return operation;
}

// ---- Errors ----

static int32_t fail(struct ls_collective *collective, int error)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    collective->calls->MPI_Error_string(error, text, &length);
    collective->status = ls_host_fail(collective->host, LS_FAILED,
                                      "rank %u: Open MPI answers \"%s\"", collective->rank, text);
    return collective->status;
}

// ---- Beginning ----

struct piece {
    char *data;
    int count, root;
};

static int begin_piece(const struct ls_collective *collective, const struct ls_collective_run *run,
                       uint32_t operation, const struct piece *piece, mpi_request *request)
{
    const struct mpi_calls *calls = collective->calls;
    const mpi_datatype type = type_of(calls, run->dtype);
    const mpi_op op = op_of(calls, run->dtype, run->reduction);
    switch (operation) {
    case LS_BROADCAST:
        return calls->MPI_Ibcast(piece->data, piece->count, type, piece->root, collective->comm,
                                 request);
    case LS_REDUCE:
        if ((int)collective->rank == piece->root)
            return calls->MPI_Ireduce(MPI_IN_PLACE, piece->data, piece->count, type, op,
                                      piece->root, collective->comm, request);
        return calls->MPI_Ireduce(piece->data, NULL, piece->count, type, op, piece->root,
                                  collective->comm, request);
    default:
        return calls->MPI_Iallreduce(MPI_IN_PLACE, piece->data, piece->count, type, op,
                                     collective->comm, request);
    }
}

static uint32_t pieces_of(uint64_t count)
{
    return (uint32_t)(count / MOST_ELEMENTS + (count % MOST_ELEMENTS != 0));
}

static int begin_range(const struct ls_collective *collective, struct mpi_operation *operation,
                       uint32_t kind, struct ls_range range, uint32_t root)
{
    int error = MPI_SUCCESS;
    for (uint64_t done = 0; !error && done < range.count; done += MOST_ELEMENTS) {
        const uint64_t left = range.count - done;
        const struct piece piece = {.data = at(&operation->run, range.offset + done),
                                    .count = (int)(left < MOST_ELEMENTS ? left : MOST_ELEMENTS),
                                    .root = (int)root};
        error = begin_piece(collective, &operation->run, kind, &piece,
                            &operation->requests[operation->count]);
        operation->count += !error;
    }
    return error;
}

// In one operation of MPI, whose result is at the beginning of the buffer.
static int begin_reduce_scatter(const struct ls_collective *collective,
                                struct mpi_operation *operation)
{
    const struct ls_collective_run *run = &operation->run;
    const struct mpi_calls *calls = collective->calls;
    for (uint32_t i = 0; i < collective->world; i++)
        operation->parts[i] = (int)part_of(collective, run, i).count;
    const int error = calls->MPI_Ireduce_scatter(
        MPI_IN_PLACE, run->buffer, operation->parts, type_of(calls, run->dtype),
        op_of(calls, run->dtype, run->reduction), collective->comm, operation->requests);
    operation->count = !error;
    return error;
}

static int begin_all_to_all(const struct ls_collective *collective, struct mpi_operation *operation)
{
    const struct ls_collective_run *run = &operation->run;
    const struct mpi_calls *calls = collective->calls;
    const int each = (int)(run->count / collective->world);
    const mpi_datatype type = type_of(calls, run->dtype);
    const int error = calls->MPI_Ialltoall(MPI_IN_PLACE, each, type, run->buffer, each, type,
                                           collective->comm, operation->requests);
    operation->count = !error;
    return error;
}

static int begin(const struct ls_collective *collective, struct mpi_operation *operation)
{
    const struct ls_collective_run *run = &operation->run;
    int error = MPI_SUCCESS;
    switch (run->operation) {
    case LS_REDUCE_SCATTER: return begin_reduce_scatter(collective, operation);
    case LS_ALL_TO_ALL: return begin_all_to_all(collective, operation);
    case LS_ALL_GATHER: // every rank sends its part to all
        for (uint32_t i = 0; !error && i < collective->world; i++)
            error =
                begin_range(collective, operation, LS_BROADCAST, part_of(collective, run, i), i);
        return error;
    default:
        return begin_range(collective, operation, run->operation, ls_data_range(0, run->count),
                           run->root);
    }
}

static uint32_t requests_of(const struct ls_collective *collective,
                            const struct ls_collective_run *run)
{
    const uint32_t each = pieces_of(run->count) + 1;
    return run->operation == LS_ALL_GATHER ? collective->world * each : each;
}

int32_t mpi_poll(struct ls_collective *collective)
{
    const bool over = atomic_load(&collective->aborted) || mpi_is_given_up();
    return over ? LS_ABORTED : collective->status;
}

int32_t mpi_run(struct ls_collective *collective, const struct ls_collective_run *run)
{
    const int32_t status = mpi_poll(collective);
    if (status)
        return status;
    if (run->operation == LS_ALL_TO_ALL && run->count / collective->world > INT_MAX)
        return ls_host_fail(collective->host, LS_UNAVAILABLE,
                            "all-to-all of blocks of %llu elements: MPI counts to %d; take a wider "
                            "element type, or another collective",
                            (unsigned long long)(run->count / collective->world), INT_MAX);
    struct mpi_operation *operation = take(collective, requests_of(collective, run));
    if (!operation)
        return ls_host_fail(collective->host, LS_OUT_OF_MEMORY, "no memory for an operation");
    operation->run = (struct ls_collective_run){0};
    memcpy(&operation->run, run,
           run->struct_size < sizeof(*run) ? run->struct_size : sizeof(*run)); // of an older host
    // Its result lies where the input of others is, and its counts are of int.
    if (run->operation == LS_REDUCE_SCATTER && run->count > INT_MAX)
        operation->run.operation = LS_ALL_REDUCE;
    *collective->end = operation;
    collective->end = &operation->next;
    if (!collective->calls || run->count == 0)
        return LS_OK;
    pthread_mutex_lock(&mpi_lock);
    const int error = begin(collective, operation);
    const int32_t result = error ? fail(collective, error) : LS_OK;
    pthread_mutex_unlock(&mpi_lock);
    return result;
}

// ---- Finishing ----

static void finish(const struct ls_collective *collective, const struct mpi_operation *operation)
{
    const struct ls_collective_run *run = &operation->run;
    const bool scatters = run->operation == LS_REDUCE_SCATTER;
    const struct ls_range part =
        scatters ? part_of(collective, run, collective->rank) : ls_data_range(0, run->count);
    if (!collective->calls)
        return; // the sum of one rank is its mean
    if (scatters)
        memmove(at(run, part.offset), run->buffer, part.count * ls_dtype_bytes(run->dtype));
    if (run->reduction == LS_MEAN &&
        (run->operation == LS_ALL_REDUCE || scatters ||
         (run->operation == LS_REDUCE && run->root == collective->rank)))
        local_kernels_best()->divide[run->dtype](at(run, part.offset), part.count,
                                                 collective->world);
}

// Whether all requests of the operation have ended; those that have are dropped.
static int test(const struct ls_collective *collective, struct mpi_operation *operation)
{
    while (operation->count) {
        int flag = 0;
        const int error =
            collective->calls->MPI_Test(&operation->requests[operation->count - 1], &flag, NULL);
        if (error || !flag)
            return error;
        operation->count--;
    }
    return MPI_SUCCESS;
}

int32_t mpi_done(struct ls_collective *collective, uint64_t *ended)
{
    int32_t status = mpi_poll(collective);
    while (!status && collective->first) {
        struct mpi_operation *operation = collective->first;
        int error = MPI_SUCCESS;
        if (operation->count) {
            pthread_mutex_lock(&mpi_lock);
            error = test(collective, operation);
            if (error)
                status = fail(collective, error);
            pthread_mutex_unlock(&mpi_lock);
        }
        if (error || operation->count)
            break;
        finish(collective, operation);
        collective->first = operation->next;
        if (!collective->first)
            collective->end = &collective->first;
        operation->next = collective->free;
        collective->free = operation;
        collective->ended++;
    }
    *ended = collective->ended;
    return status;
}
