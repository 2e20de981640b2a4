// SPDX-License-Identifier: Apache-2.0
// What the messages of a plan are called in a timeline, and which message of a peer each one is.
#include "core/collective/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

// "send to 1", "receive from 0", "reduce from 0, send to 2"; false: the operation has no peer.
static bool put_name(const struct ls_compiled_operation *operation, char *text, size_t bytes)
{
    switch (operation->kind) {
    case LS_TRANSFER_SEND: snprintf(text, bytes, "send to %u", operation->destination); break;
    case LS_TRANSFER_RECEIVE: snprintf(text, bytes, "receive from %u", operation->source); break;
    case LS_TRANSFER_RECEIVE_REDUCE:
        snprintf(text, bytes, "reduce from %u", operation->source);
        break;
    case LS_TRANSFER_RECEIVE_REDUCE_SEND:
        snprintf(text, bytes, "reduce from %u, send to %u", operation->source,
                 operation->destination);
        break;
    default: return false;
    }
    return true;
}

static const struct ls_trace_label *make_label(const struct ls_collective_plan *plan,
                                               const struct ls_compiled_operation *operation)
{
    const struct ls_communicator *communicator = plan->communicator;
    const uint64_t bytes = operation->range.count * operation->element_bytes;
    char name[64];
    if (!put_name(operation, name, sizeof(name)))
        return NULL;
    struct ls_trace_label label = {
        .category = "message",
        .name = name,
        .value = "sequence",
        .details = {{.name = "of", .text = plan->run_span ? plan->run_span->name : ""},
                    {.name = "bytes", .number = bytes}}};
    if (operation->kind != LS_TRANSFER_SEND)
        label.receives = (struct ls_trace_message){.group = communicator->group,
                                                   .from = operation->source,
                                                   .to = communicator->rank,
                                                   .number = operation->receive_number,
                                                   .bytes = bytes};
    if (operation->kind == LS_TRANSFER_SEND || operation->kind == LS_TRANSFER_RECEIVE_REDUCE_SEND)
        label.sends = (struct ls_trace_message){.group = communicator->group,
                                                .from = communicator->rank,
                                                .to = operation->destination,
                                                .number = operation->send_number,
                                                .bytes = bytes};
    return ls_trace_keep(&label);
}

void ls_messages_name(struct ls_collective_plan *plan)
{
    const struct ls_compiled_schedule *compiled = &plan->compiled;
    struct ls_executor_slices *messages = &plan->messages;
    if (!ls_trace_has_messages() || !plan->executor || !compiled->operation_count)
        return;
    messages->labels = calloc(compiled->operation_count, sizeof(*messages->labels));
    messages->posted_ns = calloc(compiled->operation_count, sizeof(*messages->posted_ns));
    if (!messages->labels || !messages->posted_ns) {
        ls_messages_forget(plan);
        return;
    }
    for (uint32_t i = 0; i < compiled->operation_count; i++)
        messages->labels[i] = make_label(plan, &compiled->operations[i]);
}

void ls_messages_record(struct ls_collective_plan *plan)
{
    struct ls_communicator *communicator = plan->communicator;
    if (!plan->messages.labels)
        return;
    if (!communicator->sends)
        communicator->sends = ls_trace_open_track("send");
    if (!communicator->receives)
        communicator->receives = ls_trace_open_track("receive");
    plan->messages.sends = communicator->sends;
    plan->messages.receives = communicator->receives;
    plan->messages.number = plan->sequence;
    ls_executor_record(plan->executor, &plan->messages);
}

void ls_messages_forget(struct ls_collective_plan *plan)
{
    free(plan->messages.labels);
    free(plan->messages.posted_ns);
    plan->messages = (struct ls_executor_slices){0};
}
