// SPDX-License-Identifier: Apache-2.0
// What to try after a comparison.
#include "tools/compare/sentences.h"

#include <stdlib.h>
#include <string.h>

#define NOISE_MOST 0.1 // quartiles apart, of the speed
#define LEAST_ROUNDS 5 // with fewer, quartiles tell nothing

static bool is_noisy(const struct ls_comparison *comparison, size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    return ls_compared_was_measured(comparison, index) && run->round_count >= LEAST_ROUNDS &&
           run->rate_high - run->rate_low > NOISE_MOST * run->rate;
}

static bool limited_by(const struct ls_comparison *comparison, size_t index, enum ls_limit limit)
{
    return ls_compared_was_measured(comparison, index) &&
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

static void suggest(struct ls_sentence_writer *writer, const struct ls_comparison *comparison,
                    bool (*wanted)(const struct ls_comparison *, size_t), const char *one,
                    const char *many, const char *advice)
{
    struct ls_picks picks = {0};
    if (ls_compared_pick(comparison, wanted, &picks))
        ls_say_names(writer, comparison, &picks, one, many, advice);
    else
        writer->failed = true;
    free(picks.list);
}

// As one word of a POSIX shell.
static void put_word(FILE *out, const char *word)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "_@%+=:,./-";
    if (*word && word[strspn(word, plain)] == '\0') {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\\''", out);
        else
            fputc(*word, out);
    fputc('\'', out);
}

static void put_option(FILE *out, const char *name, const char *value)
{
    fprintf(out, " --%s=", name);
    put_word(out, value);
}

// As a string of Python.
static void put_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

// The command or the call that trains as this run did. Whoever compares in Python has the model and what it is compiled
// with in the program.
static void put_training(FILE *out, const struct ls_comparison *comparison, size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    const uint32_t workers = run->workers ? run->workers : 1;
    if (workers > 1)
        fprintf(out, "on each of %u workers, ", workers);
    if (comparison->for_python) {
        fputs(LS_TRAIN_CALL "..., strategy=", out);
        put_string(out, run->strategy);
        fprintf(out, ", replicas=%u, threads=%u", run->replicas / workers, run->threads);
        if (comparison->shards)
            fprintf(out, ", reproducible=%u", comparison->shards);
        fprintf(out, ").fit(..., batch_size=%llu)", (unsigned long long)run->global_batch);
        return;
    }
    fputs(LS_TRAIN_COMMAND, out);
    for (size_t i = 0; i < comparison->option_count; i++)
        put_option(out, comparison->options[i].name, comparison->options[i].value);
    put_option(out, "strategy", run->strategy);
    fprintf(out, " --replicas=%u --threads=%u --batch=%llu", run->replicas / workers, run->threads,
            (unsigned long long)run->global_batch);
}

// Whether something was measured beside the reference.
static bool any_other_ran(const struct ls_comparison *comparison)
{
    for (size_t i = 0; i < comparison->run_count; i++)
        if (i != comparison->reference && ls_compared_was_measured(comparison, i))
            return true;
    return false;
}

// Then nothing speaks for another strategy than the reference.
static bool is_level_with_reference(const struct ls_comparison *comparison, size_t best)
{
    return comparison->reference < comparison->run_count &&
           ls_compared_was_measured(comparison, comparison->reference) &&
           ls_compared_is_level(comparison, best, comparison->reference);
}

static void suggest_training(struct ls_sentence_writer *writer,
                             const struct ls_comparison *comparison)
{
    size_t best = ls_compared_highest(comparison, LS_COMPARISON_NONE, true);
    if (best == LS_COMPARISON_NONE || !any_other_ran(comparison))
        return;
    // What deviates is no advice.
    if (ls_compared_is_off(comparison, best) || ls_compared_has_unequal_replicas(comparison, best))
        return;
    FILE *out = ls_sentence_begin(writer);
    if (!out)
        return;
    if (ls_compared_leads(comparison, best, true)) {
        fputs("The fastest synchronous strategy: ", out);
    } else if (is_level_with_reference(comparison, best)) {
        best = comparison->reference;
        fputs("No strategy was measured to be faster than the others; ", out);
        ls_put_compared_name(out, comparison, best);
        fputs(strcmp(comparison->runs[best].strategy, "one-device") == 0 ? " is the simplest: "
                                                                         : " is the reference: ",
              out);
    } else {
        fputs("No synchronous strategy was measured to be faster than ", out);
        ls_put_compared_name(out, comparison, best);
        fputs(": ", out);
    }
    put_training(out, comparison, best);
    ls_sentence_end(writer);
}

static bool scales(const struct ls_comparison *comparison)
{
    for (size_t i = 0; i < comparison->run_count; i++)
        if (ls_compared_has_several_counts(comparison, i))
            return true;
    return false;
}

enum ls_status ls_suggestions(const struct ls_comparison *comparison, struct ls_sentences *out)
{
    struct ls_sentences sentences = {0};
    struct ls_sentence_writer writer = {.out = &sentences};
    suggest_training(&writer, comparison);
    suggest(&writer, comparison, waits_for_input, "would", "would",
            "gain from a faster input: leave it a core by one thread less, or read simpler data.");
    suggest(&writer, comparison, waits_for_others, "would", "would",
            comparison->shards
                ? "gain from a larger batch: logical shards are added after backward, and nothing "
                  "hides it."
            : comparison->for_python
                ? "gain from a larger batch: backward gets longer, and communication hides under "
                  "it; or from a strategy that sends fewer bytes."
                : "gain from a larger --batch: backward gets longer, and communication hides under "
                  "it; or from a strategy that sends fewer bytes.");
    suggest(&writer, comparison, is_overhead, "would", "would",
            comparison->for_python
                ? "gain from a larger batch or fewer replicas: steps are short."
                : "gain from a larger --batch or fewer replicas: steps are short.");
    suggest(&writer, comparison, is_noisy, "was", "were",
            comparison->for_python
                ? "measured with much noise: end other programs, or time more speed_steps."
                : "measured with much noise: end other programs, or time more --speed-steps.");
    if (any_other_ran(comparison) && !scales(comparison)) {
        FILE *stream = ls_sentence_begin(&writer);
        if (stream)
            fprintf(stream, "%s shows how the speed grows with the replicas.",
                    comparison->for_python ? "replicas=[1, 2, 4]" : "--replicas=1,2,4");
        ls_sentence_end(&writer);
    }
    const enum ls_status status = ls_sentences_conclude(&writer);
    if (!status)
        *out = sentences;
    return status;
}
