// SPDX-License-Identifier: Apache-2.0
// Processes that a test forks on this machine. What they find, and what they log, is in memory that they share with the
// test, which asserts it.
#ifndef LS_TESTS_SUPPORT_CREW_H
#define LS_TESTS_SUPPORT_CREW_H

#include "tests/support/suite.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SECOND UINT64_C(1000000000)
#define MILLISECOND UINT64_C(1000000)

// One process, in memory of crew_memory().
struct crew_process {
    uint32_t index; // among the processes of the test
    _Atomic int state; // for the test: how far it is
    pid_t pid;
    int exit_status; // of waitpid(); negative: it has not ended
    char log[8192];
};

// Zeroed memory that all processes share which are forked from now on; the caller unmaps it.
void *crew_memory(size_t bytes);
// A socket that listens at a free port of 127.0.0.1.
int crew_listen(uint16_t *port);

// Forks; true in the new process, which is to end with _exit() and is killed after `longest_s`.
bool crew_fork(struct crew_process *process, unsigned longest_s);
// Its exit status, when it has ended; any number of times.
int crew_wait(struct crew_process *process);
// Waits until a process, or the test, has come to a state; at most a minute.
void crew_await(const _Atomic int *state, int value);
// Appends a line to the log of `process`, a struct crew_process: a writer of logs.
void crew_note_line(void *process, uint32_t level, const char *line);
void nap_ms(long milliseconds);

#endif
