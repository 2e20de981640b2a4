// SPDX-License-Identifier: Apache-2.0
// Speed over replicas with the ideal line, when a strategy ran with more than one count.
#include "tools/compare/page_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Points of all strategies one after the other, then three: the ideal line, and one that makes room for zero.
struct scaling {
    double *replicas, *speeds, *lows, *highs;
    struct ls_chart_series *series;
    struct ls_page_line *lines;
    size_t strategies, points;
    double fewest, most; // replicas
    bool compares; // a strategy ran with several counts
    double one; // examples a second that one replica of the ideal line has
};

static const json_t *points_of(const json_t *entry)
{
    return json_object_get(entry, "points");
}

static void scaling_finish(struct scaling *scaling)
{
    free(scaling->replicas);
    free(scaling->speeds);
    free(scaling->lows);
    free(scaling->highs);
    free(scaling->series);
    free(scaling->lines);
}

static enum ls_status scaling_init(struct scaling *scaling, const json_t *list)
{
    *scaling = (struct scaling){.fewest = INFINITY};
    for (size_t i = 0; i < json_array_size(list); i++)
        scaling->points += json_array_size(points_of(json_array_get(list, i)));
    const size_t points = scaling->points + 3, lines = json_array_size(list) + 2;
    scaling->replicas = calloc(points, sizeof(double));
    scaling->speeds = calloc(points, sizeof(double));
    scaling->lows = calloc(points, sizeof(double));
    scaling->highs = calloc(points, sizeof(double));
    scaling->series = calloc(lines, sizeof(*scaling->series));
    scaling->lines = calloc(lines, sizeof(*scaling->lines));
    if (scaling->replicas && scaling->speeds && scaling->lows && scaling->highs &&
        scaling->series && scaling->lines)
        return LS_OK;
    scaling_finish(scaling);
    return LS_OUT_OF_MEMORY;
}

static const struct ls_page_run *run_of(const struct ls_page *page, const char *strategy)
{
    for (size_t i = 0; i < page->run_count; i++)
        if (!strcmp(page->runs[i].strategy, strategy))
            return &page->runs[i];
    return NULL;
}

// Points without a speed stay as NaN: they are not drawn.
static void read_points(struct scaling *scaling, const json_t *points, size_t first)
{
    double before = NAN;
    for (size_t i = 0; i < json_array_size(points); i++) {
        const json_t *point = json_array_get(points, i);
        const double speed = ls_page_number(point, "examples_per_second");
        const double replicas = ls_page_number(point, "replicas");
        scaling->replicas[first + i] = replicas >= 1 ? replicas : NAN;
        scaling->speeds[first + i] = speed > 0 ? speed : NAN;
        scaling->lows[first + i] = ls_page_number(point, "low");
        scaling->highs[first + i] = ls_page_number(point, "high");
        if (!(speed > 0) || !(replicas >= 1))
            continue;
        scaling->compares = scaling->compares || before < replicas || before > replicas;
        before = replicas;
        scaling->fewest = fmin(scaling->fewest, replicas);
        scaling->most = fmax(scaling->most, replicas);
    }
}

// Strategies without a point stay out.
static void read_all(const struct ls_page *page, struct scaling *scaling, const json_t *list)
{
    size_t first = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const char *strategy = ls_page_string(entry, "strategy");
        const size_t count = json_array_size(points_of(entry));
        if (!count)
            continue;
        read_points(scaling, points_of(entry), first);
        const size_t s = scaling->strategies++;
        scaling->series[s] =
            (struct ls_chart_series){strategy ? strategy : "(no name)", scaling->replicas + first,
                                     scaling->speeds + first, count};
        scaling->lines[s] =
            (struct ls_page_line){LS_PAGE_LINE, run_of(page, scaling->series[s].name),
                                  scaling->lows + first, scaling->highs + first};
        first += count;
    }
}

// One replica of the ideal line is as fast as the reference, else as the best at the fewest replicas.
static void find_ideal(const struct ls_page *page, struct scaling *scaling)
{
    double speed =
        page->reference ? ls_page_number(page->reference->json, "examples_per_second") : NAN;
    if (speed > 0 && page->reference->replicas)
        scaling->one = speed / page->reference->replicas;
    for (size_t i = 0; i < scaling->points && !(scaling->one > 0); i++)
        if (scaling->replicas[i] == scaling->fewest)
            scaling->one = fmax(scaling->one, scaling->speeds[i] / scaling->fewest);
}

static void add_guides(struct scaling *scaling)
{
    const size_t end = scaling->points, strategies = scaling->strategies;
    scaling->replicas[end] = scaling->replicas[end + 2] = scaling->fewest;
    scaling->replicas[end + 1] = scaling->most;
    scaling->speeds[end] = scaling->one * scaling->fewest;
    scaling->speeds[end + 1] = scaling->one * scaling->most;
    scaling->speeds[end + 2] = 0;
    scaling->series[strategies] =
        (struct ls_chart_series){"ideal", scaling->replicas + end, scaling->speeds + end, 2};
    scaling->lines[strategies] = (struct ls_page_line){.kind = LS_PAGE_GUIDE};
    scaling->series[strategies + 1] =
        (struct ls_chart_series){"zero", scaling->replicas + end + 2, scaling->speeds + end + 2, 1};
    scaling->lines[strategies + 1] = (struct ls_page_line){.kind = LS_PAGE_UNSEEN};
}

static void print_legend(const struct ls_page *page, const struct scaling *scaling)
{
    fputs("<ul class=\"legend\">", page->out);
    for (size_t i = 0; i < scaling->strategies; i++) {
        fputs("<li>", page->out);
        if (scaling->lines[i].run)
            ls_page_line_sample(page, scaling->lines[i].run);
        fputs(" <span class=\"name\">", page->out);
        ls_page_put(page, scaling->series[i].name);
        fputs("</span></li>\n", page->out);
    }
    fputs("<li><svg class=\"sample\" width=\"30\" height=\"10\" aria-hidden=\"true\">"
          "<path class=\"line guide\" d=\"M1 5H29\"/></svg> ideal</li></ul>\n",
          page->out);
}

// Speed and efficiency of one strategy: what a replica does, of what it did at the fewest replicas.
static void print_row(const struct ls_page *page, const struct ls_chart_series *series)
{
    double base = NAN;
    fputs("<tr><th scope=\"row\"><span class=\"name\">", page->out);
    ls_page_put_breakable(page, series->name);
    fputs("</span></th><td class=\"text\">", page->out);
    for (size_t i = 0; i < series->count; i++) {
        const double each = series->y[i] / series->x[i];
        if (!(each > 0))
            continue;
        if (!(base > 0))
            base = each;
        fprintf(page->out, "<span class=\"item\">%.0f replica%s: <b>%s</b>", series->x[i],
                series->x[i] == 1 ? "" : "s", ls_page_significant(series->y[i]).text);
        if (each != base)
            fprintf(page->out, " <small>%.0f\xc2\xa0%% efficient</small>", 100 * each / base);
        fputs("</span> ", page->out);
    }
    fputs("</td></tr>\n", page->out);
}

static void print_section(struct ls_page *page, const struct scaling *scaling)
{
    const struct ls_chart chart = {
        .title = "Examples a second over replicas",
        .x = {"replicas", LS_CHART_COUNT, false},
        .y = {"examples a second", LS_CHART_NUMBER, false},
        .series = scaling->series,
        .series_count = scaling->strategies + 2,
    };
    fputs("<section id=\"scaling\">\n<h2>Scaling</h2>\n", page->out);
    print_legend(page, scaling);
    fputs("<div class=\"plots\">\n", page->out);
    ls_page_plot(page, &chart, scaling->lines,
                 "The dotted line is ideal scaling: N replicas have N times the speed of one.");
    fputs(
        "<div>\n<h3>Efficiency</h3>\n<p class=\"note\">Examples a second, and what a replica does "
        "of what "
        "one did at the fewest replicas.</p>\n<div class=\"scroll\" role=\"region\" tabindex=\"0\" "
        "aria-label=\"Efficiency\"><table><tbody>\n",
        page->out);
    for (size_t i = 0; i < scaling->strategies; i++)
        print_row(page, &scaling->series[i]);
    fputs("</tbody></table></div>\n</div>\n</div>\n</section>\n", page->out);
}

enum ls_status ls_page_scaling(struct ls_page *page)
{
    const json_t *list = json_object_get(page->comparison, "scaling");
    struct scaling scaling;
    const enum ls_status status = scaling_init(&scaling, list);
    if (status)
        return status;
    read_all(page, &scaling, list);
    if (scaling.compares) {
        find_ideal(page, &scaling);
        add_guides(&scaling);
        print_section(page, &scaling);
    }
    scaling_finish(&scaling);
    return LS_OK;
}
