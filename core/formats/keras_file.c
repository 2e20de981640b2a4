// SPDX-License-Identifier: Apache-2.0
// Runs lockstep-keras-files and takes over what it found.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // memfd_create
#endif
#include "core/formats/keras_file.h"

#include "core/base/child.h"
#include "core/base/file_kind.h"
#include "core/base/log.h"
#include "core/formats/replacement.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCOPE "keras file"
#define LEAST_SECONDS 20
#define BYTES_A_SECOND (UINT64_C(10) << 20) // of a file, by which the deadline grows
#define SECONDS_TO_END 2 // beyond the processor time that the child limits itself to
#define CHILD_INPUT 3
#define CHILD_OUTPUT 4
#define FIRST_OWN_FD 10 // above these

// One run of the program.
struct run {
    const struct ls_keras_program *program;
    const char *path; // of the file, in messages
    const char *work; // "read" or "write"
    int input, output, answers;
    char limit[16]; // seconds
    char answer[1024]; // "ok", "bad REASON" or "failed REASON"
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

// The first bytes of a regular file; -1: it is none, or cannot be read.
static ssize_t read_start(const char *path, char start[LS_FILE_KIND_BYTES])
{
    struct stat about;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool regular = fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
    const ssize_t bytes = regular ? read(fd, start, LS_FILE_KIND_BYTES) : -1;
    if (fd >= 0)
        close(fd);
    return bytes;
}

bool ls_keras_file_is(const char *path)
{
    char start[LS_FILE_KIND_BYTES];
    const ssize_t bytes = read_start(path, start);
    return bytes > 0 && ls_file_is_keras(start, (size_t)bytes);
}

static bool ends_with(const char *path, const char *suffix)
{
    const size_t length = strlen(path), rest = strlen(suffix);
    return length > rest && strcmp(path + length - rest, suffix) == 0;
}

enum ls_status ls_keras_file_check(const char *scope, const char *path)
{
    char start[LS_FILE_KIND_BYTES];
    if (!ends_with(path, ".h5") && !ends_with(path, ".keras"))
        return LS_OK;
    const ssize_t bytes = read_start(path, start);
    if (bytes < 0 || ls_file_is_keras(start, (size_t)bytes) || ls_file_kind(start, (size_t)bytes))
        return LS_OK;
    ls_error(scope, "'%s' is %s, neither HDF5 nor a ZIP archive as its name says", path,
             bytes ? "damaged or of an unknown kind" : "empty");
    return LS_BAD_INPUT;
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

// [child]
static void start_program(void *argument, void *shared)
{
    const struct run *run = argument;
    char *const arguments[] = {(char *)LS_KERAS_PROGRAM, (char *)run->work, (char *)run->limit,
                               NULL};
    if (dup2(run->input, CHILD_INPUT) >= 0 && dup2(run->output, CHILD_OUTPUT) >= 0)
        execv(run->program->path, arguments);
    *(int *)shared = errno;
}

static void read_answer(struct run *run)
{
    const ssize_t bytes = pread(run->answers, run->answer, sizeof(run->answer) - 1, 0);
    run->answer[bytes > 0 ? bytes : 0] = '\0';
}

// What the end of the child means. `status` is what a failure of this work is.
static enum ls_status judge(const struct run *run, const struct ls_child_end *end,
                            enum ls_status status)
{
    const char *work = run->work[0] == 'r' ? "reading" : "writing";
    const char *reason = strchr(run->answer, ' ');
    if (end->result == LS_CHILD_HUNG || end->signal == SIGXCPU) {
        ls_error(SCOPE, "%s: %s it took more than %s seconds and was ended", run->path, work,
                 run->limit);
        return status;
    }
    if (end->signal) {
        ls_error(SCOPE, "%s: %s it crashed the libraries (signal %d, %s); %s", run->path, work,
                 end->signal, strsignal(end->signal),
                 status == LS_BAD_INPUT ? "the file is malformed" : "nothing was written");
        return status;
    }
    if (strcmp(run->answer, "ok") == 0)
        return LS_OK;
    if (!reason) {
        ls_error(SCOPE,
                 "%s: the program %s ended without an answer (exit code %d); is it whole, and are "
                 "the libraries of HDF5 and libzip installed?",
                 run->path, run->program->path, end->code);
        return LS_UNAVAILABLE;
    }
    ls_error(SCOPE, "%s: %s", run->path, reason + 1);
    return strncmp(run->answer, "bad ", 4) == 0 ? LS_BAD_INPUT : LS_FAILED;
}

static enum ls_status run_program(struct run *run, uint32_t seconds, enum ls_status failure)
{
    struct ls_child_end end;
    int *error = ls_child_memory_create(sizeof(*error));
    if (!error)
        return LS_OUT_OF_MEMORY;
    snprintf(run->limit, sizeof(run->limit), "%" PRIu32, seconds);
    const struct ls_child_work work = {
        .scope = SCOPE,
        .run = start_program,
        .argument = run,
        .shared = error,
        .deadline_ns = (seconds + SECONDS_TO_END) * UINT64_C(1000000000),
        .output = run->answers,
        .errors = STDERR_FILENO, // of the loader of programs, and of sanitizers
    };
    enum ls_status status = ls_child_run(&work, &end);
    if (!status && *error) {
        ls_error(SCOPE, "%s: cannot start %s: %s", run->path, run->program->path, strerror(*error));
        status = LS_UNAVAILABLE;
    } else if (!status) {
        read_answer(run);
        status = judge(run, &end, failure);
    }
    ls_child_memory_destroy(error, sizeof(*error));
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

static void close_all(const struct run *run)
{
    const int files[] = {run->input, run->output, run->answers};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (files[i] >= 0)
            close(files[i]);
}

// ---- Reading ----

// O_NONBLOCK, so that a FIFO is refused and not waited for.
static enum ls_status open_input(struct run *run, uint64_t *bytes)
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
    *bytes = (uint64_t)about.st_size;
    return LS_OK;
}

enum ls_status ls_keras_file_read(const struct ls_keras_program *program, const char *path,
                                  struct ls_safetensors **out)
{
    struct run run = {program, path, "read", .input = -1, .output = -1, .answers = -1};
    uint64_t bytes = 0;
    if (!program->path)
        return ls_keras_file_unavailable(path);
    enum ls_status status = open_input(&run, &bytes);
    if (!status)
        status = open_memory(path, &run.output);
    if (!status)
        status = open_memory(path, &run.answers);
    if (!status)
        status = run_program(&run, seconds_for(program, bytes), LS_BAD_INPUT);
    if (!status)
        status = ls_safetensors_open_from(run.output, path, out);
    close_all(&run);
    return status;
}

// ---- Writing ----

enum ls_status ls_keras_file_write(const struct ls_keras_program *program, const char *path,
                                   const struct ls_saved *saved)
{
    struct run run = {program, path, "write", .input = -1, .output = -1, .answers = -1};
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
    if (!status) {
        run.output = fcntl(file.fd, F_DUPFD_CLOEXEC, FIRST_OWN_FD);
        status =
            run.output < 0 ? ls_replacement_fail(&file, "write") : open_memory(path, &run.answers);
    }
    if (!status)
        status = run_program(&run, seconds_for(program, (uint64_t)about.st_size), LS_FAILED);
    if (!status)
        status = ls_replacement_commit(&file);
    ls_replacement_discard(&file);
    close_all(&run);
    return status;
}
