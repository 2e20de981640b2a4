// SPDX-License-Identifier: Apache-2.0
// All-reduce in the shape of TensorFlow's HierarchicalCopyAllReduce: the ranks form groups with fast
// links inside; each group reduces to one of its ranks (its main rank), the main ranks exchange, and
// the result is copied back inside the groups.
//
// TensorFlow rotates the main rank over tensors; here the buffer is cut into as many pieces as there are
// ranks, and the main ranks, and the group in which the groups' sums meet, rotate over the pieces. The
// result is made once and then copied, so all ranks have equal bits. Rounds: at most 4.
//
// Options: groups (default 2; in a world of one rank, 1).
#include "core/plugin/collective.h"

#include <stdlib.h>

struct shape {
    uint32_t world;
    uint32_t groups;
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

static int32_t shape_get(const struct ls_collective_call *call, struct shape *out)
{
    const char *text = call->host->option(call->host, "groups");
    long long groups = text ? strtoll(text, NULL, 10) : 0;
    if (!text)
        groups = call->world < 2 ? 1 : 2;
    if (groups < 1 || groups > call->world)
        return ls_host_fail(call->host, LS_USAGE,
                            "groups=%lld does not fit %u ranks; choose 1 to %u", groups,
                            call->world, call->world);
    out->world = call->world;
    out->groups = (uint32_t)groups;
    return LS_OK;
}

static int32_t hierarchical_copy_build_schedule(const struct ls_collective_call *call,
                                                struct ls_schedule *schedule)
{
    static void (*const phases[])(const struct shape *, uint32_t, uint32_t, struct ls_range,
                                  struct ls_schedule *) = {reduce_in_group, reduce_between_groups,
                                                           copy_between_groups, copy_in_group};
    struct shape shape;
    const int32_t status = shape_get(call, &shape);
    if (status)
        return status;

    for (uint32_t phase = 0; phase < 4; phase++) {
        for (uint32_t piece = 0; piece < call->world; piece++)
            phases[phase](&shape, call->rank, piece, ls_chunk(call, piece), schedule);
        ls_end_round(schedule);
    }
    return LS_OK;
}

static const struct ls_plugin_option options[] = {
    {"groups", "integer", NULL,
     "groups of ranks with fast links inside; default 2 (1 for a single rank)"},
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
