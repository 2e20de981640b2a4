// SPDX-License-Identifier: Apache-2.0
// A comparison in words: each sentence is computed from its figures. [main thread]
#ifndef LS_TOOLS_COMPARE_VERDICT_H
#define LS_TOOLS_COMPARE_VERDICT_H

#include "tools/compare/comparison.h"

struct ls_sentences {
    char **list;
    size_t count;
};

// Which run is fastest, and whether that is more than noise; whether more replicas help; what limits
// each run; which runs are equally correct, reached the target, or could not run. LS_OUT_OF_MEMORY.
LS_STATUS ls_verdict(const struct ls_comparison *comparison, struct ls_sentences *out);
// What to try next.
LS_STATUS ls_suggestions(const struct ls_comparison *comparison, struct ls_sentences *out);
void ls_sentences_finish(struct ls_sentences *sentences); // takes a zeroed one

// The largest part of a step that could be reduced.
enum ls_limit {
    LS_LIMIT_UNKNOWN,
    LS_LIMIT_COMPUTE,
    LS_LIMIT_INPUT,
    LS_LIMIT_COMMUNICATION,
    LS_LIMIT_UPDATE,
    LS_LIMIT_DEVICE, // the host waits for the device; kernels and reductions are not timed apart
    LS_LIMIT_OVERHEAD,
};
enum ls_limit ls_verdict_limit(const struct ls_compared_times *times);

// Whether the losses of a synchronous run differ from the reference by no more than rounding explains: 5e-6, or ten times
// what it does to the reference alone, in the first ten steps and over all; with LS_BASIS_SHARES,
// by each step (compare_excess).
bool ls_verdict_is_rounding(const struct ls_comparison *comparison,
                            const struct ls_compared_run *run);

#endif
