// SPDX-License-Identifier: Apache-2.0
// Sentences about the runs of a comparison: what the verdict and the suggestions share. Private to report/. [main thread]
#ifndef LS_REPORT_SENTENCES_H
#define LS_REPORT_SENTENCES_H

#include "core/report/verdict.h"

// How the command in a suggestion begins, which stands at the end of its sentence.
#define LS_TRAIN_COMMAND "lockstep train"
#define LS_LEAST_ROUNDS 5 // with fewer, nothing is told from noise

struct ls_sentence_writer {
    struct ls_sentences *out;
    FILE *stream; // of the running sentence
    char *line;
    size_t bytes;
    bool failed;
};

// The stream that the sentence is written to; NULL when there is no memory, which the writer remembers.
FILE *ls_sentence_begin(struct ls_sentence_writer *writer);
void ls_sentence_end(struct ls_sentence_writer *writer);
// LS_OUT_OF_MEMORY, without sentences, when one of them found none.
LS_STATUS ls_sentences_conclude(struct ls_sentence_writer *writer);

// Indices of runs, with room for all.
struct ls_picks {
    size_t *list;
    size_t count;
};
// Those that are `wanted`; the list is freed by the caller. False: no memory.
bool ls_compared_pick(const struct ls_comparison *comparison,
                      bool (*wanted)(const struct ls_comparison *, size_t), struct ls_picks *out);

// A whole number in groups of three: "24,145". Returns `text`.
#define LS_GROUPED_BYTES 48
const char *ls_grouped(double value, char text[static LS_GROUPED_BYTES]);

void ls_put_compared_name(FILE *out, const struct ls_comparison *comparison, size_t index);
// "a", "a and b", "a, b and c".
void ls_put_compared_names(FILE *out, const struct ls_comparison *comparison, const size_t *indices,
                           size_t count);
// "ring was ..." and "ring and tree were ..." differ in their first word: `one` or `many`. Nothing without picks.
void ls_say_names(struct ls_sentence_writer *writer, const struct ls_comparison *comparison,
                  const struct ls_picks *picks, const char *one, const char *many,
                  const char *sentence);

// Whether the strategy of this run runs with other counts of replicas, too.
bool ls_compared_has_several_counts(const struct ls_comparison *comparison, size_t index);
bool ls_compared_was_measured(const struct ls_comparison *comparison, size_t index);
bool ls_compared_knows_noise(const struct ls_compared_run *run);
// Whether `a` is faster than `b` by more than noise. The runs took turns, so a round of one is held against the same round
// of the other, and a machine that gets slower slows both: faster in so many rounds that chance alone does that one time
// in twenty or less (the sign test). Where rounds have no partners: the quartiles do not overlap.
bool ls_compared_is_faster(const struct ls_compared_run *a, const struct ls_compared_run *b);
// Rounds in which `a` was faster than `b`; 0 where they have no partners.
size_t ls_compared_wins(const struct ls_compared_run *a, const struct ls_compared_run *b);
// The fastest run that was measured but for `but`; `synchronous`: of those alone. LS_COMPARISON_NONE: none.
size_t ls_compared_fastest(const struct ls_comparison *comparison, size_t but, bool synchronous);
// Differs from the reference by more than rounding explains.
bool ls_compared_is_off(const struct ls_comparison *comparison, size_t index);
bool ls_compared_has_unequal_replicas(const struct ls_comparison *comparison, size_t index);

// What limits each of the picked runs.
void ls_say_limits(struct ls_sentence_writer *writer, const struct ls_comparison *comparison,
                   const struct ls_picks *all);
void ls_say_truth(struct ls_sentence_writer *writer, const struct ls_comparison *comparison);

#endif
