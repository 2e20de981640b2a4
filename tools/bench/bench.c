// SPDX-License-Identifier: Apache-2.0
// lockstep bench: times collectives on this machine, side by side, in the columns of nccl-tests.
#include "tools/bench/lanes.h"
#include "tools/bench/network.h"
#include "tools/bench/tune.h"
#include "tools/command.h"
#include "tools/size_list.h"

#include "core/base/log.h"
#include "core/base/options.h"
#include "core/collective/schedule.h"
#include "tools/simulate/simulation.h"
#include "core/plugin/collective.h"
#include "tools/report/chart.h"
#include "core/report/report.h"
#include "tools/report/rows.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LARGEST (UINT64_C(1) << 36)

static const struct argument table[] = {
    {NULL, NULL, NULL, "What to time"},
    {"replicas", "N", "2", "ranks, each a thread of its own"},
    {"bytes", "SIZE[:SIZE][,...]", "8:256M",
     "sizes of the whole buffer; A:B doubles from A to B; K, M, G are KiB, MiB, GiB"},
    {"operation", "NAME", "all_reduce",
     "all_reduce, reduce_scatter, all_gather, broadcast or reduce"},
    {"dtype", "NAME", "float32", "float32, float64, float16, bfloat16, int32, int64 or uint8"},
    {"wire", "NAME", "float32", "what sums of float32 travel as: float32, bfloat16 or float16"},
    {"reduction", "NAME", "sum", "sum, product, min, max or mean"},
    {"place", "both|in|out", "both", "in place, out of place"},
    {"transport", "NAME", "local", "transport that moves the bytes"},
    {"device", "cuda|...", NULL,
     "place the buffers in memory of this device, those of rank i on device i modulo the number of "
     "devices; default: host memory"},

    {NULL, NULL, NULL, "How to time it"},
    {"seconds", "SECONDS", "0.5", "time to spend on each size; at least five rounds are run"},
    {"iterations", "N", NULL,
     "consecutive calls that are timed together; default: as many as take about 2 ms"},
    {"warmup", "N", "5", "untimed calls of each collective before the timed ones"},
    {"fresh", NULL, NULL,
     "every rank writes its buffer anew before each call, as training writes gradients; each call "
     "is timed on its own, after a barrier"},
    {"pin", "on|off", "on", "pin each rank to a core of its own if there are enough cores"},
    {"deadline", "SECONDS", "60", "longest wait for another rank"},

    {NULL, NULL, NULL, "What comes out"},
    {"json", "FILE", NULL, "write the rows as JSON"},
    {"svg", "FILE", NULL, "draw a chart of time against size"},
    {"tune", "FILE", NULL,
     "write the fastest collective of each size, for --strategy=auto:table=FILE with as many "
     "replicas; ring stays unless another is faster by more than both +-"},
    {"write-network", "FILE", NULL,
     "measure latency, bandwidth and reduction between two ranks, for lockstep simulate "
     "--network=FILE. With NAMES, the sizes of the table are measured in its rounds; without NAMES "
     "no table is printed"},
    {"plugin-path", "DIR[:DIR...]", NULL, "directories searched for plugins first"},
    {NULL, NULL, NULL, NULL},
};

static const char help[] =
    "NAMES are collectives, with options (hierarchical-copy:groups=2), or files "
    "(./collective-x.so).\n"
    "The default is all collectives. Each round times every collective in turn; every second "
    "round\n"
    "goes in the opposite order.\n\n"
    "time     microseconds a call, mean over the ranks: the median of the rounds; +- half the\n"
    "         distance between the quartiles\n"
    "algbw    size / time, in 1e9 bytes a second\n"
    "busbw    algbw times 2 (n - 1) / n for all_reduce, (n - 1) / n for reduce_scatter and\n"
    "         all_gather: what a link must carry, whatever the number of ranks\n"
    "#wrong   elements without the exact expected value, in a run after the timing\n\n"
    "A Lockstep collective works in place. Out of place, the input is first copied into the "
    "output,\n"
    "and the time includes the copy. auto measures for 0.2 s before the table begins, as it does\n"
    "before a training, and prints first what it chose.\n\n"
    "Examples:\n"
    "  lockstep bench ring direct tree --bytes=1K:64M --svg=bench.svg\n"
    "  lockstep bench --replicas=4 --bytes=4K:32M --place=in --tune=table.json\n"
    "  lockstep train --model=cnn --dataset=fashion-mnist --replicas=4 "
    "--strategy=auto:table=table.json\n"
    "  lockstep bench ring --bytes=32K:64M --write-network=here.json\n"
    "  lockstep simulate ring --world=2 --bytes=32K:64M --network=here.json\n";

struct name {
    const char *text;
    uint32_t value;
};

static const struct name operations[] = {
    {"all_reduce", LS_ALL_REDUCE}, {"reduce_scatter", LS_REDUCE_SCATTER},
    {"all_gather", LS_ALL_GATHER}, {"broadcast", LS_BROADCAST},
    {"reduce", LS_REDUCE},         {NULL, 0}};
static const struct name dtypes[] = {
    {"float32", LS_F32}, {"float64", LS_F64}, {"float16", LS_F16}, {"bfloat16", LS_BF16},
    {"int32", LS_I32},   {"int64", LS_I64},   {"uint8", LS_U8},    {NULL, 0}};
static const struct name wires[] = {
    {"float32", 0}, {"bfloat16", LS_BF16}, {"float16", LS_F16}, {NULL, 0}};
static const struct name reductions[] = {{"sum", LS_SUM}, {"product", LS_PRODUCT}, {"min", LS_MIN},
                                         {"max", LS_MAX}, {"mean", LS_MEAN},       {NULL, 0}};
enum { PLACE_BOTH, PLACE_IN, PLACE_OUT };
static const struct name places[] = {
    {"both", PLACE_BOTH}, {"in", PLACE_IN}, {"out", PLACE_OUT}, {NULL, 0}};

struct bench {
    struct bench_task task;
    struct size_list sizes;
    uint64_t deadline_ns;
    struct ls_loader *loader;
    const struct ls_opened_plugin *transport;
    struct bench_lane lanes[BENCH_LANES_MOST];
    uint32_t lane_count;
    struct bench_network *network; // to be written; NULL: none
    struct ls_plugin_entry *entries; // whose names lanes may have
    size_t entry_count;
    struct bench_result (*results)[BENCH_LANES_MOST][BENCH_PLACES]; // by size
    bool right; // nothing was wrong
    bool on_device; // which says itself when its memory is full
};

// ---- Options ----

static enum ls_status read_name(const struct arguments *arguments, const char *option,
                                const struct name *names, uint32_t *out)
{
    const char *text = arguments_text(arguments, option);
    char all[160] = "", plain[32];
    size_t length = 0;
    snprintf(plain, sizeof(plain), "%s", text);
    for (char *letter = plain; *letter; letter++) // all-reduce is fine, too
        *letter = *letter == '-' ? '_' : *letter;
    for (; names->text; names++) {
        if (strcmp(plain, names->text) == 0) {
            *out = names->value;
            return LS_OK;
        }
        length += (size_t)snprintf(all + length, sizeof(all) - length, "%s%s", length ? ", " : "",
                                   names->text);
    }
    ls_error("usage", "--%s=%s: expected one of %s", option, text, all);
    return LS_USAGE;
}

static enum ls_status read_seconds(const struct arguments *arguments, const char *name,
                                   double least, double *out)
{
    const enum ls_status status = arguments_number(arguments, name, out);
    if (status || (*out >= least && *out <= 1e6))
        return status;
    ls_error("usage", "--%s=%s: expected %g to 1e6 seconds", name, arguments_text(arguments, name),
             least);
    return LS_USAGE;
}

static enum ls_status read_call(const struct arguments *arguments, struct ls_known_call *out,
                                uint32_t *place)
{
    uint64_t world = 0;
    enum ls_status status =
        arguments_count(arguments, "replicas", 1, LS_KNOWN_VALUES_WORLD, &world);
    out->world = (uint32_t)world;
    if (!status)
        status = read_name(arguments, "operation", operations, &out->operation);
    if (!status)
        status = read_name(arguments, "dtype", dtypes, &out->dtype);
    if (!status)
        status = read_name(arguments, "reduction", reductions, &out->reduction);
    if (!status)
        status = read_name(arguments, "place", places, place);
    if (!status)
        status = read_name(arguments, "wire", wires, &out->wire);
    const bool sums = out->dtype == LS_F32 && out->reduction == LS_SUM &&
                      out->operation != LS_BROADCAST && out->operation != LS_ALL_GATHER;
    if (!status && out->wire && !sums) {
        ls_error("usage", "--wire=%s: only sums of float32 travel in 16 bits",
                 arguments_text(arguments, "wire"));
        status = LS_USAGE;
    }
    return status;
}

static enum ls_status check_files(const struct arguments *arguments)
{
    static const char *const files[] = {"json", "svg", "tune", "write-network"};
    enum ls_status status = LS_OK;
    for (size_t i = 0; !status && i < sizeof(files) / sizeof(files[0]); i++) {
        char scope[32];
        snprintf(scope, sizeof(scope), "--%s", files[i]);
        const char *path = arguments_text(arguments, files[i]);
        if (path)
            status = ls_report_check_path(scope, path);
    }
    return status;
}

static enum ls_status read_options(const struct arguments *arguments, struct bench *bench)
{
    struct bench_task *task = &bench->task;
    uint32_t place = PLACE_BOTH;
    double deadline = 0;
    enum ls_status status = read_call(arguments, &task->call, &place);
    if (!status)
        status = size_list_parse("bytes", arguments_text(arguments, "bytes"),
                                 ls_dtype_bytes(task->call.dtype), LARGEST, &bench->sizes);
    if (!status)
        status = read_seconds(arguments, "seconds", 0, &task->seconds);
    if (!status)
        status = arguments_count(arguments, "iterations", 1, 1000000, &task->iterations);
    if (!status)
        status = arguments_count(arguments, "warmup", 0, 1000000, &task->warmup);
    if (!status)
        status = arguments_switch(arguments, "pin", &task->pin);
    if (!status)
        status = read_seconds(arguments, "deadline", 1e-3, &deadline);
    bench->deadline_ns = (uint64_t)(deadline * 1e9);
    bench->on_device = arguments_given(arguments, "device");
    task->fresh = arguments_given(arguments, "fresh");
    task->places[BENCH_IN_PLACE] = place != PLACE_OUT;
    task->places[BENCH_OUT_OF_PLACE] = place != PLACE_IN;
    if (!status && arguments_given(arguments, "tune"))
        status = bench_tune_check(task);
    return status ? status : check_files(arguments);
}

// Two buffers a rank, and what the collectives need beside them, must leave something for the rest of the machine.
static enum ls_status check_memory(const struct bench *bench)
{
    const double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < bench->sizes.count; i++) {
        const double bytes = 2.0 * (double)bench->sizes.bytes[i] * bench->task.call.world;
        if (bytes <= machine * 3 / 4 || bench->on_device)
            continue;
        ls_error("usage",
                 "--bytes=%" PRIu64 " with --replicas=%u takes %.1f GiB for buffers, and this "
                 "machine has %.1f GiB; choose smaller ones",
                 bench->sizes.bytes[i], bench->task.call.world, bytes / (1 << 30),
                 machine / (1 << 30));
        return LS_USAGE;
    }
    return LS_OK;
}

// ---- Who takes part ----

static const char *device_name(const struct bench *bench)
{
    const struct bench_memory *memory = &bench->task.memory;
    return memory->ops ? memory->plugin->plugin->name : LS_TUNING_HOST;
}

// `all`: it was not named, but is one of all there are.
static enum ls_status add_lane(struct bench *bench, const char *text, bool all)
{
    if (bench->lane_count == BENCH_LANES_MOST) {
        ls_error("usage", "bench times at most %d collectives side by side", BENCH_LANES_MOST);
        return LS_USAGE;
    }
    struct bench_lane *lane = &bench->lanes[bench->lane_count];
    lane->name = arguments_short_name(text);
    enum ls_status status =
        ls_loader_open_text(bench->loader, "bench", LS_KIND_COLLECTIVE, text, &lane->collective);
    if (!status && ls_is_auto(lane->collective))
        status = ls_tuning_open(bench->loader, lane->collective, bench->transport->plugin->name,
                                device_name(bench), bench->task.call.world, &lane->tuning);
    if (status)
        return status;
    if (all && !bench_memory_fits(&bench->task.memory, lane->collective)) {
        printf("# %s is left out: it does not work between %u ranks here\n", lane->name,
               bench->task.call.world);
        return LS_OK;
    }
    lane->communicators = calloc(bench->task.call.world, sizeof(*lane->communicators));
    if (!lane->communicators) {
        ls_tuning_close(&lane->tuning);
        return LS_OUT_OF_MEMORY;
    }
    bench->lane_count++;
    const struct ls_tuner *tuner = lane->tuning.tuner;
    return ls_communicators_open(
        &(struct ls_communicator_options){
            .collective = tuner ? ls_tuner_plugin(tuner) : lane->collective->plugin,
            .collective_host = tuner ? ls_tuner_host(tuner) : lane->collective->host,
            .collective_text = tuner ? NULL : lane->collective->text,
            .transport = bench->transport->plugin,
            .transport_host = bench->transport->host,
            .world = bench->task.call.world,
            .deadline_ns = bench->deadline_ns,
            .name = lane->name,
            .places = bench->task.memory.places},
        lane->communicators);
}

static enum ls_status add_all_there_are(struct bench *bench)
{
    enum ls_status status = ls_loader_list(bench->loader, &bench->entries, &bench->entry_count);
    for (size_t i = 0; !status && i < bench->entry_count; i++)
        if (bench->entries[i].kind == LS_KIND_COLLECTIVE && bench->entries[i].available)
            status = add_lane(bench, bench->entries[i].name, true);
    if (!status && !bench->lane_count) {
        ls_error("bench", "no collectives found; --plugin-path names directories to search");
        status = LS_UNAVAILABLE;
    }
    return status;
}

// `auto` measures as a run would whose buckets have the sizes of the table.
static enum ls_status tune_lanes(const struct bench *bench)
{
    const struct ls_known_call *call = &bench->task.call;
    uint64_t *counts = calloc(bench->sizes.count, sizeof(*counts));
    enum ls_status status = counts ? LS_OK : LS_OUT_OF_MEMORY;
    for (size_t i = 0; counts && i < bench->sizes.count; i++)
        counts[i] = bench->sizes.bytes[i] / ls_dtype_bytes(call->dtype);
    const struct ls_tuner_task task = {.operation = call->operation,
                                       .dtype = call->dtype,
                                       .reduction = call->reduction,
                                       .wire = call->wire,
                                       .counts = counts,
                                       .size_count = bench->sizes.count};
    for (uint32_t i = 0; !status && i < bench->lane_count; i++) {
        const struct bench_lane *lane = &bench->lanes[i];
        if (lane->tuning.tuner && !lane->tuning.table)
            status = ls_tuner_measure(lane->tuning.tuner, &task, lane->communicators, call->world);
    }
    free(counts);
    return status;
}

static enum ls_status open_lanes(const struct arguments *arguments, struct bench *bench)
{
    enum ls_status status = LS_OK;
    for (size_t i = 0; !status && i < arguments->operand_count; i++)
        status = add_lane(bench, arguments->operands[i], false);
    if (!status && !arguments->operand_count && !arguments_given(arguments, "write-network"))
        status = add_all_there_are(bench);
    bench->task.lanes = bench->lanes;
    bench->task.lane_count = bench->lane_count;
    return status;
}

static void finish(struct bench *bench)
{
    for (uint32_t i = 0; i < bench->lane_count; i++) {
        ls_communicators_close(bench->lanes[i].communicators, bench->task.call.world);
        free(bench->lanes[i].communicators);
        ls_tuning_close(&bench->lanes[i].tuning);
    }
    bench_network_close(bench->network);
    bench_memory_close(&bench->task.memory);
    ls_plugin_entries_destroy(bench->entries, bench->entry_count);
    ls_loader_destroy(bench->loader);
    free(bench->results);
}

// ---- What comes out ----

static const char *name_of(const struct name *names, uint32_t value)
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
    return call->operation != LS_ALL_GATHER && call->operation != LS_BROADCAST;
}

static void print_heading(const struct bench *bench)
{
    const bool *place = bench->task.places;
    const struct bench_memory *memory = &bench->task.memory;
    const uint32_t wire = bench->task.call.wire;
    printf("# %s, %u ranks, transport %s, %s%s%s; medians of rounds in turn\n",
           name_of(operations, bench->task.call.operation), bench->task.call.world,
           bench->transport->plugin->name, name_of(dtypes, bench->task.call.dtype),
           wire ? " sent as " : "", wire ? name_of(wires, wire) : "");
    if (memory->ops)
        printf("# in memory of device %s: %s; %u here\n", memory->plugin->plugin->name,
               memory->hardware, memory->physical);
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

static void print_row(const struct bench *bench, const struct bench_lane *lane,
                      const struct bench_result *result)
{
    const struct ls_known_call *call = &bench->task.call;
    const char *algorithm = chosen(bench, lane);
    char name[64];
    snprintf(name, sizeof(name), "%s%s%s%s", lane->name, algorithm ? " (" : "",
             algorithm ? algorithm : "", algorithm ? ")" : "");
    printf("  %-20s %12" PRIu64 " %12" PRIu64 " %8s %7s", name,
           call->count * ls_dtype_bytes(call->dtype), call->count, name_of(dtypes, call->dtype),
           reduces(call) ? name_of(reductions, call->reduction) : "none");
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

static void add_json(const struct bench *bench, const struct bench_lane *lane,
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
        ls_rows_text(rows, "operation", name_of(operations, call->operation));
        ls_rows_count(rows, "replicas", call->world);
        ls_rows_text(rows, "device",
                     bench->task.memory.ops ? bench->task.memory.plugin->plugin->name : NULL);
        ls_rows_count(rows, "bytes", call->count * ls_dtype_bytes(call->dtype));
        ls_rows_count(rows, "count", call->count);
        ls_rows_text(rows, "dtype", name_of(dtypes, call->dtype));
        ls_rows_text(rows, "wire", call->wire ? name_of(wires, call->wire) : NULL);
        ls_rows_text(rows, "reduction",
                     reduces(call) ? name_of(reductions, call->reduction) : NULL);
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

static enum ls_status write_chart(const struct bench *bench, const char *path)
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
             name_of(operations, bench->task.call.operation), bench->task.call.world,
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

// ---- All of it ----

// With the ring of the network file as one more lane, where that is wanted.
static enum ls_status time_size(struct bench *bench, struct bench_result (*out)[BENCH_PLACES])
{
    struct bench_task *task = &bench->task;
    const uint64_t bytes = task->call.count * ls_dtype_bytes(task->call.dtype);
    if (!bench->network || !bench_network_wants(task))
        return bench_lanes_run(task, out);
    bench->lanes[task->lane_count++] = *bench_network_lane(bench->network);
    const enum ls_status status = bench_lanes_run(task, out);
    task->lane_count--;
    if (!status)
        bench_network_note(bench->network, bytes, out[task->lane_count][BENCH_IN_PLACE].median);
    return status;
}

static enum ls_status run_size(struct bench *bench, size_t number, struct ls_rows *rows)
{
    struct ls_known_call *call = &bench->task.call;
    call->count = bench->sizes.bytes[number] / ls_dtype_bytes(call->dtype);
    const enum ls_status status = time_size(bench, bench->results[number]);
    for (uint32_t i = 0; !status && i < bench->lane_count; i++) {
        const struct bench_result *result = bench->results[number][i];
        print_row(bench, &bench->lanes[i], result);
        add_json(bench, &bench->lanes[i], result, rows);
        for (int place = 0; place < BENCH_PLACES; place++) {
            if (!result[place].wrong)
                continue;
            bench->right = false;
            ls_error("bench",
                     "%s: %" PRIu64 " of the %" PRIu64 " elements on all %u ranks are wrong",
                     bench->lanes[i].name, result[place].wrong, ls_known_values_checked(call),
                     call->world);
        }
    }
    return status;
}

static enum ls_status run_sizes(const struct arguments *arguments, struct bench *bench)
{
    const char *json = arguments_text(arguments, "json"), *svg = arguments_text(arguments, "svg");
    const char *tune = arguments_text(arguments, "tune");
    struct ls_rows *rows = NULL;
    enum ls_status status = ls_rows_create(&rows);
    bench->results = calloc(bench->sizes.count, sizeof(*bench->results));
    if (!status && !bench->results)
        status = LS_OUT_OF_MEMORY;
    bench->right = true;
    if (!status)
        status = tune_lanes(bench);
    for (uint32_t i = 0; !status && i < bench->lane_count; i++)
        ls_tuning_print(&bench->lanes[i].tuning, stdout);
    if (!status)
        print_heading(bench);
    for (size_t i = 0; !status && i < bench->sizes.count; i++)
        status = run_size(bench, i, rows);
    if (!status && json)
        status = ls_rows_write(rows, "--json", json, "bench", bench->right);
    if (!status && svg)
        status = write_chart(bench, svg);
    if (!status && bench->right && tune)
        status = bench_tune_write(&(struct bench_tune){.task = &bench->task,
                                                       .transport = bench->transport->plugin->name,
                                                       .device = device_name(bench),
                                                       .bytes = bench->sizes.bytes,
                                                       .size_count = bench->sizes.count,
                                                       .results = bench->results},
                                  tune);
    ls_rows_destroy(rows);
    return status || bench->right ? status : LS_FAILED;
}

static enum ls_status run(const struct arguments *arguments)
{
    struct bench bench = {0};
    const char *network = arguments_text(arguments, "write-network");
    enum ls_status status = read_options(arguments, &bench);
    if (!status)
        status = check_memory(&bench);
    if (!status)
        status = ls_loader_create(arguments_text(arguments, "plugin-path"), &bench.loader);
    if (!status)
        status = ls_loader_open(bench.loader, LS_KIND_TRANSPORT,
                                arguments_text(arguments, "transport"), NULL, 0, &bench.transport);
    if (!status)
        status = bench_memory_open(bench.loader, arguments_text(arguments, "device"),
                                   bench.task.call.world, &bench.task.memory);
    if (!status && network && bench.task.memory.ops) {
        ls_error("usage", "--write-network measures ranks in host memory; leave --device out");
        status = LS_USAGE;
    }
    if (!status)
        status = open_lanes(arguments, &bench);
    if (!status && network)
        status =
            bench_network_open(bench.loader, bench.transport, bench.deadline_ns, &bench.network);
    if (!status && bench.lane_count)
        status = run_sizes(arguments, &bench);
    if (!status && network)
        status = bench_network_write(bench.network, bench.task.seconds, network);
    finish(&bench);
    return status;
}

const struct command bench_command = {
    .name = "bench",
    .operands = "[NAMES...]",
    .summary = "times collectives on this machine, side by side",
    .help = help,
    .most_operands = BENCH_LANES_MOST,
    .arguments = table,
    .run = run,
};
