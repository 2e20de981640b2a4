// SPDX-License-Identifier: Apache-2.0
// Simulates exchanges and walks through steps.
#include "tools/compare/elsewhere.h"

#include "core/base/log.h"
#include "core/schedule/schedule.h"
#include "tools/simulate/simulation.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CYCLES 3 // the first may begin with nothing under way; the last one counts
#define NAME_LETTERS 1024

// ---- A row of steps ----

struct walk {
    const double *seconds; // of each exchange
    double *ends; // of each exchange, when it was last begun
    double now, network_free;
};

static void pass(struct walk *walk, const struct compare_work *work,
                 const struct compare_pace *pace)
{
    walk->now += pace->kernels * work->kernels + pace->rest * work->rest;
}

static void walk_step(struct walk *walk, const struct compare_recorded_step *step,
                      const struct compare_pace *pace)
{
    for (size_t i = 0; i < step->mark_count; i++) {
        const struct compare_mark *mark = &step->marks[i];
        double *end = &walk->ends[mark->exchange];
        pass(walk, &mark->work, pace);
        // Of one that begins again, too: its buffer is still under way.
        walk->now = fmax(walk->now, *end);
        if (mark->waits)
            continue;
        *end = fmax(walk->now, walk->network_free) + walk->seconds[mark->exchange];
        walk->network_free = *end;
    }
    pass(walk, &step->work, pace);
}

struct compare_work compare_mean_work(const struct compare_recording *cycle)
{
    struct compare_work sum = {0};
    for (size_t i = 0; i < cycle->step_count; i++) {
        const struct compare_recorded_step *step = &cycle->steps[i];
        for (size_t k = 0; k <= step->mark_count; k++) {
            const struct compare_work *work =
                k < step->mark_count ? &step->marks[k].work : &step->work;
            sum.kernels += work->kernels;
            sum.rest += work->rest;
        }
    }
    const double steps = (double)cycle->step_count;
    return (struct compare_work){sum.kernels / steps, sum.rest / steps};
}

static double exchange_seconds(const struct compare_recording *cycle, const double *seconds)
{
    double sum = 0;
    for (size_t i = 0; i < cycle->step_count; i++)
        for (size_t k = 0; k < cycle->steps[i].mark_count; k++)
            if (!cycle->steps[i].marks[k].waits)
                sum += seconds[cycle->steps[i].marks[k].exchange];
    return sum / (double)cycle->step_count;
}

struct compare_step_time compare_replay(const struct compare_recording *cycle,
                                        const double *seconds, const struct compare_pace *pace)
{
    struct walk walk = {.seconds = seconds};
    double begin = 0;
    if (cycle->step_count)
        walk.ends = calloc(cycle->exchange_count + 1, sizeof(*walk.ends));
    if (!walk.ends)
        return (struct compare_step_time){NAN, NAN, NAN};
    const struct compare_work work = compare_mean_work(cycle);
    for (int i = 0; i < CYCLES; i++) {
        begin = walk.now;
        for (size_t k = 0; k < cycle->step_count; k++)
            walk_step(&walk, &cycle->steps[k], pace);
    }
    free(walk.ends);
    return (struct compare_step_time){.seconds = (walk.now - begin) / (double)cycle->step_count,
                                      .work = pace->kernels * work.kernels + pace->rest * work.rest,
                                      .exchanges = exchange_seconds(cycle, seconds)};
}

// ---- Exchanges ----

static uint32_t operation_of(const char *text)
{
    for (uint32_t i = LS_ALL_REDUCE; i <= LS_ALL_TO_ALL; i++)
        if (strcmp(ls_collective_operation_text(i), text) == 0)
            return i;
    return 0;
}

static enum ls_status simulate(const struct compare_elsewhere *elsewhere,
                               const struct compare_exchange *exchange, double *seconds)
{
    char text[NAME_LETTERS];
    const struct ls_opened_plugin *opened = NULL;
    const bool has_options = elsewhere->options && *elsewhere->options && elsewhere->named &&
                             strcmp(elsewhere->named, exchange->algorithm) == 0;
    snprintf(text, sizeof(text), "%s%s%s", exchange->algorithm, has_options ? ":" : "",
             has_options ? elsewhere->options : "");
    const enum ls_status status =
        ls_loader_open_scheduled(elsewhere->loader, "--simulate-network", text, &opened);
    if (status)
        return status;
    const struct ls_simulation simulation = {.collective = opened->interface,
                                             .name = opened->plugin->name,
                                             .host = opened->host,
                                             .network = elsewhere->network,
                                             .operation = operation_of(exchange->operation),
                                             .world = elsewhere->world,
                                             .element_bytes = exchange->element_bytes,
                                             .count = exchange->count};
    struct ls_simulation_result result;
    const enum ls_status simulated = ls_simulate(&simulation, &result);
    if (!simulated)
        *seconds = result.seconds;
    return simulated;
}

static bool is_same(const struct compare_exchange *a, const struct compare_exchange *b)
{
    return strcmp(a->operation, b->operation) == 0 && strcmp(a->algorithm, b->algorithm) == 0 &&
           a->count == b->count && a->element_bytes == b->element_bytes;
}

enum ls_status compare_exchange_times(const struct compare_elsewhere *elsewhere,
                                      const struct compare_recording *cycle, double *seconds)
{
    enum ls_status status = LS_OK;
    for (size_t i = 0; !status && i < cycle->exchange_count; i++) {
        size_t before = 0;
        while (before < i && !is_same(&cycle->exchanges[before], &cycle->exchanges[i]))
            before++;
        if (before < i)
            seconds[i] = seconds[before];
        else
            status = simulate(elsewhere, &cycle->exchanges[i], &seconds[i]);
    }
    return status;
}
