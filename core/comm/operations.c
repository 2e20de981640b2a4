// SPDX-License-Identifier: Apache-2.0
// The operations of communicators without a model: what each is asked, which runs at once or as a
// work.
#include "core/base/clock.h"
#include "core/base/dtype.h"
#include "core/base/log.h"
#include "core/base/plain_locale.h"
#include "core/comm/work.h"

#include <math.h>
#include <string.h>

#define LONGEST_WAIT_SECONDS 1e9

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

static enum ls_status ask_reduction(struct ls_comm_request *request, const char *dtype,
                                    const char *reduction)
{
    const enum ls_status status = find_dtype(request->name, dtype, &request->call.dtype);
    return status ? status : find_reduction(request->name, reduction, &request->call.reduction);
}

static enum ls_status ask_all_reduce(const char *name, void *buffer, uint64_t count,
                                     const char *dtype, const char *reduction,
                                     struct ls_comm_request *out)
{
    *out = (struct ls_comm_request){
        .name = name,
        .call = {.operation = LS_ALL_REDUCE, .buffer = ls_host_memory(buffer), .count = count}};
    return ask_reduction(out, dtype, reduction);
}

static enum ls_status ask_reduce(const char *name, void *buffer, uint64_t count, const char *dtype,
                                 const char *reduction, uint32_t root, struct ls_comm_request *out)
{
    *out = (struct ls_comm_request){.name = name,
                                    .call = {.operation = LS_REDUCE,
                                             .buffer = ls_host_memory(buffer),
                                             .count = count,
                                             .root = root}};
    return ask_reduction(out, dtype, reduction);
}

static enum ls_status ask_broadcast(const char *name, void *buffer, uint64_t count,
                                    const char *dtype, uint32_t root, struct ls_comm_request *out)
{
    *out = (struct ls_comm_request){.name = name,
                                    .call = {.operation = LS_BROADCAST,
                                             .reduction = LS_SUM,
                                             .buffer = ls_host_memory(buffer),
                                             .count = count,
                                             .root = root}};
    return find_dtype(name, dtype, &out->call.dtype);
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

static enum ls_status ask_all_gather(const struct ls_comm *comm, const char *name, const void *mine,
                                     uint64_t count, const char *dtype, void *all,
                                     struct ls_comm_request *out)
{
    *out = (struct ls_comm_request){.name = name,
                                    .kind = LS_COMM_ALL_GATHER,
                                    .call = {.operation = LS_ALL_GATHER, .reduction = LS_SUM},
                                    .mine = (void *)(uintptr_t)mine, // which this kind only reads
                                    .all = all,
                                    .count = count};
    const enum ls_status status = find_dtype(name, dtype, &out->call.dtype);
    return status ? status : check_parts(comm, name, mine, all, count);
}

static enum ls_status ask_reduce_scatter(const struct ls_comm *comm, const char *name,
                                         const void *all, uint64_t count, const char *dtype,
                                         const char *reduction, void *mine,
                                         struct ls_comm_request *out)
{
    *out = (struct ls_comm_request){.name = name,
                                    .kind = LS_COMM_REDUCE_SCATTER,
                                    .call = {.operation = LS_REDUCE_SCATTER},
                                    .mine = mine,
                                    .all = (void *)(uintptr_t)all, // which this kind only reads
                                    .count = count};
    const enum ls_status status = ask_reduction(out, dtype, reduction);
    return status ? status : check_parts(comm, name, mine, all, count);
}

static enum ls_status ask_all_to_all(const struct ls_comm *comm, const char *name, const void *from,
                                     uint64_t count, const char *dtype, void *to,
                                     struct ls_comm_request *out)
{
    *out = (struct ls_comm_request){.name = name,
                                    .kind = LS_COMM_ALL_TO_ALL,
                                    .call = {.operation = LS_ALL_TO_ALL, .reduction = LS_SUM},
                                    .mine = (void *)(uintptr_t)from, // which this kind only reads
                                    .all = to,
                                    .count = count};
    const enum ls_status status = find_dtype(name, dtype, &out->call.dtype);
    return status ? status : check_parts(comm, name, from, to, count);
}

// All ranks add up one number each, which the work has.
static const struct ls_comm_request *barrier_request(void)
{
    static const struct ls_comm_request request = {
        .name = "ls_comm_barrier",
        .kind = LS_COMM_BARRIER,
        .call = {.operation = LS_ALL_REDUCE, .dtype = LS_I32, .reduction = LS_SUM, .count = 1}};
    return &request;
}

// ---- Waiting for a work ----

enum ls_status ls_comm_work_wait(struct ls_comm_work *work, double seconds)
{
    LS_PLAIN_LOCALE;
    if (ls_work_is_over(work))
        return ls_work_tell(work);
    const enum ls_status status = ls_comm_check_process(work->comm, "ls_comm_work_wait");
    if (status)
        return status;
    if (seconds > 0) {
        const uint64_t end_ns =
            ls_clock_ns() + (uint64_t)(fmin(seconds, LONGEST_WAIT_SECONDS) * 1e9);
        if (work->request.kind >= LS_COMM_SEND)
            ls_comm_messages_drive(work, end_ns);
        else
            ls_work_drive(work, end_ns);
        if (!ls_work_is_over(work))
            ls_work_sleep(work, end_ns);
    }
    return ls_work_is_over(work) ? ls_work_tell(work) : LS_AGAIN;
}

// ---- Calls that return when it is over ----

static enum ls_status run(struct ls_comm *comm, const struct ls_comm_request *request)
{
    LS_PLAIN_LOCALE;
    struct ls_comm_work *work;
    enum ls_status status = ls_comm_check_process(comm, request->name);
    if (status || ls_work_run(comm, request, &status))
        return status;
    status = ls_comm_start(comm, request, &work);
    if (status)
        return status;
    do
        status = ls_comm_work_wait(work, LONGEST_WAIT_SECONDS);
    while (status == LS_AGAIN);
    ls_comm_work_free(work);
    return status;
}

enum ls_status ls_comm_all_reduce(struct ls_comm *comm, void *buffer, uint64_t count,
                                  const char *dtype, const char *reduction)
{
    struct ls_comm_request request;
    const enum ls_status status =
        ask_all_reduce("ls_comm_all_reduce", buffer, count, dtype, reduction, &request);
    return status ? status : run(comm, &request);
}

enum ls_status ls_comm_reduce(struct ls_comm *comm, void *buffer, uint64_t count, const char *dtype,
                              const char *reduction, uint32_t root)
{
    struct ls_comm_request request;
    const enum ls_status status =
        ask_reduce("ls_comm_reduce", buffer, count, dtype, reduction, root, &request);
    return status ? status : run(comm, &request);
}

enum ls_status ls_comm_broadcast(struct ls_comm *comm, void *buffer, uint64_t count,
                                 const char *dtype, uint32_t root)
{
    struct ls_comm_request request;
    const enum ls_status status =
        ask_broadcast("ls_comm_broadcast", buffer, count, dtype, root, &request);
    return status ? status : run(comm, &request);
}

enum ls_status ls_comm_all_gather(struct ls_comm *comm, const void *mine, uint64_t count,
                                  const char *dtype, void *all)
{
    struct ls_comm_request request;
    const enum ls_status status =
        ask_all_gather(comm, "ls_comm_all_gather", mine, count, dtype, all, &request);
    return status ? status : run(comm, &request);
}

enum ls_status ls_comm_reduce_scatter(struct ls_comm *comm, const void *all, uint64_t count,
                                      const char *dtype, const char *reduction, void *mine)
{
    struct ls_comm_request request;
    const enum ls_status status = ask_reduce_scatter(comm, "ls_comm_reduce_scatter", all, count,
                                                     dtype, reduction, mine, &request);
    return status ? status : run(comm, &request);
}

enum ls_status ls_comm_all_to_all(struct ls_comm *comm, const void *from, uint64_t count,
                                  const char *dtype, void *to)
{
    struct ls_comm_request request;
    const enum ls_status status =
        ask_all_to_all(comm, "ls_comm_all_to_all", from, count, dtype, to, &request);
    return status ? status : run(comm, &request);
}

enum ls_status ls_comm_barrier(struct ls_comm *comm)
{
    return run(comm, barrier_request());
}

// ---- Calls that begin a work ----

enum ls_status ls_comm_start_all_reduce(struct ls_comm *comm, void *buffer, uint64_t count,
                                        const char *dtype, const char *reduction,
                                        struct ls_comm_work **out)
{
    struct ls_comm_request request;
    const enum ls_status status =
        ask_all_reduce("ls_comm_start_all_reduce", buffer, count, dtype, reduction, &request);
    return status ? status : ls_comm_start(comm, &request, out);
}

enum ls_status ls_comm_start_reduce(struct ls_comm *comm, void *buffer, uint64_t count,
                                    const char *dtype, const char *reduction, uint32_t root,
                                    struct ls_comm_work **out)
{
    struct ls_comm_request request;
    const enum ls_status status =
        ask_reduce("ls_comm_start_reduce", buffer, count, dtype, reduction, root, &request);
    return status ? status : ls_comm_start(comm, &request, out);
}

enum ls_status ls_comm_start_broadcast(struct ls_comm *comm, void *buffer, uint64_t count,
                                       const char *dtype, uint32_t root, struct ls_comm_work **out)
{
    struct ls_comm_request request;
    const enum ls_status status =
        ask_broadcast("ls_comm_start_broadcast", buffer, count, dtype, root, &request);
    return status ? status : ls_comm_start(comm, &request, out);
}

enum ls_status ls_comm_start_all_gather(struct ls_comm *comm, const void *mine, uint64_t count,
                                        const char *dtype, void *all, struct ls_comm_work **out)
{
    struct ls_comm_request request;
    const enum ls_status status =
        ask_all_gather(comm, "ls_comm_start_all_gather", mine, count, dtype, all, &request);
    return status ? status : ls_comm_start(comm, &request, out);
}

enum ls_status ls_comm_start_reduce_scatter(struct ls_comm *comm, const void *all, uint64_t count,
                                            const char *dtype, const char *reduction, void *mine,
                                            struct ls_comm_work **out)
{
    struct ls_comm_request request;
    const enum ls_status status = ask_reduce_scatter(comm, "ls_comm_start_reduce_scatter", all,
                                                     count, dtype, reduction, mine, &request);
    return status ? status : ls_comm_start(comm, &request, out);
}

enum ls_status ls_comm_start_all_to_all(struct ls_comm *comm, const void *from, uint64_t count,
                                        const char *dtype, void *to, struct ls_comm_work **out)
{
    struct ls_comm_request request;
    const enum ls_status status =
        ask_all_to_all(comm, "ls_comm_start_all_to_all", from, count, dtype, to, &request);
    return status ? status : ls_comm_start(comm, &request, out);
}

enum ls_status ls_comm_start_barrier(struct ls_comm *comm, struct ls_comm_work **out)
{
    return ls_comm_start(comm, barrier_request(), out);
}

// ---- Messages ----

enum ls_status ls_comm_start_send(struct ls_comm *comm, const void *buffer, uint64_t bytes,
                                  uint32_t peer, uint64_t tag, struct ls_comm_work **out)
{
    const struct ls_comm_request request = {.name = "ls_comm_start_send",
                                            .kind = LS_COMM_SEND,
                                            .mine = (void *)(uintptr_t)buffer, // which is only read
                                            .count = bytes,
                                            .peer = peer,
                                            .tag = tag};
    return ls_comm_messages_start(comm, &request, out);
}

enum ls_status ls_comm_start_receive(struct ls_comm *comm, void *buffer, uint64_t bytes,
                                     uint32_t peer, uint64_t tag, struct ls_comm_work **out)
{
    const struct ls_comm_request request = {.name = "ls_comm_start_receive",
                                            .kind = LS_COMM_RECEIVE,
                                            .mine = buffer,
                                            .count = bytes,
                                            .peer = peer,
                                            .tag = tag};
    return ls_comm_messages_start(comm, &request, out);
}
