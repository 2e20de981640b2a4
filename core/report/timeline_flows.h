// SPDX-License-Identifier: Apache-2.0
// What a timeline shows beside its spans: an arrow from each span that sends a message to the one that receives it, and
// two counters, the bytes under way and the examples trained in a second. Private to report/. [main thread]
#ifndef LS_REPORT_TIMELINE_FLOWS_H
#define LS_REPORT_TIMELINE_FLOWS_H

#include "core/base/status.h"
#include "core/base/trace.h"

// One side of a message.
struct ls_timeline_end {
    struct ls_trace_message message;
    uint64_t run; // the number of the span
    uint64_t begin_ns, end_ns; // of the span
    uint32_t process, track;
};

struct ls_timeline_ends {
    struct ls_timeline_end *list;
    size_t count, capacity;
};

// A counter from `time_ns` on has grown by `by`, and once counted is `value`.
struct ls_timeline_change {
    uint64_t time_ns;
    int64_t by, value;
};

struct ls_timeline_counter {
    struct ls_timeline_change *list; // in the end one for each time, in order
    size_t count, capacity;
};

// Zeroed at first.
struct ls_timeline_flows {
    struct ls_timeline_ends sends, receives; // in the end arrow i goes from sends i to receives i
    struct ls_timeline_counter bytes, examples;
    uint32_t track; // of the last step; 0: none
    uint64_t step_begin_ns, step_end_ns, step_examples;
    bool failed; // no memory
};

void ls_timeline_flows_add(struct ls_timeline_flows *flows, const struct ls_trace_span *span,
                           uint32_t process, uint32_t track);
// The steps of a track come one after the other.
void ls_timeline_flows_add_step(struct ls_timeline_flows *flows, uint32_t track, uint64_t examples,
                                uint64_t begin_ns, uint64_t end_ns);
// Keeps the messages whose two sides are there, and counts. LS_OUT_OF_MEMORY, not logged.
LS_STATUS ls_timeline_flows_end(struct ls_timeline_flows *flows);
// When the arrow ends: from then on both sides are at it.
uint64_t ls_timeline_arrival_ns(const struct ls_timeline_end *send,
                                const struct ls_timeline_end *receive);
void ls_timeline_flows_finish(struct ls_timeline_flows *flows);

#endif
