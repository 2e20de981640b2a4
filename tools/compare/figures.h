// SPDX-License-Identifier: Apache-2.0
// Figures that `lockstep compare` computes from the steps of a run.
#ifndef LS_TOOLS_COMPARE_FIGURES_H
#define LS_TOOLS_COMPARE_FIGURES_H

#include "tools/compare/comparison.h"
#include "tools/compare/child.h"

#define COMPARE_LAST_STEPS 100 // that a figure of training is a mean over, at most

// Examples/s of each turn. The first step of a longer turn is left out, because its caches are cold
// and its input was prepared while others computed. A turn of one step counts, except the very first.
// `rates` has room for `count`; returns the number of rates, in the order of time.
size_t compare_rates(const struct compare_step *steps, size_t count, double *rates);
void compare_sort(double *values, size_t count);
// The value below which `share` of `count` sorted values lie, between two of them in proportion; NaN without any.
double compare_quantile(const double *sorted, size_t count, double share);
// Over the finite values; NaN without any.
double compare_geometric_mean(const double *values, size_t count);

// Largest relative difference of the losses of the first `most` steps that both have; NaN without any, or where a
// loss is not finite.
double compare_losses(const struct compare_step *a, size_t a_count, const struct compare_step *b,
                      size_t b_count, size_t most);

// The same over the first 1, 2, 3, ... steps. `out` has room for the smaller count; returns how
// many there are: none follow a loss that is not finite.
size_t compare_growth(const struct compare_step *a, size_t a_count, const struct compare_step *b,
                      size_t b_count, double *out);
// The largest deviation of a loss of `a` from that of `b` over what rounding explains; above 1,
// rounding does not. `spread` is the growth of rounding alone.
//
// Where rounding decides whether a ReLU is open, it grows at once by orders of magnitude, at a step
// that two runs do not share. So step k is held against rounding up to step 3k. The first update is
// the exception: what replicas compute before it is the same to the bit, and the loss after it does
// not jump, so that no strategy has an excuse in the first two losses.
double compare_excess(const struct compare_step *a, size_t a_count, const struct compare_step *b,
                      size_t b_count, const double *spread, size_t spread_count);

// Means over the examples of some steps; NaN without steps.
struct compare_mean {
    double loss, accuracy;
};
// Over steps [first, end).
struct compare_mean compare_mean_of(const struct compare_step *steps, size_t first, size_t end);
// The last steps: a tenth of all, at least one, at most 100.
struct compare_mean compare_mean(const struct compare_step *steps, size_t count);

// Of the means over as many neighbouring steps: the least. NaN: there is none that is finite.
double compare_best_loss(const struct compare_step *steps, size_t count);
// The first step at which such a mean is at most `loss`, from 1; 0: none.
uint64_t compare_step_of_loss(const struct compare_step *steps, size_t count, double loss);

// At most some 200 points: each the mean since the one before it. Epochs end at a point. LS_OUT_OF_MEMORY.
LS_STATUS compare_curve(const struct compare_step *steps, size_t count, uint64_t epoch_steps,
                        bool accuracy, struct ls_compared_point **out, size_t *out_count);

// Gives the times of a run the length that was timed: its training was under another load than that
// of other runs, so its own times might rank them in another order. The parts of a step keep their
// shares and add up to it; the values of curves stay. Takes a run with a rate above 0.
void compare_set_times(struct ls_compared_run *run);

#endif
