// SPDX-License-Identifier: Apache-2.0
// What the processes of a launch print, brought together line by line. Nothing is lost: where the
// reader of this program's output is slow, so are the processes. Lines never mix, with one
// exception that is marked by a line break: a line longer than 64 KiB is written in pieces, and one
// that gets no further for a second is broken off when another process prints. [main thread]
#ifndef LS_TOOLS_LAUNCH_OUTPUT_H
#define LS_TOOLS_LAUNCH_OUTPUT_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAUNCH_WORKERS_MOST 4096
#define LAUNCH_LAST_LINES 6
#define LAUNCH_LAST_LETTERS 400

struct launch_stream;

// An error or warning of Lockstep that several workers write: it is printed once, behind the numbers
// of all. It waits for them a moment.
struct launch_shared {
    struct launch_shared *next;
    bool warning; // else an error
    uint32_t count; // of workers
    uint8_t workers[LAUNCH_WORKERS_MOST / 8]; // bits
    size_t bytes;
    char text[];
};

// Standard output or standard error of this program.
struct launch_sink {
    int fd;
    bool file; // writing to it never waits
    bool terminal; // that can wipe a line away
    bool open; // its last line has no end yet
    int error; // of a write that failed, after which everything is dropped; 0: none
    char *text; // what is still to be written
    size_t begin, end, room;
    struct launch_stream *owner; // whose long line is under way
    uint64_t owner_ns; // when the owner was last heard
    struct launch_stream *live; // whose unfinished line stands on the terminal
    struct launch_shared *shared; // waits since shared_ns, warnings first
    uint64_t shared_ns;
    struct launch_shared *newest; // error, below which is none but messages; NULL: there is none
};

struct launch_output {
    struct launch_sink sinks[2];
    struct launch_sink *out, *err; // one and the same where both lead to one place
};

// One of the two outputs of a process.
struct launch_stream {
    int fd; // -1: closed
    struct launch_sink *sink;
    char prefix[24]; // of each line
    bool live; // shown before its line is complete, as a progress bar must be
    bool shares; // messages with other workers
    uint32_t worker; // of a stream that shares
    char *line; // the line that is not complete yet
    size_t used;
    size_t shown; // bytes of it that stand on the terminal
    char last[LAUNCH_LAST_LINES][LAUNCH_LAST_LETTERS]; // how its last lines begin, in a ring
    uint64_t lines; // so many
};

void launch_output_init(struct launch_output *output);
// Writes what is left, if it may wait for that, and frees. Errors of the sinks can still be read.
void launch_output_finish(struct launch_output *output, bool may_wait);
// Writes what can be written without waiting.
void launch_output_write(struct launch_output *output);
bool launch_output_is_written(const struct launch_output *output); // or can never be
// Messages that wait for workers which may write the same wait no longer.
void launch_output_settle(struct launch_output *output);
bool launch_output_waits(const struct launch_output *output);
// Whether an error of this worker is the last line that is no warning or message of this program.
bool launch_output_ends_with(const struct launch_output *output, uint32_t worker);
// A line of this program's own on standard error; a writer of core/base/log.h. `output` is a struct
// launch_output.
void launch_output_say(void *output, uint32_t level, const char *line);

// Takes over `fd`, also where this fails. `prefix` is copied.
LS_STATUS launch_stream_open(struct launch_stream *stream, struct launch_sink *sink, int fd,
                             const char *prefix, bool live);
// Whether there is room for what could be read.
bool launch_stream_has_room(const struct launch_stream *stream, uint64_t now);
// Reads what is there, at most 64 KiB, and hands complete lines on. Closes the stream at its end.
// False: there was nothing.
bool launch_stream_read(struct launch_stream *stream, uint64_t now);
// Hands on what is left, and frees. Takes a stream that is zero or closed.
void launch_stream_close(struct launch_stream *stream);

#endif
