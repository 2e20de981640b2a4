// SPDX-License-Identifier: Apache-2.0
// Plans: a call is checked, drawn, compiled and given its memory once, to be run many times.
#include "core/collective/internal.h"

#include "core/base/dtype.h"
#include "core/base/log.h"
#include "core/base/memory.h"
#include "core/base/shared_memory.h"
#include "core/collective/tuner.h"
#include "core/plugin/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

const char *ls_wire_text(uint32_t wire)
{
    return wire == LS_BF16 ? "bfloat16" : wire == LS_F16 ? "float16" : "float32";
}

// What the host cannot make of an all-reduce that it does not see into.
static bool lacks_operation(const struct ls_collective_interface *algorithm, uint32_t operation)
{
    return ls_collective_is_native(algorithm) && !(algorithm->operations >> operation & 1) &&
           (operation == LS_BROADCAST || operation == LS_ALL_GATHER || operation == LS_ALL_TO_ALL);
}

// What keeps messages from being shorter than elements; NULL: nothing.
static const char *find_wire_problem(const struct ls_communicator *communicator,
                                     const struct ls_communicator_call *call)
{
    if (call->wire == 0)
        return NULL;
    if (call->wire != LS_BF16 && call->wire != LS_F16)
        return "messages are of float16 or bfloat16, or of the elements' type";
    if (call->dtype != LS_F32 || call->reduction != LS_SUM ||
        !ls_operation_reduces(call->operation))
        return "only sums of float32 travel in 16 bits";
    const uint32_t dtypes = communicator->group->algorithm->dtypes;
    if (communicator->library && !communicator->place)
        return "the collective is native, and decides itself what it sends";
    if (communicator->library)
        return dtypes && !(dtypes >> call->wire & 1) ? "the collective does not add this type"
                                                     : NULL;
    return communicator->place ? "what is in a device's memory travels as it is" : NULL;
}

static enum ls_status check_plan(const struct ls_communicator *communicator,
                                 const struct ls_communicator_call *call)
{
    const struct ls_communicator_group *group = communicator->group;
    const struct ls_collective_interface *algorithm = group->algorithm;
    const uint64_t element_bytes = ls_dtype_bytes(call->dtype);
    const char *problem = NULL;
    if (!ls_collective_operation_text(call->operation))
        problem = "there is no such operation";
    else if (!element_bytes || (algorithm->dtypes && !(algorithm->dtypes & 1u << call->dtype)))
        problem = "the collective does not do this element type";
    else if (call->reduction < LS_SUM || call->reduction > LS_MEAN ||
             (algorithm->reductions && !(algorithm->reductions & 1u << call->reduction)))
        problem = "the collective does not do this reduction";
    else if (lacks_operation(algorithm, call->operation))
        problem = "the collective is native and does not do this operation";
    else if (call->root >= group->world)
        problem = "the root is no rank";
    else if (call->count > UINT64_MAX / 16 || (call->count && ls_memory_is_null(call->buffer)))
        problem = "there is no such buffer";
    else if (ls_collective_whole_count(call->operation, call->count, group->world) != call->count)
        problem = "the elements are no equal blocks, one for each rank";
    else if (call->buffer.offset % element_bytes)
        problem = "the buffer is not aligned to its elements";
    else
        problem = find_wire_problem(communicator, call);
    if (!problem)
        return LS_OK;
    const char *operation = ls_collective_operation_text(call->operation);
    ls_error(group->scope,
             "collective %s: %s of %" PRIu64
             " elements of %s, reduction %u, root %u of %u ranks: %s",
             group->collective->name, operation ? operation : "operation", call->count,
             element_bytes ? ls_dtype_name(call->dtype) : "an unknown type", call->reduction,
             call->root, group->world, problem);
    return LS_USAGE;
}

// The part of the buffer in which this rank gets a mean; empty where there is none.
static struct ls_range mean_range(const struct ls_collective_call *call, uint32_t reduction)
{
    const bool reduces = call->operation == LS_ALL_REDUCE || call->operation == LS_REDUCE_SCATTER ||
                         (call->operation == LS_REDUCE && call->rank == call->root);
    if (reduction != LS_MEAN || !reduces)
        return ls_data_range(0, 0);
    return call->operation == LS_REDUCE_SCATTER ? ls_chunk(call, call->rank)
                                                : ls_data_range(0, call->count);
}

static enum ls_status compile_plan(struct ls_collective_plan *plan)
{
    const struct ls_communicator *communicator = plan->communicator;
    struct ls_communicator_group *group = communicator->group;
    const struct ls_call_signature *signature = &plan->signature;
    const uint32_t element_bytes = (uint32_t)ls_dtype_bytes(signature->dtype);
    const struct ls_collective_call call = {
        .struct_size = sizeof(call),
        .operation = signature->operation,
        .rank = communicator->rank,
        .world = group->world,
        .root = signature->root,
        .hosts = group->around.hosts,
        .count = signature->count,
        .element_bytes = element_bytes,
        .host = communicator->tried ? communicator->tried : group->collective_host,
        .cards = group->around.cards,
        .order = group->around.order,
    };
    const struct ls_compile_options options = {
        .name = group->collective->name,
        .rank = communicator->rank,
        .world = group->world,
        .element_bytes = element_bytes,
        .count = signature->count,
        .segment_bytes = group->segment_bytes,
        .on_device = communicator->place && group->count == group->world,
        .divide = mean_range(&call, signature->reduction),
        .halves = signature->wire != 0,
        .rounded =
            ls_data_range(0, signature->wire && call.operation == LS_ALL_REDUCE ? call.count : 0),
    };
    struct ls_drawn_schedule drawn;
    plan->algorithm = group->collective->name;
    if (communicator->library) {
        plan->check = group->unproven || group->world == 1 ? LS_CHECK_NONE : LS_CHECK_MISSING;
        return LS_OK;
    }
    enum ls_status status = ls_proof_draw(group, &call, signature->wire != 0, &drawn, &plan->check);
    if (status)
        return status;
    if (signature->wire && plan->check == LS_CHECK_MISSING && communicator->tried) {
        if (communicator->rank == 0)
            ls_info("auto",
                    "%s is left out, as its schedule for %u ranks is too large to be verified, and "
                    "only what is verified travels in 16 bits",
                    ls_tuner_name(group->collective, &call), group->world);
        ls_drawn_schedule_finish(&drawn);
        return LS_UNAVAILABLE;
    }
    if (signature->wire && plan->check == LS_CHECK_MISSING) {
        ls_error(group->scope,
                 "collective %s: its schedule for %u ranks is too large to be verified, and only "
                 "what is verified travels in 16 bits; use --wire=float32, or fewer replicas",
                 group->collective->name, group->world);
        ls_drawn_schedule_finish(&drawn);
        return LS_UNAVAILABLE;
    }
    atomic_fetch_or(&group->checks, 1u << plan->check);
    plan->algorithm = ls_tuner_name(group->collective, &call);
    if (group->world > 1)
        status = ls_compile_schedule(&drawn, &options, &plan->compiled);
    ls_drawn_schedule_finish(&drawn);
    return status;
}

// Data and scratch, one after the other.
static enum ls_status create_halves(struct ls_collective_plan *plan)
{
    const uint64_t count = plan->signature.count + plan->compiled.scratch_count;
    if (!plan->compiled.halves || !count)
        return LS_OK;
    plan->halves = ls_segment_allocate(count * sizeof(*plan->halves), LS_ALIGNMENT);
    return plan->halves ? LS_OK : LS_OUT_OF_MEMORY;
}

// Scratch is where the buffer is.
static enum ls_status create_scratch(struct ls_collective_plan *plan)
{
    const struct ls_rank_place *place = plan->communicator->place;
    const bool of_library =
        place && plan->communicator->library && plan->signature.operation == LS_ALL_TO_ALL;
    const uint64_t count = of_library ? plan->signature.count : plan->compiled.scratch_count;
    const uint64_t bytes = count * ls_dtype_bytes(plan->signature.dtype);
    if (plan->compiled.scratch_count > (UINT64_MAX >> 4))
        return LS_OUT_OF_MEMORY;
    if (bytes && place)
        plan->scratch = ls_device_allocate(place->device, bytes);
    else if (bytes)
        plan->scratch = ls_host_memory(ls_segment_allocate(bytes, LS_ALIGNMENT));
    if (bytes && ls_memory_is_null(plan->scratch))
        return LS_OUT_OF_MEMORY;
    return place ? ls_device_event_open(place->device, &plan->done) : LS_OK;
}

static struct ls_executor_memory memory_of(const struct ls_collective_plan *plan)
{
    const struct ls_call_signature *signature = &plan->signature;
    return (struct ls_executor_memory){
        .buffers = {plan->copy ? plan->copy : ls_address(plan->buffer), ls_address(plan->scratch)},
        .halves = {(char *)plan->halves,
                   plan->halves ? (char *)(plan->halves + signature->count) : NULL},
        .dtype = signature->dtype,
        .wire = signature->wire,
        .reduction = signature->reduction == LS_MEAN ? LS_SUM : signature->reduction,
        .divisor = plan->communicator->group->world,
    };
}

static enum ls_status create_executor(struct ls_collective_plan *plan)
{
    enum ls_status status = create_scratch(plan);
    if (!status)
        status = create_halves(plan);
    if (!status)
        status = ls_plan_open_copy(plan);
    if (status || plan->communicator->library)
        return status;
    const struct ls_executor_memory memory = memory_of(plan);
    return ls_executor_create(&plan->compiled, &memory, &plan->executor);
}

// What its runs, and the waits for them, are called in a timeline.
static void name_slices(struct ls_collective_plan *plan, const char *label)
{
    const struct ls_call_signature *signature = &plan->signature;
    const char *operation = ls_collective_operation_text(signature->operation);
    char name[64];
    struct ls_trace_label slice = {
        .category = "communication",
        .name = label ? label : operation,
        .value = "sequence",
        .details = {
            {.name = "operation", .text = operation},
            {.name = "bytes", .number = signature->count * ls_dtype_bytes(signature->dtype)},
            {.name = "algorithm", .text = plan->algorithm},
            {.name = "elements", .number = signature->count},
            {.name = signature->wire ? "wire" : NULL,
             .text = signature->wire ? ls_dtype_name(signature->wire) : NULL}}};
    if (!ls_trace_on())
        return;
    plan->run_span = ls_trace_keep(&slice);
    snprintf(name, sizeof(name), "wait for %s", slice.name);
    slice.name = name;
    plan->wait_span = ls_trace_keep(&slice);
}

// One more plan may run, and its transfers be waited for.
static enum ls_status make_room(struct ls_communicator *communicator, uint32_t operation_count)
{
    const uint32_t plans = communicator->running_capacity + 1;
    const uint32_t operations = communicator->operation_count + operation_count;
    struct ls_collective_plan **running =
        realloc(communicator->running, plans * sizeof(struct ls_collective_plan *));
    if (!running)
        return LS_OUT_OF_MEMORY;
    communicator->running = running;
    struct ls_transfer **waiting =
        realloc(communicator->waiting, ((size_t)operations + 1) * sizeof(struct ls_transfer *));
    if (!waiting)
        return LS_OUT_OF_MEMORY;
    communicator->waiting = waiting;
    struct ls_collective_plan **unsynchronized =
        realloc(communicator->unsynchronized, plans * sizeof(struct ls_collective_plan *));
    if (!unsynchronized)
        return LS_OUT_OF_MEMORY;
    communicator->unsynchronized = unsynchronized;
    struct ls_collective_plan **recorded =
        realloc(communicator->recorded, plans * sizeof(struct ls_collective_plan *));
    if (!recorded)
        return LS_OUT_OF_MEMORY;
    communicator->recorded = recorded;
    communicator->running_capacity = plans;
    communicator->operation_count = operations;
    return LS_OK;
}

enum ls_status ls_collective_plan_create(struct ls_communicator *communicator, uint32_t operation,
                                         struct ls_memory buffer, uint64_t count, uint32_t dtype,
                                         uint32_t reduction, uint32_t root, const char *label,
                                         struct ls_collective_plan **out)
{
    const struct ls_communicator_call call = {.operation = operation,
                                              .dtype = dtype,
                                              .reduction = reduction,
                                              .root = root,
                                              .buffer = buffer,
                                              .count = count};
    return ls_collective_plan_open(communicator, &call, label, out);
}

enum ls_status ls_collective_plan_open(struct ls_communicator *communicator,
                                       const struct ls_communicator_call *call, const char *label,
                                       struct ls_collective_plan **out)
{
    enum ls_status status = check_plan(communicator, call);
    if (status)
        return status;
    struct ls_collective_plan *plan = ls_calloc_cacheline(1, sizeof(*plan));
    if (!plan)
        return LS_OUT_OF_MEMORY;
    plan->communicator = communicator;
    plan->buffer = call->buffer;
    plan->keeps_infinite = call->keeps_infinite;
    plan->signature = (struct ls_call_signature){.operation = call->operation,
                                                 .dtype = call->dtype,
                                                 .wire = call->wire,
                                                 .mean_of = call->mean_of,
                                                 .reduction = call->reduction,
                                                 .root = call->root,
                                                 .count = call->count};
    ls_call_signature_label(&plan->signature, label);

    status = compile_plan(plan);
    name_slices(plan, label);
    if (!status)
        status = create_executor(plan);
    if (!status && call->wire)
        status = ls_library_open_wire(plan, call->halves);
    ls_messages_name(plan);
    if (!status)
        status = make_room(communicator, plan->compiled.operation_count);
    plan->has_room = !status;
    if (status) {
        ls_collective_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return LS_OK;
}

enum ls_status ls_collective_plan_move(struct ls_collective_plan *plan, struct ls_memory buffer)
{
    const struct ls_call_signature *signature = &plan->signature;
    const struct ls_communicator_call call = {.operation = signature->operation,
                                              .dtype = signature->dtype,
                                              .reduction = signature->reduction,
                                              .root = signature->root,
                                              .buffer = buffer,
                                              .count = signature->count,
                                              .wire = signature->wire};
    const enum ls_status status = check_plan(plan->communicator, &call);
    if (status)
        return status;
    plan->buffer = buffer;
    const struct ls_executor_memory memory = memory_of(plan);
    if (plan->executor)
        ls_executor_move(plan->executor, &memory);
    return LS_OK;
}

void ls_collective_plan_destroy(struct ls_collective_plan *plan)
{
    if (!plan)
        return;
    if (plan->running) {
        ls_communicator_abort(plan->communicator);
        (void)ls_communicator_give_up(plan->communicator, LS_ABORTED);
    }
    if (plan->has_room) {
        plan->communicator->running_capacity--;
        plan->communicator->operation_count -= plan->compiled.operation_count;
    }
    const struct ls_rank_place *place = plan->communicator->place;
    ls_stream_forget(plan);
    ls_executor_destroy(plan->executor);
    ls_messages_forget(plan);
    ls_compiled_schedule_finish(&plan->compiled);
    if (place) {
        if (plan->round)
            ls_device_release_kernel(place->device, plan->round);
        if (plan->widen)
            ls_device_release_kernel(place->device, plan->widen);
        ls_device_release(place->device, plan->scratch);
    } else {
        ls_segment_free(ls_address(plan->scratch));
    }
    ls_segment_free(plan->halves);
    ls_segment_free(plan->copy);
    free(plan);
}

uint64_t ls_collective_plan_bytes(const struct ls_collective_plan *plan)
{
    return plan->communicator->library ? ls_library_bytes(plan) : plan->compiled.sent_bytes;
}

uint32_t ls_collective_plan_rounds(const struct ls_collective_plan *plan)
{
    return plan->compiled.round_count;
}
