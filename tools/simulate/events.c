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
#include "tools/simulate/simulator.h"

#include "core/base/log.h"
#include "core/base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PROGRESS_MASK 0xffffu // of steps between two notes
#define NONE LS_OUTLINE_NONE

// Further bits of a step's state (outline.h has the others).
#define POSTED UINT32_C(0x40000000) // all that it waits for is done
#define ARRIVED UINT32_C(0x80000000) // waits for its turn to be reduced
#define DONE LS_STEP_DONE

enum flow_state { WAITING, STARTING, MOVING, FLYING, REDUCING };

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
    flow->latency += simulator->latency;
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
    const struct ls_network *network = &simulator->fabric.network;
    const bool copies = (step_of(simulator, rank, step)->kind_peer & 7) == LS_STEP_COPY;
    double seconds =
        (double)bytes_of(simulator, rank, step) * (copies ? network->copy : network->reduction);
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

// All that the step waits for is done.
static void post(struct simulator *simulator, uint32_t rank, uint32_t number)
{
    const struct ls_rank_outline *here = &simulator->outline.ranks[rank];
    const struct ls_outline_step *step = &here->shape->steps[number];
    const uint32_t kind = step->kind_peer & 7;
    uint32_t *state = ls_simulator_state(simulator, rank, number);
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
    if (!(*ls_simulator_state(simulator, peer->peer, match) & POSTED))
        return;
    if (sends)
        add_message(simulator, pair, rank, number, peer->peer, match);
    else
        add_message(simulator, there->first_pair + peer->place, peer->peer, match, rank, number);
}

static void complete(struct simulator *simulator, uint32_t rank, uint32_t number)
{
    const struct ls_step_graph *shape = simulator->outline.ranks[rank].shape;
    const struct ls_outline_step *step = &shape->steps[number];
    *ls_simulator_state(simulator, rank, number) = DONE;
    if (!(++simulator->steps_done & PROGRESS_MASK) && simulator->simulation->progress)
        __atomic_store_n(&simulator->simulation->progress->steps_done, simulator->steps_done,
                         __ATOMIC_RELAXED);
    for (uint32_t i = step->first_dependent; i < step[1].first_dependent; i++) {
        const uint32_t dependent = shape->dependents[i] & ~LS_DEPENDENT_ORDER;
        uint32_t *state = ls_simulator_state(simulator, rank, dependent);
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
    uint32_t *state = ls_simulator_state(simulator, flow.to, flow.receive);
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

void ls_simulator_run(struct simulator *simulator)
{
    const struct ls_outline *outline = &simulator->outline;
    if (outline->step_count)
        simulator->now = simulator->fabric.network.launch;
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
