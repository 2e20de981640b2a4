// SPDX-License-Identifier: Apache-2.0
// Runs the cases of a suite one by one, each in a child process of its own with a deadline: a plugin that crashes,
// hangs or exits fails its case and nothing else. What a case prints, and what it changes in its process (signal
// handlers, environment, ...), fails it too.
#ifndef LS_TOOLS_CONFORMANCE_ISOLATE_H
#define LS_TOOLS_CONFORMANCE_ISOLATE_H

#include "core/base/status.h"
#include "tools/conformance/result.h"

#include <stdbool.h>

// A suite with all it needs in `argument`. It opens what threads or children must not share (devices,
// communicators) itself, for each run anew.
struct ls_isolated_suite {
    enum ls_status (*run)(void *argument, ls_conformance_wanted wanted,
                          ls_conformance_report report, void *context);
    void *argument;
    uint64_t deadline_ns; // of a case
    bool looks_itself; // the suite checks what its cases print and change in the process
    // After this many cases that did not end, the rest is skipped, and one more result says so; 0: 3.
    uint32_t most_hung;
};

// LS_OK if no case failed, LS_FAILED if some did; else (logged) the reason why none could run. `counts`
// may be NULL. No other thread of the caller may be running, because the children are forks of it.
// [main thread]
LS_STATUS ls_isolate_suite(const struct ls_isolated_suite *suite, ls_conformance_report report,
                           void *context, struct ls_conformance_counts *counts);

#endif
