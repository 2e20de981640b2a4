// SPDX-License-Identifier: Apache-2.0
// Orders of all ranks, one for each channel of a collective: for algorithms that run several times
// at once, each time on a part of the buffer, so that all network cards of a host are used.
//
// A channel goes from host to host, and through all ranks of one before it goes to the next. Within
// a host the ranks are in the order of their cards (as in call->cards, else each has one of its
// own), beginning with another card in each channel: so as many channels as a host has cards begin,
// and end, at each card once.
//
//     struct ls_rank_order order = {0};
//     int32_t status = ls_rank_order_init(call, &order);
//     if (!status)
//         next = ls_rank_at(&order, channel, (ls_place_of(&order, channel, rank) + 1) % world);
//     ls_rank_order_finish(&order);
//
// It holds memory, so a schedule that uses it ends when ls_end_round fails.
#ifndef LS_PLUGIN_RANK_ORDER_H
#define LS_PLUGIN_RANK_ORDER_H

#include "core/plugin/collective.h"

#ifdef __cplusplus
extern "C" {
#endif

// More than any host has cards.
#define LS_CHANNELS_MOST 64

// A place in the order of channel 0, and where the ranks of the same host are.
struct ls_rank_place {
    uint32_t rank; // which is there
    uint32_t host; // counted along the order
    uint32_t first; // place of the first rank of the host
    uint32_t size; // ranks of the host
    uint32_t card; // equal for ranks of the host that share one
};

// The orders of all channels. After ls_rank_order_init nothing changes it; zeroed, it is the order
// of ranks in every channel.
struct ls_rank_order {
    uint32_t world; // ranks
    uint32_t hosts; // 1 where they are unknown
    uint32_t cards; // of the host that has most; 1 where all ranks are on one host
    uint32_t reserved; // zero
    struct ls_rank_place *places; // `world` of them. NULL: the order of ranks, in every channel
    uint32_t *place_of; // of each rank, in channel 0
};

// Of ls_rank_order_init: puts the ranks host by host, in the turns in which hosts come along the
// order. `turns` and `next`: memory for `world` numbers each.
static inline void ls_rank_order_fill(const struct ls_collective_call *call,
                                      struct ls_rank_order *out, uint32_t *turns, uint32_t *next)
{
    const int more = LS_HAS(call, order);
    const uint32_t *const cards = more ? call->cards : NULL;
    const uint32_t *const order = more ? call->order : NULL;
    for (uint32_t host = 0; host < call->world; host++) {
        turns[host] = UINT32_MAX;
        next[host] = 0;
    }
    for (uint32_t i = 0; i < call->world; i++) {
        const uint32_t rank = order ? order[i] : i, host = call->hosts ? call->hosts[rank] : 0;
        if (turns[host] == UINT32_MAX)
            turns[host] = out->hosts++;
        next[turns[host]]++;
    }
    for (uint32_t turn = 0, first = 0; turn < out->hosts; turn++) {
        const uint32_t size = next[turn];
        const struct ls_rank_place place = {0, turn, first, size, 0};
        for (uint32_t i = first; i < first + size; i++)
            out->places[i] = place;
        next[turn] = first;
        first += size;
    }
    for (uint32_t i = 0; i < call->world; i++) {
        const uint32_t rank = order ? order[i] : i, host = call->hosts ? call->hosts[rank] : 0;
        struct ls_rank_place *place = &out->places[next[turns[host]]++];
        place->rank = rank;
        place->card = cards && out->hosts > 1 ? cards[rank] : i;
    }
}

// Of ls_rank_order_init: sorts the ranks of each host by card (they are few, mostly in order), and
// counts the cards.
static inline void ls_rank_order_sort(struct ls_rank_order *order)
{
    struct ls_rank_place *places = order->places;
    uint32_t cards = 0;
    for (uint32_t i = 0; i < order->world; i++)
        for (uint32_t at = i; at > places[i].first && places[at - 1].card > places[at].card; at--) {
            const struct ls_rank_place moved = places[at];
            places[at] = places[at - 1];
            places[at - 1] = moved;
        }
    for (uint32_t i = 0; i < order->world; i++) {
        cards = i == places[i].first ? 1 : cards + (places[i].card != places[i - 1].card);
        if (order->hosts > 1 && cards > order->cards)
            order->cards = cards;
        order->place_of[places[i].rank] = i;
    }
}

// Finds the order for a call. LS_OK, or LS_OUT_OF_MEMORY; ls_rank_order_finish frees it.
static inline int32_t ls_rank_order_init(const struct ls_collective_call *call,
                                         struct ls_rank_order *out)
{
    const size_t bytes = call->world * sizeof(uint32_t);
    struct ls_rank_order order = {call->world, 0, 1, 0, NULL, NULL};
    uint32_t *next = (uint32_t *)malloc(bytes);
    order.places = (struct ls_rank_place *)malloc(call->world * sizeof(*order.places));
    order.place_of = (uint32_t *)malloc(bytes);
    if (!next || !order.places || !order.place_of) {
        free(next);
        free(order.places);
        free(order.place_of);
        return LS_OUT_OF_MEMORY;
    }
    ls_rank_order_fill(call, &order, order.place_of, next);
    ls_rank_order_sort(&order);
    free(next);
    *out = order;
    return LS_OK;
}

// Frees what ls_rank_order_init allocated; takes a zeroed one.
static inline void ls_rank_order_finish(struct ls_rank_order *order)
{
    free(order->places);
    free(order->place_of);
    order->places = NULL;
    order->place_of = NULL;
}

// How far a channel turns the ranks of the host at `place`: to another card each time, and after
// all cards to the next rank of each.
static inline uint32_t ls_rank_order_turn(const struct ls_rank_order *order, uint32_t place,
                                          uint32_t channel)
{
    const struct ls_rank_place *host = &order->places[order->places[place].first];
    const uint32_t size = host->size;
    if (order->hosts == 1) // nothing enters or leaves it
        return 0;
    uint32_t cards = 1, begin = 0, end = 0;
    for (uint32_t i = 1; i < size; i++)
        cards += host[i].card != host[i - 1].card;
    for (uint32_t card = 0; card <= channel % cards; card++)
        for (begin = end; end < size && host[end].card == host[begin].card;)
            end++;
    return begin + channel / cards % (end - begin);
}

// The rank at a place of a channel.
static inline uint32_t ls_rank_at(const struct ls_rank_order *order, uint32_t channel,
                                  uint32_t place)
{
    if (!order->places)
        return place;
    const struct ls_rank_place *here = &order->places[place];
    const uint32_t turn = ls_rank_order_turn(order, place, channel);
    return order->places[here->first + (place - here->first + turn) % here->size].rank;
}

// The place of a rank in a channel.
static inline uint32_t ls_place_of(const struct ls_rank_order *order, uint32_t channel,
                                   uint32_t rank)
{
    if (!order->places)
        return rank;
    const uint32_t place = order->place_of[rank];
    const struct ls_rank_place *here = &order->places[place];
    const uint32_t turn = ls_rank_order_turn(order, place, channel);
    return here->first + (place - here->first + here->size - turn) % here->size;
}

#ifdef __cplusplus
}
#endif

#endif
