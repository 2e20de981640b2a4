// SPDX-License-Identifier: Apache-2.0
// A network file from measurements between two ranks. A ring of two does two rounds, in each of which both ranks
// send half of the buffer to each other, and in one of which they add it up. The simulator takes for it
//
//     2 (overhead + latency + half / bandwidth) + half * reduction
//
// so with overhead (what more messages for the same bytes take), latency (the rest of the smallest message) and
// reduction measured (two loops: what adding takes longer than copying), each size tells the bandwidth of its messages:
// what is in a cache moves faster than what is not.
#include "tools/bench_network.h"

#include "tools/bench_lanes.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/plugin/collective.h"
#include "core/report/whole_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 2
#define SMALLEST 8 // bytes: all latency
#define LEAST_BUFFER (UINT64_C(8) << 10)
#define POINTS 15 // messages from 4 KiB to 64 MiB
#define CUT       \
    (UINT64_C(64) \
     << 10) // a buffer that is sent whole, and in segments, to see what a message takes
#define SEGMENT (UINT64_C(1) << 10)

#define MOST_REDUCING 0.9 // of the time of an all-reduce
#define MOST_OVERHEAD 0.9 // of the time of the smallest message
#define PASSES 3 // through all sizes: what comes and goes does not meet the same size each time
#define MOST_APART 1.5
#define REDUCED (1 << 16) // floats: two such buffers stay in a second-level cache
#define REDUCTIONS 200

struct speeds {
    double overhead; // seconds that a message keeps a rank busy
    double latency; // seconds
    double reduction; // seconds a byte
    uint64_t bytes[POINTS];
    double bandwidth[POINTS]; // bytes a second
    double fastest;
};

static void add(float *restrict to, const float *restrict from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

static enum ls_status measure_reduction(double *out)
{
    float *buffers = calloc(2 * REDUCED, sizeof(*buffers));
    if (!buffers)
        return LS_OUT_OF_MEMORY;
    double added = INFINITY, copied = INFINITY;
    for (int i = 0; i < REDUCTIONS; i++) {
        const uint64_t begin = ls_clock_ns();
        add(buffers, buffers + REDUCED, REDUCED);
        const uint64_t middle = ls_clock_ns();
        memcpy(buffers + REDUCED, buffers, REDUCED * sizeof(*buffers));
        added = fmin(added, (double)(middle - begin) * 1e-9);
        copied = fmin(copied, (double)(ls_clock_ns() - middle) * 1e-9);
    }
    free(buffers);
    *out = fmax(added - copied, added / 10) / (REDUCED * sizeof(float));
    return LS_OK;
}

static enum ls_status measure_ring(const struct bench_lane *ring, uint64_t bytes, double seconds,
                                   double *out)
{
    const struct bench_task task = {
        .lanes = ring,
        .lane_count = 1,
        .call = {LS_ALL_REDUCE, LS_F32, LS_SUM, RANKS, bytes / sizeof(float)},
        .warmup = 5,
        .seconds = seconds,
        .places = {[BENCH_IN_PLACE] = true},
        .pin = true,
    };
    struct bench_result results[1][BENCH_PLACES] = {{{0}}};
    const enum ls_status status = bench_lanes_run(&task, results);
    if (!status)
        *out = results[0][BENCH_IN_PLACE].median; // as bench prints it
    return status;
}

// All that is timed, once through: the smallest message, a buffer whole and cut, and each size.
enum { TIME_SMALLEST, TIME_WHOLE, TIME_CUT, TIME_SIZES, TIMES = TIME_SIZES + POINTS };

static enum ls_status measure_pass(const struct bench_lane *ring, const struct bench_lane *cut,
                                   double seconds, double times[TIMES])
{
    enum ls_status status = measure_ring(ring, SMALLEST, seconds, &times[TIME_SMALLEST]);
    if (!status)
        status = measure_ring(ring, CUT, seconds, &times[TIME_WHOLE]);
    if (!status)
        status = measure_ring(cut, CUT, seconds, &times[TIME_CUT]);
    for (int i = 0; !status && i < POINTS; i++)
        status = measure_ring(ring, LEAST_BUFFER << i, seconds, &times[TIME_SIZES + i]);
    return status;
}

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

// Medians over the passes; a machine that does other work gives itself away.
static enum ls_status measure_passes(const struct bench_lane *ring, const struct bench_lane *cut,
                                     double seconds, double times[TIMES])
{
    double passes[PASSES][TIMES], apart = 1;
    for (int pass = 0; pass < PASSES; pass++) {
        const enum ls_status status = measure_pass(ring, cut, seconds / PASSES, passes[pass]);
        if (status)
            return status;
    }
    for (int i = 0; i < TIMES; i++) {
        double sorted[PASSES];
        for (int pass = 0; pass < PASSES; pass++)
            sorted[pass] = passes[pass][i];
        qsort(sorted, PASSES, sizeof(*sorted), compare);
        times[i] = sorted[PASSES / 2];
        apart = fmax(apart, sorted[PASSES - 1] / sorted[0]);
    }
    if (apart > MOST_APART)
        ls_warn("bench",
                "the same all-reduce took up to %.1f times as long in one pass as in another: this "
                "machine does other work, and the network file says so, too; measure again",
                apart);
    return LS_OK;
}

// Half of the buffer goes out as one message, or as many; and so twice.
static void find_message(const double times[TIMES], struct speeds *out)
{
    const double message = times[TIME_SMALLEST] / 2;
    const double each = (times[TIME_CUT] - times[TIME_WHOLE]) / (2.0 * (CUT / 2 / SEGMENT - 1));
    out->overhead = fmax(0, fmin(each, MOST_OVERHEAD * message));
    out->latency = message - out->overhead;
}

// What of the times of the sizes is left for the messages. Nothing is added more slowly than it is added while it moves:
// a slow moment of the loop does not make all else impossible.
static void find_bandwidths(const double *times, struct speeds *out)
{
    for (int i = 0; i < POINTS; i++) {
        const double half = (double)out->bytes[i] / 2;
        const double moving = times[i] - 2 * (out->latency + out->overhead);
        out->reduction = fmin(out->reduction, fmax(moving, times[i] / 2) / half * MOST_REDUCING);
    }
    for (int i = 0; i < POINTS; i++) {
        const double half = (double)out->bytes[i] / 2;
        const double left = (times[i] - half * out->reduction) / 2 - out->latency - out->overhead;
        out->bandwidth[i] = half / fmax(left, times[i] / 100);
        out->fastest = fmax(out->fastest, out->bandwidth[i]);
    }
}

static enum ls_status measure(const struct bench_lane *ring, const struct bench_lane *cut,
                              double seconds, struct speeds *out)
{
    double times[TIMES];
    enum ls_status status = measure_reduction(&out->reduction);
    if (!status)
        status = measure_passes(ring, cut, seconds, times);
    if (status)
        return status;
    for (int i = 0; i < POINTS; i++)
        out->bytes[i] = LEAST_BUFFER << i;
    find_message(times, out);
    find_bandwidths(times + TIME_SIZES, out);
    return LS_OK;
}

static enum ls_status write_file(const struct speeds *speeds, const char *path)
{
    struct ls_whole_file file = {0};
    const enum ls_status status = ls_whole_file_open("--write-network", path, &file);
    if (status)
        return status;
    fprintf(file.stream,
            "{\n"
            "    \"name\": \"measured\",\n"
            "    \"about\": \"Threads of one process of this machine, two ranks, float32: lockstep "
            "bench --write-network\",\n"
            "    \"topology\": \"flat\",\n"
            "    \"latency_us\": %.4g,\n"
            "    \"overhead_us\": %.4g,\n"
            "    \"bandwidth_gb_s\": %.4g,\n"
            "    \"bandwidth_by_bytes\": [",
            speeds->latency * 1e6, speeds->overhead * 1e6, speeds->fastest * 1e-9);
    for (int i = 0; i < POINTS; i++)
        fprintf(file.stream, "%s[%llu, %.4g]", i ? ", " : "", (unsigned long long)speeds->bytes[i],
                speeds->bandwidth[i] * 1e-9);
    fprintf(file.stream, "],\n    \"reduction_gb_s\": %.4g,\n    \"reduces_in_place\": true\n}\n",
            1e-9 / speeds->reduction);
    return ls_whole_file_commit(&file);
}

static enum ls_status open_lane(const struct ls_opened_plugin *collective,
                                const struct ls_opened_plugin *transport, uint64_t deadline_ns,
                                uint64_t segment_bytes, struct bench_lane *lane)
{
    lane->name = "ring";
    lane->collective = collective;
    return ls_communicators_open(
        &(struct ls_communicator_options){.collective = collective->plugin,
                                          .collective_host = collective->host,
                                          .transport = transport->plugin,
                                          .transport_host = transport->host,
                                          .world = RANKS,
                                          .deadline_ns = deadline_ns,
                                          .segment_bytes = segment_bytes,
                                          .name = "bench"},
        lane->communicators);
}

enum ls_status bench_network_write(struct ls_loader *loader,
                                   const struct ls_opened_plugin *transport, double seconds,
                                   uint64_t deadline_ns, const char *path)
{
    struct ls_communicator *communicators[2][RANKS] = {{NULL}};
    struct bench_lane ring = {.communicators = communicators[0]};
    struct bench_lane cut = {.communicators = communicators[1]};
    struct speeds speeds = {0};
    const struct ls_opened_plugin *collective = NULL;
    enum ls_status status =
        ls_loader_open(loader, LS_KIND_COLLECTIVE, "ring", NULL, 0, &collective);
    if (!status)
        status = open_lane(collective, transport, deadline_ns, 0, &ring);
    if (!status)
        status = open_lane(collective, transport, deadline_ns, SEGMENT, &cut);
    if (!status)
        status = measure(&ring, &cut, seconds, &speeds);
    ls_communicators_close(communicators[0], RANKS);
    ls_communicators_close(communicators[1], RANKS);
    if (!status)
        status = write_file(&speeds, path);
    if (!status)
        printf("%s: latency %.3g us, overhead %.3g us, up to %.3g GB/s, reduces %.3g GB/s\n", path,
               speeds.latency * 1e6, speeds.overhead * 1e6, speeds.fastest * 1e-9,
               1e-9 / speeds.reduction);
    return status;
}
