// SPDX-License-Identifier: Apache-2.0
// What a rank does in its steps, as a timeline (core/base/trace.h) of rank 0 shows it: how long it
// computes until it begins an exchange, what the exchange is, and where it waits for one. What it
// computes is measured; how long exchanges take elsewhere is for tools/compare/elsewhere.h to say.
#ifndef LS_TOOLS_COMPARE_RECORDING_H
#define LS_TOOLS_COMPARE_RECORDING_H

#include "core/base/status.h"
#include "core/base/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COMPARE_RECORDED_SPANS 250000 // of all ranks of a process, 8 MB; the first steps are kept

// One collective on one buffer, as often as it comes.
struct compare_exchange {
    char *name; // "bucket 0, stage 2"
    char *operation; // "all-reduce"
    char *algorithm; // the collective: "ring"
    uint64_t count; // elements of the whole buffer
    uint32_t element_bytes; // as they travel
};

// Seconds of work on the replica's own thread.
struct compare_work {
    double kernels; // forward and backward
    double rest; // input, updates, a filter's local stages, hooks
};

// An exchange begins, or the rank waits until it has ended, when `work` is done.
struct compare_mark {
    struct compare_work work; // since the mark before it
    uint32_t exchange;
    bool waits;
};

struct compare_recorded_step {
    struct compare_mark *marks;
    size_t mark_count;
    struct compare_work work; // after the last mark
};

struct compare_recording {
    struct compare_exchange *exchanges;
    size_t exchange_count;
    struct compare_recorded_step *steps;
    size_t step_count;
};

void compare_recording_finish(struct compare_recording *recording); // takes a zeroed one

// Writes what `trace` has of rank 0. LS_FAILED, LS_OUT_OF_MEMORY; logged.
LS_STATUS compare_recording_write(const struct ls_trace *trace, const char *path);
// LS_FAILED: there is no such file, or it is cut off; nothing is logged.
LS_STATUS compare_recording_read(const char *path, struct compare_recording *out);

// What repeats in steps [first, end): as many as it takes until the same exchanges begin again,
// each with the marks that most of its kind have and the medians of their work. The first step
// counts as warm-up; where not all others repeat something, the second half is looked at, and the
// half of that. No steps: what repeats was not seen twice. LS_OUT_OF_MEMORY.
LS_STATUS compare_recording_cycle(const struct compare_recording *recording, size_t first,
                                  size_t end, struct compare_recording *out);

#endif
