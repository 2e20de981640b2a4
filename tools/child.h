// SPDX-License-Identifier: Apache-2.0
// Work that may crash, hang or end its process, because it runs a plugin: done in a child process, which is killed
// when it has shown no progress for too long. [main thread]
#ifndef LS_TOOLS_CHILD_H
#define LS_TOOLS_CHILD_H

#include "core/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum child_end {
    CHILD_DONE, // `run` returned, or called child_leave()
    CHILD_HUNG,
    CHILD_CRASHED,
    CHILD_EXITED, // something ended the process
};

struct child_work {
    void (*run)(void *argument, void *shared);
    void *argument;
    void *shared; // from child_memory_create(): what the child tells its parent
    const volatile uint64_t *beat; // in `shared`; the child increases it when it makes progress
    uint64_t deadline_ns; // longest time between two beats
};

// LS_FAILED, logged, if no child process can be started. `signal`: the signal of a crash.
LS_STATUS child_run(const struct child_work *work, enum child_end *end, int *signal);
_Noreturn void child_leave(void); // ends the child as if `run` had returned

void *child_memory_create(size_t bytes); // zeroed, shared with children; NULL: none
void child_memory_destroy(void *memory, size_t bytes); // takes NULL

#endif
