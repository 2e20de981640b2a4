// SPDX-License-Identifier: Apache-2.0
// What limits the runs of a comparison, in words: those that the same limits share a sentence.
#include "tools/compare/sentences.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Shares of a step from which on a part limits it, rather than the kernels.
#define INPUT_SHARE 0.25
#define EXPOSED_SHARE 0.33
#define UPDATE_SHARE 0.33
#define OTHER_SHARE 0.33
#define DEVICE_SHARE 0.25
#define COMMUNICATION_SHARE 0.01 // worth a word

enum overlap { OVERLAP_NONE, OVERLAP_HIDDEN, OVERLAP_SHOWN };

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
        {LS_LIMIT_DEVICE, times->device / times->median, DEVICE_SHARE},
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

static enum overlap overlap_of(const struct ls_compared_times *times)
{
    if (!(times->communication >= COMMUNICATION_SHARE * times->median))
        return OVERLAP_NONE;
    return times->exposed_communication <= 0.5 * times->communication ? OVERLAP_HIDDEN
                                                                      : OVERLAP_SHOWN;
}

// The part of a step that the limit is about.
static double part_of(const struct ls_compared_times *times, enum ls_limit limit)
{
    switch (limit) {
    case LS_LIMIT_INPUT: return times->input;
    case LS_LIMIT_COMMUNICATION: return times->exposed_communication;
    case LS_LIMIT_UPDATE: return times->update;
    case LS_LIMIT_DEVICE: return times->device;
    case LS_LIMIT_OVERHEAD: return times->other;
    default: return times->compute;
    }
}

struct range {
    double low, high;
};

static void widen(struct range *range, double value)
{
    range->low = fmin(range->low, value);
    range->high = fmax(range->high, value);
}

// "72", or "63 to 79" where they differ in print.
static void put_range(FILE *out, const struct range *range, int digits)
{
    char low[32], high[32];
    snprintf(low, sizeof(low), "%.*f", digits, range->low);
    snprintf(high, sizeof(high), "%.*f", digits, range->high);
    fputs(low, out);
    if (strcmp(low, high) != 0)
        fprintf(out, " to %s", high);
}

// Words around the share of a step, for one run and for several.
struct words {
    const char *one, *many, *after;
};

static const struct words *words_of(enum ls_limit limit)
{
    static const struct words words[] = {
        [LS_LIMIT_COMPUTE] = {" is compute-bound: kernels take ",
                              " are compute-bound: kernels take ", " % of a step"},
        [LS_LIMIT_INPUT] = {" is input-bound: it waits ", " are input-bound: they wait ",
                            " % of a step for data"},
        [LS_LIMIT_COMMUNICATION] = {" is bound by communication: it waits ",
                                    " are bound by communication: they wait ",
                                    " % of a step for it or for other replicas"},
        [LS_LIMIT_UPDATE] = {" is bound by the update: it takes ",
                             " are bound by the update: it takes ", " % of a step"},
        [LS_LIMIT_DEVICE] = {" is bound by the device: the host waits for it ",
                             " are bound by the device: the host waits for it ",
                             " % of a step (for kernels, and reductions in its memory)"},
        [LS_LIMIT_OVERHEAD] = {" spends most of its time outside kernels and communication: ",
                               " spend most of their time outside kernels and communication: ",
                               " % of a step"},
    };
    return &words[limit == LS_LIMIT_UNKNOWN ? LS_LIMIT_COMPUTE : limit];
}

static const char *how_much(double share)
{
    return share > 0.995 ? "all" : share > 0.9 ? "almost all" : "most";
}

static void put_overlap(FILE *out, enum overlap overlap, const struct range *exposed,
                        const struct range *all)
{
    if (overlap == OVERLAP_NONE)
        return;
    if (overlap == OVERLAP_HIDDEN)
        fputs("; communication hides under backward (", out);
    else
        fprintf(out, "; %s communication (", how_much(exposed->high / all->high));
    put_range(out, exposed, 2);
    fputs(" of ", out);
    put_range(out, all, 2);
    fputs(overlap == OVERLAP_HIDDEN ? " ms show)" : " ms) is exposed", out);
}

static void say_limit(struct ls_sentence_writer *writer, const struct ls_comparison *comparison,
                      const struct ls_picks *picks)
{
    const struct ls_compared_times *first = &comparison->runs[picks->list[0]].times;
    const enum ls_limit limit = ls_verdict_limit(first);
    const struct words *words = words_of(limit);
    struct range share = {INFINITY, 0}, exposed = share, all = share;
    for (size_t i = 0; i < picks->count; i++) {
        const struct ls_compared_times *times = &comparison->runs[picks->list[i]].times;
        widen(&share, 100 * part_of(times, limit) / times->median);
        widen(&exposed, 1e3 * times->exposed_communication);
        widen(&all, 1e3 * times->communication);
    }
    FILE *out = ls_sentence_begin(writer);
    if (!out)
        return;
    ls_put_compared_names(out, comparison, picks->list, picks->count);
    fputs(picks->count == 1 ? words->one : words->many, out);
    put_range(out, &share, 0);
    fputs(words->after, out);
    put_overlap(out, overlap_of(first), &exposed, &all);
    fputs(".", out);
    ls_sentence_end(writer);
}

static bool is_known(const struct ls_compared_times *times)
{
    return times->median > 0 && isfinite(times->compute);
}

static bool alike(const struct ls_compared_times *a, const struct ls_compared_times *b)
{
    return is_known(a) && is_known(b) && ls_verdict_limit(a) == ls_verdict_limit(b) &&
           overlap_of(a) == overlap_of(b);
}

// Each run once, with the first that is like it.
void ls_say_limits(struct ls_sentence_writer *writer, const struct ls_comparison *comparison,
                   const struct ls_picks *all)
{
    struct ls_picks group = {.list = calloc(all->count + 1, sizeof(size_t))};
    if (!group.list) {
        writer->failed = true;
        return;
    }
    for (size_t i = 0; i < all->count; i++) {
        const struct ls_compared_times *times = &comparison->runs[all->list[i]].times;
        bool told = !is_known(times);
        for (size_t k = 0; k < i; k++)
            told = told || alike(&comparison->runs[all->list[k]].times, times);
        group.count = 0;
        for (size_t k = i; !told && k < all->count; k++)
            if (k == i || alike(times, &comparison->runs[all->list[k]].times))
                group.list[group.count++] = all->list[k];
        if (group.count)
            say_limit(writer, comparison, &group);
    }
    free(group.list);
}
