// SPDX-License-Identifier: Apache-2.0
// Collectives on a program's own buffers, without a run or a model: a communicator for each of its
// threads that takes part.
#include "core/base/dtype.h"
#include "core/base/log.h"
#include "core/collective/communicator.h"
#include "core/data/dataset.h"
#include "core/loader/loader.h"
#include "core/train/sizes.h"
#include "lockstep.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_DEADLINE_SECONDS 60
#define DEFAULT_COLLECTIVE "ring"
#define DEFAULT_TRANSPORT "local"
#define MOST_RANKS 4096 // threads of a process

// What the ranks of one ls_comm_open have in common, until the last of them is closed.
struct ranks {
    struct ls_loader *loader;
    const struct ls_opened_plugin *collective, *transport;
    struct ls_comm **comms; // by rank
    atomic_uint open;
    uint32_t world;
    char *name;
};

struct ls_comm {
    struct ranks *ranks;
    uint32_t rank;
    struct ls_communicator *communicator;
    char *parts; // of all ranks, where those of the caller do not begin where the collective's do
    uint64_t room; // bytes
};

// ---- Opening and closing ----

static void destroy(struct ranks *ranks)
{
    for (uint32_t i = 0; ranks->comms && i < ranks->world; i++) {
        struct ls_comm *comm = ranks->comms[i];
        if (comm && comm->communicator) {
            ls_communicator_end(comm->communicator);
            ls_communicators_close(&comm->communicator, 1);
        }
        if (comm)
            free(comm->parts);
        free(comm);
    }
    ls_loader_destroy(ranks->loader);
    free(ranks->comms);
    free(ranks->name);
    free(ranks);
}

static enum ls_status open_plugins(const struct ls_comm_options *options, struct ranks *ranks)
{
    const char *collective = options->collective ? options->collective : DEFAULT_COLLECTIVE;
    const char *transport = options->transport ? options->transport : DEFAULT_TRANSPORT;
    enum ls_status status = ls_loader_create(options->plugin_path, &ranks->loader);
    if (!status)
        status = ls_loader_open_text(ranks->loader, "ls_comm_open", LS_KIND_COLLECTIVE, collective,
                                     &ranks->collective);
    if (!status && ls_is_auto(ranks->collective)) {
        ls_error("ls_comm_open", "auto chooses the collective of a training by the sizes of its "
                                 "buckets; name a collective here, as ring or direct");
        status = LS_USAGE;
    }
    if (!status)
        status = ls_loader_open_text(ranks->loader, "ls_comm_open", LS_KIND_TRANSPORT, transport,
                                     &ranks->transport);
    return status;
}

static enum ls_status open_communicators(struct ranks *ranks, double deadline_seconds)
{
    struct ls_communicator **communicators = calloc(ranks->world, sizeof(*communicators));
    const struct ls_communicator_options options = {
        .collective = ranks->collective->plugin,
        .collective_host = ranks->collective->host,
        .collective_text = ranks->collective->text,
        .transport = ranks->transport->plugin,
        .transport_host = ranks->transport->host,
        .world = ranks->world,
        .deadline_ns = (uint64_t)(deadline_seconds * 1e9),
        .name = ranks->name,
    };
    const enum ls_status status =
        communicators ? ls_communicators_open(&options, communicators) : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < ranks->world; i++)
        ranks->comms[i]->communicator = communicators[i];
    free(communicators);
    return status;
}

static enum ls_status make_comms(struct ranks *ranks)
{
    ranks->comms = calloc(ranks->world, sizeof(*ranks->comms));
    for (uint32_t i = 0; ranks->comms && i < ranks->world; i++) {
        struct ls_comm *comm = calloc(1, sizeof(*comm));
        if (!comm)
            return LS_OUT_OF_MEMORY;
        comm->ranks = ranks;
        comm->rank = i;
        ranks->comms[i] = comm;
    }
    return ranks->comms ? LS_OK : LS_OUT_OF_MEMORY;
}

static enum ls_status check_options(const struct ls_comm_options *options, double deadline)
{
    if (options->size == 0 || options->size > MOST_RANKS) {
        ls_error("ls_comm_open", "a communicator of %u ranks; expected 1 to %d", options->size,
                 MOST_RANKS);
        return LS_USAGE;
    }
    if (!(deadline > 0) || deadline > 1e6) {
        ls_error("ls_comm_open", "a deadline of %g: expected seconds, above 0 and up to 1000000",
                 deadline);
        return LS_USAGE;
    }
    return LS_OK;
}

static enum ls_status open_all(const struct ls_comm_options *options, struct ls_comm **out)
{
    const double deadline =
        options->deadline_seconds != 0 ? options->deadline_seconds : DEFAULT_DEADLINE_SECONDS;
    enum ls_status status = check_options(options, deadline);
    if (status)
        return status;
    struct ranks *ranks = calloc(1, sizeof(*ranks));
    if (!ranks)
        return LS_OUT_OF_MEMORY;
    ranks->world = options->size;
    ranks->open = options->size;
    ranks->name = strdup(options->name ? options->name : "communicator");
    status = ranks->name ? open_plugins(options, ranks) : LS_OUT_OF_MEMORY;
    if (!status)
        status = make_comms(ranks);
    if (!status)
        status = open_communicators(ranks, deadline);
    if (status)
        destroy(ranks);
    else
        memcpy(out, ranks->comms, ranks->world * sizeof(*out));
    return status;
}

enum ls_status ls_comm_open_sized(const struct ls_comm_options *options, size_t bytes,
                                  struct ls_comm **out)
{
    const uint64_t errors = ls_log_errors();
    struct ls_comm_options ours;
    enum ls_status status =
        ls_take_options("struct ls_comm_options", options, bytes, &ours, sizeof(ours));
    if (!status)
        status = open_all(&ours, out);
    if (status && ls_log_errors() == errors)
        ls_error("ls_comm_open", "%s", ls_status_text(status));
    return status;
}

// The last one closes all: others may still be in a call to which this rank has given its part.
void ls_comm_close(struct ls_comm *comm)
{
    if (comm && atomic_fetch_sub(&comm->ranks->open, 1) == 1)
        destroy(comm->ranks);
}

void ls_comm_abort(struct ls_comm *comm)
{
    ls_communicator_abort(comm->communicator);
}

uint32_t ls_comm_rank(const struct ls_comm *comm)
{
    return comm->rank;
}

uint32_t ls_comm_size(const struct ls_comm *comm)
{
    return comm->ranks->world;
}

// ---- Operations ----

static enum ls_status find_dtype(const char *call, const char *name, uint32_t *out)
{
    static const uint32_t dtypes[] = {LS_F32, LS_F64, LS_F16, LS_BF16, LS_I32, LS_I64, LS_U8};
    for (size_t i = 0; name && i < sizeof(dtypes) / sizeof(*dtypes); i++)
        if (strcmp(name, ls_dtype_name(dtypes[i])) == 0) {
            *out = dtypes[i];
            return LS_OK;
        }
    ls_error(call,
             "dtype '%s'; expected float32, float64, float16, bfloat16, int32, int64 or uint8",
             name ? name : "");
    return LS_USAGE;
}

static enum ls_status find_reduction(const char *call, const char *name, uint32_t *out)
{
    static const char *const names[] = {[LS_SUM] = "sum",
                                        [LS_PRODUCT] = "product",
                                        [LS_MIN] = "min",
                                        [LS_MAX] = "max",
                                        [LS_MEAN] = "mean"};
    for (uint32_t i = LS_SUM; name && i <= LS_MEAN; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = i;
            return LS_OK;
        }
    ls_error(call, "reduction '%s'; expected sum, mean, min, max or product", name ? name : "");
    return LS_USAGE;
}

// Who fails first has said why; the others only say that they end.
static enum ls_status run(struct ls_comm *comm, const char *name,
                          const struct ls_communicator_call *call)
{
    const uint64_t errors = ls_log_errors();
    const enum ls_status status = ls_communicator_run(comm->communicator, call);
    if (status == LS_ABORTED)
        ls_error(comm->ranks->name,
                 "rank %u: %s ends because another rank failed or the communicator was aborted; "
                 "close it on all ranks, and open another one",
                 comm->rank, name);
    else if (status && ls_log_errors() == errors)
        ls_error(comm->ranks->name, "rank %u: %s: %s", comm->rank, name, ls_status_text(status));
    return status;
}

enum ls_status ls_comm_all_reduce(struct ls_comm *comm, void *buffer, uint64_t count,
                                  const char *dtype, const char *reduction)
{
    struct ls_communicator_call call = {
        .operation = LS_ALL_REDUCE, .buffer = ls_host_memory(buffer), .count = count};
    enum ls_status status = find_dtype("ls_comm_all_reduce", dtype, &call.dtype);
    if (!status)
        status = find_reduction("ls_comm_all_reduce", reduction, &call.reduction);
    return status ? status : run(comm, "ls_comm_all_reduce", &call);
}

enum ls_status ls_comm_reduce(struct ls_comm *comm, void *buffer, uint64_t count, const char *dtype,
                              const char *reduction, uint32_t root)
{
    struct ls_communicator_call call = {
        .operation = LS_REDUCE, .buffer = ls_host_memory(buffer), .count = count, .root = root};
    enum ls_status status = find_dtype("ls_comm_reduce", dtype, &call.dtype);
    if (!status)
        status = find_reduction("ls_comm_reduce", reduction, &call.reduction);
    return status ? status : run(comm, "ls_comm_reduce", &call);
}

enum ls_status ls_comm_broadcast(struct ls_comm *comm, void *buffer, uint64_t count,
                                 const char *dtype, uint32_t root)
{
    struct ls_communicator_call call = {.operation = LS_BROADCAST,
                                        .reduction = LS_SUM,
                                        .buffer = ls_host_memory(buffer),
                                        .count = count,
                                        .root = root};
    const enum ls_status status = find_dtype("ls_comm_broadcast", dtype, &call.dtype);
    return status ? status : run(comm, "ls_comm_broadcast", &call);
}

enum ls_status ls_comm_barrier(struct ls_comm *comm)
{
    int32_t here = 1;
    const struct ls_communicator_call call = {.operation = LS_ALL_REDUCE,
                                              .dtype = LS_I32,
                                              .reduction = LS_SUM,
                                              .buffer = ls_host_memory(&here),
                                              .count = 1};
    return run(comm, "ls_comm_barrier", &call);
}

// Of operations on the parts of all ranks, which read and write the caller's memory themselves.
static enum ls_status check_parts(const struct ls_comm *comm, const char *name, const void *mine,
                                  const void *all, uint64_t count)
{
    if (count > UINT64_MAX / 64 / comm->ranks->world) {
        ls_error(name, "rank %u: %llu elements on each of %u ranks are too many", comm->rank,
                 (unsigned long long)count, comm->ranks->world);
        return LS_USAGE;
    }
    if (count && (!mine || !all)) {
        ls_error(name, "rank %u: expected a buffer, got NULL", comm->rank);
        return LS_USAGE;
    }
    return LS_OK;
}

// Parts of a collective begin at multiples of LS_CHUNK_ALIGNMENT elements.
static enum ls_status make_parts(struct ls_comm *comm, const char *name, uint64_t count,
                                 uint64_t element_bytes, uint64_t *stride)
{
    const uint64_t world = comm->ranks->world;
    *stride = (count + LS_CHUNK_ALIGNMENT - 1) / LS_CHUNK_ALIGNMENT * LS_CHUNK_ALIGNMENT;
    const uint64_t bytes = *stride * world * element_bytes;
    if (bytes <= comm->room)
        return LS_OK;
    free(comm->parts);
    comm->room = 0;
    comm->parts = aligned_alloc(LS_ALIGNMENT, bytes);
    if (!comm->parts) {
        ls_error(name, "rank %u: no memory for %llu bytes of all ranks", comm->rank,
                 (unsigned long long)bytes);
        return LS_OUT_OF_MEMORY;
    }
    memset(comm->parts, 0, bytes); // what is between parts takes part in sums
    comm->room = bytes;
    return LS_OK;
}

enum ls_status ls_comm_all_gather(struct ls_comm *comm, const void *mine, uint64_t count,
                                  const char *dtype, void *all)
{
    const uint32_t world = comm->ranks->world;
    struct ls_communicator_call call = {.operation = LS_ALL_GATHER, .reduction = LS_SUM};
    uint64_t stride = count;
    enum ls_status status = find_dtype("ls_comm_all_gather", dtype, &call.dtype);
    if (!status)
        status = check_parts(comm, "ls_comm_all_gather", mine, all, count);
    if (status)
        return status;
    const uint64_t element_bytes = ls_dtype_bytes(call.dtype), bytes = count * element_bytes;
    const bool fits = count % LS_CHUNK_ALIGNMENT == 0;
    if (!fits)
        status = make_parts(comm, "ls_comm_all_gather", count, element_bytes, &stride);
    if (status)
        return status;
    char *parts = fits ? all : comm->parts;
    if (count)
        memmove(parts + comm->rank * stride * element_bytes, mine, bytes);
    call.buffer = ls_host_memory(parts);
    call.count = stride * world;
    status = run(comm, "ls_comm_all_gather", &call);
    for (uint32_t i = 0; !status && !fits && i < world; i++)
        memcpy((char *)all + i * bytes, parts + i * stride * element_bytes, bytes);
    return status;
}

enum ls_status ls_comm_reduce_scatter(struct ls_comm *comm, const void *all, uint64_t count,
                                      const char *dtype, const char *reduction, void *mine)
{
    const uint32_t world = comm->ranks->world;
    struct ls_communicator_call call = {.operation = LS_REDUCE_SCATTER};
    uint64_t stride;
    enum ls_status status = find_dtype("ls_comm_reduce_scatter", dtype, &call.dtype);
    if (!status)
        status = find_reduction("ls_comm_reduce_scatter", reduction, &call.reduction);
    if (!status)
        status = check_parts(comm, "ls_comm_reduce_scatter", mine, all, count);
    if (status)
        return status;
    const uint64_t element_bytes = ls_dtype_bytes(call.dtype), bytes = count * element_bytes;
    status = make_parts(comm, "ls_comm_reduce_scatter", count, element_bytes, &stride);
    if (status)
        return status;
    for (uint32_t i = 0; count && i < world; i++) // whose values are needed as they are elsewhere
        memcpy(comm->parts + i * stride * element_bytes, (const char *)all + i * bytes, bytes);
    call.buffer = ls_host_memory(comm->parts);
    call.count = stride * world;
    status = run(comm, "ls_comm_reduce_scatter", &call);
    if (!status && count)
        memcpy(mine, comm->parts + comm->rank * stride * element_bytes, bytes);
    return status;
}
