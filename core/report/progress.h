// SPDX-License-Identifier: Apache-2.0
// Progress of a training, on stdout: on a terminal a bar like Keras's, redrawn at most ten times a
// second, else one line for each epoch. [main thread, or the one that runs replica 0]
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
    uint64_t begun_ns, drawn_ns;
    bool open; // a bar stands on the current line
};

void ls_progress_init(struct ls_progress *progress, FILE *stream, bool quiet);
// What shows a fit. Borrows `progress`.
struct ls_callbacks ls_progress_callbacks(struct ls_progress *progress);
// Clears the line of an open bar, so that something else can be printed. The bar that was
// initialized last does this by itself for log messages, until it is finished. [any thread]
void ls_progress_clear(struct ls_progress *progress);
void ls_progress_finish(struct ls_progress *progress);

#endif
