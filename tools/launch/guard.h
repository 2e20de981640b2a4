// SPDX-License-Identifier: Apache-2.0
// A second process beside `lockstep launch` that ends the process groups of the workers when the
// launch itself is killed and can do so no more. The kernel ends only the workers themselves then,
// not what they have started. [main thread]
#ifndef LS_TOOLS_LAUNCH_GUARD_H
#define LS_TOOLS_LAUNCH_GUARD_H

#include "core/base/status.h"

#include <stdbool.h>
#include <sys/types.h>

#define LAUNCH_GUARD_MOST 8192 // groups at a time

struct launch_guard {
    int pipe_end; // -1: none
};

// The guard is no child of this process. It also removes the folder of the servers' files ("":
// there is none). LS_FAILED, logged, if it cannot be started.
LS_STATUS launch_guard_open(struct launch_guard *guard, const char *folder);
// A group that it is to end (`alive`), or that has ended.
void launch_guard_tell(const struct launch_guard *guard, pid_t group, bool alive);
void launch_guard_close(struct launch_guard *guard); // it ends the groups that it knows, and itself

#endif
