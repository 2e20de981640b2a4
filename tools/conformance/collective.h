// SPDX-License-Identifier: Apache-2.0
// The conformance suite for collectives, over a transport that connects threads of this process: every
// operation, element type and reduction that the collective claims, over worlds of 1 to 9, 13 and 16 ranks,
// with inputs whose results are exact, so that nothing is tolerated; and what a communicator promises:
// several plans in flight, equal bits on all ranks, a late, a lost and an aborting rank, calls that differ.
#ifndef LS_TOOLS_CONFORMANCE_COLLECTIVE_H
#define LS_TOOLS_CONFORMANCE_COLLECTIVE_H

#include "core/base/status.h"
#include "tools/conformance/result.h"
#include "core/plugin/device.h"
#include "core/plugin/plugin.h"

struct ls_collective_conformance_options {
    const struct ls_plugin *collective;
    const struct ls_host *collective_host;
    const struct ls_plugin *transport; // NULL: the collective is native
    const struct ls_host *transport_host;
    // Buffers lie in memory of devices of this plugin; fewer worlds then. NULL: in host memory.
    const struct ls_device_interface *device;
    const struct ls_host *device_host;
    uint64_t seed; // of the random inputs
    uint32_t maximum_world; // larger worlds are left out; 0: 16
    const char *only; // runs the cases whose names contain this; NULL: all
    ls_conformance_wanted wanted; // and for which this says so; NULL: all
};

// Runs all cases and reports each. LS_OK when none failed, LS_FAILED when some did; else why the suite could not
// run. Cases that provoke an error read it from the log, whose writer is the default again afterwards.
// `counts` may be NULL. [main thread]
LS_STATUS ls_conformance_collective(const struct ls_collective_conformance_options *options,
                                    ls_conformance_report report, void *context,
                                    struct ls_conformance_counts *counts);

#endif
