// SPDX-License-Identifier: Apache-2.0
// Two-dimensional torus: the ranks form a grid whose rows and columns are rings. The buffer is added up along the
// rows, what each rank then has along the columns, and both are shared on the way back. As few bytes as one ring
// over all, in far fewer rounds, and every message goes to a neighbour: the shape of a TPU pod, of two-dimensional
// meshes, and of large worlds on any network. (Ying, Kumar, Chen and others: Image classification at supercomputer
// scale, 2018; Mikami and others: Massively distributed SGD, 2018, for the same on GPUs.)
//
// Grid of R rows with C ranks each, world p = R C, buffer n bytes; ranks 0 to C - 1 are the first row:
//   all-reduce: 2 (C - 1) + 2 (R - 1) rounds; each rank sends 2 n (C - 1) / C + 2 (n / C) (R - 1) / R =
//   2 n (p - 1) / p bytes, the minimum, and reduces half as much
//   reduce-scatter, all-gather: half of both
// Reduce-scatter goes along the columns first, and all-gather last, because then a rank's chunks lie side by side:
// its bytes are divided the other way between rows and columns.
//
// Options: rows (0: the divisor of the world nearest to its square root; a prime world is one row, a ring).
#include "core/plugin/collective.h"

#include <stdlib.h>

// A ring of the grid, as one of its ranks sees it. In its first part the buffer is seen as `size` runs of `run`
// chunks, from chunk `first` on; the rank ends with run number `place`.
struct ring {
    uint64_t size, place;
    uint64_t first, run;
    uint32_t next, previous;
};

// The ring through `rank` whose members are `stride` apart.
static struct ring ring_of(uint32_t rank, uint64_t size, uint64_t stride)
{
    const uint64_t place = rank / stride % size, begin = rank - place * stride;
    return (struct ring){
        .size = size,
        .place = place,
        .next = (uint32_t)(begin + (place + 1) % size * stride),
        .previous = (uint32_t)(begin + (place + size - 1) % size * stride),
    };
}

static struct ls_range run_of(const struct ls_collective_call *call, const struct ring *ring,
                              uint64_t number)
{
    const uint64_t first = ring->first + number % ring->size * ring->run;
    struct ls_range range = ls_chunk(call, first);
    const struct ls_range last = ls_chunk(call, first + ring->run - 1);
    range.count = last.offset + last.count - range.offset;
    return range;
}

// Once around the ring, of which each rank first sends the run `ahead` further on than its own: the one before its own
// to add, so that its own comes last; its own to share.
static void around(const struct ls_collective_call *call, const struct ring *ring,
                   struct ls_schedule *schedule, uint32_t receive, uint64_t ahead)
{
    for (uint64_t step = 0; step + 1 < ring->size; step++) {
        const uint64_t sent = ring->place + ahead + ring->size - step;
        ls_send(schedule, ring->next, run_of(call, ring, sent));
        ls_add_step(schedule, receive, ring->previous, run_of(call, ring, sent + ring->size - 1),
                    ls_data_range(0, 0));
        ls_end_round(schedule);
    }
}

static int32_t torus_build_schedule(const struct ls_collective_call *call,
                                    struct ls_schedule *schedule)
{
    const char *text = call->host->option(call->host, "rows");
    const long long asked = text ? strtoll(text, NULL, 10) : 0;
    if (asked < 0 || (asked > 0 && call->world % (unsigned long long)asked))
        return ls_host_fail(call->host, LS_USAGE,
                            "rows=%lld does not divide %u ranks; choose a divisor, or 0 for "
                            "the one nearest to the square root",
                            asked, call->world);
    const uint64_t rows = asked ? (uint64_t)asked : ls_divisor_near_root(call->world);
    const uint64_t columns = call->world / rows;
    const struct ring row = ring_of(call->rank, columns, 1);
    const struct ring column = ring_of(call->rank, rows, columns);
    const int row_first = call->operation == LS_ALL_REDUCE;
    struct ring outer = row_first ? row : column, inner = row_first ? column : row;
    outer.run = inner.size;
    inner.run = 1;
    inner.first = outer.place * outer.run;

    if (call->operation != LS_ALL_GATHER) {
        around(call, &outer, schedule, LS_STEP_RECEIVE_AND_REDUCE, outer.size - 1);
        around(call, &inner, schedule, LS_STEP_RECEIVE_AND_REDUCE, inner.size - 1);
    }
    if (call->operation != LS_REDUCE_SCATTER) {
        around(call, &inner, schedule, LS_STEP_RECEIVE, 0);
        around(call, &outer, schedule, LS_STEP_RECEIVE, 0);
    }
    return LS_OK;
}

static const struct ls_plugin_option options[] = {
    {"rows", "integer", "0",
     "rows of the grid, a divisor of the ranks; 0: the one nearest to their square root"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_collective_interface torus = {
    .struct_size = sizeof(struct ls_collective_interface),
    .operations = 1u << LS_ALL_REDUCE | 1u << LS_REDUCE_SCATTER | 1u << LS_ALL_GATHER,
    .deterministic = 1,
    .build_schedule = torus_build_schedule,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE),
    .name = "torus",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "rings along the rows and columns of a grid: least bytes, neighbours only",
    .options = options,
    .interface = &torus,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
