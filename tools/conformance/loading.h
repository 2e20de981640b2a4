// SPDX-License-Identifier: Apache-2.0
// The conformance suite that every kind of plugin passes first: what the file exports and wants from elsewhere, what
// its descriptor says, two instances side by side, and that loading and opening it prints nothing and changes
// nothing of the process.
#ifndef LS_TOOLS_CONFORMANCE_LOADING_H
#define LS_TOOLS_CONFORMANCE_LOADING_H

#include "core/base/status.h"
#include "tools/conformance/result.h"

struct ls_loading_conformance_options {
    const char *file; // path of the plugin; trusted, checked and probed by the loader in each case
    const char *only; // runs the cases whose names contain this; NULL: all
    ls_conformance_wanted wanted; // and for which this says so; NULL: all
};

// Each case looks at the first loading of the file in a process, so run it by ls_isolate_suite. LS_OK when no case
// failed, LS_FAILED when some did. `counts` may be NULL. [main thread]
LS_STATUS ls_conformance_loading(const struct ls_loading_conformance_options *options,
                                 ls_conformance_report report, void *context,
                                 struct ls_conformance_counts *counts);

#endif
