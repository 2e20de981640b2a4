// SPDX-License-Identifier: Apache-2.0
// A comparison in words: which runs compute the same as one device.
#include "tools/compare/sentences.h"

#include <math.h>
#include <stdlib.h>

// What rounding may do to the losses of the first ten steps, before it has grown.
#define FIRST_TEN_MOST 5e-6
// One difference by rounding tells the size of another, not its bound.
#define SPREADS_MOST 10

static double most_by_rounding(double spread)
{
    return isfinite(spread) ? fmax(FIRST_TEN_MOST, SPREADS_MOST * spread) : FIRST_TEN_MOST;
}

bool ls_verdict_is_rounding(const struct ls_comparison *comparison,
                            const struct ls_compared_run *run)
{
    return run->loss_deviation_first_ten <=
               most_by_rounding(comparison->rounding_spread_first_ten) &&
           run->loss_deviation <= most_by_rounding(comparison->rounding_spread);
}

static bool has_failed(const struct ls_comparison *comparison, size_t index)
{
    return index != LS_COMPARISON_NONE &&
           (comparison->runs[index].status == LS_COMPARED_FAILED ||
            comparison->runs[index].status == LS_COMPARED_UNAVAILABLE);
}

static bool is_compared(const struct ls_comparison *comparison, size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    return index != comparison->reference && run->synchronous && isfinite(run->loss_deviation) &&
           !has_failed(comparison, index) && !has_failed(comparison, comparison->reference);
}

static bool is_equally_correct(const struct ls_comparison *comparison, size_t index)
{
    return is_compared(comparison, index) &&
           ls_verdict_is_rounding(comparison, &comparison->runs[index]);
}

bool ls_compared_is_off(const struct ls_comparison *comparison, size_t index)
{
    return is_compared(comparison, index) && !is_equally_correct(comparison, index);
}

static bool has_other_batch(const struct ls_comparison *comparison, size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    return ls_compared_was_measured(comparison, index) && run->synchronous &&
           run->global_batch != comparison->global_batch;
}

bool ls_compared_has_unequal_replicas(const struct ls_comparison *comparison, size_t index)
{
    return comparison->runs[index].replicas_equal == 0;
}

static void put_number(FILE *out, double value)
{
    fprintf(out, value > 0 ? "%.1e" : "%g", value);
}

static void put_deviations(FILE *out, double first_ten, double all)
{
    put_number(out, first_ten);
    fputs(" in the first ten steps and ", out);
    put_number(out, all);
    fputs(" over all", out);
}

static void put_spread(FILE *out, const struct ls_comparison *comparison)
{
    if (!isfinite(comparison->rounding_spread))
        return;
    fputs("; rounding alone (one device, each batch in two halves) makes ", out);
    put_number(out, comparison->rounding_spread_first_ten);
    fputs(" and ", out);
    put_number(out, comparison->rounding_spread);
}

static void say_equally_correct(struct ls_sentence_writer *writer,
                                const struct ls_comparison *comparison,
                                const struct ls_picks *picks)
{
    double first = 0, all = 0;
    for (size_t i = 0; i < picks->count; i++) {
        const struct ls_compared_run *run = &comparison->runs[picks->list[i]];
        first = fmax(first, run->loss_deviation_first_ten);
        all = fmax(all, run->loss_deviation);
    }
    FILE *out = ls_sentence_begin(writer);
    if (!out)
        return;
    ls_put_compared_names(out, comparison, picks->list, picks->count);
    fprintf(out, " %s as correct as one device: losses differ by at most ",
            picks->count == 1 ? "is" : "are equally correct, and");
    put_deviations(out, first, all);
    put_spread(out, comparison);
    fputs(".", out);
    ls_sentence_end(writer);
}

static void say_off(struct ls_sentence_writer *writer, const struct ls_comparison *comparison,
                    size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    FILE *out = ls_sentence_begin(writer);
    if (!out)
        return;
    ls_put_compared_name(out, comparison, index);
    fputs(" differs from one device by more than rounding explains: losses by ", out);
    put_deviations(out, run->loss_deviation_first_ten, run->loss_deviation);
    put_spread(out, comparison);
    fputs(".", out);
    ls_sentence_end(writer);
}

static void put_pair(FILE *out, const char *what, double value, double reference)
{
    if (!isfinite(value))
        return;
    fprintf(out, "%s %.4f", what, value);
    if (isfinite(reference))
        fprintf(out, " (one device: %.4f)", reference);
}

static void say_asynchronous(struct ls_sentence_writer *writer,
                             const struct ls_comparison *comparison, size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    if (run->synchronous || !ls_compared_was_measured(comparison, index))
        return;
    const struct ls_compared_run nothing = {.final_loss = NAN, .val_accuracy = NAN};
    const struct ls_compared_run *reference = comparison->reference == LS_COMPARISON_NONE
                                                  ? &nothing
                                                  : &comparison->runs[comparison->reference];
    FILE *out = ls_sentence_begin(writer);
    if (!out)
        return;
    ls_put_compared_name(out, comparison, index);
    fputs(" is asynchronous, so its losses cannot be compared step by step", out);
    put_pair(out, "; it ended with a loss of", run->final_loss, reference->final_loss);
    put_pair(out, " and a validation accuracy of", run->val_accuracy, reference->val_accuracy);
    fputs(".", out);
    ls_sentence_end(writer);
}

// Without it nothing tells a right run from a wrong one.
static void say_no_reference(struct ls_sentence_writer *writer,
                             const struct ls_comparison *comparison)
{
    const struct ls_compared_run *reference = &comparison->runs[comparison->reference];
    FILE *out = ls_sentence_begin(writer);
    if (!out)
        return;
    fprintf(out, "Correctness could not be judged: the reference (%s) %s.", reference->strategy,
            reference->status == LS_COMPARED_FAILED ? "failed" : "could not run here");
    ls_sentence_end(writer);
}

void ls_say_truth(struct ls_sentence_writer *writer, const struct ls_comparison *comparison)
{
    struct ls_picks equal = {0}, off = {0}, other = {0}, unequal = {0};
    if (has_failed(comparison, comparison->reference))
        say_no_reference(writer, comparison);
    if (ls_compared_pick(comparison, is_equally_correct, &equal) &&
        ls_compared_pick(comparison, ls_compared_is_off, &off) &&
        ls_compared_pick(comparison, has_other_batch, &other) &&
        ls_compared_pick(comparison, ls_compared_has_unequal_replicas, &unequal)) {
        if (equal.count)
            say_equally_correct(writer, comparison, &equal);
        for (size_t i = 0; i < off.count; i++)
            say_off(writer, comparison, off.list[i]);
        ls_say_names(writer, comparison, &other, "had", "had",
                     "another global batch than the reference: losses were not compared.");
        ls_say_names(writer, comparison, &unequal, "ended", "ended",
                     "with replicas that are not equal.");
    } else {
        writer->failed = true;
    }
    free(equal.list);
    free(off.list);
    free(other.list);
    free(unequal.list);
    for (size_t i = 0; i < comparison->run_count; i++)
        say_asynchronous(writer, comparison, i);
}
