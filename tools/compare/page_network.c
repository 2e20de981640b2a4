// SPDX-License-Identifier: Apache-2.0
// What is said on the page of a network that is not here.
#include "tools/compare/page_parts.h"

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
    for (size_t i = 0; i < page->run_count; i++) {
        const json_t *run = json_object_get(page->runs[i].json, "simulated");
        const char *reason = ls_page_string(run, "reason");
        if (!reason)
            continue;
        fputs("<p class=\"note\">", page->out);
        ls_page_put_name(page, &page->runs[i]);
        fputs(" was not simulated: ", page->out);
        ls_page_put(page, reason);
        fputs(".</p>\n", page->out);
    }
}
