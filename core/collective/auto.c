// SPDX-License-Identifier: Apache-2.0
// Chooses among collectives by simulating them.
#include "core/collective/auto.h"

#include "core/base/log.h"
#include "core/collective/schedule.h"
#include "core/collective/simulate.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

// What was decided for calls of one form.
struct decision {
    uint32_t operation, world, root, element_bytes;
    uint64_t count;
    size_t candidate;
    struct decision *next;
};

struct ls_auto {
    struct ls_plugin plugin;
    struct ls_collective_interface interface;
    struct ls_host host; // whose context is this
    const struct ls_host *base; // as the loader made it
    struct ls_candidate *candidates;
    size_t count;
    struct ls_network network;
    pthread_mutex_t lock; // of the decisions
    struct decision *decisions;
};

// ---- The host that describe() is called with: the loader's, with our context ----

static const struct ls_host *base_of(const struct ls_host *host)
{
    return ((const struct ls_auto *)host->context)->base;
}

static void host_log(const struct ls_host *host, uint32_t level, const char *message)
{
    base_of(host)->log(base_of(host), level, message);
}

static int32_t host_fail(const struct ls_host *host, int32_t status, const char *message)
{
    return base_of(host)->fail(base_of(host), status, message);
}

static void *host_allocate(const struct ls_host *host, uint64_t bytes, uint64_t alignment)
{
    return base_of(host)->allocate(base_of(host), bytes, alignment);
}

static void host_release(const struct ls_host *host, void *memory)
{
    base_of(host)->release(base_of(host), memory);
}

static uint64_t host_clock_ns(const struct ls_host *host)
{
    return base_of(host)->clock_ns(base_of(host));
}

static const char *host_option(const struct ls_host *host, const char *name)
{
    return base_of(host)->option(base_of(host), name);
}

// ---- Whether a candidate does a call at all: tried with a host and a schedule that keep quiet ----

struct quiet {
    struct ls_host host;
    const struct ls_host *base;
};

static void quiet_log(const struct ls_host *host, uint32_t level, const char *message)
{
    (void)host, (void)level, (void)message;
}

static int32_t quiet_fail(const struct ls_host *host, int32_t status, const char *message)
{
    (void)host, (void)message;
    return status ? status : LS_FAILED;
}

static const char *quiet_option(const struct ls_host *host, const char *name)
{
    const struct ls_host *base = ((const struct quiet *)host->context)->base;
    return base->option(base, name);
}

static int32_t ignore_step(struct ls_schedule *schedule, const struct ls_step *step)
{
    (void)schedule, (void)step;
    return LS_OK;
}

static int32_t ignore_end(struct ls_schedule *schedule)
{
    (void)schedule;
    return LS_OK;
}

static int32_t ignore_scratch(struct ls_schedule *schedule, uint64_t count)
{
    (void)schedule, (void)count;
    return LS_OK;
}

// Rank 0 answers for all: what a call asks for is the same on every rank.
static bool does(const struct ls_candidate *candidate, const struct ls_collective_call *call)
{
    const struct ls_collective_interface *interface = candidate->plugin->interface;
    if (interface->maximum_world && call->world > interface->maximum_world)
        return false;
    struct quiet quiet = {.host = *candidate->host, .base = candidate->host};
    quiet.host.context = &quiet;
    quiet.host.log = quiet_log;
    quiet.host.fail = quiet_fail;
    quiet.host.option = quiet_option;
    struct ls_collective_call tried = *call;
    tried.rank = 0;
    tried.host = &quiet.host;
    struct ls_schedule schedule = {.struct_size = sizeof(schedule),
                                   .add = ignore_step,
                                   .end_round = ignore_end,
                                   .scratch = ignore_scratch};
    return ls_schedule_describe(interface, &tried, &schedule) == LS_OK;
}

// ---- The decision ----

static enum ls_status time_of(const struct ls_auto *choice, const struct ls_candidate *candidate,
                              const struct ls_collective_call *call, double *seconds)
{
    const struct ls_simulation simulation = {.collective = candidate->plugin->interface,
                                             .name = candidate->plugin->name,
                                             .host = candidate->host,
                                             .network = &choice->network,
                                             .operation = call->operation,
                                             .world = call->world,
                                             .root = call->root,
                                             .element_bytes = call->element_bytes,
                                             .count = call->count};
    struct ls_simulation_result result;
    const enum ls_status status = ls_simulate(&simulation, &result);
    if (!status)
        *seconds = result.seconds;
    return status;
}

static enum ls_status decide(const struct ls_auto *choice, const struct ls_collective_call *call,
                             size_t *out)
{
    double best = 0;
    size_t found = choice->count;
    for (size_t i = 0; i < choice->count; i++) {
        const struct ls_candidate *candidate = &choice->candidates[i];
        double seconds = 0;
        if (!does(candidate, call))
            continue;
        const enum ls_status status = time_of(choice, candidate, call, &seconds);
        if (status)
            return status;
        ls_debug("auto", "%s: %s of %llu elements on %u ranks takes %.3g us on network %s",
                 candidate->plugin->name, ls_collective_operation_text(call->operation),
                 (unsigned long long)call->count, call->world, seconds * 1e6, choice->network.name);
        if (found == choice->count || seconds < best) {
            found = i;
            best = seconds;
        }
    }
    if (found == choice->count) {
        ls_error("auto", "none of the candidates does %s on %u ranks; name a collective",
                 ls_collective_operation_text(call->operation), call->world);
        return LS_UNSUPPORTED;
    }
    *out = found;
    return LS_OK;
}

static bool same(const struct decision *decision, const struct ls_collective_call *call)
{
    return decision->operation == call->operation && decision->world == call->world &&
           decision->root == call->root && decision->element_bytes == call->element_bytes &&
           decision->count == call->count;
}

static enum ls_status decide_once(struct ls_auto *choice, const struct ls_collective_call *call,
                                  size_t *out)
{
    for (const struct decision *known = choice->decisions; known; known = known->next)
        if (same(known, call)) {
            *out = known->candidate;
            return LS_OK;
        }
    struct decision *decision = calloc(1, sizeof(*decision));
    if (!decision)
        return LS_OUT_OF_MEMORY;
    *decision = (struct decision){.operation = call->operation,
                                  .world = call->world,
                                  .root = call->root,
                                  .element_bytes = call->element_bytes,
                                  .count = call->count,
                                  .next = choice->decisions};
    const enum ls_status status = decide(choice, call, &decision->candidate);
    if (status) {
        free(decision);
        return status;
    }
    choice->decisions = decision;
    *out = decision->candidate;
    return LS_OK;
}

static enum ls_status choose(struct ls_auto *choice, const struct ls_collective_call *call,
                             const struct ls_candidate **out)
{
    size_t index = 0;
    pthread_mutex_lock(&choice->lock);
    const enum ls_status status = decide_once(choice, call, &index);
    pthread_mutex_unlock(&choice->lock);
    if (!status)
        *out = &choice->candidates[index];
    return status;
}

enum ls_status ls_auto_choose(struct ls_auto *choice, const struct ls_collective_call *call,
                              const char **name)
{
    const struct ls_candidate *chosen;
    const enum ls_status status = choose(choice, call, &chosen);
    if (!status)
        *name = chosen->plugin->name;
    return status;
}

// The decision is the same for every rank and every time, so this is as pure as the candidates are.
static int32_t describe(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const struct ls_candidate *chosen;
    const enum ls_status status = choose(call->host->context, call, &chosen);
    if (status)
        return (int32_t)status;
    struct ls_collective_call passed = *call;
    passed.host = chosen->host;
    return ls_schedule_describe(chosen->plugin->interface, &passed, schedule);
}

// ---- Life ----

static bool may_be_chosen(const struct ls_candidate *candidate)
{
    const struct ls_collective_interface *interface = candidate->plugin->interface;
    return interface->describe && !interface->dtypes && !interface->reductions &&
           interface->deterministic;
}

static enum ls_status take_candidates(struct ls_auto *choice, const struct ls_candidate *candidates,
                                      size_t count)
{
    choice->candidates = calloc(count, sizeof(*choice->candidates));
    if (!choice->candidates)
        return LS_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++) {
        if (may_be_chosen(&candidates[i]))
            choice->candidates[choice->count++] = candidates[i];
        else
            ls_debug("auto",
                     "%s is no candidate: it describes no schedule, does not do all types and "
                     "reductions, or does not promise equal bits on all ranks",
                     candidates[i].plugin->name);
    }
    if (choice->count)
        return LS_OK;
    ls_error("auto",
             "none of %zu collectives does all types and reductions with equal bits on all "
             "ranks; name one",
             count);
    return LS_UNAVAILABLE;
}

enum ls_status ls_auto_create(const struct ls_plugin *plugin, const struct ls_host *host,
                              const struct ls_candidate *candidates, size_t count,
                              const struct ls_network *network, struct ls_auto **out)
{
    struct ls_auto *choice = calloc(1, sizeof(*choice));
    if (!choice)
        return LS_OUT_OF_MEMORY;
    pthread_mutex_init(&choice->lock, NULL);
    choice->network = *network;
    choice->base = host;
    choice->host = (struct ls_host){.struct_size = sizeof(choice->host),
                                    .abi_minor = LS_PLUGIN_ABI_MINOR,
                                    .context = choice,
                                    .log = host_log,
                                    .fail = host_fail,
                                    .allocate = host_allocate,
                                    .release = host_release,
                                    .clock_ns = host_clock_ns,
                                    .option = host_option};
    choice->interface = (struct ls_collective_interface){
        .struct_size = sizeof(choice->interface),
        .operations = 1u << LS_ALL_REDUCE | 1u << LS_REDUCE_SCATTER | 1u << LS_ALL_GATHER |
                      1u << LS_BROADCAST | 1u << LS_REDUCE,
        .deterministic = 1,
        .describe = describe};
    choice->plugin = *plugin;
    choice->plugin.interface = &choice->interface;
    const enum ls_status status = take_candidates(choice, candidates, count);
    if (status) {
        ls_auto_destroy(choice);
        return status;
    }
    *out = choice;
    return LS_OK;
}

void ls_auto_destroy(struct ls_auto *choice)
{
    if (!choice)
        return;
    while (choice->decisions) {
        struct decision *decision = choice->decisions;
        choice->decisions = decision->next;
        free(decision);
    }
    pthread_mutex_destroy(&choice->lock);
    free(choice->candidates);
    free(choice);
}

const struct ls_plugin *ls_auto_plugin(const struct ls_auto *choice)
{
    return &choice->plugin;
}

const struct ls_host *ls_auto_host(const struct ls_auto *choice)
{
    return &choice->host;
}

const char *ls_auto_name(const struct ls_plugin *collective, const struct ls_collective_call *call)
{
    const struct ls_collective_interface *interface = collective->interface;
    const char *name = collective->name;
    if (interface->describe == describe && ls_auto_choose(call->host->context, call, &name))
        return collective->name;
    return name;
}
