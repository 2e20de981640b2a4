// SPDX-License-Identifier: Apache-2.0
// The conformance suite for filters: worlds of 1 to 8, whose ranks run their stages in turn, with
// plain sums and copies in place of collectives. All ranks end with the same bits, what they
// deliver adds up to the sums and nothing is lost over several steps, and what is not finite stays
// so.
#ifndef LS_TOOLS_CONFORMANCE_FILTER_H
#define LS_TOOLS_CONFORMANCE_FILTER_H

#include "core/base/status.h"
#include "core/plugin/filter.h"
#include "tools/conformance/result.h"

struct ls_filter_conformance_options {
    const struct ls_filter_interface *filter;
    const struct ls_host *host;
    const char *name; // the filter's
    uint64_t seed; // of the random values
    const char *only; // runs the cases whose names contain this; NULL: all
    ls_conformance_wanted wanted; // and for which this says so; NULL: all
};

// Runs all cases and reports each. LS_OK when none failed, LS_FAILED when some did;
// LS_OUT_OF_MEMORY. `counts` may be NULL. [main thread]
LS_STATUS ls_conformance_filter(const struct ls_filter_conformance_options *options,
                                ls_conformance_report report, void *context,
                                struct ls_conformance_counts *counts);

#endif
