// SPDX-License-Identifier: Apache-2.0
#include "tests/plugins/collective/world.h"

#include "core/schedule/verify.h"

#include <check.h>

#define UNIT LS_CHUNK_ALIGNMENT
#define NONE UINT32_MAX

// What UNIT elements hold: whose contributions, and the order in which they were added up.
struct cell {
    uint64_t ranks;
    uint64_t order;
};

struct message {
    const struct cell *values; // `count` of them, in `pool`
    uint64_t count;
    uint32_t next;
};

enum touch { UNTOUCHED, READ, REDUCED, WRITTEN };

const char *world_option(const struct ls_host *host, const char *name)
{
    const struct world *world =
        (const struct world *)((const char *)host->context - offsetof(struct world, host));
    if (world->option && strcmp(name, world->option) == 0)
        return world->value;
    return test_host_option(host, name);
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) ^
                 (b + UINT64_C(0x7f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (x ^ x >> 29) * UINT64_C(0x94d049bb133111eb);
}

// ---- Steps ----

void world_fail(const struct world *world, const char *format, ...)
{
    char text[256];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    ck_abort_msg("%s %s=%s, operation %u, world %u, count %u: %s", world->collective,
                 world->option ? world->option : "", world->value ? world->value : "",
                 world->call.operation, world->call.world, (unsigned)world->call.count, text);
    abort();
}

// The cells of a range, marked as touched in this round.
static struct cell *cells_of(struct world *world, uint32_t rank, const struct ls_range *range,
                             enum touch touch, uint64_t *count)
{
    const uint64_t end = range->offset + range->count, first = range->offset / UNIT;
    const uint64_t limit = world->limits[rank][range->buffer];
    EXPECT(world, range->offset % UNIT == 0 && (end % UNIT == 0 || end == limit || range->buffer),
           "rank %u: a range begins or ends inside a block", rank);
    *count = (end + UNIT - 1) / UNIT - first;
    for (uint64_t i = first; i < first + *count; i++) {
        unsigned char *before = &world->touched[rank][range->buffer][i];
        const bool fits = *before == UNTOUCHED || (*before == touch && touch != WRITTEN);
        EXPECT(world, fits, "rank %u, block %u: two steps of a round are in conflict", rank,
               (unsigned)i);
        *before = (unsigned char)touch;
    }
    return world->cells[rank][range->buffer] + first;
}

static void post(struct world *world, uint32_t rank, const struct ls_step *step)
{
    uint64_t count;
    const struct cell *from = cells_of(world, rank, &step->range, READ, &count);
    const uint32_t number = (uint32_t)world->message_count++;
    memcpy(world->pool + world->pool_count, from, count * sizeof(*from));
    world->messages[number] = (struct message){world->pool + world->pool_count, count, NONE};
    world->pool_count += count;
    if (world->first[rank][step->peer] == NONE)
        world->first[rank][step->peer] = number;
    else
        world->messages[world->last[rank][step->peer]].next = number;
    world->last[rank][step->peer] = number;
}

static void put(struct world *world, uint32_t rank, const struct ls_range *range,
                const struct cell *from, uint64_t from_count, bool reduce)
{
    uint64_t count;
    struct cell *to = cells_of(world, rank, range, reduce ? REDUCED : WRITTEN, &count);
    EXPECT(world, count == from_count, "rank %u: two sides of a message differ", rank);
    for (uint64_t i = 0; i < count; i++) {
        EXPECT(world, from[i].ranks, "rank %u: undefined values travel", rank);
        if (!reduce) {
            to[i] = from[i];
            continue;
        }
        EXPECT(world, !(to[i].ranks & from[i].ranks), "rank %u: a contribution comes twice", rank);
        to[i].ranks |= from[i].ranks;
        to[i].order = mix(to[i].order, from[i].order);
    }
}

static void take(struct world *world, uint32_t rank, const struct ls_step *step)
{
    uint32_t *first = &world->first[step->peer][rank];
    uint64_t count;
    const bool reduce = step->kind == LS_STEP_RECEIVE_AND_REDUCE || step->kind == LS_STEP_REDUCE;
    if (step->kind == LS_STEP_REDUCE || step->kind == LS_STEP_COPY) {
        const struct cell *from = cells_of(world, rank, &step->from, READ, &count);
        put(world, rank, &step->range, from, count, reduce);
        return;
    }
    EXPECT(world, *first != NONE, "rank %u receives from %u what it does not send", rank,
           step->peer);
    const struct message *message = &world->messages[*first];
    put(world, rank, &step->range, message->values, message->count, reduce);
    *first = message->next;
}

// ---- Rounds ----

static void begin_round(struct world *world)
{
    world->message_count = world->pool_count = 0;
    for (uint32_t rank = 0; rank < world->call.world; rank++) {
        for (int i = 0; i < 2; i++)
            memset(world->touched[rank][i], UNTOUCHED, world->limits[rank][i] / UNIT + 1);
        memset(world->first[rank], 0xff, sizeof(world->first[rank]));
    }
}

// Sends first, which take their values as the round before left them.
static void run_round(struct world *world, uint32_t round)
{
    uint64_t most = 0, most_reduced = 0;
    begin_round(world);
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t rank = 0; rank < world->call.world; rank++) {
            const struct ls_drawn_schedule *drawn = &world->drawn[rank];
            uint64_t sent = 0, received = 0, reduced = 0;
            size_t i = world->at[rank];
            for (; i < drawn->step_count && drawn->steps[i].round == round; i++) {
                const struct ls_step *step = &drawn->steps[i].step;
                const bool send = step->kind == LS_STEP_SEND;
                if (send && pass == 0)
                    post(world, rank, step);
                else if (!send && pass == 1)
                    take(world, rank, step);
                sent += send ? step->range.count : 0;
                received +=
                    step->kind == LS_STEP_RECEIVE || step->kind == LS_STEP_RECEIVE_AND_REDUCE
                        ? step->range.count
                        : 0;
                reduced += step->kind == LS_STEP_REDUCE || step->kind == LS_STEP_RECEIVE_AND_REDUCE
                               ? step->range.count
                               : 0;
            }
            if (pass == 0)
                continue;
            world->at[rank] = i;
            world->sent[rank] += sent;
            world->received[rank] += received;
            world->reduced[rank] += reduced;
            most = sent > most ? sent : most;
            most = received > most ? received : most;
            most_reduced = reduced > most_reduced ? reduced : most_reduced;
        }
    }
    for (uint32_t from = 0; from < world->call.world; from++)
        for (uint32_t to = 0; to < world->call.world; to++)
            EXPECT(world, world->first[from][to] == NONE, "rank %u sends what %u does not receive",
                   from, to);
    world->longest += most;
    world->most_reduced += most_reduced;
}

// ---- Results ----

static void expect_part(struct world *world, uint32_t rank, struct ls_range range, uint64_t ranks,
                        bool same_order)
{
    for (uint64_t i = range.offset / UNIT; range.count && i * UNIT < range.offset + range.count;
         i++) {
        const struct cell *cell = &world->cells[rank][LS_BUFFER_DATA][i];
        EXPECT(world, cell->ranks == ranks, "rank %u, block %u is not the result", rank,
               (unsigned)i);
        EXPECT(world, !same_order || cell->order == world->cells[0][LS_BUFFER_DATA][i].order,
               "rank %u, block %u was added up in another order", rank, (unsigned)i);
    }
}

// What rank `from` had for `rank`, at its place.
static void expect_block(struct world *world, uint32_t rank, uint32_t from)
{
    const struct ls_range here = ls_block(&world->call, from);
    const uint64_t there = ls_block(&world->call, rank).offset / UNIT;
    for (uint64_t i = 0; i < here.count / UNIT; i++)
        EXPECT(world,
               world->cells[rank][LS_BUFFER_DATA][here.offset / UNIT + i].order ==
                   mix(from, there + i),
               "rank %u has another block than that of rank %u", rank, from);
}

static void check_result(struct world *world)
{
    const struct ls_collective_call *call = &world->call;
    const uint64_t all = UINT64_MAX >> (64 - call->world);
    const struct ls_range data = ls_data_range(0, call->count);
    for (uint32_t rank = 0; rank < call->world; rank++) {
        if (call->operation == LS_ALL_REDUCE)
            expect_part(world, rank, data, all, true);
        else if (call->operation == LS_REDUCE_SCATTER)
            expect_part(world, rank, ls_chunk(call, rank), all, false);
        else if (call->operation == LS_BROADCAST)
            expect_part(world, rank, data, UINT64_C(1) << call->root, false);
        else if (call->operation == LS_REDUCE && rank == call->root)
            expect_part(world, rank, data, all, false);
        for (uint32_t i = 0; call->operation == LS_ALL_GATHER && i < call->world; i++)
            expect_part(world, rank, ls_chunk(call, i), UINT64_C(1) << i, false);
        for (uint32_t i = 0; call->operation == LS_ALL_TO_ALL && i < call->world; i++)
            expect_block(world, rank, i);
    }
}

static void fill(struct world *world, uint32_t rank)
{
    world->limits[rank][0] = world->call.count;
    world->limits[rank][1] = world->drawn[rank].scratch_count;
    for (int i = 0; i < 2; i++) {
        const size_t cells = world->limits[rank][i] / UNIT + 1;
        world->cells[rank][i] = calloc(cells, sizeof(struct cell));
        world->touched[rank][i] = calloc(cells, 1);
        EXPECT(world, world->cells[rank][i] && world->touched[rank][i], "no memory");
        for (size_t k = 0; i == 0 && k < cells; k++)
            world->cells[rank][i][k] = (struct cell){
                UINT64_C(1) << rank, mix(rank, world->call.operation == LS_ALL_TO_ALL ? k : 1)};
    }
}

static void draw(struct world *world)
{
    const struct ls_plugin *plugin = world->host.plugin;
    for (uint32_t rank = 0; rank < world->call.world; rank++) {
        world->call.rank = rank;
        EXPECT(world,
               !ls_schedule_draw(plugin->interface, world->collective, &world->call,
                                 &world->drawn[rank]),
               "rank %u is not described", rank);
        EXPECT(world, world->drawn[rank].round_count == world->drawn[0].round_count,
               "rank %u has another number of rounds", rank);
        world->message_capacity += world->drawn[rank].step_count;
        for (size_t i = 0; i < world->drawn[rank].step_count; i++)
            world->pool_capacity += world->drawn[rank].steps[i].step.range.count / UNIT + 1;
        fill(world, rank);
    }
    world->call.rank = 0;
    world->messages = malloc((world->message_capacity + 1) * sizeof(*world->messages));
    world->pool = malloc((world->pool_capacity + 1) * sizeof(*world->pool));
    ck_assert(world->messages && world->pool);
}

void world_finish(struct world *world)
{
    for (uint32_t rank = 0; rank < world->call.world; rank++) {
        ls_drawn_schedule_finish(&world->drawn[rank]);
        for (int i = 0; i < 2; i++) {
            free(world->cells[rank][i]);
            free(world->touched[rank][i]);
        }
    }
    free(world->messages);
    free(world->pool);
    free(world);
}

// The verifier of the house comes to the same by other means.
static void verify(struct world *world)
{
    const struct ls_verify_case verified = {.operation = world->call.operation,
                                            .world = world->call.world,
                                            .root = world->call.root,
                                            .hosts = world->call.hosts,
                                            .cards = world->call.cards,
                                            .order = world->call.order,
                                            .count = world->call.count,
                                            .element_bytes = 4};
    struct ls_verification out;
    const enum ls_status status =
        ls_verify_schedule(world->host.plugin->interface, &world->host.host, &verified, &out);
    EXPECT(world, !status && out.verdict == LS_VERDICT_HOLDS && out.same_order,
           "the verifier says: %s", out.reason);
}

struct world *world_run(const char *collective, const char *option, const char *value,
                        uint32_t operation, uint32_t ranks, uint32_t root, uint64_t count)
{
    static const struct world_network unknown;
    return world_run_on(&unknown, collective, option, value, operation, ranks, root, count);
}

struct world *world_run_on(const struct world_network *network, const char *collective,
                           const char *option, const char *value, uint32_t operation,
                           uint32_t ranks, uint32_t root, uint64_t count)
{
    char name[64];
    struct world *world = calloc(1, sizeof(*world));
    ck_assert_ptr_nonnull(world);
    snprintf(name, sizeof(name), "collective-%s", collective);
    const struct ls_plugin *plugin = test_plugin_open(name);
    ck_assert_ptr_nonnull(plugin);
    test_host_init(&world->host, plugin);
    world->host.host.option = world_option;
    world->collective = collective;
    world->option = option;
    world->value = value;
    world->call = (struct ls_collective_call){.struct_size = sizeof(world->call),
                                              .operation = operation,
                                              .world = ranks,
                                              .root = root,
                                              .count = count,
                                              .element_bytes = 4,
                                              .host = &world->host.host,
                                              .hosts = network->hosts,
                                              .cards = network->cards,
                                              .order = network->order};
    draw(world);
    for (uint32_t round = 0; round < world->drawn[0].round_count; round++)
        run_round(world, round);
    check_result(world);
    verify(world);
    return world;
}
