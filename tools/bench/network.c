// SPDX-License-Identifier: Apache-2.0
// A network file from measurements between two ranks. A ring of two does two rounds, in each of which both ranks
// send half of the buffer to each other, and in one of which they add it up. The simulator takes for it
//
//     launch + 2 (overhead + latency + half / bandwidth) + half * reduction
//
// and for a reduce-scatter, which has one round, one message less. So the smallest all-reduce minus
// the smallest reduce-scatter is a message, and what is left of the all-reduce beside two messages
// is the launch. With overhead (what more messages for the same bytes take), latency (the rest of
// the message) and reduction measured (two loops: what adding takes longer than copying), each size
// tells the bandwidth of its messages: what is in a cache moves faster than what is not. An
// all-to-all takes longer than an all-gather by a copy on each rank, over lines that its peer has
// in its cache.
#include "tools/bench/network.h"

#include "tools/bench/lanes.h"

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
#define COPIED (UINT64_C(16) << 10) // a small buffer: only schedules for such copy

#define MOST_REDUCING 0.9 // of the time of an all-reduce beside its messages
#define MOST_OVERHEAD 0.9 // of the time of the smallest message
#define LEAST_MESSAGES \
    0.2 // of the time of the smallest all-reduce: its two messages, the rest is launch
#define MOST_MESSAGE 0.7 // of the time of an all-reduce: the latency of its messages
#define PASSES 3 // through all sizes: what comes and goes does not meet the same size each time
#define MOST_APART 1.5
#define REDUCED (1 << 16) // floats: two such buffers stay in a second-level cache
#define REDUCTIONS 200

// The ring of two as it is, and cut into the smallest segments.
struct bench_network {
    struct bench_lane ring, cut;
    struct ls_communicator *communicators[2][RANKS];
    double noted[POINTS]; // seconds; 0: to be measured
};

struct speeds {
    double launch; // seconds of a collective beside its messages
    double overhead; // seconds that a message keeps a rank busy
    double latency; // seconds
    double reduction; // seconds a byte
    double copy; // seconds a byte that a rank copies
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

static const struct ls_known_call the_call = {
    .operation = LS_ALL_REDUCE, .dtype = LS_F32, .reduction = LS_SUM, .world = RANKS};

static enum ls_status measure_ring(const struct bench_lane *ring, uint32_t operation,
                                   uint64_t bytes, double seconds, double *out)
{
    struct bench_task task = {
        .lanes = ring,
        .lane_count = 1,
        .call = the_call,
        .warmup = 5,
        .seconds = seconds,
        .places = {[BENCH_IN_PLACE] = true},
        .pin = true,
    };
    task.call.operation = operation;
    task.call.count = bytes / sizeof(float);
    struct bench_result results[1][BENCH_PLACES] = {{{0}}};
    const enum ls_status status = bench_lanes_run(&task, results);
    if (!status)
        *out = results[0][BENCH_IN_PLACE].median; // as bench prints it
    return status;
}

// All that is timed, once through: the smallest message twice and once, a buffer whole and cut, one
// exchanged without and with a copy, and each size.
enum {
    TIME_SMALLEST,
    TIME_SCATTER,
    TIME_WHOLE,
    TIME_CUT,
    TIME_GATHER,
    TIME_EXCHANGE,
    TIME_SIZES,
    TIMES = TIME_SIZES + POINTS
};

static enum ls_status measure_pass(const struct bench_network *network, double seconds,
                                   double times[TIMES])
{
    const struct bench_lane *ring = &network->ring;
    enum ls_status status =
        measure_ring(ring, LS_ALL_REDUCE, SMALLEST, seconds, &times[TIME_SMALLEST]);
    if (!status)
        status = measure_ring(ring, LS_REDUCE_SCATTER, SMALLEST, seconds, &times[TIME_SCATTER]);
    if (!status)
        status = measure_ring(ring, LS_ALL_REDUCE, CUT, seconds, &times[TIME_WHOLE]);
    if (!status)
        status = measure_ring(&network->cut, LS_ALL_REDUCE, CUT, seconds, &times[TIME_CUT]);
    if (!status)
        status = measure_ring(ring, LS_ALL_GATHER, COPIED, seconds, &times[TIME_GATHER]);
    if (!status)
        status = measure_ring(ring, LS_ALL_TO_ALL, COPIED, seconds, &times[TIME_EXCHANGE]);
    for (int i = 0; !status && i < POINTS; i++) {
        times[TIME_SIZES + i] = network->noted[i];
        if (!network->noted[i])
            status = measure_ring(ring, LS_ALL_REDUCE, LEAST_BUFFER << i, seconds,
                                  &times[TIME_SIZES + i]);
    }
    return status;
}

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

// Medians over the passes; a machine that does other work gives itself away.
static enum ls_status measure_passes(const struct bench_network *network, double seconds,
                                     double times[TIMES])
{
    double passes[PASSES][TIMES], apart = 1;
    for (int pass = 0; pass < PASSES; pass++) {
        const enum ls_status status = measure_pass(network, seconds / PASSES, passes[pass]);
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

// Half of the buffer goes out as one message, or as many; and so twice. The smallest were measured
// by themselves: on a machine that was slow just then, they must not take longer than what is
// larger (from CUT / 2 on: below, nearly all is latency).
static void find_message(const double times[TIMES], struct speeds *out)
{
    const double each = (times[TIME_CUT] - times[TIME_WHOLE]) / (2.0 * (CUT / 2 / SEGMENT - 1));
    double smallest = times[TIME_SMALLEST];
    const double two = 2 * (smallest - times[TIME_SCATTER]);
    const double share = fmin(1, fmax(LEAST_MESSAGES, two / smallest));
    for (int i = 0; i < POINTS; i++)
        if (out->bytes[i] >= CUT / 2)
            smallest = fmin(smallest, times[TIME_SIZES + i] * MOST_MESSAGE);
    const double message = share * smallest / 2;
    out->launch = smallest - 2 * message;
    out->overhead = fmax(0, fmin(each, MOST_OVERHEAD * message));
    out->latency = message - out->overhead;
}

// What of the times of the sizes is left for the messages. Nothing is added more slowly than it is added while it moves.
static void find_bandwidths(const double *times, struct speeds *out)
{
    const double messages = out->launch + 2 * (out->latency + out->overhead);
    for (int i = 0; i < POINTS; i++) {
        const double half = (double)out->bytes[i] / 2;
        const double moving = fmax(times[i] - messages, times[i] * (1 - MOST_MESSAGE));
        out->reduction = fmin(out->reduction, moving / half * MOST_REDUCING);
    }
    for (int i = 0; i < POINTS; i++) {
        const double half = (double)out->bytes[i] / 2;
        const double left = (times[i] - half * out->reduction - messages) / 2;
        out->bandwidth[i] = half / fmax(left, times[i] / 100);
        out->fastest = fmax(out->fastest, out->bandwidth[i]);
    }
}

static enum ls_status measure(const struct bench_network *network, double seconds,
                              struct speeds *out)
{
    double times[TIMES];
    enum ls_status status = measure_reduction(&out->reduction);
    if (!status)
        status = measure_passes(network, seconds, times);
    if (status)
        return status;
    for (int i = 0; i < POINTS; i++)
        out->bytes[i] = LEAST_BUFFER << i;
    find_message(times, out);
    find_bandwidths(times + TIME_SIZES, out);
    // A machine that was slow just then does not make a copy free.
    out->copy = fmax(times[TIME_EXCHANGE] - times[TIME_GATHER], times[TIME_EXCHANGE] / 10) /
                ((double)COPIED / RANKS);
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
            "    \"launch_us\": %.4g,\n"
            "    \"latency_us\": %.4g,\n"
            "    \"overhead_us\": %.4g,\n"
            "    \"bandwidth_gb_s\": %.4g,\n"
            "    \"bandwidth_by_bytes\": [",
            speeds->launch * 1e6, speeds->latency * 1e6, speeds->overhead * 1e6,
            speeds->fastest * 1e-9);
    for (int i = 0; i < POINTS; i++)
        fprintf(file.stream, "%s[%llu, %.4g]", i ? ", " : "", (unsigned long long)speeds->bytes[i],
                speeds->bandwidth[i] * 1e-9);
    fprintf(
        file.stream,
        "],\n    \"reduction_gb_s\": %.4g,\n    \"copy_gb_s\": %.4g,\n    \"reduces_in_place\": "
        "true\n}\n",
        1e-9 / speeds->reduction, 1e-9 / speeds->copy);
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

enum ls_status bench_network_open(struct ls_loader *loader,
                                  const struct ls_opened_plugin *transport, uint64_t deadline_ns,
                                  struct bench_network **out)
{
    const struct ls_opened_plugin *collective = NULL;
    struct bench_network *network = calloc(1, sizeof(*network));
    if (!network)
        return LS_OUT_OF_MEMORY;
    network->ring.communicators = network->communicators[0];
    network->cut.communicators = network->communicators[1];
    enum ls_status status =
        ls_loader_open(loader, LS_KIND_COLLECTIVE, "ring", NULL, 0, &collective);
    if (!status)
        status = open_lane(collective, transport, deadline_ns, 0, &network->ring);
    if (!status)
        status = open_lane(collective, transport, deadline_ns, SEGMENT, &network->cut);
    if (status)
        bench_network_close(network);
    else
        *out = network;
    return status;
}

void bench_network_close(struct bench_network *network)
{
    if (!network)
        return;
    ls_communicators_close(network->communicators[0], RANKS);
    ls_communicators_close(network->communicators[1], RANKS);
    free(network);
}

// The point of the file for a buffer of so many bytes; POINTS: there is none.
static int point_of(uint64_t bytes)
{
    int point = 0;
    while (point < POINTS && LEAST_BUFFER << point != bytes)
        point++;
    return point;
}

bool bench_network_wants(const struct bench_task *task)
{
    const struct ls_known_call *call = &task->call;
    return call->operation == the_call.operation && call->dtype == the_call.dtype &&
           call->reduction == the_call.reduction && call->world == RANKS &&
           task->places[BENCH_IN_PLACE] && task->pin && !task->fresh &&
           task->lane_count < BENCH_LANES_MOST && point_of(call->count * sizeof(float)) < POINTS;
}

const struct bench_lane *bench_network_lane(const struct bench_network *network)
{
    return &network->ring;
}

void bench_network_note(struct bench_network *network, uint64_t bytes, double seconds)
{
    if (point_of(bytes) < POINTS)
        network->noted[point_of(bytes)] = seconds;
}

enum ls_status bench_network_write(struct bench_network *network, double seconds, const char *path)
{
    struct speeds speeds = {0};
    enum ls_status status = measure(network, seconds, &speeds);
    if (!status)
        status = write_file(&speeds, path);
    if (!status)
        printf("%s: launch %.3g us, latency %.3g us, overhead %.3g us, up to %.3g GB/s, reduces "
               "%.3g GB/s, copies %.3g GB/s\n",
               path, speeds.launch * 1e6, speeds.latency * 1e6, speeds.overhead * 1e6,
               speeds.fastest * 1e-9, 1e-9 / speeds.reduction, 1e-9 / speeds.copy);
    return status;
}
