// SPDX-License-Identifier: Apache-2.0
// Native collectives: a library is handed whole operations. It puts them on the communicator's
// stream, or works in host memory.
#include "core/collective/internal.h"

#include "core/base/dtype.h"
#include "core/base/instance.h"
#include "core/base/log.h"

#include <stdlib.h>
#include <string.h>

bool ls_collective_is_native(const struct ls_collective_interface *algorithm)
{
    return !algorithm->build_schedule;
}

// ---- Where it can work ----

static enum ls_status refuse_memory(const struct ls_communicator_options *options, const char *name,
                                    uint32_t rank)
{
    const struct ls_collective_interface *algorithm = options->collective->interface;
    const char *device = algorithm->memory_kinds >> LS_MEMORY_CUDA & 1     ? "cuda"
                         : algorithm->memory_kinds >> LS_MEMORY_OPAQUE & 1 ? "pjrt"
                                                                           : "cpu";
    ls_error(name,
             "collective %s does not work in the memory that rank %u's buffers lie in; take "
             "--device=%s, or choose another collective",
             options->collective->name, rank, device);
    return LS_UNAVAILABLE;
}

static enum ls_status check_place(const struct ls_communicator_options *options, const char *name,
                                  uint32_t rank, struct ls_native_stream *out)
{
    const struct ls_collective_interface *algorithm = options->collective->interface;
    const struct ls_communicator_place *place =
        options->places ? &options->places[rank - options->first_rank] : NULL;
    const uint32_t kind = place ? ls_device_interface(place->device)->memory_kind : LS_MEMORY_HOST;
    *out = (struct ls_native_stream){.struct_size = sizeof(*out), .family = LS_STREAM_NONE};
    if (!(algorithm->memory_kinds >> kind & 1))
        return refuse_memory(options, name, rank);
    if (!place || ls_device_blocking(place->device))
        return LS_OK;
    const enum ls_status status = ls_device_has_streams(place->device)
                                      ? ls_device_stream_native(place->device, NULL, out)
                                      : LS_OK;
    if (status || algorithm->stream_families >> out->family & 1)
        return status;
    ls_error(name,
             "collective %s cannot use streams as those of rank %u's device are; choose another",
             options->collective->name, rank);
    return LS_UNAVAILABLE;
}

// Where this process has all ranks. Else the library compares them when it opens, so that all
// processes refuse alike.
static enum ls_status check_alone(const char *name, const struct ls_native_stream *streams,
                                  uint32_t first_rank, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < i; k++)
            if (streams[i].family && streams[i].index == streams[k].index &&
                strncmp(streams[i].identity, streams[k].identity, sizeof(streams[i].identity)) ==
                    0) {
                const bool gpu = streams[i].family == LS_STREAM_CUDA;
                ls_error(name, "rank %u and rank %u are both on %s %u; use %s, or one replica a %s",
                         first_rank + k, first_rank + i, gpu ? "GPU" : "device", streams[i].index,
                         gpu ? "hierarchical-copy" : "central-storage", gpu ? "GPU" : "device");
                return LS_UNAVAILABLE;
            }
    return LS_OK;
}

enum ls_status ls_library_check(const struct ls_communicator_options *options, const char *name)
{
    const struct ls_collective_interface *algorithm = options->collective->interface;
    const uint32_t count = options->count ? options->count : options->world;
    struct ls_native_stream *streams = calloc(count, sizeof(*streams));
    enum ls_status status = streams ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < count; i++)
        status = check_place(options, name, options->first_rank + i, &streams[i]);
    if (!status && algorithm->one_rank_a_device && count == options->world)
        status = check_alone(name, streams, options->first_rank, count);
    free(streams);
    return status;
}

// ---- Opening and closing ----

// All ranks are in this process.
static int32_t exchange_alone(void *context, const void *own, uint64_t bytes, void *all)
{
    const struct ls_communicator_group *group = context;
    memcpy(all, own, group->world * bytes);
    return LS_OK;
}

static struct ls_collective_member member_of(const struct ls_communicator_group *group,
                                             uint32_t index)
{
    const struct ls_communicator_place *given = group->given ? &group->given[index] : NULL;
    return (struct ls_collective_member){.struct_size = sizeof(struct ls_collective_member),
                                         .rank = group->first_rank + index,
                                         .ops = given ? ls_device_interface(given->device) : NULL,
                                         .device = given ? given->device : NULL,
                                         .stream = group->places[index].stream};
}

enum ls_status ls_library_open(const struct ls_communicator_options *options,
                               struct ls_communicator_group *group,
                               struct ls_communicator **communicators)
{
    const bool alone = !options->exchange.call;
    struct ls_collective_member *members = calloc(group->count, sizeof(*members));
    struct ls_collective **libraries = calloc(group->count, sizeof(struct ls_collective *));
    bool complete = members && libraries;
    group->states = calloc(group->count, sizeof(struct ls_collective *));
    for (uint32_t i = 0; group->states && i < group->count; i++) {
        group->states[i] = ls_instance_create(group->algorithm, group->algorithm->state_bytes);
        complete = complete && group->states[i];
    }
    const struct ls_collective_config config = {
        .struct_size = sizeof(config),
        .world = group->world,
        .count = group->count,
        .members = members,
        .hosts = group->hosts,
        .deadline_ns = group->deadline_ns,
        .context = alone ? group : options->exchange.context,
        .exchange = alone ? exchange_alone : options->exchange.call,
        .check = alone ? NULL : options->exchange.check};
    enum ls_status status = LS_OUT_OF_MEMORY;
    if (complete && group->states) {
        for (uint32_t i = 0; i < group->count; i++)
            members[i] = member_of(group, i);
        memcpy(libraries, group->states, group->count * sizeof(struct ls_collective *));
        status =
            (enum ls_status)group->algorithm->open(options->collective_host, &config, libraries);
    }
    free(members);
    if (status) {
        free(libraries);
        return status;
    }
    for (uint32_t i = 0; i < group->count; i++)
        communicators[i]->library = libraries[i];
    group->libraries = libraries;
    return LS_OK;
}

void ls_library_close(struct ls_communicator *communicator)
{
    struct ls_communicator_group *group = communicator->group;
    if (!communicator->library)
        return;
    if (atomic_load(&group->stuck)) {
        ls_library_abort(group);
        (void)ls_library_poll(communicator);
    }
    while (communicator->taken_count && !atomic_load(&group->stuck))
        group->algorithm->release(communicator->library,
                                  communicator->taken[--communicator->taken_count]);
    free(communicator->taken);
    pthread_mutex_lock(&group->lock);
    group->libraries[communicator->rank - group->first_rank] = NULL;
    pthread_mutex_unlock(&group->lock);
    group->algorithm->close(communicator->library);
    communicator->library = NULL;
}

void ls_library_abort(struct ls_communicator_group *group)
{
    pthread_mutex_lock(&group->lock);
    for (uint32_t i = 0; group->libraries && i < group->count; i++)
        if (group->libraries[i])
            group->algorithm->abort(group->libraries[i]);
    pthread_mutex_unlock(&group->lock);
}

// ---- Memory ----

enum ls_status ls_communicator_allocate(struct ls_communicator *communicator, uint64_t bytes,
                                        struct ls_memory *out)
{
    const struct ls_collective_interface *algorithm = communicator->group->algorithm;
    void *memory = NULL;
    *out = (struct ls_memory){NULL, 0};
    if (!communicator->library || !communicator->place || !algorithm->allocate)
        return LS_OK;
    void **taken = realloc(communicator->taken,
                           (communicator->taken_count + 1) * sizeof(*communicator->taken));
    if (!taken)
        return LS_OUT_OF_MEMORY;
    communicator->taken = taken;
    enum ls_status status =
        (enum ls_status)algorithm->allocate(communicator->library, bytes, &memory);
    if (status || !memory)
        return status;
    taken[communicator->taken_count++] = memory;
    *out = ls_memory_of(memory);
    return (enum ls_status)ls_device_zero(communicator->place->device, *out, bytes, NULL);
}

// ---- Sums of float32 that travel in 16 bits ----

static enum ls_status prepare_cast(const struct ls_collective_plan *plan, uint32_t from,
                                   uint32_t to, struct ls_kernel **out)
{
    const struct ls_communicator *communicator = plan->communicator;
    const uint32_t dtypes[] = {from, to};
    struct ls_tensor_desc arguments[2];
    const struct ls_kernel_request request = {.struct_size = sizeof(request),
                                              .op = LS_OP_CONVERT,
                                              .input_count = 1,
                                              .output_count = 1,
                                              .arguments = arguments};
    struct ls_kernel_answer answer = {.layouts = NULL};
    for (int i = 0; i < 2; i++)
        arguments[i] = (struct ls_tensor_desc){
            .dtype = dtypes[i],
            .ndims = 1,
            .dims = {(int64_t)plan->signature.count},
            .layout = {.kind = LS_LAYOUT_PLAIN,
                       .bytes = plan->signature.count * ls_dtype_bytes(dtypes[i])}};
    enum ls_status status = ls_device_prepare(communicator->place->device,
                                              "what travels in 16 bits", &request, &answer);
    *out = status ? NULL : answer.kernel;
    if (!status && answer.scratch_bytes)
        status = LS_UNSUPPORTED;
    if (status == LS_UNSUPPORTED) { // an answer, which is said here
        ls_error(
            communicator->group->scope,
            "rank %u: its device does not make %s of float32 for messages, or needs memory for "
            "it; use --wire=float32",
            communicator->rank, ls_dtype_name(plan->signature.wire));
        status = LS_UNAVAILABLE;
    }
    return status;
}

enum ls_status ls_library_open_wire(struct ls_collective_plan *plan, struct ls_memory halves)
{
    const struct ls_communicator *communicator = plan->communicator;
    const uint32_t wire = plan->signature.wire;
    const uint64_t bytes = plan->signature.count * ls_dtype_bytes(wire);
    if (!communicator->library || bytes == 0 || communicator->group->world == 1)
        return LS_OK;
    if (ls_memory_is_null(halves))
        halves = plan->scratch = ls_device_allocate(communicator->place->device, bytes);
    plan->sent = halves;
    if (ls_memory_is_null(halves))
        return LS_OUT_OF_MEMORY;
    const enum ls_status status = prepare_cast(plan, LS_F32, wire, &plan->round);
    return status ? status : prepare_cast(plan, wire, LS_F32, &plan->widen);
}

// Puts it on the communicator's stream.
static enum ls_status cast(const struct ls_collective_plan *plan, const struct ls_kernel *kernel,
                           struct ls_memory from, struct ls_memory to)
{
    const struct ls_rank_place *place = plan->communicator->place;
    const struct ls_memory arguments[] = {from, to};
    const struct ls_launch launch = {.struct_size = sizeof(launch),
                                     .argument_count = 2,
                                     .arguments = arguments,
                                     .stream = place->stream};
    return (enum ls_status)ls_device_launch(place->device, kernel, &launch);
}

// ---- Running ----

// A whole reduction is also one of which a rank needs only a part.
static uint32_t operation_of(const struct ls_collective_plan *plan)
{
    const struct ls_collective_interface *algorithm = plan->communicator->group->algorithm;
    const uint32_t operation = plan->signature.operation;
    return algorithm->operations >> operation & 1 ? operation : LS_ALL_REDUCE;
}

static bool has_addresses(const struct ls_communicator *communicator)
{
    const struct ls_rank_place *place = communicator->place;
    return !place || ls_device_interface(place->device)->memory_kind != LS_MEMORY_OPAQUE;
}

enum ls_status ls_library_run(struct ls_collective_plan *plan)
{
    const struct ls_call_signature *signature = &plan->signature;
    const struct ls_communicator *communicator = plan->communicator;
    const bool halves = plan->widen != NULL;
    const struct ls_memory buffer = halves ? plan->sent : plan->buffer;
    const struct ls_collective_run run = {
        .struct_size = sizeof(run),
        .operation = operation_of(plan),
        .dtype = halves ? signature->wire : signature->dtype,
        .reduction = signature->reduction,
        .root = signature->root,
        .buffer = has_addresses(communicator) ? ls_address(buffer) : NULL,
        .count = signature->count,
        .scratch = signature->operation == LS_ALL_TO_ALL ? ls_address(plan->scratch) : NULL,
        .place = buffer};
    plan->number = plan->communicator->given++;
    enum ls_status status = LS_OK;
    if (halves)
        status = cast(plan, plan->round, plan->buffer, plan->sent);
    if (!status)
        status = (enum ls_status)communicator->group->algorithm->run(communicator->library, &run);
    if (!status && halves)
        status = cast(plan, plan->widen, plan->sent, plan->buffer);
    return status;
}

bool ls_library_overlaps(const struct ls_communicator *communicator)
{
    return communicator->library && !communicator->place && communicator->group->algorithm->done;
}

enum ls_status ls_library_done(struct ls_collective_plan *plan, bool *out)
{
    struct ls_communicator *communicator = plan->communicator;
    int32_t status = LS_OK;
    if (communicator->ended <= plan->number)
        status = communicator->group->algorithm->done(communicator->library, &communicator->ended);
    *out = communicator->ended > plan->number;
    return (enum ls_status)status;
}

enum ls_status ls_library_poll(struct ls_communicator *communicator)
{
    if (!communicator->library)
        return LS_OK;
    return (enum ls_status)communicator->group->algorithm->poll(communicator->library);
}

uint64_t ls_library_bytes(const struct ls_collective_plan *plan)
{
    const uint64_t world = plan->communicator->group->world;
    const uint32_t dtype = plan->widen ? plan->signature.wire : plan->signature.dtype;
    const uint64_t bytes = plan->signature.count * ls_dtype_bytes(dtype);
    const uint64_t share = bytes / world * (world - 1) + bytes % world * (world - 1) / world;
    switch (operation_of(plan)) {
    case LS_ALL_REDUCE: return 2 * share;
    case LS_REDUCE_SCATTER:
    case LS_ALL_GATHER:
    case LS_ALL_TO_ALL: return share;
    default: return world > 1 ? bytes : 0;
    }
}
