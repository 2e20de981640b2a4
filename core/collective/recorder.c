// SPDX-License-Identifier: Apache-2.0
// The flight recorder. An entry is written while its sequence is 0 and read between two looks at
// it.
#include "core/collective/recorder.h"

#include "core/base/dtype.h"
#include "core/base/log.h"
#include "core/schedule/schedule.h"
#include "core/plugin/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const reduction_texts[] = {"none", "sum", "product", "min", "max", "mean"};

void ls_call_signature_label(struct ls_call_signature *signature, const char *label)
{
    char text[LS_LABEL_BYTES] = "";
    if (label)
        snprintf(text, sizeof(text), "%s", label);
    memcpy(signature->label, text, sizeof(text));
}

bool ls_call_signature_equal(const struct ls_call_signature *a, const struct ls_call_signature *b)
{
    return a->operation == b->operation && a->dtype == b->dtype && a->wire == b->wire &&
           a->mean_of == b->mean_of && a->reduction == b->reduction && a->root == b->root &&
           a->count == b->count;
}

uint64_t ls_call_signature_hash(const struct ls_call_signature *signature, uint64_t sequence)
{
    const uint64_t kinds = (uint64_t)signature->wire << 56 | (uint64_t)signature->operation << 48 |
                           (uint64_t)signature->dtype << 40 | (uint64_t)signature->reduction << 32 |
                           signature->root;
    return ls_mix64(ls_mix64(kinds ^ (uint64_t)signature->mean_of << 24, signature->count),
                    sequence);
}

const char *ls_call_signature_text(const struct ls_call_signature *signature, char *text,
                                   size_t bytes)
{
    char label[LS_LABEL_BYTES];
    memcpy(label, signature->label, sizeof(label));
    label[sizeof(label) - 1] = '\0';
    const char *operation = ls_collective_operation_text(signature->operation);
    const bool reduces = ls_operation_reduces(signature->operation);
    const bool rooted = signature->operation == LS_BROADCAST || signature->operation == LS_REDUCE;
    const uint32_t mean_of = signature->mean_of;
    const char *reduction = reduction_texts[mean_of ? LS_MEAN : signature->reduction % 6];
    char how[48] = "", wire[32] = "";
    if (reduces && rooted)
        snprintf(how, sizeof(how), " (%s, root %u)", reduction, signature->root);
    else if (reduces)
        snprintf(how, sizeof(how), " (%s)", reduction);
    else if (rooted)
        snprintf(how, sizeof(how), " (root %u)", signature->root);
    if (signature->wire)
        snprintf(wire, sizeof(wire), " as %s", ls_dtype_name(signature->wire));
    snprintf(
        text, bytes, "%s%s of %" PRIu64 " %s%s%s%s", operation ? operation : "unknown operation",
        how, mean_of == LS_I64 ? signature->count / 2 : signature->count,
        ls_dtype_name(mean_of ? mean_of : signature->dtype), wire, label[0] ? ", " : "", label);
    return text;
}

void ls_flight_recorder_begin(struct ls_flight_recorder *recorder, uint64_t sequence,
                              const struct ls_call_signature *signature)
{
    struct ls_recorded_call *call = &recorder->calls[sequence % LS_RECORDED_CALLS];
    const uint64_t kinds = (uint64_t)signature->operation << 32 |
                           (uint64_t)signature->mean_of << 24 | (uint64_t)signature->wire << 16 |
                           signature->dtype;
    const uint64_t how = (uint64_t)signature->reduction << 32 | signature->root;
    atomic_store_explicit(&call->sequence, 0, memory_order_relaxed);
    atomic_store_explicit(&call->operation_dtype, kinds, memory_order_release);
    atomic_store_explicit(&call->reduction_root, how, memory_order_release);
    atomic_store_explicit(&call->count, signature->count, memory_order_release);
    for (uint32_t i = 0; i < LS_LABEL_WORDS; i++)
        atomic_store_explicit(&call->label[i], signature->label[i], memory_order_release);
    call->ended = false;
    atomic_store_explicit(&call->sequence, sequence + 1, memory_order_release);
    atomic_store_explicit(&recorder->begun, sequence + 1, memory_order_release);
}

void ls_flight_recorder_end(struct ls_flight_recorder *recorder, uint64_t sequence,
                            uint64_t waited_ns)
{
    struct ls_recorded_call *call = &recorder->calls[sequence % LS_RECORDED_CALLS];
    if (atomic_load_explicit(&call->sequence, memory_order_relaxed) != sequence + 1)
        return;
    call->waited_ns = waited_ns;
    call->ended = true;
}

bool ls_flight_recorder_get(struct ls_flight_recorder *recorder, uint64_t sequence,
                            struct ls_call_signature *out)
{
    struct ls_recorded_call *call = &recorder->calls[sequence % LS_RECORDED_CALLS];
    if (atomic_load_explicit(&call->sequence, memory_order_acquire) != sequence + 1)
        return false;
    const uint64_t kinds = atomic_load_explicit(&call->operation_dtype, memory_order_acquire);
    const uint64_t how = atomic_load_explicit(&call->reduction_root, memory_order_acquire);
    *out = (struct ls_call_signature){
        .operation = (uint32_t)(kinds >> 32),
        .dtype = (uint32_t)kinds & 0xffff,
        .wire = (uint32_t)kinds >> 16 & 0xff,
        .mean_of = (uint32_t)kinds >> 24,
        .reduction = (uint32_t)(how >> 32),
        .root = (uint32_t)how,
        .count = atomic_load_explicit(&call->count, memory_order_acquire),
    };
    for (uint32_t i = 0; i < LS_LABEL_WORDS; i++)
        out->label[i] = atomic_load_explicit(&call->label[i], memory_order_acquire);
    return atomic_load_explicit(&call->sequence, memory_order_acquire) == sequence + 1;
}

void ls_flight_recorder_dump(struct ls_flight_recorder *recorder, const char *name, uint32_t rank)
{
    if (ls_log_level() < LS_LOG_DEBUG)
        return;
    const uint64_t begun = atomic_load(&recorder->begun);
    for (uint64_t i = begun > LS_RECORDED_CALLS ? begun - LS_RECORDED_CALLS : 0; i < begun; i++) {
        struct ls_call_signature signature;
        char text[160];
        if (!ls_flight_recorder_get(recorder, i, &signature))
            continue;
        const struct ls_recorded_call *call = &recorder->calls[i % LS_RECORDED_CALLS];
        ls_call_signature_text(&signature, text, sizeof(text));
        if (call->ended)
            ls_debug(name, "rank %u, call %" PRIu64 ": %s: waited %.1f us", rank, i, text,
                     (double)call->waited_ns * 1e-3);
        else
            ls_debug(name, "rank %u, call %" PRIu64 ": %s: has not ended", rank, i, text);
    }
}
