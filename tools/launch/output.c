// SPDX-License-Identifier: Apache-2.0
// Lines of many processes on one output.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // memrchr, struct winsize
#endif
#include "tools/launch/output.h"

#include "core/base/clock.h"
#include "core/base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MOST ((size_t)64 << 10)
#define SINK_MOST ((size_t)256 << 10)
#define PIECE 4096 // a pipe that is ready takes so much without waiting (PIPE_BUF)
#define SHARED_NS UINT64_C(300000000)
#define OWNER_NS UINT64_C(1000000000)
#define USUAL_COLUMNS 80
#define WIPE "\r\033[K"

// ---- Sinks ----

static bool same_place(int a, int b)
{
    struct stat first, second;
    return !fstat(a, &first) && !fstat(b, &second) && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino && first.st_rdev == second.st_rdev;
}

static void init_sink(struct launch_sink *sink, int fd)
{
    struct stat status;
    const char *kind = getenv("TERM");
    *sink = (struct launch_sink){
        .fd = fd,
        .file = !fstat(fd, &status) && S_ISREG(status.st_mode),
        .terminal = isatty(fd) == 1 && !(kind && strcmp(kind, "dumb") == 0),
    };
}

void launch_output_init(struct launch_output *output)
{
    init_sink(&output->sinks[0], STDOUT_FILENO);
    init_sink(&output->sinks[1], STDERR_FILENO);
    output->out = &output->sinks[0];
    output->err = &output->sinks[same_place(STDOUT_FILENO, STDERR_FILENO) ? 0 : 1];
}

// Writes some of what waits. False: no more can be written now.
static bool write_piece(struct launch_sink *sink)
{
    const size_t left = sink->end - sink->begin;
    const ssize_t wrote =
        write(sink->fd, sink->text + sink->begin, sink->file || left < PIECE ? left : PIECE);
    if (wrote >= 0)
        sink->begin += (size_t)wrote;
    else if (errno == EAGAIN)
        return false;
    else if (errno != EINTR)
        sink->error = errno;
    if (sink->error || sink->begin == sink->end)
        sink->begin = sink->end = 0;
    return sink->end > 0;
}

static bool is_writable(const struct launch_sink *sink)
{
    struct pollfd ready = {.fd = sink->fd, .events = POLLOUT};
    return sink->file || poll(&ready, 1, 0) > 0;
}

// Where there is no memory to keep the text, it is written at once, which may wait.
static void put(struct launch_sink *sink, const char *text, size_t bytes)
{
    if (sink->error || !bytes)
        return;
    if (sink->end + bytes > sink->room && sink->begin) {
        memmove(sink->text, sink->text + sink->begin, sink->end - sink->begin);
        sink->end -= sink->begin;
        sink->begin = 0;
    }
    while (sink->end + bytes > sink->room) {
        const size_t room = (sink->end + bytes) * 2;
        char *grown = realloc(sink->text, room);
        if (grown) {
            sink->text = grown;
            sink->room = room;
        } else if (sink->end) {
            write_piece(sink);
        } else {
            const ssize_t wrote = write(sink->fd, text, bytes);
            if (wrote < 0 && errno != EINTR && errno != EAGAIN)
                sink->error = errno;
            if (sink->error)
                return;
            text += wrote < 0 ? 0 : wrote;
            bytes -= wrote < 0 ? 0 : (size_t)wrote;
        }
    }
    if (bytes)
        memcpy(sink->text + sink->end, text, bytes);
    sink->end += bytes;
}

// ---- The unfinished line on a terminal ----

static size_t columns_of(const struct launch_sink *sink)
{
    struct winsize size = {0};
    return ioctl(sink->fd, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : USUAL_COLUMNS;
}

// Columns that the text takes, without escape sequences and with one for each letter of UTF-8.
static size_t width_of(const char *text, size_t bytes)
{
    size_t width = 0;
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char letter = (unsigned char)text[i];
        if (letter == 0x1b && i + 1 < bytes && text[i + 1] == '[')
            for (i += 2; i < bytes && (text[i] < '@' || text[i] > '~');)
                i++;
        else
            width += letter >= 0x20 && (letter & 0xc0) != 0x80;
    }
    return width;
}

static void forget_live(struct launch_sink *sink)
{
    sink->live->used = sink->live->shown = 0;
    sink->live = NULL;
}

// Before a line of somebody else. A line that goes on in the next row of the terminal cannot be
// wiped away.
static void make_room(struct launch_sink *sink, const struct launch_stream *stream)
{
    struct launch_stream *live = sink->live;
    if (live && live != stream && live->shown) {
        if (width_of(live->line, live->shown) < columns_of(sink)) {
            put(sink, WIPE, strlen(WIPE));
            live->shown = 0;
        } else {
            put(sink, "\n", 1);
            forget_live(sink);
        }
    } else if (sink->open) {
        put(sink, "\n", 1);
    }
    sink->open = false;
    sink->owner = NULL;
}

// What was before the last return of the carriage is overwritten anyway.
static void show_live(struct launch_stream *stream)
{
    struct launch_sink *sink = stream->sink;
    if (!stream->used)
        return;
    if (!stream->shown)
        make_room(sink, stream);
    put(sink, stream->line + stream->shown, stream->used - stream->shown);
    const char *back = memrchr(stream->line, '\r', stream->used);
    if (back && back > stream->line) {
        stream->used -= (size_t)(back - stream->line);
        memmove(stream->line, back, stream->used);
    }
    stream->shown = stream->used;
    sink->live = stream;
    if (stream->used == LINE_MOST) {
        forget_live(sink);
        sink->open = true;
    }
}

// ---- Messages that several workers write ----

static bool said_by(const struct launch_shared *shared, uint32_t worker)
{
    return shared->workers[worker / 8] >> worker % 8 & 1;
}

// "[0-2,5] "; where they do not fit, "[17 workers] ".
static void name_workers(const struct launch_shared *shared, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (uint32_t first = 0; first < LAUNCH_WORKERS_MOST && used < bytes; first++) {
        uint32_t last = first;
        if (!said_by(shared, first))
            continue;
        while (last + 1 < LAUNCH_WORKERS_MOST && said_by(shared, last + 1))
            last++;
        used += (size_t)snprintf(text + used, bytes - used, "%s%u", used > 1 ? "," : "", first);
        if (last > first && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "-%u", last);
        first = last;
    }
    if (used + 2 < bytes)
        strcpy(text + used, "] ");
    else
        snprintf(text, bytes, "[%u workers] ", shared->count);
}

static void put_shared(struct launch_sink *sink)
{
    while (sink->shared) {
        struct launch_shared *shared = sink->shared;
        char prefix[64];
        name_workers(shared, prefix, sizeof(prefix));
        make_room(sink, NULL);
        put(sink, prefix, strlen(prefix));
        put(sink, shared->text, shared->bytes);
        sink->shared = shared->next;
        if (shared->warning) {
            free(shared);
        } else {
            free(sink->newest);
            sink->newest = shared;
        }
    }
}

static bool begins_with(const char *text, size_t bytes, const char *begin)
{
    return bytes > strlen(begin) && memcmp(text, begin, strlen(begin)) == 0;
}

// Whether the line waits now for others of its words. What waits is printed before the next line of
// its worker; among what waits warnings stand before errors, which may be the last words.
static bool share(struct launch_stream *stream, const char *text, size_t bytes, uint64_t now)
{
    struct launch_sink *sink = stream->sink;
    const bool warning = begins_with(text, bytes, "lockstep: warning: ");
    struct launch_shared *same = NULL, **place = &sink->shared;
    bool waits = false;
    for (struct launch_shared *shared = sink->shared; shared; shared = shared->next) {
        const bool own = said_by(shared, stream->worker);
        waits = waits || own;
        if (!own && !same && shared->bytes == bytes && memcmp(shared->text, text, bytes) == 0)
            same = shared;
    }
    if ((!warning && !begins_with(text, bytes, "lockstep: error: ")) || text[bytes - 1] != '\n') {
        if (waits)
            put_shared(sink);
        return false;
    }
    if (!same) {
        same = calloc(1, sizeof(*same) + bytes);
        if (!same)
            return false;
        while (*place && (!warning || (*place)->warning))
            place = &(*place)->next;
        if (!sink->shared)
            sink->shared_ns = now;
        same->warning = warning;
        same->bytes = bytes;
        memcpy(same->text, text, bytes);
        same->next = *place;
        *place = same;
    }
    same->workers[stream->worker / 8] |= (uint8_t)(1 << stream->worker % 8);
    same->count++;
    return true;
}

// ---- Streams ----

enum ls_status launch_stream_open(struct launch_stream *stream, struct launch_sink *sink, int fd,
                                  const char *prefix, bool live)
{
    *stream = (struct launch_stream){.fd = fd, .sink = sink, .live = live};
    const size_t length = strnlen(prefix, sizeof(stream->prefix) - 1);
    memcpy(stream->prefix, prefix, length);
    stream->line = malloc(LINE_MOST);
    if (stream->line)
        return LS_OK;
    close(fd);
    stream->fd = -1;
    return LS_OUT_OF_MEMORY;
}

bool launch_stream_has_room(const struct launch_stream *stream, uint64_t now)
{
    const struct launch_sink *sink = stream->sink;
    if (sink->end - sink->begin > SINK_MOST)
        return false;
    return !sink->owner || sink->owner == stream || now - sink->owner_ns > OWNER_NS;
}

static void remember(struct launch_stream *stream, const char *line, size_t bytes)
{
    char *last = stream->last[stream->lines++ % LAUNCH_LAST_LINES];
    while (bytes && (line[bytes - 1] == '\n' || line[bytes - 1] == '\r'))
        bytes--;
    if (bytes > LAUNCH_LAST_LETTERS - 1)
        bytes = LAUNCH_LAST_LETTERS - 1;
    memcpy(last, line, bytes);
    last[bytes] = '\0';
    for (size_t i = 0; i < bytes; i++) // a text ends at a zero
        last[i] = last[i] ? last[i] : '?';
}

// A line, or a piece of a long one.
static void put_line(struct launch_stream *stream, const char *text, size_t bytes, uint64_t now)
{
    struct launch_sink *sink = stream->sink;
    if (stream->shares && sink->owner != stream && share(stream, text, bytes, now)) {
        remember(stream, text, bytes);
        return;
    }
    if (sink->owner != stream) {
        if (!stream->shown) {
            make_room(sink, stream);
            put(sink, stream->prefix, strlen(stream->prefix));
        }
        free(sink->newest);
        sink->newest = NULL;
        remember(stream, text, bytes);
    }
    put(sink, text + stream->shown, bytes - stream->shown);
    stream->shown = 0;
    if (sink->live == stream)
        sink->live = NULL;
    sink->open = text[bytes - 1] != '\n';
    sink->owner = sink->open ? stream : NULL;
    sink->owner_ns = now;
}

bool launch_stream_read(struct launch_stream *stream, uint64_t now)
{
    const ssize_t got = read(stream->fd, stream->line + stream->used, LINE_MOST - stream->used);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return false;
    if (got <= 0) { // EIO: nobody has the other end of the terminal open any more
        launch_stream_close(stream);
        return true;
    }
    stream->used += (size_t)got;
    char *text = stream->line;
    const char *end = stream->line + stream->used;
    for (char *newline; (newline = memchr(text, '\n', (size_t)(end - text))); text = newline + 1)
        put_line(stream, text, (size_t)(newline + 1 - text), now);
    stream->used = (size_t)(end - text);
    memmove(stream->line, text, stream->used);
    if (stream->sink->owner == stream)
        stream->sink->owner_ns = now;
    if (stream->live) {
        show_live(stream);
    } else if (stream->used == LINE_MOST) {
        put_line(stream, stream->line, stream->used, now);
        stream->used = 0;
    }
    return true;
}

void launch_stream_close(struct launch_stream *stream)
{
    struct launch_sink *sink = stream->sink;
    if (!stream->line)
        return;
    if (stream->used)
        put_line(stream, stream->line, stream->used, 0);
    if (sink->owner == stream)
        sink->owner = NULL; // whoever prints next ends the line
    if (sink->live == stream)
        sink->live = NULL;
    if (stream->fd >= 0)
        close(stream->fd);
    free(stream->line);
    stream->fd = -1;
    stream->line = NULL;
}

// ---- All together ----

void launch_output_write(struct launch_output *output)
{
    for (size_t i = 0; i < 2; i++) {
        struct launch_sink *sink = &output->sinks[i];
        if (sink->shared && ls_clock_ns() - sink->shared_ns > SHARED_NS)
            put_shared(sink);
        if (sink->live && !sink->live->shown && !sink->owner)
            show_live(sink->live);
        while (sink->end && is_writable(sink) && write_piece(sink))
            ;
    }
}

void launch_output_finish(struct launch_output *output, bool may_wait)
{
    for (size_t i = 0; i < 2; i++) {
        struct launch_sink *sink = &output->sinks[i];
        while (may_wait && sink->end)
            write_piece(sink);
        while (sink->shared) {
            struct launch_shared *next = sink->shared->next;
            free(sink->shared);
            sink->shared = next;
        }
        free(sink->newest);
        free(sink->text);
        sink->text = NULL;
    }
}

bool launch_output_is_written(const struct launch_output *output)
{
    return !output->sinks[0].end && !output->sinks[1].end;
}

void launch_output_settle(struct launch_output *output)
{
    put_shared(output->err);
}

bool launch_output_waits(const struct launch_output *output)
{
    return output->err->shared;
}

bool launch_output_ends_with(const struct launch_output *output, uint32_t worker)
{
    return output->err->newest && said_by(output->err->newest, worker);
}

void launch_output_say(void *output, uint32_t level, const char *line)
{
    struct launch_sink *sink = ((struct launch_output *)output)->err;
    (void)level;
    make_room(sink, NULL);
    put(sink, line, strlen(line));
    put(sink, "\n", 1);
}
