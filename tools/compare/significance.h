// SPDX-License-Identifier: Apache-2.0
// Tests whether two strategies differ in speed, given the speeds of several processes of each.
// [any thread]
//
// The process is the unit: speeds within one process resemble each other more than those of two
// processes of the same program (memory layout, placement, the state of the machine), so only
// differences between processes tell what chance does. Processes come in blocks, one of each
// strategy, which take turns; what a block has in common cancels.
#ifndef LS_TOOLS_COMPARE_SIGNIFICANCE_H
#define LS_TOOLS_COMPARE_SIGNIFICANCE_H

#include <stdbool.h>
#include <stddef.h>

#define LS_SIGNIFICANT 0.01 // largest p of a difference
#define LS_CONFIDENCE 0.95 // of the interval
#define LS_LEAST_BLOCKS 3 // with fewer, the spread is not known
#define LS_POWER \
    0.8 // chance to see a difference that is there, with as many blocks as ls_blocks_needed() says

struct ls_paired {
    double difference; // mean of ln(a / b) over the blocks
    double low, high; // its 95 % confidence interval
    double deviation; // standard deviation over the blocks
    double p; // two-sided
    size_t blocks; // that both have
};

// Student's paired t-test of the logarithms of `a` and `b`, speeds by block; one that is not finite
// has none. False with fewer than LS_LEAST_BLOCKS in common: then only `blocks` is set, and
// `difference` where there is one at all (else NaN).
bool ls_paired_test(const double *a, const double *b, size_t count, struct ls_paired *out);

// Corrects the p of several comparisons, in place, for their number (Holm 1979): the chance that
// any of those at or below LS_SIGNIFICANT is wrong stays at or below that. `order` has room for
// `count`.
void ls_correct_by_holm(double *p, size_t count, size_t *order);

// Blocks in which a true `difference` (of logarithms) would be found with a chance of LS_POWER,
// with `deviation` over the blocks, and when `comparisons` are made at the same time.
double ls_blocks_needed(double difference, double deviation, size_t comparisons);

// Student's distribution: the chance of a |t| at least this large, and the t whose two-sided chance
// is `p`.
double ls_student_two_sided(double t, double freedom);
double ls_student_limit(double p, double freedom);

#endif
