// SPDX-License-Identifier: Apache-2.0
// Runs the device suite on the plugin named by the first argument ("cpu", "cuda:arena=off"), against device `reference`; a
// second argument runs only the cases whose names contain it (or one of several: a|b), a third one (-v) lists all.
// LOCKSTEP_TEST_REFUSED, an extended regular expression, names the cases that may be refused; without
// it, all may. LOCKSTEP_TEST_THREADS is the number of the tested device's threads. With arena=off
// buffers have no guards, so that a tool which knows allocations sees what is beyond them. Ends with 1
// when a case failed or may not be refused, with 77 when a plugin is not here.
#include "tools/conformance/device.h"
#include "tests/support/plugin.h"

#include <regex.h>
#include <stdbool.h>
#include <stdlib.h>

struct listing {
    bool all;
    uint32_t slow; // cases that ran on a library's slow reference code
    bool some_refused; // which cases may be: `may_be_refused`
    regex_t may_be_refused;
    uint32_t unexpected; // cases that were refused though they may not be
};

static void print_result(void *context, const struct ls_conformance_result *result)
{
    static const char *const words[] = {"passed ", "FAILED ", "refused"};
    struct listing *listing = context;

    const bool slow = result->outcome == LS_CONFORMANCE_PASSED && strstr(result->message, "(slow)");
    listing->slow += slow;
    if (listing->all || slow || result->outcome != LS_CONFORMANCE_PASSED)
        printf("%s %s: %s\n", words[result->outcome], result->name, result->message);
    if (result->outcome == LS_CONFORMANCE_REFUSED && listing->some_refused &&
        regexec(&listing->may_be_refused, result->name, 0, NULL, 0)) {
        listing->unexpected++;
        printf("FAILED  %s: it may not be refused\n", result->name);
    }
}

int main(int count, char **arguments)
{
    char name[256];
    // Who ends this program in its middle wants to know how far it came.
    setvbuf(stdout, NULL, _IOLBF, 0);
    // Thousands of tiny kernels: threads that spin between them only steal time from other tests.
    setenv("OMP_WAIT_POLICY", "passive", 0);
    const char *device = count > 1 ? arguments[1] : "reference";
    const char *set = strchr(device, ':');
    snprintf(name, sizeof(name), "device-%.*s", (int)strcspn(device, ":"), device);
    const struct ls_plugin *tested = test_plugin_open(name);
    const struct ls_plugin *reference = test_plugin_open("device-reference");
    if (!tested || !reference)
        return TEST_SKIPPED;

    struct test_host tested_host, reference_host;
    test_host_init(&tested_host, tested);
    test_host_init(&reference_host, reference);
    if (set && !test_host_set(&tested_host, set + 1)) {
        printf("%s: there are no such options: %s\n", name, set + 1);
        return 2;
    }
    struct listing listing = {.all = count > 3};
    const char *refused = getenv("LOCKSTEP_TEST_REFUSED");
    listing.some_refused = refused != NULL;
    if (refused && regcomp(&listing.may_be_refused, refused, REG_EXTENDED | REG_NOSUB)) {
        printf("LOCKSTEP_TEST_REFUSED is no regular expression: %s\n", refused);
        return 2;
    }
    struct ls_conformance_counts counts = {0};
    const char *threads = getenv("LOCKSTEP_TEST_THREADS");
    const struct ls_device_conformance_options options = {
        .threads = threads ? (uint32_t)strtoul(threads, NULL, 10) : 0,
        .unguarded = set && strstr(set, "arena=off"),
        .only = count > 2 && arguments[2][0] ? arguments[2] : NULL,
    };
    const enum ls_status status =
        ls_conformance_device(tested->interface, &tested_host.host, reference->interface,
                              &reference_host.host, &options, print_result, &listing, &counts);
    printf("%s: %u passed, %u failed, %u refused, %u on slow code\n", name, counts.passed,
           counts.failed, counts.refused, listing.slow);
    if (refused)
        regfree(&listing.may_be_refused);
    return status || listing.unexpected ? 1 : 0;
}
