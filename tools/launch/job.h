// SPDX-License-Identifier: Apache-2.0
// All processes of a launch: started together, watched, ended together. [main thread]
#ifndef LS_TOOLS_LAUNCH_JOB_H
#define LS_TOOLS_LAUNCH_JOB_H

#include "core/base/status.h"
#include "tools/launch/output.h"

#include <stdbool.h>
#include <stdint.h>

#define LAUNCH_PROCESSES_MOST LAUNCH_WORKERS_MOST

enum launch_prefix { LAUNCH_PREFIX_AUTO, LAUNCH_PREFIX_ALWAYS, LAUNCH_PREFIX_NEVER };

struct launch_options {
    uint32_t workers, servers;
    uint32_t restarts; // how often processes are started again after a failure
    uint32_t least_workers; // that go on when others are lost; 0: all are needed
    enum launch_prefix prefix;
    uint64_t failure_grace_ns; // for the others to end by themselves, after one has failed
    uint64_t stop_grace_ns; // for all to end after a signal; 0: no limit
    uint64_t stopped_ns; // after which a stopped process counts as lost; 0: never
    uint64_t timeout_ns; // of the whole launch; 0: none
    char *const
        *words; // the command: the program first, or a subcommand of this program; ends with NULL
    const char *const *commands; // names of all subcommands of this program
    bool own; // it is a subcommand of this program
    bool elastic; // it has --elastic=MIN:MAX, whose MIN is least_workers
};

// Runs the job to its end, and says what went wrong. `code` becomes the exit code of the program:
// 0; 5 where a process was lost, else that of the first that failed; 143 or 130 after a signal.
LS_STATUS launch_run(const struct launch_options *options, int *code);

#endif
