// SPDX-License-Identifier: Apache-2.0
// Double binary tree: two trees over all ranks, each of which adds up one half of the buffer towards its top and sends
// the sum down again. A rank has children in at most one of them, so that all links are busy in both directions.
// Each half goes in segments, one behind the other. Few rounds and about 2 n bytes whatever the world: choose it
// for small and middle sizes in large worlds. (Sanders, Speck, Traeff: Two-tree algorithms for full bandwidth
// broadcast, reduction and scan, 2009.)
//
// World p, buffer n bytes, S segments, height h = floor(log2 p), k = floor(log2(p - 1)):
//   all-reduce: 2 h + S - 1 rounds; a rank sends n, and n / 2 more for each of its up to 2 children; all ranks
//     together 2 (p - 1) n
//   broadcast, reduce: k + S rounds; the trees are those of all other ranks, below the root. A rank sends n in a
//     reduce, the root nothing; in a broadcast n / 2 for each child, the root n
// One segment, p a power of two: on a flat network that sends and receives at once, with a seconds a message, b
// seconds a byte that a rank sends or receives and c seconds a byte reduced, nothing of which overlaps, an all-reduce
// takes 2 h a + (2 h - 1) n b + (h - 1/2) n c: each round but two brings a rank two halves.
//
// Between hosts a tree goes over one card of each, because the ranks of a host are below one of
// them. With C channels there are C such pairs of trees, each for a C-th of the buffer, with other
// ranks of each host at the top of the others.
//
// Options: segments (of each half; 0: as many as take least time where a message costs as much as
// 64 KiB), channels (1: the order of ranks; 0: as many as a host has cards, fewer where segments
// get small).
#include "core/plugin/rank_order.h"

#include <stdlib.h>

#define TREES 2
#define NOBODY UINT32_MAX
#define PIPELINE 32 // a channel that is chosen costs so many messages at least
#define SEGMENTS_ASKED 65536 // at most
// Segments of all channels that are chosen, for each round but the first: then all but a 64th of
// the time goes into bytes, and two ranks that send each other a message for each of them both ways
// have no more under way than the 128 that a transport takes up at once.
#define SEGMENTS_CHOSEN 64

// One of the trees, as this rank sees it.
struct tree {
    struct ls_range half;
    uint64_t depth; // of this rank; 0: the top
    uint32_t parent, children[2]; // NOBODY: none
};

struct plan {
    struct tree trees[TREES * LS_CHANNELS_MOST]; // channel by channel
    struct ls_rank_order order;
    uint32_t channels;
    uint64_t height; // depth of the deepest rank
    uint64_t segments;
    uint64_t descent; // round in which the first segment leaves the top
};

// ---- A binary tree of places 1 to `places` in order: odd ones are leaves, the largest power of two is the top ----

static uint64_t parent_place(uint64_t places, uint64_t place)
{
    const uint64_t bit = place & (~place + 1), parent = (place ^ bit) | 2 * bit;
    return parent <= places ? parent : place ^ bit; // 0: none
}

static uint64_t child_place(uint64_t places, uint64_t place, int right)
{
    const uint64_t bit = place & (~place + 1);
    if (!right)
        return bit > 1 ? place - bit / 2 : 0;
    for (uint64_t step = bit / 2; step > 0; step /= 2)
        if (place + step <= places)
            return place + step;
    return 0;
}

static uint64_t depth_of(uint64_t places, uint64_t place)
{
    uint64_t depth = 0;
    while ((place = parent_place(places, place)) != 0)
        depth++;
    return depth;
}

// ---- Who sits where: a channel's first tree in its order of ranks, the second so that odd places become even ----

// `index`: of 0 .. places - 1.
static uint64_t place_of(uint64_t places, int tree, uint64_t index)
{
    if (tree == 0)
        return index + 1;
    return places % 2 ? (index + 1) % places + 1 : places - index;
}

static uint64_t index_of(uint64_t places, int tree, uint64_t place)
{
    if (tree == 0)
        return place - 1;
    return places % 2 ? (place + places - 2) % places : places - place;
}

// The trees have all ranks, or all but the root, which is then the parent of both tops; they begin behind it.
static void tree_get(const struct ls_collective_call *call, const struct plan *plan, int number,
                     struct tree *out)
{
    const uint32_t channel = (uint32_t)number / TREES;
    const uint64_t rooted = call->operation != LS_ALL_REDUCE, world = call->world;
    const uint64_t places = world - rooted;
    const uint64_t first =
        rooted ? ls_place_of(&plan->order, channel, call->root) + UINT64_C(1) : 0;
    const uint64_t here = ls_place_of(&plan->order, channel, call->rank);
    const uint64_t index = (here + world - first) % world; // of the root: places
    const uint64_t place = index < places ? place_of(places, number % TREES, index) : 0;
    uint64_t top = 1, near[3] = {0, 0, 0};
    while (2 * top <= places)
        top *= 2;
    if (place) {
        near[0] = parent_place(places, place);
        near[1] = child_place(places, place, 0);
        near[2] = child_place(places, place, 1);
    } else {
        near[1] = top;
    }
    uint32_t peers[3];
    for (int i = 0; i < 3; i++) {
        const uint64_t at = near[i] ? index_of(places, number % TREES, near[i]) + first : 0;
        peers[i] = near[i] ? ls_rank_at(&plan->order, channel, (uint32_t)(at % world)) : NOBODY;
    }
    if (rooted && place == top)
        peers[0] = call->root;
    *out = (struct tree){
        .half = ls_part(ls_data_range(0, call->count), (uint64_t)number,
                        TREES * (uint64_t)plan->channels),
        .depth = place ? depth_of(places, place) + rooted : 0,
        .parent = peers[0],
        .children = {peers[1], peers[2]},
    };
}

// ---- Rounds ----

// What moves in this round between two ranks that begin in round `begin`; empty before and after.
static struct ls_range segment_of(const struct plan *plan, const struct tree *tree, uint64_t round,
                                  uint64_t begin)
{
    if (round < begin || round - begin >= plan->segments)
        return ls_data_range(0, 0);
    return ls_part(tree->half, round - begin, plan->segments);
}

static void climb(const struct plan *plan, const struct tree *tree, uint64_t round,
                  struct ls_schedule *schedule)
{
    const uint64_t begin = plan->height - tree->depth;
    for (int i = 0; i < 2; i++)
        if (tree->children[i] != NOBODY)
            ls_receive_and_reduce(schedule, tree->children[i],
                                  segment_of(plan, tree, round, begin - 1));
    if (tree->parent != NOBODY)
        ls_send(schedule, tree->parent, segment_of(plan, tree, round, begin));
}

static void descend(const struct plan *plan, const struct tree *tree, uint64_t round,
                    struct ls_schedule *schedule)
{
    const uint64_t begin = plan->descent + tree->depth;
    if (tree->parent != NOBODY)
        ls_receive(schedule, tree->parent, segment_of(plan, tree, round, begin - 1));
    for (int i = 0; i < 2; i++)
        if (tree->children[i] != NOBODY)
            ls_send(schedule, tree->children[i], segment_of(plan, tree, round, begin));
}

static int32_t number_get(const struct ls_collective_call *call, const char *name, long long most,
                          uint64_t *out)
{
    const char *text = call->host->option(call->host, name);
    const long long asked = text ? strtoll(text, NULL, 10) : (long long)*out;
    if (asked < 0 || asked > most)
        return ls_host_fail(call->host, LS_USAGE,
                            "%s=%lld is out of range; choose 1 to %lld, or 0 to leave it to the "
                            "size",
                            name, asked, most);
    *out = (uint64_t)asked;
    return LS_OK;
}

// `asked`: 0 where the cards are to choose. Other than one channel needs the order.
static int32_t channels_get(const struct ls_collective_call *call, uint64_t asked, struct plan *out)
{
    out->channels = (uint32_t)asked;
    if (asked == 1)
        return LS_OK;
    const int32_t status = ls_rank_order_init(call, &out->order);
    if (status || asked)
        return status;
    const uint64_t messages = call->count * call->element_bytes / LS_MESSAGE_BYTES / PIPELINE;
    const uint64_t cards = out->order.cards;
    const uint64_t most = cards < LS_CHANNELS_MOST ? cards : LS_CHANNELS_MOST;
    out->channels = (uint32_t)(messages < 1 ? 1 : messages < most ? messages : most);
    return LS_OK;
}

static int32_t plan_get(const struct ls_collective_call *call, struct plan *out)
{
    uint64_t segments = 0, channels = 1;
    int32_t status = number_get(call, "segments", SEGMENTS_ASKED, &segments);
    if (!status)
        status = number_get(call, "channels", LS_CHANNELS_MOST, &channels);
    if (!status && call->world > 1)
        status = channels_get(call, channels, out);
    if (status || call->world == 1)
        return status;
    const uint64_t rooted = call->operation != LS_ALL_REDUCE, places = call->world - rooted;
    out->height = rooted;
    for (uint64_t top = 2; top <= places; top *= 2)
        out->height++;
    out->descent = rooted ? 0 : out->height;
    for (uint32_t i = 0; i < TREES * out->channels; i++)
        tree_get(call, out, (int)i, &out->trees[i]);
    // No more than there are blocks: parts beyond are empty.
    const uint64_t part = call->count / out->channels;
    const uint64_t blocks = part / (TREES * LS_CHUNK_ALIGNMENT) + 1;
    if (!segments) { // a round has a message for each channel
        const uint64_t rounds = out->height + out->descent;
        const uint64_t most = SEGMENTS_CHOSEN * (rounds - 1) / out->channels;
        segments = ls_best_segments(rounds, part * call->element_bytes / out->channels);
        segments = segments <= most ? segments : most ? most : 1;
    }
    out->segments = segments < blocks ? segments : blocks;
    return LS_OK;
}

static int32_t tree_build_schedule(const struct ls_collective_call *call,
                                   struct ls_schedule *schedule)
{
    struct plan plan;
    memset(&plan, 0, sizeof(plan));
    const int32_t status = plan_get(call, &plan);
    if (status || call->world == 1)
        return status;
    const uint64_t rounds = plan.height + plan.descent + plan.segments - 1;
    int32_t refused = LS_OK; // then it ends at once, because the order must be freed
    for (uint64_t round = 0; !refused && round < rounds; round++) {
        for (uint32_t i = 0; i < TREES * plan.channels; i++) {
            if (call->operation != LS_BROADCAST)
                climb(&plan, &plan.trees[i], round, schedule);
            if (call->operation != LS_REDUCE)
                descend(&plan, &plan.trees[i], round, schedule);
        }
        refused = ls_end_round(schedule);
    }
    ls_rank_order_finish(&plan.order);
    return LS_OK;
}

static const struct ls_plugin_option options[] = {
    {"segments", "integer", "0",
     "into which each half of the buffer is cut; 1: none, 0: chosen from the size"},
    {"channels", "integer", "1",
     "pairs of trees, each over another network card of a host; 0: one for each card"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_collective_interface tree = {
    .struct_size = sizeof(struct ls_collective_interface),
    .operations = 1u << LS_ALL_REDUCE | 1u << LS_BROADCAST | 1u << LS_REDUCE,
    .deterministic = 1,
    .build_schedule = tree_build_schedule,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE),
    .name = "tree",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "double binary tree, pipelined: few rounds in large worlds",
    .options = options,
    .interface = &tree,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
