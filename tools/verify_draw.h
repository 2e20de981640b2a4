// SPDX-License-Identifier: Apache-2.0
// Prints a schedule as text: one column a rank, one block a round. [main thread]
#ifndef LS_TOOLS_VERIFY_DRAW_H
#define LS_TOOLS_VERIFY_DRAW_H

#include "core/base/status.h"
#include "core/schedule/verify.h"
#include "core/loader/loader.h"

#include <stdbool.h>

#define VERIFY_DRAW_WORLD 16 // columns

struct verify_drawing {
    const struct ls_opened_plugin *opened; // the collective
    const struct ls_verify_case *drawn;
    const struct ls_verification *found; // its rank and round are marked; NULL: not refused
    bool build_ended_it; // mark the place where build_schedule ended instead
    uint64_t deadline_ns; // for build_schedule
};

// Draws the schedule up to the point where build_schedule ends. It runs in a child process, because it
// may hang, crash, or write invalid steps. LS_OUT_OF_MEMORY; LS_FAILED, logged, if no child process
// can be started.
LS_STATUS verify_draw(const struct verify_drawing *drawing);

#endif
