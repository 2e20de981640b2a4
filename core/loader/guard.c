// SPDX-License-Identifier: Apache-2.0
// Slots for guarded plugins, and the looks at their answers.
#include "core/loader/guard.h"

#include "core/attributes.h"
#include "core/base/inside_internal.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/loader/internal.h"
#include "core/loader/loader.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

// More than any machine has, and little enough that sums of such sizes stay numbers.
#define MOST_BYTES (UINT64_C(1) << 46)

static struct ls_guard_slot device_slots[LS_GUARD_DEVICES];
static struct ls_guard_slot transport_slots[LS_GUARD_TRANSPORTS];
static struct ls_guard_slot collective_slots[LS_GUARD_COLLECTIVES];
static struct ls_guard_slot strategy_slots[LS_GUARD_STRATEGIES];
static struct ls_guard_slot callback_slots[LS_GUARD_CALLBACKS];
static struct ls_guard_slot layer_slots[LS_GUARD_LAYERS];
static struct ls_guard_slot loss_slots[LS_GUARD_LOSSES];
static struct ls_guard_slot metric_slots[LS_GUARD_METRICS];
static struct ls_guard_slot dataset_slots[LS_GUARD_DATASETS];
static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;

// What keeps a transfer from ending is said by the communicator.
static bool is_said_elsewhere(int32_t status, const struct ls_transfer *transfer)
{
    return status != LS_FAILED || (transfer && transfer->state == LS_TRANSFER_MISMATCH);
}

static bool is_status(int32_t status)
{
    return (status >= LS_OK && status <= LS_AGAIN) || status == LS_INTERRUPTED;
}

// Whether it may pass on that another rank failed.
static bool has_peers(const char *label)
{
    static const char *const alone[] = {"device-", "layer-", "loss-", "metric-", "dataset-"};
    for (size_t i = 0; i < sizeof(alone) / sizeof(alone[0]); i++)
        if (strncmp(label, alone[i], strlen(alone[i])) == 0)
            return false;
    return true;
}

// What the caller is told instead of `status`, which is not LS_OK. `reasons`: how many were given before the call.
LS_COLD static int32_t judge(const struct ls_guard_slot *slot, const char *call, uint32_t reasons,
                             int32_t status, bool must_explain)
{
    if (!is_status(status)) {
        ls_error(slot->name, "plugin %s: `%s` returned %" PRId32 ", which is not a status",
                 slot->label, call, status);
        return LS_FAILED;
    }
    if (!must_explain || status == LS_UNSUPPORTED || reasons != ls_inside_reasons())
        return status;
    if (status == LS_ABORTED && has_peers(slot->label))
        return status;
    if (status == LS_AGAIN || status == LS_INTERRUPTED || status == LS_ABORTED) {
        ls_error(slot->name, "plugin %s: `%s` returned '%s', which it must not return", slot->label,
                 call, ls_status_text((enum ls_status)status));
        return LS_FAILED;
    }
    ls_error(slot->name, "plugin %s: `%s` returned '%s' without giving a reason", slot->label, call,
             ls_status_text((enum ls_status)status));
    return status;
}

// Calls that a collective makes several times in a microsecond: entered and left inline.
struct often {
    const struct ls_inside_site *site, *before;
    uint32_t reasons;
};

LS_ALWAYS_INLINE struct often enter_often(const struct ls_inside_site *site)
{
    const uint32_t reasons = ls_inside_own.reasons;
    return (struct often){site, ls_inside_begin(site), reasons};
}

LS_ALWAYS_INLINE int32_t answer_often(const struct often often, const struct ls_guard_slot *slot,
                                      int32_t status, const struct ls_transfer *transfer)
{
    ls_inside_end(often.site, often.before);
    if (status == LS_OK || status == LS_AGAIN)
        return status;
    return judge(slot, often.site->name, often.reasons, status,
                 !is_said_elsewhere(status, transfer));
}

#define JOIN_AGAIN(name, slot) name##_##slot
#define JOIN(name, slot) JOIN_AGAIN(name, slot)

#define SLOT 0
#include "core/loader/guard_slot.h"
#define SLOT 1
#include "core/loader/guard_slot.h"
#define SLOT 2
#include "core/loader/guard_slot.h"
#define SLOT 3
#include "core/loader/guard_slot.h"
#define SLOT 4
#include "core/loader/guard_slot.h"
#define SLOT 5
#include "core/loader/guard_slot.h"
#define SLOT 6
#include "core/loader/guard_slot.h"
#define SLOT 7
#include "core/loader/guard_slot.h"
#define SLOT 8
#include "core/loader/guard_slot.h"
#define SLOT 9
#include "core/loader/guard_slot.h"
#define SLOT 10
#include "core/loader/guard_slot.h"
#define SLOT 11
#include "core/loader/guard_slot.h"
#define SLOT 12
#include "core/loader/guard_slot.h"
#define SLOT 13
#include "core/loader/guard_slot.h"
#define SLOT 14
#include "core/loader/guard_slot.h"
#define SLOT 15
#include "core/loader/guard_slot.h"
#define SLOT 16
#include "core/loader/guard_slot.h"
#define SLOT 17
#include "core/loader/guard_slot.h"
#define SLOT 18
#include "core/loader/guard_slot.h"
#define SLOT 19
#include "core/loader/guard_slot.h"
#define SLOT 20
#include "core/loader/guard_slot.h"
#define SLOT 21
#include "core/loader/guard_slot.h"
#define SLOT 22
#include "core/loader/guard_slot.h"
#define SLOT 23
#include "core/loader/guard_slot.h"
#define SLOT 24
#include "core/loader/guard_slot.h"
#define SLOT 25
#include "core/loader/guard_slot.h"
#define SLOT 26
#include "core/loader/guard_slot.h"
#define SLOT 27
#include "core/loader/guard_slot.h"
#define SLOT 28
#include "core/loader/guard_slot.h"
#define SLOT 29
#include "core/loader/guard_slot.h"
#define SLOT 30
#include "core/loader/guard_slot.h"
#define SLOT 31
#include "core/loader/guard_slot.h"

#define SIX(kind)                                                                             \
    &kind##_guards_0, &kind##_guards_1, &kind##_guards_2, &kind##_guards_3, &kind##_guards_4, \
        &kind##_guards_5
#define SIXTEEN(kind)                                                                  \
    SIX(kind), &kind##_guards_6, &kind##_guards_7, &kind##_guards_8, &kind##_guards_9, \
        &kind##_guards_10, &kind##_guards_11, &kind##_guards_12, &kind##_guards_13,    \
        &kind##_guards_14, &kind##_guards_15
#define THIRTY_TWO(kind)                                                                       \
    SIXTEEN(kind), &kind##_guards_16, &kind##_guards_17, &kind##_guards_18, &kind##_guards_19, \
        &kind##_guards_20, &kind##_guards_21, &kind##_guards_22, &kind##_guards_23,            \
        &kind##_guards_24, &kind##_guards_25, &kind##_guards_26, &kind##_guards_27,            \
        &kind##_guards_28, &kind##_guards_29, &kind##_guards_30, &kind##_guards_31

static const void *const device_tables[LS_GUARD_DEVICES] = {SIX(device)};
static const void *const transport_tables[LS_GUARD_TRANSPORTS] = {SIX(transport)};
static const void *const collective_tables[LS_GUARD_COLLECTIVES] = {THIRTY_TWO(collective)};
static const void *const strategy_tables[LS_GUARD_STRATEGIES] = {SIXTEEN(strategy)};
static const void *const callback_tables[LS_GUARD_CALLBACKS] = {SIXTEEN(callback)};
static const void *const layer_tables[LS_GUARD_LAYERS] = {SIXTEEN(layer)};
static const void *const loss_tables[LS_GUARD_LOSSES] = {SIX(loss)};
static const void *const metric_tables[LS_GUARD_METRICS] = {SIX(metric)};
static const void *const dataset_tables[LS_GUARD_DATASETS] = {SIX(dataset)};

// ---- Slots ----

static const struct family {
    struct ls_guard_slot *slots;
    const void *const *tables; // of guards, for each slot
    size_t count; // of slots
    size_t table_bytes;
} families[] = {
    [LS_KIND_DEVICE] = {device_slots, device_tables, LS_GUARD_DEVICES,
                        sizeof(struct ls_device_tables)},
    [LS_KIND_TRANSPORT] = {transport_slots, transport_tables, LS_GUARD_TRANSPORTS,
                           sizeof(struct ls_transport_interface)},
    [LS_KIND_COLLECTIVE] = {collective_slots, collective_tables, LS_GUARD_COLLECTIVES,
                            sizeof(struct ls_collective_interface)},
    [LS_KIND_STRATEGY] = {strategy_slots, strategy_tables, LS_GUARD_STRATEGIES,
                          sizeof(struct ls_strategy_interface)},
    [LS_KIND_CALLBACK] = {callback_slots, callback_tables, LS_GUARD_CALLBACKS,
                          sizeof(struct ls_callback_interface)},
    [LS_KIND_LAYER] = {layer_slots, layer_tables, LS_GUARD_LAYERS,
                       sizeof(struct ls_layer_interface)},
    [LS_KIND_LOSS] = {loss_slots, loss_tables, LS_GUARD_LOSSES, sizeof(struct ls_loss_interface)},
    [LS_KIND_METRIC] = {metric_slots, metric_tables, LS_GUARD_METRICS,
                        sizeof(struct ls_metric_interface)},
    [LS_KIND_DATASET] = {dataset_slots, dataset_tables, LS_GUARD_DATASETS,
                         sizeof(struct ls_dataset_interface)},
};

// A plugin that is opened again, by another loader too, has the slot that it had: its code is never unloaded, and calls
// of it may be under way. The number of slots: none is left.
static size_t find_slot(uint32_t kind, const char *name, const void *theirs, const void *ours)
{
    const struct family *family = &families[kind];
    size_t slot = 0;
    pthread_mutex_lock(&slots_lock);
    while (slot < family->count && family->slots[slot].theirs &&
           family->slots[slot].theirs != theirs)
        slot++;
    if (slot < family->count && !family->slots[slot].theirs) {
        struct ls_guard_slot *free_slot = &family->slots[slot];
        snprintf(free_slot->label, sizeof(free_slot->label), "%s-%s", ls_kind_text(kind), name);
        free_slot->name = free_slot->label + strlen(ls_kind_text(kind)) + 1;
        memcpy(&free_slot->ops, ours, family->table_bytes);
        if (kind == LS_KIND_DEVICE)
            ls_device_tables_link(&free_slot->ops.device);
        free_slot->theirs = theirs;
    }
    pthread_mutex_unlock(&slots_lock);
    return slot;
}

const char *ls_loader_opened_name(size_t index)
{
    for (size_t kind = 0; kind < sizeof(families) / sizeof(families[0]); kind++)
        for (size_t slot = 0; slot < families[kind].count; slot++)
            if (families[kind].slots[slot].theirs && index-- == 0)
                return families[kind].slots[slot].label;
    return NULL;
}

// Callers ask the table which functions a plugin has: where it has none, ours has none. Members that are not functions
// are 0 in the table of guards, and stay as they are.
void ls_guard_table(uint32_t kind, const char *name, const void *theirs, void *interface)
{
    const struct family *family = &families[kind];
    const size_t slot = find_slot(kind, name, theirs, interface);
    if (slot == family->count) {
        ls_warn("plugins",
                "%s-%s is not guarded: this process has opened more than %zu plugins of this kind; "
                "messages cannot name it after a crash, a hang or a wrong answer",
                ls_kind_text(kind), name, family->count);
        return;
    }
    const char *guards = family->tables[slot];
    void (*function)(void), (*own)(void);
    for (size_t at = 0; at + sizeof(function) <= family->table_bytes; at += sizeof(function)) {
        memcpy(&function, guards + at, sizeof(function));
        memcpy(&own, (const char *)interface + at, sizeof(own));
        if (function && own)
            memcpy((char *)interface + at, &function, sizeof(function));
    }
}

// ---- Calls ----

struct ls_guarded ls_guard_enter(const struct ls_guard_slot *slot, const char *call)
{
    const uint32_t reasons = ls_inside_reasons();
    return (struct ls_guarded){slot, call, ls_inside_enter(slot->label, call), reasons};
}

void ls_guard_leave(const struct ls_guarded *call)
{
    ls_inside_leave(call->before);
}

int32_t ls_guard_answer(const struct ls_guarded *call, int32_t status, bool must_explain)
{
    ls_inside_leave(call->before);
    return status == LS_OK ? LS_OK
                           : judge(call->slot, call->call, call->reasons, status, must_explain);
}

// There is no other way to ask for what cannot be opened, so this is a failure, and needs a line.
static void say_unsupported(const struct ls_guarded *call, int32_t status)
{
    if (status == LS_UNSUPPORTED)
        ls_error(call->slot->name,
                 "plugin %s: `%s` returned 'not supported'; --verbose may say more",
                 call->slot->label, call->call);
}

int32_t ls_guard_made(const struct ls_guarded *call, int32_t status, bool made, const char *what)
{
    status = ls_guard_answer(call, status, true);
    if (status == LS_OK && !made) {
        ls_error(call->slot->name, "plugin %s: `%s` returned OK, but did not create %s",
                 call->slot->label, call->call, what);
        return LS_FAILED;
    }
    say_unsupported(call, status);
    return status;
}

int32_t ls_guard_opened(const struct ls_guarded *call, int32_t status)
{
    status = ls_guard_answer(call, status, true);
    say_unsupported(call, status);
    return status;
}

// What is wrong with the answer's numbers; NULL: nothing that can be seen from here.
static const char *find_wrong_number(const struct ls_kernel_request *request,
                                     const struct ls_kernel_answer *answer, uint64_t *number)
{
    const uint32_t count = request->input_count + request->output_count;
    *number = answer->scratch_bytes;
    if (answer->scratch_bytes > MOST_BYTES)
        return "bytes of scratch";
    *number = answer->saved_bytes;
    if (answer->saved_bytes > MOST_BYTES)
        return "bytes to be saved for backward";
    for (uint32_t i = 0; i < count; i++) {
        *number = answer->layouts[i].kind;
        if (answer->layouts[i].kind > LS_LAYOUT_OWN)
            return "as the kind of a layout";
        *number = answer->layouts[i].bytes;
        if (answer->layouts[i].bytes > MOST_BYTES)
            return "bytes for an argument";
    }
    *number = answer->in_place;
    return answer->in_place >> request->input_count ? "as inputs whose place the output may take"
                                                    : NULL;
}

int32_t ls_guard_kernel(const struct ls_guarded *call, int32_t status,
                        const struct ls_kernel_request *request, struct ls_kernel_answer *answer)
{
    uint64_t number = 0;
    answer->implementation[sizeof(answer->implementation) - 1] = '\0';
    status = ls_guard_answer(call, status, true);
    if (status)
        return status;
    const char *wrong = find_wrong_number(request, answer, &number);
    if (answer->kernel && !wrong)
        return LS_OK;
    if (!answer->kernel)
        ls_error(call->slot->name, "plugin %s: `%s` returned OK, but did not create a kernel",
                 call->slot->label, call->call);
    else
        ls_error(call->slot->name, "plugin %s: `%s` returned %" PRIu64 " %s", call->slot->label,
                 call->call, number, wrong);
    return LS_FAILED;
}

int32_t ls_guard_segment(const struct ls_guarded *call, int32_t status,
                         struct ls_kernel_answer *answer)
{
    const struct ls_kernel_request nothing = {0};
    return ls_guard_kernel(call, status, &nothing, answer);
}

void *ls_guard_memory(const struct ls_guarded *call, void *memory)
{
    ls_inside_leave(call->before);
    if ((uintptr_t)memory % LS_ALIGNMENT == 0)
        return memory;
    ls_error(call->slot->name, "plugin %s: `%s` returned memory that is not aligned to %d bytes",
             call->slot->label, call->call, LS_ALIGNMENT);
    return NULL;
}
