// SPDX-License-Identifier: Apache-2.0
// Helpers for sentences about the runs of a comparison, shared by the verdict and the suggestions.
// [main thread]
#ifndef LS_TOOLS_COMPARE_SENTENCES_H
#define LS_TOOLS_COMPARE_SENTENCES_H

#include "tools/compare/verdict.h"

// How a suggestion ends: with a command, or with a call of the Python package.
#define LS_TRAIN_COMMAND "lockstep train"
#define LS_TRAIN_CALL "lockstep.Model("
// Where that begins; NULL: the sentence has none.
const char *ls_sentence_code(const char *sentence);

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

// What the second run of the reference is: "one device, each batch in two halves". Returns `text`.
#define LS_TWIN_BYTES 160
const char *ls_twin_text(const struct ls_comparison *comparison, char text[static LS_TWIN_BYTES]);
// "is asynchronous", "trains weights of its own in each replica between rounds", ...
const char *ls_way_verb(enum ls_compared_way way);
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
// Whether `a` was found to be faster than `b`; whether they were compared and no difference was
// found. Without enough measurements, both are false.
bool ls_compared_is_faster(const struct ls_comparison *comparison, size_t a, size_t b);
bool ls_compared_is_level(const struct ls_comparison *comparison, size_t a, size_t b);
// The run that was measured to have the highest speed, but for `but`; `plain`: of those that
// compute what one device does. Whether it is the fastest, ls_compared_is_faster() knows.
// LS_COMPARISON_NONE: none.
size_t ls_compared_highest(const struct ls_comparison *comparison, size_t but, bool plain);
// Found to be faster than all others that were measured; `plain`: than all others of those.
bool ls_compared_leads(const struct ls_comparison *comparison, size_t index, bool plain);
// Differs from the reference by more than rounding explains.
bool ls_compared_is_off(const struct ls_comparison *comparison, size_t index);
bool ls_compared_has_unequal_replicas(const struct ls_comparison *comparison, size_t index);

// What limits each of the picked runs.
void ls_say_limits(struct ls_sentence_writer *writer, const struct ls_comparison *comparison,
                   const struct ls_picks *all);
// "37 ms", "1.3 min", "2.5 h"; a dash for NaN. Returns `text`.
#define LS_LONG_TIME_BYTES 32
const char *ls_long_time(double seconds, char text[static LS_LONG_TIME_BYTES]);
// How fast machines compute on the other network, and what all runs are to reach there.
#define LS_COMPUTE_BYTES 96
#define LS_GOAL_BYTES 96
const char *ls_compute_text(const struct ls_comparison *comparison,
                            char text[static LS_COMPUTE_BYTES]);
const char *ls_goal_text(const struct ls_comparison *comparison, char text[static LS_GOAL_BYTES]);
// Nothing where no network was simulated.
void ls_say_network(struct ls_sentence_writer *writer, const struct ls_comparison *comparison);
void ls_say_truth(struct ls_sentence_writer *writer, const struct ls_comparison *comparison);

#endif
