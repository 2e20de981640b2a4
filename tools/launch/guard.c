// SPDX-License-Identifier: Apache-2.0
// The guard reads from a pipe which groups there are. When this program has ended, for whatever
// reason, the pipe does.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // pipe2
#endif
#include "tools/launch/guard.h"

#include "core/base/log.h"
#include "tools/launch/leftover.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct word {
    pid_t group;
    int32_t alive;
};

static void note(pid_t *groups, size_t *count, const struct word *word)
{
    if (word->alive && *count < LAUNCH_GUARD_MOST)
        groups[(*count)++] = word->group;
    for (size_t i = 0; !word->alive && i < *count; i++)
        if (groups[i] == word->group)
            groups[i] = groups[--*count];
}

// In a session of its own it hears neither Ctrl-C nor the end of the terminal. It must not keep
// open what readers of this program's output wait for.
static _Noreturn void watch(int pipe_end, const char *folder)
{
    static pid_t groups[LAUNCH_GUARD_MOST];
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    size_t count = 0;
    struct word word;
    setsid();
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        signal(ends[i], SIG_IGN);
    const int nowhere = open("/dev/null", O_RDWR);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        dup2(nowhere, fd);
    for (ssize_t got; (got = read(pipe_end, &word, sizeof(word)));)
        if (got == sizeof(word))
            note(groups, &count, &word);
        else if (got > 0 || errno != EINTR)
            break;
    for (size_t i = 0; i < count; i++)
        kill(-groups[i], SIGKILL);
    launch_remove_folder(folder);
    _exit(0);
}

// Its parent ends at once, so that it is nobody's child here: who waits for all children does not
// wait for the guard.
static bool start(int pipe_end, int other_end, const char *folder)
{
    int status = 0;
    prctl(PR_SET_CHILD_SUBREAPER, 0L);
    const pid_t parent = fork();
    if (parent == 0) {
        close(other_end);
        const pid_t guard = fork();
        if (guard == 0)
            watch(pipe_end, folder);
        _exit(guard < 0 ? errno : 0);
    }
    while (parent > 0 && waitpid(parent, &status, 0) < 0 && errno == EINTR)
        ;
    if (parent > 0)
        errno = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
    return parent > 0 && status == 0;
}

enum ls_status launch_guard_open(struct launch_guard *guard, const char *folder)
{
    int ends[2] = {-1, -1};
    guard->pipe_end = -1;
    if (getpid() == 1) // of a container: the kernel ends all its processes with this one
        return LS_OK;
    if (pipe2(ends, O_CLOEXEC) || !start(ends[0], ends[1], folder)) {
        ls_error("launch", "cannot start the process that guards the workers: %s", strerror(errno));
        if (ends[0] >= 0) {
            close(ends[0]);
            close(ends[1]);
        }
        return LS_FAILED;
    }
    close(ends[0]);
    guard->pipe_end = ends[1];
    return LS_OK;
}

void launch_guard_tell(const struct launch_guard *guard, pid_t group, bool alive)
{
    const struct word word = {.group = group, .alive = alive};
    while (guard->pipe_end >= 0 && write(guard->pipe_end, &word, sizeof(word)) < 0 &&
           errno == EINTR)
        ;
}

void launch_guard_close(struct launch_guard *guard)
{
    if (guard->pipe_end >= 0)
        close(guard->pipe_end);
    guard->pipe_end = -1;
}
