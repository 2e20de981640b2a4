// SPDX-License-Identifier: Apache-2.0
// Positions and texts of values in a chart, shared by the charts of files and of pages. [any thread]
#ifndef LS_TOOLS_REPORT_CHART_SCALE_H
#define LS_TOOLS_REPORT_CHART_SCALE_H

#include "tools/report/chart.h"

#define LS_CHART_TICKS_MOST 64

struct ls_chart_scale {
    const struct ls_chart_axis *axis;
    double low, high; // of the data with some room, or its logarithm
    double begin, end; // in the picture
    double ticks[LS_CHART_TICKS_MOST]; // values of the data
    size_t tick_count;
};

// The scale of one axis over all points, from `begin` to `end` in the picture.
void ls_chart_scale_init(struct ls_chart_scale *scale, const struct ls_chart *chart, bool vertical,
                         double begin, double end);
double ls_chart_scale_place(const struct ls_chart_scale *scale, double value);
// Whether point `i` can be shown on both axes.
bool ls_chart_has_point(const struct ls_chart *chart, const struct ls_chart_series *series,
                        size_t i);

// The value as its axis writes it, in `text`, which it returns.
const char *ls_chart_value_text(enum ls_chart_unit unit, double value, char *text, size_t bytes);
const char *ls_chart_grouped_text(double value, char *text, size_t bytes); // 24,145: whole numbers
void ls_chart_shorten_exponent(char *text); // 1e-06 -> 1e-6
// Escaped for XML and HTML, as content and as a quoted attribute; control characters become spaces, and those that turn
// the direction of writing.
void ls_chart_print_text(const char *text, FILE *out);
// Its first bytes, cut at an ASCII character.
void ls_chart_print_bytes(const char *text, size_t bytes, FILE *out);

#endif
