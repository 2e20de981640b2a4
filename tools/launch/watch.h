// SPDX-License-Identifier: Apache-2.0
// Watches the processes of a launch until all have ended, and ends them where one has failed. [main
// thread]
#ifndef LS_TOOLS_LAUNCH_WATCH_H
#define LS_TOOLS_LAUNCH_WATCH_H

#include "tools/launch/guard.h"
#include "tools/launch/job.h"
#include "tools/launch/process.h"

#include <poll.h>

// How a process went wrong; what explains more has the higher number.
enum launch_failure {
    LAUNCH_FAILURE_NONE,
    LAUNCH_FAILURE_ASKED, // ended with 130 or 143: somebody sent it a signal, and it obeyed
    LAUNCH_FAILURE_PEER, // ended with 5: it lost another one
    LAUNCH_FAILURE_OWN, // ended with another code
    LAUNCH_FAILURE_LOST, // killed by a signal, or stopped
};

enum launch_stage {
    LAUNCH_RUNNING,
    LAUNCH_WAITING, // for all to end by themselves
    LAUNCH_TERMINATED, // after SIGTERM
    LAUNCH_KILLED,
};

struct launch_job {
    const struct launch_options *options;
    struct launch_output output;
    struct launch_guard guard;
    struct launch_place place;
    struct launch_process *processes; // workers first
    uint32_t count;
    struct pollfd *polled; // room for 2 * count + 3
    int signals; // signalfd
    uint64_t began_ns;
    uint32_t restarted; // processes, each alone

    // How it goes. Zero in the beginning.
    struct {
        enum launch_stage stage;
        uint64_t stage_end_ns; // UINT64_MAX: never
        struct launch_process *cause;
        enum launch_failure failure;
        uint64_t failed_ns;
        bool announced; // the failure
        bool told; // all to end, by this program
        bool late; // one had to be killed that was only asked to end
        bool timed_out;
        bool at_once; // the user does not want to wait
        int signal; // that this program got; 0: none
    } state;
};

// All of them, with a new secret and a new port. LS_BAD_INPUT or LS_FAILED, logged: some may run.
LS_STATUS launch_start_all(struct launch_job *job);
// Servers keep what they know in files there; before the guard is opened, which removes it where
// this program cannot.
LS_STATUS launch_make_folder(struct launch_place *place);
void launch_forget_servers(struct launch_place *place); // closes what they listen on, removes that
// One that has ended. What it printed and was not read is lost.
LS_STATUS launch_start_again(struct launch_job *job, struct launch_process *process);

// Whether the training does not end with each of its processes.
bool launch_goes_on(const struct launch_job *job);
// Whether it is a command of ours that was refused (wrong options, bad input, not available), and
// would be refused again.
bool launch_is_refused(const struct launch_job *job, const struct launch_process *process,
                       enum launch_failure failure);

// Returns when all processes have ended, with what they have started, and all that they printed is
// written.
void launch_watch(struct launch_job *job);
void launch_abandon(struct launch_job *job); // ends all at once, and then does the same

#endif
