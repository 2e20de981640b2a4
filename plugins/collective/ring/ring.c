// SPDX-License-Identifier: Apache-2.0
// Ring all-reduce: each rank passes chunks to the next one, once around to add, once around to share.
// Bytes sent by a rank: 2 (world - 1) / world of the buffer, the minimum. Rounds: 2 (world - 1).
// (Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.)
//
// One ring leaves each host over one of its network cards. With several channels so many rings run
// at once, each with a part of every chunk and an order of ranks of its own. Every channel goes
// through the ranks of a host from another card on, and every other host backwards, so that it
// leaves one host and enters the next over cards of the same number (a rail). As many channels as a
// host has cards use each of them once, out and in. On one host every other channel goes the other
// way around.
//
// Options: channels (1: the order of ranks; 0: as many as a host has cards, two on one host, fewer
// where messages get small).
#include "core/plugin/rank_order.h"

struct rings {
    const struct ls_collective_call *call;
    struct ls_rank_order order;
    uint32_t channels;
};

// A ring runs backwards through every other host.
static uint32_t mirrored(const struct ls_rank_order *order, uint32_t place)
{
    const struct ls_rank_place *here = &order->places[place];
    return here->host % 2 ? 2 * here->first + here->size - 1 - place : place;
}

// Between hosts each card sends and receives in any direction; else neighbours in the order may be
// joined by links of their own, so that every other ring goes the other way around.
static int is_backwards(const struct rings *rings, uint32_t channel)
{
    return rings->order.hosts == 1 && channel % 2;
}

// The rank at `place` (modulo the world) of a ring.
static uint32_t rank_at(const struct rings *rings, uint32_t channel, uint64_t place)
{
    const uint32_t world = rings->call->world;
    uint32_t at = (uint32_t)(place % world);
    if (!rings->order.places)
        return at;
    at = is_backwards(rings, channel) ? world - 1 - at : at;
    return ls_rank_at(&rings->order, channel, mirrored(&rings->order, at));
}

static uint64_t place_of(const struct rings *rings, uint32_t channel, uint32_t rank)
{
    if (!rings->order.places)
        return rank;
    const uint32_t at = mirrored(&rings->order, ls_place_of(&rings->order, channel, rank));
    return is_backwards(rings, channel) ? rings->call->world - 1 - at : at;
}

// A channel's part of the chunk of the rank at `place`.
static struct ls_range part_at(const struct rings *rings, uint32_t channel, uint64_t place)
{
    return ls_part(ls_chunk(rings->call, rank_at(rings, channel, place)), channel, rings->channels);
}

// Once around all rings. In each, a rank first sends the chunk `ahead` further on than its own: the
// one before its own to add, so that its own comes last; its own to share.
static void around(const struct rings *rings, struct ls_schedule *schedule, uint32_t receive,
                   uint64_t ahead)
{
    const struct ls_collective_call *call = rings->call;
    const uint64_t world = call->world;
    struct {
        uint64_t place;
        uint32_t next, previous;
        struct ls_range part; // to be sent: what came in the step before
    } at[LS_CHANNELS_MOST];
    for (uint32_t channel = 0; channel < rings->channels; channel++) {
        const uint64_t place = place_of(rings, channel, call->rank);
        at[channel].place = place;
        at[channel].next = rank_at(rings, channel, place + 1);
        at[channel].previous = rank_at(rings, channel, place + world - 1);
        at[channel].part = part_at(rings, channel, place + ahead);
    }
    for (uint64_t step = 0; step + 1 < world; step++) {
        for (uint32_t channel = 0; channel < rings->channels; channel++) {
            const uint64_t received = at[channel].place + ahead + 2 * world - step - 1;
            ls_send(schedule, at[channel].next, at[channel].part);
            at[channel].part = part_at(rings, channel, received);
            ls_add_step(schedule, receive, at[channel].previous, at[channel].part,
                        ls_data_range(0, 0));
        }
        if (ls_end_round(schedule)) // too long, say; the order must be freed
            return;
    }
}

static int32_t rings_get(const struct ls_collective_call *call, struct rings *out)
{
    const char *text = call->host->option(call->host, "channels");
    const long long asked = text ? strtoll(text, NULL, 10) : 1;
    if (asked < 0 || asked > LS_CHANNELS_MOST)
        return ls_host_fail(call->host, LS_USAGE,
                            "channels=%lld is out of range; choose 1 to %d, or 0 to leave it to "
                            "the network cards and the size",
                            asked, LS_CHANNELS_MOST);
    out->channels = (uint32_t)asked;
    if (asked == 1 || call->world == 1)
        return LS_OK;
    const int32_t status = ls_rank_order_init(call, &out->order);
    if (status || asked)
        return status;
    const uint64_t messages = call->count * call->element_bytes / call->world / LS_MESSAGE_BYTES;
    uint64_t most = out->order.hosts == 1 ? 2 : out->order.cards;
    most = most < LS_CHANNELS_MOST ? most : LS_CHANNELS_MOST;
    out->channels = (uint32_t)(messages < 1 ? 1 : messages < most ? messages : most);
    return LS_OK;
}

static int32_t ring_build_schedule(const struct ls_collective_call *call,
                                   struct ls_schedule *schedule)
{
    struct rings rings = {.call = call};
    const int32_t status = rings_get(call, &rings);
    if (status)
        return status;
    if (call->operation != LS_ALL_GATHER)
        around(&rings, schedule, LS_STEP_RECEIVE_AND_REDUCE, call->world - 1);
    if (call->operation != LS_REDUCE_SCATTER)
        around(&rings, schedule, LS_STEP_RECEIVE, 0);
    ls_rank_order_finish(&rings.order);
    return LS_OK;
}

static const struct ls_plugin_option options[] = {
    {"channels", "integer", "1",
     "rings at once, each from another network card of a host on; 0: one for each card"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_collective_interface ring = {
    .struct_size = sizeof(struct ls_collective_interface),
    .operations = 1u << LS_ALL_REDUCE | 1u << LS_REDUCE_SCATTER | 1u << LS_ALL_GATHER,
    .deterministic = 1,
    .build_schedule = ring_build_schedule,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE),
    .name = "ring",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "ring all-reduce: least bytes, most rounds",
    .options = options,
    .interface = &ring,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
