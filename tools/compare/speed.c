// SPDX-License-Identifier: Apache-2.0
// Blocks of fresh processes, and their turns.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // getrandom
#endif
#include "tools/compare/speed.h"

#include "core/base/log.h"
#include "core/base/random.h"
#include "core/data/data.h"
#include "tools/compare/figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define BLOCKS_LEAST 10
#define BLOCKS_MOST 1000
#define TURNS 4 // of a process in its block, besides the first, which warms it up
#define TURNS_LEAST 2
#define TURNS_NS UINT64_C(1000000000) // of one process; longer turns are fewer
#define TURN_NS UINT64_C(50000000) // at least
#define TURN_STEPS 3 // at least, and one that is not timed
#define TURN_STEPS_MOST UINT64_C(1000000)
#define TRIES 8 // to make a turn long enough

struct turn {
    uint64_t ns, steps, examples;
};

// One block: `race` has a process of each run that is timed.
struct block {
    struct compare_race race;
    size_t *run_of; // index of the run that each process is of
    double (*rates)[TURNS]; // of each process, by turn
    struct turn *last; // of each process
    uint64_t *steps; // timed, of each process
    uint32_t *order;
    uint64_t seed;
    uint64_t shuffles;
};

// Each run is as likely at each place, so none always follows the same other one.
static void shuffle(struct block *block)
{
    ls_random_permutation(ls_random_key(block->seed, block->shuffles++), block->order,
                          block->race.count);
}

// Steps that take a little longer than the least turn, by what the last turn took.
static uint64_t steps_for(const struct compare_race *race, const struct turn *last)
{
    uint64_t steps = race->turn_steps > TURN_STEPS ? race->turn_steps : TURN_STEPS;
    if (last->ns) {
        const double wanted = 1.2 * (double)TURN_NS * (double)last->steps / (double)last->ns;
        if (wanted > (double)steps)
            steps = wanted < (double)TURN_STEPS_MOST ? (uint64_t)ceil(wanted) : TURN_STEPS_MOST;
    }
    return steps + 1;
}

// A turn of at least 50 ms: where the steps given were too few, the process goes on. False when interrupted.
static bool take_turn(struct block *block, size_t process, struct turn *out)
{
    struct compare_runner *runner = &block->race.runners[process];
    struct turn turn = {0}, *last = &block->last[process];
    for (int i = 0; i < TRIES && turn.ns < TURN_NS && compare_race_is_running(runner); i++) {
        if (!compare_race_turn(&block->race, runner, steps_for(&block->race, last)))
            return false;
        *last = (struct turn){.ns = atomic_load(&runner->shared->timed_ns),
                              .steps = atomic_load(&runner->shared->timed_steps),
                              .examples = atomic_load(&runner->shared->timed_examples)};
        turn.ns += last->ns;
        turn.steps += last->steps;
        turn.examples += last->examples;
    }
    *out = turn;
    return true;
}

// All take a turn; `number` is -1 where it only warms them up. False when interrupted.
static bool take_turns(struct block *block, int number)
{
    shuffle(block);
    for (size_t i = 0; i < block->race.count; i++) {
        const size_t process = block->order[i];
        struct turn turn;
        if (!compare_race_is_running(&block->race.runners[process]))
            continue;
        if (!take_turn(block, process, &turn))
            return false;
        if (number < 0 || !compare_race_is_running(&block->race.runners[process]))
            continue;
        block->rates[process][number] = (double)turn.examples / ((double)turn.ns * 1e-9);
        block->steps[process] += turn.steps;
    }
    return true;
}

// As many as fit into a second of the slowest.
static int turn_count(const struct block *block)
{
    uint64_t longest = TURN_NS;
    for (size_t i = 0; i < block->race.count; i++)
        if (block->last[i].ns > longest)
            longest = block->last[i].ns;
    const uint64_t fit = TURNS_NS / longest;
    return fit > TURNS ? TURNS : fit < TURNS_LEAST ? TURNS_LEAST : (int)fit;
}

static double median(const double *values, int count)
{
    double sorted[TURNS];
    memcpy(sorted, values, (size_t)count * sizeof(*sorted));
    compare_sort(sorted, (size_t)count);
    return compare_quantile(sorted, (size_t)count, 0.5);
}

// ---- A block ----

static void finish(struct block *block)
{
    compare_race_finish(&block->race);
    free(block->run_of);
    free(block->rates);
    free(block->last);
    free(block->steps);
    free(block->order);
}

static bool is_timed(const struct compare_runner *runner)
{
    return !runner->hidden && runner->ready && runner->end == COMPARE_ENDED && runner->code == 0;
}

static enum ls_status init(struct block *block, const struct compare_race *race,
                           struct ls_data *train, uint64_t seed)
{
    *block = (struct block){.seed = seed,
                            .race = {.setting = race->setting,
                                     .workers = race->workers,
                                     .deadline_ns = race->deadline_ns,
                                     .turn_steps = race->turn_steps,
                                     .quiet = race->quiet,
                                     .says = race->says}};
    const size_t most = race->count + 1;
    block->run_of = calloc(most, sizeof(*block->run_of));
    block->rates = calloc(most, sizeof(*block->rates));
    block->last = calloc(most, sizeof(*block->last));
    block->steps = calloc(most, sizeof(*block->steps));
    block->order = calloc(most, sizeof(*block->order));
    if (!block->run_of || !block->rates || !block->last || !block->steps || !block->order)
        return LS_OUT_OF_MEMORY;
    for (size_t i = 0; i < race->count; i++) {
        if (!is_timed(&race->runners[i]))
            continue;
        struct compare_entry entry = race->runners[i].entry;
        entry.timed = true;
        entry.train = train;
        const enum ls_status status = compare_race_add(&block->race, &entry, false);
        if (status)
            return status;
        block->run_of[block->race.count - 1] = i;
    }
    return LS_OK;
}

static enum ls_status prepare(struct block *block)
{
    shuffle(block);
    for (size_t i = 0; i < block->race.count; i++) {
        const enum ls_status status =
            compare_race_prepare(&block->race, &block->race.runners[block->order[i]]);
        if (status)
            return status;
    }
    return LS_OK;
}

// A process that failed within the steps that its run trained is a failure of the run. What happens after more steps is
// not what was asked for: a training may diverge there.
static void judge(struct compare_runner *run, struct compare_runner *process)
{
    if (process->end == COMPARE_ENDED && process->code == 0)
        return;
    const bool later = process->end == COMPARE_ENDED && process->ready && process->message &&
                       process->given > run->shared->steps;
    if (later && !run->speed.failed)
        ls_warn("compare",
                "%s: its speed is not known from all processes: after more than %llu "
                "steps one ended with: %s",
                run->entry.strategy, (unsigned long long)run->shared->steps, process->message);
    run->speed.failed = true;
    if (later)
        return;
    run->end = process->end;
    run->code = process->code;
    run->signal = process->signal;
    run->worker = process->worker;
    run->given = process->given;
    run->waited_ns = process->waited_ns;
    free(run->message);
    run->message = process->message;
    process->message = NULL;
}

static enum ls_status keep(struct compare_race *race, struct block *block, int turns)
{
    for (size_t i = 0; i < block->race.count; i++) {
        struct compare_runner *run = &race->runners[block->run_of[i]];
        struct compare_speed *speed = &run->speed;
        judge(run, &block->race.runners[i]);
        double *grown =
            realloc(speed->turns, (speed->turn_count + (size_t)turns) * sizeof(*speed->turns));
        if (!grown)
            return LS_OUT_OF_MEMORY;
        speed->turns = grown;
        const struct compare_runner *process = &block->race.runners[i];
        if (process->end != COMPARE_ENDED || process->code)
            continue;
        memcpy(speed->turns + speed->turn_count, block->rates[i],
               (size_t)turns * sizeof(*speed->turns));
        speed->turn_count += (size_t)turns;
        speed->processes[race->blocks] = median(block->rates[i], turns);
        speed->steps += block->steps[i];
    }
    race->blocks++;
    return LS_OK;
}

// A word of 0 ends them, one by one.
static bool end(struct block *block)
{
    for (size_t i = 0; i < block->race.count; i++) {
        struct compare_runner *runner = &block->race.runners[i];
        if (compare_race_is_running(runner) && !compare_race_turn(&block->race, runner, 0))
            return false;
    }
    return true;
}

static enum ls_status run_block(struct compare_race *race, struct ls_data *train, uint64_t seed)
{
    struct block block;
    enum ls_status status = init(&block, race, train, seed);
    if (!status)
        status = prepare(&block);
    bool whole = !status && take_turns(&block, -1);
    const int turns = turn_count(&block);
    for (int i = 0; whole && i < turns; i++)
        whole = take_turns(&block, i);
    whole = whole && end(&block);
    if (!status && !whole)
        status = LS_INTERRUPTED;
    if (!status)
        status = keep(race, &block, turns);
    if (status == LS_INTERRUPTED)
        compare_race_end_all(&block.race);
    finish(&block);
    return status;
}

// ---- All of them ----

// Steps that a process of a run takes, on average; 0: none has come to its end.
static double steps_of_process(const struct compare_race *race, const struct compare_speed *speed)
{
    size_t processes = 0;
    for (size_t i = 0; speed->steps && i < race->blocks; i++)
        processes += isfinite(speed->processes[i]);
    return processes ? (double)speed->steps / (double)processes : 0;
}

// As many as take `steps` steps in the run that makes the fewest, judging by the blocks that there are.
static size_t block_count(const struct compare_race *race, uint64_t steps)
{
    double count = BLOCKS_LEAST;
    for (size_t i = 0; i < race->count; i++) {
        const double taken = steps_of_process(race, &race->runners[i].speed);
        if (taken > 0)
            count = fmax(count, ceil((double)steps / taken));
    }
    return (size_t)fmin(count, BLOCKS_MOST);
}

static enum ls_status init_speeds(struct compare_race *race)
{
    for (size_t i = 0; i < race->count; i++) {
        struct compare_speed *speed = &race->runners[i].speed;
        if (!is_timed(&race->runners[i]))
            continue;
        speed->processes = malloc(BLOCKS_MOST * sizeof(*speed->processes));
        if (!speed->processes)
            return LS_OUT_OF_MEMORY;
        for (size_t k = 0; k < BLOCKS_MOST; k++)
            speed->processes[k] = NAN;
    }
    return LS_OK;
}

static void say_nothing(void *context, uint32_t level, const char *line)
{
    (void)context;
    (void)level;
    (void)line;
}

// Reading takes longer than all else that a process does before its first step, and each would read the same. What there is
// to say of the data was said when the runs trained. NULL: each process reads for itself.
struct ls_data *compare_speed_data(const struct compare_setting *setting)
{
    const struct ls_dataset *dataset = NULL;
    struct ls_data *data = NULL;
    ls_log_set_writer(say_nothing, NULL);
    if (ls_data_open(setting->dataset, "train", &data) || ls_data_wait(data, &dataset)) {
        ls_data_close(data);
        data = NULL;
    }
    ls_log_set_writer(NULL, NULL);
    return data;
}

enum ls_status compare_speed_run(struct compare_race *race, uint64_t steps)
{
    uint64_t seed = 0;
    (void)!getrandom(&seed, sizeof(seed), 0);
    enum ls_status status = init_speeds(race);
    struct ls_data *train = status ? NULL : compare_speed_data(race->setting);
    size_t count = BLOCKS_LEAST;
    for (size_t i = 0; !status && i < count; i++) {
        char what[96];
        snprintf(what, sizeof(what), "speed: process %zu of %zu of each run", i + 1, count);
        compare_race_show(race, what, NULL);
        status = run_block(race, train, ls_random_key(seed, i));
        count = block_count(race, steps);
    }
    ls_data_close(train);
    compare_race_show(race, NULL, NULL);
    return status;
}
