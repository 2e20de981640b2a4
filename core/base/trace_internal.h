// SPDX-License-Identifier: Apache-2.0
// A recording as trace.c writes it and trace_read.c reads it.
#ifndef LS_BASE_TRACE_INTERNAL_H
#define LS_BASE_TRACE_INTERNAL_H

#include "core/base/trace.h"

#include <pthread.h>
#include <stdatomic.h>

#define LS_TRACE_DEPTH 16 // spans within spans; deeper ones are not recorded
#define LS_TRACE_CHUNK 1023 // spans, so that a chunk has about 32 KiB

struct ls_trace_event {
    const struct ls_trace_label *label;
    uint64_t begin_ns, end_ns; // end 0: not there yet
    uint64_t number;
};

struct ls_trace_chunk {
    struct ls_trace_chunk *next;
    uint32_t count;
    struct ls_trace_event events[LS_TRACE_CHUNK];
};

// When a track records.
enum ls_trace_when {
    LS_TRACE_ALWAYS, // who created the recording: few and large spans, cut when they are read
    LS_TRACE_MEANWHILE, // while some stepper is within the steps that are held
    LS_TRACE_WITHIN, // a stepper: within those steps
    LS_TRACE_AS_OWNER, // when the thread does that opened it
};

struct ls_trace_open {
    const struct ls_trace_label *label;
    uint64_t number;
    struct ls_trace_event *event; // NULL: not recorded (yet)
};

struct ls_trace_process {
    struct ls_trace_process *next;
    uint32_t order;
    char *name, *remark;
};

struct ls_trace_track {
    struct ls_trace *trace;
    struct ls_trace_track *next; // of the recording
    struct ls_trace_track *overlap; // where spans go that overlap those here
    struct ls_trace_track *owner; // with LS_TRACE_AS_OWNER
    struct ls_trace_process *process;
    uint32_t number;
    char *name;
    enum ls_trace_when when;
    bool inside; // with LS_TRACE_WITHIN: in a step that is held
    bool left; // with LS_TRACE_WITHIN: behind them
    bool full; // no memory for more
    uint64_t step; // with LS_TRACE_WITHIN: under way, or the last one
    uint64_t last_end_ns; // with LS_TRACE_AS_OWNER
    long chunks; // with LS_TRACE_WITHIN: that it and those it owns may still take
    struct ls_trace_chunk *first, *last;
    uint32_t depth;
    struct ls_trace_open open[LS_TRACE_DEPTH];
    atomic_bool used; // by a thread; who sees false sees all that it wrote
};

struct ls_trace {
    struct ls_trace_options options;
    uint64_t created_ns;
    struct ls_trace_track *main; // of the thread that created it
    struct ls_trace_track *before; // what that thread recorded to before
    atomic_uint users; // threads, and the one that created it
    long stepper_chunks; // for each stepper, so that none takes all
    atomic_long chunks; // that the others may still take
    _Atomic uint64_t last_step; // that is held
    _Atomic uint64_t begun_step; // the last one that was begun
    atomic_bool started; // a stepper came to the first step that is held
    atomic_uint left; // steppers that are behind the last one
    pthread_mutex_t lock; // guards the lists
    struct ls_trace_process *processes;
    struct ls_trace_track *tracks;
    uint32_t track_count;
    struct ls_trace_kept {
        struct ls_trace_kept *next;
        struct ls_trace_label label;
    } * kept;
};

extern const struct ls_trace_label ls_trace_step_label;
extern const struct ls_trace_label ls_trace_examples_label; // its number; a reader sees no span

#endif
