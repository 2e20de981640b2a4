// SPDX-License-Identifier: Apache-2.0
// Writes a table for `auto:table=FILE` from the results of a benchmark.
#include "tools/bench/tune.h"

#include "core/base/log.h"
#include "core/base/threads.h"
#include "core/collective/tuner_table.h"
#include "core/report/whole_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum ls_status bench_tune_check(const struct bench_task *task)
{
    const struct ls_known_call *call = &task->call;
    if (call->operation == LS_ALL_REDUCE && call->dtype == LS_F32 && call->reduction == LS_SUM &&
        call->world > 1 && task->places[BENCH_IN_PLACE])
        return LS_OK;
    ls_error("usage",
             "--tune writes what a training needs: an all_reduce of float32, sum, in place, "
             "with --replicas=2 or more; leave the other options out");
    return LS_USAGE;
}

// What a table may name: what describes a schedule of all types with equal bits on all ranks,
// found by its name.
static bool may_be_chosen(const struct bench_lane *lane)
{
    const struct ls_collective_interface *interface = lane->collective->interface;
    return !lane->tuning.tuner && interface->build_schedule && interface->deterministic &&
           !interface->dtypes && !interface->reductions && !strchr(lane->name, '/') &&
           !strstr(lane->name, ".so");
}

// The lanes that may be chosen, the baseline first; returns how many.
static size_t list_lanes(const struct bench_task *task, uint32_t lanes[BENCH_LANES_MOST])
{
    size_t count = 0;
    for (int wanted = 1; wanted >= 0; wanted--)
        for (uint32_t i = 0; i < task->lane_count; i++)
            if (may_be_chosen(&task->lanes[i]) &&
                (strcmp(task->lanes[i].name, "ring") == 0) == wanted)
                lanes[count++] = i;
    return count;
}

// The rule of the tuner. Rounds of bench are many, and each lane's spread is known: that the
// candidate is faster in most of them follows from that.
static uint32_t decide(const struct bench_tune *tune, size_t size, const uint32_t *lanes,
                       size_t count)
{
    struct ls_tuner_time times[BENCH_LANES_MOST];
    for (size_t i = 0; i < count; i++) {
        const struct bench_result *result = &tune->results[size][lanes[i]][BENCH_IN_PLACE];
        times[i] = (struct ls_tuner_time){.seconds = result->median,
                                          .spread = (result->high - result->low) / 2,
                                          .rounds = result->rounds,
                                          .faster = result->rounds};
    }
    return lanes[ls_tuner_decide(times, count)];
}

static void write_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        fputc((unsigned char)*text < ' ' ? ' ' : *text, out);
    }
    fputc('"', out);
}

static int compare(const void *left, const void *right)
{
    const uint64_t a = **(const uint64_t *const *)left, b = **(const uint64_t *const *)right;
    return (a > b) - (a < b);
}

// Sizes that the user gave in any order, and maybe twice.
static void write_rows(FILE *out, const struct bench_tune *tune, const uint64_t **sizes,
                       const uint32_t *lanes, size_t count)
{
    uint64_t last = 0;
    for (size_t i = 0; i < tune->size_count; i++)
        sizes[i] = &tune->bytes[i];
    qsort(sizes, tune->size_count, sizeof(*sizes), compare);
    for (size_t i = 0; i < tune->size_count; i++) {
        const size_t size = (size_t)(sizes[i] - tune->bytes);
        if (tune->bytes[size] == last || !tune->bytes[size])
            continue;
        const uint32_t lane = decide(tune, size, lanes, count);
        const struct bench_result *result = &tune->results[size][lane][BENCH_IN_PLACE];
        fprintf(out, "%s\n  {\"bytes\": %" PRIu64 ", \"collective\": ", last ? "," : "",
                tune->bytes[size]);
        write_text(out, tune->task->lanes[lane].name);
        fprintf(out, ", \"seconds\": %.6g, \"spread_seconds\": %.6g}", result->median,
                (result->high - result->low) / 2);
        last = tune->bytes[size];
    }
}

enum ls_status bench_tune_write(const struct bench_tune *tune, const char *path)
{
    uint32_t lanes[BENCH_LANES_MOST];
    const size_t count = list_lanes(tune->task, lanes);
    struct ls_whole_file file = {0};
    char date[32] = "";
    const time_t now = time(NULL);
    struct tm parts;
    if (!count) {
        ls_error("usage", "--tune: none of the collectives that were timed can be chosen by name: "
                          "name one that describes its schedule, such as ring");
        return LS_USAGE;
    }
    const uint64_t **sizes = calloc(tune->size_count, sizeof(*sizes));
    enum ls_status status = sizes ? ls_whole_file_open("--tune", path, &file) : LS_OUT_OF_MEMORY;
    if (status) {
        free(sizes);
        return status;
    }
    if (gmtime_r(&now, &parts))
        strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &parts);
    fprintf(file.stream,
            "{\n \"lockstep\": \"" LS_VERSION "\",\n \"date\": \"%s\",\n \"transport\": ", date);
    write_text(file.stream, tune->transport);
    fputs(",\n \"device\": ", file.stream);
    write_text(file.stream, tune->device);
    fprintf(file.stream,
            ",\n \"cores\": %u,\n \"world\": %u,\n \"operation\": \"all_reduce\",\n \"dtype\": "
            "\"float32\",\n"
            " \"rows\": [",
            ls_core_count(), tune->task->call.world);
    write_rows(file.stream, tune, sizes, lanes, count);
    fputs("\n ]\n}\n", file.stream);
    free(sizes);
    return ls_whole_file_commit(&file);
}
