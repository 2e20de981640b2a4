// SPDX-License-Identifier: Apache-2.0
// The transport suite from end to end.
#include "tools/conformance/transport.h"

#include "tools/conformance/transport/suite.h"

#include <stdbool.h>

enum ls_status ls_conformance_transport(const struct ls_transport_conformance_options *options,
                                        ls_conformance_report report, void *context,
                                        struct ls_conformance_counts *counts)
{
    struct ls_transport_suite suite = {
        .options = *options, .devices = {.ops = options->device, .host = options->device_host}};
    ls_tally_init(&suite.tally, options->only, options->wanted, report, context);
    // Memory of devices is that of one process.
    const bool processes = options->transport->scope >= LS_SCOPE_HOST && !options->device;
    for (uint32_t spread = 0; spread < (processes ? LS_SPREADS : 1); spread++) {
        suite.spread = spread;
        if (spread == LS_SPREAD_MAPPED && options->transport->scope >= LS_SCOPE_NETWORK)
            continue;
        if (spread != LS_SPREAD_MIXED)
            ls_transport_value_cases(&suite);
        ls_transport_order_cases(&suite);
        ls_transport_end_cases(&suite);
        ls_transport_death_cases(&suite);
        ls_transport_arming_cases(&suite);
    }
    if (counts)
        *counts = suite.tally.counts;
    ls_tally_finish(&suite.tally);
    ls_conformance_devices_close(&suite.devices);
    return suite.tally.counts.failed ? LS_FAILED : LS_OK;
}
