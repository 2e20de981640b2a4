// SPDX-License-Identifier: Apache-2.0
// The run of one compiled schedule: a count of what each operation still waits for, and a list of the
// transfers under way.
#include "core/collective/executor.h"

#include "core/base/clock.h"
#include "core/base/memory.h"
#include "core/schedule/halves.h"

#include <stdlib.h>

struct ls_executor {
    const struct ls_compiled_schedule *compiled;
    struct ls_executor_memory memory;
    struct ls_transfer *transfers; // of each operation
    uint32_t *waits_for; // of each operation, in this run
    bool *released; // of each operation: what depends on it was told
    uint32_t *ready; // to be posted
    uint32_t ready_count;
    struct ls_transfer **pending;
    uint32_t pending_count;
    uint32_t remaining; // operations not complete
    bool overflowed;
    const struct ls_transfer *mismatch;
    struct ls_executor_slices *slices; // NULL: the run is not recorded
    const struct ls_transport_interface *interface;
    struct ls_transport *transport;
};

static void prepare_transfer(struct ls_executor *executor, uint32_t index)
{
    const struct ls_compiled_operation *operation = &executor->compiled->operations[index];
    const struct ls_executor_memory *memory = &executor->memory;
    const uint64_t bytes = operation->element_bytes;
    const bool message = operation->kind <= LS_TRANSFER_RECEIVE_REDUCE_SEND;
    const bool halves = executor->compiled->halves && message;
    char *const *buffers = halves ? memory->halves : memory->buffers;
    executor->transfers[index] = (struct ls_transfer){
        .struct_size = sizeof(struct ls_transfer),
        .kind = operation->kind,
        .source = operation->source,
        .destination = operation->destination,
        .after = LS_TRANSFER_AT_ONCE,
        .memory = buffers[operation->range.buffer] + operation->range.offset * bytes,
        .from = buffers[operation->from.buffer] + operation->from.offset * bytes,
        .count = operation->range.count,
        .dtype = halves ? memory->wire : memory->dtype,
        .reduction = memory->reduction,
        .divisor = memory->divisor,
    };
}

enum ls_status ls_executor_create(const struct ls_compiled_schedule *compiled,
                                  const struct ls_executor_memory *memory, struct ls_executor **out)
{
    const size_t count = (size_t)compiled->operation_count + 1;
    struct ls_executor *executor = ls_calloc_cacheline(1, sizeof(*executor));
    if (!executor)
        return LS_OUT_OF_MEMORY;
    executor->compiled = compiled;
    executor->transfers = ls_calloc_cacheline(count, sizeof(*executor->transfers));
    executor->waits_for = ls_calloc_cacheline(count, sizeof(*executor->waits_for));
    executor->released = ls_calloc_cacheline(count, sizeof(*executor->released));
    executor->ready = ls_calloc_cacheline(count, sizeof(*executor->ready));
    executor->pending = ls_calloc_cacheline(count, sizeof(struct ls_transfer *));
    if (!executor->transfers || !executor->waits_for || !executor->released || !executor->ready ||
        !executor->pending) {
        ls_executor_destroy(executor);
        return LS_OUT_OF_MEMORY;
    }
    ls_executor_move(executor, memory);
    *out = executor;
    return LS_OK;
}

void ls_executor_move(struct ls_executor *executor, const struct ls_executor_memory *memory)
{
    executor->memory = *memory;
    for (uint32_t i = 0; i < executor->compiled->operation_count; i++)
        prepare_transfer(executor, i);
}

void ls_executor_destroy(struct ls_executor *executor)
{
    if (!executor)
        return;
    free(executor->transfers);
    free(executor->waits_for);
    free(executor->released);
    free(executor->ready);
    free(executor->pending);
    free(executor);
}

// Tells the dependents of an operation, once; those that wait for nothing more become ready.
static void release(struct ls_executor *executor, uint32_t index)
{
    const struct ls_compiled_operation *operation = &executor->compiled->operations[index];
    if (executor->released[index])
        return;
    executor->released[index] = true;
    const uint32_t *dependents = executor->compiled->dependents + operation->first_dependent;
    for (uint32_t i = 0; i < operation->dependent_count; i++)
        if (--executor->waits_for[dependents[i]] == 0)
            executor->ready[executor->ready_count++] = dependents[i];
}

void ls_executor_record(struct ls_executor *executor, struct ls_executor_slices *slices)
{
    executor->slices = slices;
}

static void record(const struct ls_executor *executor, uint32_t index)
{
    const struct ls_executor_slices *slices = executor->slices;
    const uint64_t begin = slices->posted_ns[index], now = ls_clock_ns();
    const bool sends = executor->transfers[index].kind == LS_TRANSFER_SEND;
    ls_trace_slice_on(sends ? slices->sends : slices->receives, slices->labels[index], begin,
                      now > begin ? now : begin + 1, slices->number);
}

static void finish_operation(struct ls_executor *executor, uint32_t index)
{
    const uint32_t fused = executor->compiled->operations[index].fused_send;
    if (executor->slices && executor->slices->labels[index])
        record(executor, index);
    release(executor, index);
    executor->remaining--;
    if (fused != LS_NO_OPERATION) {
        release(executor, fused);
        executor->remaining--;
    }
}

// Does what needs no transport; false: the operation is a transfer.
static bool run_on_halves(struct ls_executor *executor, uint32_t index)
{
    const struct ls_compiled_operation *operation = &executor->compiled->operations[index];
    const struct ls_executor_memory *memory = &executor->memory;
    const uint32_t buffer = operation->range.buffer, wire = memory->wire;
    const uint64_t offset = operation->range.offset, count = operation->range.count;
    if (operation->kind < LS_HALF_NOTHING)
        return false;
    float *values = (float *)(void *)memory->buffers[buffer] + offset;
    uint16_t *halves = (uint16_t *)(void *)memory->halves[buffer] + offset;
    if (operation->kind == LS_HALF_ROUND)
        executor->overflowed |= ls_halves_round(wire, values, halves, count);
    else if (operation->kind == LS_HALF_WIDEN)
        ls_halves_widen(wire, halves, values, count);
    else
        ls_halves_add(wire, halves, values, count);
    return true;
}

// Posts what is ready, and what becomes ready by it.
static enum ls_status post_ready(struct ls_executor *executor)
{
    while (executor->ready_count) {
        const uint32_t index = executor->ready[--executor->ready_count];
        struct ls_transfer *transfer = &executor->transfers[index];
        if (run_on_halves(executor, index)) {
            finish_operation(executor, index);
            continue;
        }
        if (executor->slices && executor->slices->labels[index])
            executor->slices->posted_ns[index] = ls_clock_ns();
        const int32_t status = executor->interface->post(executor->transport, transfer);
        if (status)
            return (enum ls_status)status;
        if (transfer->state == LS_TRANSFER_COMPLETE)
            finish_operation(executor, index);
        else
            executor->pending[executor->pending_count++] = transfer;
    }
    return LS_OK;
}

static void number_messages(struct ls_executor *executor, const struct ls_message_numbers *numbers,
                            uint64_t signature)
{
    const struct ls_compiled_schedule *compiled = executor->compiled;
    for (uint32_t i = 0; i < compiled->operation_count; i++) {
        const struct ls_compiled_operation *operation = &compiled->operations[i];
        struct ls_transfer *transfer = &executor->transfers[i];
        transfer->receive_number =
            numbers->next_receive[operation->source] + operation->receive_number;
        transfer->send_number = numbers->next_send[operation->destination] + operation->send_number;
        if (operation->after != LS_TRANSFER_AT_ONCE)
            transfer->after = numbers->next_send[operation->source] + operation->after;
        transfer->signature = signature;
        transfer->state = LS_TRANSFER_PENDING;
        executor->waits_for[i] = operation->waits_for;
        executor->released[i] = false;
    }
    for (uint32_t i = 0; i < compiled->peer_count; i++) {
        numbers->next_send[compiled->peers[i].rank] += compiled->peers[i].sends;
        numbers->next_receive[compiled->peers[i].rank] += compiled->peers[i].receives;
    }
}

enum ls_status ls_executor_begin(struct ls_executor *executor,
                                 const struct ls_transport_interface *interface,
                                 struct ls_transport *transport,
                                 const struct ls_message_numbers *numbers, uint64_t signature)
{
    const struct ls_compiled_schedule *compiled = executor->compiled;
    executor->interface = interface;
    executor->transport = transport;
    executor->remaining = compiled->operation_count - compiled->nothing_count;
    executor->overflowed = false;
    executor->pending_count = 0;
    executor->mismatch = NULL;
    number_messages(executor, numbers, signature);
    // The stack is emptied from its end.
    executor->ready_count = compiled->first_count;
    for (uint32_t i = 0; i < compiled->first_count; i++)
        executor->ready[i] = compiled->first[compiled->first_count - 1 - i];
    return post_ready(executor);
}

// Tests one transfer; false: it stays pending. What it makes ready is posted at once, because a peer may
// be waiting for it.
static bool advance_one(struct ls_executor *executor, struct ls_transfer *transfer, bool *moved,
                        enum ls_status *status)
{
    const uint32_t index = (uint32_t)(transfer - executor->transfers);
    const int32_t result = executor->interface->test(executor->transport, transfer);
    if (result == LS_OK) {
        finish_operation(executor, index);
        *moved = true;
    } else if (result != LS_AGAIN) {
        executor->mismatch = transfer->state == LS_TRANSFER_MISMATCH ? transfer : NULL;
        *status = (enum ls_status)result;
        return false;
    } else if (transfer->state == LS_TRANSFER_REDUCED && !executor->released[index]) {
        release(executor, index);
        *moved = true;
    }
    *status = post_ready(executor);
    return result == LS_OK;
}

enum ls_status ls_executor_advance(struct ls_executor *executor, bool *moved)
{
    uint32_t kept = 0, seen = 0;
    enum ls_status status = LS_OK;
    // The list may grow at its end meanwhile.
    for (; !status && seen < executor->pending_count; seen++) {
        struct ls_transfer *transfer = executor->pending[seen];
        if (!advance_one(executor, transfer, moved, &status))
            executor->pending[kept++] = transfer;
    }
    while (seen < executor->pending_count)
        executor->pending[kept++] = executor->pending[seen++];
    executor->pending_count = kept;
    return status;
}

bool ls_executor_done(const struct ls_executor *executor)
{
    return executor->remaining == 0;
}

bool ls_executor_overflowed(const struct ls_executor *executor)
{
    return executor->overflowed;
}

struct ls_transfer *const *ls_executor_pending(const struct ls_executor *executor, uint32_t *count)
{
    *count = executor->pending_count;
    return executor->pending;
}

const struct ls_transfer *ls_executor_mismatch(const struct ls_executor *executor)
{
    return executor->mismatch;
}
