// SPDX-License-Identifier: Apache-2.0
// The tuner as a collective: its table, and the candidate that draws the schedule of a call.
#include "core/collective/tuner_internal.h"

#include "core/base/log.h"
#include "core/schedule/schedule.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TRIED_CALLS_MOST (UINT64_C(1) << 20)
#define BASELINE "ring"
#define BY_TABLE SIZE_MAX

// ---- The hosts that build_schedule() is called with: the loader's, each with a candidate behind it ----

static const struct ls_tuner_host *host_of(const struct ls_host *host)
{
    return host->context;
}

static const struct ls_host *base_of(const struct ls_host *host)
{
    return host_of(host)->tuner->base;
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

static void init_host(struct ls_tuner *tuner, struct ls_tuner_host *host, size_t candidate)
{
    host->tuner = tuner;
    host->candidate = candidate;
    host->host = (struct ls_host){.struct_size = sizeof(host->host),
                                  .abi_minor = LS_PLUGIN_ABI_MINOR,
                                  .context = host,
                                  .log = host_log,
                                  .fail = host_fail,
                                  .allocate = host_allocate,
                                  .release = host_release,
                                  .clock_ns = host_clock_ns,
                                  .option = host_option};
}

// ---- Which candidate ----

// Rank 0 answers for all: what a call asks for is the same on every rank.
bool ls_tuner_does(const struct ls_tuner *tuner, size_t index,
                   const struct ls_collective_call *call)
{
    const struct ls_candidate *candidate = &tuner->candidates[index];
    const struct ls_collective_interface *interface = candidate->plugin->interface;
    if (atomic_load(&tuner->left_out[index]) ||
        (interface->maximum_world && call->world > interface->maximum_world))
        return false;
    struct ls_collective_call tried = *call;
    struct ls_schedule_size size;
    tried.rank = 0;
    tried.host = candidate->host;
    return ls_schedule_measure(interface, &tried, TRIED_CALLS_MOST, &size) == LS_OK;
}

int ls_tuner_class(uint64_t bytes)
{
    return (int)lround(log2((double)(bytes ? bytes : 1)));
}

// Within a class by the proportion. A row of a new class thus never takes sizes from one that
// there was.
static double distance(uint64_t a, uint64_t b)
{
    const double x = (double)(a ? a : 1), y = (double)(b ? b : 1);
    return abs(ls_tuner_class(a) - ls_tuner_class(b)) + fabs(log2(x / y)) / 128;
}

const struct ls_tuner_row *ls_tuner_nearest(const struct ls_tuner *tuner, uint32_t operation,
                                            uint64_t bytes)
{
    const struct ls_tuner_row *nearest = NULL;
    for (size_t i = 0; i < tuner->row_count; i++) {
        const struct ls_tuner_row *row = &tuner->rows[i];
        if (row->operation == operation &&
            (!nearest || distance(row->bytes, bytes) < distance(nearest->bytes, bytes)))
            nearest = row;
    }
    return nearest;
}

// That of the table, or where the call is of an operation that this does not do, or that has no
// rows, the first that does it.
static const struct ls_candidate *choose(const struct ls_tuner_host *host,
                                         const struct ls_collective_call *call)
{
    const struct ls_tuner *tuner = host->tuner;
    const uint64_t bytes = call->count * call->element_bytes;
    if (host->candidate != BY_TABLE)
        return &tuner->candidates[host->candidate];
    const struct ls_tuner_row *row = ls_tuner_nearest(tuner, call->operation, bytes);
    if (!row)
        row = ls_tuner_nearest(tuner, LS_ALL_REDUCE, bytes);
    if (row && ls_tuner_does(tuner, row->candidate, call))
        return &tuner->candidates[row->candidate];
    for (size_t i = 0; i < tuner->count; i++)
        if (ls_tuner_does(tuner, i, call))
            return &tuner->candidates[i];
    return NULL;
}

static void say_none(const struct ls_collective_call *call)
{
    ls_error("auto", "none of the candidates does %s on %u ranks; name a collective",
             ls_collective_operation_text(call->operation), call->world);
}

const char *ls_tuner_choose(const struct ls_tuner *tuner, const struct ls_collective_call *call)
{
    struct ls_collective_call asked = *call;
    if (!asked.hosts)
        asked.hosts = tuner->hosts;
    const struct ls_candidate *chosen = choose(&tuner->drawers[tuner->count], &asked);
    if (!chosen)
        say_none(call);
    return chosen ? chosen->name : NULL;
}

// The table does not change while schedules are drawn, so this is as pure as the candidates are.
static int32_t build_schedule(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    const struct ls_candidate *chosen = choose(host_of(call->host), call);
    if (!chosen) {
        say_none(call);
        return LS_UNSUPPORTED;
    }
    struct ls_collective_call passed = *call;
    passed.host = chosen->host;
    return ls_schedule_build(chosen->plugin->interface, &passed, schedule);
}

static const struct ls_candidate *behind(const struct ls_plugin *collective,
                                         const struct ls_collective_call *call)
{
    const struct ls_collective_interface *interface = collective->interface;
    return interface->build_schedule == build_schedule ? choose(host_of(call->host), call) : NULL;
}

const char *ls_tuner_name(const struct ls_plugin *collective, const struct ls_collective_call *call)
{
    const struct ls_candidate *candidate = behind(collective, call);
    return candidate ? candidate->name : collective->name;
}

const struct ls_host *ls_tuner_drawer(const struct ls_plugin *collective,
                                      const struct ls_collective_call *call)
{
    const struct ls_candidate *candidate = behind(collective, call);
    return candidate ? candidate->host : call->host;
}

// ---- The table ----

enum ls_status ls_tuner_append(struct ls_tuner *tuner, const struct ls_tuner_row *row)
{
    struct ls_tuner_row *rows = realloc(tuner->rows, (tuner->row_count + 1) * sizeof(*rows));
    if (!rows)
        return LS_OUT_OF_MEMORY;
    tuner->rows = rows;
    rows[tuner->row_count++] = *row;
    return LS_OK;
}

enum ls_status ls_tuner_add(struct ls_tuner *tuner, const char *scope, uint32_t world,
                            uint64_t bytes, const char *name)
{
    struct ls_tuner_row row = {.operation = LS_ALL_REDUCE, .bytes = bytes};
    const struct ls_collective_call call = {.struct_size = sizeof(call),
                                            .operation = LS_ALL_REDUCE,
                                            .world = world,
                                            .hosts = tuner->hosts,
                                            .count = bytes / sizeof(float),
                                            .element_bytes = sizeof(float)};
    while (row.candidate < tuner->count && strcmp(tuner->candidates[row.candidate].name, name))
        row.candidate++;
    if (row.candidate < tuner->count && ls_tuner_does(tuner, row.candidate, &call))
        return ls_tuner_append(tuner, &row);
    ls_error(scope,
             "%s %s on %u ranks, which the table names for %" PRIu64 " bytes; choose another", name,
             row.candidate < tuner->count ? "does not do an all-reduce"
                                          : "does not promise an all-reduce of all types",
             world, bytes);
    return LS_UNSUPPORTED;
}

const struct ls_tuner_row *ls_tuner_rows(const struct ls_tuner *tuner, size_t *count)
{
    *count = tuner->row_count;
    return tuner->rows;
}

size_t ls_tuner_candidates(const struct ls_tuner *tuner)
{
    return tuner->count;
}

const char *ls_tuner_candidate(const struct ls_tuner *tuner, size_t index)
{
    return tuner->candidates[index].name;
}

double ls_tuner_seconds(const struct ls_tuner *tuner)
{
    return (double)tuner->spent_ns * 1e-9;
}

// ---- Life ----

static bool may_be_chosen(const struct ls_candidate *candidate)
{
    const struct ls_collective_interface *interface = candidate->plugin->interface;
    return interface->build_schedule && !interface->dtypes && !interface->reductions &&
           interface->deterministic;
}

// The baseline comes first, the others in the order given.
static enum ls_status take_candidates(struct ls_tuner *tuner, const struct ls_candidate *candidates,
                                      size_t count)
{
    for (size_t i = 0; i < count && tuner->count < LS_TUNER_CANDIDATES; i++) {
        if (!may_be_chosen(&candidates[i])) {
            ls_debug("auto",
                     "%s is no candidate: it describes no schedule, does not do all types and "
                     "reductions, or does not promise equal bits on all ranks",
                     candidates[i].name);
            continue;
        }
        tuner->candidates[tuner->count] = candidates[i];
        if (strcmp(candidates[i].name, BASELINE) == 0) {
            memmove(tuner->candidates + 1, tuner->candidates,
                    tuner->count * sizeof(*tuner->candidates));
            tuner->candidates[0] = candidates[i];
        }
        tuner->count++;
    }
    if (tuner->count)
        return LS_OK;
    ls_error("auto",
             "none of %zu collectives does all types and reductions with equal bits on all "
             "ranks; name one",
             count);
    return LS_UNAVAILABLE;
}

enum ls_status ls_tuner_create(const struct ls_plugin *plugin, const struct ls_host *host,
                               const struct ls_candidate *candidates, size_t count,
                               struct ls_tuner **out)
{
    struct ls_tuner *tuner = calloc(1, sizeof(*tuner));
    if (!tuner)
        return LS_OUT_OF_MEMORY;
    tuner->base = host;
    tuner->interface = (struct ls_collective_interface){
        .struct_size = sizeof(tuner->interface),
        .operations = 1u << LS_ALL_REDUCE | 1u << LS_REDUCE_SCATTER | 1u << LS_ALL_GATHER |
                      1u << LS_BROADCAST | 1u << LS_REDUCE | 1u << LS_ALL_TO_ALL,
        .deterministic = 1,
        .build_schedule = build_schedule};
    tuner->plugin = *plugin;
    tuner->plugin.interface = &tuner->interface;
    const enum ls_status status = take_candidates(tuner, candidates, count);
    if (status) {
        ls_tuner_destroy(tuner);
        return status;
    }
    for (size_t i = 0; i < tuner->count; i++)
        init_host(tuner, &tuner->drawers[i], i);
    init_host(tuner, &tuner->drawers[tuner->count], BY_TABLE);
    *out = tuner;
    return LS_OK;
}

void ls_tuner_destroy(struct ls_tuner *tuner)
{
    if (!tuner)
        return;
    free(tuner->rows);
    free(tuner);
}

const struct ls_plugin *ls_tuner_plugin(const struct ls_tuner *tuner)
{
    return &tuner->plugin;
}

const struct ls_host *ls_tuner_host(const struct ls_tuner *tuner)
{
    return &tuner->drawers[tuner->count].host;
}

void ls_tuner_set_hosts(struct ls_tuner *tuner, const uint32_t *hosts)
{
    tuner->hosts = hosts;
}
