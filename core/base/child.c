// SPDX-License-Identifier: Apache-2.0
// Forks, watches and reaps.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // MAP_ANONYMOUS, pipe2
#endif
#include "core/base/child.h"

#include "core/base/caller.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// A code that nothing else is likely to end with: what a plugin calls is exit(0) or exit(1).
#define LEFT_CODE 113

void *ls_child_memory_create(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void ls_child_memory_destroy(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}

_Noreturn void ls_child_leave(void)
{
    _exit(LEFT_CODE);
}

static void exit_at_once(void)
{
    _exit(EXIT_FAILURE);
}

void ls_child_settle(int output, int errors)
{
    const struct rlimit no_core = {0, 0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &no_core);
    const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    const int files[3] = {nowhere, output ? output : nowhere, errors ? errors : nowhere};
    for (int i = 0; i < 3; i++)
        if (files[i] >= 0)
            dup2(files[i], i);
    if (nowhere > STDERR_FILENO)
        close(nowhere);
    atexit(exit_at_once); // what was registered last runs first
}

enum waited { WAITED_ENDED, WAITED_TOO_LONG, WAITED_REAPED_ELSEWHERE };

// Waits until the child has ended: then nobody holds the other end of the pipe. A child of the
// child may still hold it, so that is not the only sign. The child is not reaped here, so that its
// number means it, and its process group, until both are ended.
static enum waited wait_for(const struct ls_child_work *work, pid_t child, int pipe_end)
{
    uint64_t beat = work->beat ? *work->beat : 0, since = ls_clock_ns();
    for (;;) {
        struct pollfd closed = {.fd = pipe_end, .events = POLLIN};
        const uint64_t waited = ls_clock_ns() - since;
        const uint64_t left_ms =
            waited < work->deadline_ns ? (work->deadline_ns - waited) / 1000000 + 1 : 0;
        const int ready = poll(&closed, 1, left_ms < 20 ? (int)left_ms : 20);
        siginfo_t info = {.si_pid = 0};
        if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT)) {
            if (errno != EINTR)
                return WAITED_REAPED_ELSEWHERE;
        } else if (info.si_pid == child) {
            return WAITED_ENDED;
        } else if (work->beat && *work->beat != beat) {
            beat = *work->beat;
            since = ls_clock_ns();
        } else if (!left_ms) {
            return WAITED_TOO_LONG;
        }
        if (ready > 0) { // its files are closed: it is about to end
            const struct timespec moment = {.tv_nsec = 50000};
            nanosleep(&moment, NULL);
        }
    }
}

static struct ls_child_end end_child(pid_t child, enum waited waited)
{
    struct ls_child_end end = {.result = LS_CHILD_EXITED, .code = -1};
    int status = 0;
    if (waited == WAITED_REAPED_ELSEWHERE)
        return end;
    kill(-child, SIGKILL); // also what it started
    kill(child, SIGKILL);
    pid_t reaped;
    do
        reaped = waitpid(child, &status, 0);
    while (reaped < 0 && errno == EINTR);
    if (waited == WAITED_TOO_LONG) {
        end.result = LS_CHILD_HUNG;
    } else if (reaped == child && WIFSIGNALED(status)) {
        end.result = LS_CHILD_CRASHED;
        end.signal = WTERMSIG(status);
    } else if (reaped == child) {
        end.code = WEXITSTATUS(status);
        end.result = end.code == LEFT_CODE ? LS_CHILD_DONE : LS_CHILD_EXITED;
    }
    return end;
}

// The child has this thread alone, and must not find a lock of Lockstep taken by another one. Files
// that have one for themselves see to it in every fork (pthread_atfork).
static pid_t fork_quietly(void)
{
    ls_thread_hold_starts();
    ls_log_lock();
    ls_caller_lock();
    const pid_t child = fork();
    const int error = errno;
    ls_caller_unlock();
    ls_log_unlock();
    ls_thread_allow_starts();
    errno = error;
    return child;
}

enum ls_status ls_child_run(const struct ls_child_work *work, struct ls_child_end *end)
{
    int ends[2] = {-1, -1};
    const pid_t child = pipe2(ends, O_CLOEXEC) ? -1 : fork_quietly();
    if (child < 0) {
        ls_error(work->scope, "cannot start a child process: %s", strerror(errno));
        if (ends[0] >= 0) {
            close(ends[0]);
            close(ends[1]);
        }
        return LS_FAILED;
    }
    if (!child) {
        close(ends[0]);
        setpgid(0, 0);
        ls_child_settle(work->output, work->errors);
        work->run(work->argument, work->shared);
        ls_child_leave();
    }
    close(ends[1]);
    *end = end_child(child, wait_for(work, child, ends[0]));
    close(ends[0]);
    return LS_OK;
}
