// SPDX-License-Identifier: Apache-2.0
// Work that may crash, hang or end its process, because it runs a plugin: done in a child process. When the child has shown no
// progress for too long it is killed, and in any case all that it started. [any thread; the child is a fork of the caller's]
#ifndef LS_BASE_CHILD_H
#define LS_BASE_CHILD_H

#include "core/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum ls_child_result {
    LS_CHILD_DONE, // `run` returned, or called ls_child_leave()
    LS_CHILD_HUNG,
    LS_CHILD_CRASHED,
    LS_CHILD_EXITED, // something ended the process
};

struct ls_child_work {
    const char *scope; // of the log
    void (*run)(void *argument, void *shared);
    void *argument;
    void *shared; // from ls_child_memory_create(): what the child tells its parent
    const volatile uint64_t *beat; // in `shared`; the child increases it when it makes progress
    uint64_t deadline_ns; // longest time between two beats; without a beat, of the whole work
    int output, errors; // descriptors that take what the child prints; 0: it prints nowhere
};

struct ls_child_end {
    enum ls_child_result result;
    int signal; // of a crash; else 0
    int code; // of an exit; -1: the program has reaped the child elsewhere
};

// LS_FAILED, logged, if no child process can be started.
LS_STATUS ls_child_run(const struct ls_child_work *work, struct ls_child_end *end);
_Noreturn void ls_child_leave(void); // ends the child as if `run` had returned

// The first thing in a child that was forked otherwise: it ends with its parent, leaves no core, reads nothing, prints to
// these descriptors (0: nowhere), and exit() does not flush the parent's files a second time.
void ls_child_settle(int output, int errors);

void *ls_child_memory_create(size_t bytes); // zeroed, shared with children; NULL: none
void ls_child_memory_destroy(void *memory, size_t bytes); // takes NULL

#endif
