// SPDX-License-Identifier: Apache-2.0
// collective-VARIANT, for tests: collectives that are wrong, each in its own way, some only in some worlds or for some counts.
// One module has them all; each variant is a copy of its file, whose name says which one it is.
#define _GNU_SOURCE // dladdr
#include "core/plugin/collective.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef struct ls_schedule schedule;
typedef const struct ls_collective_call call;

static struct ls_range whole(call *of)
{
    return ls_data_range(0, of->count);
}

static uint32_t next_of(call *of)
{
    return (of->rank + 1) % of->world;
}

static uint32_t previous_of(call *of)
{
    return (of->rank + of->world - 1) % of->world;
}

static uint32_t last_of(call *of)
{
    return of->world - 1;
}

// ---- What is right ----

static void gather_at_0(call *of, schedule *out, struct ls_range range)
{
    for (uint32_t peer = 1; peer < of->world && !of->rank; peer++)
        ls_receive_and_reduce(out, peer, range);
    if (of->rank)
        ls_send(out, 0, range);
    ls_end_round(out);
}

static void share_from(call *of, schedule *out, uint32_t root, struct ls_range range)
{
    for (uint32_t peer = 0; peer < of->world && of->rank == root; peer++)
        if (peer != root)
            ls_send(out, peer, range);
    if (of->rank != root)
        ls_receive(out, root, range);
    ls_end_round(out);
}

static int32_t star(call *of, schedule *out)
{
    gather_at_0(of, out, whole(of));
    share_from(of, out, 0, whole(of));
    return LS_OK;
}

// ---- Contributions ----

static int32_t twice(call *of, schedule *out)
{
    if (of->rank == last_of(of))
        ls_send(out, 0, whole(of));
    if (!of->rank)
        ls_receive_and_reduce(out, last_of(of), whole(of));
    ls_end_round(out);
    return star(of, out);
}

// The sum is added to what each rank has, not written over it.
static int32_t added_again(call *of, schedule *out)
{
    gather_at_0(of, out, whole(of));
    for (uint32_t peer = 1; peer < of->world && !of->rank; peer++)
        ls_send(out, peer, whole(of));
    if (of->rank)
        ls_receive_and_reduce(out, 0, whole(of));
    return LS_OK;
}

static int32_t missing(call *of, schedule *out)
{
    for (uint32_t peer = 1; peer + 1 < of->world && !of->rank; peer++)
        ls_receive_and_reduce(out, peer, whole(of));
    if (of->rank && of->rank != last_of(of))
        ls_send(out, 0, whole(of));
    ls_end_round(out);
    share_from(of, out, 0, whole(of));
    return LS_OK;
}

static int32_t nothing(call *of, schedule *out)
{
    (void)of;
    return ls_end_round(out);
}

// The last rank keeps what it had.
static int32_t one_forgotten(call *of, schedule *out)
{
    gather_at_0(of, out, whole(of));
    for (uint32_t peer = 1; peer + 1 < of->world && !of->rank; peer++)
        ls_send(out, peer, whole(of));
    if (of->rank && of->rank != last_of(of))
        ls_receive(out, 0, whole(of));
    return LS_OK;
}

// Chunks of count / world elements; the rest of the buffer is forgotten.
static int32_t rest_forgotten(call *of, schedule *out)
{
    const struct ls_range range = ls_data_range(0, of->count / of->world * of->world);
    gather_at_0(of, out, range);
    share_from(of, out, 0, range);
    return LS_OK;
}

static int32_t odd_counts(call *of, schedule *out)
{
    return of->count % 2 ? twice(of, out) : star(of, out);
}

// Elements are shared out among the ranks, and where there are none for a rank, nobody adds any.
static int32_t few_elements(call *of, schedule *out)
{
    return of->count < of->world ? nothing(of, out) : star(of, out);
}

static int32_t three_ranks(call *of, schedule *out)
{
    return of->world == 3 ? twice(of, out) : star(of, out);
}

static int32_t large_worlds(call *of, schedule *out)
{
    return of->world > 4 ? missing(of, out) : star(of, out);
}

// ---- Places ----

static int32_t shifted(call *of, schedule *out)
{
    star(of, out);
    ls_scratch(out, of->count);
    ls_copy(out, ls_scratch_range(0, of->count), whole(of));
    ls_end_round(out);
    ls_copy(out, ls_data_range(1, of->count - 1), ls_scratch_range(0, of->count - 1));
    return LS_OK;
}

// Two messages that are received in the other order.
static int32_t swapped(call *of, schedule *out)
{
    const uint64_t half = of->count / 2;
    const struct ls_range low = ls_data_range(0, half), high = ls_data_range(half, half);
    gather_at_0(of, out, whole(of));
    for (uint32_t peer = 1; peer < of->world && !of->rank; peer++) {
        ls_send(out, peer, low);
        ls_send(out, peer, high);
    }
    if (of->rank) {
        ls_receive(out, 0, high);
        ls_receive(out, 0, low);
    }
    return LS_OK;
}

static int32_t outside(call *of, schedule *out)
{
    gather_at_0(of, out, ls_data_range(1, of->count));
    share_from(of, out, 0, whole(of));
    return LS_OK;
}

static int32_t unasked_scratch(call *of, schedule *out)
{
    ls_copy(out, ls_scratch_range(0, of->count), whole(of));
    ls_end_round(out);
    return star(of, out);
}

static int32_t unwritten_scratch(call *of, schedule *out)
{
    ls_scratch(out, of->count);
    gather_at_0(of, out, whole(of));
    share_from(of, out, 0, whole(of));
    return ls_copy(out, whole(of), ls_scratch_range(0, of->count));
}

static int32_t other_length(call *of, schedule *out)
{
    ls_scratch(out, of->count);
    ls_copy(out, ls_scratch_range(0, of->count), ls_data_range(0, of->count - 1));
    ls_end_round(out);
    return star(of, out);
}

// ---- Rounds ----

static int32_t deadlock(call *of, schedule *out)
{
    ls_scratch(out, of->count);
    ls_receive(out, previous_of(of), ls_scratch_range(0, of->count));
    ls_end_round(out);
    ls_send(out, next_of(of), whole(of));
    ls_end_round(out);
    return star(of, out);
}

static int32_t overwrites(call *of, schedule *out)
{
    gather_at_0(of, out, whole(of));
    for (uint32_t peer = 1; peer < of->world && !of->rank; peer++)
        for (uint32_t i = 0; i < 2; i++)
            ls_send(out, peer, whole(of));
    for (uint32_t i = 0; i < 2 && of->rank; i++)
        ls_receive(out, 0, whole(of));
    return LS_OK;
}

// Sends in the round in which it still adds.
static int32_t too_early(call *of, schedule *out)
{
    for (uint32_t peer = 1; peer < of->world && !of->rank; peer++) {
        ls_receive_and_reduce(out, peer, whole(of));
        ls_send(out, peer, whole(of));
    }
    if (of->rank)
        ls_send(out, 0, whole(of));
    if (of->rank)
        ls_end_round(out);
    if (of->rank)
        ls_receive(out, 0, whole(of));
    return LS_OK;
}

// Every rank adds the others to its own, in the order of their numbers: from three ranks on another order at each.
static int32_t other_order(call *of, schedule *out)
{
    ls_scratch(out, of->count * of->world);
    for (uint32_t peer = 0; peer < of->world; peer++)
        if (peer != of->rank) {
            ls_send(out, peer, whole(of));
            ls_receive(out, peer, ls_scratch_range(peer * of->count, of->count));
        }
    ls_end_round(out);
    for (uint32_t peer = 0; peer < of->world; peer++)
        if (peer != of->rank)
            ls_reduce(out, whole(of), ls_scratch_range(peer * of->count, of->count));
    return LS_OK;
}

// ---- Messages ----

static int32_t wrong_peer(call *of, schedule *out)
{
    gather_at_0(of, out, whole(of));
    if (!of->rank)
        for (uint32_t i = 1; i < of->world; i++)
            ls_send(out, last_of(of), whole(of));
    else
        ls_receive(out, 0, whole(of));
    return LS_OK;
}

static int32_t never_sent(call *of, schedule *out)
{
    star(of, out);
    return of->rank ? LS_OK : ls_receive(out, 1, whole(of));
}

static int32_t other_counts(call *of, schedule *out)
{
    gather_at_0(of, out, whole(of));
    for (uint32_t peer = 1; peer < of->world && !of->rank; peer++)
        ls_send(out, peer, whole(of));
    if (of->rank)
        ls_receive(out, 0, ls_data_range(0, of->count - 1));
    return LS_OK;
}

static int32_t to_itself(call *of, schedule *out)
{
    ls_send(out, of->rank, whole(of));
    return star(of, out);
}

static int32_t no_such_rank(call *of, schedule *out)
{
    ls_send(out, of->world, whole(of));
    return star(of, out);
}

static int32_t no_such_step(call *of, schedule *out)
{
    ls_add_step(out, 17, next_of(of), whole(of), whole(of));
    return star(of, out);
}

// Broadcasts what the rank behind the root has.
static int32_t wrong_root(call *of, schedule *out)
{
    if (of->operation != LS_BROADCAST)
        return star(of, out);
    share_from(of, out, (of->root + 1) % of->world, whole(of));
    return LS_OK;
}

// ---- Describe itself ----

static int32_t impure(call *of, schedule *out)
{
    static _Atomic uint32_t times;
    return times++ > of->world ? twice(of, out) : star(of, out);
}

static int32_t one_declines(call *of, schedule *out)
{
    if (of->rank == 1)
        return ls_host_fail(of->host, LS_USAGE, "not today");
    return star(of, out);
}

static int32_t fails_silently(call *of, schedule *out)
{
    return of->rank == 1 ? LS_FAILED : star(of, out);
}

static int32_t endless_steps(call *of, schedule *out)
{
    for (;;) {
        ls_send(out, next_of(of), whole(of));
        ls_receive(out, previous_of(of), whole(of));
        ls_end_round(out);
    }
    return LS_OK;
}

static int32_t endless_rounds(call *of, schedule *out)
{
    for (;;)
        ls_end_round(out);
    (void)of;
    return LS_OK;
}

static int32_t endless_memory(call *of, schedule *out)
{
    ls_scratch(out, UINT64_C(1) << 60);
    return star(of, out);
}

static int32_t hangs(call *of, schedule *out)
{
    volatile uint32_t turns = 0;
    while (of->rank == 0)
        turns++;
    return star(of, out);
}

static const struct variant {
    const char *name;
    int32_t (*build_schedule)(call *of, schedule *out);
} variants[] = {
    {"twice", twice},
    {"added-again", added_again},
    {"missing", missing},
    {"nothing", nothing},
    {"one-forgotten", one_forgotten},
    {"rest-forgotten", rest_forgotten},
    {"odd-counts", odd_counts},
    {"few-elements", few_elements},
    {"three-ranks", three_ranks},
    {"large-worlds", large_worlds},
    {"shifted", shifted},
    {"swapped", swapped},
    {"outside", outside},
    {"unasked-scratch", unasked_scratch},
    {"unwritten-scratch", unwritten_scratch},
    {"other-length", other_length},
    {"deadlock", deadlock},
    {"overwrites", overwrites},
    {"too-early", too_early},
    {"other-order", other_order},
    {"wrong-peer", wrong_peer},
    {"never-sent", never_sent},
    {"other-counts", other_counts},
    {"to-itself", to_itself},
    {"no-such-rank", no_such_rank},
    {"no-such-step", no_such_step},
    {"wrong-root", wrong_root},
    {"impure", impure},
    {"one-declines", one_declines},
    {"fails-silently", fails_silently},
    {"endless-steps", endless_steps},
    {"endless-rounds", endless_rounds},
    {"endless-memory", endless_memory},
    {"hangs", hangs},
};

static struct ls_collective_interface interface = {
    .struct_size = sizeof(interface),
    .operations = 1u << LS_ALL_REDUCE,
    .deterministic = 1,
};

static struct ls_plugin plugin = {
    LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE), .version = "1",          .licence = "Apache-2.0",
    .summary = "of a test: wrong",        .interface = &interface,
};

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    Dl_info file;
    if (!dladdr(&plugin, &file))
        return NULL;
    for (uint32_t i = 0; i < sizeof(variants) / sizeof(*variants); i++) {
        char end[64];
        snprintf(end, sizeof(end), "/collective-%s.so", variants[i].name);
        if (strcmp(strrchr(file.dli_fname, '/'), end) == 0) {
            plugin.name = variants[i].name;
            interface.build_schedule = variants[i].build_schedule;
        }
    }
    if (interface.build_schedule == wrong_root)
        interface.operations |= 1u << LS_BROADCAST;
    return &plugin;
}
