// SPDX-License-Identifier: Apache-2.0
// The state of a process that a plugin must not change: a snapshot, and the differences from it later.
// [main thread]
#ifndef LS_TOOLS_CONFORMANCE_PROCESS_H
#define LS_TOOLS_CONFORMANCE_PROCESS_H

#include "core/base/status.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum ls_process_aspect {
    LS_PROCESS_SIGNALS = 1 << 0, // handlers, and the mask of this thread
    LS_PROCESS_ENVIRONMENT = 1 << 1,
    LS_PROCESS_FLOATING_POINT = 1 << 2, // rounding, denormals, traps; of this thread
    LS_PROCESS_DIRECTORY = 1 << 3,
    LS_PROCESS_UMASK = 1 << 4,
    LS_PROCESS_LIMITS = 1 << 5,
    LS_PROCESS_THREADS = 1 << 6, // how many
    LS_PROCESS_FILES = 1 << 7, // how many are open
};
// The aspects that no plugin call may change; threads and files may exist as long as an instance.
#define LS_PROCESS_ALWAYS 0x3f

#define LS_PROCESS_SIGNAL_COUNT 65

struct ls_process_state {
    struct sigaction actions[LS_PROCESS_SIGNAL_COUNT];
    sigset_t mask;
    char **environment; // a copy; ends with NULL
    uint64_t floating_point;
    dev_t directory_device;
    ino_t directory;
    mode_t umask;
    struct rlimit limits[RLIM_NLIMITS];
    uint32_t threads, files;
};

LS_STATUS ls_process_state_init(struct ls_process_state *state);
void ls_process_state_finish(struct ls_process_state *state); // takes a zeroed one

// Whether the aspects (bits) are unchanged; if not, `text` says what changed. Threads that are about
// to end get a second to do so.
bool ls_process_state_holds(const struct ls_process_state *before, uint32_t aspects, char *text,
                            size_t bytes);

#endif
