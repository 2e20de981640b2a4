// SPDX-License-Identifier: Apache-2.0
// Line charts as SVG: several series, linear or logarithmic axes, a legend. The picture scales with its place and
// can be read from 400 to 1400 pixels; it needs no network and no script. Colours are CSS variables
// (--chart-ink, --chart-grid, --chart-paper, --chart-1 .. --chart-8) with values for light and dark. [main thread]
#ifndef LS_TOOLS_REPORT_CHART_H
#define LS_TOOLS_REPORT_CHART_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define LS_CHART_COLOURS 8 // later series have the same colours again, dashed

// How the numbers of an axis are written.
enum ls_chart_unit {
    LS_CHART_PLAIN, // 0.25, 1500, 2e6
    LS_CHART_NUMBER, // 0.25, 24,145, 1.5 M
    LS_CHART_COUNT, // 64, 4096: powers of two where the axis is logarithmic
    LS_CHART_BYTES, // 64 KiB: likewise
    LS_CHART_SECONDS, // 10 us, 2.5 ms
};

struct ls_chart_axis {
    const char *label;
    enum ls_chart_unit unit;
    bool logarithmic; // values that are not positive are left out
};

// Points in order; one that is not finite (or beyond 1e250) is left out and interrupts the line. Borrowed.
struct ls_chart_series {
    const char *name;
    const double *x, *y;
    size_t count;
};

struct ls_chart {
    const char *title; // also the accessible name
    struct ls_chart_axis x, y;
    const struct ls_chart_series *series;
    size_t series_count;
};

// One <svg> element, to stand alone or inside a page.
void ls_chart_print(const struct ls_chart *chart, FILE *out);
// The same as a file, whole or untouched. LS_FAILED, logged under `scope` ("--svg").
LS_STATUS ls_chart_write(const struct ls_chart *chart, const char *scope, const char *path);

#endif
