// SPDX-License-Identifier: Apache-2.0
// The timeline of a fit: recorded from its first preparation to its last thread. [main thread]
#ifndef LS_TRAIN_FIT_TIMELINE_H
#define LS_TRAIN_FIT_TIMELINE_H

#include "core/base/status.h"

#include <stdbool.h>

struct ls_fit;

// Whether options->timeline can be written and its steps make sense. LS_BAD_INPUT, LS_USAGE; logged.
LS_STATUS ls_fit_check_timeline(const struct ls_fit *fit);
// Begins to record where a timeline is wanted.
LS_STATUS ls_fit_begin_timeline(struct ls_fit *fit);
// Ends the recording and writes it, if `whole`; all threads of the session have ended by then. Returns `status`, or else why
// it could not be written.
LS_STATUS ls_fit_end_timeline(struct ls_fit *fit, bool whole, enum ls_status status);

#endif
