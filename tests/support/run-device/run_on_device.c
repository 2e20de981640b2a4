// SPDX-License-Identifier: Apache-2.0
// Runs the suites of the transport and the collectives named by the arguments ("transport-local collective-ring") on memory of
// the device that the first names ("cuda"), in one process. Collectives after the argument -short run only a few of the cases.
// Ends with 1 when a case failed, with 77 when a plugin is not here.
#include "core/base/log.h"
#include "tools/conformance/collective.h"
#include "tools/conformance/transport.h"
#include "core/plugin/collective.h"
#include "tests/support/plugin.h"

#include <stdbool.h>

static const struct ls_plugin *device, *transport;
static struct test_host device_host, transport_host;
static bool shortly;

static void print_result(void *context, const struct ls_conformance_result *result)
{
    (void)context;
    if (result->outcome != LS_CONFORMANCE_PASSED)
        printf("%s %s: %s\n", result->outcome == LS_CONFORMANCE_FAILED ? "FAILED " : "refused",
               result->name, result->message);
}

// What differs between the algorithms, not what all of them share.
static bool wanted(void *context, const char *name)
{
    (void)context;
    return !shortly || (strstr(name, "float32 sum") && !strstr(name, "_large")) ||
           strstr(name, "in_flight ranks=3") || strstr(name, "lost_rank ranks=3");
}

static enum ls_status run_collective(const struct ls_plugin *collective,
                                     struct ls_conformance_counts *counts)
{
    const struct ls_collective_interface *ops = collective->interface;
    struct test_host host;
    test_host_init(&host, collective);
    const struct ls_collective_conformance_options options = {
        .collective = collective,
        .collective_host = &host.host,
        .transport = ops->build_schedule ? transport : NULL,
        .transport_host = &transport_host.host,
        .device = device->interface,
        .device_host = &device_host.host,
        .seed = 1,
        .wanted = wanted,
    };
    return ls_conformance_collective(&options, print_result, NULL, counts);
}

static enum ls_status run_transport(struct ls_conformance_counts *counts)
{
    const struct ls_transport_conformance_options options = {
        .transport = transport->interface,
        .host = &transport_host.host,
        .device = device->interface,
        .device_host = &device_host.host,
        .seed = 1,
    };
    return ls_conformance_transport(&options, print_result, NULL, counts);
}

int main(int count, char **arguments)
{
    bool failed = false;
    char name[256];
    setvbuf(stdout, NULL, _IOLBF, 0);
    snprintf(name, sizeof(name), "device-%s", count > 1 ? arguments[1] : "cuda");
    device = test_plugin_open(name);
    transport = test_plugin_open("transport-local");
    if (!device || !transport)
        return TEST_SKIPPED;
    test_host_init(&device_host, device);
    test_host_init(&transport_host, transport);
    for (int i = 2; i < count; i++) {
        struct ls_conformance_counts counts = {0};
        shortly = shortly || strcmp(arguments[i], "-short") == 0;
        if (arguments[i][0] == '-')
            continue;
        const struct ls_plugin *tested = test_plugin_open(arguments[i]);
        if (!tested)
            return TEST_SKIPPED;
        const enum ls_status status = tested->kind == LS_KIND_TRANSPORT
                                          ? run_transport(&counts)
                                          : run_collective(tested, &counts);
        printf("%s in memory of %s: %u passed, %u failed, %u refused\n", arguments[i], name,
               counts.passed, counts.failed, counts.refused);
        failed = failed || status || counts.passed == 0;
    }
    return failed ? 1 : 0;
}
