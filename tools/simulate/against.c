// SPDX-License-Identifier: Apache-2.0
// Measured times beside simulated ones. How far off a simulation is, is |ln(simulated / measured)|:
// twice as long and half as long are alike. The mean of it is given as a share, exp(mean) - 1.
#include "tools/simulate/against.h"

#include "tools/report/chart.h"
#include "tools/size_list.h"

#include "core/base/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct point {
    struct ls_measured_row row;
    double seconds; // simulated
};

struct ls_against {
    const char *path, *collective, *network;
    struct point *points; // those that count
    size_t count, left_out;
};

enum ls_status ls_against_create(const char *path, const char *collective, const char *network,
                                 size_t most, struct ls_against **out)
{
    struct ls_against *against = calloc(1, sizeof(*against));
    if (against)
        against->points = calloc(most, sizeof(*against->points));
    if (!against || !against->points) {
        free(against);
        return LS_OUT_OF_MEMORY;
    }
    against->path = path;
    against->collective = collective;
    against->network = network;
    *out = against;
    return LS_OK;
}

void ls_against_destroy(struct ls_against *against)
{
    if (against)
        free(against->points);
    free(against);
}

enum ls_status ls_against_fits(const char *path, const struct ls_network *network,
                               const struct ls_measured_row *row, uint32_t element_bytes)
{
    const bool nodes =
        network->topology == LS_TOPOLOGY_NODES || network->topology == LS_TOPOLOGY_FAT_TREE;
    if (row->bytes % element_bytes) {
        ls_error("--against", "%s: %llu bytes are no whole number of elements of %u bytes", path,
                 (unsigned long long)row->bytes, element_bytes);
        return LS_BAD_INPUT;
    }
    // Ranks of one node may be fewer than it has.
    if (!nodes || !row->ranks_per_node || row->ranks_per_node == network->ranks_per_node ||
        (row->ranks <= row->ranks_per_node && row->ranks <= network->ranks_per_node))
        return LS_OK;
    ls_error("--against",
             "%s: %u ranks were measured on nodes of %u, and nodes of network %s have %u; give "
             "--network=FILE with such nodes",
             path, row->ranks, row->ranks_per_node, network->name, network->ranks_per_node);
    return LS_BAD_INPUT;
}

static double distance(const struct point *point)
{
    return fabs(log(point->seconds / point->row.seconds));
}

static const char *time_text(double seconds, char *text, size_t room)
{
    const double unit = seconds < 1e-3 ? 1e6 : seconds < 1 ? 1e3 : 1;
    snprintf(text, room, "%.4g %s", seconds * unit,
             seconds < 1e-3 ? "us"
             : seconds < 1  ? "ms"
                            : "s");
    return text;
}

static void print_row(struct ls_against *against, const struct ls_measured_row *row, double seconds)
{
    char size[32], measured[32], simulated[32];
    if (against->count + against->left_out == 0)
        printf("%s on network %s, against %s\n\n%-14s %6s %10s %12s %12s %8s\n",
               against->collective, against->network, against->path, "operation", "world", "bytes",
               "measured", "simulated", "error");
    printf("%-14s %6u %10s %12s %12s %+7.1f %%%s%s\n", row->operation, row->ranks,
           size_text(row->bytes, size, sizeof(size)),
           time_text(row->seconds, measured, sizeof(measured)),
           time_text(seconds, simulated, sizeof(simulated)), 100 * (seconds / row->seconds - 1),
           row->left_out ? "  left out: " : "", row->left_out ? row->left_out : "");
    fflush(stdout);
}

void ls_against_add(struct ls_against *against, const struct ls_measured_row *row, double seconds,
                    struct ls_rows *rows)
{
    print_row(against, row, seconds);
    ls_rows_begin(rows);
    ls_rows_text(rows, "collective", against->collective);
    ls_rows_text(rows, "network", against->network);
    ls_rows_text(rows, "operation", row->operation);
    ls_rows_count(rows, "world", row->ranks);
    ls_rows_count(rows, "bytes", row->bytes);
    ls_rows_text(rows, "algorithm", *row->algorithm ? row->algorithm : NULL);
    ls_rows_number(rows, "measured_seconds", row->seconds);
    ls_rows_number(rows, "seconds", seconds);
    ls_rows_text(rows, "left_out", row->left_out);
    if (row->left_out)
        against->left_out++;
    else
        against->points[against->count++] = (struct point){*row, seconds};
}

enum ls_status ls_against_finish(const struct ls_against *against)
{
    const struct point *worst = &against->points[0];
    double sum = 0;
    char size[32];
    if (against->count == 0) {
        ls_error("--against", "%s: no row is left that counts", against->path);
        return LS_USAGE;
    }
    for (size_t i = 0; i < against->count; i++) {
        const struct point *point = &against->points[i];
        sum += distance(point);
        worst = distance(point) > distance(worst) ? point : worst;
    }
    printf("\n%zu point%s, off by %.1f %% (exp(mean |ln(simulated / measured)|) - 1), at worst by "
           "%.1f %%: %s, %u ranks, too %s; %zu left out\n",
           against->count, against->count == 1 ? "" : "s",
           100 * expm1(sum / (double)against->count), 100 * expm1(distance(worst)),
           size_text(worst->row.bytes, size, sizeof(size)), worst->row.ranks,
           worst->seconds < worst->row.seconds ? "fast" : "slow", against->left_out);
    return LS_OK;
}

// ---- The chart ----

static bool over_sizes(const struct ls_against *against)
{
    for (size_t i = 1; i < against->count; i++)
        if (against->points[i].row.bytes != against->points[0].row.bytes)
            return true;
    return false;
}

enum ls_status ls_against_draw(const struct ls_against *against, const char *scope,
                               const char *path)
{
    const bool sizes = over_sizes(against);
    double *x = calloc(3 * against->count, sizeof(*x));
    if (!x)
        return LS_OUT_OF_MEMORY;
    double *measured = x + against->count, *simulated = measured + against->count;
    char title[256];
    for (size_t i = 0; i < against->count; i++) {
        const struct point *point = &against->points[i];
        x[i] = sizes ? (double)point->row.bytes : point->row.ranks;
        measured[i] = point->row.seconds;
        simulated[i] = point->seconds;
    }
    snprintf(title, sizeof(title), "%s on %s, against measurements", against->collective,
             against->network);
    const struct ls_chart_series series[] = {{"measured", x, measured, against->count},
                                             {"simulated", x, simulated, against->count}};
    const struct ls_chart chart = {
        .title = title,
        .x = {sizes ? "size of the buffer" : "ranks", sizes ? LS_CHART_BYTES : LS_CHART_COUNT,
              true},
        .y = {"time", LS_CHART_SECONDS, true},
        .series = series,
        .series_count = 2,
    };
    const enum ls_status status = ls_chart_write(&chart, scope, path);
    free(x);
    return status;
}
