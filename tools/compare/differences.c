// SPDX-License-Identifier: Apache-2.0
// Which runs of a comparison differ in speed.
#include "tools/compare/comparison.h"
#include "tools/compare/significance.h"

#include <math.h>
#include <stdlib.h>

#define LEAST_DIFFERENCE 0.01 // the smallest that needed_steps is estimated for
#define NEEDED_MOST 1e15 // steps

static bool has_finished(const struct ls_comparison *comparison, size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    return run->status == LS_COMPARED_DONE && isfinite(run->rate) && run->rate > 0;
}

static bool is_extra(const struct ls_comparison *comparison, size_t index)
{
    return comparison->reference_is_extra && index == comparison->reference;
}

// Steps of one process, in the run that had fewer.
static double steps_of_process(const struct ls_compared_run *a, const struct ls_compared_run *b)
{
    const double ours = (double)a->timed_steps / (double)a->process_count;
    const double theirs = (double)b->timed_steps / (double)b->process_count;
    return fmin(ours, theirs);
}

// Two digits, upwards: it is an estimate.
static double round_up(double value)
{
    const double unit = pow(10, floor(log10(value)) - 1);
    return unit > 1 ? ceil(value / unit) * unit : ceil(value);
}

static void find_needed(const struct ls_comparison *comparison, const struct ls_paired *paired,
                        size_t comparisons, struct ls_difference *out)
{
    const struct ls_compared_run *a = &comparison->runs[out->a], *b = &comparison->runs[out->b];
    const double wanted = fmax(fabs(paired->difference), log1p(LEAST_DIFFERENCE));
    const double blocks =
        fmax(ls_blocks_needed(wanted, paired->deviation, comparisons), (double)paired->blocks + 1);
    const double steps = round_up(blocks * steps_of_process(a, b));
    out->needed_percent = 100 * expm1(wanted);
    out->needed_steps = steps < NEEDED_MOST ? (uint64_t)steps : 0;
}

static void compare(const struct ls_comparison *comparison, struct ls_difference *out,
                    struct ls_paired *paired)
{
    const struct ls_compared_run *a = &comparison->runs[out->a], *b = &comparison->runs[out->b];
    const size_t blocks = a->process_count < b->process_count ? a->process_count : b->process_count;
    (void)ls_paired_test(a->process_rates, b->process_rates, blocks, paired);
    // Without a common block all that is known is the speed of each.
    out->ratio = paired->blocks ? exp(paired->difference) : a->rate / b->rate;
    out->low = exp(paired->low);
    out->high = exp(paired->high);
    out->p = paired->p;
}

// Corrects a family, whose members lie behind each other, and says which differ.
static enum ls_status conclude(const struct ls_comparison *comparison, struct ls_difference *family,
                               const struct ls_paired *paired, size_t count)
{
    double *p = calloc(count + 1, sizeof(*p));
    size_t *order = calloc(count + 1, sizeof(*order)), known = 0;
    const enum ls_status status = p && order ? LS_OK : LS_OUT_OF_MEMORY;
    for (size_t i = 0; !status && i < count; i++)
        if (isfinite(family[i].p))
            p[known++] = family[i].p;
    if (!status)
        ls_correct_by_holm(p, known, order);
    const size_t comparisons = known;
    for (size_t i = known = 0; !status && i < count; i++) {
        if (!isfinite(family[i].p))
            continue;
        family[i].p = p[known++];
        family[i].different = family[i].p <= LS_SIGNIFICANT;
        if (!family[i].different)
            find_needed(comparison, &paired[i], comparisons, &family[i]);
    }
    free(p);
    free(order);
    return status;
}

enum ls_status ls_comparison_measure(struct ls_comparison *comparison)
{
    const size_t runs = comparison->run_count, most = runs * (runs + 1) / 2 + 1;
    struct ls_difference *differences = calloc(most, sizeof(*differences));
    struct ls_paired *paired = calloc(most, sizeof(*paired));
    enum ls_status status = differences && paired ? LS_OK : LS_OUT_OF_MEMORY;
    size_t count = 0, named = 0;
    for (int extra = 0; !status && extra <= 1; extra++) {
        for (size_t a = 0; a < runs; a++)
            for (size_t b = a + 1; b < runs; b++) {
                if (!has_finished(comparison, a) || !has_finished(comparison, b) ||
                    (is_extra(comparison, a) || is_extra(comparison, b)) != extra)
                    continue;
                differences[count] = (struct ls_difference){.a = a, .b = b};
                compare(comparison, &differences[count], &paired[count]);
                count++;
            }
        status = conclude(comparison, differences + named, paired + named, count - named);
        named = count;
    }
    free(paired);
    if (status) {
        free(differences);
        return status;
    }
    free(comparison->differences);
    comparison->differences = differences;
    comparison->difference_count = count;
    return LS_OK;
}

const struct ls_difference *ls_comparison_between(const struct ls_comparison *comparison, size_t a,
                                                  size_t b)
{
    for (size_t i = 0; i < comparison->difference_count; i++) {
        const struct ls_difference *difference = &comparison->differences[i];
        if ((difference->a == a && difference->b == b) ||
            (difference->a == b && difference->b == a))
            return difference;
    }
    return NULL;
}
