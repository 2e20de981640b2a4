// SPDX-License-Identifier: Apache-2.0
// What is said on the page of a network that is not here.
#include "tools/compare/page_parts.h"
#include "tools/compare/sentences.h"

#include <math.h>

static void begin_note(const struct ls_page *page, const struct ls_page_run *run,
                       const char *before)
{
    fprintf(page->out, "<p class=\"note\">%s", before);
    ls_page_put_name(page, run);
}

// Why a run has no figures there, or what they were made from.
static void print_notes(const struct ls_page *page, const struct ls_page_run *run)
{
    const json_t *there = json_object_get(run->json, "simulated");
    const char *reason = ls_page_string(there, "reason");
    const double steps = ls_page_number(page->comparison, "steps");
    const double recorded = ls_page_number(there, "recorded_steps");
    const double unfiltered = ls_page_number(there, "unfiltered_steps");
    char time[LS_LONG_TIME_BYTES];
    if (reason) {
        begin_note(page, run, "");
        fputs(" was not simulated: ", page->out);
        ls_page_put(page, reason);
        fputs(".</p>\n", page->out);
        return;
    }
    if (!isfinite(ls_page_number(there, "step_seconds")))
        return;
    if (unfiltered > 0) {
        begin_note(page, run, "Of ");
        fprintf(page->out, ", the first %.0f steps are not filtered and take %s each.</p>\n",
                unfiltered, ls_long_time(ls_page_number(there, "unfiltered_step_seconds"), time));
    }
    if (recorded < steps) {
        begin_note(page, run, "Of ");
        fprintf(page->out, ", the first %.0f of %.0f steps were recorded.</p>\n", recorded, steps);
    }
}

void ls_page_network(const struct ls_page *page)
{
    const json_t *simulated = json_object_get(page->comparison, "simulated");
    const char *network = ls_page_string(simulated, "network");
    const char *compute = ls_page_string(simulated, "compute");
    const char *goal = ls_page_string(simulated, "goal");
    if (!network || !compute || !goal)
        return;
    fputs("<h3>On ", page->out);
    ls_page_put(page, network);
    fputs("</h3>\n<p class=\"note\">The same steps at the times that they would take there: "
          "simulated, ",
          page->out);
    ls_page_put(page, compute);
    fputs(". The goal in the table below is ", page->out);
    ls_page_put(page, goal);
    fputs(".</p>\n", page->out);
    for (size_t i = 0; i < page->run_count; i++)
        print_notes(page, &page->runs[i]);
}
