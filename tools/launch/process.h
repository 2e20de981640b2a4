// SPDX-License-Identifier: Apache-2.0
// One worker or server of a launch: how it starts, how it is ended, and how it is named in
// messages. [main thread]
#ifndef LS_TOOLS_LAUNCH_PROCESS_H
#define LS_TOOLS_LAUNCH_PROCESS_H

#include "core/wire/secret.h"
#include "tools/launch/guard.h"
#include "tools/launch/output.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

// What all processes of one start have in common.
struct launch_place {
    const struct launch_guard *guard; // is told of each group before its program begins
    char *const
        *words; // the command: the program first, or a subcommand of this program; ends with NULL
    const char *const *commands; // names of all subcommands of this program
    bool own; // it is a subcommand of this program
    bool elastic; // workers may come later
    uint32_t workers, servers;
    uint32_t restart; // how often all have been started again
    char secret[LS_SECRET_DRAWN];
    int listener; // the socket that worker 0 accepts connections on
    uint16_t port; // of that socket, on 127.0.0.1
    // One a server, open as long as the job runs: who connects while a server is started again
    // waits.
    int *server_listeners;
    char *server_addresses; // "127.0.0.1:4242,127.0.0.1:4243"; NULL: there are no servers
    char job[48]; // the name of the job, for its servers' files
    char folder[512]; // where these are, unless the user names another one
    const sigset_t *mask; // blocked signals of a new process
};

struct launch_process {
    bool server;
    uint32_t number; // among the workers, or among the servers
    pid_t pid; // also of its process group; 0: was never started
    bool running;
    bool told; // to end, by this program
    bool lost; // ended by this program, because it was stopped
    bool again; // has ended, and is about to be started again
    uint32_t restarts; // how often it was started again, without the others
    struct launch_stream out, err;
    uint64_t started_ns, ended_ns, stopped_ns; // stopped_ns 0: not stopped
    int stop_signal;
    int code, signal; // what it ended with, or the signal that killed it
};

// Makes the process that `process` names. LS_BAD_INPUT, logged: there is no such program;
// LS_FAILED, logged: no process.
LS_STATUS launch_process_start(struct launch_process *process, const struct launch_place *place,
                               struct launch_output *output, const char *out_prefix,
                               const char *err_prefix);
// Sends a signal to the process and all in its group.
void launch_process_signal(const struct launch_process *process, int number);
// Its terminal becomes as wide as that of this program.
void launch_process_resize(const struct launch_process *process);

// "worker 2"; `room` 32 suffices.
void launch_process_name(const struct launch_process *process, char *name, size_t room);
// "worker 2 was killed by SIGKILL after 12.3 s"; `room` 128 suffices.
void launch_process_describe(const struct launch_process *process, char *text, size_t room);
// "SIGKILL", or "signal 64"; `room` 16 suffices.
void launch_signal_name(int number, char *name, size_t room);

#endif
