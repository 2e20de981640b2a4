// SPDX-License-Identifier: Apache-2.0
// A simulation from its checks to its result; events.c follows the messages.
#include "tools/simulate/simulator.h"
#include "core/topology/surroundings.h"

#include "core/base/log.h"
#include "core/base/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NONE LS_OUTLINE_NONE

// ---- What went wrong ----

static bool find_stuck(struct simulator *simulator, uint32_t *rank, uint32_t *step)
{
    for (*rank = 0; *rank < simulator->outline.world; ++*rank)
        for (*step = 0; *step < simulator->outline.ranks[*rank].shape->step_count; ++*step)
            if (*ls_simulator_state(simulator, *rank, *step) != LS_STEP_DONE)
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

static enum ls_status write_result(const struct simulator *simulator,
                                   struct ls_simulation_result *out)
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
        .busiest_share = simulator->now > 0 ? busy / simulator->now : 0,
        .messages = simulator->messages,
        .steps = simulator->steps_done,
        .rounds = simulator->outline.round_count,
        .sent_bytes = simulator->sent_bytes,
    };
    if (busy > 0)
        ls_fabric_link_text(&simulator->fabric, busiest, out->busiest, sizeof(out->busiest));
    const enum ls_status status =
        ls_fabric_bound(&simulator->fabric, simulation->operation, simulation->root,
                        (double)simulation->count * simulation->element_bytes, &out->bound_seconds);
    if (!status && simulation->rings)
        out->rings = ls_outline_rings(&simulator->outline);
    return status;
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
        .ranks_described = simulation->progress ? &simulation->progress->ranks_described : NULL,
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
    if (simulation->progress)
        __atomic_store_n(&simulation->progress->steps, simulator->outline.step_count,
                         __ATOMIC_RELAXED);
    ls_simulator_run(simulator);
    if (!simulator->status && simulator->steps_done != simulator->outline.step_count)
        return refuse_deadlock(simulator, call);
    return simulator->status;
}

static enum ls_status call_of(const struct ls_simulation *simulation,
                              struct ls_collective_call *out, struct ls_surroundings *around)
{
    const enum ls_status status =
        ls_surroundings_init(simulation->network, simulation->world, around);
    *out = (struct ls_collective_call){
        .struct_size = sizeof(struct ls_collective_call),
        .operation = simulation->operation,
        .world = simulation->world,
        .root = simulation->root,
        .hosts = around->hosts,
        .count = simulation->count,
        .element_bytes = simulation->element_bytes,
        .host = simulation->host,
        .cards = around->cards,
        .order = around->order,
    };
    return status;
}

static uint64_t memory_limit_of(const struct ls_simulation *simulation)
{
    return simulation->memory_limit ? simulation->memory_limit : memory_of_machine() / 4 * 3;
}

// Ranks may do more than those that are looked at, so what the one that does least needs is taken for all.
enum ls_status ls_simulation_fits(const struct ls_simulation *simulation)
{
    const uint32_t world = simulation->world;
    const uint32_t ranks[] = {0, world / 3, world / 2, world - 1};
    const uint64_t limit = memory_limit_of(simulation);
    struct ls_collective_call call;
    struct ls_surroundings around;
    uint64_t least = UINT64_MAX;
    if (call_of(simulation, &call, &around))
        return LS_OUT_OF_MEMORY;
    for (size_t i = 0; i < sizeof(ranks) / sizeof(*ranks); i++) {
        call.rank = ranks[i];
        struct ls_schedule_size size = {0};
        const enum ls_status status =
            ls_schedule_measure(simulation->collective, &call, LS_SIMULATED_STEPS_MOST, &size);
        if (status == LS_UNSUPPORTED) {
            ls_error("simulate", "%s does not serve %u ranks on this network: %s", simulation->name,
                     world, *size.reason ? size.reason : "it gives no reason; choose another");
            ls_surroundings_finish(&around);
            return status;
        }
        if (status) {
            least = 0; // why it fails is said when it is simulated
            break;
        }
        least = size.steps < least ? size.steps : least;
    }
    ls_surroundings_finish(&around);
    const double needed = (double)least * sizeof(uint32_t) * world; // a step has a state
    if (needed <= (double)limit)
        return LS_OK;
    ls_error(
        "simulate",
        "%s: %u ranks of %llu steps or more, %.3g in all, need at least %.1f GiB of memory; there "
        "are %.1f GiB for them, three quarters of this machine's; choose a smaller world",
        simulation->name, world, (unsigned long long)least, (double)least * world,
        needed / (1 << 30), (double)limit / (1 << 30));
    return LS_USAGE;
}

enum ls_status ls_simulate(const struct ls_simulation *simulation, struct ls_simulation_result *out)
{
    struct ls_collective_call call;
    struct ls_surroundings around;
    enum ls_status status = call_of(simulation, &call, &around);
    const double bytes = (double)simulation->count * simulation->element_bytes;
    const struct ls_protocol *protocol =
        ls_network_protocol(simulation->network, bytes, simulation->world);
    struct simulator simulator = {
        .simulation = simulation,
        .memory_limit = memory_limit_of(simulation),
        .stretch = ls_network_slowness(simulation->network, bytes, simulation->world),
        .latency = protocol ? protocol->latency : 0,
    };
    if (!status)
        status = simulate(&simulator, &call);
    ls_surroundings_finish(&around);
    if (!status)
        status = write_result(&simulator, out);
    finish(&simulator);
    return status;
}

double ls_bus_factor(uint32_t operation, uint32_t world)
{
    const double others = (world - 1.0) / world;
    switch (operation) {
    case LS_ALL_REDUCE: return 2 * others;
    case LS_REDUCE_SCATTER:
    case LS_ALL_GATHER:
    case LS_ALL_TO_ALL: return others;
    default: return 1;
    }
}
