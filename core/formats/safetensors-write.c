// SPDX-License-Identifier: Apache-2.0
// Writes safetensors files, whole or not at all.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // O_DIRECT
#endif
#include "core/formats/safetensors.h"

#include "core/base/log.h"
#include "core/formats/replacement.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCOPE "safetensors"
#define HEADER_ALIGNMENT 8 // of the data in the file, as the authors' own writer keeps it

static enum ls_status no_memory(const char *path)
{
    ls_error(SCOPE, "%s: out of memory", path);
    return LS_OUT_OF_MEMORY;
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

// "__metadata__", where there is any. False: a text is not UTF-8, or there is no memory.
static bool put_metadata(json_t *header, const struct ls_saved_text *texts, size_t count)
{
    if (count == 0)
        return true;
    json_t *metadata = json_object();
    for (size_t i = 0; i < count; i++)
        if (json_object_set_new(metadata, texts[i].name, json_string(texts[i].text))) {
            json_decref(metadata);
            return false;
        }
    return json_object_set_new(header, "__metadata__", metadata) == 0;
}

static enum ls_status header_create(const char *path, const struct ls_saved *saved, json_t **out)
{
    const struct ls_saved_tensor *tensors = saved->tensors;
    json_t *header = json_object();
    if (!header)
        return no_memory(path);
    if (!put_metadata(header, saved->texts, saved->text_count)) {
        ls_error(SCOPE, "%s: a text of the metadata is not UTF-8, or out of memory", path);
        json_decref(header);
        return LS_FAILED;
    }
    uint64_t offset = 0;
    for (size_t i = 0; i < saved->count; i++) {
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
static enum ls_status header_text(const char *path, const struct ls_saved *saved, char **out,
                                  size_t *out_bytes)
{
    json_t *header = NULL;
    const enum ls_status status = header_create(path, saved, &header);
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

// What goes past the page cache is written in blocks from memory that is aligned to them.
#define DIRECT_BLOCK 4096
#define DIRECT_ROOM (256 * DIRECT_BLOCK)

struct output {
    int fd;
    char *room; // NULL: everything is written as it comes
    size_t used; // of the room
    uint64_t written; // bytes of whole blocks
    bool direct; // the descriptor has O_DIRECT
};

static bool set_direct(struct output *output, bool on)
{
    const int flags = fcntl(output->fd, F_GETFL);
    const bool set =
        flags >= 0 && fcntl(output->fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
    output->direct = set ? on : output->direct;
    return set;
}

// Without memory or a file system that can do it, the file is written as any other.
static void output_open(struct output *output, int fd, bool uncached)
{
    void *room = NULL;
    *output = (struct output){.fd = fd};
    if (!uncached || !set_direct(output, true))
        return;
    if (posix_memalign(&room, DIRECT_BLOCK, DIRECT_ROOM))
        (void)set_direct(output, false);
    else
        output->room = room;
}

// Whole blocks; the rest stays in the room. Some file systems accept the flag and then refuse to
// write.
static bool write_blocks(struct output *output)
{
    const size_t bytes = output->used / DIRECT_BLOCK * DIRECT_BLOCK;
    bool written = write_bytes(output->fd, output->room, bytes);
    if (!written && errno == EINVAL && output->direct)
        written = set_direct(output, false) &&
                  lseek(output->fd, (off_t)output->written, SEEK_SET) >= 0 &&
                  write_bytes(output->fd, output->room, bytes);
    if (!written)
        return false;
    output->written += bytes;
    output->used -= bytes;
    memmove(output->room, output->room + bytes, output->used);
    return true;
}

static bool put(struct output *output, const void *data, uint64_t bytes)
{
    if (!output->room)
        return write_bytes(output->fd, data, bytes);
    for (uint64_t done = 0; done < bytes;) {
        const uint64_t left = bytes - done;
        const size_t room = DIRECT_ROOM - output->used;
        const size_t count = left < room ? (size_t)left : room;
        memcpy(output->room + output->used, (const char *)data + done, count);
        output->used += count;
        done += count;
        if (output->used == DIRECT_ROOM && !write_blocks(output))
            return false;
    }
    return true;
}

static bool output_end(struct output *output)
{
    return !output->room ||
           (write_blocks(output) && (!output->direct || set_direct(output, false)) &&
            write_bytes(output->fd, output->room, output->used));
}

// A text of the metadata is `"name":"text"` in the header; what it becomes has the same length.
static bool write_late(int fd, const char *header, size_t header_bytes,
                       const struct ls_saved *saved)
{
    const char *text = NULL;
    char name[64];
    for (size_t i = 0; saved->late && i < saved->text_count; i++)
        if (strcmp(saved->texts[i].name, saved->late) == 0)
            text = saved->texts[i].text;
    if (!text)
        return true;
    const int length = snprintf(name, sizeof(name), "\"%s\":\"", saved->late);
    const char *at = memmem(header, header_bytes, name, (size_t)length);
    char *own = strdup(text);
    bool written = at && own;
    if (written) {
        saved->finish(saved->context, own);
        at += length;
        written = pwrite(fd, own, strlen(text), (off_t)(at - header)) == (ssize_t)strlen(text);
    }
    free(own);
    return written;
}

// `silent`: a tensor had no values, and that was said.
static bool write_all(int fd, const char *header, size_t header_bytes, const struct ls_saved *saved,
                      bool *silent)
{
    struct output output;
    output_open(&output, fd, saved->uncached);
    bool written = put(&output, header, header_bytes);
    for (size_t i = 0; written && i < saved->count; i++) {
        const float *data =
            saved->values ? saved->values(saved->context, i) : saved->tensors[i].data;
        uint64_t bytes;
        *silent = saved->values && !data;
        written = !*silent && tensor_bytes(&saved->tensors[i], &bytes) && put(&output, data, bytes);
    }
    written = written && output_end(&output) && write_late(fd, header, header_bytes, saved);
    const int error = errno;
    free(output.room);
    errno = error;
    return written;
}

enum ls_status ls_safetensors_write_to(int fd, const char *path, const struct ls_saved *saved)
{
    char *header;
    size_t header_bytes;
    const enum ls_status status = header_text(path, saved, &header, &header_bytes);
    if (status)
        return status;
    bool silent = false;
    const bool written = write_all(fd, header, header_bytes, saved, &silent);
    if (!written && !silent)
        (void)!ls_replacement_fail(&(struct ls_replacement){.scope = SCOPE, .path = path}, "write");
    free(header);
    return written ? LS_OK : LS_FAILED;
}

enum ls_status ls_safetensors_write(const char *path, const struct ls_saved_tensor *tensors,
                                    size_t count)
{
    return ls_safetensors_write_saved(path, &(struct ls_saved){.tensors = tensors, .count = count});
}

enum ls_status ls_safetensors_write_saved(const char *path, const struct ls_saved *saved)
{
    struct ls_replacement file = {0};
    enum ls_status status = ls_replacement_open(SCOPE, path, &file);
    if (status)
        return status;
    status = ls_safetensors_write_to(file.fd, path, saved);
    if (!status)
        status = ls_replacement_commit(&file);
    ls_replacement_discard(&file);
    return status;
}
