// SPDX-License-Identifier: Apache-2.0
// Writes safetensors files, whole or not at all.
#include "core/formats/safetensors.h"

#include "core/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCOPE "safetensors"
#define HEADER_ALIGNMENT 8 // of the data in the file, as the authors' own writer keeps it
#define MOST_ATTEMPTS 100 // to find a name for the temporary file

static enum ls_status no_memory(const char *path)
{
    ls_error(SCOPE, "%s: out of memory", path);
    return LS_OUT_OF_MEMORY;
}

static enum ls_status cannot(const char *path, const char *what)
{
    ls_error(SCOPE, "%s: cannot %s: %s; the file was left as it was", path, what, strerror(errno));
    return LS_FAILED;
}

// ---- The header ----

// False: a dimension below 0, too many dimensions, or more bytes than there are numbers.
static bool tensor_bytes(const struct ls_saved_tensor *tensor, uint64_t *out)
{
    uint64_t bytes = sizeof(float);
    if (tensor->ndims > LS_SAFETENSORS_MAX_DIMS)
        return false;
    for (uint32_t i = 0; i < tensor->ndims; i++) {
        const int64_t dim = tensor->dims[i];
        if (dim < 0 || (dim && bytes > (uint64_t)INT64_MAX / (uint64_t)dim))
            return false;
        bytes *= (uint64_t)dim;
    }
    *out = bytes;
    return true;
}

// NULL: no memory.
static json_t *entry_create(const struct ls_saved_tensor *tensor, uint64_t begin, uint64_t end)
{
    json_t *shape = json_array();
    for (uint32_t i = 0; i < tensor->ndims; i++)
        json_array_append_new(shape, json_integer(tensor->dims[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)end);
}

static enum ls_status header_create(const char *path, const struct ls_saved_tensor *tensors,
                                    size_t count, json_t **out)
{
    json_t *header = json_object();
    if (!header)
        return no_memory(path);
    uint64_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        const char *name = tensors[i].name;
        uint64_t bytes;
        const char *wrong = NULL;
        if (!tensor_bytes(&tensors[i], &bytes) || bytes > (uint64_t)INT64_MAX - offset)
            wrong = "its shape cannot be written";
        else if (!strcmp(name, "__metadata__") || json_object_get(header, name))
            wrong = "the name is taken";
        else if (json_object_set_new(header, name,
                                     entry_create(&tensors[i], offset, offset + bytes)))
            wrong = "its name is not UTF-8, or out of memory";
        if (wrong) {
            ls_error(SCOPE, "%s: tensor %s: %s", path, name, wrong);
            json_decref(header);
            return LS_FAILED;
        }
        offset += bytes;
    }
    *out = header;
    return LS_OK;
}

// The first bytes of the file: length, JSON, spaces up to the alignment. Freed by the caller.
static enum ls_status header_text(const char *path, const struct ls_saved_tensor *tensors,
                                  size_t count, char **out, size_t *out_bytes)
{
    json_t *header = NULL;
    const enum ls_status status = header_create(path, tensors, count, &header);
    if (status)
        return status;
    char *json = json_dumps(header, JSON_COMPACT);
    json_decref(header);
    const size_t length = json ? strlen(json) : 0;
    const uint64_t padded = (length + HEADER_ALIGNMENT - 1) / HEADER_ALIGNMENT * HEADER_ALIGNMENT;
    char *text = json ? malloc(sizeof(padded) + padded) : NULL;
    if (!text) {
        free(json);
        return no_memory(path);
    }
    for (size_t i = 0; i < sizeof(padded); i++)
        text[i] = (char)(padded >> (8 * i) & 0xff);
    memcpy(text + sizeof(padded), json, length);
    memset(text + sizeof(padded) + length, ' ', padded - length);
    free(json);
    *out = text;
    *out_bytes = sizeof(padded) + padded;
    return LS_OK;
}

// ---- The file ----

static bool write_bytes(int fd, const void *data, uint64_t bytes)
{
    uint64_t done = 0;
    while (done < bytes) {
        const ssize_t count = write(fd, (const char *)data + done, (size_t)(bytes - done));
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return false;
        done += (uint64_t)count;
    }
    return true;
}

// A new file beside `path`. Not mkstemp: its files are for the owner alone, whatever the umask says.
static int temporary_open(const char *path, char *temporary, size_t bytes)
{
    for (int attempt = 0; attempt < MOST_ATTEMPTS; attempt++) {
        snprintf(temporary, bytes, "%s.%ld-%d.tmp", path, (long)getpid(), attempt);
        const int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

static bool write_all(int fd, const char *header, size_t header_bytes,
                      const struct ls_saved_tensor *tensors, size_t count)
{
    if (!write_bytes(fd, header, header_bytes))
        return false;
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes;
        if (!tensor_bytes(&tensors[i], &bytes) || !write_bytes(fd, tensors[i].data, bytes))
            return false;
    }
    return fsync(fd) == 0;
}

// Makes the new name last through a power failure. What a file system does not offer is not our failure.
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

static enum ls_status write_file(const char *path, char *temporary, size_t temporary_bytes,
                                 const char *header, size_t header_bytes,
                                 const struct ls_saved_tensor *tensors, size_t count)
{
    const int fd = temporary_open(path, temporary, temporary_bytes);
    if (fd < 0)
        return cannot(path, "create a file beside it");
    const bool written = write_all(fd, header, header_bytes, tensors, count);
    const int error = errno;
    const bool closed = close(fd) == 0;
    if (!written)
        errno = error;
    enum ls_status status = LS_OK;
    if (!written || !closed)
        status = cannot(path, "write");
    else if (rename(temporary, path))
        status = cannot(path, "replace");
    if (status)
        unlink(temporary);
    else
        flush_directory(path);
    return status;
}

enum ls_status ls_safetensors_write(const char *path, const struct ls_saved_tensor *tensors,
                                    size_t count)
{
    char *header;
    size_t header_bytes;
    enum ls_status status = header_text(path, tensors, count, &header, &header_bytes);
    if (status)
        return status;
    const size_t temporary_bytes = strlen(path) + 64;
    char *temporary = malloc(temporary_bytes);
    status = temporary ? write_file(path, temporary, temporary_bytes, header, header_bytes, tensors,
                                    count)
                       : no_memory(path);
    free(temporary);
    free(header);
    return status;
}
