// SPDX-License-Identifier: Apache-2.0
// strategy-lossy, for tests: diloco, whose process dies, or hears nothing more of the others, at
// moments that LOCKSTEP_LOSS names, words with commas between them, each for once:
//   turn:N        dies when it has received what turn N adds up, and another worker has made it
//   initialize:N  dies in the Nth session, when the workers have exchanged the training's state
//   regroup:N     dies in the Nth workers_changed, which others may have been through
//   unturned:N    does not receive what turn N adds up, as one whose exchange breaks off
//   unmade:N      the same of the sums of step N, which it does not make then
// The last two go on once a worker is lost. After each turn, and when workers have changed, it says
// on stderr what the weights and the momentum of the round are; a file made-N is there when a
// worker has made turn N.
#include "core/plugin/strategy.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_WAITS 30000 // of 2 ms each

const struct ls_plugin *diloco_plugin(void); // diloco's own, under another name

static const struct ls_strategy_interface *real;
static const struct ls_strategy_host *outer; // the core's
static struct ls_strategy_host inner; // the strategy's: the same with these calls
static struct ls_strategy_collectives collectives;
static struct ls_strategy_collective *sums, *under_way; // `under_way`: a difference, or NULL
static uint64_t sessions, regroups;

static int is_due(const char *what, uint64_t number)
{
    char word[48], *all = getenv("LOCKSTEP_LOSS");
    const int length = snprintf(word, sizeof(word), "%s:%" PRIu64, what, number);
    for (char *at = all ? strstr(all, word) : NULL; at; at = strstr(at + 1, word))
        if ((at == all || at[-1] == ',') && (!at[length] || at[length] == ',')) {
            *at = '-'; // done
            return 1;
        }
    return 0;
}

static void die_if_due(const char *what, uint64_t number)
{
    if (is_due(what, number))
        raise(SIGKILL);
}

// FNV-1a.
static uint64_t hash(uint32_t replica, uint32_t memory)
{
    const uint8_t *bytes = (const uint8_t *)outer->memory->map(outer, replica, memory);
    uint64_t sum = UINT64_C(14695981039346656037);
    for (uint64_t i = 0; i < outer->flat_count * sizeof(float); i++)
        sum = (sum ^ bytes[i]) * UINT64_C(1099511628211);
    return sum;
}

static uint64_t turns(uint32_t replica)
{
    return (uint64_t)outer->memory->map(outer, replica, LS_REPLICA_NOTES)[LS_ROUND_NOTE_TURNS];
}

static void say(const char *when, uint32_t replica)
{
    fprintf(stderr, "%s: turn %" PRIu64 ", round %016" PRIx64 ", momentum %016" PRIx64 "\n", when,
            turns(replica), hash(replica, LS_REPLICA_ROUND), hash(replica, LS_REPLICA_MOMENTUM));
}

static void pause_a_little(void)
{
    const struct timespec pause = {.tv_nsec = 2 * 1000 * 1000};
    nanosleep(&pause, NULL);
}

// Until another worker is lost: the barrier of a worker's only replica is passed at once.
static int32_t lose_others(uint32_t replica)
{
    int32_t status = LS_OK;
    for (int i = 0; !status && i < MOST_WAITS; i++) {
        status = outer->threads->barrier(outer, replica);
        pause_a_little();
    }
    return status ? status : ls_host_fail(outer->host, LS_FAILED, "nobody was lost");
}

static void name_made(char name[static 32], uint64_t turn)
{
    snprintf(name, 32, "made-%" PRIu64, turn);
}

static void die_after_turn(uint64_t turn)
{
    char name[32];
    name_made(name, turn);
    for (int i = 0; access(name, F_OK) && i < MOST_WAITS; i++)
        pause_a_little();
    raise(SIGKILL);
}

static int32_t wait_for_sums(uint32_t replica)
{
    uint64_t step;
    double rate;
    int32_t status = outer->collectives->wait(outer, replica, sums);
    outer->step->current(outer, replica, &step, &rate);
    if (status || !is_due("unmade", step))
        return status;
    if (under_way) // the others get what they add up
        status = outer->collectives->wait(outer, replica, under_way);
    return status ? status : lose_others(replica);
}

static int32_t lossy_wait(const struct ls_strategy_host *host, uint32_t replica,
                          struct ls_strategy_collective *collective)
{
    const uint64_t turn = turns(replica) + 1;
    (void)host;
    if (collective == sums)
        return wait_for_sums(replica);
    const int32_t status = outer->collectives->wait(outer, replica, collective);
    under_way = NULL;
    if (!status && is_due("turn", turn))
        die_after_turn(turn);
    return !status && is_due("unturned", turn) ? lose_others(replica) : status;
}

static int32_t lossy_start(const struct ls_strategy_host *host, uint32_t replica,
                           struct ls_strategy_collective *collective)
{
    (void)host;
    under_way = collective == sums ? under_way : collective;
    return outer->collectives->start(outer, replica, collective);
}

static int32_t lossy_prepare(const struct ls_strategy_host *host, uint32_t replica,
                             const struct ls_strategy_operation *operation,
                             struct ls_strategy_collective **out)
{
    const int32_t status = outer->collectives->prepare(outer, replica, operation, out);
    (void)host;
    if (!status && operation->memory == LS_REPLICA_SUMS)
        sums = *out;
    return status;
}

static int32_t lossy_open(const struct ls_strategy_host *host, struct ls_strategy *strategy)
{
    outer = host;
    inner = *host;
    collectives = *host->collectives;
    collectives.prepare = lossy_prepare;
    collectives.start = lossy_start;
    collectives.wait = lossy_wait;
    inner.collectives = &collectives;
    return real->open(&inner, strategy);
}

static int32_t lossy_initialize(struct ls_strategy *strategy, uint32_t replica)
{
    die_if_due("initialize", ++sessions);
    under_way = NULL;
    return real->initialize_parameters(strategy, replica);
}

static int32_t lossy_end_step(struct ls_strategy *strategy, uint32_t replica)
{
    char name[32];
    const uint64_t before = turns(replica);
    const int32_t status = real->end_step(strategy, replica);
    if (!status && turns(replica) > before) {
        say("made", replica);
        name_made(name, turns(replica));
        FILE *file = fopen(name, "w");
        if (file)
            fclose(file);
    }
    return status;
}

static int32_t lossy_workers_changed(struct ls_strategy *strategy, uint32_t replica,
                                     const struct ls_round_change *change)
{
    die_if_due("regroup", ++regroups);
    const int32_t status = real->workers_changed(strategy, replica, change);
    say("regrouped", replica);
    return status;
}

LS_EXPORT const struct ls_plugin *lockstep_plugin(void);
LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    static struct ls_strategy_interface interface;
    static struct ls_plugin plugin;
    plugin = *diloco_plugin();
    real = plugin.interface;
    interface = *real;
    interface.open = lossy_open;
    interface.initialize_parameters = lossy_initialize;
    interface.end_step = lossy_end_step;
    interface.workers_changed = lossy_workers_changed;
    plugin.name = "lossy";
    plugin.summary = "for tests: diloco, with workers that are lost when it is asked for";
    plugin.interface = &interface;
    return &plugin;
}
