// SPDX-License-Identifier: Apache-2.0
// Records what a collective describes, and describes what it does not offer itself.
#include "core/schedule/schedule.h"

#include "core/base/log.h"

#include "core/base/watchdog.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

// A longer schedule of a rank never ends, or could not be run.
#define CALLS_MOST (UINT32_C(1) << 21)
// a build_schedule that goes on after so many calls have failed never ends, either.
#define FAILED_CALLS_MOST (UINT32_C(1) << 20)
#define UNHEARD_CALLS_MOST (UINT32_C(1) << 16) // while a schedule is only measured
#define SCRATCH_MOST (UINT64_C(1) << 43) // elements

// What `context` of the table points to while a schedule is drawn.
struct drawing {
    const struct ls_collective_call *call;
    const char *name;
    struct ls_drawn_schedule *out;
    size_t capacity;
    uint32_t calls; // steps, also those without elements, and rounds
    uint32_t failed_calls;
    enum ls_status status; // first failure
    int32_t answer; // of build_schedule
    jmp_buf out_of_build;
};

const char *ls_collective_operation_text(uint32_t operation)
{
    switch (operation) {
    case LS_ALL_REDUCE: return "all-reduce";
    case LS_REDUCE_SCATTER: return "reduce-scatter";
    case LS_ALL_GATHER: return "all-gather";
    case LS_BROADCAST: return "broadcast";
    case LS_REDUCE: return "reduce";
    case LS_ALL_TO_ALL: return "all-to-all";
    default: return NULL;
    }
}

uint64_t ls_collective_whole_count(uint32_t operation, uint64_t count, uint32_t world)
{
    const uint64_t over = operation == LS_ALL_TO_ALL ? count % world : 0;
    return over ? count + (world - over) : count;
}

const char *ls_step_kind_text(uint32_t kind)
{
    switch (kind) {
    case LS_STEP_SEND: return "send";
    case LS_STEP_RECEIVE: return "receive";
    case LS_STEP_RECEIVE_AND_REDUCE: return "receive-and-reduce";
    case LS_STEP_REDUCE: return "reduce";
    case LS_STEP_COPY: return "copy";
    default: return NULL;
    }
}

const char *ls_range_text(const struct ls_range *range, char *text, size_t bytes)
{
    const char *buffer = range->buffer == LS_BUFFER_DATA      ? "the data buffer"
                         : range->buffer == LS_BUFFER_SCRATCH ? "scratch"
                                                              : "an unknown buffer";
    snprintf(text, bytes, "%" PRIu64 " elements from %" PRIu64 " of %s", range->count,
             range->offset, buffer);
    return text;
}

// ---- The table that a plugin writes into ----

static enum ls_status refuse(struct drawing *drawing, const struct ls_step *step,
                             const char *reason)
{
    char range[128], from[128];
    const char *kind = ls_step_kind_text(step->kind);
    const bool local = step->kind == LS_STEP_REDUCE || step->kind == LS_STEP_COPY;
    ls_error("collective",
             "%s: rank %u of %u, round %u: %s of %s%s%s, peer %u: %s; the plugin is wrong",
             drawing->name, drawing->call->rank, drawing->call->world, drawing->out->round_count,
             kind ? kind : "unknown step", ls_range_text(&step->range, range, sizeof(range)),
             local ? " from " : "", local ? ls_range_text(&step->from, from, sizeof(from)) : "",
             step->peer, reason);
    return drawing->status = LS_FAILED;
}

static bool fits(const struct drawing *drawing, const struct ls_range *range)
{
    uint64_t count = drawing->call->count;
    if (range->buffer == LS_BUFFER_SCRATCH)
        count = drawing->out->scratch_count;
    else if (range->buffer != LS_BUFFER_DATA)
        return false;
    return range->offset <= count && range->count <= count - range->offset;
}

static bool is_empty(const struct ls_step *step)
{
    const bool local = step->kind == LS_STEP_REDUCE || step->kind == LS_STEP_COPY;
    return step->range.count == 0 && (!local || step->from.count == 0);
}

static enum ls_status check(struct drawing *drawing, const struct ls_step *step)
{
    const bool local = step->kind == LS_STEP_REDUCE || step->kind == LS_STEP_COPY;
    if (!ls_step_kind_text(step->kind))
        return refuse(drawing, step, "there is no such step");
    if (!local && (step->peer >= drawing->call->world || step->peer == drawing->call->rank))
        return refuse(drawing, step, "the peer is no other rank");
    if (is_empty(step)) // dropped, whatever its range
        return LS_OK;
    if (!fits(drawing, &step->range) || (local && !fits(drawing, &step->from)))
        return refuse(drawing, step, "the range lies outside its buffer");
    if (local && step->from.count != step->range.count)
        return refuse(drawing, step, "the two ranges differ in length");
    return LS_OK;
}

// Whether a call of the table does anything.
static bool goes_on(struct drawing *drawing)
{
    if (drawing->status) {
        if (++drawing->failed_calls == FAILED_CALLS_MOST)
            longjmp(drawing->out_of_build, 1);
        return false;
    }
    if (++drawing->calls <= CALLS_MOST)
        return true;
    ls_error(
        "collective",
        "%s: rank %u of %u: more than %u steps and rounds: the schedule never ends; the plugin "
        "is wrong",
        drawing->name, drawing->call->rank, drawing->call->world, CALLS_MOST);
    drawing->status = LS_FAILED;
    return false;
}

static int32_t add(struct ls_schedule *schedule, const struct ls_step *step)
{
    struct drawing *drawing = schedule->context;
    struct ls_drawn_schedule *out = drawing->out;
    if (!goes_on(drawing) || check(drawing, step))
        return drawing->status;
    if (step->range.count == 0)
        return LS_OK;
    if (out->step_count == drawing->capacity) {
        const size_t capacity = drawing->capacity ? 2 * drawing->capacity : 16;
        struct ls_scheduled_step *steps = realloc(out->steps, capacity * sizeof(*steps));
        if (!steps)
            return drawing->status = LS_OUT_OF_MEMORY;
        out->steps = steps;
        drawing->capacity = capacity;
    }
    out->steps[out->step_count] =
        (struct ls_scheduled_step){.step = *step, .round = out->round_count};
    if (step->kind == LS_STEP_REDUCE || step->kind == LS_STEP_COPY)
        out->steps[out->step_count].step.peer = 0; // whatever the plugin left there
    out->step_count++;
    return LS_OK;
}

static int32_t end_round(struct ls_schedule *schedule)
{
    struct drawing *drawing = schedule->context;
    if (goes_on(drawing))
        drawing->out->round_count++;
    return drawing->status;
}

static int32_t scratch(struct ls_schedule *schedule, uint64_t count)
{
    struct drawing *drawing = schedule->context;
    if (!goes_on(drawing))
        return drawing->status;
    if (count > SCRATCH_MOST) {
        ls_error("collective",
                 "%s: rank %u of %u asks for %" PRIu64
                 " elements of scratch, more than any memory has; the plugin is wrong",
                 drawing->name, drawing->call->rank, drawing->call->world, count);
        return drawing->status = LS_FAILED;
    }
    if (count > drawing->out->scratch_count)
        drawing->out->scratch_count = count;
    return drawing->status;
}

// ---- What the host describes itself ----

// Binomial tree: in the round of bit b, ranks below 2^b (counted from the root) have the data and
// send it to the rank 2^b further on.
static void describe_broadcast(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const uint64_t world = call->world, place = (call->rank + world - call->root) % world;
    const struct ls_range all = ls_data_range(0, call->count);
    for (uint64_t bit = 1; bit < world; bit *= 2) {
        if (place < bit && place + bit < world)
            ls_send(schedule, (uint32_t)((place + bit + call->root) % world), all);
        else if (place >= bit && place < 2 * bit)
            ls_receive(schedule, (uint32_t)((place - bit + call->root) % world), all);
        ls_end_round(schedule);
    }
}

static void describe_all_gather(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    for (uint32_t i = 1; i < call->world; i++) {
        const uint32_t to = (uint32_t)(((uint64_t)call->rank + i) % call->world);
        const uint32_t from = (uint32_t)(((uint64_t)call->rank + call->world - i) % call->world);
        ls_send(schedule, to, ls_chunk(call, call->rank));
        ls_receive(schedule, from, ls_chunk(call, from));
    }
    ls_end_round(schedule);
}

// The rank with which `rank` exchanges blocks in round `round`; `rank` itself: none in this round.
// Where the world is a power of two all meet in world - 1 rounds, else in `world`.
static uint64_t partner(const struct ls_collective_call *call, uint64_t round)
{
    const uint64_t world = call->world;
    if ((world & (world - 1)) == 0)
        return call->rank ^ (round + 1);
    return (round + world - call->rank) % world;
}

// One pair after the other, so that no rank is sent to by several. What comes is where the block is
// that leaves, so it waits in scratch for one round; there are two places for it.
static void describe_all_to_all(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const uint64_t world = call->world, each = call->count / world;
    const uint64_t unit = LS_CHUNK_ALIGNMENT, stride = (each + unit - 1) / unit * unit;
    const uint64_t rounds = (world & (world - 1)) == 0 ? world - 1 : world;
    if (world > 1)
        ls_scratch(schedule, stride + each);
    for (uint64_t round = 0; world > 1 && round <= rounds; round++) {
        const uint64_t now = round < rounds ? partner(call, round) : call->rank;
        const uint64_t before = round > 0 ? partner(call, round - 1) : call->rank;
        if (now != call->rank) {
            ls_send(schedule, (uint32_t)now, ls_block(call, now));
            ls_receive(schedule, (uint32_t)now, ls_scratch_range(round % 2 * stride, each));
        }
        if (before != call->rank)
            ls_copy(schedule, ls_block(call, before),
                    ls_scratch_range((round + 1) % 2 * stride, each));
        ls_end_round(schedule);
    }
}

int32_t ls_schedule_build(const struct ls_collective_interface *collective,
                          const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    if (collective->operations & 1u << call->operation)
        return collective->build_schedule(call, schedule);
    if (call->operation == LS_BROADCAST)
        describe_broadcast(call, schedule);
    else if (call->operation == LS_ALL_GATHER)
        describe_all_gather(call, schedule);
    else if (call->operation == LS_ALL_TO_ALL)
        describe_all_to_all(call, schedule);
    else {
        struct ls_collective_call all_reduce = *call;
        all_reduce.operation = LS_ALL_REDUCE;
        all_reduce.root = 0;
        return collective->build_schedule(&all_reduce, schedule);
    }
    return LS_OK;
}

enum ls_status ls_schedule_draw(const struct ls_collective_interface *collective, const char *name,
                                const struct ls_collective_call *call,
                                struct ls_drawn_schedule *out)
{
    struct ls_drawn_schedule drawn = {0};
    struct drawing drawing = {.call = call, .name = name, .out = &drawn};
    struct ls_schedule schedule = {
        .struct_size = sizeof(schedule),
        .context = &drawing,
        .add = add,
        .end_round = end_round,
        .scratch = scratch,
    };
    const struct ls_expected expected = ls_watchdog_expect(call->rank);
    if (!setjmp(drawing.out_of_build))
        drawing.answer = ls_schedule_build(collective, call, &schedule);
    ls_watchdog_returned(&expected);
    const enum ls_status status = drawing.status ? drawing.status : (enum ls_status)drawing.answer;
    if (status) {
        ls_drawn_schedule_finish(&drawn);
        return status;
    }
    // Steps after the last end_round are a round, too.
    if (drawn.step_count && drawn.steps[drawn.step_count - 1].round == drawn.round_count)
        drawn.round_count++;
    *out = drawn;
    return LS_OK;
}

void ls_drawn_schedule_finish(struct ls_drawn_schedule *schedule)
{
    free(schedule->steps);
    *schedule = (struct ls_drawn_schedule){0};
}

// ---- How long it is ----

struct measuring {
    struct ls_host host; // first: its fail() casts back; the plugin's, but silent
    struct ls_schedule_size size;
    uint64_t calls, most;
    int32_t answer;
    jmp_buf out_of_build;
};

// A plugin that looks at what calls return ends by itself, and frees what it has.
static int32_t hear(struct measuring *measuring)
{
    if (++measuring->calls <= measuring->most)
        return LS_OK;
    if (measuring->calls - measuring->most == UNHEARD_CALLS_MOST)
        longjmp(measuring->out_of_build, 1);
    return LS_FAILED;
}

static int32_t measure_step(struct ls_schedule *schedule, const struct ls_step *step)
{
    struct measuring *measuring = schedule->context;
    measuring->size.steps += step->range.count != 0;
    return hear(measuring);
}

static int32_t measure_round(struct ls_schedule *schedule)
{
    struct measuring *measuring = schedule->context;
    measuring->size.rounds++;
    return hear(measuring);
}

static int32_t measure_scratch(struct ls_schedule *schedule, uint64_t count)
{
    (void)count;
    return hear(schedule->context);
}

static int32_t keep_reason(const struct ls_host *host, int32_t status, const char *message)
{
    struct measuring *measuring = (struct measuring *)(uintptr_t)host;
    if (message)
        snprintf(measuring->size.reason, sizeof(measuring->size.reason), "%s", message);
    return status ? status : LS_FAILED;
}

static void log_nothing(const struct ls_host *host, uint32_t level, const char *message)
{
    (void)host, (void)level, (void)message;
}

enum ls_status ls_schedule_measure(const struct ls_collective_interface *collective,
                                   const struct ls_collective_call *call, uint64_t most,
                                   struct ls_schedule_size *out)
{
    struct measuring measuring = {.most = most, .answer = LS_OK};
    struct ls_collective_call asked = *call;
    struct ls_schedule schedule = {
        .struct_size = sizeof(schedule),
        .context = &measuring,
        .add = measure_step,
        .end_round = measure_round,
        .scratch = measure_scratch,
    };
    if (call->host) {
        measuring.host = *call->host;
        measuring.host.fail = keep_reason;
        measuring.host.log = log_nothing;
        asked.host = &measuring.host;
    }
    const struct ls_expected expected = ls_watchdog_expect(call->rank);
    if (!setjmp(measuring.out_of_build))
        measuring.answer = ls_schedule_build(collective, &asked, &schedule);
    ls_watchdog_returned(&expected);
    *out = measuring.size;
    return measuring.calls > most ? LS_OK : (enum ls_status)measuring.answer;
}

enum ls_status ls_uniform_hosts(uint32_t world, uint32_t ranks_per_host, uint32_t **out)
{
    *out = NULL;
    if (!ranks_per_host)
        return LS_OK;
    *out = malloc((world + 1) * sizeof(**out));
    for (uint32_t i = 0; *out && i < world; i++)
        (*out)[i] = i / ranks_per_host;
    return *out ? LS_OK : LS_OUT_OF_MEMORY;
}

uint32_t ls_ranks_per_host(const uint32_t *hosts, uint32_t world)
{
    uint32_t each = 0;
    while (hosts && each < world && hosts[each] == 0)
        each++;
    for (uint32_t i = 0; each && i < world; i++)
        if (hosts[i] != i / each)
            return 0;
    return each;
}
