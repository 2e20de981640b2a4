// SPDX-License-Identifier: Apache-2.0
// Recursive halving to add, recursive doubling to share: each round of the first halves what a rank still adds
// up, each round of the second doubles what it has. As few bytes as a ring, in far fewer rounds; choose it for
// middle sizes, and for all sizes where rounds are dear and any two ranks are equally near.
//
// World p, buffer n bytes, whatever p is:
//   all-reduce: 2 ceil(log2 p) rounds; each rank sends 2 n (p - 1) / p bytes, the minimum, and reduces half as much
//   reduce-scatter, all-gather: half of both
// Messages a round: one; in a world that is no power of two, two where the chunks go past the last one.
//
// In a world of a power of two a rank exchanges halves with the rank that differs in one bit of its number, the
// farthest first. (Rabenseifner: Optimization of collective reduction operations, 2004.)
// In others, folding the spare ranks into the rest would cost two rounds and 2 n bytes more. Instead each rank
// sends ahead, to the one half of the group's size further on, and receives from as far behind. (Traeff: Optimal,
// non-pipelined reduce-scatter and allreduce algorithms, 2024, arXiv:2410.14234.)
#include "core/plugin/collective.h"

// What a rank does in one round of the halving; the doubling goes back the same way.
struct exchange {
    uint32_t ahead; // gets the chunks that are given away
    uint32_t behind; // gives the chunks that are kept
    uint64_t given, kept; // first chunk of each, modulo the world
    uint64_t count; // chunks
};

static uint64_t half_of(uint64_t size)
{
    return size - size / 2;
}

// `size`: chunks that the rank still adds up before this round.
static struct exchange exchange_of(const struct ls_collective_call *call, uint64_t size)
{
    const uint64_t world = call->world, rank = call->rank, half = half_of(size);
    if ((world & (world - 1)) == 0) {
        const uint32_t peer = (uint32_t)(rank ^ half);
        return (struct exchange){peer, peer, peer & ~(half - 1), rank & ~(half - 1), half};
    }
    return (struct exchange){
        .ahead = (uint32_t)((rank + half) % world),
        .behind = (uint32_t)((rank + world - half) % world),
        .given = rank + half,
        .kept = rank,
        .count = size - half,
    };
}

// `count` chunks (at least one) from chunk `first` on, not past the last one.
static struct ls_range chunks(const struct ls_collective_call *call, uint64_t first, uint64_t count)
{
    struct ls_range range = ls_chunk(call, first);
    const struct ls_range last = ls_chunk(call, first + count - 1);
    range.count = last.offset + last.count - range.offset;
    return range;
}

// The same, of which those past the last chunk are the first ones.
static void add_steps(const struct ls_collective_call *call, struct ls_schedule *schedule,
                      uint32_t kind, uint32_t peer, uint64_t first, uint64_t count)
{
    const uint64_t begin = first % call->world, room = call->world - begin;
    const uint64_t straight = count < room ? count : room;
    ls_add_step(schedule, kind, peer, chunks(call, begin, straight), ls_data_range(0, 0));
    if (count > straight)
        ls_add_step(schedule, kind, peer, chunks(call, 0, count - straight), ls_data_range(0, 0));
}

// Afterwards rank r has chunk r in full.
static void halve(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    for (uint64_t size = call->world; size > 1; size = half_of(size)) {
        const struct exchange now = exchange_of(call, size);
        add_steps(call, schedule, LS_STEP_SEND, now.ahead, now.given, now.count);
        add_steps(call, schedule, LS_STEP_RECEIVE_AND_REDUCE, now.behind, now.kept, now.count);
        ls_end_round(schedule);
    }
}

// The sizes of the halving, backwards.
static uint64_t size_before(const struct ls_collective_call *call, uint64_t half)
{
    uint64_t size = call->world;
    while (half_of(size) > half)
        size = half_of(size);
    return size;
}

static void double_back(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    for (uint64_t size = 1; size < call->world;) {
        size = size_before(call, size);
        const struct exchange now = exchange_of(call, size);
        add_steps(call, schedule, LS_STEP_SEND, now.behind, now.kept, now.count);
        add_steps(call, schedule, LS_STEP_RECEIVE, now.ahead, now.given, now.count);
        ls_end_round(schedule);
    }
}

static int32_t halving_doubling_describe(const struct ls_collective_call *call,
                                         struct ls_schedule *schedule)
{
    if (call->operation != LS_ALL_GATHER)
        halve(call, schedule);
    if (call->operation != LS_REDUCE_SCATTER)
        double_back(call, schedule);
    return LS_OK;
}

static const struct ls_collective_interface halving_doubling = {
    .struct_size = sizeof(struct ls_collective_interface),
    .operations = 1u << LS_ALL_REDUCE | 1u << LS_REDUCE_SCATTER | 1u << LS_ALL_GATHER,
    .deterministic = 1,
    .describe = halving_doubling_describe,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE),
    .name = "halving-doubling",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "recursive halving and doubling: least bytes in few rounds, any world",
    .interface = &halving_doubling,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
