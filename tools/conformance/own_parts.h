// SPDX-License-Identifier: Apache-2.0
// The conformance suites of layers, losses and metrics: small models with the plugin in them are
// trained and evaluated, on both devices of the host, through lockstep.h as any program does.
#ifndef LS_TOOLS_CONFORMANCE_OWN_PARTS_H
#define LS_TOOLS_CONFORMANCE_OWN_PARTS_H

#include "core/base/status.h"
#include "core/loader/loader.h"
#include "tools/conformance/result.h"

struct ls_own_conformance_options {
    const struct ls_opened_plugin *plugin; // its folder is searched first
    uint64_t seed;
    const char *only; // runs the cases whose names contain this; NULL: all
    ls_conformance_wanted wanted; // and for which this says so; NULL: all
};

// LS_OK when no case failed, LS_FAILED when some did. `counts` may be NULL. [main thread]
LS_STATUS ls_conformance_own_part(const struct ls_own_conformance_options *options,
                                  ls_conformance_report report, void *context,
                                  struct ls_conformance_counts *counts);

// Of a dataset: what it describes, and what its loads write.
LS_STATUS ls_conformance_dataset(const struct ls_own_conformance_options *options,
                                 ls_conformance_report report, void *context,
                                 struct ls_conformance_counts *counts);

#endif
