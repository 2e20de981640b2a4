// SPDX-License-Identifier: Apache-2.0
// A route of shared-memory and ucx passes the suite of all transports, its processes said to be on two hosts in turn.
//   test_route_suite [all]     all: also every type and reduction in every size
#include "tests/core/collective/route_parts.h"
#include "tools/conformance/transport.h"

#include <string.h>

static bool all_cases;

static void print_result(void *context, const struct ls_conformance_result *result)
{
    (void)context;
    if (result->outcome != LS_CONFORMANCE_PASSED)
        printf("%s %s: %s\n", result->outcome == LS_CONFORMANCE_FAILED ? "FAILED " : "refused",
               result->name, result->message);
}

// What a route adds does not depend on types, and within one process it is one transport.
static bool wanted(void *context, const char *name)
{
    (void)context;
    return all_cases ||
           (strstr(name, "processes=") && (!strstr(name, "float") || strstr(name, "float32 sum")) &&
            !strstr(name, "int") && !strstr(name, "uint"));
}

int main(int count, char **arguments)
{
    struct route_parts parts;
    struct ls_conformance_counts counts;
    setvbuf(stdout, NULL, _IOLBF, 0);
    all_cases = count > 1 && strcmp(arguments[1], "all") == 0;
    const int code = route_parts_open(&parts);
    if (code)
        return code;
    const struct ls_transport_conformance_options options = {.transport = parts.opened.interface,
                                                             .host = parts.opened.host,
                                                             .hosts = 2,
                                                             .seed = 1,
                                                             .wanted = wanted};
    const enum ls_status status = ls_conformance_transport(&options, print_result, NULL, &counts);
    printf("%s: %u passed, %u failed, %u refused\n", parts.opened.plugin->name, counts.passed,
           counts.failed, counts.refused);
    route_parts_close(&parts);
    return status || counts.passed == 0;
}
