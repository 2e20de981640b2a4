// SPDX-License-Identifier: Apache-2.0
// A comparison in words: which runs compute the same as one device.
#include "tools/compare/sentences.h"

#include <math.h>
#include <stdlib.h>

static double most_by_rounding(double spread)
{
    return isfinite(spread) ? fmax(LS_ROUNDING_MOST, LS_SPREADS_MOST * spread) : LS_ROUNDING_MOST;
}

bool ls_verdict_is_rounding(const struct ls_comparison *comparison,
                            const struct ls_compared_run *run)
{
    if (comparison->basis == LS_BASIS_BITS)
        return run->same_bits == 1;
    if (comparison->basis == LS_BASIS_SHARES)
        return run->loss_excess <= 1;
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
    return index != comparison->reference && !run->way && isfinite(run->loss_deviation) &&
           !has_failed(comparison, index) && !has_failed(comparison, comparison->reference) &&
           (comparison->basis != LS_BASIS_BITS || run->same_bits >= 0);
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
    return ls_compared_was_measured(comparison, index) && !run->way &&
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

struct deviations {
    double first_two, first_ten, all; // first_two: NaN where it is not judged
};

static void put_deviations(FILE *out, const struct deviations *deviations)
{
    if (isfinite(deviations->first_two)) {
        put_number(out, deviations->first_two);
        fputs(" in the first two steps, ", out);
    }
    put_number(out, deviations->first_ten);
    fputs(" in the first ten", out);
    fputs(isfinite(deviations->first_two) ? " and " : " steps and ", out);
    put_number(out, deviations->all);
    fputs(" over all", out);
}

// What the runs were held against.
static const char *reference_text(const struct ls_comparison *comparison)
{
    return comparison->basis == LS_BASIS_SHARES ? "one device that takes the same shares"
                                                : "one device";
}

static void put_spread(FILE *out, const struct ls_comparison *comparison)
{
    char twin[LS_TWIN_BYTES];
    if (!isfinite(comparison->rounding_spread))
        return;
    fprintf(out, "; rounding alone (%s) accounts for ", ls_twin_text(comparison, twin));
    if (isfinite(comparison->rounding_spread_first_two)) {
        put_number(out, comparison->rounding_spread_first_two);
        fputs(", ", out);
    }
    put_number(out, comparison->rounding_spread_first_ten);
    fputs(" and ", out);
    put_number(out, comparison->rounding_spread);
}

static void say_equally_correct(struct ls_sentence_writer *writer,
                                const struct ls_comparison *comparison,
                                const struct ls_picks *picks)
{
    const bool two = comparison->basis == LS_BASIS_SHARES;
    struct deviations most = {.first_two = two ? 0 : NAN};
    for (size_t i = 0; i < picks->count; i++) {
        const struct ls_compared_run *run = &comparison->runs[picks->list[i]];
        most.first_two = two ? fmax(most.first_two, run->loss_deviation_first_two) : NAN;
        most.first_ten = fmax(most.first_ten, run->loss_deviation_first_ten);
        most.all = fmax(most.all, run->loss_deviation);
    }
    FILE *out = ls_sentence_begin(writer);
    if (!out)
        return;
    ls_put_compared_names(out, comparison, picks->list, picks->count);
    fprintf(out, " %s as correct as %s: losses differ by at most ",
            picks->count == 1 ? "is" : "are equally correct, and", reference_text(comparison));
    put_deviations(out, &most);
    put_spread(out, comparison);
    fputs(".", out);
    ls_sentence_end(writer);
}

static void say_same_bits(struct ls_sentence_writer *writer, const struct ls_comparison *comparison,
                          const struct ls_picks *picks)
{
    FILE *out = ls_sentence_begin(writer);
    if (!out)
        return;
    ls_put_compared_names(out, comparison, picks->list, picks->count);
    fprintf(out,
            " %s the bits of one device: the losses of all steps, and all parameters at the end.",
            picks->count == 1 ? "has" : "have");
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
    if (comparison->basis == LS_BASIS_BITS)
        fputs(" does not have the bits of one device, as it has to: losses differ by ", out);
    else
        fprintf(out, " differs from %s by more than rounding explains: losses by ",
                reference_text(comparison));
    put_deviations(out, &(struct deviations){run->loss_deviation_first_two,
                                             run->loss_deviation_first_ten, run->loss_deviation});
    if (comparison->basis == LS_BASIS_BITS) {
        fputs(", parameters by ", out);
        put_number(out, run->parameter_deviation);
    }
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

static void say_other_way(struct ls_sentence_writer *writer, const struct ls_comparison *comparison,
                          size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    if (!run->way || !ls_compared_was_measured(comparison, index))
        return;
    const struct ls_compared_run nothing = {.final_loss = NAN, .val_accuracy = NAN};
    const struct ls_compared_run *reference = comparison->reference == LS_COMPARISON_NONE
                                                  ? &nothing
                                                  : &comparison->runs[comparison->reference];
    FILE *out = ls_sentence_begin(writer);
    if (!out)
        return;
    ls_put_compared_name(out, comparison, index);
    const bool unfiltered =
        run->replicas > 1 && comparison->steps && run->filter_begins >= comparison->steps;
    if (run->way != LS_WAY_FILTERED || !unfiltered)
        fprintf(out, " %s, so its losses cannot be compared step by step%s", ls_way_verb(run->way),
                unfiltered ? "; it" : "");
    if (unfiltered)
        fprintf(out, " was not filtered in these steps: its filter begins after %llu updates",
                (unsigned long long)run->filter_begins);
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

// So that what the reference itself reaches is not taken for the measure.
static void say_shares(struct ls_sentence_writer *writer, const struct ls_comparison *comparison)
{
    FILE *out = comparison->basis == LS_BASIS_SHARES ? ls_sentence_begin(writer) : NULL;
    if (!out)
        return;
    fputs(
        "Each replica normalizes by the statistics of its own share of a batch (BatchNormalization "
        "without synchronized), so losses depend on the number of replicas",
        out);
    if (comparison->shares_failed)
        fprintf(out,
                ". Correctness could not be judged: one device that takes the same shares failed: "
                "%s.",
                comparison->shares_failed);
    else
        fputs("; each run was compared with one device that takes the same shares.", out);
    ls_sentence_end(writer);
}

static bool has_no_reference(const struct ls_comparison *comparison, size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    return comparison->basis == LS_BASIS_MIXED && run->replicas > 1 && !run->way &&
           ls_compared_was_measured(comparison, index);
}

void ls_say_truth(struct ls_sentence_writer *writer, const struct ls_comparison *comparison)
{
    struct ls_picks equal = {0}, off = {0}, other = {0}, unequal = {0}, alone = {0};
    say_shares(writer, comparison);
    if (has_failed(comparison, comparison->reference))
        say_no_reference(writer, comparison);
    if (ls_compared_pick(comparison, is_equally_correct, &equal) &&
        ls_compared_pick(comparison, ls_compared_is_off, &off) &&
        ls_compared_pick(comparison, has_other_batch, &other) &&
        ls_compared_pick(comparison, has_no_reference, &alone) &&
        ls_compared_pick(comparison, ls_compared_has_unequal_replicas, &unequal)) {
        if (equal.count && comparison->basis == LS_BASIS_BITS)
            say_same_bits(writer, comparison, &equal);
        else if (equal.count)
            say_equally_correct(writer, comparison, &equal);
        for (size_t i = 0; i < off.count; i++)
            say_off(writer, comparison, off.list[i]);
        ls_say_names(writer, comparison, &other, "had", "had",
                     "another global batch than the reference: losses were not compared.");
        ls_say_names(
            writer, comparison, &alone, "was", "were",
            "not compared with one device: no single device computes what several replicas "
            "do where some layers are synchronized and others are not.");
        ls_say_names(writer, comparison, &unequal, "ended", "ended",
                     "with replicas that are not equal.");
    } else {
        writer->failed = true;
    }
    free(equal.list);
    free(off.list);
    free(other.list);
    free(unequal.list);
    free(alone.list);
    for (size_t i = 0; i < comparison->run_count; i++)
        say_other_way(writer, comparison, i);
}
