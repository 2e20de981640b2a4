// SPDX-License-Identifier: Apache-2.0
// Slots for guarded plugins, and the looks at their answers.
#include "core/loader/guard.h"

#include "core/base/log.h"
#include "core/base/status.h"
#include "core/loader/internal.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

// More than any machine has, and little enough that sums of such sizes stay numbers.
#define MOST_BYTES (UINT64_C(1) << 46)

struct ls_guard_slot ls_guard_slots[LS_GUARD_SLOTS];
static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;

// What keeps a transfer from ending is said by the communicator.
static bool is_said_elsewhere(int32_t status, const struct ls_transfer *transfer)
{
    return status != LS_FAILED || (transfer && transfer->state == LS_TRANSFER_MISMATCH);
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

#define TABLES(kind)                                                                              \
    {                                                                                             \
        &kind##_guards_0, &kind##_guards_1, &kind##_guards_2, &kind##_guards_3, &kind##_guards_4, \
            &kind##_guards_5, &kind##_guards_6, &kind##_guards_7, &kind##_guards_8,               \
            &kind##_guards_9, &kind##_guards_10, &kind##_guards_11                                \
    }

static const struct ls_device_interface *const device_tables[LS_GUARD_SLOTS] = TABLES(device);
static const struct ls_transport_interface *const transport_tables[LS_GUARD_SLOTS] =
    TABLES(transport);
static const struct ls_collective_interface *const collective_tables[LS_GUARD_SLOTS] =
    TABLES(collective);
static const struct ls_strategy_interface *const strategy_tables[LS_GUARD_SLOTS] = TABLES(strategy);

// ---- Slots ----

static const void *guards_of(uint32_t kind, size_t slot)
{
    switch (kind) {
    case LS_KIND_DEVICE: return device_tables[slot];
    case LS_KIND_TRANSPORT: return transport_tables[slot];
    case LS_KIND_COLLECTIVE: return collective_tables[slot];
    default: return strategy_tables[slot];
    }
}

static size_t table_bytes(uint32_t kind)
{
    switch (kind) {
    case LS_KIND_DEVICE: return sizeof(struct ls_device_interface);
    case LS_KIND_TRANSPORT: return sizeof(struct ls_transport_interface);
    case LS_KIND_COLLECTIVE: return sizeof(struct ls_collective_interface);
    default: return sizeof(struct ls_strategy_interface);
    }
}

// A plugin that is opened again, by another loader too, has the slot that it had: its code is still there, and calls of
// it may be under way. LS_GUARD_SLOTS: there is none left.
static size_t find_slot(uint32_t kind, const char *name, const void *theirs, const void *ours)
{
    size_t slot = 0;
    pthread_mutex_lock(&slots_lock);
    while (slot < LS_GUARD_SLOTS && ls_guard_slots[slot].theirs &&
           ls_guard_slots[slot].theirs != theirs)
        slot++;
    if (slot < LS_GUARD_SLOTS && !ls_guard_slots[slot].theirs) {
        struct ls_guard_slot *free_slot = &ls_guard_slots[slot];
        snprintf(free_slot->label, sizeof(free_slot->label), "%s-%s", ls_kind_text(kind), name);
        free_slot->name = free_slot->label + strlen(ls_kind_text(kind)) + 1;
        memcpy(&free_slot->ops, ours, table_bytes(kind));
        free_slot->theirs = theirs;
    }
    pthread_mutex_unlock(&slots_lock);
    return slot;
}

// Whether a table has a function is what its users ask it: where it has none, so has ours. Members that are no functions
// are 0 in the table of guards, and stay.
void ls_guard_table(uint32_t kind, const char *name, const void *theirs, void *interface)
{
    const size_t slot = find_slot(kind, name, theirs, interface);
    if (slot == LS_GUARD_SLOTS) {
        ls_debug("plugins", "%s-%s is called without guards: more than %d plugins were opened",
                 ls_kind_text(kind), name, LS_GUARD_SLOTS);
        return;
    }
    const char *guards = guards_of(kind, slot);
    void (*function)(void), (*own)(void);
    for (size_t at = 0; at + sizeof(function) <= table_bytes(kind); at += sizeof(function)) {
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

static bool is_status(int32_t status)
{
    return (status >= LS_OK && status <= LS_AGAIN) || status == LS_INTERRUPTED;
}

int32_t ls_guard_answer(const struct ls_guarded *call, int32_t status, bool must_explain)
{
    ls_inside_leave(call->before);
    if (status == LS_OK)
        return LS_OK;
    if (!is_status(status)) {
        ls_error(call->slot->name, "plugin %s: `%s` answered %" PRId32 ", which is no status",
                 call->slot->label, call->call, status);
        return LS_FAILED;
    }
    if (!must_explain || status == LS_UNSUPPORTED || call->reasons != ls_inside_reasons())
        return status;
    // Hooks of a strategy pass on that another rank failed. A device is nobody's peer.
    const bool may_abort = strncmp(call->slot->label, "device-", 7) != 0;
    if (status == LS_ABORTED && may_abort)
        return status;
    if (status == LS_AGAIN || status == LS_INTERRUPTED || status == LS_ABORTED) {
        ls_error(call->slot->name, "plugin %s: `%s` answered '%s', which it may not",
                 call->slot->label, call->call, ls_status_text((enum ls_status)status));
        return LS_FAILED;
    }
    ls_error(call->slot->name, "plugin %s: `%s` failed (%s) without giving a reason",
             call->slot->label, call->call, ls_status_text((enum ls_status)status));
    return status;
}

int32_t ls_guard_made(const struct ls_guarded *call, int32_t status, bool made, const char *what)
{
    status = ls_guard_answer(call, status, true);
    if (status == LS_OK && !made) {
        ls_error(call->slot->name, "plugin %s: `%s` answered OK, but did not make %s",
                 call->slot->label, call->call, what);
        return LS_FAILED;
    }
    // Nobody asks again in another way.
    if (status == LS_UNSUPPORTED)
        ls_error(call->slot->name,
                 "plugin %s: `%s` answered 'not supported'; --verbose may say more",
                 call->slot->label, call->call);
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
        ls_error(call->slot->name, "plugin %s: `%s` answered OK, but did not make a kernel",
                 call->slot->label, call->call);
    else
        ls_error(call->slot->name, "plugin %s: `%s` answered %" PRIu64 " %s", call->slot->label,
                 call->call, number, wrong);
    return LS_FAILED;
}

void *ls_guard_memory(const struct ls_guarded *call, void *memory)
{
    ls_inside_leave(call->before);
    if ((uintptr_t)memory % LS_ALIGNMENT == 0)
        return memory;
    ls_error(call->slot->name, "plugin %s: `%s` answered memory that is not aligned to %d bytes",
             call->slot->label, call->call, LS_ALIGNMENT);
    return NULL;
}
