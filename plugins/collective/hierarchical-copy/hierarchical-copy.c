// SPDX-License-Identifier: Apache-2.0
// All-reduce in the shape of TensorFlow's HierarchicalCopyAllReduce: the ranks form groups with fast
// links inside; each group reduces to one of its ranks (its main rank), the main ranks exchange, and
// the result is copied back inside the groups.
//
// TensorFlow rotates the main rank over tensors; here the buffer is cut into as many pieces as there are
// ranks, and the main ranks, and the group in which the groups' sums meet, rotate over the pieces. The
// result is made once and then copied, so all ranks have equal bits. Rounds: at most 4, and one
// more for each segment more, of which each works on a part of every piece: so links inside groups
// and between them are busy at once.
//
// Options: groups (default 2; in a world of one rank, 1; 0: the hosts), segments (1).
#include "core/plugin/collective.h"

#include <stdlib.h>

#define PHASES 4
#define SEGMENTS_MOST 65536

struct shape {
    uint32_t world;
    uint32_t groups;
    uint64_t segments;
};

// Group g has the ranks from group_first(g) to group_first(g + 1) - 1; their numbers differ by at most one.
static uint32_t group_first(const struct shape *shape, uint32_t group)
{
    const uint32_t each = shape->world / shape->groups, more = shape->world % shape->groups;
    return group * each + (group < more ? group : more);
}

static uint32_t group_of(const struct shape *shape, uint32_t rank)
{
    uint32_t group = 0;
    while (group_first(shape, group + 1) <= rank)
        group++;
    return group;
}

// The rank of a group that reduces this piece. Pieces meet in each group in turn, so that the turn within
// the group advances once all groups had theirs.
static uint32_t main_rank(const struct shape *shape, uint32_t group, uint32_t piece)
{
    const uint32_t first = group_first(shape, group), size = group_first(shape, group + 1) - first;
    return first + piece / shape->groups % size;
}

static void reduce_in_group(const struct shape *shape, uint32_t rank, uint32_t piece,
                            struct ls_range range, struct ls_schedule *schedule)
{
    const uint32_t group = group_of(shape, rank), main = main_rank(shape, group, piece);
    if (rank != main) {
        ls_send(schedule, main, range);
        return;
    }
    for (uint32_t other = group_first(shape, group); other < group_first(shape, group + 1); other++)
        if (other != main)
            ls_receive_and_reduce(schedule, other, range);
}

static void reduce_between_groups(const struct shape *shape, uint32_t rank, uint32_t piece,
                                  struct ls_range range, struct ls_schedule *schedule)
{
    const uint32_t group = group_of(shape, rank), meeting = piece % shape->groups;
    if (rank != main_rank(shape, group, piece))
        return;
    if (group != meeting) {
        ls_send(schedule, main_rank(shape, meeting, piece), range);
        return;
    }
    for (uint32_t other = 0; other < shape->groups; other++)
        if (other != meeting)
            ls_receive_and_reduce(schedule, main_rank(shape, other, piece), range);
}

static void copy_between_groups(const struct shape *shape, uint32_t rank, uint32_t piece,
                                struct ls_range range, struct ls_schedule *schedule)
{
    const uint32_t group = group_of(shape, rank), meeting = piece % shape->groups;
    if (rank != main_rank(shape, group, piece))
        return;
    if (group != meeting) {
        ls_receive(schedule, main_rank(shape, meeting, piece), range);
        return;
    }
    for (uint32_t other = 0; other < shape->groups; other++)
        if (other != meeting)
            ls_send(schedule, main_rank(shape, other, piece), range);
}

static void copy_in_group(const struct shape *shape, uint32_t rank, uint32_t piece,
                          struct ls_range range, struct ls_schedule *schedule)
{
    const uint32_t group = group_of(shape, rank), main = main_rank(shape, group, piece);
    if (rank != main) {
        ls_receive(schedule, main, range);
        return;
    }
    for (uint32_t other = group_first(shape, group); other < group_first(shape, group + 1); other++)
        if (other != main)
            ls_send(schedule, other, range);
}

// 0: they are unknown.
static uint32_t hosts_of(const struct ls_collective_call *call)
{
    uint32_t hosts = 0;
    for (uint32_t i = 0; call->hosts && i < call->world; i++)
        hosts = call->hosts[i] >= hosts ? call->hosts[i] + 1 : hosts;
    return hosts;
}

static int32_t shape_get(const struct ls_collective_call *call, struct shape *out)
{
    const char *text = call->host->option(call->host, "groups");
    const char *cut = call->host->option(call->host, "segments");
    const long long segments = cut ? strtoll(cut, NULL, 10) : 1;
    long long groups = text ? strtoll(text, NULL, 10) : 0;
    if (text && groups == 0)
        groups = hosts_of(call);
    if (!text || (groups == 0 && call->world < 2))
        groups = call->world < 2 ? 1 : 2;
    if (groups < 1 || groups > call->world)
        return ls_host_fail(call->host, LS_USAGE,
                            "groups=%s does not fit %u ranks; choose 1 to %u, or 0 where hosts are "
                            "known",
                            text, call->world, call->world);
    if (segments < 1 || segments > SEGMENTS_MOST)
        return ls_host_fail(call->host, LS_USAGE, "segments=%lld is out of range; choose 1 to %d",
                            segments, SEGMENTS_MOST);
    // No more than a piece has blocks.
    const uint64_t blocks = call->count / call->world / LS_CHUNK_ALIGNMENT + 1;
    *out = (struct shape){
        .world = call->world,
        .groups = (uint32_t)groups,
        .segments = (uint64_t)segments < blocks ? (uint64_t)segments : blocks,
    };
    return LS_OK;
}

static int32_t hierarchical_copy_build_schedule(const struct ls_collective_call *call,
                                                struct ls_schedule *schedule)
{
    static void (*const phases[PHASES])(const struct shape *, uint32_t, uint32_t, struct ls_range,
                                        struct ls_schedule *) = {
        reduce_in_group, reduce_between_groups, copy_between_groups, copy_in_group};
    struct shape shape = {.world = call->world};
    const int32_t status = shape_get(call, &shape);
    if (status)
        return status;

    for (uint64_t round = 0; round + 1 < PHASES + shape.segments; round++) {
        for (uint64_t segment = 0; segment < shape.segments && segment <= round; segment++)
            for (uint32_t piece = 0; round - segment < PHASES && piece < call->world; piece++)
                phases[round - segment](&shape, call->rank, piece,
                                        ls_part(ls_chunk(call, piece), segment, shape.segments),
                                        schedule);
        ls_end_round(schedule);
    }
    return LS_OK;
}

static const struct ls_plugin_option options[] = {
    {"groups", "integer", NULL,
     "groups of ranks with fast links inside; default 2 (1 for a single rank); 0: the hosts"},
    {"segments", "integer", "1",
     "into which each piece is cut, so that links in and between groups work at once"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_collective_interface hierarchical_copy = {
    .struct_size = sizeof(struct ls_collective_interface),
    .operations = 1u << LS_ALL_REDUCE,
    .deterministic = 1,
    .build_schedule = hierarchical_copy_build_schedule,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE),
    .name = "hierarchical-copy",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "reduce inside groups, exchange between them, copy back (TensorFlow's shape)",
    .options = options,
    .interface = &hierarchical_copy,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
