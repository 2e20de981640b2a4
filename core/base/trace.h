// SPDX-License-Identifier: Apache-2.0
// Records what threads do and when, for the timeline of a run. A recording (struct ls_trace) has processes (the worker,
// each rank), these have tracks, and a track holds spans: a label, a begin, an end, a number. Spans of one track nest.
//
// Recording a span takes no more than this, on any thread:
//
//     static const struct ls_trace_label pull = {.category = "communication", .name = "pull", .value = "server"};
//     ls_trace_begin(&pull, server);
//     ...
//     ls_trace_end();
//
// A thread started by ls_thread_start has a track of its own if the thread that started it has one.
// While nothing is recorded, each call reads one thread-local pointer. During a recording, a span
// takes no lock and no allocation, except for an occasional chunk of memory. Recording never
// changes what a program computes.
#ifndef LS_BASE_TRACE_H
#define LS_BASE_TRACE_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_TRACE_SPANS 1000000 // default of most_spans
#define LS_TRACE_DETAILS 5 // of a label

struct ls_trace;
struct ls_trace_track;

// The constant part of a span. Static, or copied by ls_trace_keep.
struct ls_trace_detail {
    const char *name; // NULL: none
    const char *text; // NULL: the value is a number
    uint64_t number;
};

// A message, identified in the same way by both of its ranks. A sending and a receiving span
// belong together if this struct and the numbers of the two spans are equal.
struct ls_trace_message {
    const void *group; // whose ranks these are; NULL: no message
    uint32_t from, to; // ranks
    uint64_t number; // of the messages between them
    uint64_t bytes;
};

struct ls_trace_label {
    const char *category; // "compute"
    const char *name; // "conv2d_1 backward weights"
    const char *value; // what the number of a span counts: "step"; NULL: it has none
    bool numbered; // the number belongs to the name: "step 12"
    struct ls_trace_detail details[LS_TRACE_DETAILS];
    struct ls_trace_message receives, sends; // an arrow ends, or begins, at the span
};

// ---- For the thread that does the work. Without effect while nothing is recorded. [any thread] ----

extern _Thread_local struct ls_trace_track *ls_trace_mine; // NULL: nothing is recorded

void ls_trace_write_begin(const struct ls_trace_label *label, uint64_t number);
void ls_trace_write_end(void);
void ls_trace_write_examples(uint64_t count);
void ls_trace_write_span(const struct ls_trace_label *label, uint64_t begin_ns, uint64_t end_ns,
                         uint64_t number);

static inline bool ls_trace_on(void)
{
    return ls_trace_mine != NULL;
}

// A span from begin to its matching end. A NULL label is not recorded, but still needs its end.
static inline void ls_trace_begin(const struct ls_trace_label *label, uint64_t number)
{
    if (ls_trace_on())
        ls_trace_write_begin(label, number);
}

static inline void ls_trace_end(void)
{
    if (ls_trace_on())
        ls_trace_write_end();
}

// A span whose times (of ls_clock_ns) are known, with nothing inside; a NULL label is not recorded.
static inline void ls_trace_span(const struct ls_trace_label *label, uint64_t begin_ns,
                                 uint64_t end_ns, uint64_t number)
{
    if (ls_trace_on())
        ls_trace_write_span(label, begin_ns, end_ns, number);
}

// Called before and after a training step by each thread that runs steps (`steppers` in struct
// ls_trace_options). `step` counts from 1.
void ls_trace_begin_step(uint64_t step);
void ls_trace_end_step(void);
// Called within a step: the number of examples that this thread trains.
static inline void ls_trace_examples(uint64_t count)
{
    if (ls_trace_on())
        ls_trace_write_examples(count);
}

// Moves the calling thread's track to the process with this `order`, its position in the timeline
// (0: the worker, 1 + r: rank r; other processes follow). The first thread names the process.
void ls_trace_move(uint32_t order, const char *process, const char *remark);

// Copies a label that does not live as long as the recording. NULL: nothing is recorded, or no
// memory.
const struct ls_trace_label *ls_trace_keep(const struct ls_trace_label *label);

// Whether messages of collectives are recorded. [any thread]
bool ls_trace_has_messages(void);

// A further track in the process of the calling thread, for work that the thread does not do
// itself: transfers under way, a device's stream. If its spans overlap, they are drawn on several
// tracks of the same name. Only the calling thread writes to it. NULL: nothing is recorded, or no
// memory.
struct ls_trace_track *ls_trace_open_track(const char *name);
// Takes a NULL track.
void ls_trace_slice_on(struct ls_trace_track *track, const struct ls_trace_label *label,
                       uint64_t begin_ns, uint64_t end_ns, uint64_t number);

// ---- For ls_thread_start: the starting thread creates the track of the new one. ----

struct ls_trace_track *ls_trace_fork(const char *name); // NULL when nothing is recorded
void ls_trace_attach(struct ls_trace_track *track); // on the new thread; takes NULL
void ls_trace_detach(struct ls_trace_track *track); // when it ends, or was not started; takes NULL

// ---- The recording ----

struct ls_trace_options {
    uint64_t first_step, last_step; // from 1; 0: no bound
    uint64_t most_spans; // 0: LS_TRACE_SPANS. Recording stops there and keeps the steps so far.
    uint32_t steppers; // threads that will run steps
    bool without_messages; // of collectives: many at once need much room
};

// Gives the calling thread a track "main" in a process "worker" until the recording is destroyed;
// the recording that the thread wrote to before is suspended until then.
LS_STATUS ls_trace_create(const struct ls_trace_options *options, struct ls_trace **out);
// Takes NULL. Called by the thread that created the recording. Threads that still record keep its
// memory alive; their spans are lost.
void ls_trace_destroy(struct ls_trace *trace);

// ---- Reading, by the thread that created it, when the threads that were recorded have ended ----

struct ls_trace_steps {
    uint64_t first, last; // recorded completely, if the run finished them; 0: none
    uint64_t begun; // the last step that any thread began
};
void ls_trace_find_steps(const struct ls_trace *trace, struct ls_trace_steps *out);

struct ls_trace_span {
    const struct ls_trace_label *label;
    uint64_t number;
    uint64_t begin_ns, end_ns; // since the recording was created
    bool unfinished; // an error: the thread left without ls_trace_end
};

struct ls_trace_visitor {
    void *context;
    // `process` is an order (see ls_trace_move). Called once for each process, before its tracks.
    void (*process)(void *context, uint32_t process, const char *name, const char *remark);
    // `track` is a number from 1, unique in the recording. A track's spans follow it.
    void (*track)(void *context, uint32_t process, uint32_t track, const char *name);
    void (*span)(void *context, const struct ls_trace_span *span);
    // Optional. A finished step of this track, and the number of examples that it trained.
    void (*step)(void *context, uint64_t examples, uint64_t begin_ns, uint64_t end_ns);
};
// Spans outside the recorded steps are left out; spans that extend beyond them are cut.
void ls_trace_visit(const struct ls_trace *trace, const struct ls_trace_visitor *visitor);

#endif
