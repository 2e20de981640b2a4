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
#include <string.h>

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

bool ls_against_misfits(const struct ls_network *network, const struct ls_measured_row *row,
                        char *text, size_t room)
{
    const bool nodes =
        network->topology == LS_TOPOLOGY_NODES || network->topology == LS_TOPOLOGY_FAT_TREE;
    uint64_t places = network->topology == LS_TOPOLOGY_TORUS && network->sides[0] ? 1 : 0;
    for (uint32_t i = 0; places && i < network->dimensions; i++)
        places *= network->sides[i];
    if (places && places != row->ranks) {
        snprintf(text, room, "%u ranks were measured, and network %s has %llu", row->ranks,
                 network->name, (unsigned long long)places);
        return true;
    }
    if (network->graph && network->graph->ranks < row->ranks) {
        snprintf(text, room, "%u ranks were measured, and network %s has %u", row->ranks,
                 network->name, network->graph->ranks);
        return true;
    }
    // Ranks of one node may be fewer than it has.
    if (!nodes || !row->ranks_per_node || row->ranks_per_node == network->ranks_per_node ||
        (row->ranks <= row->ranks_per_node && row->ranks <= network->ranks_per_node))
        return false;
    snprintf(text, room,
             "%u ranks were measured on nodes of %u, and nodes of network %s have %u; give "
             "--network=FILE with such nodes",
             row->ranks, row->ranks_per_node, network->name, network->ranks_per_node);
    return true;
}

static double distance(const struct point *point)
{
    return fabs(log(point->seconds / point->row.seconds));
}

const char *ls_time_text(double seconds, char *text, size_t room)
{
    if (seconds < 1e-3)
        snprintf(text, room, "%.2f us", seconds * 1e6);
    else if (seconds < 1)
        snprintf(text, room, "%.3f ms", seconds * 1e3);
    else
        snprintf(text, room, "%.3f s", seconds);
    return text;
}

static void print_row(const struct ls_against *against, const struct ls_measured_row *row,
                      const struct ls_simulation_result *result, const char *left_out)
{
    char size[32], measured[32], simulated[32] = "-", error[32] = "-";
    if (result) {
        ls_time_text(result->seconds, simulated, sizeof(simulated));
        snprintf(error, sizeof(error), "%+.1f %%", 100 * (result->seconds / row->seconds - 1));
    }
    if (against->count + against->left_out == 0)
        printf("%s on network %s, against %s\n\n%-14s %6s %10s %12s %12s %10s\n",
               against->collective, against->network, against->path, "operation", "world", "bytes",
               "measured", "simulated", "sim/meas-1");
    printf("%-14s %6u %10s %12s %12s %10s%s%s\n", row->operation, row->ranks,
           size_text(row->bytes, size, sizeof(size)),
           ls_time_text(row->seconds, measured, sizeof(measured)), simulated, error,
           *left_out ? "  left out: " : "", left_out);
    fflush(stdout);
}

void ls_against_add(struct ls_against *against, const struct ls_measured_row *row,
                    const struct ls_simulation_result *result, uint32_t verified_world,
                    struct ls_rows *rows)
{
    const double seconds = result ? result->seconds : NAN;
    const char *left_out = *row->left_out || seconds > 0 ? row->left_out : "nothing is sent";
    print_row(against, row, result, left_out);
    ls_rows_begin(rows);
    ls_rows_text(rows, "collective", against->collective);
    ls_rows_text(rows, "network", against->network);
    ls_rows_text(rows, "operation", row->operation);
    ls_rows_count(rows, "world", row->ranks);
    ls_rows_count(rows, "bytes", row->bytes);
    ls_rows_text(rows, "algorithm", *row->algorithm ? row->algorithm : NULL);
    ls_rows_number(rows, "measured_seconds", row->seconds);
    ls_rows_number(rows, "seconds", seconds);
    ls_rows_number(rows, "error", seconds / row->seconds - 1);
    ls_rows_number(rows, "bound_seconds", result ? result->bound_seconds : NAN);
    ls_rows_count(rows, "verified_world", verified_world);
    ls_rows_text(rows, "left_out", *left_out ? left_out : NULL);
    if (*left_out)
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
           "%.1f %%: %s, %u rank%s, too %s; %zu left out\n",
           against->count, against->count == 1 ? "" : "s",
           100 * expm1(sum / (double)against->count), 100 * expm1(distance(worst)),
           size_text(worst->row.bytes, size, sizeof(size)), worst->row.ranks,
           worst->row.ranks == 1 ? "" : "s", worst->seconds < worst->row.seconds ? "fast" : "slow",
           against->left_out);
    return LS_OK;
}

// ---- The chart ----

// In the order of lines, then of what is across.
static int compare_points(const void *a, const void *b)
{
    const struct ls_measured_row *x = &((const struct point *)a)->row;
    const struct ls_measured_row *y = &((const struct point *)b)->row;
    const int operations = strcmp(x->operation, y->operation);
    if (operations)
        return operations;
    if (x->ranks != y->ranks)
        return x->ranks < y->ranks ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static bool has_several_sizes(const struct ls_against *against)
{
    for (size_t i = 1; i < against->count; i++)
        if (against->points[i].row.bytes != against->points[0].row.bytes)
            return true;
    return false;
}

// Whether a line ends between the two.
static bool are_apart(const struct point *a, const struct point *b, bool over_sizes)
{
    return strcmp(a->row.operation, b->row.operation) != 0 ||
           (over_sizes && a->row.ranks != b->row.ranks);
}

struct lines {
    struct ls_chart_series *series;
    char (*names)[64];
    double *x, *measured, *simulated;
    size_t count;
};

static void add_point(struct lines *lines, const struct point *point, size_t i, bool begins,
                      bool over_sizes, bool named)
{
    static const char *const texts[] = {"measured", "simulated"};
    const struct ls_measured_row *row = &point->row;
    double *const y[] = {lines->measured, lines->simulated};
    lines->x[i] = over_sizes ? (double)row->bytes : row->ranks;
    lines->measured[i] = row->seconds;
    lines->simulated[i] = point->seconds;
    for (size_t k = 0; begins && k < 2; k++) {
        char *name = lines->names[lines->count];
        char ranks[32] = "";
        if (over_sizes)
            snprintf(ranks, sizeof(ranks), ", %u rank%s", row->ranks, row->ranks == 1 ? "" : "s");
        snprintf(name, sizeof(lines->names[0]), "%s%s%s%s", texts[k], named ? ", " : "",
                 named ? row->operation : "", named ? ranks : "");
        lines->series[lines->count++] = (struct ls_chart_series){name, &lines->x[i], &y[k][i], 0};
    }
    lines->series[lines->count - 2].count++;
    lines->series[lines->count - 1].count++;
}

enum ls_status ls_against_draw(struct ls_against *against, const char *scope, const char *path)
{
    const bool sizes = has_several_sizes(against);
    struct point *points = against->points;
    const size_t count = against->count;
    struct lines lines = {.series = calloc(2 * count, sizeof(*lines.series)),
                          .names = calloc(2 * count, sizeof(*lines.names)),
                          .x = calloc(3 * count, sizeof(*lines.x))};
    enum ls_status status = lines.series && lines.names && lines.x ? LS_OK : LS_OUT_OF_MEMORY;
    char title[256];
    if (!status) {
        lines.measured = lines.x + count;
        lines.simulated = lines.measured + count;
        qsort(points, count, sizeof(*points), compare_points);
        const bool several = are_apart(&points[0], &points[count - 1], sizes);
        for (size_t i = 0; i < count; i++)
            add_point(&lines, &points[i], i, i == 0 || are_apart(&points[i - 1], &points[i], sizes),
                      sizes, several);
        snprintf(title, sizeof(title), "%s on %s, against measurements", against->collective,
                 against->network);
        const struct ls_chart chart = {
            .title = title,
            .x = {sizes ? "size of the buffer" : "ranks", sizes ? LS_CHART_BYTES : LS_CHART_COUNT,
                  true},
            .y = {"time", LS_CHART_SECONDS, true},
            .series = lines.series,
            .series_count = lines.count,
        };
        status = ls_chart_write(&chart, scope, path);
    }
    free(lines.series);
    free(lines.names);
    free(lines.x);
    return status;
}
