// SPDX-License-Identifier: Apache-2.0
// A comparison in words: speed, what limits it, the target, and what did not run.
#include "tools/compare/sentences.h"
#include "tools/compare/significance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GAIN_LEAST 1.1 // speed-ups below are none
#define MORE_CORES 1.5 // from this factor on there is something to gain

// ---- Speed ----

// What was measured and stands in `relation` to the run with the highest speed.
struct leaders {
    size_t best;
    struct ls_picks level, slower, unknown;
};

static bool find_leaders(const struct ls_comparison *comparison, size_t best, struct leaders *out)
{
    struct ls_picks *const lists[] = {&out->level, &out->slower, &out->unknown};
    bool complete = true;
    out->best = best;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        lists[i]->count = 0;
        lists[i]->list = calloc(comparison->run_count + 1, sizeof(size_t));
        complete = complete && lists[i]->list;
    }
    for (size_t i = 0; complete && i < comparison->run_count; i++) {
        if (i == best || !ls_compared_was_measured(comparison, i))
            continue;
        struct ls_picks *list = ls_compared_is_faster(comparison, best, i)  ? &out->slower
                                : ls_compared_is_level(comparison, best, i) ? &out->level
                                                                            : &out->unknown;
        list->list[list->count++] = i;
    }
    return complete;
}

static void put_examples(FILE *out, const struct ls_comparison *comparison, size_t index)
{
    char text[LS_GROUPED_BYTES];
    fprintf(out, "%s examples/s", ls_grouped(comparison->runs[index].rate, text));
}

// "1.27 times tree (95 % confidence: 1.24 to 1.30)": how much faster `a` is.
static void put_ratio(FILE *out, const struct ls_comparison *comparison, size_t a, size_t b)
{
    const struct ls_difference *difference = ls_comparison_between(comparison, a, b);
    const bool turned = difference->a == b;
    const double low = turned ? 1 / difference->high : difference->low;
    const double high = turned ? 1 / difference->low : difference->high;
    fprintf(out, "%.2f times ", turned ? 1 / difference->ratio : difference->ratio);
    ls_put_compared_name(out, comparison, b);
    fprintf(out, " (95 %% confidence: %.2f to %.2f)", low, high);
}

static void say_leader(struct ls_sentence_writer *writer, const struct ls_comparison *comparison,
                       size_t best)
{
    const struct ls_compared_run *run = &comparison->runs[best];
    const size_t next = ls_compared_highest(comparison, best, false);
    char text[2][LS_GROUPED_BYTES];
    FILE *out = ls_sentence_begin(writer);
    if (!out)
        return;
    ls_put_compared_name(out, comparison, best);
    fputs(next == LS_COMPARISON_NONE ? " is the only one that was measured: " : " is the fastest: ",
          out);
    put_examples(out, comparison, best);
    if (run->round_count > 1)
        fprintf(out, " (half of its turns between %s and %s)", ls_grouped(run->rate_low, text[0]),
                ls_grouped(run->rate_high, text[1]));
    const size_t in_step = ls_compared_highest(comparison, LS_COMPARISON_NONE, true);
    if (run->way && in_step != LS_COMPARISON_NONE) {
        fprintf(out, "; it %s, and of the %s, ", ls_way_verb(run->way),
                run->way == LS_WAY_ASYNCHRONOUS ? "synchronous strategies"
                                                : "strategies that compute what one device does");
        ls_put_compared_name(out, comparison, in_step);
        fputs(ls_compared_leads(comparison, in_step, true) ? " is the fastest with "
                                                           : " had the highest speed, not "
                                                             "measurably above the next: ",
              out);
        put_examples(out, comparison, in_step);
    }
    fputs(".", out);
    ls_sentence_end(writer);
    out = next == LS_COMPARISON_NONE ? NULL : ls_sentence_begin(writer);
    if (!out)
        return;
    fputs("That is ", out);
    put_ratio(out, comparison, best, next);
    fputs(", the next.", out);
    ls_sentence_end(writer);
}

static bool all_level(const struct ls_comparison *comparison, const struct ls_picks *picks)
{
    for (size_t i = 0; i < picks->count; i++)
        for (size_t j = 0; j < i; j++)
            if (!ls_compared_is_level(comparison, picks->list[i], picks->list[j]))
                return false;
    return true;
}

// What was found, and never that one of them is the fastest.
static void say_level(struct ls_sentence_writer *writer, const struct ls_comparison *comparison,
                      const struct leaders *leaders)
{
    const struct ls_picks *level = &leaders->level;
    const size_t best = leaders->best;
    double least = comparison->runs[best].rate;
    char text[2][LS_GROUPED_BYTES];
    for (size_t i = 0; i < level->count; i++)
        least = fmin(least, comparison->runs[level->list[i]].rate);
    FILE *out = ls_sentence_begin(writer);
    if (!out)
        return;
    fputs("No difference in speed was measured between ", out);
    ls_put_compared_name(out, comparison, best);
    if (all_level(comparison, level)) {
        for (size_t i = 0; i < level->count; i++) {
            fputs(i + 1 == level->count ? " and " : ", ", out);
            ls_put_compared_name(out, comparison, level->list[i]);
        }
    } else {
        fputs(" and each of ", out);
        ls_put_compared_names(out, comparison, level->list, level->count);
    }
    fprintf(out, ": %s to %s examples/s.", ls_grouped(least, text[0]),
            ls_grouped(comparison->runs[best].rate, text[1]));
    ls_sentence_end(writer);
}

// What it would take to see the difference of the two with the highest speeds, if there is one.
static void say_needed(struct ls_sentence_writer *writer, const struct ls_comparison *comparison,
                       const struct leaders *leaders)
{
    size_t next = leaders->level.list[0];
    for (size_t i = 1; i < leaders->level.count; i++)
        if (comparison->runs[leaders->level.list[i]].rate > comparison->runs[next].rate)
            next = leaders->level.list[i];
    const struct ls_difference *difference = ls_comparison_between(comparison, leaders->best, next);
    FILE *out = ls_sentence_begin(writer);
    if (!out)
        return;
    ls_put_compared_name(out, comparison, leaders->best);
    fputs(" at ", out);
    put_ratio(out, comparison, leaders->best, next);
    fprintf(out,
            " is within the noise: p = %.2g, and a difference counts where p is at most %g. To see "
            "one of %.2g %% on this machine as it was, ",
            difference->p, LS_SIGNIFICANT, difference->needed_percent);
    if (difference->needed_steps)
        fprintf(out, "%s=%llu would be needed (%llu were timed).",
                comparison->for_python ? "speed_steps" : "--speed-steps",
                (unsigned long long)difference->needed_steps,
                (unsigned long long)comparison->runs[next].timed_steps);
    else
        fputs("more steps would be needed than can be timed.", out);
    ls_sentence_end(writer);
}

static void say_slower(struct ls_sentence_writer *writer, const struct ls_comparison *comparison,
                       const struct leaders *leaders)
{
    const struct ls_picks *slower = &leaders->slower;
    FILE *out = slower->count ? ls_sentence_begin(writer) : NULL;
    if (!out)
        return;
    ls_put_compared_name(out, comparison, leaders->best);
    fputs(" is faster than the others: ", out);
    for (size_t i = 0; i < slower->count; i++) {
        fputs(i == 0 ? "" : i + 1 == slower->count ? " and " : ", ", out);
        put_ratio(out, comparison, leaders->best, slower->list[i]);
    }
    fputs(".", out);
    ls_sentence_end(writer);
}

static void say_unknown(struct ls_sentence_writer *writer, const struct ls_comparison *comparison,
                        const struct leaders *leaders)
{
    FILE *out = ls_sentence_begin(writer);
    if (!out)
        return;
    fputs("The fastest is not known, because too few processes were timed: ", out);
    ls_put_compared_name(out, comparison, leaders->best);
    fputs(" had ", out);
    put_examples(out, comparison, leaders->best);
    for (size_t i = 0; i < leaders->unknown.count; i++) {
        fputs(i + 1 == leaders->unknown.count ? " and " : ", ", out);
        ls_put_compared_name(out, comparison, leaders->unknown.list[i]);
        fputs(" ", out);
        put_examples(out, comparison, leaders->unknown.list[i]);
    }
    fputs(".", out);
    ls_sentence_end(writer);
}

static void say_fastest(struct ls_sentence_writer *writer, const struct ls_comparison *comparison)
{
    const size_t best = ls_compared_highest(comparison, LS_COMPARISON_NONE, false);
    struct leaders leaders = {0};
    if (best == LS_COMPARISON_NONE)
        return;
    if (!find_leaders(comparison, best, &leaders)) {
        writer->failed = true;
    } else if (leaders.unknown.count) {
        say_unknown(writer, comparison, &leaders);
    } else if (leaders.level.count) {
        say_level(writer, comparison, &leaders);
        say_needed(writer, comparison, &leaders);
        say_slower(writer, comparison, &leaders);
    } else {
        say_leader(writer, comparison, best);
    }
    free(leaders.level.list);
    free(leaders.slower.list);
    free(leaders.unknown.list);
}

// ---- Scaling ----

// The run with the most replicas of its strategy.
static bool is_largest(const struct ls_comparison *comparison, size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    if (!ls_compared_was_measured(comparison, index))
        return false;
    for (size_t i = 0; i < comparison->run_count; i++)
        if (ls_compared_was_measured(comparison, i) &&
            comparison->runs[i].replicas > run->replicas &&
            strcmp(comparison->runs[i].strategy, run->strategy) == 0)
            return false;
    return true;
}

// What a run with several replicas is held against: its strategy with one, else the reference.
static size_t base_of(const struct ls_comparison *comparison, size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    for (size_t i = 0; i < comparison->run_count; i++)
        if (ls_compared_was_measured(comparison, i) && comparison->runs[i].replicas == 1 &&
            strcmp(comparison->runs[i].strategy, run->strategy) == 0)
            return i;
    const size_t reference = comparison->reference;
    return reference != LS_COMPARISON_NONE && ls_compared_was_measured(comparison, reference)
               ? reference
               : LS_COMPARISON_NONE;
}

static void put_cores(FILE *out, double cores)
{
    fprintf(out, "%.0f core%s", cores, cores == 1 ? "" : "s");
}

// The same cores, divided otherwise: which way is better?
static void say_division(FILE *out, const struct ls_comparison *comparison, size_t index,
                         size_t base)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    const struct ls_compared_run *one = &comparison->runs[base];
    const bool level = ls_compared_is_level(comparison, index, base);
    fputs(level ? "No difference was measured between " : "", out);
    ls_put_compared_name(out, comparison, index);
    if (level)
        fputs(" and ", out);
    else
        fprintf(out, " is %.2f times as fast as ", run->rate / one->rate);
    ls_put_compared_name(out, comparison, base);
    fputs(" on the same ", out);
    put_cores(out, run->cores);
    fprintf(out, ": %u replicas of %u thread%s against one of %u.", run->replicas, run->threads,
            run->threads == 1 ? "" : "s", one->threads);
}

static void say_no_gain(FILE *out, const struct ls_comparison *comparison, size_t index,
                        double gain)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    const struct ls_compared_times *times = &run->times;
    const double share = 100 * times->compute / times->median;
    ls_put_compared_name(out, comparison, index);
    switch (ls_verdict_limit(times)) {
    case LS_LIMIT_INPUT:
        fprintf(out, " gains nothing from %u replicas (%.2f times one): they wait for input.",
                run->replicas, gain);
        break;
    case LS_LIMIT_COMPUTE:
    case LS_LIMIT_UNKNOWN:
        fprintf(
            out,
            " gains nothing from %u replicas (%.2f times one), though kernels take %.0f %% of a "
            "step: the replicas share what they compute with, or other programs run.",
            run->replicas, gain, share);
        break;
    case LS_LIMIT_DEVICE:
        fprintf(out,
                " gains nothing from %u replicas (%.2f times one), though the host waits for the "
                "device %.0f %% of a step: the replicas share it, or the reductions take what "
                "they gain.",
                run->replicas, gain, 100 * times->device / times->median);
        break;
    default:
        if (times->device > 0) { // what its kernels take is not known
            fprintf(out,
                    ": the model is too small to gain from %u replicas (%.2f times one): a step "
                    "takes %.2f ms.",
                    run->replicas, gain, 1e3 * times->median);
            break;
        }
        fprintf(out,
                ": the model is too small to gain from %u replicas (%.2f times one): kernels take "
                "only %.0f %% of a step of %.2f ms.",
                run->replicas, gain, share, 1e3 * times->median);
    }
}

// Whether the run and its base divide the same cores otherwise.
static bool divides(const struct ls_comparison *comparison, size_t index, size_t base)
{
    return comparison->runs[index].cores / comparison->runs[base].cores < MORE_CORES;
}

static void say_scaling_of(struct ls_sentence_writer *writer,
                           const struct ls_comparison *comparison, size_t index, size_t base)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    const double gain = run->rate / comparison->runs[base].rate;
    const double ideal = run->cores / comparison->runs[base].cores;
    FILE *out = ls_sentence_begin(writer);
    if (!out)
        return;
    if (divides(comparison, index, base)) {
        say_division(out, comparison, index, base);
    } else if (gain < GAIN_LEAST) {
        say_no_gain(out, comparison, index, gain);
    } else if (ls_compared_is_level(comparison, index, base)) {
        fprintf(out, "No gain from the %u replicas of ", run->replicas);
        ls_put_compared_name(out, comparison, index);
        fputs(" was measured: it was at ", out);
        put_ratio(out, comparison, index, base);
        fputs(".", out);
    } else {
        ls_put_compared_name(out, comparison, index);
        fprintf(out, " gains %.2f times one replica's speed, of %.1f possible (%.0f %%).", gain,
                ideal, 100 * gain / ideal);
    }
    ls_sentence_end(writer);
}

// Several runs that divide the same cores in the same way, against one that does it otherwise.
static void say_divisions(struct ls_sentence_writer *writer, const struct ls_comparison *comparison,
                          const struct ls_picks *picks, size_t base)
{
    const struct ls_compared_run *first = &comparison->runs[picks->list[0]];
    const struct ls_compared_run *one = &comparison->runs[base];
    struct ls_picks same = {.list = calloc(picks->count, sizeof(size_t))};
    size_t told = 0;
    FILE *out = same.list ? ls_sentence_begin(writer) : NULL;
    if (!out) {
        writer->failed = true;
        free(same.list);
        return;
    }
    fputs("On the same ", out);
    put_cores(out, first->cores);
    fprintf(out, ", %u replicas of %u thread%s against ", first->replicas, first->threads,
            first->threads == 1 ? "" : "s");
    ls_put_compared_name(out, comparison, base);
    fprintf(out, " with one of %u: ", one->threads);
    for (size_t i = 0; i < picks->count; i++) {
        const struct ls_compared_run *run = &comparison->runs[picks->list[i]];
        if (ls_compared_is_level(comparison, picks->list[i], base)) {
            same.list[same.count++] = picks->list[i];
            continue;
        }
        fputs(told++ ? ", " : "", out);
        ls_put_compared_name(out, comparison, picks->list[i]);
        fprintf(out, " %.2f", run->rate / one->rate);
    }
    fputs(told ? " times as fast" : "", out);
    fputs(told && same.count ? "; " : "", out);
    fputs(same.count ? "no difference was measured for " : "", out);
    ls_put_compared_names(out, comparison, same.list, same.count);
    fputs(".", out);
    free(same.list);
    ls_sentence_end(writer);
}

static bool same_division(const struct ls_comparison *comparison, size_t a, size_t b)
{
    return base_of(comparison, a) == base_of(comparison, b) &&
           comparison->runs[a].replicas == comparison->runs[b].replicas &&
           comparison->runs[a].threads == comparison->runs[b].threads;
}

// Those of the rest that divide their cores as the first does; its base.
static bool pick_division(const struct ls_comparison *comparison, const struct ls_picks *all,
                          size_t first, struct ls_picks *out)
{
    out->count = 0;
    out->list = calloc(all->count, sizeof(*out->list));
    for (size_t i = first; out->list && i < all->count; i++)
        if (i == first || same_division(comparison, all->list[first], all->list[i]))
            out->list[out->count++] = all->list[i];
    return out->list;
}

static bool scales(const struct ls_comparison *comparison, size_t index)
{
    const size_t base = base_of(comparison, index);
    return comparison->runs[index].replicas > 1 && base != LS_COMPARISON_NONE && base != index;
}

static bool told_before(const struct ls_comparison *comparison, const struct ls_picks *all,
                        size_t number)
{
    for (size_t i = 0; i < number; i++)
        if (scales(comparison, all->list[i]) &&
            same_division(comparison, all->list[i], all->list[number]))
            return true;
    return false;
}

static void say_scaling(struct ls_sentence_writer *writer, const struct ls_comparison *comparison,
                        const struct ls_picks *all)
{
    for (size_t i = 0; i < all->count; i++) {
        const size_t index = all->list[i], base = base_of(comparison, index);
        struct ls_picks alike = {0};
        if (!scales(comparison, index))
            continue;
        if (!divides(comparison, index, base)) {
            say_scaling_of(writer, comparison, index, base);
            continue;
        }
        if (told_before(comparison, all, i))
            continue;
        if (!pick_division(comparison, all, i, &alike))
            writer->failed = true;
        else if (alike.count == 1)
            say_scaling_of(writer, comparison, index, base);
        else
            say_divisions(writer, comparison, &alike, base);
        free(alike.list);
    }
}

// ---- Target, and what did not run ----

static bool reached(const struct ls_comparison *comparison, size_t index)
{
    return isfinite(comparison->runs[index].target_seconds);
}

static void say_target(struct ls_sentence_writer *writer, const struct ls_comparison *comparison)
{
    size_t first = LS_COMPARISON_NONE;
    if (!comparison->target_metric)
        return;
    for (size_t i = 0; i < comparison->run_count; i++)
        if (reached(comparison, i) &&
            (first == LS_COMPARISON_NONE ||
             comparison->runs[i].target_seconds < comparison->runs[first].target_seconds))
            first = i;
    FILE *out = ls_sentence_begin(writer);
    if (!out)
        return;
    if (first == LS_COMPARISON_NONE) {
        fprintf(out, "None reached %s %g.", comparison->target_metric, comparison->target_value);
    } else {
        ls_put_compared_name(out, comparison, first);
        char text[LS_GROUPED_BYTES];
        fprintf(out, " was the first at %s %g: after %.1f s of training and %s examples.",
                comparison->target_metric, comparison->target_value,
                comparison->runs[first].target_seconds,
                ls_grouped(comparison->runs[first].target_examples, text));
    }
    ls_sentence_end(writer);
}

static void say_failure(struct ls_sentence_writer *writer, const struct ls_comparison *comparison,
                        size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    if (run->status != LS_COMPARED_FAILED && run->status != LS_COMPARED_UNAVAILABLE)
        return;
    FILE *out = ls_sentence_begin(writer);
    if (!out)
        return;
    ls_put_compared_name(out, comparison, index);
    fprintf(out, " %s: %s.", run->status == LS_COMPARED_FAILED ? "failed" : "could not run here",
            run->reason ? run->reason : "no reason was given");
    ls_sentence_end(writer);
}

enum ls_status ls_verdict(const struct ls_comparison *comparison, struct ls_sentences *out)
{
    struct ls_sentences sentences = {0};
    struct ls_sentence_writer writer = {.out = &sentences};
    say_fastest(&writer, comparison);
    struct ls_picks largest = {0};
    if (!ls_compared_pick(comparison, is_largest, &largest))
        writer.failed = true;
    say_scaling(&writer, comparison, &largest);
    ls_say_limits(&writer, comparison, &largest);
    free(largest.list);
    ls_say_truth(&writer, comparison);
    ls_say_network(&writer, comparison);
    say_target(&writer, comparison);
    for (size_t i = 0; i < comparison->run_count; i++)
        say_failure(&writer, comparison, i);
    const enum ls_status status = ls_sentences_conclude(&writer);
    if (!status)
        *out = sentences;
    return status;
}
