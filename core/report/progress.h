// SPDX-License-Identifier: Apache-2.0
// Progress of a training, on stdout: on a terminal a bar like Keras's, redrawn at most ten times a
// second and never wider than the terminal, else one line for each epoch. [main thread, or the one
// that runs replica 0]
#ifndef LS_REPORT_PROGRESS_H
#define LS_REPORT_PROGRESS_H

#include "lockstep.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// As `progress` in struct ls_run_options.
enum ls_progress_kind { LS_PROGRESS_NONE, LS_PROGRESS_BAR, LS_PROGRESS_LINES };

struct ls_progress {
    FILE *stream;
    bool bar; // else lines
    bool quiet;
    uint64_t log_every; // a line whenever so many steps are done; 0: none
    uint64_t begun_ns, drawn_ns;
    uint64_t begun_steps; // of the epoch, before this process trained
    bool open; // a bar stands on the current line
};

// A bar only where the terminal can redraw a line; else there are lines.
void ls_progress_init(struct ls_progress *progress, FILE *stream, enum ls_progress_kind kind,
                      uint64_t log_every);
// What shows a fit. Borrows `progress`.
struct ls_callbacks ls_progress_callbacks(struct ls_progress *progress);
// Clears the line of an open bar, so that something else can be printed. The bar that was
// initialized last does this by itself for log messages, until it is finished. [any thread]
void ls_progress_clear(struct ls_progress *progress);
void ls_progress_finish(struct ls_progress *progress);

#endif
