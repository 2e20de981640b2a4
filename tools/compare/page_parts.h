// SPDX-License-Identifier: Apache-2.0
// What the files of the comparison page share: the page being written, its runs, text for people, and one function a
// section. A section without data writes nothing. [main thread]
#ifndef LS_TOOLS_COMPARE_PAGE_PARTS_H
#define LS_TOOLS_COMPARE_PAGE_PARTS_H

#include "core/base/status.h"
#include "tools/report/chart.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define LS_PAGE_COLOURS 8
#define LS_PAGE_DASHES 6

struct ls_page_run {
    const json_t *json;
    const char *strategy; // never NULL
    bool done; // the whole run; a part of one may have numbers too
    bool reference;
    const char *other_way; // than one device computes: "asynchronous", "rounds"; NULL: the same
    bool
        named_by_replicas; // the same strategy ran with other counts: the name alone says too little
    unsigned replicas; // 0: unknown
    unsigned colour, dash; // below LS_PAGE_COLOURS, LS_PAGE_DASHES
};

struct ls_page {
    FILE *out;
    const json_t *comparison;
    struct ls_page_run *runs;
    size_t run_count;
    const struct ls_page_run *reference; // NULL: none
    unsigned last_id; // of elements that others refer to
};

// ---- Reading ----

// NaN: not a number that can be shown.
double ls_page_value(const json_t *value);
double ls_page_number(const json_t *object, const char *key);
const char *ls_page_string(const json_t *object, const char *key); // NULL: no text
// Whether runs are held against one device that takes the same shares, of whose first two losses
// there are figures, too.
bool ls_page_has_shares(const struct ls_page *page);
bool ls_page_has_bits(const struct ls_page *page); // to be those of the reference (--reproducible)
const char *ls_page_twin(const struct ls_page *page); // what the second run of the reference was
// A field of "step_seconds".
double ls_page_step_seconds(const struct ls_page_run *run, const char *key);

// ---- Text ----

// Returned by value, so that a printf can take several: ls_page_bytes(n).text.
struct ls_page_text {
    char text[64];
};

// A dash where the value is no number.
struct ls_page_text ls_page_count(double value); // 24,145
struct ls_page_text ls_page_significant(double value); // three digits: 0.881, 12.4, 24,145
struct ls_page_text ls_page_ratio(double value); // 0.72, 1.85, 12.4
struct ls_page_text ls_page_seconds(double value); // 1.3 ms
struct ls_page_text ls_page_bytes(double value); // 901 kB
struct ls_page_text ls_page_deviation(double value); // 3.1e-7

void ls_page_put(const struct ls_page *page, const char *text); // escaped
void ls_page_put_breakable(const struct ls_page *page,
                           const char *name); // with places to break a line
// Escaped; options and the command or call at the end are code, and no line breaks within a hyphenated word.
void ls_page_put_sentence(const struct ls_page *page, const char *text);
// The strategy with what tells it from other runs, escaped; as an element, or as plain text for titles.
void ls_page_put_name(const struct ls_page *page, const struct ls_page_run *run);
void ls_page_put_plain_name(const struct ls_page *page, const struct ls_page_run *run);
// Why a run has no result: "unavailable: no CUDA driver", escaped.
void ls_page_put_reason(const struct ls_page *page, const struct ls_page_run *run);

// ---- Plots: lines in a picture that is as wide as its place; its texts keep their size ----

struct ls_page_line {
    enum {
        LS_PAGE_LINE,
        LS_PAGE_GUIDE,
        LS_PAGE_UNSEEN
    } kind; // a guide is grey and dotted; the unseen make room
    const struct ls_page_run *run; // whose colour; NULL for others
    const double *low, *high; // intervals at the points; NULL: none
};

// A <figure> with one <svg>. `lines` has an entry for each series of `chart`, and a series without a name has its run's;
// `note` (may be NULL) is said below the title and to those who hear the page.
void ls_page_plot(struct ls_page *page, const struct ls_chart *chart,
                  const struct ls_page_line *lines, const char *note);
// The sample of a run's line, for legends.
void ls_page_line_sample(const struct ls_page *page, const struct ls_page_run *run);

// ---- Sections, in the order of the page ----

void ls_page_style(const struct ls_page *page);
void ls_page_speed(struct ls_page *page);
void ls_page_steps(struct ls_page *page);
LS_STATUS ls_page_curves(struct ls_page *page);
// A heading, what was simulated on which network, and why some runs were not.
void ls_page_network(const struct ls_page *page);
void ls_page_deviations(struct ls_page *page);
LS_STATUS ls_page_scaling(struct ls_page *page);
void ls_page_buckets(struct ls_page *page);
void ls_page_table(struct ls_page *page);
void ls_page_method(struct ls_page *page);

#endif
