// SPDX-License-Identifier: Apache-2.0
// Follows every message. A message goes through these states, each of which ends at a time in the queue:
//
//   waiting   for an earlier one of the same pair of ranks
//   starting  sender and receiver are busy with it (overhead)
//   moving    its bytes share links with other messages
//   flying    the last byte travels (latency)
//   reducing  the receiver adds it to what it has
//
// A local reduction or copy has the last state alone. When messages begin or end to move, the rates on their links are
// found anew once all that happens at that time has happened.
#include "core/collective/simulate.h"

#include "core/base/log.h"
#include "core/base/random.h"
#include "core/collective/simulate/fabric.h"
#include "core/collective/simulate/outline.h"
#include "core/collective/simulate/queue.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NONE LS_OUTLINE_NONE

// Further bits of a step's state (outline.h has the others).
#define POSTED UINT32_C(0x40000000) // all that it waits for is done
#define ARRIVED UINT32_C(0x80000000) // waits for its turn to be reduced
#define DONE UINT32_MAX

enum flow_state { WAITING, STARTING, MOVING, FLYING, REDUCING };

struct flow {
    uint32_t state; // enum flow_state
    uint32_t from, to; // ranks
    uint32_t send, receive; // steps
    uint32_t next; // waits behind it, or is free
    uint32_t hop_count;
    uint32_t settled; // when its rate was last found: number of a settling
    uint64_t pair;
    double left, rate, since; // bytes; bytes a second; seconds
    double latency;
    double slowness; // factor of stragglers
    double longer; // factor of jitter
};

// A flow on one of its links; the list of a link.
struct hop {
    uint32_t link;
    uint32_t next, previous; // hops: flow * longest + number
};

struct link {
    uint32_t first; // hop
    uint32_t flows;
    uint32_t changed; // number of a settling
    uint64_t bytes; // that have passed
};

struct simulator {
    const struct ls_simulation *simulation;
    struct ls_fabric fabric;
    struct ls_outline outline;
    struct ls_queue queue;
    uint32_t *states; // of all steps of all ranks
    uint32_t *last_waiting; // by pair: the flow at the end of the line, NONE: nothing is under way
    struct flow *flows;
    struct hop *hops;
    uint32_t flow_count, flow_capacity, free_flow;
    struct link *links;
    uint32_t *changed; // links
    uint32_t changed_count, settling;
    double *send_free, *receive_free, *compute_free; // by rank: until when it is busy
    double *slowness; // by rank
    double stretch; // how many times as long messages take as the links say
    uint32_t *route; // scratch
    uint64_t jitter_key;
    double now;
    uint64_t steps_done, messages, sent_bytes;
    uint64_t memory_limit;
    enum ls_status status;
};

// ---- Flows ----

static enum ls_status no_memory(struct simulator *simulator)
{
    if (!simulator->status)
        ls_error("simulate",
                 "%s: %u messages at once among %u ranks need more memory than there is; choose a "
                 "smaller world",
                 simulator->simulation->name, simulator->flow_count, simulator->outline.world);
    return simulator->status = LS_USAGE;
}

static bool grow_flows(struct simulator *simulator)
{
    const uint32_t longest = simulator->fabric.longest;
    const uint64_t capacity =
        simulator->flow_capacity ? 2 * (uint64_t)simulator->flow_capacity : 64;
    const uint64_t each =
        sizeof(struct flow) + longest * sizeof(struct hop) + sizeof(struct ls_queue_item) + 32;
    if (capacity * longest >= NONE || capacity * each > simulator->memory_limit)
        return false;
    void *flows = realloc(simulator->flows, capacity * sizeof(struct flow));
    if (flows)
        simulator->flows = flows;
    void *hops = realloc(simulator->hops, capacity * longest * sizeof(struct hop));
    if (hops)
        simulator->hops = hops;
    if (!flows || !hops || ls_queue_reserve(&simulator->queue, (uint32_t)capacity))
        return false;
    simulator->flow_capacity = (uint32_t)capacity;
    return true;
}

static uint32_t take_flow(struct simulator *simulator)
{
    uint32_t number = simulator->free_flow;
    if (number != NONE) {
        simulator->free_flow = simulator->flows[number].next;
        return number;
    }
    if (simulator->flow_count == simulator->flow_capacity && !grow_flows(simulator)) {
        no_memory(simulator);
        return NONE;
    }
    return simulator->flow_count++;
}

static void free_flow(struct simulator *simulator, uint32_t number)
{
    simulator->flows[number].next = simulator->free_flow;
    simulator->free_flow = number;
}

static const struct ls_outline_step *step_of(const struct simulator *simulator, uint32_t rank,
                                             uint32_t step)
{
    return &simulator->outline.ranks[rank].shape->steps[step];
}

static uint64_t bytes_of(const struct simulator *simulator, uint32_t rank, uint32_t step)
{
    return simulator->outline.ranks[rank].bytes[step_of(simulator, rank, step)->range];
}

// Depends on who and what alone, so that it is the same in whatever order things happen.
static double jitter_of(const struct simulator *simulator, uint32_t rank, uint32_t step)
{
    if (simulator->simulation->jitter == 0)
        return 1;
    const uint64_t key = ls_random_key(simulator->jitter_key, rank);
    return 1 + simulator->simulation->jitter * ls_random_uniform(key, step);
}

// ---- Links ----

static void mark_changed(struct simulator *simulator, uint32_t number)
{
    struct link *link = &simulator->links[number];
    if (link->changed == simulator->settling)
        return;
    link->changed = simulator->settling;
    simulator->changed[simulator->changed_count++] = number;
}

static void enter_link(struct simulator *simulator, uint32_t hop, uint32_t number)
{
    struct link *link = &simulator->links[number];
    simulator->hops[hop] = (struct hop){number, link->first, NONE};
    if (link->first != NONE)
        simulator->hops[link->first].previous = hop;
    link->first = hop;
    link->flows++;
    mark_changed(simulator, number);
}

static void leave_link(struct simulator *simulator, uint32_t number, uint64_t bytes)
{
    const struct hop *hop = &simulator->hops[number];
    struct link *link = &simulator->links[hop->link];
    if (hop->previous == NONE)
        link->first = hop->next;
    else
        simulator->hops[hop->previous].next = hop->next;
    if (hop->next != NONE)
        simulator->hops[hop->next].previous = hop->previous;
    link->flows--;
    link->bytes += bytes;
    mark_changed(simulator, hop->link);
}

// A flow gets an equal share of each of its links, and moves at the least of them.
static void find_rate(struct simulator *simulator, uint32_t number)
{
    struct flow *flow = &simulator->flows[number];
    if (flow->settled == simulator->settling)
        return;
    flow->settled = simulator->settling;
    const struct hop *hops = &simulator->hops[(size_t)number * simulator->fabric.longest];
    double rate = INFINITY;
    for (uint32_t i = 0; i < flow->hop_count; i++)
        rate = fmin(rate, simulator->fabric.bandwidth[hops[i].link] /
                              simulator->links[hops[i].link].flows);
    rate /= flow->slowness;
    if (rate == flow->rate)
        return;
    flow->left = fmax(0, flow->left - flow->rate * (simulator->now - flow->since));
    flow->since = simulator->now;
    flow->rate = rate;
    ls_queue_put(&simulator->queue, number, simulator->now + flow->left / rate);
}

static void settle(struct simulator *simulator)
{
    for (uint32_t i = 0; i < simulator->changed_count; i++)
        for (uint32_t hop = simulator->links[simulator->changed[i]].first; hop != NONE;
             hop = simulator->hops[hop].next)
            find_rate(simulator, hop / simulator->fabric.longest);
    simulator->changed_count = 0;
    simulator->settling++;
}

// ---- Messages ----

// Whether the reduction of what is received is part of receiving it.
static bool reduces_in_place(const struct simulator *simulator, uint32_t rank, uint32_t step)
{
    return simulator->fabric.network.reduces_in_place &&
           (step_of(simulator, rank, step)->kind_peer & 7) == LS_STEP_RECEIVE_AND_REDUCE;
}

static void begin_to_move(struct simulator *simulator, uint32_t number)
{
    struct flow *flow = &simulator->flows[number];
    flow->hop_count =
        ls_fabric_route(&simulator->fabric, flow->from, flow->to, simulator->route, &flow->latency);
    for (uint32_t i = 0; i < flow->hop_count; i++)
        enter_link(simulator, number * simulator->fabric.longest + i, simulator->route[i]);
    flow->state = MOVING;
    const double bytes = (double)bytes_of(simulator, flow->from, flow->send);
    const struct ls_network *network = &simulator->fabric.network;
    flow->left = bytes * flow->longer * simulator->stretch;
    if (reduces_in_place(simulator, flow->to, flow->receive))
        flow->left += bytes * flow->longer * network->reduction * network->link.bandwidth;
    flow->rate = 0;
    flow->since = simulator->now;
    flow->settled = simulator->settling - 1;
}

static void start_flow(struct simulator *simulator, uint32_t number)
{
    struct flow *flow = &simulator->flows[number];
    const double overhead = simulator->fabric.network.overhead;
    if (overhead == 0) {
        begin_to_move(simulator, number);
        return;
    }
    double *send_free = &simulator->send_free[flow->from];
    double *receive_free = &simulator->receive_free[flow->to];
    const double begin = fmax(simulator->now, fmax(*send_free, *receive_free));
    const double end = begin + overhead * flow->slowness;
    *send_free = *receive_free = end;
    flow->state = STARTING;
    ls_queue_put(&simulator->queue, number, end);
}

static void refuse_lengths(struct simulator *simulator, const struct flow *flow)
{
    if (!simulator->status)
        ls_error("simulate",
                 "%s: message %u from rank %u to rank %u has %llu bytes where it is sent and %llu "
                 "where it is received; the plugin is wrong",
                 simulator->simulation->name, step_of(simulator, flow->from, flow->send)->number,
                 flow->from, flow->to,
                 (unsigned long long)bytes_of(simulator, flow->from, flow->send),
                 (unsigned long long)bytes_of(simulator, flow->to, flow->receive));
    simulator->status = LS_FAILED;
}

// Both sides are ready. The messages of a pair move one after the other.
static void add_message(struct simulator *simulator, uint64_t pair, uint32_t from, uint32_t send,
                        uint32_t to, uint32_t receive)
{
    const uint32_t number = take_flow(simulator);
    if (number == NONE)
        return;
    struct flow *flow = &simulator->flows[number];
    *flow = (struct flow){.from = from,
                          .to = to,
                          .send = send,
                          .receive = receive,
                          .pair = pair,
                          .next = NONE,
                          .slowness = 1,
                          .longer = jitter_of(simulator, from, send)};
    if (simulator->slowness)
        flow->slowness = fmax(simulator->slowness[from], simulator->slowness[to]);
    if (bytes_of(simulator, from, send) != bytes_of(simulator, to, receive)) {
        refuse_lengths(simulator, flow);
        return;
    }
    const uint32_t last = simulator->last_waiting[pair];
    simulator->last_waiting[pair] = number;
    if (last == NONE)
        start_flow(simulator, number);
    else
        simulator->flows[last].next = number;
}

static void begin_to_reduce(struct simulator *simulator, uint32_t number, uint32_t rank,
                            uint32_t step)
{
    struct flow *flow = &simulator->flows[number];
    double seconds = (double)bytes_of(simulator, rank, step) * simulator->fabric.network.reduction;
    if (reduces_in_place(simulator, rank, step))
        seconds = 0;
    if (simulator->slowness)
        seconds *= simulator->slowness[rank];
    flow->state = REDUCING;
    flow->to = rank;
    flow->receive = step;
    const double begin = fmax(simulator->now, simulator->compute_free[rank]);
    simulator->compute_free[rank] = begin + seconds * jitter_of(simulator, rank, step);
    ls_queue_put(&simulator->queue, number, simulator->compute_free[rank]);
}

static void add_local(struct simulator *simulator, uint32_t rank, uint32_t step)
{
    const uint32_t number = take_flow(simulator);
    if (number != NONE)
        begin_to_reduce(simulator, number, rank, step);
}

// ---- Steps ----

static uint32_t *state_of(struct simulator *simulator, uint32_t rank, uint32_t step)
{
    return &simulator->states[simulator->outline.ranks[rank].first_state + step];
}

// All that the step waits for is done.
static void post(struct simulator *simulator, uint32_t rank, uint32_t number)
{
    const struct ls_rank_outline *here = &simulator->outline.ranks[rank];
    const struct ls_outline_step *step = &here->shape->steps[number];
    const uint32_t kind = step->kind_peer & 7;
    uint32_t *state = state_of(simulator, rank, number);
    *state |= POSTED;
    if (kind == LS_STEP_REDUCE || kind == LS_STEP_COPY) {
        if (*state & LS_ORDER_MASK)
            *state |= ARRIVED;
        else
            add_local(simulator, rank, number);
        return;
    }
    const uint64_t pair = here->first_pair + (step->kind_peer >> 3);
    const struct ls_pair *peer = &simulator->outline.pairs[pair];
    const struct ls_rank_outline *there = &simulator->outline.ranks[peer->peer];
    const bool sends = kind == LS_STEP_SEND;
    const uint32_t *first = sends ? there->shape->first_receive : there->shape->first_send;
    const uint32_t *list = sends ? there->shape->receives : there->shape->sends;
    const uint32_t match = list[first[peer->place] + step->number];
    if (!(*state_of(simulator, peer->peer, match) & POSTED))
        return;
    if (sends)
        add_message(simulator, pair, rank, number, peer->peer, match);
    else
        add_message(simulator, there->first_pair + peer->place, peer->peer, match, rank, number);
}

static void complete(struct simulator *simulator, uint32_t rank, uint32_t number)
{
    const struct ls_shape *shape = simulator->outline.ranks[rank].shape;
    const struct ls_outline_step *step = &shape->steps[number];
    *state_of(simulator, rank, number) = DONE;
    simulator->steps_done++;
    for (uint32_t i = step->first_dependent; i < step[1].first_dependent; i++) {
        const uint32_t dependent = shape->dependents[i] & ~LS_DEPENDENT_ORDER;
        uint32_t *state = state_of(simulator, rank, dependent);
        if (shape->dependents[i] & LS_DEPENDENT_ORDER) {
            *state -= LS_ORDER_ONE;
            if (*state & ARRIVED && !(*state & LS_ORDER_MASK))
                add_local(simulator, rank, dependent);
        } else if (!(--*state & LS_WAITS_MASK)) {
            post(simulator, rank, dependent);
        }
    }
}

static void end_to_move(struct simulator *simulator, uint32_t number)
{
    struct flow *flow = &simulator->flows[number];
    const uint64_t bytes = bytes_of(simulator, flow->from, flow->send);
    for (uint32_t i = 0; i < flow->hop_count; i++)
        leave_link(simulator, number * simulator->fabric.longest + i, bytes);
    simulator->messages++;
    simulator->sent_bytes += bytes;
    flow->state = FLYING;
    ls_queue_put(&simulator->queue, number, simulator->now + flow->latency * flow->longer);
    if (flow->next == NONE)
        simulator->last_waiting[flow->pair] = NONE;
    else
        start_flow(simulator, flow->next);
}

static void arrive(struct simulator *simulator, uint32_t number)
{
    const struct flow flow = simulator->flows[number];
    const uint32_t kind = step_of(simulator, flow.to, flow.receive)->kind_peer & 7;
    uint32_t *state = state_of(simulator, flow.to, flow.receive);
    if (kind == LS_STEP_RECEIVE_AND_REDUCE && !(*state & LS_ORDER_MASK)) {
        begin_to_reduce(simulator, number, flow.to, flow.receive);
    } else {
        free_flow(simulator, number);
        if (kind == LS_STEP_RECEIVE_AND_REDUCE)
            *state |= ARRIVED;
        else
            complete(simulator, flow.to, flow.receive);
    }
    complete(simulator, flow.from, flow.send);
}

static void handle(struct simulator *simulator, uint32_t number)
{
    switch (simulator->flows[number].state) {
    case STARTING: begin_to_move(simulator, number); break;
    case MOVING: end_to_move(simulator, number); break;
    case FLYING: arrive(simulator, number); break;
    default: {
        const uint32_t rank = simulator->flows[number].to, step = simulator->flows[number].receive;
        free_flow(simulator, number);
        complete(simulator, rank, step);
    }
    }
}

static void run(struct simulator *simulator)
{
    const struct ls_outline *outline = &simulator->outline;
    for (uint32_t rank = 0; rank < outline->world; rank++)
        for (uint32_t i = 0; i < outline->ranks[rank].shape->step_count; i++)
            if (!(outline->ranks[rank].shape->states[i] & LS_WAITS_MASK))
                post(simulator, rank, i);
    for (double at; !simulator->status;) {
        const bool more = ls_queue_next(&simulator->queue, &at);
        if (simulator->changed_count && (!more || at > simulator->now)) {
            settle(simulator);
            continue;
        }
        if (!more)
            break;
        simulator->now = at;
        handle(simulator, ls_queue_take(&simulator->queue));
    }
}

// ---- What went wrong ----

static bool find_stuck(struct simulator *simulator, uint32_t *rank, uint32_t *step)
{
    for (*rank = 0; *rank < simulator->outline.world; ++*rank)
        for (*step = 0; *step < simulator->outline.ranks[*rank].shape->step_count; ++*step)
            if (*state_of(simulator, *rank, *step) != DONE)
                return true;
    return false;
}

// Draws the rank once more, to name round and range.
static enum ls_status refuse_deadlock(struct simulator *simulator,
                                      const struct ls_collective_call *call)
{
    const struct ls_simulation *simulation = simulator->simulation;
    struct ls_collective_call again = *call;
    struct ls_drawn_schedule drawn = {0};
    uint32_t step;
    char range[128];
    if (!find_stuck(simulator, &again.rank, &step))
        return LS_FAILED;
    const enum ls_status status =
        ls_schedule_draw(simulation->collective, simulation->name, &again, &drawn);
    if (status)
        return status;
    const struct ls_scheduled_step *stuck = &drawn.steps[step];
    ls_error(
        "simulate",
        "%s: rank %u of %u, round %u: %s of %s, peer %u, never ends: both wait for each other, "
        "or for others who do (deadlock); the plugin is wrong",
        simulation->name, again.rank, again.world, stuck->round,
        ls_step_kind_text(stuck->step.kind),
        ls_range_text(&stuck->step.range, range, sizeof(range)), stuck->step.peer);
    ls_drawn_schedule_finish(&drawn);
    return LS_FAILED;
}

// ---- Beginning and end ----

static double *zeros(uint32_t count)
{
    return calloc(count, sizeof(double));
}

static enum ls_status set_stragglers(struct simulator *simulator)
{
    const struct ls_simulation *simulation = simulator->simulation;
    if (!simulation->straggler_count)
        return LS_OK;
    simulator->slowness = zeros(simulation->world);
    if (!simulator->slowness)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < simulation->world; i++)
        simulator->slowness[i] = 1;
    for (size_t i = 0; i < simulation->straggler_count; i++) {
        const struct ls_straggler *straggler = &simulation->stragglers[i];
        if (straggler->rank >= simulation->world) {
            ls_error("simulate", "straggler %u: there are only ranks 0 to %u", straggler->rank,
                     simulation->world - 1);
            return LS_USAGE;
        }
        simulator->slowness[straggler->rank] = straggler->factor;
    }
    return LS_OK;
}

static enum ls_status prepare(struct simulator *simulator)
{
    const struct ls_outline *outline = &simulator->outline;
    const uint32_t world = outline->world, links = simulator->fabric.link_count;
    simulator->states = malloc((outline->step_count + 1) * sizeof(uint32_t));
    simulator->last_waiting = malloc((outline->pair_count + 1) * sizeof(uint32_t));
    simulator->links = malloc(links * sizeof(struct link));
    simulator->changed = malloc(links * sizeof(uint32_t));
    simulator->send_free = zeros(world);
    simulator->receive_free = zeros(world);
    simulator->compute_free = zeros(world);
    simulator->route = malloc(simulator->fabric.longest * sizeof(uint32_t));
    if (!simulator->states || !simulator->last_waiting || !simulator->links ||
        !simulator->changed || !simulator->send_free || !simulator->receive_free ||
        !simulator->compute_free || !simulator->route)
        return LS_OUT_OF_MEMORY;
    for (uint32_t rank = 0; rank < world; rank++)
        memcpy(simulator->states + outline->ranks[rank].first_state,
               outline->ranks[rank].shape->states,
               outline->ranks[rank].shape->step_count * sizeof(uint32_t));
    memset(simulator->last_waiting, 0xff, outline->pair_count * sizeof(uint32_t));
    for (uint32_t i = 0; i < links; i++)
        simulator->links[i] = (struct link){.first = NONE};
    simulator->settling = 1;
    simulator->free_flow = NONE;
    simulator->jitter_key = ls_random_key_text(simulator->simulation->seed, "jitter");
    return ls_queue_init(&simulator->queue);
}

static void write_result(const struct simulator *simulator, struct ls_simulation_result *out)
{
    const struct ls_simulation *simulation = simulator->simulation;
    uint32_t busiest = 0;
    double busy = 0;
    for (uint32_t i = 0; i < simulator->fabric.link_count; i++) {
        const double seconds = (double)simulator->links[i].bytes / simulator->fabric.bandwidth[i];
        if (seconds > busy) {
            busy = seconds;
            busiest = i;
        }
    }
    *out = (struct ls_simulation_result){
        .seconds = simulator->now,
        .bound_seconds = ls_fabric_bound(&simulator->fabric, simulation->operation,
                                         (double)simulation->count * simulation->element_bytes),
        .busiest_share = simulator->now > 0 ? busy / simulator->now : 0,
        .messages = simulator->messages,
        .steps = simulator->steps_done,
        .rounds = simulator->outline.round_count,
        .sent_bytes = simulator->sent_bytes,
    };
    if (busy > 0)
        ls_fabric_link_text(&simulator->fabric, busiest, out->busiest, sizeof(out->busiest));
}

static void finish(struct simulator *simulator)
{
    ls_fabric_finish(&simulator->fabric);
    ls_outline_finish(&simulator->outline);
    ls_queue_finish(&simulator->queue);
    free(simulator->states);
    free(simulator->last_waiting);
    free(simulator->flows);
    free(simulator->hops);
    free(simulator->links);
    free(simulator->changed);
    free(simulator->send_free);
    free(simulator->receive_free);
    free(simulator->compute_free);
    free(simulator->slowness);
    free(simulator->route);
}

static uint64_t memory_of_machine(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && bytes > 0 ? (uint64_t)pages * (uint64_t)bytes : UINT64_C(1) << 32;
}

static enum ls_status simulate(struct simulator *simulator, const struct ls_collective_call *call)
{
    const struct ls_simulation *simulation = simulator->simulation;
    const struct ls_outline_options options = {
        .collective = simulation->collective,
        .name = simulation->name,
        .call = call,
        .memory_limit = simulator->memory_limit,
        .ranks_drawn = simulation->ranks_drawn,
    };
    enum ls_status status =
        ls_fabric_create(simulation->network, simulation->world, &simulator->fabric);
    if (!status)
        status = set_stragglers(simulator);
    if (!status)
        status = ls_outline_create(&options, &simulator->outline);
    if (!status)
        status = prepare(simulator);
    if (status)
        return status;
    run(simulator);
    if (!simulator->status && simulator->steps_done != simulator->outline.step_count)
        return refuse_deadlock(simulator, call);
    return simulator->status;
}

enum ls_status ls_simulate(const struct ls_simulation *simulation, struct ls_simulation_result *out)
{
    const uint32_t ranks_per_node = simulation->network->ranks_per_node;
    const struct ls_collective_call call = {
        .struct_size = sizeof(call),
        .operation = simulation->operation,
        .world = simulation->world,
        .root = simulation->root,
        .ranks_per_host = ranks_per_node > 1 ? ranks_per_node : 0,
        .count = simulation->count,
        .element_bytes = simulation->element_bytes,
        .host = simulation->host,
    };
    struct simulator simulator = {
        .simulation = simulation,
        .memory_limit =
            simulation->memory_limit ? simulation->memory_limit : memory_of_machine() / 4 * 3,
        .stretch = ls_network_slowness(simulation->network,
                                       (double)simulation->count * simulation->element_bytes),
    };
    const enum ls_status status = simulate(&simulator, &call);
    if (!status)
        write_result(&simulator, out);
    finish(&simulator);
    return status;
}

double ls_bus_factor(uint32_t operation, uint32_t world)
{
    const double others = (world - 1.0) / world;
    switch (operation) {
    case LS_ALL_REDUCE: return 2 * others;
    case LS_REDUCE_SCATTER:
    case LS_ALL_GATHER: return others;
    default: return 1;
    }
}
