// SPDX-License-Identifier: Apache-2.0
#include "core/base/caller.h"
#include "core/base/instance.h"

#include "core/base/log.h"
#include "core/base/memory.h"
#include "core/base/status.h"

#include <inttypes.h>
#include <stdlib.h>

// ---- Instances ----

void *ls_instance_create(const void *interface, uint64_t state_bytes)
{
    if (state_bytes > SIZE_MAX - LS_APART)
        return NULL;
    char *memory = ls_calloc_cacheline(1, LS_APART + (size_t)state_bytes);
    if (!memory)
        return NULL;
    void *state = memory + LS_APART;
    struct ls_instance *instance = (struct ls_instance *)state - 1;
    *instance =
        (struct ls_instance){.magic = LS_INSTANCE_MAGIC, .own = interface, .interface = interface};
    return state;
}

void ls_instance_destroy(void *state)
{
    if (!state)
        return;
    ls_instance_of(state)->magic = 0;
    free((char *)state - LS_APART);
}

void ls_instance_claim(void *state, const struct ls_host *host)
{
    struct ls_instance *instance = ls_instance_of(state);
    instance->plugin = ls_host_plugin(host);
    instance->own = instance->plugin->own;
}

// ---- Calls ----

static _Thread_local uint32_t reasons_entered;

static struct ls_guarded_call enter(const struct ls_known_plugin *plugin, const void *own,
                                    const char *name)
{
    const uint32_t reasons = reasons_entered = ls_thread_reasons();
    return (struct ls_guarded_call){plugin, own, name, ls_inside_enter(plugin->label, name),
                                    reasons};
}

struct ls_guarded_call ls_guard_enter(const void *state, const char *name)
{
    const struct ls_instance *instance = ls_instance_of(state);
    return enter(instance->plugin, instance->own, name);
}

struct ls_guarded_call ls_guard_enter_host(const struct ls_host *host, const char *name)
{
    const struct ls_known_plugin *plugin = ls_host_plugin(host);
    return enter(plugin, plugin->own, name);
}

void ls_guard_forget_reasons(void)
{
    reasons_entered = ls_thread_reasons();
}

uint32_t ls_guard_reasons_entered(void)
{
    return reasons_entered;
}

void ls_guard_leave(const struct ls_guarded_call *call)
{
    ls_inside_leave(call->before);
}

static bool is_status(int32_t status)
{
    return (status >= LS_OK && status <= LS_AGAIN) || status == LS_INTERRUPTED;
}

// Whether the plugin may pass on that another rank failed.
static bool has_peers(uint32_t kind)
{
    return kind == LS_KIND_TRANSPORT || kind == LS_KIND_COLLECTIVE || kind == LS_KIND_STRATEGY ||
           kind == LS_KIND_CALLBACK;
}

int32_t ls_guard_judge(const struct ls_known_plugin *plugin, const char *name, uint32_t reasons,
                       int32_t status, bool must_explain)
{
    if (!is_status(status)) {
        ls_error(plugin->name, "plugin %s: `%s` returned %" PRId32 ", which is not a status",
                 plugin->label, name, status);
        return LS_FAILED;
    }
    if (!must_explain || status == LS_UNSUPPORTED || reasons != ls_thread_reasons())
        return status;
    if (status == LS_ABORTED && has_peers(plugin->kind))
        return status;
    if (status == LS_AGAIN || status == LS_INTERRUPTED || status == LS_ABORTED) {
        ls_error(plugin->name, "plugin %s: `%s` returned '%s', which it must not return",
                 plugin->label, name, ls_status_text((enum ls_status)status));
        return LS_FAILED;
    }
    ls_error(plugin->name, "plugin %s: `%s` returned '%s' without giving a reason", plugin->label,
             name, ls_status_text((enum ls_status)status));
    return status;
}

int32_t ls_guard_answer(const struct ls_guarded_call *call, int32_t status, bool must_explain)
{
    ls_inside_leave(call->before);
    return status == LS_OK
               ? LS_OK
               : ls_guard_judge(call->plugin, call->name, call->reasons, status, must_explain);
}

// There is no other way to ask for what cannot be opened. Therefore this is a failure, and needs a
// line.
static void say_unsupported(const struct ls_guarded_call *call, int32_t status)
{
    if (status == LS_UNSUPPORTED)
        ls_error(call->plugin->name,
                 "plugin %s: `%s` returned 'not supported'; --verbose may say more",
                 call->plugin->label, call->name);
}

int32_t ls_guard_made(const struct ls_guarded_call *call, int32_t status, bool made,
                      const char *what)
{
    status = ls_guard_answer(call, status, true);
    if (status == LS_OK && !made) {
        ls_error(call->plugin->name, "plugin %s: `%s` returned OK, but did not create %s",
                 call->plugin->label, call->name, what);
        return LS_FAILED;
    }
    say_unsupported(call, status);
    return status;
}

int32_t ls_guard_opened(const struct ls_guarded_call *call, int32_t status)
{
    status = ls_guard_answer(call, status, true);
    say_unsupported(call, status);
    return status;
}
