// SPDX-License-Identifier: Apache-2.0
// Reads safetensors files. They come from anywhere, so every number of the header is checked
// against the size of the file before it is used. The data is read, at once or tensor by tensor, and
// not mapped: a file that shrinks meanwhile is then bad input, no SIGBUS.
#include "core/formats/safetensors.h"

#include "core/base/file_kind.h"
#include "core/base/json_size.h"
#include "core/base/log.h"
#include "core/plugin/device.h"
#include "core/plugin/half.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors files are little-endian and read as they are"
#endif

#define SCOPE "safetensors"
#define HOW_TO_WRITE "docs/weights.md has the lines of Python that write one from Keras"
#define MOST_HEADER_BYTES (UINT64_C(100) << 20)
#define LENGTH_BYTES 8
#define ALIGNMENT 64

// Types of the format. Those that hold floating-point numbers can be read. What else there is, such as
// C64 and F4, is no reason to refuse a file: who needs such a tensor says what it is.
static const struct dtype {
    const char *name;
    uint32_t bytes;
    enum { NOT_READ, READ_F32, READ_F64, READ_F16, READ_BF16 } reading;
} dtypes[] = {
    {"F32", 4, READ_F32},     {"F64", 8, READ_F64},     {"F16", 2, READ_F16},
    {"BF16", 2, READ_BF16},   {"BOOL", 1, NOT_READ},    {"U8", 1, NOT_READ},
    {"I8", 1, NOT_READ},      {"U16", 2, NOT_READ},     {"I16", 2, NOT_READ},
    {"U32", 4, NOT_READ},     {"I32", 4, NOT_READ},     {"U64", 8, NOT_READ},
    {"I64", 8, NOT_READ},     {"F8_E4M3", 1, NOT_READ}, {"F8_E5M2", 1, NOT_READ},
    {"F8_E8M0", 1, NOT_READ},
};
static const struct dtype unknown = {"", 0, NOT_READ};

// A tensor and its range of the data.
struct entry {
    struct ls_saved_tensor tensor; // the name belongs to the header
    const struct dtype *dtype;
    uint64_t begin, end;
    float *converted; // NULL: the data is used as it is
};

struct ls_safetensors {
    size_t count;
    struct entry *entries; // by offset
    json_t *header;
    unsigned char *data; // NULL: it is read from `fd`
    char *path; // for messages
    int fd;
    uint64_t data_begin; // in the file
    bool owns_fd;
    uint32_t held; // by others than the first
};

// One file being read.
struct reading {
    const char *path;
    int fd;
    uint64_t header_bytes;
    uint64_t data_bytes;
};

LS_PRINTF(2, 3)
static enum ls_status bad(const struct reading *reading, const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    ls_error(SCOPE, "%s: %s", reading->path, text);
    return LS_BAD_INPUT;
}

static enum ls_status no_memory(const struct reading *reading)
{
    ls_error(SCOPE, "%s: out of memory", reading->path);
    return LS_OUT_OF_MEMORY;
}

// ---- The file ----

static enum ls_status read_bytes(const struct reading *reading, void *buffer, uint64_t bytes)
{
    uint64_t done = 0;
    while (done < bytes) {
        const ssize_t count = read(reading->fd, (char *)buffer + done, (size_t)(bytes - done));
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return bad(reading, "cannot be read: %s", strerror(errno));
        if (count == 0)
            return bad(reading, "shrank while it was read");
        done += (uint64_t)count;
    }
    return LS_OK;
}

static enum ls_status read_start(struct reading *reading)
{
    struct stat about;
    if (fstat(reading->fd, &about))
        return bad(reading, "cannot be opened: %s", strerror(errno));
    if (!S_ISREG(about.st_mode))
        return bad(reading, "is %s, not a file",
                   S_ISDIR(about.st_mode) ? "a directory" : "a device or pipe");
    if (lseek(reading->fd, 0, SEEK_SET) < 0)
        return bad(reading, "cannot be read: %s", strerror(errno));
    const uint64_t bytes = (uint64_t)about.st_size;
    if (bytes < LENGTH_BYTES)
        return bad(reading, "too short for a safetensors file: %" PRIu64 " bytes", bytes);
    unsigned char start[LS_FILE_KIND_BYTES] = {0};
    const size_t looked_at = bytes < sizeof(start) ? (size_t)bytes : sizeof(start);
    const enum ls_status status = read_bytes(reading, start, looked_at);
    if (status)
        return status;
    memcpy(&reading->header_bytes, start, LENGTH_BYTES);
    const uint64_t header = reading->header_bytes;
    // The size of a header may look like the beginning of another format.
    const char *kind = start[LENGTH_BYTES] == '{' ? NULL : ls_file_kind(start, looked_at);
    if (kind)
        return bad(reading, "is %s, not a safetensors file; " HOW_TO_WRITE, kind);
    if (header > MOST_HEADER_BYTES)
        return bad(reading, "is not a safetensors file: it does not begin with the size of a "
                            "header; " HOW_TO_WRITE);
    if (lseek(reading->fd, LENGTH_BYTES, SEEK_SET) < 0)
        return bad(reading, "cannot be read: %s", strerror(errno));
    if (header > bytes - LENGTH_BYTES)
        return bad(reading, "too short: %" PRIu64 " bytes, its header alone would end at %" PRIu64,
                   bytes, header + LENGTH_BYTES);
    reading->data_bytes = bytes - LENGTH_BYTES - header;
    return LS_OK;
}

static enum ls_status parse_header(const struct reading *reading, json_t **out)
{
    char *text = malloc((size_t)reading->header_bytes + 1);
    if (!text)
        return no_memory(reading);
    enum ls_status status = read_bytes(reading, text, reading->header_bytes);
    json_error_t error;
    json_t *header = NULL;
    if (!status && !ls_json_fits(text, (size_t)reading->header_bytes))
        status = bad(reading, "the header has more than %d values, which is no list of tensors",
                     LS_JSON_MOST_VALUES);
    if (!status)
        header = json_loadb(text, (size_t)reading->header_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!status && !header)
        status = bad(reading, "header, byte %d: %s", error.position, error.text);
    if (!status && (!json_is_object(header) || text[0] != '{'))
        status = bad(reading, "the header is not a JSON object");
    free(text);
    if (status)
        json_decref(header);
    else
        *out = header;
    return status;
}

// ---- The header ----

static enum ls_status read_shape(const struct reading *reading, const char *name,
                                 const json_t *shape, struct entry *entry)
{
    struct ls_saved_tensor *tensor = &entry->tensor;
    if (!json_is_array(shape))
        return bad(reading, "tensor %s: shape is not a list", name);
    if (json_array_size(shape) > LS_SAFETENSORS_MAX_DIMS)
        return bad(reading, "tensor %s: %zu dimensions, at most %d can be read", name,
                   json_array_size(shape), LS_SAFETENSORS_MAX_DIMS);
    tensor->ndims = (uint32_t)json_array_size(shape);
    uint64_t elements = 1;
    bool overflow = false, empty = false;
    for (uint32_t i = 0; i < tensor->ndims; i++) {
        const json_t *dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return bad(reading, "tensor %s: dimension %" PRIu32 " is not a number from 0", name, i);
        tensor->dims[i] = json_integer_value(dim);
        const uint64_t factor = (uint64_t)tensor->dims[i];
        empty |= factor == 0;
        overflow |= factor && elements > (uint64_t)INT64_MAX / factor;
        elements *= factor;
    }
    if (empty)
        elements = 0;
    else if (overflow)
        return bad(reading, "tensor %s: its shape has more elements than any file", name);
    const uint64_t bytes = entry->end - entry->begin;
    if (!entry->dtype->bytes)
        return LS_OK;
    if (bytes % entry->dtype->bytes || bytes / entry->dtype->bytes != elements)
        return bad(reading,
                   "tensor %s: its shape has %" PRIu64 " elements of %" PRIu32
                   " bytes, its offsets %" PRIu64 " bytes",
                   name, elements, entry->dtype->bytes, bytes);
    return LS_OK;
}

static enum ls_status read_offsets(const struct reading *reading, const char *name,
                                   const json_t *offsets, struct entry *entry)
{
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return bad(reading, "tensor %s: data_offsets is not a list of two numbers", name);
    const int64_t from = json_integer_value(begin), to = json_integer_value(end);
    if (from < 0 || to < from || (uint64_t)to > reading->data_bytes)
        return bad(reading,
                   "tensor %s: offsets %" PRId64 " to %" PRId64 " are outside the %" PRIu64
                   " bytes of data (is the file complete?)",
                   name, from, to, reading->data_bytes);
    entry->begin = (uint64_t)from;
    entry->end = (uint64_t)to;
    return LS_OK;
}

static enum ls_status read_entry(const struct reading *reading, const char *name,
                                 const json_t *value, struct entry *entry)
{
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    if (!dtype)
        return bad(reading, "tensor %s: no dtype", name);
    entry->dtype = &unknown;
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
        if (!strcmp(dtype, dtypes[i].name))
            entry->dtype = &dtypes[i];
    entry->tensor.name = name;
    entry->tensor.dtype = dtype; // belongs to the header
    const enum ls_status status =
        read_offsets(reading, name, json_object_get(value, "data_offsets"), entry);
    return status ? status : read_shape(reading, name, json_object_get(value, "shape"), entry);
}

static enum ls_status check_metadata(const struct reading *reading, const json_t *metadata)
{
    const char *key;
    json_t *value;
    bool texts = json_is_object(metadata) || json_is_null(metadata); // as the format's authors read
    json_object_foreach((json_t *)metadata, key, value) texts &= json_is_string(value);
    return texts ? LS_OK : bad(reading, "__metadata__ is not an object of texts");
}

static enum ls_status read_entries(const struct reading *reading, struct ls_safetensors *file)
{
    file->entries = calloc(json_object_size(file->header) + 1, sizeof(*file->entries));
    if (!file->entries)
        return no_memory(reading);
    const char *name;
    json_t *value;
    json_object_foreach(file->header, name, value)
    {
        const enum ls_status status =
            strcmp(name, "__metadata__")
                ? read_entry(reading, name, value, &file->entries[file->count++])
                : check_metadata(reading, value);
        if (status)
            return status;
    }
    return LS_OK;
}

static int compare_entries(const void *one, const void *other)
{
    const struct entry *a = one, *b = other;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return strcmp(a->tensor.name, b->tensor.name);
}

// The tensors must cover the data without holes and without overlap.
static enum ls_status check_cover(const struct reading *reading, struct ls_safetensors *file)
{
    qsort(file->entries, file->count, sizeof(*file->entries), compare_entries);
    uint64_t covered = 0;
    for (size_t i = 0; i < file->count; i++) {
        const struct entry *entry = &file->entries[i];
        if (entry->begin != covered)
            return bad(reading,
                       "tensor %s begins at byte %" PRIu64 " of the data, %s byte %" PRIu64,
                       entry->tensor.name, entry->begin,
                       entry->begin < covered ? "inside the one that ends at"
                                              : "which leaves a hole after",
                       covered);
        covered = entry->end;
    }
    if (covered != reading->data_bytes)
        return bad(reading, "%" PRIu64 " bytes follow after the last tensor",
                   reading->data_bytes - covered);
    return LS_OK;
}

static float element(const struct entry *entry, const unsigned char *data, uint64_t index)
{
    const unsigned char *at = data + entry->begin + index * entry->dtype->bytes;
    float single;
    double wide;
    uint16_t half;
    switch (entry->dtype->reading) {
    case READ_F64: memcpy(&wide, at, sizeof(wide)); return (float)wide;
    case READ_F16:
    case READ_BF16:
        memcpy(&half, at, sizeof(half));
        return ls_half_get(entry->dtype->reading == READ_F16 ? LS_F16 : LS_BF16, half);
    default: memcpy(&single, at, sizeof(single)); return single;
    }
}

// Of float64 a number may be too large for float32; infinities and NaN stay what they are.
static bool is_too_large(const struct entry *entry, const unsigned char *data, uint64_t index)
{
    double wide;
    if (entry->dtype->reading != READ_F64)
        return false;
    memcpy(&wide, data + entry->begin + index * sizeof(wide), sizeof(wide));
    return isfinite(wide) && isinf((float)wide);
}

// Points the tensor at its data, or at a copy as float32. Behind a tensor of another type float32
// may begin anywhere, and is copied then.
static enum ls_status convert(const struct reading *reading, const struct ls_safetensors *file,
                              struct entry *entry)
{
    const struct dtype *dtype = entry->dtype;
    if (dtype->reading == NOT_READ)
        return LS_OK;
    if (dtype->reading == READ_F32 && entry->begin % sizeof(float) == 0) {
        entry->tensor.data = (const float *)(const void *)(file->data + entry->begin);
        return LS_OK;
    }
    const uint64_t count = (entry->end - entry->begin) / dtype->bytes;
    entry->converted = malloc((size_t)(count + 1) * sizeof(float));
    if (!entry->converted)
        return no_memory(reading);
    for (uint64_t i = 0; i < count; i++) {
        entry->converted[i] = element(entry, file->data, i);
        if (is_too_large(entry, file->data, i))
            return bad(reading, "tensor %s: element %" PRIu64 " is too large for float32",
                       entry->tensor.name, i);
    }
    entry->tensor.data = entry->converted;
    return LS_OK;
}

static enum ls_status read_data(const struct reading *reading, struct ls_safetensors *file)
{
    const uint64_t room = (reading->data_bytes / ALIGNMENT + 1) * ALIGNMENT;
    file->data = aligned_alloc(ALIGNMENT, (size_t)room);
    if (!file->data)
        return no_memory(reading);
    enum ls_status status = read_bytes(reading, file->data, reading->data_bytes);
    for (size_t i = 0; i < file->count; i++)
        file->entries[i].tensor.values = file->data + file->entries[i].begin;
    for (size_t i = 0; i < file->count && !status; i++)
        status = convert(reading, file, &file->entries[i]);
    return status;
}

// ---- Public ----

// `unread`: the data is read later.
static enum ls_status open_from(int fd, const char *path, bool unread, struct ls_safetensors **out)
{
    struct reading reading = {.path = path, .fd = fd};
    struct ls_safetensors *file = calloc(1, sizeof(*file));
    if (!file)
        return no_memory(&reading);
    enum ls_status status = read_start(&reading);
    if (!status)
        status = parse_header(&reading, &file->header);
    if (!status)
        status = read_entries(&reading, file);
    if (!status)
        status = check_cover(&reading, file);
    file->fd = fd;
    file->data_begin = LENGTH_BYTES + reading.header_bytes;
    file->path = strdup(path);
    if (!status && !file->path)
        status = no_memory(&reading);
    if (!status && !unread)
        status = read_data(&reading, file);
    if (status)
        ls_safetensors_close(file);
    else
        *out = file;
    return status;
}

enum ls_status ls_safetensors_open_from(int fd, const char *path, struct ls_safetensors **out)
{
    return open_from(fd, path, false, out);
}

// O_NONBLOCK, so that a FIFO is refused and not waited for.
static enum ls_status open_path(const char *path, int *fd)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return *fd < 0 ? bad(&(struct reading){.path = path}, "cannot be opened: %s", strerror(errno))
                   : LS_OK;
}

enum ls_status ls_safetensors_open(const char *path, struct ls_safetensors **out)
{
    int fd;
    enum ls_status status = open_path(path, &fd);
    if (status)
        return status;
    status = open_from(fd, path, false, out);
    close(fd);
    return status;
}

enum ls_status ls_safetensors_open_unread(const char *path, struct ls_safetensors **out)
{
    int fd;
    enum ls_status status = open_path(path, &fd);
    if (status)
        return status;
    status = open_from(fd, path, true, out);
    if (status)
        close(fd);
    else
        (*out)->owns_fd = true;
    return status;
}

enum ls_status ls_safetensors_read(const struct ls_safetensors *file,
                                   const struct ls_saved_tensor *tensor, float *out)
{
    const struct entry *entry = (const struct entry *)(const void *)tensor; // it begins with it
    const struct reading reading = {.path = file->path, .fd = file->fd};
    if (entry->dtype->reading != READ_F32)
        return bad(&reading, "tensor %s: is of dtype %s, not F32", tensor->name, tensor->dtype);
    if (lseek(file->fd, (off_t)(file->data_begin + entry->begin), SEEK_SET) < 0)
        return bad(&reading, "cannot be read: %s", strerror(errno));
    return read_bytes(&reading, out, entry->end - entry->begin);
}

struct ls_safetensors *ls_safetensors_hold(struct ls_safetensors *file)
{
    file->held++;
    return file;
}

void ls_safetensors_close(struct ls_safetensors *file)
{
    if (!file)
        return;
    if (file->held) {
        file->held--;
        return;
    }
    if (file->owns_fd)
        close(file->fd);
    for (size_t i = 0; file->entries && i < file->count; i++)
        free(file->entries[i].converted);
    json_decref(file->header);
    free(file->entries);
    free(file->data);
    free(file->path);
    free(file);
}

size_t ls_safetensors_count(const struct ls_safetensors *file)
{
    return file->count;
}

const struct ls_saved_tensor *ls_safetensors_get(const struct ls_safetensors *file, size_t index)
{
    return index < file->count ? &file->entries[index].tensor : NULL;
}

const struct ls_saved_tensor *ls_safetensors_find(const struct ls_safetensors *file,
                                                  const char *name)
{
    for (size_t i = 0; i < file->count; i++)
        if (!strcmp(file->entries[i].tensor.name, name))
            return &file->entries[i].tensor;
    return NULL;
}

const char *ls_safetensors_text(const struct ls_safetensors *file, const char *name)
{
    return json_string_value(json_object_get(json_object_get(file->header, "__metadata__"), name));
}
