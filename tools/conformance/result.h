// SPDX-License-Identifier: Apache-2.0
// The result of a conformance suite for each of its cases. The suites are plain functions, which tests
// and `lockstep plugin check` call alike; the caller decides what to print.
#ifndef LS_TOOLS_CONFORMANCE_RESULT_H
#define LS_TOOLS_CONFORMANCE_RESULT_H

#include <stdbool.h>
#include <stdint.h>

enum ls_conformance_outcome {
    LS_CONFORMANCE_PASSED,
    LS_CONFORMANCE_FAILED,
    LS_CONFORMANCE_REFUSED, // the plugin does not offer this, and need not
};

struct ls_conformance_result {
    const char *name; // "conv2d_backward_data B=5 13x11x24 -> 33 3x3 s2 same"
    enum ls_conformance_outcome outcome;
    const char *message; // one line: why it failed or was refused, or which implementation passed
};

// Called once for each case, in the order in which they run; the texts are borrowed. [main thread]
typedef void (*ls_conformance_report)(void *context, const struct ls_conformance_result *result);

// Asked before each case whether it shall run, with the context of the report: so that a caller can run cases
// one by one, each in a process of its own. Suites have the same cases in the same order every time. [main thread]
typedef bool (*ls_conformance_wanted)(void *context, const char *name);

struct ls_conformance_counts {
    uint32_t passed, failed, refused;
};

#endif
