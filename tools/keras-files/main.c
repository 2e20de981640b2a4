// SPDX-License-Identifier: Apache-2.0
// lockstep-keras-files: reads or writes one file of Keras. core/formats/keras_file.c starts it as a
// child, with the input at descriptor 3 and the output at 4; the answer goes to standard output.
// What is read is handed over as safetensors; what is to be written comes as safetensors.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // memfd_create, closefrom
#endif
#include "tools/keras-files/archive.h"
#include "tools/keras-files/hdf5_file.h"
#include "tools/keras-files/keras_read.h"
#include "tools/keras-files/process_limits.h"

#include "core/base/log.h"
#include "core/formats/keras_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define INPUT 3
#define OUTPUT 4

static void keep_error(void *context, uint32_t level, const char *line)
{
    if (level == LS_LOG_ERROR)
        contents_fail(context, "%s", line);
}

static bool write_file(uint32_t seconds, struct contents *contents)
{
    struct ls_safetensors *saved = NULL;
    if (!contents_init(contents, MOST_BYTES))
        return false;
    if (!limits_set(seconds, UINT64_MAX))
        return contents_fail(contents, "cannot set a limit: %s", strerror(errno));
    ls_log_set_writer(keep_error, contents);
    if (ls_safetensors_open_from(INPUT, "the weights", &saved))
        return contents_fail(contents, "the weights did not arrive");
    const char *archive = ls_safetensors_text(saved, LS_KERAS_ARCHIVE);
    bool good = false;
    if (archive && strcmp(archive, "yes") == 0) {
        const int weights = memfd_create("keras-weights", MFD_CLOEXEC);
        good = weights >= 0 && hdf5_write(weights, saved, contents) &&
               archive_write(OUTPUT, weights, saved, contents);
        if (weights >= 0)
            close(weights);
    } else {
        good = hdf5_write(OUTPUT, saved, contents);
    }
    ls_safetensors_close(saved);
    return good ||
           contents_fail(contents, "cannot get memory for the weights: %s", strerror(errno));
}

// One line on standard error is the parent's; only a sanitizer may add its report.
static void be_silent(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    const int nowhere = open("/dev/null", O_WRONLY);
    if (nowhere >= 0)
        dup2(nowhere, STDERR_FILENO);
#endif
}

int main(int argc, char **argv)
{
    struct contents contents = {0};
    const bool reads = argc == 3 && strcmp(argv[1], "read") == 0;
    const unsigned long seconds = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
    if (argc != 3 || (!reads && strcmp(argv[1], "write") != 0) || fcntl(OUTPUT, F_GETFD) < 0) {
        fputs(
            "lockstep-keras-files is started by lockstep, to read and write files of Keras; it has "
            "no use of its own. `lockstep convert --help=all` explains what you may be looking "
            "for.\n",
            stderr);
        return 2;
    }
    signal(SIGXFSZ, SIG_IGN); // writing too much is an error of the write
    be_silent();
    closefrom(OUTPUT + 1);
    bool good = hdf5_prepare() || contents_fail(&contents, "the HDF5 library cannot be used");
    if (good)
        good = reads ? keras_read(INPUT, OUTPUT, (uint32_t)seconds, &contents)
                     : write_file((uint32_t)seconds, &contents);
    if (good)
        printf("ok");
    else
        printf("%s %s", contents.failed ? "failed" : "bad", contents.why);
    // Not by exit: what the library still has open may be malformed, or a file that cannot be
    // written.
    const bool said = fflush(stdout) == 0;
    _exit(said && good ? EXIT_SUCCESS : EXIT_FAILURE);
}
