// SPDX-License-Identifier: Apache-2.0
// Writes beside a path and renames.
#include "core/formats/replacement.h"

#include "core/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_ATTEMPTS 100 // to find a name for the temporary file

enum ls_status ls_replacement_fail(const struct ls_replacement *replacement, const char *what)
{
    const char *why = strerror(errno);
    ls_error(replacement->scope, "%s: cannot %s: %s%s", replacement->path, what, why,
             access(replacement->path, F_OK) ? "" : "; the file was left as it was");
    return LS_FAILED;
}

// Not mkstemp: its files are for the owner alone, whatever the umask says.
static int temporary_open(const char *path, char *temporary, size_t bytes)
{
    for (int attempt = 0; attempt < MOST_ATTEMPTS; attempt++) {
        snprintf(temporary, bytes, "%s.%ld-%d.tmp", path, (long)getpid(), attempt);
        const int fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

enum ls_status ls_replacement_open(const char *scope, const char *path, struct ls_replacement *out)
{
    const size_t bytes = strlen(path) + 64;
    struct ls_replacement opened = {.scope = scope, .path = path, .temporary = malloc(bytes)};
    if (!opened.temporary) {
        ls_error(scope, "%s: out of memory", path);
        return LS_OUT_OF_MEMORY;
    }
    opened.fd = temporary_open(path, opened.temporary, bytes);
    if (opened.fd < 0) {
        const enum ls_status status = ls_replacement_fail(&opened, "create a file in its folder");
        free(opened.temporary);
        return status;
    }
    *out = opened;
    return LS_OK;
}

// Makes the new name last through a power failure. What a file system does not offer is not our
// failure.
static void flush_directory(const char *path)
{
    char *directory = strdup(path);
    if (!directory)
        return;
    char *slash = strrchr(directory, '/');
    if (slash)
        slash[slash == directory] = '\0';
    const int fd = open(slash ? directory : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    free(directory);
}

enum ls_status ls_replacement_commit(struct ls_replacement *replacement)
{
    const bool flushed = fsync(replacement->fd) == 0;
    const int error = errno;
    const bool closed = close(replacement->fd) == 0;
    replacement->fd = -1;
    if (!flushed)
        errno = error;
    enum ls_status status = LS_OK;
    if (!flushed || !closed)
        status = ls_replacement_fail(replacement, "write");
    else if (rename(replacement->temporary, replacement->path))
        status = ls_replacement_fail(replacement, "replace");
    if (!status) {
        flush_directory(replacement->path);
        free(replacement->temporary);
        replacement->temporary = NULL;
    }
    ls_replacement_discard(replacement);
    return status;
}

void ls_replacement_discard(struct ls_replacement *replacement)
{
    if (!replacement->temporary)
        return;
    if (replacement->fd >= 0)
        close(replacement->fd);
    unlink(replacement->temporary);
    free(replacement->temporary);
    replacement->temporary = NULL;
}
