// SPDX-License-Identifier: Apache-2.0
// Line plots of the page. Places are percentages of the picture, so that it stretches with the window while texts, dots
// and the width of lines stay as they are; only the lines themselves lie in an inner picture that is stretched.
#include "tools/compare/page_parts.h"

#include "tools/report/chart_scale.h"

#define INNER 1000.0 // the side of the inner picture
#define MARKED_POINTS 24 // longer lines have no dots

static void print_class(const struct ls_page *page, const struct ls_page_line *line)
{
    if (line->run)
        fprintf(page->out, "run%zu colour%u dash%u%s", (size_t)(line->run - page->runs),
                line->run->colour, line->run->dash, line->run->reference ? " reference" : "");
    else
        fputs("guide", page->out);
}

static void put_series_name(const struct ls_page *page, const struct ls_chart_series *series,
                            const struct ls_page_line *line)
{
    if (series->name)
        ls_page_put(page, series->name);
    else
        ls_page_put_plain_name(page, line->run);
}

static void print_x_axis(const struct ls_page *page, const struct ls_chart_scale *x)
{
    char text[48];
    for (size_t i = 0; i < x->tick_count; i++) {
        const double at = ls_chart_scale_place(x, x->ticks[i]);
        fprintf(page->out,
                "<line class=\"grid\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"0\" y2=\"100%%\"/>"
                "<text x=\"%.2f%%\" y=\"100%%\" dy=\"18\" text-anchor=\"middle\">%s</text>\n",
                at, at, at, ls_chart_value_text(x->axis->unit, x->ticks[i], text, sizeof(text)));
    }
    fputs("<text class=\"axis\" x=\"50%\" y=\"100%\" dy=\"38\" text-anchor=\"middle\">", page->out);
    ls_page_put(page, x->axis->label);
    fputs("</text>\n", page->out);
}

static void print_y_axis(const struct ls_page *page, const struct ls_chart_scale *y)
{
    char text[48];
    for (size_t i = 0; i < y->tick_count; i++) {
        const double at = ls_chart_scale_place(y, y->ticks[i]);
        fprintf(page->out,
                "<line class=\"grid\" x1=\"0\" x2=\"100%%\" y1=\"%.2f%%\" y2=\"%.2f%%\"/>"
                "<text x=\"-8\" y=\"%.2f%%\" dy=\"4\" text-anchor=\"end\">%s</text>\n",
                at, at, at, ls_chart_value_text(y->axis->unit, y->ticks[i], text, sizeof(text)));
    }
}

static size_t shown_points(const struct ls_chart *chart, const struct ls_chart_series *series)
{
    size_t count = 0;
    for (size_t i = 0; i < series->count; i++)
        count += ls_chart_has_point(chart, series, i);
    return count;
}

// One point is no line; it has its dot.
static void print_line(const struct ls_page *page, const struct ls_chart *chart,
                       const struct ls_chart_series *series, const struct ls_page_line *line,
                       const struct ls_chart_scale *x, const struct ls_chart_scale *y)
{
    bool pen_down = false;
    if (shown_points(chart, series) < 2)
        return;
    fputs("<path class=\"line ", page->out);
    print_class(page, line);
    fputs("\" vector-effect=\"non-scaling-stroke\" d=\"", page->out);
    for (size_t i = 0; i < series->count; i++) {
        const bool here = ls_chart_has_point(chart, series, i);
        if (here)
            fprintf(page->out, "%c%.1f %.1f", pen_down ? 'L' : 'M',
                    ls_chart_scale_place(x, series->x[i]) * INNER / 100,
                    ls_chart_scale_place(y, series->y[i]) * INNER / 100);
        pen_down = here;
    }
    fputs("\"><title>", page->out);
    put_series_name(page, series, line);
    fputs("</title></path>\n", page->out);
}

static void print_interval(const struct ls_page *page, const struct ls_page_line *line, size_t i,
                           double at, const struct ls_chart_scale *y)
{
    if (!line->low || !(line->low[i] <= line->high[i]))
        return;
    fputs("<line class=\"interval ", page->out);
    print_class(page, line);
    fprintf(page->out, "\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"%.2f%%\" y2=\"%.2f%%\"/>", at, at,
            ls_chart_scale_place(y, line->low[i]), ls_chart_scale_place(y, line->high[i]));
}

// A dot a point, with its values for who points at it; long lines have theirs at the last point.
static void print_points(const struct ls_page *page, const struct ls_chart *chart,
                         const struct ls_chart_series *series, const struct ls_page_line *line,
                         const struct ls_chart_scale *x, const struct ls_chart_scale *y)
{
    char at_text[48], value_text[48];
    const size_t first =
        series->count > MARKED_POINTS ? series->count - 1 : 0; // of those that are shown
    for (size_t i = first; i < series->count; i++) {
        if (!ls_chart_has_point(chart, series, i))
            continue;
        const double at = ls_chart_scale_place(x, series->x[i]);
        print_interval(page, line, i, at, y);
        fputs("<circle class=\"dot ", page->out);
        print_class(page, line);
        fprintf(page->out, "\" cx=\"%.2f%%\" cy=\"%.2f%%\" r=\"3.5\"><title>", at,
                ls_chart_scale_place(y, series->y[i]));
        put_series_name(page, series, line);
        fprintf(page->out, ": %s, %s</title></circle>\n",
                ls_chart_value_text(chart->x.unit, series->x[i], at_text, sizeof(at_text)),
                ls_chart_value_text(chart->y.unit, series->y[i], value_text, sizeof(value_text)));
    }
}

// What a guide is: at its end, or where lines begin, away from where they meet a level one.
static void print_guide_name(const struct ls_page *page, const struct ls_chart_series *series,
                             const struct ls_chart_scale *x, const struct ls_chart_scale *y)
{
    const bool level = series->y[0] == series->y[series->count - 1];
    const size_t at = level ? 0 : series->count - 1;
    fprintf(page->out,
            "<text class=\"guide-name\" x=\"%.2f%%\" y=\"%.2f%%\" dx=\"%d\" dy=\"-5\" "
            "text-anchor=\"%s\">",
            ls_chart_scale_place(x, series->x[at]), ls_chart_scale_place(y, series->y[at]),
            level ? 0 : -12, level ? "start" : "end");
    ls_page_put(page, series->name);
    fputs("</text>\n", page->out);
}

static void print_picture(const struct ls_page *page, const struct ls_chart *chart,
                          const struct ls_page_line *lines)
{
    struct ls_chart_scale x, y;
    ls_chart_scale_init(&x, chart, false, 0, 100);
    ls_chart_scale_init(&y, chart, true, 100, 0);
    print_x_axis(page, &x);
    print_y_axis(page, &y);
    fprintf(page->out,
            "<svg width=\"100%%\" height=\"100%%\" viewBox=\"0 0 %.0f %.0f\" "
            "preserveAspectRatio=\"none\">\n",
            INNER, INNER);
    // The reference first, wide and pale: the others should lie on it.
    for (int others = 0; others < 2; others++)
        for (size_t i = 0; i < chart->series_count; i++)
            if (lines[i].kind != LS_PAGE_UNSEEN &&
                others != (lines[i].run && lines[i].run->reference))
                print_line(page, chart, &chart->series[i], &lines[i], &x, &y);
    fputs("</svg>\n", page->out);
    for (size_t i = 0; i < chart->series_count; i++)
        if (lines[i].kind == LS_PAGE_LINE)
            print_points(page, chart, &chart->series[i], &lines[i], &x, &y);
        else if (lines[i].kind == LS_PAGE_GUIDE && shown_points(chart, &chart->series[i]))
            print_guide_name(page, &chart->series[i], &x, &y);
}

void ls_page_plot(struct ls_page *page, const struct ls_chart *chart,
                  const struct ls_page_line *lines, const char *note)
{
    const unsigned id = ++page->last_id;
    fprintf(page->out, "<figure class=\"plot\">\n<figcaption id=\"caption%u\">", id);
    ls_page_put(page, chart->title);
    fputs("</figcaption>\n", page->out);
    if (note) {
        fprintf(page->out, "<p class=\"note\" id=\"note%u\">", id);
        ls_page_put(page, note);
        fputs("</p>\n", page->out);
    }
    fputs("<p class=\"axis\" aria-hidden=\"true\">", page->out);
    ls_page_put(page, chart->y.label);
    fprintf(page->out,
            "</p>\n<svg class=\"plot\" width=\"100%%\" height=\"260\" role=\"img\" "
            "aria-labelledby=\"caption%u\"",
            id);
    if (note)
        fprintf(page->out, " aria-describedby=\"note%u\"", id);
    fputs(">\n", page->out);
    print_picture(page, chart, lines);
    fputs("</svg>\n</figure>\n", page->out);
}

void ls_page_line_sample(const struct ls_page *page, const struct ls_page_run *run)
{
    fprintf(page->out,
            "<svg class=\"sample\" width=\"30\" height=\"10\" aria-hidden=\"true\">"
            "<path class=\"line colour%u dash%u%s\" d=\"M1 5H29\"/></svg>",
            run->colour, run->dash, run->reference ? " reference" : "");
}
