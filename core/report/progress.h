// SPDX-License-Identifier: Apache-2.0
// What a person sees while training runs: on a terminal a bar like Keras's that is redrawn at most ten times
// a second, else one line an epoch. Everything goes to stdout. [main thread, or the one that runs replica 0]
#ifndef LS_REPORT_PROGRESS_H
#define LS_REPORT_PROGRESS_H

#include "lockstep.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct ls_progress {
    FILE *stream;
    bool terminal;
    bool quiet;
    uint64_t epochs; // in all; 0: unknown
    uint64_t epoch;
    uint64_t epoch_steps; // of this epoch
    uint64_t begun_ns, drawn_ns;
    bool open; // a bar stands on the current line
};

void ls_progress_init(struct ls_progress *progress, FILE *stream, bool quiet, uint64_t epochs);
void ls_progress_begin(struct ls_progress *progress, uint64_t epoch, uint64_t epoch_steps);
void ls_progress_step(struct ls_progress *progress, uint64_t done,
                      const struct ls_metrics *metrics);
void ls_progress_end(struct ls_progress *progress, uint64_t done, double seconds, uint64_t examples,
                     const struct ls_metrics *metrics);
// Clears an open bar's line, so that something else can be printed. A bar that was initialised last makes room for
// messages by itself, until it is finished. [any thread]
void ls_progress_clear(struct ls_progress *progress);
void ls_progress_finish(struct ls_progress *progress);

#endif
