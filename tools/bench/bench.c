// SPDX-License-Identifier: Apache-2.0
// lockstep bench: times collectives on this machine, side by side, in the columns of nccl-tests.
#include "tools/bench/bench.h"
#include "tools/bench/tune.h"
#include "tools/command.h"
#include "tools/run_options.h"
#include "tools/size_list.h"

#include "core/base/log.h"
#include "core/base/options.h"
#include "core/base/random.h"
#include "core/plugin/collective.h"
#include "core/report/report.h"
#include "core/schedule/schedule.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LARGEST (UINT64_C(1) << 36)

static const struct argument table[] = {
    {NULL, NULL, NULL, "What to time"},
    {"replicas", "N", NULL,
     "ranks, each a thread of its own; of several workers, the ranks of each. Default: 2; one of "
     "each worker",
     .first_day = true},
    {"bytes", "SIZE[:SIZE][,...]", "8:256M",
     "sizes of the whole buffer; A:B doubles from A to B; K, M, G are KiB, MiB, GiB",
     .first_day = true},
    {"operation", "NAME", "all_reduce",
     "all_reduce, reduce_scatter, all_gather, broadcast, reduce or all_to_all, whose sizes are "
     "rounded up to equal blocks",
     .first_day = true},
    {"dtype", "NAME", "float32", "float32, float64, float16, bfloat16, int32, int64 or uint8"},
    {"wire", "NAME", "float32", "what sums of float32 travel as: float32, bfloat16 or float16",
     .idle = ARGUMENT_IDLE_ONE_REPLICA},
    {"reduction", "NAME", "sum", "sum, product, min, max or mean",
     .needs = "operation=all_reduce operation=reduce_scatter operation=reduce"},
    {"place", "both|in|out", "both", "in place, out of place"},
    {"transport", "NAME", NULL,
     "transport that moves the bytes. Default: local; between workers shared-memory on one host, "
     "ucx beyond, and both where some share a host",
     .first_day = true},
    {"device", "cuda|...", NULL,
     "place the buffers in memory of this device, those of rank i on device i modulo the number of "
     "devices; default: host memory"},

    {NULL, NULL, NULL, "How to time it"},
    {"seconds", "SECONDS", "0.5", "time to spend on each size; at least five rounds are run",
     .first_day = true},
    {"iterations", "N", NULL,
     "consecutive calls that are timed together; default: as many as take about 2 ms"},
    {"warmup", "N", "5", "untimed calls of each collective before the timed ones"},
    {"fresh", NULL, NULL,
     "every rank writes its buffer anew before each call, as training writes gradients; each call "
     "is timed on its own, after a barrier"},
    {"pin", "on|off", "on", "pin each rank to a core of its own if there are enough cores"},
    {"deadline", "SECONDS", "60", "longest wait for another rank"},

    {"topology", "NAME|FILE|sys", NULL,
     "what collectives are told of hosts, network cards and an order of the ranks, as in train"},

    {NULL, NULL, NULL, "Over several workers"},
    CLUSTER_ARGUMENTS,

    {NULL, NULL, NULL, "What comes out"},
    {"json", "FILE", NULL, "write the rows as JSON", .writes = true},
    {"svg", "FILE", NULL, "draw a chart of time against size", .writes = true, .first_day = true},
    {"tune", "FILE", NULL,
     "write the fastest collective of each size, for --strategy=auto:table=FILE with as many "
     "replicas; ring stays unless another is faster by more than both +-",
     .writes = true, .first_day = true},
    {"write-network", "FILE", NULL,
     "measure latency, bandwidth and reduction between two ranks, for lockstep simulate "
     "--network=FILE. With NAMES, the sizes of the table are measured in its rounds; without NAMES "
     "no table is printed",
     .writes = true},
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
    "busbw    algbw times 2 (n - 1) / n for all_reduce, (n - 1) / n for reduce_scatter,\n"
    "         all_gather and all_to_all: what a link must carry, whatever the number of ranks\n"
    "#wrong   elements without the exact expected value, in a run after the timing\n\n"
    "A Lockstep collective works in place. Out of place, the input is first copied into the "
    "output,\n"
    "and the time includes the copy. auto measures for 0.2 s before the table begins, as it does\n"
    "before a training, and prints first what it chose.\n\n"
    "As one of several workers (lockstep launch, mpirun, srun, ...) it times collectives between "
    "them: all are\n"
    "started with the same options, worker 0 prints and writes.\n\n"
    "Examples:\n"
    "  lockstep bench ring direct tree --bytes=1K:64M --svg=bench.svg\n"
    "  lockstep launch -n 2 -- bench ring direct --bytes=1K:64M\n"
    "  lockstep bench --replicas=4 --bytes=4K:32M --place=in --tune=table.json\n"
    "  lockstep train --model=cnn --dataset=fashion-mnist --replicas=4 "
    "--strategy=auto:table=table.json\n"
    "  lockstep bench ring --bytes=32K:64M --write-network=here.json\n"
    "  lockstep simulate ring --world=2 --bytes=32K:64M --network=here.json\n";

enum { PLACE_BOTH, PLACE_IN, PLACE_OUT };
static const struct bench_name places[] = {
    {"both", PLACE_BOTH}, {"in", PLACE_IN}, {"out", PLACE_OUT}, {NULL, 0}};

// ---- Options ----

static enum ls_status read_name(const struct arguments *arguments, const char *option,
                                const struct bench_name *names, uint32_t *out)
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

static enum ls_status read_call(const struct arguments *arguments, bool alone,
                                struct ls_known_call *out, uint32_t *place)
{
    uint64_t ranks = alone ? 2 : 1;
    enum ls_status status =
        arguments_count(arguments, "replicas", 1, LS_KNOWN_VALUES_WORLD, &ranks);
    out->world = (uint32_t)ranks; // of this process, until the workers have met
    if (!status)
        status = read_name(arguments, "operation", bench_operations, &out->operation);
    if (!status)
        status = read_name(arguments, "dtype", bench_dtypes, &out->dtype);
    if (!status)
        status = read_name(arguments, "reduction", bench_reductions, &out->reduction);
    if (!status)
        status = read_name(arguments, "place", places, place);
    if (!status)
        status = read_name(arguments, "wire", bench_wires, &out->wire);
    const bool sums =
        out->dtype == LS_F32 && out->reduction == LS_SUM && ls_operation_reduces(out->operation);
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

// --write-network alone measures between two ranks, and prints no table.
static enum ls_status refuse_table(const struct arguments *arguments)
{
    static const char *const names[] = {"replicas",  "bytes", "operation",  "dtype",   "wire",
                                        "reduction", "place", "iterations", "warmup",  "fresh",
                                        "json",      "svg",   "tune",       "topology"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (arguments_given(arguments, names[i])) {
            ls_error("usage",
                     "--%s has no effect beside --write-network without collectives; name "
                     "some, such as ring",
                     names[i]);
            return LS_USAGE;
        }
    return LS_OK;
}

static enum ls_status read_options(const struct arguments *arguments, bool alone,
                                   struct bench *bench)
{
    struct bench_task *task = &bench->task;
    uint32_t place = PLACE_BOTH;
    double deadline = 0;
    enum ls_status status = read_call(arguments, alone, &task->call, &place);
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
    if (!status)
        status = run_options_cluster(arguments, &bench->cluster);
    bench->cluster.replicas = task->call.world;
    bench->cluster.deadline_seconds = deadline;
    bench->cluster.plugin_path = arguments_text(arguments, "plugin-path");
    bench->cluster.topology = arguments_text(arguments, "topology");
    if (!status && alone)
        arguments_warn_idle(arguments, ARGUMENT_IDLE_ALONE, 0, "with one worker");
    if (!status && alone && task->call.world == 1)
        arguments_warn_idle(arguments, ARGUMENT_IDLE_ONE_REPLICA, 0, "with one replica");
    if (!status && !alone && arguments_given(arguments, "write-network")) {
        ls_error("usage", "--write-network measures two ranks of one process, and this is one of "
                          "several workers: start it alone, or give --cluster=none");
        status = LS_USAGE;
    }
    if (!status && arguments_given(arguments, "write-network") && !arguments->operand_count)
        status = refuse_table(arguments);
    return status || bench->silent ? status : check_files(arguments);
}

// Sizes of an all-to-all become those of equal blocks; one that several become is timed once.
static void round_sizes(struct bench *bench)
{
    const struct ls_known_call *call = &bench->task.call;
    const uint64_t element_bytes = ls_dtype_bytes(call->dtype);
    struct size_list *sizes = &bench->sizes;
    size_t count = 0;
    for (size_t i = 0; i < sizes->count; i++) {
        size_t same = 0;
        const uint64_t bytes =
            element_bytes * ls_collective_whole_count(call->operation,
                                                      sizes->bytes[i] / element_bytes, call->world);
        while (same < count && sizes->bytes[same] != bytes)
            same++;
        if (same == count || call->operation != LS_ALL_TO_ALL)
            sizes->bytes[count++] = bytes;
    }
    sizes->count = count;
}

// Two buffers a rank, and what the collectives need beside them, must leave something for the rest of the machine.
static enum ls_status check_memory(const struct bench *bench)
{
    const double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < bench->sizes.count; i++) {
        const double bytes = 2.0 * (double)bench->sizes.bytes[i] * bench->task.memory.here;
        if (bytes <= machine * 3 / 4 || bench->on_device)
            continue;
        ls_error("usage",
                 "--bytes=%" PRIu64
                 " with %u ranks on this machine takes %.1f GiB for buffers, and this "
                 "machine has %.1f GiB; choose smaller ones",
                 bench->sizes.bytes[i], bench->task.memory.here, bytes / (1 << 30),
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

static struct ls_exchange exchange_of(const struct bench *bench)
{
    if (!bench->workers)
        return (struct ls_exchange){0};
    return (struct ls_exchange){.call = ls_cluster_exchange,
                                .context = &bench_workers_run(bench->workers)->workers.exchange};
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
                                device_name(bench), bench->task.call.world,
                                bench->topology->around.hosts ? bench->topology->around.hosts
                                                              : bench->task.hosts,
                                &lane->tuning);
    if (!status && lane->tuning.tuner && bench->workers)
        status = ls_workers_agree_on_tuning(bench_workers_run(bench->workers), &lane->tuning);
    if (status)
        return status;
    if (all && !bench_memory_fits(&bench->task.memory, lane->collective)) {
        if (!bench->silent)
            printf("# %s is left out: it does not work between %u ranks here\n", lane->name,
                   bench->task.call.world);
        return LS_OK;
    }
    lane->communicators = calloc(bench->task.count, sizeof(*lane->communicators));
    if (!lane->communicators) {
        ls_tuning_close(&lane->tuning);
        return LS_OUT_OF_MEMORY;
    }
    bench->lane_count++;
    const struct ls_tuner *tuner = lane->tuning.tuner;
    char *reason = NULL, unique[64];
    snprintf(unique, sizeof(unique), bench->workers ? "%.40s.%u" : "%.60s", lane->name,
             bench->lane_count);
    if (all)
        ls_log_keep(&reason);
    status = ls_communicators_open(
        &(struct ls_communicator_options){
            .collective = tuner ? ls_tuner_plugin(tuner) : lane->collective->plugin,
            .collective_host = tuner ? ls_tuner_host(tuner) : lane->collective->host,
            .collective_text = tuner ? NULL : lane->collective->text,
            .transport = bench->transport->plugin,
            .transport_host = bench->transport->host,
            .world = bench->task.call.world,
            .first_rank = bench->task.first_rank,
            .count = bench->task.count,
            .deadline_ns = bench->deadline_ns,
            .name = unique,
            .places = bench->task.memory.places,
            .hosts = bench->task.hosts,
            .around = &bench->topology->around,
            .exchange = exchange_of(bench)},
        lane->communicators);
    ls_log_keep(NULL);
    if (all && status == LS_UNAVAILABLE) { // nobody has asked for this one
        const char *why = reason ? strstr(reason, "error: ") : NULL;
        if (!bench->silent)
            printf("# %s is left out: %s\n", lane->name,
                   why ? why + strlen("error: ") : ls_status_text(status));
        free(reason);
        bench->lane_count--;
        free(lane->communicators);
        lane->communicators = NULL;
        return LS_OK;
    }
    ls_log_write_kept(&reason);
    return status;
}

static enum ls_status add_all_there_are(struct bench *bench)
{
    enum ls_status status = LS_OK;
    for (size_t i = 0; !status && i < bench->entry_count; i++) {
        const struct ls_plugin_entry *entry = &bench->entries[i];
        if (entry->kind != LS_KIND_COLLECTIVE)
            continue;
        if (entry->available) {
            status = add_lane(bench, entry->name, true);
        } else if (!bench->silent) {
            ls_log_replace_control_characters(entry->reason);
            printf("# %s is left out: %s\n", entry->name, entry->reason);
        }
    }
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
    bench_workers_watch(bench->workers, &bench->task);
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
            status =
                ls_tuner_measure(lane->tuning.tuner, &task, lane->communicators, bench->task.count);
    }
    bench_workers_watch(bench->workers, NULL);
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
        ls_communicators_close(bench->lanes[i].communicators, bench->task.count);
        free(bench->lanes[i].communicators);
        ls_tuning_close(&bench->lanes[i].tuning);
    }
    bench_network_close(bench->network);
    bench_memory_close(&bench->task.memory);
    ls_plugin_entries_destroy(bench->entries, bench->entry_count);
    if (!bench->workers)
        ls_loader_destroy(bench->loader);
    bench_workers_close(bench->workers);
    ls_run_topology_finish(&bench->alone);
    free(bench->results);
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
        if (!bench->silent)
            bench_print_row(bench, &bench->lanes[i], result);
        bench_add_json(bench, &bench->lanes[i], result, rows);
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
    const bool writes = !bench->silent;
    const char *json = writes ? arguments_text(arguments, "json") : NULL;
    const char *svg = writes ? arguments_text(arguments, "svg") : NULL;
    const char *tune = writes ? arguments_text(arguments, "tune") : NULL;
    struct ls_rows *rows = NULL;
    enum ls_status status = ls_rows_create(&rows);
    bench->results = calloc(bench->sizes.count, sizeof(*bench->results));
    if (!status && !bench->results)
        status = LS_OUT_OF_MEMORY;
    bench->right = true;
    bench->together = !status;
    if (!status)
        status = tune_lanes(bench);
    for (uint32_t i = 0; !status && !bench->silent && i < bench->lane_count; i++)
        ls_tuning_print(&bench->lanes[i].tuning, stdout);
    if (!status && !bench->silent)
        bench_print_heading(bench);
    for (size_t i = 0; !status && i < bench->sizes.count; i++)
        status = run_size(bench, i, rows);
    if (!status && json)
        status = ls_rows_write(rows, "--json", json, "bench", bench->right);
    if (!status && svg)
        status = bench_write_chart(bench, svg);
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

// The ranks of all workers are known now.
static enum ls_status check_world(const struct arguments *arguments, struct bench *bench)
{
    const uint32_t world = bench->task.call.world;
    if (world > LS_KNOWN_VALUES_WORLD) {
        ls_error("usage", "%u ranks of all workers: at most %d have sums that are exact", world,
                 LS_KNOWN_VALUES_WORLD);
        return LS_USAGE;
    }
    if (arguments_given(arguments, "tune")) {
        const enum ls_status status = bench_tune_check(&bench->task);
        if (status)
            return status;
    }
    round_sizes(bench);
    return check_memory(bench);
}

// This process alone.
static enum ls_status find_topology(const char *text, uint32_t world, struct ls_run_topology *out)
{
    struct ls_cluster *cluster = NULL;
    enum ls_status status = ls_run_topology_read(text, out);
    if (!status && text)
        status = ls_cluster_open_alone(world, &cluster);
    if (!status && text)
        status = ls_run_topology_fit(out, cluster);
    ls_cluster_close(cluster);
    return status;
}

static enum ls_status open_alone(const struct arguments *arguments, struct bench *bench)
{
    const char *transport = arguments_text(arguments, "transport");
    struct bench_task *task = &bench->task;
    task->count = task->memory.count = task->memory.here = task->call.world;
    bench->topology = &bench->alone;
    enum ls_status status = check_world(arguments, bench);
    if (!status)
        status = find_topology(bench->cluster.topology, task->call.world, &bench->alone);
    if (!status)
        status = ls_loader_create(arguments_text(arguments, "plugin-path"), &bench->loader);
    return status ? status
                  : ls_loader_open(bench->loader, LS_KIND_TRANSPORT,
                                   transport ? transport : "local", NULL, 0, &bench->transport);
}

// What must be the same on all workers; how many ranks each has need not be.
static enum ls_status agree(const struct arguments *arguments, struct bench *bench)
{
    static const char *const names[] = {"bytes",      "operation", "dtype",  "wire",
                                        "reduction",  "place",     "device", "seconds",
                                        "iterations", "warmup",    "fresh",  "pin"};
    enum { OPTIONS = sizeof(names) / sizeof(names[0]) };
    struct ls_worker_item items[OPTIONS + 1] = {{.name = "the collectives"}};
    size_t length = 0;
    uint64_t key = 0;
    for (size_t i = 0; i < OPTIONS; i++) {
        const char *text = arguments_text(arguments, names[i]);
        struct ls_worker_item *item = &items[i + 1];
        item->name = names[i];
        snprintf(item->value, sizeof(item->value), "%.200s", text ? text : "(default)");
    }
    const size_t listed = arguments->operand_count ? arguments->operand_count : bench->entry_count;
    for (size_t i = 0; i < listed; i++) {
        const struct ls_plugin_entry *entry = bench->entries ? &bench->entries[i] : NULL;
        if (entry && (entry->kind != LS_KIND_COLLECTIVE || !entry->available))
            continue;
        const char *text = entry ? entry->name : arguments->operands[i];
        const size_t room = sizeof(items->value) - 16 - length;
        key = ls_random_key_text(key, text);
        if (strlen(text) + 1 < room)
            length +=
                (size_t)snprintf(items->value + length, room, "%s%s", length ? " " : "", text);
    }
    snprintf(items->value + length, sizeof(items->value) - length, " (%08x)", (unsigned)key);
    return ls_workers_agree(bench_workers_run(bench->workers), items, OPTIONS + 1);
}

static enum ls_status open_together(const struct arguments *arguments, struct bench *bench)
{
    enum ls_status status = bench_workers_open(
        &bench->cluster, arguments_text(arguments, "transport"), &bench->workers);
    if (status)
        return status;
    struct ls_run *run = bench_workers_run(bench->workers);
    bench->loader = run->loader;
    bench->topology = &run->topology;
    bench->transport = run->strategy.transport;
    bench_workers_divide(bench->workers, &bench->task);
    return check_world(arguments, bench);
}

static enum ls_status time_lanes(const struct arguments *arguments, struct bench *bench)
{
    const char *network = arguments_text(arguments, "write-network");
    enum ls_status status =
        bench_memory_open(bench->loader, arguments_text(arguments, "device"), &bench->task.memory);
    if (!status && network && bench->task.memory.ops) {
        ls_error("usage", "--write-network measures ranks in host memory; leave --device out");
        status = LS_USAGE;
    }
    if (!status && bench->task.memory.ops)
        status = ls_run_topology_check_device(bench->topology, bench->task.memory.plugin);
    if (!status && !arguments->operand_count && !network)
        status = ls_loader_list(bench->loader, &bench->entries, &bench->entry_count);
    if (!status && bench->workers)
        status = agree(arguments, bench);
    if (!status)
        status = open_lanes(arguments, bench);
    if (!status && network)
        status = bench_network_open(bench->loader, bench->transport, bench->deadline_ns,
                                    &bench->network);
    if (!status && bench->lane_count)
        status = run_sizes(arguments, bench);
    if (!status && network)
        status = bench_network_write(bench->network, bench->task.seconds, network);
    return status;
}

// Which of several workers this is.
static enum ls_status resolve(const struct arguments *arguments, struct ls_worker_place *place)
{
    const struct ls_environment environment = ls_environment_of_process();
    const enum ls_status status =
        ls_worker_place_resolve(arguments_text(arguments, "cluster"), &environment, place);
    if (status || !place->servers)
        return status;
    ls_error("bench", "collectives are between workers, and this job has servers, too: start it "
                      "without them, or give --cluster=none");
    return LS_USAGE;
}

static enum ls_status run(const struct arguments *arguments)
{
    struct bench bench = {0};
    struct ls_worker_place place = {.workers = 1};
    enum ls_status status = resolve(arguments, &place);
    const bool alone = place.workers == 1;
    bench.silent = place.number > 0;
    if (!status)
        status = read_options(arguments, alone, &bench);
    if (!status)
        status = alone ? open_alone(arguments, &bench) : open_together(arguments, &bench);
    if (!status)
        status = time_lanes(arguments, &bench);
    if (bench.workers)
        status = bench_workers_conclude(bench.workers, status, bench.together);
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
