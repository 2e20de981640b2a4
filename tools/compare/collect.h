// SPDX-License-Identifier: Apache-2.0
// Reads the files that the runs of `lockstep compare` wrote, and computes the figures.
#ifndef LS_TOOLS_COMPARE_COLLECT_H
#define LS_TOOLS_COMPARE_COLLECT_H

#include "tools/compare/comparison.h"
#include "tools/compare/child.h"
#include "tools/compare/list.h"

struct compare_race;

// Reads all visible runners into `out->runs`, in their order, and compares them with `reference`; `twin` is the
// reference with its batch in two halves. Both are indices of runners.
LS_STATUS compare_collect(const struct compare_race *race, const struct compare_target *target,
                          size_t reference, size_t twin, struct ls_comparison *out);

#endif
