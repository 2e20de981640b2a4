// SPDX-License-Identifier: Apache-2.0
// Draws line charts. Sizes are in units of the view box; text is large in it, so that a chart 400 pixels wide can be
// read, and smaller in wide windows.
#include "tools/report/chart.h"

#include "tools/report/chart_scale.h"
#include "core/report/whole_file.h"

#include <string.h>

#define WIDTH 720.0
#define LEFT 92.0
#define RIGHT 40.0
#define TOP 48.0
#define PLOT_HEIGHT 330.0
#define BELOW 66.0 // labels and title of the x axis
#define LEGEND_LINE 26.0
#define LETTER 9.5 // about the width of one, for the legend
#define MARKED_POINTS 60 // longer series have a line alone

// ---- Parts ----

// Ink, grid and paper, then the series. What knows no CSS variables shows the light ones.
static const char *const names[] = {"ink", "grid", "paper", "1", "2", "3", "4", "5", "6", "7", "8"};
static const char *const light[] = {"#1f2328", "#d8dee4", "#ffffff", "#0b62c4",
                                    "#c2410c", "#15803d", "#9333ea", "#b91c1c",
                                    "#0e7490", "#a16207", "#57534e"};
static const char *const dark[] = {"#e6edf3", "#3d444d", "#0d1117", "#6cb6ff", "#ff9e64", "#6bd08a",
                                   "#d2a8ff", "#ff8f8f", "#5cd5e6", "#e3c05c", "#b6b0aa"};
enum { INK, GRID, PAPER, FIRST_SERIES };

static void print_colours(const char *const *colours, FILE *out)
{
    fputs(".lockstep-chart{", out);
    for (size_t i = 0; i < FIRST_SERIES + LS_CHART_COLOURS; i++)
        fprintf(out, "--chart-%s:%s;", names[i], colours[i]);
    fputs("}", out);
}

static void print_style(FILE *out)
{
    fputs("<style>\n", out);
    print_colours(light, out);
    fputs("\n@media (prefers-color-scheme:dark){", out);
    print_colours(dark, out);
    fputs("}\n"
          ".lockstep-chart{font:17px system-ui,sans-serif}\n"
          "@media (min-width:1000px){.lockstep-chart{font-size:13px}}\n"
          ".lockstep-chart text{fill:var(--chart-ink)}\n"
          ".lockstep-chart .title{font-size:1.15em;font-weight:600}\n"
          ".lockstep-chart .grid{stroke:var(--chart-grid);stroke-width:1}\n"
          ".lockstep-chart .line{fill:none;stroke-width:2.5;stroke-linejoin:round}\n"
          "</style>\n",
          out);
}

// `property`: stroke or fill.
static void print_colour(const char *property, size_t colour, FILE *out)
{
    fprintf(out, "%s=\"%s\" style=\"%s:var(--chart-%s)\"", property, light[colour], property,
            names[colour]);
}

static void print_stroke(size_t series, FILE *out)
{
    print_colour("stroke", FIRST_SERIES + series % LS_CHART_COLOURS, out);
    if (series >= LS_CHART_COLOURS)
        fputs(" stroke-dasharray=\"7 4\"", out);
}

static void print_x_axis(const struct ls_chart_scale *x, FILE *out)
{
    char text[48];
    const double bottom = TOP + PLOT_HEIGHT;
    for (size_t i = 0; i < x->tick_count; i++) {
        const double at = ls_chart_scale_place(x, x->ticks[i]);
        fprintf(out, "<path class=\"grid\" stroke=\"%s\" d=\"M%.1f %.1fV%.1f\"/>\n", light[GRID],
                at, TOP, bottom);
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", at,
                bottom + 22, ls_chart_value_text(x->axis->unit, x->ticks[i], text, sizeof(text)));
    }
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", (x->begin + x->end) / 2,
            bottom + 48);
    ls_chart_print_text(x->axis->label, out);
    fputs("</text>\n", out);
}

static void print_y_axis(const struct ls_chart_scale *y, FILE *out)
{
    char text[48];
    for (size_t i = 0; i < y->tick_count; i++) {
        const double at = ls_chart_scale_place(y, y->ticks[i]);
        fprintf(out, "<path class=\"grid\" stroke=\"%s\" d=\"M%.1f %.1fH%.1f\"/>\n", light[GRID],
                LEFT, at, WIDTH - RIGHT);
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT - 8,
                at + 5, ls_chart_value_text(y->axis->unit, y->ticks[i], text, sizeof(text)));
    }
    fprintf(out,
            "<text x=\"18\" y=\"%.1f\" text-anchor=\"middle\" transform=\"rotate(-90 18 %.1f)\">",
            (y->begin + y->end) / 2, (y->begin + y->end) / 2);
    ls_chart_print_text(y->axis->label, out);
    fputs("</text>\n", out);
}

static void print_line(const struct ls_chart *chart, size_t index, const struct ls_chart_scale *x,
                       const struct ls_chart_scale *y, FILE *out)
{
    const struct ls_chart_series *series = &chart->series[index];
    bool pen_down = false;
    fputs("<path class=\"line\" fill=\"none\" ", out);
    print_stroke(index, out);
    fputs(" d=\"", out);
    for (size_t i = 0; i < series->count; i++) {
        const bool here = ls_chart_has_point(chart, series, i);
        if (here)
            fprintf(out, "%c%.1f %.1f", pen_down ? 'L' : 'M', ls_chart_scale_place(x, series->x[i]),
                    ls_chart_scale_place(y, series->y[i]));
        pen_down = here;
    }
    fputs("\"/>\n", out);
}

// A dot a point, with its values for who points at it.
static void print_points(const struct ls_chart *chart, size_t index, const struct ls_chart_scale *x,
                         const struct ls_chart_scale *y, FILE *out)
{
    const struct ls_chart_series *series = &chart->series[index];
    char at[48], value[48];
    if (series->count > MARKED_POINTS)
        return;
    fputs("<g ", out);
    print_colour("fill", FIRST_SERIES + index % LS_CHART_COLOURS, out);
    fputs(">\n", out);
    for (size_t i = 0; i < series->count; i++) {
        if (!ls_chart_has_point(chart, series, i))
            continue;
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>",
                ls_chart_scale_place(x, series->x[i]), ls_chart_scale_place(y, series->y[i]));
        ls_chart_print_text(series->name, out);
        fprintf(out, ": %s, %s</title></circle>\n",
                ls_chart_value_text(chart->x.unit, series->x[i], at, sizeof(at)),
                ls_chart_value_text(chart->y.unit, series->y[i], value, sizeof(value)));
    }
    fputs("</g>\n", out);
}

// Places entry after entry, line after line; prints them when `out` is there. Returns the number of lines.
static size_t print_legend(const struct ls_chart *chart, FILE *out)
{
    double x = LEFT;
    size_t line = 0;
    for (size_t i = 0; i < chart->series_count; i++) {
        const double width = 48 + LETTER * (double)strlen(chart->series[i].name);
        if (x > LEFT && x + width > WIDTH - RIGHT) {
            x = LEFT;
            line++;
        }
        const double y = TOP + PLOT_HEIGHT + BELOW + LEGEND_LINE * ((double)line + 0.5);
        if (out) {
            fputs("<path class=\"line\" ", out);
            print_stroke(i, out);
            fprintf(out, " d=\"M%.1f %.1fh24\"/>\n<text x=\"%.1f\" y=\"%.1f\">", x, y, x + 32,
                    y + 5);
            ls_chart_print_text(chart->series[i].name, out);
            fputs("</text>\n", out);
        }
        x += width;
    }
    return chart->series_count ? line + 1 : 0;
}

void ls_chart_print(const struct ls_chart *chart, FILE *out)
{
    struct ls_chart_scale x, y;
    ls_chart_scale_init(&x, chart, false, LEFT, WIDTH - RIGHT);
    ls_chart_scale_init(&y, chart, true, TOP + PLOT_HEIGHT, TOP);
    const double height =
        TOP + PLOT_HEIGHT + BELOW + LEGEND_LINE * (double)print_legend(chart, NULL) + 8;

    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"lockstep-chart\" role=\"img\" "
            "viewBox=\"0 0 %.0f %.0f\" width=\"100%%\">\n<title>",
            WIDTH, height);
    ls_chart_print_text(chart->title, out);
    fputs("</title>\n", out);
    print_style(out);
    fprintf(out, "<rect width=\"%.0f\" height=\"%.0f\" ", WIDTH, height);
    print_colour("fill", PAPER, out);
    fputs("/>\n", out);
    fprintf(out, "<text class=\"title\" x=\"%.1f\" y=\"28\" text-anchor=\"middle\">", WIDTH / 2);
    ls_chart_print_text(chart->title, out);
    fputs("</text>\n", out);
    print_x_axis(&x, out);
    print_y_axis(&y, out);
    for (size_t i = 0; i < chart->series_count; i++)
        print_line(chart, i, &x, &y, out);
    for (size_t i = 0; i < chart->series_count; i++)
        print_points(chart, i, &x, &y, out);
    print_legend(chart, out);
    fputs("</svg>\n", out);
}

enum ls_status ls_chart_write(const struct ls_chart *chart, const char *scope, const char *path)
{
    struct ls_whole_file file = {0};
    const enum ls_status status = ls_whole_file_open(scope, path, &file);
    if (status)
        return status;
    ls_chart_print(chart, file.stream);
    return ls_whole_file_commit(&file);
}
