// SPDX-License-Identifier: Apache-2.0
// Which call of which plugin each thread is in. The loader notes this around every call into a plugin, so that a message
// on a crash, an exit or a hang there can name the plugin. A note costs a few stores.
// [any thread]
#ifndef LS_BASE_INSIDE_H
#define LS_BASE_INSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Texts are borrowed. Those of plugin and call must live as long as the thread: the last call is
// remembered.
struct ls_inside_call {
    const char *plugin; // "device-cpu"; NULL: in none
    const char *name; // "launch"
    const char *about; // "conv2d + relu"; NULL: nothing is known
    const char *outer_plugin,
        *outer_name; // the call that it was made from, through the host; NULL: none
};

// Returns where the thread was before, for ls_inside_leave: a plugin may call the host, which calls
// another plugin.
struct ls_inside_call ls_inside_enter(const char *plugin, const char *name);
void ls_inside_leave(struct ls_inside_call before);

// Where the calling thread is. After a longjmp out of a call, ls_inside_return with this sets the
// thread back.
struct ls_inside_call ls_inside_now(void);
void ls_inside_return(struct ls_inside_call before);

// What the next call of this thread is about.
void ls_inside_about(const char *text);

// The calling thread belongs to this replica: the watchdog (core/base/watchdog.h) looks after it.
void ls_inside_set_replica(uint32_t replica);

// Notes that the reason why a call on this thread fails was logged, or will be; ls_error does it. A
// plugin that fails while the number stays the same has given no reason.
void ls_inside_note_reason(void);
uint32_t ls_inside_reasons(void);
uint32_t ls_inside_all_reasons(void); // of all threads

// What a reader sees.
struct ls_inside_view {
    struct ls_inside_call call; // the one under way, else the last that has returned
    bool under_way;
    bool own; // of the calling thread
    int64_t replica; // -1: of none
};

// The calling thread; false: it is in no plugin, and never was. Both only read memory, so a signal
// handler may call them.
bool ls_inside_look(struct ls_inside_view *out);
// All other threads that are in a plugin, at most `most` of them; returns how many.
size_t ls_inside_look_at_others(struct ls_inside_view *out, size_t most);

// The call that the thread of this replica is in; false: in none.
bool ls_inside_of_replica(uint32_t replica, struct ls_inside_call *out);

// The plugin that this thread came back from last, to say whose answer is wrong: "device-cpu".
// Never NULL.
const char *ls_inside_last_plugin(void);

// "`launch` of plugin device-cpu (conv2d + relu), within ...". Returns `text`.
const char *ls_inside_text(const struct ls_inside_call *call, char *text, size_t bytes);

// Threads that enter a plugin from here on can handle signals even when their stack is full.
void ls_inside_use_signal_stacks(void);

#endif
