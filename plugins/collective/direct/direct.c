// SPDX-License-Identifier: Apache-2.0
// Every rank talks to every other at once: fewest rounds of all. Choose it for small buffers, and wherever all ranks
// are joined by one switch or one memory; in a large world its messages are too many.
//
// World p, buffer n bytes:
//   all-reduce, tiny: while (p - 1) n is below the option `whole_below`, every rank sends the whole buffer to every
//     other, and all add up the same in the order of ranks: 1 round of messages (2 more only on the rank itself),
//     p - 1 messages and (p - 1) n bytes a rank, scratch for p buffers
//   all-reduce, larger: each rank adds up one chunk of all and sends it to all: 2 rounds, 2 (p - 1) messages,
//     2 n (p - 1) / p bytes, the minimum
//   reduce-scatter, all-gather: the halves of the latter: 1 round, n (p - 1) / p bytes
//   all-to-all: 1 round of messages (1 more only on the rank itself), n (p - 1) / p bytes, scratch for n
//   broadcast, reduce: 1 round; the root sends, or receives, (p - 1) n bytes; others n
// Peers are taken in turn from the next rank on, so that no rank is everybody's first.
// (Known as all-pairs in MSCCL++, as direct in ASTRA-sim.)
//
// Options: whole_below (bytes).
#include "core/plugin/collective.h"

#include <stdlib.h>

static uint32_t rank_after(const struct ls_collective_call *call, uint64_t distance)
{
    return (uint32_t)((call->rank + distance) % call->world);
}

// Afterwards rank r has chunk r in full.
static void add(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    for (uint64_t i = 1; i < call->world; i++) {
        const uint32_t to = rank_after(call, i), from = rank_after(call, call->world - i);
        ls_send(schedule, to, ls_chunk(call, to));
        ls_receive_and_reduce(schedule, from, ls_chunk(call, call->rank));
    }
    ls_end_round(schedule);
}

// Rank r begins with chunk r.
static void share(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    for (uint64_t i = 1; i < call->world; i++) {
        const uint32_t to = rank_after(call, i), from = rank_after(call, call->world - i);
        ls_send(schedule, to, ls_chunk(call, call->rank));
        ls_receive(schedule, from, ls_chunk(call, from));
    }
    ls_end_round(schedule);
}

// What `rank` sent. Begins at a multiple of the alignment.
static struct ls_range copy_of(const struct ls_collective_call *call, uint64_t rank)
{
    const uint64_t unit = LS_CHUNK_ALIGNMENT;
    return ls_scratch_range(rank * ((call->count + unit - 1) / unit * unit), call->count);
}

// The order of additions is that of ranks everywhere, so all but rank 0 add to their copy of its buffer.
static void exchange_whole(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const struct ls_range mine = ls_data_range(0, call->count);
    const struct ls_range sum = call->rank == 0 ? mine : copy_of(call, 0);
    const struct ls_range end = copy_of(call, call->world - 1);
    ls_scratch(schedule, end.offset + end.count);
    for (uint64_t i = 1; i < call->world; i++) {
        const uint32_t to = rank_after(call, i), from = rank_after(call, call->world - i);
        ls_send(schedule, to, mine);
        ls_receive(schedule, from, copy_of(call, from));
    }
    ls_end_round(schedule);
    for (uint64_t rank = 1; rank < call->world; rank++)
        ls_reduce(schedule, sum, rank == call->rank ? mine : copy_of(call, rank));
    ls_end_round(schedule);
    if (call->rank != 0)
        ls_copy(schedule, mine, sum);
    ls_end_round(schedule);
}

// What comes is where the block is that leaves, so it waits in scratch.
static void exchange_blocks(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    ls_scratch(schedule, call->count);
    for (uint64_t i = 1; i < call->world; i++) {
        const uint32_t to = rank_after(call, i), from = rank_after(call, call->world - i);
        const struct ls_range place = ls_block(call, from);
        ls_send(schedule, to, ls_block(call, to));
        ls_receive(schedule, from, ls_scratch_range(place.offset, place.count));
    }
    ls_end_round(schedule);
    for (uint64_t i = 1; i < call->world; i++) {
        const struct ls_range place = ls_block(call, rank_after(call, i));
        ls_copy(schedule, place, ls_scratch_range(place.offset, place.count));
    }
    ls_end_round(schedule);
}

static void broadcast(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const struct ls_range all = ls_data_range(0, call->count);
    if (call->rank != call->root)
        ls_receive(schedule, call->root, all);
    for (uint64_t i = 1; call->rank == call->root && i < call->world; i++)
        ls_send(schedule, rank_after(call, i), all);
    ls_end_round(schedule);
}

static void reduce(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const struct ls_range all = ls_data_range(0, call->count);
    if (call->rank != call->root)
        ls_send(schedule, call->root, all);
    for (uint64_t i = 1; call->rank == call->root && i < call->world; i++)
        ls_receive_and_reduce(schedule, rank_after(call, i), all);
    ls_end_round(schedule);
}

static void all_reduce(const struct ls_collective_call *call, struct ls_schedule *schedule,
                       uint64_t whole_below)
{
    const uint64_t bytes = call->count * call->element_bytes;
    if (whole_below > 0 && bytes <= (whole_below - 1) / (call->world - 1)) {
        exchange_whole(call, schedule);
        return;
    }
    add(call, schedule);
    share(call, schedule);
}

static int32_t direct_build_schedule(const struct ls_collective_call *call,
                                     struct ls_schedule *schedule)
{
    const char *text = call->host->option(call->host, "whole_below");
    const long long whole_below = text ? strtoll(text, NULL, 10) : 0;
    if (whole_below < 0)
        return ls_host_fail(call->host, LS_USAGE,
                            "whole_below=%lld is no number of bytes; choose 0 or more",
                            whole_below);
    if (call->world == 1)
        return LS_OK;
    switch (call->operation) {
    case LS_REDUCE_SCATTER: add(call, schedule); break;
    case LS_ALL_GATHER: share(call, schedule); break;
    case LS_BROADCAST: broadcast(call, schedule); break;
    case LS_REDUCE: reduce(call, schedule); break;
    case LS_ALL_TO_ALL: exchange_blocks(call, schedule); break;
    default: all_reduce(call, schedule, (uint64_t)whole_below);
    }
    return LS_OK;
}

static const struct ls_plugin_option options[] = {
    {"whole_below", "integer", "16384",
     "all-reduce in one round while a rank then sends fewer bytes than this; 0: never"},
    {NULL, NULL, NULL, NULL},
};

static const struct ls_collective_interface direct = {
    .struct_size = sizeof(struct ls_collective_interface),
    .operations = 1u << LS_ALL_REDUCE | 1u << LS_REDUCE_SCATTER | 1u << LS_ALL_GATHER |
                  1u << LS_BROADCAST | 1u << LS_REDUCE | 1u << LS_ALL_TO_ALL,
    .deterministic = 1,
    .build_schedule = direct_build_schedule,
};

static const struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE),
    .name = "direct",
    .version = "0.1.0",
    .licence = "Apache-2.0",
    .summary = "every rank to every other at once: fewest rounds, for small buffers",
    .options = options,
    .interface = &direct,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    return &plugin;
}
