// SPDX-License-Identifier: Apache-2.0
// The table, the rows of --json and the chart.
#include "tools/bench/bench.h"

#include "core/schedule/schedule.h"
#include "core/plugin/collective.h"
#include "tools/report/chart.h"
#include "tools/simulate/simulation.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

const struct bench_name bench_operations[] = {{"all_reduce", LS_ALL_REDUCE},
                                              {"reduce_scatter", LS_REDUCE_SCATTER},
                                              {"all_gather", LS_ALL_GATHER},
                                              {"broadcast", LS_BROADCAST},
                                              {"reduce", LS_REDUCE},
                                              {"all_to_all", LS_ALL_TO_ALL},
                                              {NULL, 0}};
const struct bench_name bench_dtypes[] = {
    {"float32", LS_F32}, {"float64", LS_F64}, {"float16", LS_F16}, {"bfloat16", LS_BF16},
    {"int32", LS_I32},   {"int64", LS_I64},   {"uint8", LS_U8},    {NULL, 0}};
const struct bench_name bench_wires[] = {
    {"float32", 0}, {"bfloat16", LS_BF16}, {"float16", LS_F16}, {NULL, 0}};
const struct bench_name bench_reductions[] = {{"sum", LS_SUM},   {"product", LS_PRODUCT},
                                              {"min", LS_MIN},   {"max", LS_MAX},
                                              {"mean", LS_MEAN}, {NULL, 0}};

static const char *name_of(const struct bench_name *names, uint32_t value)
{
    while (names->text && names->value != value)
        names++;
    return names->text;
}

static double bandwidth(const struct ls_known_call *call, double seconds)
{
    return (double)(call->count * ls_dtype_bytes(call->dtype)) / seconds * 1e-9;
}

static bool reduces(const struct ls_known_call *call)
{
    return ls_operation_reduces(call->operation);
}

static uint32_t count_workers(const struct bench *bench)
{
    return bench->workers ? ls_cluster_workers(bench_workers_run(bench->workers)->workers.cluster)
                          : 1;
}

void bench_print_heading(const struct bench *bench)
{
    const bool *place = bench->task.places;
    const struct bench_memory *memory = &bench->task.memory;
    const uint32_t wire = bench->task.call.wire;
    char workers[32] = "";
    if (bench->workers)
        snprintf(workers, sizeof(workers), " of %u workers", count_workers(bench));
    printf("# %s, %u ranks%s, transport %s, %s%s%s; medians of rounds in turn\n",
           name_of(bench_operations, bench->task.call.operation), bench->task.call.world, workers,
           bench->transport->plugin->name, name_of(bench_dtypes, bench->task.call.dtype),
           wire ? " sent as " : "", wire ? name_of(bench_wires, wire) : "");
    if (memory->ops)
        printf("# in memory of device %s: %s; %u here\n", memory->plugin->plugin->name,
               memory->hardware, memory->physical);
    if (bench->cluster.topology) {
        printf("# ");
        ls_run_topology_print(bench->topology, stdout);
    }
    printf("#\n");
    printf("# %-20s %12s %12s %8s %7s", "", "", "", "", "");
    for (int i = 0; i < BENCH_PLACES; i++)
        if (place[i])
            printf("  %-44s", i == BENCH_IN_PLACE ? "in-place" : "out-of-place");
    printf("\n# %-20s %12s %12s %8s %7s", "collective", "size", "count", "type", "redop");
    for (int i = 0; i < BENCH_PLACES; i++)
        if (place[i])
            printf("  %10s %9s %7s %7s %7s", "time", "+-", "algbw", "busbw", "#wrong");
    printf("\n# %-20s %12s %12s %8s %7s", "", "(B)", "(elements)", "", "");
    for (int i = 0; i < BENCH_PLACES; i++)
        if (place[i])
            printf("  %10s %9s %7s %7s %7s", "(us)", "(us)", "(GB/s)", "(GB/s)", "");
    putchar('\n');
    fflush(stdout);
}

// What `auto` stands for at this size; NULL: the lane has a name of its own.
static const char *chosen(const struct bench *bench, const struct bench_lane *lane)
{
    const struct ls_known_call *call = &bench->task.call;
    if (!lane->tuning.tuner)
        return NULL;
    return ls_tuning_name(&lane->tuning, call->operation, call->world, call->count,
                          (uint32_t)ls_dtype_bytes(call->dtype));
}

void bench_print_row(const struct bench *bench, const struct bench_lane *lane,
                     const struct bench_result *result)
{
    const struct ls_known_call *call = &bench->task.call;
    const char *algorithm = chosen(bench, lane);
    char name[64];
    snprintf(name, sizeof(name), "%s%s%s%s", lane->name, algorithm ? " (" : "",
             algorithm ? algorithm : "", algorithm ? ")" : "");
    printf("  %-20s %12" PRIu64 " %12" PRIu64 " %8s %7s", name,
           call->count * ls_dtype_bytes(call->dtype), call->count,
           name_of(bench_dtypes, call->dtype),
           reduces(call) ? name_of(bench_reductions, call->reduction) : "none");
    for (int i = 0; i < BENCH_PLACES; i++) {
        if (!bench->task.places[i])
            continue;
        const double algbw = bandwidth(call, result[i].median);
        printf("  %10.2f %9.2f %7.2f %7.2f %7" PRIu64, result[i].median * 1e6,
               (result[i].high - result[i].low) / 2 * 1e6, algbw,
               algbw * ls_bus_factor(call->operation, call->world), result[i].wrong);
    }
    putchar('\n');
    fflush(stdout);
}

void bench_add_json(const struct bench *bench, const struct bench_lane *lane,
                    const struct bench_result *results, struct ls_rows *rows)
{
    const struct ls_known_call *call = &bench->task.call;
    for (int i = 0; i < BENCH_PLACES; i++) {
        if (!bench->task.places[i])
            continue;
        const struct bench_result *result = &results[i];
        const double algbw = bandwidth(call, result->median);
        ls_rows_begin(rows);
        ls_rows_text(rows, "collective", lane->name);
        ls_rows_text(rows, "algorithm",
                     lane->tuning.tuner ? chosen(bench, lane) : lane->collective->plugin->name);
        ls_rows_text(rows, "operation", name_of(bench_operations, call->operation));
        ls_rows_count(rows, "replicas", call->world);
        ls_rows_count(rows, "workers", count_workers(bench));
        ls_rows_text(rows, "transport", bench->transport->plugin->name);
        ls_rows_text(rows, "device",
                     bench->task.memory.ops ? bench->task.memory.plugin->plugin->name : NULL);
        ls_rows_count(rows, "bytes", call->count * ls_dtype_bytes(call->dtype));
        ls_rows_count(rows, "count", call->count);
        ls_rows_text(rows, "dtype", name_of(bench_dtypes, call->dtype));
        ls_rows_text(rows, "wire", call->wire ? name_of(bench_wires, call->wire) : NULL);
        ls_rows_text(rows, "reduction",
                     reduces(call) ? name_of(bench_reductions, call->reduction) : NULL);
        ls_rows_boolean(rows, "in_place", i == BENCH_IN_PLACE);
        ls_rows_boolean(rows, "fresh", bench->task.fresh);
        ls_rows_number(rows, "seconds", result->median);
        ls_rows_number(rows, "least_seconds", result->least);
        ls_rows_number(rows, "low_seconds", result->low);
        ls_rows_number(rows, "high_seconds", result->high);
        ls_rows_number(rows, "algbw_gb_s", algbw);
        ls_rows_number(rows, "busbw_gb_s", algbw * ls_bus_factor(call->operation, call->world));
        ls_rows_count(rows, "wrong", result->wrong);
        ls_rows_count(rows, "iterations", result->iterations);
        ls_rows_count(rows, "rounds", result->rounds);
    }
}

enum ls_status bench_write_chart(const struct bench *bench, const char *path)
{
    const int place = bench->task.places[BENCH_IN_PLACE] ? BENCH_IN_PLACE : BENCH_OUT_OF_PLACE;
    const size_t points = bench->sizes.count;
    struct ls_chart_series series[BENCH_LANES_MOST];
    char title[96];
    double *x = calloc(points, sizeof(*x));
    double *y = calloc(points * bench->lane_count, sizeof(*y));
    enum ls_status status = LS_OUT_OF_MEMORY;
    for (size_t i = 0; x && y && i < points; i++) {
        x[i] = (double)bench->sizes.bytes[i];
        for (uint32_t lane = 0; lane < bench->lane_count; lane++)
            y[lane * points + i] = bench->results[i][lane][place].median;
    }
    for (uint32_t i = 0; i < bench->lane_count; i++)
        series[i] = (struct ls_chart_series){bench->lanes[i].name, x, y + i * points, points};
    snprintf(title, sizeof(title), "%s, %u ranks, %s",
             name_of(bench_operations, bench->task.call.operation), bench->task.call.world,
             place == BENCH_IN_PLACE ? "in place" : "out of place");
    if (x && y)
        status = ls_chart_write(&(struct ls_chart){.title = title,
                                                   .x = {"size", LS_CHART_BYTES, true},
                                                   .y = {"time", LS_CHART_SECONDS, true},
                                                   .series = series,
                                                   .series_count = bench->lane_count},
                                "--svg", path);
    free(x);
    free(y);
    return status;
}
