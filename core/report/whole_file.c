// SPDX-License-Identifier: Apache-2.0
// Writes beside a path and renames.
#include "core/report/whole_file.h"

#include "core/base/log.h"

#include <errno.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

// ---- Paths ----

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

// What `path` lies in. False: there is no such folder, or no memory.
static bool look_at_folder(const char *path, struct stat *out)
{
    char *copy = strdup(path);
    const bool found = copy && stat(dirname(copy), out) == 0;
    free(copy);
    return found;
}

static bool has_same_name(const char *a, const char *b)
{
    char *one = strdup(a), *other = strdup(b);
    const bool same = one && other && strcmp(basename(one), basename(other)) == 0;
    free(one);
    free(other);
    return same;
}

// Files that are not there yet are the same when they will have one name in one folder.
bool ls_whole_file_same(const char *a, const char *b)
{
    struct stat one, other;
    if (strcmp(a, b) == 0)
        return true;
    if (stat(a, &one) == 0 && stat(b, &other) == 0)
        return is_same(&one, &other);
    return has_same_name(a, b) && look_at_folder(a, &one) && look_at_folder(b, &other) &&
           is_same(&one, &other);
}
