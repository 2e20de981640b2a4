// SPDX-License-Identifier: Apache-2.0
// The callbacks of --callback, which train, evaluate and predict have.
#ifndef LS_TOOLS_RUN_CALLBACKS_H
#define LS_TOOLS_RUN_CALLBACKS_H

#include "lockstep.h"
#include "tools/arguments.h"

struct run_callbacks {
    struct ls_callbacks *opened[ARGUMENTS_MAX + 2];
    struct ls_callbacks tables[ARGUMENTS_MAX + 3]; // room for one of the command's own
    uint32_t count; // of tables
};

// Opens those of --callback; `out` is zeroed, and to be closed whatever the status is.
LS_STATUS run_callbacks_open(const struct arguments *arguments, struct ls_run *run,
                             struct run_callbacks *out);
// One more, "tensorboard:log_dir=logs".
LS_STATUS run_callbacks_add(struct ls_run *run, const char *text, struct run_callbacks *out);
void run_callbacks_close(struct run_callbacks *callbacks); // after the models, before the run

#endif
