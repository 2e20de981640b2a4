// SPDX-License-Identifier: Apache-2.0
// The conformance suite for devices: every operation over shapes that stress it, forward and backward,
// against a device that is trusted (`reference`), in plain layouts and in the tested device's own.
// Beside the numbers it checks what the contract in core/plugin/device.h promises: guards around all
// memory, scratch and saved sizes, padding, inputs said to be unused, in-place, repeatability, threads.
#ifndef LS_TOOLS_CONFORMANCE_DEVICE_H
#define LS_TOOLS_CONFORMANCE_DEVICE_H

#include "core/base/status.h"
#include "tools/conformance/result.h"
#include "core/plugin/device.h"

struct ls_device_conformance_options {
    uint32_t threads; // of the tested device; 0: 2
    bool
        partial; // an operation that it does not know is refused, not failed: for a device under construction
    bool unguarded; // buffers end where their allocations do, for a tool that sees what is beyond
    bool until_failure; // runs no case after the first that fails
    const char *
        only; // runs the cases whose names contain one of these, or begin with one after ^; separated by |; NULL: all
    ls_conformance_wanted wanted; // and for which this says so; NULL: all
};

// Opens both devices, runs all cases and reports each. LS_OK when none failed, LS_FAILED when some did;
// else why the suite could not run. `options` and `counts` may be NULL. [main thread]
LS_STATUS ls_conformance_device(const struct ls_device_interface *tested,
                                const struct ls_host *tested_host,
                                const struct ls_device_interface *reference,
                                const struct ls_host *reference_host,
                                const struct ls_device_conformance_options *options,
                                ls_conformance_report report, void *context,
                                struct ls_conformance_counts *counts);

#endif
