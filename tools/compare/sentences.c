// SPDX-License-Identifier: Apache-2.0
// Sentences, and which runs they speak of.
#include "tools/compare/sentences.h"

#include "core/plugin/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- Sentences ----

FILE *ls_sentence_begin(struct ls_sentence_writer *writer)
{
    writer->line = NULL;
    writer->stream = open_memstream(&writer->line, &writer->bytes);
    if (writer->stream)
        return writer->stream;
    writer->failed = true;
    return NULL;
}

void ls_sentence_end(struct ls_sentence_writer *writer)
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

const char *ls_sentence_code(const char *sentence)
{
    const char *command = strstr(sentence, LS_TRAIN_COMMAND " --");
    return command ? command : strstr(sentence, LS_TRAIN_CALL);
}

void ls_sentences_finish(struct ls_sentences *sentences)
{
    for (size_t i = 0; i < sentences->count; i++)
        free(sentences->list[i]);
    free(sentences->list);
    *sentences = (struct ls_sentences){0};
}

enum ls_status ls_sentences_conclude(struct ls_sentence_writer *writer)
{
    if (!writer->failed)
        return LS_OK;
    ls_sentences_finish(writer->out);
    return LS_OUT_OF_MEMORY;
}

// ---- Names and numbers ----

const char *ls_grouped(double value, char text[static LS_GROUPED_BYTES])
{
    char digits[LS_GROUPED_BYTES];
    size_t to = 0;
    if (!(fabs(value) < 1e15)) {
        snprintf(text, LS_GROUPED_BYTES, "%g", value);
        return text;
    }
    const int length = snprintf(digits, sizeof(digits), "%.0f", value);
    for (int i = 0; i < length; i++) {
        const bool inside = i > 0 && digits[i - 1] != '-';
        if (inside && (length - i) % 3 == 0)
            text[to++] = ',';
        text[to++] = digits[i];
    }
    text[to] = '\0';
    return text;
}

bool ls_compared_has_several_counts(const struct ls_comparison *comparison, size_t index)
{
    for (size_t i = 0; i < comparison->run_count; i++)
        if (i != index &&
            strcmp(comparison->runs[i].strategy, comparison->runs[index].strategy) == 0)
            return true;
    return false;
}

// "ring", or "ring with 4 replicas" where the strategy runs with several counts.
static const char *compared_name(const struct ls_comparison *comparison, size_t index, char *text,
                                 size_t bytes)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    if (ls_compared_has_several_counts(comparison, index))
        snprintf(text, bytes, "%s with %u replica%s", run->strategy, run->replicas,
                 run->replicas == 1 ? "" : "s");
    else
        snprintf(text, bytes, "%s", run->strategy);
    return text;
}

void ls_put_compared_name(FILE *out, const struct ls_comparison *comparison, size_t index)
{
    char name[256];
    fputs(compared_name(comparison, index, name, sizeof(name)), out);
}

void ls_put_compared_names(FILE *out, const struct ls_comparison *comparison, const size_t *indices,
                           size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fputs(i == 0 ? "" : i + 1 == count ? " and " : ", ", out);
        ls_put_compared_name(out, comparison, indices[i]);
    }
}

const char *ls_twin_text(const struct ls_comparison *comparison, char text[static LS_TWIN_BYTES])
{
    static const char *const twins[] = {
        [LS_BASIS_HALVES] = "one device, each batch in two halves",
        [LS_BASIS_SHARES] = "one device, the same shares",
        [LS_BASIS_WHOLE] = "one device, the initial weights off by their last bits",
        [LS_BASIS_MIXED] = "not measured",
        [LS_BASIS_BITS] = "not measured"};
    const uint32_t dtype = comparison->nudge_dtype;
    snprintf(text, LS_TWIN_BYTES, "%s%s%s", twins[comparison->basis],
             dtype ? ", the learning rate off by a " : "",
             dtype == LS_BF16  ? "rounding to bfloat16"
             : dtype == LS_F16 ? "rounding to float16"
             : dtype           ? "last bit"
                               : "");
    return text;
}

bool ls_compared_pick(const struct ls_comparison *comparison,
                      bool (*wanted)(const struct ls_comparison *, size_t), struct ls_picks *out)
{
    out->count = 0;
    out->list = calloc(comparison->run_count + 1, sizeof(*out->list));
    for (size_t i = 0; out->list && i < comparison->run_count; i++)
        if (wanted(comparison, i))
            out->list[out->count++] = i;
    return out->list;
}

// ---- Which runs ----

bool ls_compared_was_measured(const struct ls_comparison *comparison, size_t index)
{
    const struct ls_compared_run *run = &comparison->runs[index];
    return (run->status == LS_COMPARED_DONE || run->status == LS_COMPARED_INTERRUPTED) &&
           isfinite(run->rate) && run->rate > 0;
}

bool ls_compared_is_faster(const struct ls_comparison *comparison, size_t a, size_t b)
{
    const struct ls_difference *difference = ls_comparison_between(comparison, a, b);
    return difference && difference->different && (difference->ratio > 1) == (difference->a == a);
}

bool ls_compared_is_level(const struct ls_comparison *comparison, size_t a, size_t b)
{
    const struct ls_difference *difference = ls_comparison_between(comparison, a, b);
    return difference && isfinite(difference->p) && !difference->different;
}

const char *ls_way_verb(enum ls_compared_way way)
{
    static const char *const texts[] = {
        [LS_WAY_PLAIN] = "computes what one device does",
        [LS_WAY_ASYNCHRONOUS] = "is asynchronous",
        [LS_WAY_ROUNDS] = "lets each replica train weights of its own between rounds",
        [LS_WAY_FILTERED] = "sends gradients through a filter",
    };
    return texts[way];
}

size_t ls_compared_highest(const struct ls_comparison *comparison, size_t but, bool plain)
{
    size_t best = LS_COMPARISON_NONE;
    for (size_t i = 0; i < comparison->run_count; i++) {
        const struct ls_compared_run *run = &comparison->runs[i];
        if (i == but || !ls_compared_was_measured(comparison, i) || (plain && run->way))
            continue;
        if (best == LS_COMPARISON_NONE || run->rate > comparison->runs[best].rate)
            best = i;
    }
    return best;
}

bool ls_compared_leads(const struct ls_comparison *comparison, size_t index, bool plain)
{
    for (size_t i = 0; i < comparison->run_count; i++)
        if (i != index && ls_compared_was_measured(comparison, i) &&
            (!plain || !comparison->runs[i].way) && !ls_compared_is_faster(comparison, index, i))
            return false;
    return true;
}

void ls_say_names(struct ls_sentence_writer *writer, const struct ls_comparison *comparison,
                  const struct ls_picks *picks, const char *one, const char *many,
                  const char *sentence)
{
    FILE *out = picks->count ? ls_sentence_begin(writer) : NULL;
    if (!out)
        return;
    if (picks->count == comparison->run_count && picks->count > 2)
        fputs("All runs", out);
    else
        ls_put_compared_names(out, comparison, picks->list, picks->count);
    fprintf(out, " %s %s", picks->count == 1 ? one : many, sentence);
    ls_sentence_end(writer);
}
