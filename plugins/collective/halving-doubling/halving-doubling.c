// SPDX-License-Identifier: Apache-2.0
// Recursive halving to add, recursive doubling to share: each round of the first halves what a rank still adds
// up, each round of the second doubles what it has. As few bytes as a ring, in far fewer rounds; choose it for
// middle sizes, and for all sizes where rounds are dear and any two ranks are equally near.
//
// World p, buffer n bytes:
//   all-reduce: each rank sends 2 n (p - 1) / p bytes, the minimum, and reduces half as much. Rounds: 2 log2 p for a
//     power of two; else 2 for each prime factor of p up to 13 (that of 2 is a halving, that of 3 goes by thirds, in
//     messages to 2 ranks at once), and 2 ceil(log2 q) for q, the product of the larger ones; so never above
//     2 ceil(log2 p)
//   reduce-scatter, all-gather: half of both
//
// For a factor k, groups of ranks fall into k parts; a rank exchanges with the one in the same place of each
// other part, the farthest first. (Rabenseifner: Optimization of collective reduction operations, 2004; for k above 2
// the knomial exchange of UCC.) All ranges are whole and all ranks do alike, so no rank waits for another.
// For q, folding spare ranks into the rest would cost two rounds and 2 n bytes more. Instead a rank sends ahead, by
// half of what there is, and receives from as far behind, in two messages where the chunks go past the last one.
// The bytes are as few, but these two do not wait for each other, so that the rounds of the ranks drift apart.
// (Traeff: Optimal, non-pipelined reduce-scatter and allreduce algorithms, 2024, arXiv:2410.14234.)
#include "core/plugin/collective.h"

// `count` chunks (at least one) from chunk `first` on, not past the last one.
static struct ls_range chunks(const struct ls_collective_call *call, uint64_t first, uint64_t count)
{
    struct ls_range range = ls_chunk(call, first);
    const struct ls_range last = ls_chunk(call, first + count - 1);
    range.count = last.offset + last.count - range.offset;
    return range;
}

// ---- A factor: groups of `size` ranks fall into `ways` parts ----

// The smallest prime factor that is taken at once; 0: none.
static uint64_t factor_of(uint64_t size)
{
    static const uint64_t primes[] = {2, 3, 5, 7, 11, 13};
    for (size_t i = 0; i < sizeof(primes) / sizeof(*primes); i++)
        if (size % primes[i] == 0)
            return primes[i];
    return 0;
}

static void exchange_parts(const struct ls_collective_call *call, struct ls_schedule *schedule,
                           uint64_t size, uint64_t ways, int adds)
{
    const uint64_t part = size / ways, begin = call->rank / size * size;
    const uint64_t mine = call->rank % size / part, place = call->rank % part;
    for (uint64_t i = 1; i < ways; i++) {
        const uint64_t to = begin + (mine + i) % ways * part;
        const uint64_t from = begin + (mine + ways - i) % ways * part;
        const struct ls_range own = chunks(call, begin + mine * part, part);
        ls_send(schedule, (uint32_t)(to + place), adds ? chunks(call, to, part) : own);
        if (adds)
            ls_receive_and_reduce(schedule, (uint32_t)(from + place), own);
        else
            ls_receive(schedule, (uint32_t)(from + place), chunks(call, from, part));
    }
    ls_end_round(schedule);
}

static void halve_parts(const struct ls_collective_call *call, struct ls_schedule *schedule,
                        uint64_t size)
{
    const uint64_t ways = factor_of(size);
    if (!ways)
        return;
    exchange_parts(call, schedule, size, ways, 1);
    halve_parts(call, schedule, size / ways);
}

static void double_parts(const struct ls_collective_call *call, struct ls_schedule *schedule,
                         uint64_t size)
{
    const uint64_t ways = factor_of(size);
    if (!ways)
        return;
    double_parts(call, schedule, size / ways);
    exchange_parts(call, schedule, size, ways, 0);
}

// ---- What is left: a circle of `count` groups of `size` ranks ----

struct circle {
    const struct ls_collective_call *call;
    uint64_t count, size;
    uint64_t group; // of this rank
};

// The rank in the same place of the group `distance` further on.
static uint32_t ahead(const struct circle *circle, uint64_t distance)
{
    const uint64_t group = (circle->group + distance) % circle->count;
    return (uint32_t)(group * circle->size + circle->call->rank % circle->size);
}

// A step on the chunks of `count` groups, of which those past the last group are the first ones.
static void add_steps(const struct circle *circle, struct ls_schedule *schedule, uint32_t kind,
                      uint32_t peer, uint64_t distance, uint64_t count)
{
    const uint64_t first = (circle->group + distance) % circle->count;
    const uint64_t room = circle->count - first, straight = count < room ? count : room;
    ls_add_step(schedule, kind, peer,
                chunks(circle->call, first * circle->size, straight * circle->size),
                ls_data_range(0, 0));
    if (count > straight)
        ls_add_step(schedule, kind, peer,
                    chunks(circle->call, 0, (count - straight) * circle->size),
                    ls_data_range(0, 0));
}

// `groups`: those that this rank still adds up, from its own on.
static void halve_circle(const struct circle *circle, struct ls_schedule *schedule, uint64_t groups)
{
    const uint64_t half = groups - groups / 2, rest = groups / 2;
    if (groups == 1)
        return;
    add_steps(circle, schedule, LS_STEP_SEND, ahead(circle, half), half, rest);
    add_steps(circle, schedule, LS_STEP_RECEIVE_AND_REDUCE, ahead(circle, circle->count - half), 0,
              rest);
    ls_end_round(schedule);
    halve_circle(circle, schedule, half);
}

static void double_circle(const struct circle *circle, struct ls_schedule *schedule,
                          uint64_t groups)
{
    const uint64_t half = groups - groups / 2, rest = groups / 2;
    if (groups == 1)
        return;
    double_circle(circle, schedule, half);
    add_steps(circle, schedule, LS_STEP_SEND, ahead(circle, circle->count - half), 0, rest);
    add_steps(circle, schedule, LS_STEP_RECEIVE, ahead(circle, half), half, rest);
    ls_end_round(schedule);
}

static int32_t halving_doubling_build_schedule(const struct ls_collective_call *call,
                                               struct ls_schedule *schedule)
{
    uint64_t left = call->world;
    for (uint64_t factor; left > 1 && (factor = factor_of(left)) != 0;)
        left /= factor;
    const uint64_t size = call->world / left;
    const struct circle circle = {call, left, size, call->rank / size};
    if (call->operation != LS_ALL_GATHER) {
        halve_circle(&circle, schedule, left);
        halve_parts(call, schedule, size);
    }
    if (call->operation != LS_REDUCE_SCATTER) {
        double_parts(call, schedule, size);
        double_circle(&circle, schedule, left);
    }
    return LS_OK;
}

static const struct ls_collective_interface halving_doubling = {
    .struct_size = sizeof(struct ls_collective_interface),
    .operations = 1u << LS_ALL_REDUCE | 1u << LS_REDUCE_SCATTER | 1u << LS_ALL_GATHER,
    .deterministic = 1,
    .build_schedule = halving_doubling_build_schedule,
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
