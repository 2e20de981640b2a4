// SPDX-License-Identifier: Apache-2.0
// Reads .npy files. They come from anywhere, so every number of the header is checked against the size of
// the file before it is used.
#include "core/formats/npy.h"

#include "core/base/file_kind.h"
#include "core/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error ".npy files are read as little-endian ones"
#endif

#define SCOPE "npy"
#define MOST_HEADER_BYTES 65535
#define ALIGNMENT 64 // of the values in the file
#define PREFIX_BYTES 12 // magic, version, and the size of the header, at most

static const char magic[] = "\x93NUMPY";
#define MAGIC_BYTES (sizeof(magic) - 1)

struct ls_npy_file {
    char *path;
    int fd;
    uint64_t file_bytes;
    struct ls_npy header;
};

static const struct {
    const char *descr;
    uint32_t dtype;
    bool boolean;
} types[] = {{"|b1", LS_U8, true},   {"|u1", LS_U8, false},  {"<i4", LS_I32, false},
             {"<i8", LS_I64, false}, {"<f4", LS_F32, false}, {"<f8", LS_F64, false}};

LS_PRINTF(2, 3)
static enum ls_status bad(const struct ls_npy_file *file, const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    ls_error(SCOPE, "%s: %s", file->path, text);
    return LS_BAD_INPUT;
}

// ---- The file ----

enum ls_status ls_npy_read(struct ls_npy_file *file, void *out, uint64_t bytes)
{
    uint64_t done = 0;
    while (done < bytes) {
        const ssize_t count = read(file->fd, (char *)out + done, (size_t)(bytes - done));
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return bad(file, "cannot be read: %s", strerror(errno));
        if (count == 0)
            return bad(file, "shrank while it was read");
        done += (uint64_t)count;
    }
    return LS_OK;
}

// O_NONBLOCK, so that a FIFO is refused and not waited for.
static enum ls_status open_file(struct ls_npy_file *file)
{
    struct stat about;
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0 || fstat(file->fd, &about))
        return bad(file, "cannot be opened: %s", strerror(errno));
    if (!S_ISREG(about.st_mode))
        return bad(file, "is %s, not a file",
                   S_ISDIR(about.st_mode) ? "a directory" : "a device or pipe");
    file->file_bytes = (uint64_t)about.st_size;
    return LS_OK;
}

// The size of the header, and of what is before it.
static enum ls_status read_prefix(struct ls_npy_file *file, uint64_t *header, uint64_t *prefix)
{
    unsigned char start[PREFIX_BYTES] = {0};
    uint64_t bytes = file->file_bytes < 10 ? file->file_bytes : 10;
    enum ls_status status = ls_npy_read(file, start, bytes);
    if (status)
        return status;
    if (memcmp(start, magic, MAGIC_BYTES) != 0) {
        const char *kind = ls_file_kind(start, (size_t)bytes);
        return kind ? bad(file, "is %s, not a .npy file; save an array by numpy.save", kind)
                    : bad(file, "is not a .npy file: it does not begin with \\x93NUMPY");
    }
    if (bytes < 10)
        return bad(file, "too short: %" PRIu64 " bytes", bytes);
    const unsigned major = start[MAGIC_BYTES], minor = start[MAGIC_BYTES + 1];
    if (major < 1 || major > 3 || minor != 0)
        return bad(file, "version %u.%u of the format; expected 1.0, 2.0 or 3.0", major, minor);
    *header = start[8] | (uint64_t)start[9] << 8;
    if (major > 1) {
        if (file->file_bytes < 12)
            return bad(file, "too short: %" PRIu64 " bytes", file->file_bytes);
        status = ls_npy_read(file, start + 10, 2);
        *header |= (uint64_t)start[10] << 16 | (uint64_t)start[11] << 24;
        bytes = 12;
    }
    *prefix = bytes;
    if (status)
        return status;
    if (*header > MOST_HEADER_BYTES)
        return bad(file, "a header of %" PRIu64 " bytes; at most %d can be read", *header,
                   MOST_HEADER_BYTES);
    if (*header > file->file_bytes - bytes)
        return bad(file, "too short: %" PRIu64 " bytes, its header alone ends at %" PRIu64,
                   file->file_bytes, bytes + *header);
    return LS_OK;
}

// ---- The header ----

// A dictionary of Python, as repr() writes it: text, True, False and tuples of numbers.
struct text {
    const char *at; // ends with a zero
};

static void skip_spaces(struct text *text)
{
    text->at += strspn(text->at, " \t\n\r");
}

static bool take(struct text *text, char letter)
{
    skip_spaces(text);
    if (*text->at != letter)
        return false;
    text->at++;
    return true;
}

// A text in quotes without escapes. False: there is none, or it is longer.
static bool take_string(struct text *text, char *out, size_t bytes)
{
    skip_spaces(text);
    const char quote = *text->at;
    if (quote != '\'' && quote != '"')
        return false;
    const char *begin = text->at + 1, *end = strchr(begin, quote);
    if (!end || (size_t)(end - begin) >= bytes || memchr(begin, '\\', (size_t)(end - begin)))
        return false;
    memcpy(out, begin, (size_t)(end - begin));
    out[end - begin] = '\0';
    text->at = end + 1;
    return true;
}

static bool take_word(struct text *text, const char *word)
{
    skip_spaces(text);
    const size_t length = strlen(word);
    if (strncmp(text->at, word, length) != 0)
        return false;
    text->at += length;
    return true;
}

// A number from 0 that is no larger than INT64_MAX.
static bool take_number(struct text *text, int64_t *out)
{
    uint64_t value = 0;
    skip_spaces(text);
    if (*text->at < '0' || *text->at > '9')
        return false;
    for (; *text->at >= '0' && *text->at <= '9'; text->at++) {
        const uint64_t digit = (uint64_t)(*text->at - '0');
        if (value > ((uint64_t)INT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = (int64_t)value;
    return true;
}

// What keeps the values: labels stay whole numbers.
static const char *advice_for(const char *descr)
{
    const char kind = descr[0] ? descr[1] : '\0';
    const bool wide = descr[0] && descr[1] && (descr[2] == '8' || strcmp(descr + 1, "u4") == 0);
    switch (kind) {
    case 'i':
    case 'u': return wide ? "save array.astype(numpy.int64)" : "save array.astype(numpy.int32)";
    case 'f': return wide ? "save array.astype(numpy.float64)" : "save array.astype(numpy.float32)";
    case 'c': return "save array.real and array.imag as columns of float32";
    case 'M':
    case 'm': return "save array.astype(numpy.int64)";
    case 'U':
    case 'S': return "save numbers, as numpy.unique(array, return_inverse=True)[1] for classes";
    default: return "save an array of numbers";
    }
}

static enum ls_status read_descr(const struct ls_npy_file *file, struct text *text,
                                 struct ls_npy *out)
{
    char descr[32];
    if (!take_string(text, descr, sizeof(descr)))
        return bad(file, "its values are records; expected an array of one type");
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(descr, types[i].descr) != 0)
            continue;
        out->dtype = types[i].dtype;
        out->boolean = types[i].boolean;
        return LS_OK;
    }
    for (char *letter = descr; *letter; letter++)
        if (*letter < ' ' || *letter > '~')
            *letter = '?';
    return bad(file,
               "dtype '%s'; expected bool, uint8, int32, int64, float32 or float64, little endian; "
               "%s",
               descr, advice_for(descr));
}

static enum ls_status read_order(const struct ls_npy_file *file, struct text *text)
{
    if (take_word(text, "False"))
        return LS_OK;
    if (take_word(text, "True"))
        return bad(file, "the array is in Fortran order; save numpy.ascontiguousarray(array)");
    return bad(file, "fortran_order is neither True nor False");
}

static enum ls_status read_shape(const struct ls_npy_file *file, struct text *text,
                                 struct ls_npy *out)
{
    if (!take(text, '('))
        return bad(file, "its shape is not a tuple of numbers");
    while (!take(text, ')')) {
        int64_t dim;
        if (!take_number(text, &dim))
            return bad(file, "dimension %" PRIu32 " is not a number from 0", out->ndims);
        if (out->ndims == LS_NPY_MAX_DIMS)
            return bad(file, "more than %d dimensions", LS_NPY_MAX_DIMS);
        out->dims[out->ndims++] = dim;
        if (take(text, ','))
            continue;
        if (!take(text, ')'))
            return bad(file, "its shape is not a tuple of numbers");
        break;
    }
    return LS_OK;
}

static enum ls_status parse_header(const struct ls_npy_file *file, const char *header,
                                   struct ls_npy *out)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    struct text text = {header};
    uint32_t seen = 0;
    if (!take(&text, '{'))
        return bad(file, "the header is not a dictionary");
    while (!take(&text, '}')) {
        char key[32];
        uint32_t which = 0;
        if (!take_string(&text, key, sizeof(key)) || !take(&text, ':'))
            return bad(file, "the header is not a dictionary of names and values");
        while (which < 3 && strcmp(key, keys[which]) != 0)
            which++;
        if (which == 3 || seen >> which & 1)
            return bad(file, "the header has an unknown name, or one twice");
        seen |= 1u << which;
        const enum ls_status status = which == 0   ? read_descr(file, &text, out)
                                      : which == 1 ? read_order(file, &text)
                                                   : read_shape(file, &text, out);
        if (status)
            return status;
        if (!take(&text, ',') && *text.at != '}')
            return bad(file, "the header is not a dictionary of names and values");
    }
    skip_spaces(&text);
    if (*text.at)
        return bad(file, "something follows the dictionary of the header");
    return seen == 7 ? LS_OK : bad(file, "the header lacks descr, fortran_order or shape");
}

// The values must fill the rest of the file.
static enum ls_status check_size(struct ls_npy_file *file, uint64_t begin)
{
    struct ls_npy *header = &file->header;
    const uint64_t size = ls_dtype_bytes(header->dtype), there = file->file_bytes - begin;
    uint64_t elements = 1;
    bool empty = false, overflow = false;
    for (uint32_t i = 0; i < header->ndims; i++) {
        const uint64_t dim = (uint64_t)header->dims[i];
        empty |= dim == 0;
        overflow |= dim && elements > (uint64_t)INT64_MAX / size / dim;
        elements *= dim;
    }
    if (overflow && !empty)
        return bad(file, "its shape has more elements than any file");
    header->elements = empty ? 0 : elements;
    if (header->elements * size != there)
        return bad(file,
                   "%s: %" PRIu64 " bytes follow the header, expected %" PRIu64 " for its shape",
                   header->elements * size > there ? "too short" : "too long", there,
                   header->elements * size);
    return LS_OK;
}

static enum ls_status read_header(struct ls_npy_file *file)
{
    uint64_t header = 0, prefix = 0;
    enum ls_status status = read_prefix(file, &header, &prefix);
    if (status)
        return status;
    char *text = malloc((size_t)header + 1);
    if (!text) {
        ls_error(SCOPE, "%s: out of memory", file->path);
        return LS_OUT_OF_MEMORY;
    }
    status = ls_npy_read(file, text, header);
    text[header] = '\0';
    if (!status && strlen(text) != header)
        status = bad(file, "the header has a zero byte in it");
    if (!status)
        status = parse_header(file, text, &file->header);
    free(text);
    return status ? status : check_size(file, prefix + header);
}

// ---- Public ----

enum ls_status ls_npy_open(const char *path, struct ls_npy_file **out)
{
    struct ls_npy_file *file = calloc(1, sizeof(*file));
    if (!file)
        return LS_OUT_OF_MEMORY;
    file->fd = -1;
    file->path = strdup(path);
    enum ls_status status = file->path ? open_file(file) : LS_OUT_OF_MEMORY;
    if (!status)
        status = read_header(file);
    if (status)
        ls_npy_close(file);
    else
        *out = file;
    return status;
}

void ls_npy_close(struct ls_npy_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    free(file->path);
    free(file);
}

const struct ls_npy *ls_npy_header(const struct ls_npy_file *file)
{
    return &file->header;
}
