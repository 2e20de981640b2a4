// SPDX-License-Identifier: Apache-2.0
// Records which plugin call each thread is in. A guard (core/base/instance.h) sets the record
// around every call into a plugin, so that the message about a crash, an exit or a hang can name
// the plugin. Setting the record costs a few stores. [any thread]
#ifndef LS_BASE_INSIDE_H
#define LS_BASE_INSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Texts are borrowed. The names of plugin and call must live as long as the thread, because the
// record keeps the last call.
struct ls_inside_call {
    const char *plugin; // "device-cpu"; NULL: in none
    const char *name; // "launch"
    const char *about; // "conv2d + relu"; NULL: nothing is known
    const char *outer_plugin,
        *outer_name; // the call that it was made from, through the host; NULL: none
    const struct ls_inside_site *site; // for ls_inside_leave (inside_internal.h)
};

// Returns the thread's previous record for ls_inside_leave, because a plugin may call the host,
// which calls another plugin.
struct ls_inside_call ls_inside_enter(const char *plugin, const char *name);
void ls_inside_leave(struct ls_inside_call before);

// The record of the calling thread. After a longjmp out of a call, ls_inside_return restores it.
struct ls_inside_call ls_inside_now(void);
void ls_inside_return(struct ls_inside_call before);

// Describes the next call of this thread: "conv2d + relu".
void ls_inside_about(const char *text);

// Assigns the calling thread to the replica of this rank, which the watchdog (core/base/watchdog.h)
// monitors.
void ls_inside_set_replica(uint32_t rank);

// The record of a thread, as read from any thread.
struct ls_inside_view {
    struct ls_inside_call call; // the current call, else the last one that returned
    bool under_way;
    bool own; // the record belongs to the calling thread
    int64_t replica; // its rank; -1: none
};

// Reads the record of the calling thread; false: the thread never called a plugin. This function
// and the next only read memory, so a signal handler may call them.
bool ls_inside_look(struct ls_inside_view *out);
// Reads the records of all other threads that are in a plugin, at most `most`; returns their number.
size_t ls_inside_look_at_others(struct ls_inside_view *out, size_t most);

// Reads the call that the thread of the replica of this rank is in; false: it is in none, or the
// rank belongs to another process. Replicas of other callers do not count.
bool ls_inside_of_replica(uint32_t rank, struct ls_inside_call *out);

// The plugin whose call returned last on this thread ("device-cpu"), for messages about a wrong
// answer. Never NULL.
const char *ls_inside_last_plugin(void);

// "`launch` of plugin device-cpu (conv2d + relu), within ...". Returns `text`.
const char *ls_inside_text(const struct ls_inside_call *call, char *text, size_t bytes);

// Gives every thread that enters a plugin from now on an alternate signal stack, so that it can
// handle signals even when its stack is full.
void ls_inside_use_signal_stacks(void);

#endif
