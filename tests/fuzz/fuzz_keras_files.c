// SPDX-License-Identifier: Apache-2.0
// Damaged HDF5 files and .keras archives through the reader of lockstep-keras-files, each in a
// child as in the program. The libraries may crash: that is what the child is for. Lockstep's own
// code may not, nothing may hang, what is refused has a reason, and what is handed over is sound.
//
//     fuzz_keras_files SECONDS SEED FILE...
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // memfd_create
#endif
#include "core/base/log.h"
#include "core/formats/safetensors.h"
#include "tests/fuzz/mutate.h"
#include "tools/keras-files/hdf5_file.h"
#include "tools/keras-files/keras_read.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECONDS 1 // of processor time, for one file
#define DEADLINE 120 // seconds, on a machine that has other work

enum end { READ, REFUSED, NO_REASON, FAILED, CRASHED, LIMITED, HUNG, UNSOUND, OWN_FAULT, ENDS };
static const char *const end_names[ENDS] = {"read",
                                            "refused",
                                            "refused without a reason",
                                            "failed",
                                            "crashes of the libraries",
                                            "stopped by a limit",
                                            "hung",
                                            "handed over what is not sound",
                                            "faults of Lockstep's own code"};

static void quiet(void *context, uint32_t level, const char *line)
{
    (void)context;
    (void)level;
    (void)line;
}

static int file_of(const void *data, size_t bytes)
{
    const int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes) {
        perror("fuzz: memfd");
        exit(1);
    }
    return fd;
}

static void child(int input, int output, int report)
{
    struct contents contents = {0};
    dup2(report, STDERR_FILENO);
    const bool good = keras_read(input, output, SECONDS, &contents);
    _exit(good ? READ : !contents.why[0] ? NO_REASON : contents.failed ? FAILED : REFUSED);
}

// Whether a sanitizer's report names this program before any library but its own.
static bool is_own_fault(int report)
{
    static char text[65536];
    const ssize_t bytes = pread(report, text, sizeof(text) - 1, 0);
    text[bytes > 0 ? bytes : 0] = '\0';
    if (strstr(text, "tools/keras-files/") && strstr(text, "runtime error"))
        return true;
    if (!strstr(text, "Sanitizer"))
        return false;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (!strstr(line, "    #") || strstr(line, "libasan") || strstr(line, "libubsan"))
            continue;
        return strstr(line, "tools/keras-files/") || strstr(line, "core/formats/") ||
               strstr(line, "fuzz_keras_files");
    }
    return false;
}

static int wait_for(pid_t started)
{
    int status = 0;
    const double deadline = fuzz_clock() + DEADLINE;
    while (waitpid(started, &status, WNOHANG) == 0) {
        if (fuzz_clock() > deadline) {
            kill(started, SIGKILL);
            waitpid(started, &status, 0);
            return -1;
        }
        usleep(200);
    }
    return status;
}

static enum end try(const unsigned char *data, size_t bytes)
{
    struct ls_safetensors *file = NULL;
    const int input = file_of(data, bytes), output = file_of("", 0), report = file_of("", 0);
    const pid_t started = fork();
    if (started == 0)
        child(input, output, report);
    const int status = started > 0 ? wait_for(started) : -1;
    enum end end = HUNG;
    if (status >= 0 && is_own_fault(report))
        end = OWN_FAULT;
    else if (status >= 0 && WIFSIGNALED(status))
        end = WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGXFSZ ? LIMITED : CRASHED;
    else if (status >= 0)
        end = WEXITSTATUS(status) < ENDS ? (enum end)WEXITSTATUS(status) : CRASHED;
    if (end == READ && ls_safetensors_open_from(output, "fuzz", &file))
        end = UNSOUND;
    ls_safetensors_close(file);
    close(input);
    close(output);
    close(report);
    return end;
}

static bool is_bad(enum end end)
{
    return end == NO_REASON || end == HUNG || end == UNSOUND || end == OWN_FAULT;
}

static void keep(const unsigned char *data, size_t bytes, const char *path, uint64_t seed,
                 enum end end)
{
    char name[64];
    snprintf(name, sizeof(name), "fuzz-%llu.bin", (unsigned long long)seed);
    FILE *file = fopen(name, "wb");
    if (file) {
        fwrite(data, 1, bytes, file);
        fclose(file);
    }
    fprintf(stderr, "%s, seed %llu: %s; the file is %s\n", path, (unsigned long long)seed,
            end_names[end], name);
}

int main(int argc, char **argv)
{
    unsigned long counts[ENDS] = {0}, bad = 0;
    if (argc < 4 || !hdf5_prepare())
        return 2;
    const double end_at = fuzz_clock() + strtod(argv[1], NULL);
    ls_log_set_writer(quiet, NULL);
    for (uint64_t seed = strtoull(argv[2], NULL, 10); fuzz_clock() < end_at; seed++) {
        const char *path = argv[3 + seed % (uint64_t)(argc - 3)];
        size_t bytes;
        uint64_t state = seed;
        unsigned char *data = fuzz_load(path, &bytes);
        if (!data)
            return 2;
        bytes = fuzz_mutate(&state, data, bytes);
        const enum end end = try(data, bytes);
        counts[end]++;
        if (is_bad(end)) {
            keep(data, bytes, path, seed, end);
            bad++;
        }
        free(data);
    }
    for (int i = 0; i < ENDS; i++)
        if (counts[i])
            printf("%lu %s\n", counts[i], end_names[i]);
    // A fuzzer whose files are all read, or all refused, tests nothing.
    return bad || !counts[READ] || !counts[REFUSED];
}
