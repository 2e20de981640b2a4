// SPDX-License-Identifier: Apache-2.0
// The state of an opened plugin, which the core allocates, and the record of a call into the
// plugin. 64 bytes in front of each state, which plugins do not see, name the plugin. Therefore one
// function for each call of a kind (a guard) is enough for all plugins of this kind: it finds the
// plugin by the state, or by the host where a call has no state yet.
#ifndef LS_BASE_INSTANCE_H
#define LS_BASE_INSTANCE_H

#include "core/attributes.h"
#include "core/base/inside_internal.h"
#include "core/plugin/plugin.h"

#include <assert.h>
#include <stdbool.h>

// ---- Plugins ----

// The calls that a collective makes several times in a microsecond.
enum { LS_OFTEN_POST, LS_OFTEN_TEST, LS_OFTEN_WAIT_ANY, LS_OFTEN_ARM, LS_OFTEN_CALLS };

// A plugin that this process has opened. It lives as long as the process, because the records of
// threads keep its label.
struct ls_known_plugin {
    uint32_t kind;
    char label[96]; // "device-cpu"
    const char *name; // "cpu", in `label`
    const void *own; // the table of its kind, as the plugin has it
    struct ls_inside_site often[LS_OFTEN_CALLS];
};

// The context of every host that the loader makes begins with this. A host that stands in front of
// such a host keeps its context.
struct ls_host_context {
    uint64_t magic; // LS_HOST_MAGIC
    const struct ls_known_plugin *plugin;
};

#define LS_HOST_MAGIC UINT64_C(0x54534f484b434f4c)

static inline const struct ls_known_plugin *ls_host_plugin(const struct ls_host *host)
{
    const struct ls_host_context *context = host->context;
    assert(context->magic == LS_HOST_MAGIC);
    return context->plugin;
}

// ---- Instances ----

struct ls_instance {
    uint64_t magic; // LS_INSTANCE_MAGIC
    const struct ls_known_plugin *plugin; // NULL until a guard of `open` has claimed it
    const void *own; // the plugin's table; until it is claimed, `interface`
    const void *interface; // the table that it was created for
    void *context; // its creator's
    uint64_t reserved[3];
};

_Static_assert(sizeof(struct ls_instance) == 64, "half a pair of cache lines");

#define LS_INSTANCE_MAGIC UINT64_C(0x54534e494b434f4c)

// Zeroed memory for a plugin's state, aligned to 128 bytes. `interface` is the table of the
// plugin's kind, which the state is opened and closed with. NULL: no memory. [any thread]
void *ls_instance_create(const void *interface, uint64_t state_bytes);
void ls_instance_destroy(void *state); // takes NULL
// Names the plugin that the host was made for as the owner of the state.
void ls_instance_claim(void *state, const struct ls_host *host);

// Without a look at the magic word, for what is called several times in a microsecond.
static inline struct ls_instance *ls_instance_in_front(const void *state)
{
    return (struct ls_instance *)(uintptr_t)state - 1;
}

static inline struct ls_instance *ls_instance_of(const void *state)
{
    struct ls_instance *instance = ls_instance_in_front(state);
    assert(instance->magic == LS_INSTANCE_MAGIC);
    return instance;
}

// ---- Calls ----

// A call into a plugin that is under way.
struct ls_guarded_call {
    const struct ls_known_plugin *plugin;
    const void *own; // the plugin's table
    const char *name;
    struct ls_inside_call before;
    uint32_t reasons; // that this thread had given when the call began
};

// Records that the calling thread is in this call of the plugin that owns the state.
struct ls_guarded_call ls_guard_enter(const void *state, const char *name);
// The same for a call that has no state: of the plugin that the host was made for.
struct ls_guarded_call ls_guard_enter_host(const struct ls_host *host, const char *name);
// After a call that returns nothing, or a value that cannot be wrong.
void ls_guard_leave(const struct ls_guarded_call *call);
// After a call that returns a status, which this function returns in turn. A number that is no
// status is logged and becomes LS_FAILED. With `must_explain`, a failure for which the plugin gave
// no reason is logged.
int32_t ls_guard_answer(const struct ls_guarded_call *call, int32_t status, bool must_explain);
// The same for a call that creates an object: `made` says whether it did.
int32_t ls_guard_made(const struct ls_guarded_call *call, int32_t status, bool made,
                      const char *what);
// The same for a call that opens what the caller has allocated.
int32_t ls_guard_opened(const struct ls_guarded_call *call, int32_t status);

// What a call that is made several times in a microsecond is judged by, which does not count
// reasons itself: how many this thread had given when it last began another guarded call, or forgot
// them.
uint32_t ls_guard_reasons_entered(void);
// What this thread has logged so far explains no failure of such a call from here on.
void ls_guard_forget_reasons(void);

// What the caller is told in place of `status`, which is not LS_OK. `reasons`: how many the thread
// had given before.
LS_COLD int32_t ls_guard_judge(const struct ls_known_plugin *plugin, const char *name,
                               uint32_t reasons, int32_t status, bool must_explain);

#endif
