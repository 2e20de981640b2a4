// SPDX-License-Identifier: Apache-2.0
// Reads the files that the runs of `lockstep compare` wrote, and computes the figures.
#ifndef LS_TOOLS_COMPARE_COLLECT_H
#define LS_TOOLS_COMPARE_COLLECT_H

#include "tools/compare/comparison.h"
#include "tools/compare/child.h"
#include "tools/compare/list.h"
#include "tools/compare/yardstick.h"

// Reads all visible runners into `out->runs`, in their order, and compares them with what
// `yardstick` holds them against.
LS_STATUS compare_collect(const struct compare_race *race, const struct compare_target *target,
                          const struct compare_yardstick *yardstick, struct ls_comparison *out);

#endif
