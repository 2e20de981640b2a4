// SPDX-License-Identifier: Apache-2.0
// The conformance suite for strategies: its hooks are called as a step calls them, on a thread for each replica, with
// a host of small numbers instead of a model: gradients that are summed, parameters that are updated. So it can be
// seen that every bucket is updated exactly once a step, from the sum of all replicas, after the decision; that
// replicas are equal when they should be; and that a host call that fails ends the step with its status.
#ifndef LS_TOOLS_CONFORMANCE_STRATEGY_H
#define LS_TOOLS_CONFORMANCE_STRATEGY_H

#include "core/base/status.h"
#include "tools/conformance/result.h"
#include "core/plugin/strategy.h"

// Zeroed: none.
struct ls_fake_transport {
    const struct ls_transport_interface *interface;
    const struct ls_host *host;
};

struct ls_strategy_conformance_options {
    const struct ls_strategy_interface *strategy;
    const struct ls_host *host;
    struct ls_fake_transport transport; // for a strategy that needs one
    uint64_t seed; // of gradients and first parameters
    const char *only; // runs the cases whose names contain this; NULL: all
    ls_conformance_wanted wanted; // and for which this says so; NULL: all
};

// Runs all cases and reports each. LS_OK when none failed, LS_FAILED when some did. `counts` may be NULL. [main thread]
LS_STATUS ls_conformance_strategy(const struct ls_strategy_conformance_options *options,
                                  ls_conformance_report report, void *context,
                                  struct ls_conformance_counts *counts);

#endif
