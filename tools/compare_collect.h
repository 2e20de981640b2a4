// SPDX-License-Identifier: Apache-2.0
// What the runs of `lockstep compare` left in their folders, as figures.
#ifndef LS_TOOLS_COMPARE_COLLECT_H
#define LS_TOOLS_COMPARE_COLLECT_H

#include "core/report/comparison.h"
#include "tools/compare_child.h"
#include "tools/compare_list.h"

struct compare_race;

// Reads all visible runners into `out->runs`, in their order, and compares them with `reference`; `twin` is the
// reference with its batch in two halves. Both are indices of runners.
LS_STATUS compare_collect(const struct compare_race *race, const struct compare_target *target,
                          size_t reference, size_t twin, struct ls_comparison *out);

// ---- What it is made of ----

// Examples/s of each turn. The first step of a turn is left out where there are more: its caches are cold, and its input
// was prepared while others computed. A turn of one step counts, but for the first of all. `rates` has room for
// `count`; returns how many there are, in the order of time.
size_t compare_rates(const struct compare_step *steps, size_t count, double *rates);
void compare_sort(double *values, size_t count);
// The value below which `share` of `count` sorted values lie, between two of them in proportion; NaN without any.
double compare_quantile(const double *sorted, size_t count, double share);

// Largest relative difference of the losses of the first `most` steps that both have; NaN without any.
double compare_losses(const struct compare_step *a, size_t a_count, const struct compare_step *b,
                      size_t b_count, size_t most);

// A mean over the last steps: a tenth of all, at most 100.
struct compare_mean {
    double loss, accuracy;
};
struct compare_mean compare_mean(const struct compare_step *steps, size_t count);

// At most some 200 points: each the mean since the one before it. Epochs end at a point. LS_OUT_OF_MEMORY.
LS_STATUS compare_curve(const struct compare_step *steps, size_t count, uint64_t epoch_steps,
                        bool accuracy, struct ls_compared_point **out, size_t *out_count);

#endif
