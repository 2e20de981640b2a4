// SPDX-License-Identifier: Apache-2.0
// Draws line charts. Sizes are in units of the view box; text is large in it, so that a chart 400 pixels wide can be
// read, and smaller in wide windows.
#include "core/report/chart.h"

#include "core/report/whole_file.h"

#include <math.h>
#include <string.h>

#define WIDTH 720.0
#define LEFT 92.0
#define RIGHT 40.0
#define TOP 48.0
#define PLOT_HEIGHT 330.0
#define BELOW 66.0 // labels and title of the x axis
#define LEGEND_LINE 26.0
#define LETTER 9.5 // about the width of one, for the legend
#define TICKS_MOST 64
#define LARGEST 1e250 // of a value; others are no measurement
#define MARKED_POINTS 60 // longer series have a line alone

struct scale {
    const struct ls_chart_axis *axis;
    double low, high; // of the data, or its logarithm
    double begin, end; // in the picture
    double ticks[TICKS_MOST]; // values of the data
    size_t tick_count;
};

// ---- Scales ----

static bool shown(const struct ls_chart_axis *axis, double value)
{
    return fabs(value) < LARGEST && (!axis->logarithmic || value > 0);
}

static bool has_point(const struct ls_chart *chart, const struct ls_chart_series *series, size_t i)
{
    return shown(&chart->x, series->x[i]) && shown(&chart->y, series->y[i]);
}

static double place(const struct scale *scale, double value)
{
    if (scale->axis->logarithmic)
        value = log10(value);
    return scale->begin +
           (value - scale->low) / (scale->high - scale->low) * (scale->end - scale->begin);
}

static void find_range(const struct ls_chart *chart, bool vertical, struct scale *scale)
{
    double low = INFINITY, high = -INFINITY;
    for (size_t s = 0; s < chart->series_count; s++) {
        const struct ls_chart_series *series = &chart->series[s];
        for (size_t i = 0; i < series->count; i++) {
            if (!has_point(chart, series, i))
                continue;
            const double value = vertical ? series->y[i] : series->x[i];
            low = fmin(low, value);
            high = fmax(high, value);
        }
    }
    if (!(low <= high))
        low = scale->axis->logarithmic ? 1 : 0, high = scale->axis->logarithmic ? 10 : 1;
    if (scale->axis->logarithmic)
        low = log10(low), high = log10(high);
    if (!(high - low > 1e-9 * fmax(1, fabs(high)))) {
        const double more = scale->axis->logarithmic ? 0.5 : fmax(0.5 * fabs(high), 0.5);
        low -= more;
        high += more;
    }
    const double room = vertical ? 0.04 * (high - low) : 0.02 * (high - low);
    scale->low = low - room;
    scale->high = high + room;
}

static void add_tick(struct scale *scale, double value)
{
    const double at = scale->axis->logarithmic ? log10(value) : value;
    const double slip = 1e-9 * (scale->high - scale->low);
    if (scale->tick_count < TICKS_MOST && at >= scale->low - slip && at <= scale->high + slip)
        scale->ticks[scale->tick_count++] = value;
}

static void linear_ticks(struct scale *scale)
{
    const double rough = (scale->high - scale->low) / 6;
    const double power = pow(10, floor(log10(rough)));
    const double digit = rough / power;
    const double step = power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
    const double first = ceil(scale->low / step);
    for (int i = 0; i < TICKS_MOST && (first + i) * step <= scale->high; i++)
        add_tick(scale, (first + i) * step);
}

static void decimal_ticks(struct scale *scale)
{
    const int from = (int)floor(scale->low), to = (int)ceil(scale->high);
    const bool fine = scale->high - scale->low < 2.2;
    const int stride = (to - from) / 9 + 1;
    for (int power = from; power <= to; power += stride) {
        add_tick(scale, pow(10, power));
        if (fine) {
            add_tick(scale, 2 * pow(10, power));
            add_tick(scale, 5 * pow(10, power));
        }
    }
}

static void binary_ticks(struct scale *scale)
{
    const double octave = log10(2);
    const int from = (int)ceil(scale->low / octave), to = (int)floor(scale->high / octave);
    const int stride = (to - from) / 9 + 1;
    for (int power = from; power <= to; power += stride)
        add_tick(scale, ldexp(1, power));
}

static void find_ticks(struct scale *scale)
{
    const enum ls_chart_unit unit = scale->axis->unit;
    if (!scale->axis->logarithmic)
        linear_ticks(scale);
    else if (unit == LS_CHART_BYTES || unit == LS_CHART_COUNT)
        binary_ticks(scale);
    else
        decimal_ticks(scale);
}

// ---- Text ----

static void print_text(const char *text, FILE *out)
{
    for (; *text; text++)
        switch (*text) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        case '"': fputs("&quot;", out); break;
        default: fputc((unsigned char)*text < 0x20 ? ' ' : *text, out);
        }
}

static const char *scaled(double value, double base, const char *const *units, size_t unit_count,
                          char *text, size_t bytes)
{
    size_t unit = 0;
    while (unit + 1 < unit_count && fabs(value) >= base * (1 - 1e-9)) {
        value /= base;
        unit++;
    }
    snprintf(text, bytes, "%.4g %s", value, units[unit]);
    return text;
}

static const char *value_text(enum ls_chart_unit unit, double value, char *text, size_t bytes)
{
    static const char *const sizes[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    static const char *const times[] = {"ns", "\xc2\xb5s", "ms", "s"};
    switch (unit) {
    case LS_CHART_BYTES: return scaled(value, 1024, sizes, 5, text, bytes);
    case LS_CHART_SECONDS:
        if (value != 0)
            return scaled(value * 1e9, 1000, times, 4, text, bytes);
        break;
    case LS_CHART_COUNT: snprintf(text, bytes, "%.0f", value); return text;
    default: break;
    }
    snprintf(text, bytes, "%.4g", value);
    return text;
}

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

static void print_x_axis(const struct scale *x, FILE *out)
{
    char text[48];
    const double bottom = TOP + PLOT_HEIGHT;
    for (size_t i = 0; i < x->tick_count; i++) {
        const double at = place(x, x->ticks[i]);
        fprintf(out, "<path class=\"grid\" stroke=\"%s\" d=\"M%.1f %.1fV%.1f\"/>\n", light[GRID],
                at, TOP, bottom);
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", at,
                bottom + 22, value_text(x->axis->unit, x->ticks[i], text, sizeof(text)));
    }
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", (x->begin + x->end) / 2,
            bottom + 48);
    print_text(x->axis->label, out);
    fputs("</text>\n", out);
}

static void print_y_axis(const struct scale *y, FILE *out)
{
    char text[48];
    for (size_t i = 0; i < y->tick_count; i++) {
        const double at = place(y, y->ticks[i]);
        fprintf(out, "<path class=\"grid\" stroke=\"%s\" d=\"M%.1f %.1fH%.1f\"/>\n", light[GRID],
                LEFT, at, WIDTH - RIGHT);
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT - 8,
                at + 5, value_text(y->axis->unit, y->ticks[i], text, sizeof(text)));
    }
    fprintf(out,
            "<text x=\"18\" y=\"%.1f\" text-anchor=\"middle\" transform=\"rotate(-90 18 %.1f)\">",
            (y->begin + y->end) / 2, (y->begin + y->end) / 2);
    print_text(y->axis->label, out);
    fputs("</text>\n", out);
}

static void print_line(const struct ls_chart *chart, size_t index, const struct scale *x,
                       const struct scale *y, FILE *out)
{
    const struct ls_chart_series *series = &chart->series[index];
    bool pen_down = false;
    fputs("<path class=\"line\" fill=\"none\" ", out);
    print_stroke(index, out);
    fputs(" d=\"", out);
    for (size_t i = 0; i < series->count; i++) {
        const bool here = has_point(chart, series, i);
        if (here)
            fprintf(out, "%c%.1f %.1f", pen_down ? 'L' : 'M', place(x, series->x[i]),
                    place(y, series->y[i]));
        pen_down = here;
    }
    fputs("\"/>\n", out);
}

// A dot a point, with its values for who points at it.
static void print_points(const struct ls_chart *chart, size_t index, const struct scale *x,
                         const struct scale *y, FILE *out)
{
    const struct ls_chart_series *series = &chart->series[index];
    char at[48], value[48];
    if (series->count > MARKED_POINTS)
        return;
    fputs("<g ", out);
    print_colour("fill", FIRST_SERIES + index % LS_CHART_COLOURS, out);
    fputs(">\n", out);
    for (size_t i = 0; i < series->count; i++) {
        if (!has_point(chart, series, i))
            continue;
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>", place(x, series->x[i]),
                place(y, series->y[i]));
        print_text(series->name, out);
        fprintf(out, ": %s, %s</title></circle>\n",
                value_text(chart->x.unit, series->x[i], at, sizeof(at)),
                value_text(chart->y.unit, series->y[i], value, sizeof(value)));
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
            print_text(chart->series[i].name, out);
            fputs("</text>\n", out);
        }
        x += width;
    }
    return chart->series_count ? line + 1 : 0;
}

void ls_chart_print(const struct ls_chart *chart, FILE *out)
{
    struct scale x = {.axis = &chart->x, .begin = LEFT, .end = WIDTH - RIGHT};
    struct scale y = {.axis = &chart->y, .begin = TOP + PLOT_HEIGHT, .end = TOP};
    find_range(chart, false, &x);
    find_range(chart, true, &y);
    find_ticks(&x);
    find_ticks(&y);
    const double height =
        TOP + PLOT_HEIGHT + BELOW + LEGEND_LINE * (double)print_legend(chart, NULL) + 8;

    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"lockstep-chart\" role=\"img\" "
            "viewBox=\"0 0 %.0f %.0f\" width=\"100%%\">\n<title>",
            WIDTH, height);
    print_text(chart->title, out);
    fputs("</title>\n", out);
    print_style(out);
    fprintf(out, "<rect width=\"%.0f\" height=\"%.0f\" ", WIDTH, height);
    print_colour("fill", PAPER, out);
    fputs("/>\n", out);
    fprintf(out, "<text class=\"title\" x=\"%.1f\" y=\"28\" text-anchor=\"middle\">", WIDTH / 2);
    print_text(chart->title, out);
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
