// SPDX-License-Identifier: Apache-2.0
// Loss and accuracy, against examples and against seconds.
#include "tools/compare/page_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POINTS_MOST 120 // of a line; longer ones are means of neighbours
#define LOG_RATIO 1000 // losses further apart have a logarithmic axis
#define LOG_TIMES 20 // and simulated times, of the slowest and the fastest run

struct curves {
    // POINTS_MOST a run, then two for the target; `simulated`: seconds on another network.
    double *examples, *seconds, *simulated, *values;
    struct ls_chart_series *series;
    struct ls_page_line *lines;
    char target[48];
    size_t together; // steps in a point, the most
};

static const struct {
    const char *key, *name, *title;
    bool is_validation; // measured now and then, no mean over steps
} measures[] = {
    {"loss", "loss", "Training loss", false},
    {"accuracy", "accuracy", "Training accuracy", false},
    {"val_loss", "validation loss", "Validation loss", true},
    {"val_accuracy", "validation accuracy", "Validation accuracy", true},
};

// What curves are drawn against; the last one only where a network was simulated.
enum axis { BY_EXAMPLES, BY_SECONDS, BY_SIMULATED_SECONDS, AXES };
static const struct {
    const char *name, *title;
} axis_texts[AXES] = {
    {"examples", "examples"},
    {"seconds of training", "seconds"},
    {"seconds, simulated", "simulated time"},
};

static void curves_finish(struct curves *curves)
{
    free(curves->examples);
    free(curves->seconds);
    free(curves->simulated);
    free(curves->values);
    free(curves->series);
    free(curves->lines);
}

static enum ls_status curves_init(struct curves *curves, size_t runs)
{
    const size_t points = runs * POINTS_MOST + 2;
    curves->examples = calloc(points, sizeof(double));
    curves->seconds = calloc(points, sizeof(double));
    curves->simulated = calloc(points, sizeof(double));
    curves->values = calloc(points, sizeof(double));
    curves->series = calloc(runs + 1, sizeof(*curves->series));
    curves->lines = calloc(runs + 1, sizeof(*curves->lines));
    if (curves->examples && curves->seconds && curves->simulated && curves->values &&
        curves->series && curves->lines)
        return LS_OK;
    curves_finish(curves);
    return LS_OUT_OF_MEMORY;
}

// Points of the run that have a number under `key`.
static size_t points_of(const struct ls_page_run *run, const char *key)
{
    const json_t *curve = json_object_get(run->json, "curve");
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(curve); i++)
        count += isfinite(ls_page_number(json_array_get(curve, i), key));
    return count;
}

// Seconds until so many steps on another network; NaN: it was not simulated.
static double simulated_seconds(const struct ls_page_run *run, double steps)
{
    const json_t *there = json_object_get(run->json, "simulated");
    const double unfiltered = ls_page_number(there, "unfiltered_steps");
    const double step = ls_page_number(there, "step_seconds");
    if (!(unfiltered > 0))
        return steps * step;
    return fmin(steps, unfiltered) * ls_page_number(there, "unfiltered_step_seconds") +
           fmax(steps - unfiltered, 0) * step;
}

// The points from `first` on, at most POINTS_MOST: means of `together` neighbours. Returns their number.
static size_t read_points(struct curves *curves, const struct ls_page_run *run, const char *key,
                          size_t first, size_t together)
{
    const json_t *curve = json_object_get(run->json, "curve");
    size_t at = first, in_point = 0;
    double examples = 0, seconds = 0, steps = 0, value = 0;
    for (size_t i = 0; i < json_array_size(curve); i++) {
        const json_t *point = json_array_get(curve, i);
        const double y = ls_page_number(point, key);
        if (isfinite(y)) {
            examples += ls_page_number(point, "examples");
            seconds += ls_page_number(point, "seconds");
            steps += ls_page_number(point, "step");
            value += y;
            in_point++;
        }
        if (in_point && (in_point == together || i + 1 == json_array_size(curve))) {
            curves->examples[at] = examples / (double)in_point;
            curves->seconds[at] = seconds / (double)in_point;
            curves->simulated[at] = simulated_seconds(run, steps / (double)in_point);
            curves->values[at++] = value / (double)in_point;
            examples = seconds = steps = value = 0;
            in_point = 0;
        }
    }
    return at - first;
}

// Steps that one point of the curve stands for, the most.
static size_t steps_in_point(const struct ls_page_run *run)
{
    const json_t *curve = json_object_get(run->json, "curve");
    double before = 0, most = 1;
    for (size_t i = 0; i < json_array_size(curve); i++) {
        const double step = ls_page_number(json_array_get(curve, i), "step");
        most = fmax(most, step - before);
        before = step;
    }
    return most < 1e9 ? (size_t)most : 0;
}

// Fills series and lines for one measure; `x` of the series is set later. Returns how many there are.
static size_t read_measure(const struct ls_page *page, struct curves *curves, const char *key)
{
    size_t count = 0;
    curves->together = 1;
    for (size_t i = 0; i < page->run_count; i++) {
        const struct ls_page_run *run = &page->runs[i];
        const size_t points = points_of(run, key);
        if (!points)
            continue;
        const size_t together = (points + POINTS_MOST - 1) / POINTS_MOST;
        const size_t first = i * POINTS_MOST;
        curves->series[count] = (struct ls_chart_series){
            NULL, NULL, curves->values + first, read_points(curves, run, key, first, together)};
        curves->lines[count++] = (struct ls_page_line){LS_PAGE_LINE, run, NULL, NULL};
        const size_t steps = together * steps_in_point(run);
        curves->together = steps > curves->together ? steps : curves->together;
    }
    return count;
}

// The target as a line through the whole chart, if this is its measure: the last of `count` + 1 series.
static size_t add_target(const struct ls_page *page, struct curves *curves, const char *key,
                         size_t count)
{
    const json_t *target = json_object_get(page->comparison, "target");
    const char *metric = ls_page_string(target, "metric");
    const double value = ls_page_number(target, "value");
    if (!metric || strcmp(metric, key) || !isfinite(value))
        return count;
    const size_t end = page->run_count * POINTS_MOST;
    double *const axes[] = {curves->examples, curves->seconds, curves->simulated};
    for (size_t a = 0; a < AXES; a++) {
        axes[a][end] = INFINITY;
        axes[a][end + 1] = -INFINITY;
    }
    for (size_t i = 0; i < count; i++) {
        const size_t first = (size_t)(curves->series[i].y - curves->values);
        for (size_t j = first; j < first + curves->series[i].count; j++)
            for (size_t a = 0; a < AXES; a++) { // what is NaN is left out
                axes[a][end] = fmin(axes[a][end], axes[a][j]);
                axes[a][end + 1] = fmax(axes[a][end + 1], axes[a][j]);
            }
    }
    curves->values[end] = curves->values[end + 1] = value;
    snprintf(curves->target, sizeof(curves->target), "target %.4g", value);
    curves->series[count] = (struct ls_chart_series){curves->target, NULL, curves->values + end, 2};
    curves->lines[count] = (struct ls_page_line){LS_PAGE_GUIDE, NULL, NULL, NULL};
    return count + 1;
}

// Single points are no curve: the table has them.
static bool has_a_line(const struct curves *curves, size_t count)
{
    bool any = false;
    for (size_t i = 0; i < count; i++)
        any = any || curves->series[i].count > 1;
    return any;
}

static bool needs_logarithm(const struct curves *curves, size_t count)
{
    double low = INFINITY, high = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < curves->series[i].count; j++) {
            low = fmin(low, curves->series[i].y[j]);
            high = fmax(high, curves->series[i].y[j]);
        }
    return low > 0 && high > LOG_RATIO * low;
}

// The lines that have values on the axis come first; returns their number.
static size_t choose_axis(struct curves *curves, size_t count, enum axis axis)
{
    const double *const all[] = {curves->examples, curves->seconds, curves->simulated};
    size_t shown = 0;
    for (size_t i = 0; i < count; i++) {
        struct ls_chart_series series = curves->series[i];
        const struct ls_page_line line = curves->lines[i];
        series.x = all[axis] + (series.y - curves->values);
        if (!isfinite(series.x[0]))
            continue;
        curves->series[i] = curves->series[shown];
        curves->lines[i] = curves->lines[shown];
        curves->series[shown] = series;
        curves->lines[shown++] = line;
    }
    return shown;
}

// Whether the runs take so unequal times that all but the slowest would be at the edge.
static bool is_wide(const struct curves *curves, size_t count)
{
    double least = INFINITY, most = 0;
    for (size_t i = 0; i < count; i++) {
        const struct ls_chart_series *series = &curves->series[i];
        if (curves->lines[i].kind != LS_PAGE_LINE)
            continue;
        least = fmin(least, series->x[series->count - 1]);
        most = fmax(most, series->x[series->count - 1]);
    }
    return most > LOG_TIMES * least;
}

static void print_plot(struct ls_page *page, struct curves *curves, size_t measure, size_t count,
                       enum axis axis)
{
    char note[80] = "", title[80];
    const size_t shown = choose_axis(curves, count, axis);
    if (!has_a_line(curves, shown))
        return;
    if (curves->together > 1 && !measures[measure].is_validation)
        snprintf(note, sizeof(note), "A point is the mean of up to %zu steps.", curves->together);
    snprintf(title, sizeof(title), "%s against %s", measures[measure].title,
             axis_texts[axis].title);
    const struct ls_chart chart = {
        .title = title,
        .x = {axis_texts[axis].name, LS_CHART_NUMBER,
              axis == BY_SIMULATED_SECONDS && is_wide(curves, shown)},
        .y = {measures[measure].name, LS_CHART_PLAIN, needs_logarithm(curves, shown)},
        .series = curves->series,
        .series_count = shown,
    };
    ls_page_plot(page, &chart, curves->lines, *note ? note : NULL);
}

// Boxes to hide and show the lines of a run; style sheets do the rest.
static void print_legend(const struct ls_page *page)
{
    fputs("<ul class=\"legend\">", page->out);
    for (size_t i = 0; i < page->run_count; i++) {
        if (!json_array_size(json_object_get(page->runs[i].json, "curve")))
            continue;
        fprintf(page->out,
                "<li><label><input type=\"checkbox\" id=\"show%zu\" checked=\"checked\"/> ", i);
        ls_page_line_sample(page, &page->runs[i]);
        fputs(" <span>", page->out);
        ls_page_put_name(page, &page->runs[i]);
        if (page->runs[i].reference)
            fputs(" <small>reference</small>", page->out);
        if (page->runs[i].other_way)
            fprintf(page->out, " <small>%s</small>", page->runs[i].other_way);
        fputs("</span></label></li>\n", page->out);
    }
    fputs("</ul>\n", page->out);
}

// The plots of all measures against the axes [from, to).
static void print_plots(struct ls_page *page, struct curves *curves, enum axis from, enum axis to)
{
    bool any = false;
    for (size_t i = 0; i < sizeof(measures) / sizeof(measures[0]); i++) {
        size_t count = read_measure(page, curves, measures[i].key);
        if (!has_a_line(curves, count))
            continue;
        if (!any)
            fputs("<div class=\"plots\">\n", page->out);
        any = true;
        count = add_target(page, curves, measures[i].key, count);
        for (enum axis axis = from; axis < to; axis++)
            print_plot(page, curves, i, count, axis);
    }
    fputs(any ? "</div>\n" : "", page->out);
}

static bool any_curve(const struct ls_page *page, struct curves *curves)
{
    for (size_t i = 0; i < sizeof(measures) / sizeof(measures[0]); i++)
        if (has_a_line(curves, read_measure(page, curves, measures[i].key)))
            return true;
    return false;
}

enum ls_status ls_page_curves(struct ls_page *page)
{
    const json_t *simulated = json_object_get(page->comparison, "simulated");
    struct curves curves = {0};
    const enum ls_status status = curves_init(&curves, page->run_count);
    if (status)
        return status;
    if (any_curve(page, &curves)) {
        fputs("<section id=\"curves\" class=\"curves\">\n<h2>Learning</h2>\n"
              "<p class=\"note\">Plain strategies should lie on the reference, the wide pale "
              "line; against seconds, the faster are further left.</p>\n",
              page->out);
        print_legend(page);
        print_plots(page, &curves, BY_EXAMPLES, BY_SIMULATED_SECONDS);
        if (json_is_object(simulated)) {
            ls_page_network(page);
            print_plots(page, &curves, BY_SIMULATED_SECONDS, AXES);
        }
        fputs("</section>\n", page->out);
    }
    curves_finish(&curves);
    return LS_OK;
}
