// SPDX-License-Identifier: Apache-2.0
// A comparison in words.
#include "core/report/verdict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// The losses of the first ten steps of two runs that compute the same differ by rounding alone, before it has grown.
#define FIRST_TEN_MOST 5e-6
// Later one difference by rounding tells the size of another, not its bound.
#define SPREADS_MOST 10
#define LEAST_ROUNDS 4 // with fewer, quartiles say nothing

// Shares of a step from which on a part is worth a word.
#define INPUT_SHARE 0.15
#define EXPOSED_SHARE 0.15
#define UPDATE_SHARE 0.3
#define OTHER_SHARE 0.2
#define COMMUNICATION_SHARE 0.01

#define GAIN_LEAST 1.1 // speed-ups below are none
#define MORE_CORES 1.5 // from this factor on there is something to gain
#define NOISE_MOST 0.1 // quartiles apart, of the median

// ---- Sentences ----

struct writer {
    struct ls_sentences *out;
    FILE *stream; // of the running sentence
    char *line;
    size_t bytes;
    bool failed;
};

static FILE *begin(struct writer *writer)
{
    writer->line = NULL;
    writer->stream = open_memstream(&writer->line, &writer->bytes);
    if (writer->stream)
        return writer->stream;
    writer->failed = true;
    return NULL;
}

static void end(struct writer *writer)
{
    if (!writer->stream)
        return;
    const bool broken = fclose(writer->stream) != 0;
    writer->stream = NULL;
    char **grown =
        broken ? NULL : realloc(writer->out->list, (writer->out->count + 1) * sizeof(char *));
    if (!grown) {
        free(writer->line);
        writer->failed = true;
        return;
    }
    writer->out->list = grown;
    grown[writer->out->count++] = writer->line;
}

void ls_sentences_finish(struct ls_sentences *sentences)
{
    for (size_t i = 0; i < sentences->count; i++)
        free(sentences->list[i]);
    free(sentences->list);
    *sentences = (struct ls_sentences){0};
}

static enum ls_status finish(struct writer *writer)
{
    if (!writer->failed)
        return LS_OK;
    ls_sentences_finish(writer->out);
    return LS_OUT_OF_MEMORY;
}

// ---- Names ----

static bool has_several_counts(const struct ls_comparison *comparison, size_t index)
{
    for (size_t i = 0; i < comparison->run_count; i++)
        if (i != index &&
            strcmp(comparison->runs[i].strategy, comparison->runs[index].strategy) == 0)
            return true;
    return false;
}

const char *ls_compared_name(const struct ls_comparison *comparison, size_t index, char *text,
                             size_t bytes)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    if (has_several_counts(comparison, index))
        snprintf(text, bytes, "%s with %u replica%s", run->strategy, run->replicas,
                 run->replicas == 1 ? "" : "s");
    else
        snprintf(text, bytes, "%s", run->strategy);
    return text;
}

static void put_name(FILE *out, const struct ls_comparison *comparison, size_t index)
{
    char name[256];
    fputs(ls_compared_name(comparison, index, name, sizeof(name)), out);
}

// "a", "a and b", "a, b and c".
static void put_names(FILE *out, const struct ls_comparison *comparison, const size_t *indices,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fputs(i == 0 ? "" : i + 1 == count ? " and " : ", ", out);
        put_name(out, comparison, indices[i]);
    }
}

// Indices of runs, with room for all.
struct picks {
    size_t *list;
    size_t count;
};

static bool pick(const struct ls_comparison *comparison,
                 bool (*wanted)(const struct ls_comparison *, size_t), struct picks *out)
{
    out->count = 0;
    out->list = calloc(comparison->run_count + 1, sizeof(*out->list));
    for (size_t i = 0; out->list && i < comparison->run_count; i++)
        if (wanted(comparison, i))
            out->list[out->count++] = i;
    return out->list;
}

// ---- Speed ----

static bool was_measured(const struct ls_comparison *comparison, size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    return (run->status == LS_COMPARED_DONE || run->status == LS_COMPARED_INTERRUPTED) &&
           isfinite(run->rate) && run->rate > 0;
}

// The fastest run that was measured but for `but`; `synchronous`: of those alone. LS_COMPARISON_NONE: none.
static size_t fastest(const struct ls_comparison *comparison, size_t but, bool synchronous)
{
    size_t best = LS_COMPARISON_NONE;
    for (size_t i = 0; i < comparison->run_count; i++) {
        const struct ls_compared_run *run = &comparison->runs[i];
        if (i == but || !was_measured(comparison, i) || (synchronous && !run->synchronous))
            continue;
        if (best == LS_COMPARISON_NONE || run->rate > comparison->runs[best].rate)
            best = i;
    }
    return best;
}

static bool overlap(const struct ls_compared_run *a, const struct ls_compared_run *b)
{
    return a->rate_low <= b->rate_high && b->rate_low <= a->rate_high;
}

static bool knows_noise(const struct ls_compared_run *run)
{
    return run->round_count >= LEAST_ROUNDS;
}

// Others whose rounds lie among those of the fastest.
static void say_noise(struct writer *writer, const struct ls_comparison *comparison, size_t best,
                      size_t next)
{
    const struct ls_compared_run *run = &comparison->runs[best];
    const double ratio = run->rate / comparison->runs[next].rate;
    FILE *out = begin(writer);
    if (!out)
        return;
    struct picks close = {0};
    if (pick(comparison, was_measured, &close)) {
        size_t count = 0;
        for (size_t i = 0; i < close.count; i++)
            if (close.list[i] != best && overlap(run, &comparison->runs[close.list[i]]))
                close.list[count++] = close.list[i];
        close.count = count;
    }
    fprintf(out, "That is %.2f times ", ratio);
    put_name(out, comparison, next);
    if (!knows_noise(run) || !knows_noise(&comparison->runs[next])) {
        fprintf(out,
                ", but %zu round%s are too few to tell whether that is more than noise: train more "
                "steps.",
                run->round_count, run->round_count == 1 ? "" : "s");
    } else if (close.count) {
        fputs("; the difference to ", out);
        put_names(out, comparison, close.list, close.count);
        fputs(" is not larger than the noise: the quartiles of their rounds overlap.", out);
    } else {
        fputs(
            ", the next; the difference is larger than the noise: the quartiles of their rounds do "
            "not overlap.",
            out);
    }
    free(close.list);
    end(writer);
}

static void say_fastest(struct writer *writer, const struct ls_comparison *comparison)
{
    const size_t best = fastest(comparison, LS_COMPARISON_NONE, false);
    if (best == LS_COMPARISON_NONE)
        return;
    const struct ls_compared_run *run = &comparison->runs[best];
    const size_t next = fastest(comparison, best, false);
    FILE *out = begin(writer);
    if (!out)
        return;
    put_name(out, comparison, best);
    fprintf(out,
            next == LS_COMPARISON_NONE ? " is the only one that was measured: %.0f examples/s"
                                       : " is the fastest: %.0f examples/s",
            run->rate);
    if (knows_noise(run))
        fprintf(out, " (half of its rounds between %.0f and %.0f)", run->rate_low, run->rate_high);
    const size_t in_step = fastest(comparison, LS_COMPARISON_NONE, true);
    if (!run->synchronous && in_step != LS_COMPARISON_NONE) {
        fputs("; it is asynchronous, and of those that keep the replicas in step ", out);
        put_name(out, comparison, in_step);
        fprintf(out, " is the fastest with %.0f", comparison->runs[in_step].rate);
    }
    fputs(".", out);
    end(writer);
    if (next != LS_COMPARISON_NONE)
        say_noise(writer, comparison, best, next);
}

// ---- Scaling ----

// The run with the most replicas of its strategy.
static bool is_largest(const struct ls_comparison *comparison, size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    if (!was_measured(comparison, index))
        return false;
    for (size_t i = 0; i < comparison->run_count; i++)
        if (was_measured(comparison, i) && comparison->runs[i].replicas > run->replicas &&
            strcmp(comparison->runs[i].strategy, run->strategy) == 0)
            return false;
    return true;
}

// What a run with several replicas is held against: its strategy with one, else the reference.
static size_t base_of(const struct ls_comparison *comparison, size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    for (size_t i = 0; i < comparison->run_count; i++)
        if (was_measured(comparison, i) && comparison->runs[i].replicas == 1 &&
            strcmp(comparison->runs[i].strategy, run->strategy) == 0)
            return i;
    const size_t reference = comparison->reference;
    return reference != LS_COMPARISON_NONE && was_measured(comparison, reference)
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
    put_name(out, comparison, index);
    if (knows_noise(run) && knows_noise(one) && overlap(run, one))
        fputs(" is as fast as ", out);
    else
        fprintf(out, " is %.2f times as fast as ", run->rate / one->rate);
    put_name(out, comparison, base);
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
    put_name(out, comparison, index);
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

static void say_scaling_of(struct writer *writer, const struct ls_comparison *comparison,
                           size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    const size_t base = base_of(comparison, index);
    if (run->replicas < 2 || base == LS_COMPARISON_NONE || base == index)
        return;
    const double gain = run->rate / comparison->runs[base].rate;
    const double ideal = run->cores / comparison->runs[base].cores;
    FILE *out = begin(writer);
    if (!out)
        return;
    if (ideal < MORE_CORES) {
        say_division(out, comparison, index, base);
    } else if (gain < GAIN_LEAST) {
        say_no_gain(out, comparison, index, gain);
    } else {
        put_name(out, comparison, index);
        fprintf(out, " gains %.2f times one replica's speed, of %.1f possible (%.0f %%).", gain,
                ideal, 100 * gain / ideal);
    }
    end(writer);
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
        fprintf(out, " is bound by communication: it waits %.0f %% of a step for it",
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

static void say_limit_of(struct writer *writer, const struct ls_comparison *comparison,
                         size_t index)
{
    const struct ls_compared_times *times = &comparison->runs[index].times;
    if (!(times->median > 0) || !isfinite(times->compute))
        return;
    FILE *out = begin(writer);
    if (!out)
        return;
    put_name(out, comparison, index);
    put_limit(out, times);
    put_overlap(out, times);
    fputs(".", out);
    end(writer);
}

// ---- Truth ----

bool ls_verdict_is_rounding(const struct ls_comparison *comparison,
                            const struct ls_compared_run *run)
{
    const double spread = isfinite(comparison->rounding_spread) ? comparison->rounding_spread : 0;
    const double most = fmax(FIRST_TEN_MOST, SPREADS_MOST * spread);
    return run->loss_deviation_first_ten <= FIRST_TEN_MOST && run->loss_deviation <= most;
}

static bool is_compared(const struct ls_comparison *comparison, size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    return index != comparison->reference && run->synchronous && isfinite(run->loss_deviation) &&
           run->status != LS_COMPARED_FAILED;
}

static bool is_equally_correct(const struct ls_comparison *comparison, size_t index)
{
    return is_compared(comparison, index) &&
           ls_verdict_is_rounding(comparison, &comparison->runs[index]);
}

static bool is_off(const struct ls_comparison *comparison, size_t index)
{
    return is_compared(comparison, index) && !is_equally_correct(comparison, index);
}

static bool has_other_batch(const struct ls_comparison *comparison, size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    return was_measured(comparison, index) && run->synchronous &&
           run->global_batch != comparison->global_batch;
}

static bool has_unequal_replicas(const struct ls_comparison *comparison, size_t index)
{
    return comparison->runs[index].replicas_equal == 0;
}

static void put_spread(FILE *out, const struct ls_comparison *comparison)
{
    if (isfinite(comparison->rounding_spread))
        fprintf(out, "; rounding alone (one device, each batch in two halves) makes %.1e and %.1e",
                comparison->rounding_spread_first_ten, comparison->rounding_spread);
}

static void say_equally_correct(struct writer *writer, const struct ls_comparison *comparison,
                                const struct picks *picks)
{
    double first = 0, all = 0;
    for (size_t i = 0; i < picks->count; i++) {
        const struct ls_compared_run *run = &comparison->runs[picks->list[i]];
        first = fmax(first, run->loss_deviation_first_ten);
        all = fmax(all, run->loss_deviation);
    }
    FILE *out = begin(writer);
    if (!out)
        return;
    put_names(out, comparison, picks->list, picks->count);
    fprintf(
        out,
        " %s as correct as one device: losses differ by at most %.1e in the first ten steps and "
        "%.1e over all",
        picks->count == 1 ? "is" : "are equally correct, and", first, all);
    put_spread(out, comparison);
    fputs(".", out);
    end(writer);
}

static void say_off(struct writer *writer, const struct ls_comparison *comparison, size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    FILE *out = begin(writer);
    if (!out)
        return;
    put_name(out, comparison, index);
    fprintf(
        out,
        " differs from one device by more than rounding explains: losses by %.1e in the first ten "
        "steps and %.1e over all",
        run->loss_deviation_first_ten, run->loss_deviation);
    put_spread(out, comparison);
    fputs(".", out);
    end(writer);
}

static void put_pair(FILE *out, const char *what, double value, double reference)
{
    if (!isfinite(value))
        return;
    fprintf(out, "%s %.4f", what, value);
    if (isfinite(reference))
        fprintf(out, " (one device: %.4f)", reference);
}

static void say_asynchronous(struct writer *writer, const struct ls_comparison *comparison,
                             size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    if (run->synchronous || !was_measured(comparison, index))
        return;
    const struct ls_compared_run nothing = {.final_loss = NAN, .val_accuracy = NAN};
    const struct ls_compared_run *reference = comparison->reference == LS_COMPARISON_NONE
                                                  ? &nothing
                                                  : &comparison->runs[comparison->reference];
    FILE *out = begin(writer);
    if (!out)
        return;
    put_name(out, comparison, index);
    fputs(" is asynchronous, so its losses cannot be compared step by step", out);
    put_pair(out, "; it ended with a loss of", run->final_loss, reference->final_loss);
    put_pair(out, " and a validation accuracy of", run->val_accuracy, reference->val_accuracy);
    fputs(".", out);
    end(writer);
}

// "ring was ..." and "ring and tree were ..." differ in their first word.
static void say_names(struct writer *writer, const struct ls_comparison *comparison,
                      const struct picks *picks, const char *one, const char *many,
                      const char *sentence)
{
    FILE *out = picks->count ? begin(writer) : NULL;
    if (!out)
        return;
    put_names(out, comparison, picks->list, picks->count);
    fprintf(out, " %s %s", picks->count == 1 ? one : many, sentence);
    end(writer);
}

static void say_truth(struct writer *writer, const struct ls_comparison *comparison)
{
    struct picks equal = {0}, off = {0}, other = {0}, unequal = {0};
    if (pick(comparison, is_equally_correct, &equal) && pick(comparison, is_off, &off) &&
        pick(comparison, has_other_batch, &other) &&
        pick(comparison, has_unequal_replicas, &unequal)) {
        if (equal.count)
            say_equally_correct(writer, comparison, &equal);
        for (size_t i = 0; i < off.count; i++)
            say_off(writer, comparison, off.list[i]);
        say_names(writer, comparison, &other, "had", "had",
                  "another global batch than the reference: losses were not compared.");
        say_names(writer, comparison, &unequal, "ended", "ended",
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

// ---- Target, and what did not run ----

static bool reached(const struct ls_comparison *comparison, size_t index)
{
    return isfinite(comparison->runs[index].target_seconds);
}

static void say_target(struct writer *writer, const struct ls_comparison *comparison)
{
    size_t first = LS_COMPARISON_NONE;
    if (!comparison->target_metric)
        return;
    for (size_t i = 0; i < comparison->run_count; i++)
        if (reached(comparison, i) &&
            (first == LS_COMPARISON_NONE ||
             comparison->runs[i].target_seconds < comparison->runs[first].target_seconds))
            first = i;
    FILE *out = begin(writer);
    if (!out)
        return;
    if (first == LS_COMPARISON_NONE) {
        fprintf(out, "None reached %s %g.", comparison->target_metric, comparison->target_value);
    } else {
        put_name(out, comparison, first);
        fprintf(out, " was the first at %s %g: after %.1f s of training and %.0f examples.",
                comparison->target_metric, comparison->target_value,
                comparison->runs[first].target_seconds, comparison->runs[first].target_examples);
    }
    end(writer);
}

static void say_failure(struct writer *writer, const struct ls_comparison *comparison, size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    if (run->status != LS_COMPARED_FAILED && run->status != LS_COMPARED_UNAVAILABLE)
        return;
    FILE *out = begin(writer);
    if (!out)
        return;
    put_name(out, comparison, index);
    fprintf(out, " %s: %s.", run->status == LS_COMPARED_FAILED ? "failed" : "could not run here",
            run->reason ? run->reason : "no reason was given");
    end(writer);
}

enum ls_status ls_verdict(const struct ls_comparison *comparison, struct ls_sentences *out)
{
    struct ls_sentences sentences = {0};
    struct writer writer = {.out = &sentences};
    say_fastest(&writer, comparison);
    for (size_t i = 0; i < comparison->run_count; i++)
        if (is_largest(comparison, i))
            say_scaling_of(&writer, comparison, i);
    for (size_t i = 0; i < comparison->run_count; i++)
        if (is_largest(comparison, i))
            say_limit_of(&writer, comparison, i);
    say_truth(&writer, comparison);
    say_target(&writer, comparison);
    for (size_t i = 0; i < comparison->run_count; i++)
        say_failure(&writer, comparison, i);
    const enum ls_status status = finish(&writer);
    if (!status)
        *out = sentences;
    return status;
}

// ---- What to try ----

static bool is_noisy(const struct ls_comparison *comparison, size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    return was_measured(comparison, index) && knows_noise(run) &&
           run->rate_high - run->rate_low > NOISE_MOST * run->rate;
}

static bool limited_by(const struct ls_comparison *comparison, size_t index, enum ls_limit limit)
{
    return was_measured(comparison, index) &&
           ls_verdict_limit(&comparison->runs[index].times) == limit;
}

static bool waits_for_input(const struct ls_comparison *comparison, size_t index)
{
    return limited_by(comparison, index, LS_LIMIT_INPUT);
}

static bool waits_for_others(const struct ls_comparison *comparison, size_t index)
{
    return limited_by(comparison, index, LS_LIMIT_COMMUNICATION);
}

static bool is_overhead(const struct ls_comparison *comparison, size_t index)
{
    return limited_by(comparison, index, LS_LIMIT_OVERHEAD) ||
           limited_by(comparison, index, LS_LIMIT_UPDATE);
}

static void suggest(struct writer *writer, const struct ls_comparison *comparison,
                    bool (*wanted)(const struct ls_comparison *, size_t), const char *one,
                    const char *many, const char *advice)
{
    struct picks picks = {0};
    if (pick(comparison, wanted, &picks))
        say_names(writer, comparison, &picks, one, many, advice);
    else
        writer->failed = true;
    free(picks.list);
}

static void suggest_training(struct writer *writer, const struct ls_comparison *comparison)
{
    size_t best = fastest(comparison, LS_COMPARISON_NONE, true);
    if (best == LS_COMPARISON_NONE)
        return;
    // What deviates is no advice.
    if (is_off(comparison, best) || has_unequal_replicas(comparison, best))
        return;
    const struct ls_compared_run *run = &comparison->runs[best];
    FILE *out = begin(writer);
    if (!out)
        return;
    fprintf(out,
            "The fastest that keeps the replicas in step: lockstep train --model=%s --dataset=%s "
            "--optimizer=%s --strategy=%s --replicas=%u --threads=%u --batch=%llu",
            comparison->model, comparison->dataset, comparison->optimizer, run->strategy,
            run->replicas, run->threads, (unsigned long long)run->global_batch);
    end(writer);
}

static bool scales(const struct ls_comparison *comparison)
{
    for (size_t i = 0; i < comparison->run_count; i++)
        if (has_several_counts(comparison, i))
            return true;
    return false;
}

enum ls_status ls_suggestions(const struct ls_comparison *comparison, struct ls_sentences *out)
{
    struct ls_sentences sentences = {0};
    struct writer writer = {.out = &sentences};
    suggest_training(&writer, comparison);
    suggest(&writer, comparison, waits_for_input, "would", "would",
            "gain from a faster input: leave it a core (--threads=1 less), or a larger share of "
            "work for each example.");
    suggest(&writer, comparison, waits_for_others, "would", "would",
            "gain from a larger --batch: backward gets longer, and communication hides under it; "
            "or from a strategy that sends fewer bytes.");
    suggest(&writer, comparison, is_overhead, "would", "would",
            "gain from a larger --batch or fewer replicas: steps are short.");
    suggest(&writer, comparison, is_noisy, "was", "were",
            "measured with much noise: end other programs, or train more --steps.");
    if (!scales(comparison)) {
        FILE *stream = begin(&writer);
        if (stream)
            fputs("--replicas=1,2,4 shows how the speed grows with the replicas.", stream);
        end(&writer);
    }
    const enum ls_status status = finish(&writer);
    if (!status)
        *out = sentences;
    return status;
}
