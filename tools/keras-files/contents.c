// SPDX-License-Identifier: Apache-2.0
// Counts what a file holds, and hands it over.
#include "tools/keras-files/contents.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LENGTH_BYTES 8
#define ALIGNMENT 64 // of the data in the file

bool contents_init(struct contents *contents, uint64_t file_bytes)
{
    uint64_t allowed = MOST_BYTES;
    if (file_bytes < MOST_BYTES / MOST_EXPANSION)
        allowed = file_bytes * MOST_EXPANSION;
    *contents = (struct contents){.allowed = allowed < LEAST_ALLOWED ? LEAST_ALLOWED : allowed,
                                  .texts = json_object()};
    return contents->texts || contents_fail(contents, "out of memory");
}

// A name from the file may hold what a terminal obeys.
static void note(struct contents *contents, const char *format, va_list list)
{
    if (contents->why[0])
        return;
    vsnprintf(contents->why, sizeof(contents->why), format, list);
    for (char *letter = contents->why; *letter; letter++)
        if ((unsigned char)*letter < ' ' || *letter == 0x7f)
            *letter = '?';
}

bool contents_refuse(struct contents *contents, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    note(contents, format, list);
    va_end(list);
    return false;
}

bool contents_fail(struct contents *contents, const char *format, ...)
{
    va_list list;
    contents->failed |= !contents->why[0];
    va_start(list, format);
    note(contents, format, list);
    va_end(list);
    return false;
}

static struct tensor *next(struct contents *contents)
{
    if (contents->count == contents->room) {
        const size_t room = contents->room ? 2 * contents->room : 64;
        struct tensor *more = realloc(contents->tensors, room * sizeof(*more));
        if (!more)
            return NULL;
        contents->tensors = more;
        contents->room = room;
    }
    return &contents->tensors[contents->count];
}

bool contents_add(struct contents *contents, const char *name, const char *dtype,
                  uint64_t element_bytes, uint32_t ndims, const uint64_t *dims)
{
    struct tensor tensor = {.dtype = dtype, .ndims = ndims, .bytes = element_bytes};
    bool empty = false;
    if (ndims > MOST_DIMS)
        return contents_refuse(contents, "%s has %" PRIu32 " dimensions; at most %d can be read",
                               name, ndims, MOST_DIMS);
    for (uint32_t i = 0; i < ndims; i++) {
        tensor.dims[i] = dims[i];
        empty |= dims[i] == 0;
    }
    for (uint32_t i = 0; i < ndims && !empty; i++) {
        if (tensor.bytes > contents->allowed / dims[i])
            return contents_refuse(contents,
                                   "%s declares more data than the %" PRIu64
                                   " MiB that a file of this size may hold",
                                   name, contents->allowed >> 20);
        tensor.bytes *= dims[i];
    }
    tensor.bytes = empty ? 0 : tensor.bytes;
    if (tensor.bytes > contents->allowed - contents->bytes)
        return contents_refuse(contents,
                               "with %s the tensors declare more data than the %" PRIu64
                               " MiB that a file of this size may hold",
                               name, contents->allowed >> 20);
    struct tensor *added = next(contents);
    tensor.name = added ? strdup(name) : NULL;
    if (!tensor.name)
        return contents_fail(contents, "out of memory");
    tensor.offset = contents->bytes;
    contents->bytes += tensor.bytes;
    *added = tensor;
    contents->count++;
    return true;
}

bool contents_add_text(struct contents *contents, const char *name, const char *text)
{
    json_t *value = json_string(text);
    if (!value)
        return contents_refuse(contents, "the text '%s' is not UTF-8", name);
    return json_object_set_new(contents->texts, name, value) == 0 ||
           contents_fail(contents, "out of memory");
}

// ---- Handing over ----

static bool put_tensor(struct contents *contents, json_t *header, const struct tensor *tensor)
{
    json_t *shape = json_array();
    for (uint32_t i = 0; i < tensor->ndims; i++)
        json_array_append_new(shape, json_integer((json_int_t)tensor->dims[i]));
    json_t *entry =
        json_pack("{s:s, s:o, s:[I, I]}", "dtype", tensor->dtype, "shape", shape, "data_offsets",
                  (json_int_t)tensor->offset, (json_int_t)(tensor->offset + tensor->bytes));
    if (json_object_get(header, tensor->name)) {
        json_decref(entry);
        return contents_refuse(contents, "%s comes twice", tensor->name);
    }
    return json_object_set_new(header, tensor->name, entry) == 0 ||
           contents_refuse(contents, "%s: the name is not UTF-8", tensor->name);
}

static char *header_text(struct contents *contents)
{
    json_t *header = json_object();
    bool whole = header && json_object_set(header, "__metadata__", contents->texts) == 0;
    for (size_t i = 0; i < contents->count && whole; i++)
        whole = put_tensor(contents, header, &contents->tensors[i]);
    char *text = whole ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    if (!text)
        contents_fail(contents, "out of memory");
    return text;
}

bool contents_hand_over(struct contents *contents, int fd, void **memory, size_t *bytes)
{
    char *text = header_text(contents);
    if (!text)
        return false;
    const size_t length = strlen(text);
    const uint64_t padded =
        (length + LENGTH_BYTES + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT - LENGTH_BYTES;
    const size_t all = (size_t)(LENGTH_BYTES + padded + contents->bytes);
    unsigned char *start = MAP_FAILED;
    if (ftruncate(fd, (off_t)all) == 0)
        start = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (start == MAP_FAILED) {
        free(text);
        return contents_fail(contents, "no memory for %zu MiB of weights: %s", all >> 20,
                             strerror(errno));
    }
    memcpy(start, &padded, LENGTH_BYTES);
    memset(start + LENGTH_BYTES, ' ', (size_t)padded);
    memcpy(start + LENGTH_BYTES, text, length);
    for (size_t i = 0; i < contents->count; i++)
        contents->tensors[i].data =
            start + LENGTH_BYTES + padded + (size_t)contents->tensors[i].offset;
    free(text);
    *memory = start;
    *bytes = all;
    return true;
}
