// SPDX-License-Identifier: Apache-2.0
// Forks, watches and reaps.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // MAP_ANONYMOUS
#endif
#include "tools/child.h"

#include "core/base/clock.h"
#include "core/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// A code that nothing else is likely to end with: what the plugin calls is exit(0) or exit(1).
#define LEFT_CODE 113

void *child_memory_create(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void child_memory_destroy(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}

_Noreturn void child_leave(void)
{
    _exit(LEFT_CODE);
}

static void exit_at_once(void)
{
    _exit(EXIT_FAILURE);
}

// The child prints nothing, leaves no core, ends with its parent, and exit() does not flush the parent's files a
// second time.
static void prepare_child(void)
{
    const struct rlimit no_core = {0, 0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &no_core);
    const int nowhere = open("/dev/null", O_RDWR);
    for (int fd = 0; nowhere >= 0 && fd <= 2; fd++)
        dup2(nowhere, fd);
    atexit(exit_at_once);
}

// Whether the child ended before its deadline. It is not reaped, so that its number means it.
static int wait_for_child(const struct child_work *work, pid_t child)
{
    uint64_t beat = *work->beat, since = ls_clock_ns();
    long pause_ns = 50000;
    for (;;) {
        siginfo_t info = {.si_pid = 0};
        if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) && errno != EINTR)
            return 1;
        if (info.si_pid == child)
            return 1;
        const uint64_t now = ls_clock_ns();
        if (*work->beat != beat) {
            beat = *work->beat;
            since = now;
        } else if (now - since > work->deadline_ns) {
            return 0;
        }
        const struct timespec pause = {.tv_nsec = pause_ns};
        nanosleep(&pause, NULL);
        if (pause_ns < 20000000)
            pause_ns += pause_ns / 4;
    }
}

enum ls_status child_run(const struct child_work *work, enum child_end *end, int *signal)
{
    const pid_t child = fork();
    if (child < 0) {
        ls_error("lockstep", "cannot start a child process: %s", strerror(errno));
        return LS_FAILED;
    }
    if (!child) {
        prepare_child();
        work->run(work->argument, work->shared);
        child_leave();
    }
    const int ended = wait_for_child(work, child);
    int status = 0;
    if (!ended)
        kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    *signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    *end = !ended                                                  ? CHILD_HUNG
           : *signal                                               ? CHILD_CRASHED
           : WIFEXITED(status) && WEXITSTATUS(status) == LEFT_CODE ? CHILD_DONE
                                                                   : CHILD_EXITED;
    return LS_OK;
}
