// SPDX-License-Identifier: Apache-2.0
// The conformance suite for what a collective describes: its schedules are verified, not run, for every operation that
// it offers, over worlds of 1 to 9, 13, 16 and 32 ranks and counts 0, 1, prime and large.
#ifndef LS_TOOLS_CONFORMANCE_SCHEDULE_H
#define LS_TOOLS_CONFORMANCE_SCHEDULE_H

#include "core/base/status.h"
#include "tools/conformance/result.h"
#include "core/plugin/collective.h"

struct ls_schedule_conformance_options {
    const struct ls_collective_interface *collective;
    const struct ls_host *host;
    const char *only; // runs the cases whose names contain this; NULL: all
    ls_conformance_wanted wanted; // and for which this says so; NULL: all
};

// Runs all cases and reports each. LS_OK when none failed, LS_FAILED when some did. `counts` may be NULL. [main thread]
LS_STATUS ls_conformance_schedule(const struct ls_schedule_conformance_options *options,
                                  ls_conformance_report report, void *context,
                                  struct ls_conformance_counts *counts);

#endif
