// SPDX-License-Identifier: Apache-2.0
// A comparison in words: speed, what limits it, the target, and what did not run.
#include "core/report/sentences.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Shares of a step from which on a part limits it, rather than the kernels.
#define INPUT_SHARE 0.25
#define EXPOSED_SHARE 0.33
#define UPDATE_SHARE 0.33
#define OTHER_SHARE 0.33
#define COMMUNICATION_SHARE 0.01 // worth a word

#define GAIN_LEAST 1.1 // speed-ups below are none
#define SAME_SPEED 0.05
#define MORE_CORES 1.5 // from this factor on there is something to gain

// ---- Speed ----

static bool differ(const struct ls_compared_run *a, const struct ls_compared_run *b)
{
    return ls_compared_is_faster(a, b) || ls_compared_is_faster(b, a);
}

// Who is as fast as the fastest, for all that is known.
static void say_noise(struct ls_sentence_writer *writer, const struct ls_comparison *comparison,
                      size_t best, size_t next)
{
    const struct ls_compared_run *run = &comparison->runs[best];
    const double ratio = run->rate / comparison->runs[next].rate;
    FILE *out = ls_sentence_begin(writer);
    if (!out)
        return;
    struct ls_picks close = {0};
    if (ls_compared_pick(comparison, ls_compared_was_measured, &close)) {
        size_t count = 0;
        for (size_t i = 0; i < close.count; i++)
            if (close.list[i] != best && !differ(run, &comparison->runs[close.list[i]]))
                close.list[count++] = close.list[i];
        close.count = count;
    }
    fprintf(out, "That is %.2f times ", ratio);
    ls_put_compared_name(out, comparison, next);
    if (!ls_compared_knows_noise(run) || !ls_compared_knows_noise(&comparison->runs[next])) {
        fprintf(out,
                ", but %zu round%s are too few to tell whether that is more than noise: train more "
                "steps.",
                run->round_count, run->round_count == 1 ? "" : "s");
    } else if (close.count) {
        fputs("; the difference to ", out);
        ls_put_compared_names(out, comparison, close.list, close.count);
        fputs(" is not larger than the noise: now one, now the other is faster in a round.", out);
    } else {
        const size_t wins = ls_compared_wins(run, &comparison->runs[next]);
        fputs(", the next; the difference is larger than the noise", out);
        if (wins)
            fprintf(out, ": it was faster in %zu of %zu rounds", wins, run->round_count);
        fputs(".", out);
    }
    free(close.list);
    ls_sentence_end(writer);
}

static void say_fastest(struct ls_sentence_writer *writer, const struct ls_comparison *comparison)
{
    const size_t best = ls_compared_fastest(comparison, LS_COMPARISON_NONE, false);
    if (best == LS_COMPARISON_NONE)
        return;
    const struct ls_compared_run *run = &comparison->runs[best];
    const size_t next = ls_compared_fastest(comparison, best, false);
    FILE *out = ls_sentence_begin(writer);
    if (!out)
        return;
    ls_put_compared_name(out, comparison, best);
    fprintf(out,
            next == LS_COMPARISON_NONE ? " is the only one that was measured: %.0f examples/s"
                                       : " is the fastest: %.0f examples/s",
            run->rate);
    if (ls_compared_knows_noise(run))
        fprintf(out, " (half of its rounds between %.0f and %.0f)", run->rate_low, run->rate_high);
    const size_t in_step = ls_compared_fastest(comparison, LS_COMPARISON_NONE, true);
    if (!run->synchronous && in_step != LS_COMPARISON_NONE) {
        fputs("; it is asynchronous, and of those that keep the replicas in step ", out);
        ls_put_compared_name(out, comparison, in_step);
        fprintf(out, " is the fastest with %.0f", comparison->runs[in_step].rate);
    }
    fputs(".", out);
    ls_sentence_end(writer);
    if (next != LS_COMPARISON_NONE)
        say_noise(writer, comparison, best, next);
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
    const double ratio = run->rate / one->rate;
    const bool noise = !differ(run, one);
    ls_put_compared_name(out, comparison, index);
    if (noise && fabs(ratio - 1) < SAME_SPEED)
        fputs(" is as fast as ", out);
    else
        fprintf(out, " is %.2f times as fast as ", ratio);
    ls_put_compared_name(out, comparison, base);
    fputs(" on the same ", out);
    put_cores(out, run->cores);
    fprintf(out, ": %u replicas of %u thread%s against one of %u", run->replicas, run->threads,
            run->threads == 1 ? "" : "s", one->threads);
    fputs(noise && fabs(ratio - 1) >= SAME_SPEED ? "; but that is not larger than the noise." : ".",
          out);
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
    default:
        fprintf(out,
                ": the model is too small to gain from %u replicas (%.2f times one): kernels take "
                "only %.0f %% of a step of %.2f ms.",
                run->replicas, gain, share, 1e3 * times->median);
    }
}

static void say_scaling_of(struct ls_sentence_writer *writer,
                           const struct ls_comparison *comparison, size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    const size_t base = base_of(comparison, index);
    if (run->replicas < 2 || base == LS_COMPARISON_NONE || base == index)
        return;
    const double gain = run->rate / comparison->runs[base].rate;
    const double ideal = run->cores / comparison->runs[base].cores;
    FILE *out = ls_sentence_begin(writer);
    if (!out)
        return;
    if (ideal < MORE_CORES) {
        say_division(out, comparison, index, base);
    } else if (gain < GAIN_LEAST) {
        say_no_gain(out, comparison, index, gain);
    } else {
        ls_put_compared_name(out, comparison, index);
        fprintf(out, " gains %.2f times one replica's speed, of %.1f possible (%.0f %%).", gain,
                ideal, 100 * gain / ideal);
    }
    ls_sentence_end(writer);
}

// ---- What limits ----

enum ls_limit ls_verdict_limit(const struct ls_compared_times *times)
{
    if (!(times->median > 0))
        return LS_LIMIT_UNKNOWN;
    const struct {
        enum ls_limit limit;
        double share, least;
    } parts[] = {
        {LS_LIMIT_INPUT, times->input / times->median, INPUT_SHARE},
        {LS_LIMIT_COMMUNICATION, times->exposed_communication / times->median, EXPOSED_SHARE},
        {LS_LIMIT_UPDATE, times->update / times->median, UPDATE_SHARE},
        {LS_LIMIT_OVERHEAD, times->other / times->median, OTHER_SHARE},
    };
    enum ls_limit limit = isfinite(times->compute) ? LS_LIMIT_COMPUTE : LS_LIMIT_UNKNOWN;
    double most = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (parts[i].share >= parts[i].least && parts[i].share > most) {
            most = parts[i].share;
            limit = parts[i].limit;
        }
    return limit;
}

static void put_limit(FILE *out, const struct ls_compared_times *times)
{
    const double percent = 100 / times->median;
    switch (ls_verdict_limit(times)) {
    case LS_LIMIT_INPUT:
        fprintf(out, " is input-bound: it waits %.0f %% of a step for data",
                percent * times->input);
        break;
    case LS_LIMIT_COMMUNICATION:
        fprintf(out,
                " is bound by communication: it waits %.0f %% of a step for it or "
                "for other replicas",
                percent * times->exposed_communication);
        break;
    case LS_LIMIT_UPDATE:
        fprintf(out, " is bound by the update: it takes %.0f %% of a step",
                percent * times->update);
        break;
    case LS_LIMIT_OVERHEAD:
        fprintf(out, " is bound by what is neither kernels nor communication: %.0f %% of a step",
                percent * times->other);
        break;
    default:
        fprintf(out, " is compute-bound: kernels take %.0f %% of a step", percent * times->compute);
    }
}

static void put_overlap(FILE *out, const struct ls_compared_times *times)
{
    const double all = times->communication, exposed = times->exposed_communication;
    if (!(all >= COMMUNICATION_SHARE * times->median))
        return;
    if (exposed <= 0.5 * all)
        fprintf(out, "; communication hides under backward (%.2f of %.2f ms show)", 1e3 * exposed,
                1e3 * all);
    else
        fprintf(out, "; %.2f of %.2f ms of communication do not hide under backward", 1e3 * exposed,
                1e3 * all);
}

static void say_limit_of(struct ls_sentence_writer *writer, const struct ls_comparison *comparison,
                         size_t index)
{
    const struct ls_compared_times *times = &comparison->runs[index].times;
    if (!(times->median > 0) || !isfinite(times->compute))
        return;
    FILE *out = ls_sentence_begin(writer);
    if (!out)
        return;
    ls_put_compared_name(out, comparison, index);
    put_limit(out, times);
    put_overlap(out, times);
    fputs(".", out);
    ls_sentence_end(writer);
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
        fprintf(out, " was the first at %s %g: after %.1f s of training and %.0f examples.",
                comparison->target_metric, comparison->target_value,
                comparison->runs[first].target_seconds, comparison->runs[first].target_examples);
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
    for (size_t i = 0; i < comparison->run_count; i++)
        if (is_largest(comparison, i))
            say_scaling_of(&writer, comparison, i);
    for (size_t i = 0; i < comparison->run_count; i++)
        if (is_largest(comparison, i))
            say_limit_of(&writer, comparison, i);
    ls_say_truth(&writer, comparison);
    say_target(&writer, comparison);
    for (size_t i = 0; i < comparison->run_count; i++)
        say_failure(&writer, comparison, i);
    const enum ls_status status = ls_sentences_conclude(&writer);
    if (!status)
        *out = sentences;
    return status;
}
