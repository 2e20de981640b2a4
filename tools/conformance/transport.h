// SPDX-License-Identifier: Apache-2.0
// The conformance suite for transports, between endpoints of this process, a thread each, and where
// the transport connects processes (`scope`) also between children of this process: every transfer
// of core/plugin/transport.h in every type and reduction, sizes 0, 1, prime and large, posted in
// and out of order, late and early; and what is promised when a side waits, differs, aborts or
// leaves. Values are exact: nothing is tolerated.
#ifndef LS_TOOLS_CONFORMANCE_TRANSPORT_H
#define LS_TOOLS_CONFORMANCE_TRANSPORT_H

#include "core/base/status.h"
#include "tools/conformance/result.h"
#include "core/plugin/transport.h"

struct ls_transport_conformance_options {
    const struct ls_transport_interface *transport;
    const struct ls_host *host;
    // Buffers lie in memory of devices of this plugin. NULL: in host memory.
    const struct ls_device_interface *device;
    const struct ls_host *device_host;
    uint32_t hosts; // the processes are said to be on so many, in turn; 0: on one
    uint64_t deadline_ns; // of a case; no wait in it takes more than a quarter of that; 0: 20 s
    uint64_t seed; // of values and orders
    const char *only; // runs the cases whose names contain this; NULL: all
    ls_conformance_wanted wanted; // and for which this says so; NULL: all
};

// Runs all cases and reports each. LS_OK when none failed, LS_FAILED when some did. `counts` may be
// NULL. Where the transport connects processes, no other thread may be running, because they are
// forks of this process. [main thread]
LS_STATUS ls_conformance_transport(const struct ls_transport_conformance_options *options,
                                   ls_conformance_report report, void *context,
                                   struct ls_conformance_counts *counts);

#endif
