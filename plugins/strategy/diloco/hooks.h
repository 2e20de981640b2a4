// SPDX-License-Identifier: Apache-2.0
// The hooks of diloco and local-sgd: every replica trains weights of its own, and now and then a
// fragment of them is brought together. To be included once by each plugin.
//
// In each step a replica updates all of its weights w by its own gradients. The variables are cut
// into F fragments, the first layers first. H steps send each of them once, so in every H / F steps
// it is the turn of the next one:
//
//   D steps before     p = mean over the ranks of g - w, weighted by the examples that each has
//                      trained since; the all-reduce begins
//   at the step        m = momentum m + p;  g = g - rate (p + momentum m)  (Nesterov's)
//                      w = (1 - mix) g + mix w
//
// g, the weights of the last round, and m are the same on all ranks. Moving statistics travel with
// the last fragment and become their mean. Turns go by the number of the step, so a training that
// goes on does so in the same turn. The sums of the step are added in every step: 64 bytes.
// (Stich: Local SGD converges fast and communicates little, 2019; Douillard et al.: DiLoCo, 2023;
// Douillard et al.: Streaming DiLoCo, 2025.)
//
// In an elastic run a turn whose all-reduce breaks off, or is under way when workers change, is
// left out, and the fragment keeps what it has trained for its next one. Where a survivor has
// applied it, the others get its g and m from the host, and make their own w of them.
#ifndef LS_PLUGINS_STRATEGY_DILOCO_HOOKS_H
#define LS_PLUGINS_STRATEGY_DILOCO_HOOKS_H

#include "core/plugin/strategy.h"

#include <stdbool.h>
#include <string.h>

// What a replica notes of the round under way (LS_REPLICA_NOTES).
enum {
    NOTE_UNDER_WAY = 0, // the fragment whose difference was taken and not applied yet, plus one
    NOTE_FRAGMENTS = 1, // for how many
    NOTE_WORLD = 2, // and in which world
    NOTE_TURNS = LS_ROUND_NOTE_TURNS, // differences that were applied
    NOTE_EXAMPLES = 4, // by fragment: the replica's own and those of all, since the last difference
    NOTE_TAKEN = 62, // the same two of the difference under way
};
#define MOST_FRAGMENTS 29u
_Static_assert(NOTE_EXAMPLES + 2 * MOST_FRAGMENTS <= NOTE_TAKEN, "notes of all fragments");
_Static_assert(NOTE_TAKEN + 2 <= LS_ROUND_NOTES, "notes of the one that is under way");

struct ls_strategy {
    const struct ls_strategy_host *host;
    uint64_t period, delay; // steps between two turns; how long before one a difference is taken
    uint32_t fragments;
    float rate, momentum, mix;
    struct ls_placed_range *ranges; // by fragment
    struct ls_strategy_collective **differences; // replica * fragments + fragment
    struct ls_strategy_collective **sums; // one a replica
    float *examples; // one a replica: of its own, in the step under way
    uint32_t *travels; // one a replica: a fragment that is under way, plus one
    int32_t *broken; // one a replica: why its last exchange broke off; then it makes no more steps
};

// ---- Fragments ----

static uint64_t end_of_variable(const struct ls_strategy_host *host, uint32_t variable)
{
    uint64_t first, count;
    if (variable == host->variable_count)
        return host->flat_count;
    host->layout->variable_range(host, variable, &first, &count);
    return first;
}

// Whole variables, of about as many floats; statistics are in the last fragment, whose layers are
// at the front of the flat buffer.
static int32_t cut_fragments(struct ls_strategy *strategy)
{
    const struct ls_strategy_host *host = strategy->host;
    const uint64_t trained = host->flat_count - host->trained_first;
    uint32_t first = 0, left = host->variable_count;
    while (first < host->variable_count && end_of_variable(host, first) < host->trained_first)
        first++;
    if (host->variable_count - first < strategy->fragments)
        return ls_host_fail(host->host, LS_USAGE,
                            "fragments=%u: the model has %u trained variables, and each is in one "
                            "fragment; use fewer",
                            strategy->fragments, host->variable_count - first);
    uint64_t end = host->flat_count;
    for (uint32_t i = 0; i < strategy->fragments; i++) {
        const uint32_t others = strategy->fragments - 1 - i; // each needs a variable
        const uint64_t goal = host->trained_first + trained * others / strategy->fragments;
        left--;
        while (left - first > others && end_of_variable(host, left) > goal)
            left--;
        if (others == 0)
            left = first;
        const uint64_t begin = others ? end_of_variable(host, left) : 0;
        strategy->ranges[i] = (struct ls_placed_range){begin, end - begin};
        end = begin;
    }
    return LS_OK;
}

// ---- Opening ----

static void diloco_close(struct ls_strategy *strategy)
{
    const struct ls_host *host = strategy->host->host;
    host->release(host, strategy->ranges);
    host->release(host, strategy->differences);
    host->release(host, strategy->sums);
    host->release(host, strategy->examples);
    host->release(host, strategy->travels);
    host->release(host, strategy->broken);
}

// `strategy` has its settings.
static int32_t diloco_open_with(const struct ls_strategy_host *host, struct ls_strategy *strategy)
{
    const struct ls_host *of = host->host;
    const uint64_t replicas = host->replicas, fragments = strategy->fragments;
    strategy->host = host;
    strategy->ranges =
        (struct ls_placed_range *)of->allocate(of, fragments * sizeof(struct ls_placed_range), 8);
    strategy->differences = (struct ls_strategy_collective **)of->allocate(
        of, replicas * fragments * sizeof(struct ls_strategy_collective *), 8);
    strategy->sums = (struct ls_strategy_collective **)of->allocate(
        of, replicas * sizeof(struct ls_strategy_collective *), 8);
    strategy->examples = (float *)of->allocate(of, replicas * sizeof(float), 8);
    strategy->travels = (uint32_t *)of->allocate(of, replicas * sizeof(uint32_t), 8);
    strategy->broken = (int32_t *)of->allocate(of, replicas * sizeof(int32_t), 8);
    int32_t status = LS_OUT_OF_MEMORY;
    if (strategy->ranges && strategy->differences && strategy->sums && strategy->examples &&
        strategy->travels && strategy->broken)
        status = cut_fragments(strategy);
    if (status)
        diloco_close(strategy);
    for (uint64_t i = 0; !status && i < replicas; i++) {
        strategy->travels[i] = 0;
        strategy->broken[i] = LS_OK;
    }
    return status;
}

static int32_t diloco_initialize(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    struct ls_strategy_operation range = {.struct_size = sizeof(range),
                                          .operation = LS_ALL_REDUCE,
                                          .memory = LS_REPLICA_SUMS,
                                          .count = LS_STRATEGY_SUMS};
    int32_t status = host->collectives->broadcast_parameters(host, replica, 0);
    if (!status)
        status = host->collectives->prepare(host, replica, &range, &strategy->sums[replica]);
    range.memory = LS_REPLICA_DIFFERENCE;
    for (uint32_t i = 0; !status && i < strategy->fragments; i++) {
        range.first = strategy->ranges[i].first;
        range.count = strategy->ranges[i].count;
        status = host->collectives->prepare(
            host, replica, &range, &strategy->differences[replica * strategy->fragments + i]);
    }
    return status;
}

// ---- A turn ----

static int32_t wait_for_difference(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    const uint32_t travels = strategy->travels[replica];
    if (strategy->broken[replica])
        return strategy->broken[replica];
    if (!travels)
        return LS_OK;
    strategy->travels[replica] = 0;
    return host->collectives->wait(
        host, replica, strategy->differences[replica * strategy->fragments + travels - 1]);
}

// Begins to add up g - w. A rank without examples has no part in the mean.
static int32_t take_difference(struct ls_strategy *strategy, uint32_t replica, uint32_t fragment)
{
    const struct ls_strategy_host *host = strategy->host;
    const struct ls_placed_range range = strategy->ranges[fragment];
    const float *own = host->memory->map(host, replica, LS_REPLICA_PARAMETERS);
    const float *round = host->memory->map(host, replica, LS_REPLICA_ROUND);
    float *difference = host->memory->map(host, replica, LS_REPLICA_DIFFERENCE);
    float *notes = host->memory->map(host, replica, LS_REPLICA_NOTES);
    float *examples = notes + NOTE_EXAMPLES + 2 * fragment;
    const float weight = examples[1] > 0 ? (float)((double)examples[0] / (double)examples[1])
                                         : 1 / (float)host->world;
    int32_t status = wait_for_difference(strategy, replica); // of variables that were set since
    for (uint64_t i = range.first; !status && i < range.first + range.count; i++)
        difference[i] = weight * (round[i] - own[i]);
    memcpy(notes + NOTE_TAKEN, examples, 2 * sizeof(*examples));
    examples[0] = examples[1] = 0;
    notes[NOTE_UNDER_WAY] = (float)(fragment + 1);
    if (!status)
        status = host->collectives->start(
            host, replica, strategy->differences[replica * strategy->fragments + fragment]);
    strategy->travels[replica] = status ? 0 : fragment + 1;
    return status;
}

// What a replica keeps of its own weights, and of moving statistics nothing.
static void blend(const struct ls_strategy *strategy, uint32_t replica, uint32_t fragment)
{
    const struct ls_strategy_host *host = strategy->host;
    const struct ls_placed_range range = strategy->ranges[fragment];
    float *own = host->memory->map(host, replica, LS_REPLICA_PARAMETERS);
    const float *round = host->memory->map(host, replica, LS_REPLICA_ROUND);
    for (uint64_t i = range.first; i < range.first + range.count; i++)
        own[i] = i < host->trained_first ? round[i]
                                         : (1 - strategy->mix) * round[i] + strategy->mix * own[i];
    host->memory->changed(host, replica);
}

static void apply_difference(const struct ls_strategy *strategy, uint32_t replica,
                             uint32_t fragment)
{
    const struct ls_strategy_host *host = strategy->host;
    const struct ls_placed_range range = strategy->ranges[fragment];
    float *round = host->memory->map(host, replica, LS_REPLICA_ROUND);
    float *momentum = host->memory->map(host, replica, LS_REPLICA_MOMENTUM);
    const float *difference = host->memory->map(host, replica, LS_REPLICA_DIFFERENCE);
    const uint64_t end = range.first + range.count;
    const uint64_t trained = host->trained_first > range.first ? host->trained_first : range.first;
    for (uint64_t i = range.first; i < trained; i++) // moving statistics
        round[i] -= difference[i];
    for (uint64_t i = trained; i < end; i++) {
        float change = difference[i];
        if (strategy->momentum > 0) {
            momentum[i] = strategy->momentum * momentum[i] + difference[i];
            change = difference[i] + strategy->momentum * momentum[i];
        }
        round[i] -= strategy->rate * change;
    }
    blend(strategy, replica, fragment);
}

// Notes of a world or of fragments that were others: who trained how much is not known then, and a
// difference that was under way for other fragments is left out.
static void settle_notes(const struct ls_strategy *strategy, float *notes)
{
    const float fragments = (float)strategy->fragments, world = (float)strategy->host->world;
    if (notes[NOTE_FRAGMENTS] != fragments)
        notes[NOTE_UNDER_WAY] = 0;
    if (notes[NOTE_FRAGMENTS] != fragments || notes[NOTE_WORLD] != world)
        for (uint32_t i = 0; i < 2 * MOST_FRAGMENTS; i++)
            notes[NOTE_EXAMPLES + i] = 0;
    notes[NOTE_FRAGMENTS] = fragments;
    notes[NOTE_WORLD] = world;
}

// What is due after step `step`; `all`: examples of all ranks in it.
static int32_t take_turn(struct ls_strategy *strategy, uint32_t replica, uint64_t step, float all)
{
    const struct ls_strategy_host *host = strategy->host;
    const uint64_t ahead = step + strategy->delay;
    float *notes = host->memory->map(host, replica, LS_REPLICA_NOTES);
    settle_notes(strategy, notes);
    for (uint32_t i = 0; i < strategy->fragments; i++) {
        notes[NOTE_EXAMPLES + 2 * i] += strategy->examples[replica];
        notes[NOTE_EXAMPLES + 2 * i + 1] += all;
    }
    int32_t status = LS_OK;
    if (ahead % strategy->period == 0)
        status = take_difference(strategy, replica,
                                 (uint32_t)((ahead / strategy->period - 1) % strategy->fragments));
    const uint32_t taken = (uint32_t)notes[NOTE_UNDER_WAY];
    if (status || step % strategy->period || !taken)
        return status;
    status = wait_for_difference(strategy, replica);
    if (status)
        return status;
    apply_difference(strategy, replica, taken - 1);
    notes[NOTE_UNDER_WAY] = 0;
    notes[NOTE_TURNS] += 1;
    return LS_OK;
}

// In an elastic run the step is complete when its updates are, whatever becomes of the turn.
static int32_t take_turn_or_leave(struct ls_strategy *strategy, uint32_t replica, uint64_t step,
                                  float all)
{
    const int32_t status = take_turn(strategy, replica, step, all);
    if (!strategy->host->elastic || (status != LS_ABORTED && status != LS_PEER_LOST))
        return status;
    strategy->broken[replica] = status;
    return LS_OK;
}

// ---- Other workers ----

// Examples of a fragment whose changes are in the weights of a rank and in no round; `which`: its
// own, or those of all ranks. A difference that was under way counts where nobody has applied it.
static double waiting_examples(const float *notes, const float *furthest, uint32_t fragment,
                               uint32_t which)
{
    const bool returns =
        notes[NOTE_UNDER_WAY] == (float)(fragment + 1) && notes[NOTE_TURNS] == furthest[NOTE_TURNS];
    return (double)notes[NOTE_EXAMPLES + 2 * fragment + which] +
           (returns ? (double)notes[NOTE_TAKEN + which] : 0);
}

// Of the examples of all ranks those who are here have a part; the rest is left out.
static int32_t diloco_workers_changed(struct ls_strategy *strategy, uint32_t replica,
                                      const struct ls_round_change *change)
{
    const struct ls_strategy_host *host = strategy->host;
    const float *furthest = change->notes + (uint64_t)change->furthest * LS_ROUND_NOTES;
    const float *mine = change->notes + (uint64_t)(host->first_rank + replica) * LS_ROUND_NOTES;
    float *notes = host->memory->map(host, replica, LS_REPLICA_NOTES);
    *change->left_out = 0;
    if (mine[NOTE_UNDER_WAY] > 0 && mine[NOTE_TURNS] < furthest[NOTE_TURNS])
        blend(strategy, replica, (uint32_t)mine[NOTE_UNDER_WAY] - 1);
    for (uint32_t i = 0; i < strategy->fragments; i++) {
        double all = 0;
        for (uint32_t rank = 0; rank < host->world; rank++)
            all +=
                waiting_examples(change->notes + (uint64_t)rank * LS_ROUND_NOTES, furthest, i, 0);
        const double left = waiting_examples(furthest, furthest, i, 1) - all;
        *change->left_out = left > *change->left_out ? left : *change->left_out;
        notes[NOTE_EXAMPLES + 2 * i] = (float)waiting_examples(mine, furthest, i, 0);
        notes[NOTE_EXAMPLES + 2 * i + 1] = (float)all;
    }
    notes[NOTE_UNDER_WAY] = notes[NOTE_TAKEN] = notes[NOTE_TAKEN + 1] = 0;
    notes[NOTE_TURNS] = furthest[NOTE_TURNS];
    notes[NOTE_FRAGMENTS] = (float)strategy->fragments;
    notes[NOTE_WORLD] = (float)host->world;
    return LS_OK;
}

// ---- A step ----

// The sums are complete with bucket 0, and travel while backward goes on.
static int32_t diloco_gradient_ready(struct ls_strategy *strategy, uint32_t replica,
                                     uint32_t bucket)
{
    const struct ls_strategy_host *host = strategy->host;
    float sums[LS_STRATEGY_SUMS];
    if (bucket || strategy->broken[replica])
        return strategy->broken[replica];
    const int32_t status = host->step->read_sums(host, replica, sums);
    strategy->examples[replica] = sums[LS_SUMS_EXAMPLES];
    return status ? status : host->collectives->start(host, replica, strategy->sums[replica]);
}

// A replica without examples has no gradients, and keeps its weights.
static int32_t diloco_end_step(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_strategy_host *host = strategy->host;
    float sums[LS_STRATEGY_SUMS];
    uint64_t step;
    double rate; // the updates know it
    int32_t status = host->collectives->wait(host, replica, strategy->sums[replica]);
    if (!status)
        status = host->step->check_step(host, replica);
    if (!status)
        status = host->step->read_sums(host, replica, sums);
    const uint32_t updated = strategy->examples[replica] > 0 ? host->bucket_count : 0;
    for (uint32_t bucket = 0; !status && bucket < updated; bucket++)
        status = host->step->update(host, replica, bucket);
    host->step->current(host, replica, &step, &rate);
    return status ? status : take_turn_or_leave(strategy, replica, step, sums[LS_SUMS_EXAMPLES]);
}

// The table of both.
#define DILOCO_TABLE(open_with)                                                                 \
    .struct_size = sizeof(struct ls_strategy_interface),                                        \
    .state_bytes = sizeof(struct ls_strategy),                                                  \
    .traits = {.struct_size = sizeof(struct ls_strategy_traits),                                \
               .divisor = LS_DIVISOR_SHARE,                                                     \
               .equality = LS_EQUAL_AT_SYNCHRONISE},                                            \
    .needs_collective = 1, .norms = LS_NORM_OF_VARIABLES | LS_NORM_OF_ALL, .open = (open_with), \
    .close = diloco_close, .initialize_parameters = diloco_initialize,                          \
    .gradient_ready = diloco_gradient_ready, .end_step = diloco_end_step,                       \
    .synchronise = wait_for_difference, .rest = wait_for_difference, .rounds = 1,               \
    .workers_changed = diloco_workers_changed

#endif
