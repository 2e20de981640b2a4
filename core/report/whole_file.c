// SPDX-License-Identifier: Apache-2.0
// Writes beside a path and renames.
#include "core/report/whole_file.h"

#include "core/base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum ls_status failed(struct ls_whole_file *file)
{
    ls_error(file->scope, "cannot write '%s': %s", file->path, strerror(errno));
    ls_whole_file_discard(file);
    return LS_FAILED;
}

enum ls_status ls_whole_file_open(const char *scope, const char *path, struct ls_whole_file *out)
{
    const size_t bytes = strlen(path) + 32;
    struct ls_whole_file file = {.scope = scope, .path = strdup(path), .temporary = malloc(bytes)};
    if (!file.path || !file.temporary) {
        ls_whole_file_discard(&file);
        return LS_OUT_OF_MEMORY;
    }
    snprintf(file.temporary, bytes, "%s.%ld.part", path, (long)getpid());
    file.stream = fopen(file.temporary, "w");
    if (!file.stream)
        return failed(&file);
    *out = file;
    return LS_OK;
}

enum ls_status ls_whole_file_commit(struct ls_whole_file *file)
{
    if (fflush(file->stream) || ferror(file->stream) || fsync(fileno(file->stream)))
        return failed(file);
    FILE *stream = file->stream;
    file->stream = NULL;
    if (fclose(stream) || rename(file->temporary, file->path))
        return failed(file);
    free(file->temporary);
    file->temporary = NULL;
    ls_whole_file_discard(file);
    return LS_OK;
}

void ls_whole_file_discard(struct ls_whole_file *file)
{
    const int cause = errno;
    if (file->stream)
        fclose(file->stream);
    if (file->temporary)
        unlink(file->temporary);
    free(file->temporary);
    free(file->path);
    *file = (struct ls_whole_file){0};
    errno = cause;
}
