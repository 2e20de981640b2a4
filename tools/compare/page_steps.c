// SPDX-License-Identifier: Apache-2.0
// Where the time of a step goes: a stacked bar a run, and below it all communication, of which the part under compute
// costs nothing.
#include "tools/compare/page_parts.h"

#include <math.h>
#include <string.h>

// In the order of the bar.
static const struct {
    const char *key, *class, *name;
} parts[] = {
    {"input", "input", "input"},
    {"compute", "compute", "compute"},
    {"exposed_communication", "exposed", "exposed communication"},
    {"update", "update", "update"},
    {"device", "device", "waiting for the device"},
    {"other", "other", "other"},
};
#define PARTS (sizeof(parts) / sizeof(parts[0]))

static double part_seconds(const struct ls_page_run *run, size_t part)
{
    const double seconds = ls_page_step_seconds(run, parts[part].key);
    return seconds > 0 ? seconds : 0;
}

static double whole_seconds(const struct ls_page_run *run)
{
    double sum = 0;
    for (size_t i = 0; i < PARTS; i++)
        sum += part_seconds(run, i);
    return sum;
}

static void print_segment(const struct ls_page *page, const char *class, const char *name,
                          double begin, double seconds, double most, bool below)
{
    if (!(seconds > 0))
        return;
    fprintf(page->out,
            "<rect class=\"segment %s\" x=\"%.2f%%\" y=\"%d\" width=\"%.2f%%\" height=\"%d\">"
            "<title>%s: %s</title></rect>",
            class, 100 * begin / most, below ? 21 : 0, 100 * seconds / most, below ? 6 : 18, name,
            ls_page_seconds(seconds).text);
}

// Communication runs while the device computes, so its hidden part ends where compute ends.
static void print_communication(const struct ls_page *page, const struct ls_page_run *run,
                                double most)
{
    const double all = ls_page_step_seconds(run, "communication");
    const double exposed = part_seconds(run, 2);
    const double computed = part_seconds(run, 0) + part_seconds(run, 1);
    if (!(all > 0))
        return;
    const double hidden = fmin(fmax(all - exposed, 0), computed);
    print_segment(page, "hidden", "communication hidden under compute", computed - hidden, hidden,
                  most, true);
    print_segment(page, "exposed", "exposed communication", computed, exposed, most, true);
}

static void print_bar(const struct ls_page *page, const struct ls_page_run *run, double most)
{
    fputs("<svg class=\"bar\" width=\"100%\" height=\"28\" role=\"img\"><title>", page->out);
    for (size_t i = 0; i < PARTS; i++)
        fprintf(page->out, "%s%s %s", i ? ", " : "", parts[i].name,
                ls_page_seconds(part_seconds(run, i)).text);
    fprintf(page->out, "; all communication %s</title>",
            ls_page_seconds(ls_page_step_seconds(run, "communication")).text);
    double begin = 0;
    for (size_t i = 0; i < PARTS; i++) {
        print_segment(page, parts[i].class, parts[i].name, begin, part_seconds(run, i), most,
                      false);
        begin += part_seconds(run, i);
    }
    print_communication(page, run, most);
    fputs("</svg>", page->out);
}

static void print_row(const struct ls_page *page, const struct ls_page_run *run, double most)
{
    const double median = ls_page_step_seconds(run, "median");
    fputs("<div class=\"row\" role=\"listitem\"><div class=\"label\">", page->out);
    ls_page_put_name(page, run);
    fputs("</div>", page->out);
    if (whole_seconds(run) > 0) {
        fprintf(page->out, "<div class=\"value\"><b>%s</b> a step",
                ls_page_seconds(isfinite(median) ? median : whole_seconds(run)).text);
        const double all = ls_page_step_seconds(run, "communication");
        if (all > 0)
            fprintf(page->out, " <small>\xc2\xb7 exposed %s of %s</small>",
                    ls_page_seconds(part_seconds(run, 2)).text, ls_page_seconds(all).text);
        fputs("</div>", page->out);
        print_bar(page, run, most);
    } else {
        fputs("<div class=\"reason\">", page->out);
        ls_page_put_reason(page, run);
        fputs("</div>", page->out);
    }
    fputs("</div>\n", page->out);
}

// Nobody waits for a device that computes on the calling thread.
static bool is_known(const struct ls_page *page, size_t part)
{
    bool known = strcmp(parts[part].key, "device") != 0;
    for (size_t i = 0; !known && i < page->run_count; i++)
        known = part_seconds(&page->runs[i], part) > 0;
    return known;
}

void ls_page_steps(struct ls_page *page)
{
    double most = 0;
    for (size_t i = 0; i < page->run_count; i++)
        most = fmax(most, whole_seconds(&page->runs[i]));
    fputs("<section id=\"steps\">\n<h2>Time of a step</h2>\n<ul class=\"keys\">", page->out);
    for (size_t i = 0; i < PARTS; i++)
        if (is_known(page, i))
            fprintf(page->out, "<li><span class=\"key %s\"></span>%s</li>", parts[i].class,
                    parts[i].name);
    fputs("<li><span class=\"key hidden\"></span>hidden communication (below; costs no time)</li>"
          "</ul>\n<div class=\"bars\" role=\"list\">\n",
          page->out);
    for (size_t i = 0; i < page->run_count; i++)
        print_row(page, &page->runs[i], most);
    fputs("</div>\n</section>\n", page->out);
}
