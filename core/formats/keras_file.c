// SPDX-License-Identifier: Apache-2.0
// Runs lockstep-keras-files and takes over what it found.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // memfd_create, pipe2
#endif
#include "core/formats/keras_file.h"

#include "core/base/clock.h"
#include "core/base/file_kind.h"
#include "core/base/log.h"
#include "core/formats/replacement.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SCOPE "keras file"
#define LEAST_SECONDS 20
#define BYTES_A_SECOND (UINT64_C(10) << 20) // of a file, by which the deadline grows
#define SECONDS_TO_END 2 // beyond the processor time that the child limits itself to
#define FIRST_OWN_FD 10 // above the descriptors that the child gets

extern char **environ;

// One run of the program.
struct run {
    const struct ls_keras_program *program;
    const char *path; // of the file, in messages
    const char *work; // "read" or "write"
    uint32_t seconds;
    int input, output, answers;
    pid_t child;
    char answer[1024]; // "ok", "bad REASON" or "failed REASON"
    bool late;
    int ended; // as waitpid says
};

enum ls_status ls_keras_file_unavailable(const char *path)
{
    ls_error(SCOPE,
             "%s: files of Keras (.weights.h5, .h5, .keras) need the program " LS_KERAS_PROGRAM
             ", which this Lockstep was built without; install libhdf5-dev and libzip-dev (Debian) "
             "and build anew, or use safetensors (docs/weights.md)",
             path);
    return LS_UNAVAILABLE;
}

bool ls_keras_file_is(const char *path)
{
    char start[LS_FILE_KIND_BYTES];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ssize_t bytes = fd < 0 ? 0 : read(fd, start, sizeof(start));
    if (fd >= 0)
        close(fd);
    return bytes > 0 && ls_file_is_keras(start, (size_t)bytes);
}

// ---- The child ----

static int above_the_childs(int fd)
{
    const int moved = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, FIRST_OWN_FD);
    const int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return moved;
}

// A group of its own: Ctrl-C is for the parent, which ends its child with itself.
static int spawn(struct run *run, int answers)
{
    char seconds[16];
    snprintf(seconds, sizeof(seconds), "%" PRIu32, run->seconds);
    char *const arguments[] = {(char *)LS_KERAS_PROGRAM, (char *)run->work, seconds, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int error = posix_spawn_file_actions_init(&actions);
    if (error)
        return error;
    error = posix_spawnattr_init(&attributes);
    if (error) {
        posix_spawn_file_actions_destroy(&actions);
        return error;
    }
    error = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, answers, 1);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, run->input, 3);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, run->output, 4);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    if (!error)
        error =
            posix_spawn(&run->child, run->program->path, &actions, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

// Reads the answer until the child closes its end, which it does at the latest when it ends.
static void listen_to(struct run *run, uint64_t deadline)
{
    size_t length = 0;
    for (;;) {
        const uint64_t now = ls_clock_ns();
        struct pollfd poll_of = {.fd = run->answers, .events = POLLIN};
        if (now >= deadline) {
            run->late = true;
            break;
        }
        const int ready = poll(&poll_of, 1, (int)((deadline - now) / 1000000) + 1);
        if (ready <= 0)
            continue;
        char more[256];
        const ssize_t bytes = read(run->answers, more, sizeof(more));
        if (bytes < 0 && errno == EINTR)
            continue;
        if (bytes <= 0)
            break;
        for (ssize_t i = 0; i < bytes && length + 1 < sizeof(run->answer); i++)
            run->answer[length++] = more[i];
    }
    run->answer[length] = '\0';
}

// What has closed its answers ends at once, unless it hangs in its end.
static void wait_for_end(struct run *run, uint64_t deadline)
{
    while (!run->late) {
        const pid_t ended = waitpid(run->child, &run->ended, WNOHANG);
        if (ended == run->child || (ended < 0 && errno != EINTR))
            return;
        if (ls_clock_ns() >= deadline)
            run->late = true;
        else
            poll(NULL, 0, 1);
    }
    kill(run->child, SIGKILL);
    while (waitpid(run->child, &run->ended, 0) < 0 && errno == EINTR)
        ;
}

// What the end of the child means. `status` is what a failure of this work is.
static enum ls_status judge(const struct run *run, enum ls_status status)
{
    const char *work = run->work[0] == 'r' ? "reading" : "writing";
    const int number = WIFSIGNALED(run->ended) ? WTERMSIG(run->ended) : 0;
    const char *reason = strchr(run->answer, ' ');
    if (run->late || number == SIGXCPU) {
        ls_error(SCOPE, "%s: %s it took more than %" PRIu32 " seconds and was ended", run->path,
                 work, run->seconds);
        return status;
    }
    if (number) {
        ls_error(SCOPE, "%s: %s it crashed the libraries (signal %d, %s); %s", run->path, work,
                 number, strsignal(number),
                 status == LS_BAD_INPUT ? "the file is malformed" : "nothing was written");
        return status;
    }
    if (strcmp(run->answer, "ok") == 0)
        return LS_OK;
    if (!reason) {
        ls_error(SCOPE,
                 "%s: the program %s ended without an answer (exit code %d); is it whole, "
                 "and are the libraries of HDF5 and libzip installed?",
                 run->path, run->program->path,
                 WIFEXITED(run->ended) ? WEXITSTATUS(run->ended) : -1);
        return LS_UNAVAILABLE;
    }
    ls_error(SCOPE, "%s: %s", run->path, reason + 1);
    return strncmp(run->answer, "bad ", 4) == 0 ? LS_BAD_INPUT : LS_FAILED;
}

static enum ls_status run_program(struct run *run, enum ls_status failure)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) {
        ls_error(SCOPE, "%s: cannot start a child process: %s", run->path, strerror(errno));
        return LS_FAILED;
    }
    const int writing = above_the_childs(ends[1]);
    run->answers = above_the_childs(ends[0]);
    const int error = writing < 0 || run->answers < 0 ? errno : spawn(run, writing);
    if (writing >= 0)
        close(writing);
    enum ls_status status = LS_OK;
    if (error) {
        ls_error(SCOPE, "%s: cannot start %s: %s", run->path, run->program->path, strerror(error));
        status = LS_UNAVAILABLE;
    } else {
        const uint64_t deadline =
            ls_clock_ns() + (run->seconds + SECONDS_TO_END) * UINT64_C(1000000000);
        listen_to(run, deadline);
        wait_for_end(run, deadline);
        status = judge(run, failure);
    }
    if (run->answers >= 0)
        close(run->answers);
    return status;
}

static uint32_t seconds_for(const struct ls_keras_program *program, uint64_t bytes)
{
    const uint64_t seconds = LEAST_SECONDS + bytes / BYTES_A_SECOND;
    return program->seconds      ? program->seconds
           : seconds < 24 * 3600 ? (uint32_t)seconds
                                 : 24 * 3600;
}

static enum ls_status open_memory(const char *path, int *out)
{
    *out = above_the_childs(memfd_create("lockstep-weights", MFD_CLOEXEC));
    if (*out >= 0)
        return LS_OK;
    ls_error(SCOPE, "%s: cannot get memory for the weights: %s", path, strerror(errno));
    return LS_FAILED;
}

// ---- Reading ----

// O_NONBLOCK, so that a FIFO is refused and not waited for.
static enum ls_status open_input(struct run *run)
{
    struct stat about = {0};
    run->input = above_the_childs(open(run->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (run->input < 0 || fstat(run->input, &about)) {
        ls_error(SCOPE, "%s: cannot be opened: %s", run->path, strerror(errno));
        return LS_BAD_INPUT;
    }
    if (!S_ISREG(about.st_mode)) {
        ls_error(SCOPE, "%s: is %s, not a file", run->path,
                 S_ISDIR(about.st_mode) ? "a directory" : "a device or pipe");
        return LS_BAD_INPUT;
    }
    run->seconds = seconds_for(run->program, (uint64_t)about.st_size);
    return LS_OK;
}

enum ls_status ls_keras_file_read(const struct ls_keras_program *program, const char *path,
                                  struct ls_safetensors **out)
{
    struct run run = {.program = program, .path = path, .work = "read", .input = -1, .output = -1};
    if (!program->path)
        return ls_keras_file_unavailable(path);
    enum ls_status status = open_input(&run);
    if (!status)
        status = open_memory(path, &run.output);
    if (!status)
        status = run_program(&run, LS_BAD_INPUT);
    if (!status)
        status = ls_safetensors_open_from(run.output, path, out);
    if (run.input >= 0)
        close(run.input);
    if (run.output >= 0)
        close(run.output);
    return status;
}

// ---- Writing ----

enum ls_status ls_keras_file_write(const struct ls_keras_program *program, const char *path,
                                   const struct ls_saved *saved)
{
    struct run run = {.program = program, .path = path, .work = "write", .input = -1};
    struct ls_replacement file = {0};
    struct stat about = {0};
    if (!program->path)
        return ls_keras_file_unavailable(path);
    enum ls_status status = open_memory(path, &run.input);
    if (!status)
        status = ls_safetensors_write_to(run.input, path, saved);
    if (!status)
        status = ls_replacement_open(SCOPE, path, &file);
    if (!status && fstat(run.input, &about))
        status = ls_replacement_fail(&file, "write");
    run.seconds = seconds_for(program, (uint64_t)about.st_size);
    run.output = status ? -1 : fcntl(file.fd, F_DUPFD_CLOEXEC, FIRST_OWN_FD);
    if (!status && run.output < 0)
        status = ls_replacement_fail(&file, "write");
    if (!status)
        status = run_program(&run, LS_FAILED);
    if (run.output >= 0)
        close(run.output);
    if (!status)
        status = ls_replacement_commit(&file);
    ls_replacement_discard(&file);
    if (run.input >= 0)
        close(run.input);
    return status;
}
