// SPDX-License-Identifier: Apache-2.0
// Two levels, on all rails: the ranks of a node add up one shard of the buffer each, directly; each of them then adds
// its shard to those of its peers on the other nodes, around a ring (a rail); the result comes back the same way.
// Choose it where links inside a node are fast and those between nodes slow, and each rank has its own way out: of n
// bytes only n / g a rank leave the node. This is the all-reduce composed by dimension:
// reduce-scatter inside the node, all-reduce over the ranks of the same place on all nodes,
// all-gather inside. (Known as split rail in UCC; Jia and others: Highly scalable deep learning
// training system with mixed-precision, 2018; Cho and others: BlueConnect, 2019.)
//
// N nodes of g ranks each, world p = N g, buffer n bytes:
//   all-reduce: 2 + 2 (N - 1) rounds; each rank sends 2 n (g - 1) / g bytes inside its node, in 2 (g - 1) messages,
//   and 2 (n / g) (N - 1) / N to other nodes: together 2 n (p - 1) / p, the minimum; it reduces half as much
//   reduce-scatter, all-gather: half of all; inside a node each message comes in N pieces, because the chunks of a
//   shard do not lie side by side
// With S segments the buffer goes in as many parts, one a round behind the other, so that links
// inside and between nodes are busy at the same time: S - 1 rounds more, S times as many messages.
// Where g does not divide p, the last node is smaller: its ranks take turns to stand in for the
// missing ones on their rails, and so send more than the others. In a node of one rank the rounds
// inside are left out.
//
// Options: node (ranks of a node; 0: as many as share a host if there are several hosts, else the divisor of the world
// nearest to its square root), segments (1; 0: as many as take least time where a message costs as
// much as 64 KiB).
#include "core/plugin/collective.h"

#include <stdlib.h>

#define SEGMENTS_MOST 65536

// Rank `place` of node `node` is rank node * full + place; all nodes but the last have `full` ranks.
struct shape {
    const struct ls_collective_call *call;
    uint64_t full, nodes;
    uint64_t node, place; // of this rank
    uint64_t size; // of its node
    uint64_t segments;
};

// The rank of a node that is on a rail.
static uint32_t on_rail(const struct shape *shape, uint64_t node, uint64_t rail)
{
    const uint64_t first = node % shape->nodes * shape->full, left = shape->call->world - first;
    return (uint32_t)(first + rail % (left < shape->full ? left : shape->full));
}

// Of a segment: the piece of a rail's shard that the node adds up in the end. For reduce-scatter
// and all-gather it is the chunk of the rank with this place in the node, if there is one; else the
// shards lie one after the other.
static struct ls_range piece_of(const struct shape *shape, uint64_t segment, uint64_t rail,
                                uint64_t node)
{
    const struct ls_collective_call *call = shape->call;
    const struct ls_range all = ls_data_range(0, call->count);
    const uint64_t home = node % shape->nodes, chunk = home * shape->full + rail;
    if (call->operation == LS_ALL_REDUCE)
        return ls_part(ls_part(all, segment, shape->segments), rail * shape->nodes + home,
                       shape->nodes * shape->full);
    return chunk < call->world ? ls_part(ls_chunk(call, chunk), segment, shape->segments)
                               : ls_data_range(0, 0);
}

static void add_shard(const struct shape *shape, struct ls_schedule *schedule, uint64_t segment,
                      uint32_t kind, uint64_t place, uint64_t rail)
{
    const uint32_t peer = (uint32_t)(shape->node * shape->full + place);
    if (shape->call->operation == LS_ALL_REDUCE) {
        struct ls_range shard = piece_of(shape, segment, rail, 0);
        const struct ls_range last = piece_of(shape, segment, rail, shape->nodes - 1);
        shard.count = last.offset + last.count - shard.offset;
        ls_add_step(schedule, kind, peer, shard, ls_data_range(0, 0));
        return;
    }
    for (uint64_t node = 0; node < shape->nodes; node++)
        ls_add_step(schedule, kind, peer, piece_of(shape, segment, rail, node),
                    ls_data_range(0, 0));
}

static void add_in_node(const struct shape *shape, struct ls_schedule *schedule, uint64_t segment)
{
    for (uint64_t i = 1; i < shape->size; i++) {
        const uint64_t to = (shape->place + i) % shape->size;
        const uint64_t from = (shape->place + shape->size - i) % shape->size;
        for (uint64_t rail = to; rail < shape->full; rail += shape->size)
            add_shard(shape, schedule, segment, LS_STEP_SEND, to, rail);
        for (uint64_t rail = shape->place; rail < shape->full; rail += shape->size)
            add_shard(shape, schedule, segment, LS_STEP_RECEIVE_AND_REDUCE, from, rail);
    }
}

static void share_in_node(const struct shape *shape, struct ls_schedule *schedule, uint64_t segment)
{
    for (uint64_t i = 1; i < shape->size; i++) {
        const uint64_t to = (shape->place + i) % shape->size;
        const uint64_t from = (shape->place + shape->size - i) % shape->size;
        for (uint64_t rail = shape->place; rail < shape->full; rail += shape->size)
            add_shard(shape, schedule, segment, LS_STEP_SEND, to, rail);
        for (uint64_t rail = from; rail < shape->full; rail += shape->size)
            add_shard(shape, schedule, segment, LS_STEP_RECEIVE, from, rail);
    }
}

// One step around all rails of this rank, in which its node sends the piece of node `sent`.
static void around(const struct shape *shape, struct ls_schedule *schedule, uint64_t segment,
                   uint32_t receive, uint64_t sent)
{
    const uint64_t nodes = shape->nodes;
    for (uint64_t rail = shape->place; rail < shape->full; rail += shape->size) {
        ls_send(schedule, on_rail(shape, shape->node + 1, rail),
                piece_of(shape, segment, rail, sent));
        ls_add_step(schedule, receive, on_rail(shape, shape->node + nodes - 1, rail),
                    piece_of(shape, segment, rail, sent + nodes - 1), ls_data_range(0, 0));
    }
}

// ---- Rounds ----

// Of one segment.
static uint64_t rounds_of(const struct shape *shape)
{
    const uint64_t once = shape->nodes - 1 + (shape->full > 1);
    return shape->call->operation == LS_ALL_REDUCE ? 2 * once : once;
}

// What a segment does in its round `round`: to add, in the node and then around, where the first
// piece sent is the one before the node's own, so that its own comes last; to share, around from
// its own piece on, and then in the node.
static void add_round(const struct shape *shape, struct ls_schedule *schedule, uint64_t segment,
                      uint64_t round)
{
    const uint64_t nodes = shape->nodes, inside = shape->full > 1;
    const uint64_t adding = shape->call->operation == LS_ALL_GATHER ? 0 : nodes - 1 + inside;
    if (round < adding && round < inside)
        add_in_node(shape, schedule, segment);
    else if (round < adding)
        around(shape, schedule, segment, LS_STEP_RECEIVE_AND_REDUCE,
               shape->node + 2 * nodes - 1 - (round - inside));
    else if (round - adding < nodes - 1)
        around(shape, schedule, segment, LS_STEP_RECEIVE, shape->node + nodes - (round - adding));
    else
        share_in_node(shape, schedule, segment);
}

// How many ranks share a host; 0: unknown, or all are on one. The plan of rails needs hosts of equally many neighbours.
static int32_t find_host(const struct ls_collective_call *call, uint64_t *out)
{
    uint32_t each = 0;
    while (call->hosts && each < call->world && call->hosts[each] == 0)
        each++;
    for (uint32_t i = 0; each && i < call->world; i++)
        if (call->hosts[i] != i / each)
            return ls_host_fail(
                call->host, LS_UNSUPPORTED,
                "the hosts have unequally many ranks, or not neighbours: rank %u is "
                "on host %u, where %u ranks a host would put it on host %u; give "
                "node=N, or choose another collective",
                i, call->hosts[i], each, i / each);
    *out = each < call->world ? each : 0;
    return LS_OK;
}

static int32_t refuse(const struct ls_collective_call *call, const char *name, long long asked,
                      long long most, const char *otherwise)
{
    return ls_host_fail(call->host, LS_USAGE,
                        "%s=%lld does not fit %u ranks; choose 1 to %lld, or 0 %s", name, asked,
                        call->world, most, otherwise);
}

static long long asked_for(const struct ls_collective_call *call, const char *name)
{
    const char *text = call->host->option(call->host, name);
    return text ? strtoll(text, NULL, 10) : 0;
}

static int32_t shape_get(const struct ls_collective_call *call, struct shape *out)
{
    const long long asked = asked_for(call, "node"), segments = asked_for(call, "segments");
    if (asked < 0 || asked > call->world)
        return refuse(call, "node", asked, call->world, "for the ranks of a host");
    if (segments < 0 || segments > SEGMENTS_MOST)
        return refuse(call, "segments", segments, SEGMENTS_MOST, "to leave it to the size");
    uint64_t host = 0;
    const int32_t status = asked ? LS_OK : find_host(call, &host);
    if (status)
        return status;
    const uint64_t full = asked ? (uint64_t)asked : host ? host : ls_divisor_near_root(call->world);
    const uint64_t node = call->rank / full, left = call->world - node * full;
    *out = (struct shape){
        .call = call,
        .full = full,
        .nodes = (call->world + full - 1) / full,
        .node = node,
        .place = call->rank % full,
        .size = left < full ? left : full,
        .segments = (uint64_t)segments,
    };
    // A message between nodes has a piece; no more segments than these have blocks.
    const uint64_t piece = call->count / (full * out->nodes);
    const uint64_t blocks = piece / LS_CHUNK_ALIGNMENT + 1;
    if (!segments) // a round of a segment costs a message between nodes, or one to each rank of the node
        out->segments =
            ls_best_segments(rounds_of(out), piece * call->element_bytes / (out->nodes + full));
    if (out->segments > blocks)
        out->segments = blocks;
    return LS_OK;
}

static int32_t two_level_build_schedule(const struct ls_collective_call *call,
                                        struct ls_schedule *schedule)
{
    struct shape shape = {.call = call};
    const int32_t status = shape_get(call, &shape);
    if (status || call->world == 1)
        return status;
    const uint64_t rounds = rounds_of(&shape);
    for (uint64_t round = 0; round + 1 < rounds + shape.segments; round++) {
        for (uint64_t segment = 0; segment < shape.segments && segment <= round; segment++)
            if (round - segment < rounds)
                add_round(&shape, schedule, segment, round - segment);
        ls_end_round(schedule);
    }
    return LS_OK;
}

static const struct ls_plugin_option options[] = {
    {"node", "integer", "0",
     "ranks of a node; 0: those of a host, or the divisor nearest to the square root of all"},
    {"segments", "integer", "1",
     "into which the buffer is cut, so that both levels work at once; 0: chosen from the size"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_collective_interface two_level = {
    .struct_size = sizeof(struct ls_collective_interface),
    .operations = 1u << LS_ALL_REDUCE | 1u << LS_REDUCE_SCATTER | 1u << LS_ALL_GATHER,
    .deterministic = 1,
    .build_schedule = two_level_build_schedule,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE),
    .name = "two-level",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "inside each node, then between nodes on all rails, and back",
    .options = options,
    .interface = &two_level,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
