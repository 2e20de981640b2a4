// SPDX-License-Identifier: Apache-2.0
// Reads files, inflating gzip (RFC 1952) with zlib. Compressed bytes are read in small pieces, not mapped: a file
// that shrinks meanwhile is then a short file and not a SIGBUS, and its pages do not count as our memory.
#include "datasets/source.h"

#include "core/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define INPUT_BYTES (256u << 10)
// zlib sums up the check sum after each call, so a piece that is still in the cache is checked almost for free.
#define OUTPUT_BYTES (512u << 10)
#define DEFLATE_MOST_RATIO 1032 // of deflate: 258 bytes from two bits

struct ls_source {
    const char *scope; // borrowed
    char *path;
    int fd;
    uint64_t file_bytes;
    bool gzip;
    bool ended; // the file has no more bytes
    bool member_open; // a gzip member has begun and not ended
    z_stream inflater;
    size_t kept; // plain: bytes in `input` that were looked at and not handed out yet
    unsigned char input[INPUT_BYTES];
};

static enum ls_status source_fails(const struct ls_source *source, const char *what)
{
    ls_error(source->scope, "%s: %s", source->path, what);
    return LS_BAD_INPUT;
}

// Reads until `bytes` are there or the file ends.
static enum ls_status read_file(struct ls_source *source, void *buffer, size_t bytes, size_t *got)
{
    size_t done = 0;
    while (done < bytes && !source->ended) {
        const ssize_t count = read(source->fd, (char *)buffer + done, bytes - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return source_fails(source, strerror(errno));
        source->ended = count == 0;
        done += (size_t)count;
    }
    *got = done;
    return LS_OK;
}

// ---- gzip ----

static enum ls_status fill_input(struct ls_source *source)
{
    size_t got = 0;
    const enum ls_status status = read_file(source, source->input, INPUT_BYTES, &got);
    source->inflater.next_in = source->input;
    source->inflater.avail_in = (uInt)got;
    return status;
}

// One piece of output. Sets `end` at the end of the last member of the file.
static enum ls_status inflate_piece(struct ls_source *source, void *buffer, size_t bytes,
                                    size_t *got, bool *end)
{
    z_stream *inflater = &source->inflater;
    *got = 0;
    if (!inflater->avail_in) {
        const enum ls_status status = fill_input(source);
        if (status)
            return status;
    }
    if (!inflater->avail_in && !source->member_open) {
        *end = true;
        return LS_OK;
    }
    if (!inflater->avail_in)
        return source_fails(source, "the gzip stream is truncated; the file is not complete");

    source->member_open = true;
    inflater->next_out = buffer;
    inflater->avail_out = (uInt)bytes;
    const int result = inflate(inflater, Z_NO_FLUSH);
    *got = bytes - inflater->avail_out;
    if (result == Z_STREAM_END) { // another member may follow (RFC 1952, 2.2)
        source->member_open = false;
        inflateReset(inflater);
        return LS_OK;
    }
    if (result == Z_OK || result == Z_BUF_ERROR)
        return LS_OK;
    if (result == Z_MEM_ERROR) {
        ls_error(source->scope, "out of memory");
        return LS_OUT_OF_MEMORY;
    }
    ls_error(source->scope, "%s: the gzip stream is damaged: %s", source->path,
             inflater->msg ? inflater->msg : "no reason given");
    return LS_BAD_INPUT;
}

static enum ls_status read_gzip(struct ls_source *source, void *buffer, size_t bytes, size_t *got)
{
    size_t done = 0;
    bool end = false;
    while (done < bytes && !end) {
        const size_t want = bytes - done < OUTPUT_BYTES ? bytes - done : OUTPUT_BYTES;
        size_t piece;
        const enum ls_status status =
            inflate_piece(source, (char *)buffer + done, want, &piece, &end);
        if (status)
            return status;
        done += piece;
    }
    *got = done;
    return LS_OK;
}

// ---- Both ----

enum ls_status ls_source_read(struct ls_source *source, void *buffer, size_t bytes, size_t *got)
{
    if (source->gzip)
        return read_gzip(source, buffer, bytes, got);
    const size_t kept = source->kept < bytes ? source->kept : bytes;
    memcpy(buffer, source->input, kept);
    memmove(source->input, source->input + kept, source->kept - kept);
    source->kept -= kept;
    size_t rest = 0;
    const enum ls_status status = read_file(source, (char *)buffer + kept, bytes - kept, &rest);
    if (!status)
        *got = kept + rest;
    return status;
}

bool ls_source_is_gzip(const struct ls_source *source)
{
    return source->gzip;
}

uint64_t ls_source_most_bytes(const struct ls_source *source)
{
    return source->gzip ? source->file_bytes * DEFLATE_MOST_RATIO : source->file_bytes;
}

uint64_t ls_source_file_bytes(const struct ls_source *source)
{
    return source->file_bytes;
}

// Looks at the first bytes; what was read stays for whoever reads on.
static enum ls_status detect(struct ls_source *source)
{
    size_t got = 0;
    const enum ls_status status = read_file(source, source->input, 2, &got);
    if (status)
        return status;
    if (got < 2 || source->input[0] != 0x1f || source->input[1] != 0x8b) {
        source->kept = got;
        return LS_OK;
    }
    if (inflateInit2(&source->inflater, 15 + 16) != Z_OK) { // largest window, gzip header
        ls_error(source->scope, "out of memory");
        return LS_OUT_OF_MEMORY;
    }
    source->gzip = true;
    source->inflater.next_in = source->input;
    source->inflater.avail_in = 2;
    return LS_OK;
}

// O_NONBLOCK, so that a FIFO is refused and not waited for.
static enum ls_status open_file(struct ls_source *source)
{
    source->fd = open(source->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat about;
    if (source->fd < 0 || fstat(source->fd, &about))
        return source_fails(source, strerror(errno));
    if (S_ISDIR(about.st_mode))
        return source_fails(source, "is a directory, not a file");
    if (!S_ISREG(about.st_mode))
        return source_fails(source, "is not a regular file");
    source->file_bytes = (uint64_t)about.st_size;
    return LS_OK;
}

enum ls_status ls_source_open(const char *scope, const char *path, struct ls_source **out)
{
    struct ls_source *source = malloc(sizeof(*source));
    if (!source)
        return LS_OUT_OF_MEMORY;
    memset(source, 0, offsetof(struct ls_source, input));
    source->scope = scope;
    source->fd = -1;
    source->path = strdup(path);
    enum ls_status status = source->path ? open_file(source) : LS_OUT_OF_MEMORY;
    if (!status)
        status = detect(source);
    if (status) {
        ls_source_close(source);
        return status;
    }
    *out = source;
    return LS_OK;
}

void ls_source_close(struct ls_source *source)
{
    if (!source)
        return;
    if (source->gzip)
        inflateEnd(&source->inflater);
    if (source->fd >= 0)
        close(source->fd);
    free(source->path);
    free(source);
}
