// SPDX-License-Identifier: Apache-2.0
// Examples a second: a bar a run, with its interval and what each round gave.
#include "tools/compare/page_parts.h"

#include <math.h>
#include <string.h>

static double largest_speed(const struct ls_page *page)
{
    double largest = 0;
    for (size_t i = 0; i < page->run_count; i++) {
        const json_t *json = page->runs[i].json;
        const json_t *rounds = json_object_get(json, "round_examples_per_second");
        largest = fmax(largest, ls_page_number(json, "examples_per_second"));
        largest = fmax(largest, ls_page_number(json, "examples_per_second_high"));
        for (size_t j = 0; j < json_array_size(rounds); j++)
            largest = fmax(largest, ls_page_value(json_array_get(rounds, j)));
    }
    return largest;
}

static void print_rounds(const struct ls_page *page, const struct ls_page_run *run, double largest)
{
    const json_t *rounds = json_object_get(run->json, "round_examples_per_second");
    for (size_t i = 0; i < json_array_size(rounds); i++) {
        const double speed = ls_page_value(json_array_get(rounds, i));
        if (speed > 0)
            fprintf(page->out,
                    "<circle class=\"round\" cx=\"%.2f%%\" cy=\"23\" r=\"2\">"
                    "<title>turn %zu: %s examples/s</title></circle>",
                    100 * speed / largest, i + 1, ls_page_significant(speed).text);
    }
}

static void print_bar(const struct ls_page *page, const struct ls_page_run *run, double speed,
                      double largest)
{
    const double low = ls_page_number(run->json, "examples_per_second_low");
    const double high = ls_page_number(run->json, "examples_per_second_high");
    fprintf(page->out,
            "<svg class=\"bar\" width=\"100%%\" height=\"28\" role=\"img\">"
            "<title>%s examples/s, quartiles %s to %s</title>"
            "<rect class=\"track\" width=\"100%%\" height=\"18\" rx=\"3\"/>"
            "<rect class=\"fill colour%u\" width=\"%.2f%%\" height=\"18\" rx=\"3\"/>",
            ls_page_significant(speed).text, ls_page_significant(low).text,
            ls_page_significant(high).text, run->colour, 100 * speed / largest);
    if (low >= 0 && low <= high)
        fprintf(page->out,
                "<line class=\"whisker\" x1=\"%.2f%%\" x2=\"%.2f%%\" "
                "y1=\"9\" y2=\"9\"/><line class=\"whisker\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"4\" "
                "y2=\"14\"/>"
                "<line class=\"whisker\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"4\" y2=\"14\"/>",
                100 * low / largest, 100 * high / largest, 100 * low / largest, 100 * low / largest,
                100 * high / largest, 100 * high / largest);
    print_rounds(page, run, largest);
    fputs("</svg>", page->out);
}

static bool is_run(const json_t *comparison, const char *name, const char *replicas,
                   const struct ls_page_run *run)
{
    const char *strategy = ls_page_string(comparison, name);
    const double count = ls_page_number(comparison, replicas);
    return strategy && !strcmp(strategy, run->strategy) && !(count != run->replicas);
}

static bool is_level_in(const json_t *all, const struct ls_page_run *one,
                        const struct ls_page_run *other)
{
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *pair = json_array_get(all, i);
        if ((is_run(pair, "a", "a_replicas", one) && is_run(pair, "b", "b_replicas", other)) ||
            (is_run(pair, "a", "a_replicas", other) && is_run(pair, "b", "b_replicas", one)))
            return isfinite(ls_page_number(pair, "p")) &&
                   json_is_false(json_object_get(pair, "different"));
    }
    return false;
}

// Whether the two were compared, and chance alone may have made the difference.
static bool is_level(const struct ls_page *page, const struct ls_page_run *one,
                     const struct ls_page_run *other)
{
    return is_level_in(json_object_get(page->comparison, "comparisons"), one, other) ||
           is_level_in(json_object_get(page->comparison, "reference_comparisons"), one, other);
}

static const struct ls_page_run *fastest_of(const struct ls_page *page)
{
    const struct ls_page_run *best = NULL;
    double most = 0;
    for (size_t i = 0; i < page->run_count; i++) {
        const double speed = ls_page_number(page->runs[i].json, "examples_per_second");
        if (speed > most) {
            best = &page->runs[i];
            most = speed;
        }
    }
    return best;
}

static void print_value(const struct ls_page *page, const struct ls_page_run *run, double speed)
{
    const double low = ls_page_number(run->json, "examples_per_second_low");
    const double high = ls_page_number(run->json, "examples_per_second_high");
    const double truth =
        page->reference ? ls_page_number(page->reference->json, "examples_per_second") : NAN;
    fprintf(page->out, "<div class=\"value\"><b>%s</b> examples/s",
            ls_page_significant(speed).text);
    if (low >= 0 && low <= high)
        fprintf(page->out, " <small>%s\xe2\x80\x93%s</small>", ls_page_significant(low).text,
                ls_page_significant(high).text);
    // A ratio would say that there is a difference.
    if (truth > 0 && !run->reference && !is_level(page, run, page->reference))
        fprintf(page->out, " <small>\xc2\xb7 %s\xc3\x97\xc2\xa0reference</small>",
                ls_page_ratio(speed / truth).text);
    fputs("</div>", page->out);
}

// The fastest and the reference, if nothing but chance may part the run from them.
static void print_level(const struct ls_page *page, const struct ls_page_run *run)
{
    const struct ls_page_run *others[] = {fastest_of(page), page->reference};
    const char *before = "<div class=\"detail\">no significant difference from ";
    bool any = false;
    for (size_t i = 0; i < 2; i++) {
        if (!others[i] || others[i] == run || (i == 1 && others[1] == others[0]) ||
            !is_level(page, run, others[i]))
            continue;
        fputs(any ? " or " : before, page->out);
        ls_page_put_name(page, others[i]);
        any = true;
    }
    if (any)
        fputs("</div>", page->out);
}

void ls_page_speed(struct ls_page *page)
{
    const double largest = largest_speed(page);
    fputs("<section id=\"speed\">\n<h2>Speed</h2>\n"
          "<p class=\"note\">Examples a second: the mean of the timed processes, the quartiles of "
          "their "
          "turns as a line, and each turn as a dot. Longer is better.</p>\n<div class=\"bars\" "
          "role=\"list\">\n",
          page->out);
    for (size_t i = 0; i < page->run_count; i++) {
        const struct ls_page_run *run = &page->runs[i];
        const double speed = ls_page_number(run->json, "examples_per_second");
        fputs("<div class=\"row\" role=\"listitem\"><div class=\"label\">", page->out);
        ls_page_put_name(page, run);
        fputs("</div>", page->out);
        if (speed > 0) {
            print_value(page, run, speed);
            print_bar(page, run, speed, largest);
            print_level(page, run);
        } else {
            fputs("<div class=\"reason\">", page->out);
            ls_page_put_reason(page, run);
            fputs("</div>", page->out);
        }
        fputs("</div>\n", page->out);
    }
    fputs("</div>\n</section>\n", page->out);
}
