// SPDX-License-Identifier: Apache-2.0
// What a server process of a job does.
#ifndef LS_API_SERVE_H
#define LS_API_SERVE_H

#include "core/run/run.h"

// As ls_run_serve, but may fail without a message (calls.c).
LS_STATUS ls_serve(struct ls_run *run);

#endif
