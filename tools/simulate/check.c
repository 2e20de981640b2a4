// SPDX-License-Identifier: Apache-2.0
// Finds the largest world that the verifier takes, and verifies it. The verifier goes through some million steps a second
// and takes LS_VERIFY_STEPS of them; so no world takes it longer than a minute.
#include "tools/simulate/check.h"

#include "core/topology/surroundings.h"

#include "core/base/log.h"
#include "core/schedule/schedule.h"
#include "core/schedule/verify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <stdbool.h>
#include <stdio.h>

#define SMALLEST_WORLD 4 // smaller ones say little of larger ones
#define FAR 16

static uint32_t ranks_per_host(const struct ls_simulation *simulation)
{
    const uint32_t ranks_per_node = simulation->network->ranks_per_node;
    return ranks_per_node > 1 ? ranks_per_node : 0;
}

static struct ls_collective_call call_in(const struct ls_simulation *simulation, uint32_t world,
                                         uint64_t count)
{
    return (struct ls_collective_call){.struct_size = sizeof(struct ls_collective_call),
                                       .operation = simulation->operation,
                                       .world = world,
                                       .root = simulation->root < world ? simulation->root : 0,
                                       .count = count,
                                       .element_bytes = simulation->element_bytes,
                                       .host = simulation->host};
}

// Whether the verifier takes so many steps and rounds as all ranks have if they have as many as the busiest of some.
static bool fits(const struct ls_simulation *simulation, uint32_t world)
{
    const uint32_t ranks[] = {0, world / 2, world - 1};
    struct ls_collective_call call = call_in(simulation, world, simulation->count);
    uint64_t most = 0;
    struct ls_surroundings around;
    if (world > LS_VERIFY_WORLD || simulation->count > LS_VERIFY_COUNT ||
        ls_surroundings_init(simulation->network, world, &around))
        return false;
    call.hosts = around.hosts;
    call.cards = around.cards;
    call.order = around.order;
    for (size_t i = 0; i < sizeof(ranks) / sizeof(*ranks); i++) {
        call.rank = ranks[i];
        struct ls_schedule_size size = {0};
        if (ls_schedule_measure(simulation->collective, &call, LS_VERIFY_STEPS, &size)) {
            most = 0; // the verifier says why
            break;
        }
        most = size.steps + size.rounds > most ? size.steps + size.rounds : most;
    }
    ls_surroundings_finish(&around);
    return most * world <= LS_VERIFY_STEPS;
}

// Whether the ranks fill as many hosts, or leave one of them part empty, as those that are simulated.
static bool fills_hosts(const struct ls_simulation *simulation, uint32_t world)
{
    const uint32_t hosts = simulation->network->ranks_per_node;
    return hosts < 2 || (simulation->world % hosts == 0) == (world % hosts == 0);
}

static bool has_same_small_divisors(uint32_t a, uint32_t b)
{
    static const uint32_t primes[] = {2, 3, 5, 7, 11, 13};
    for (size_t i = 0; i < sizeof(primes) / sizeof(*primes); i++)
        if ((a % primes[i] == 0) != (b % primes[i] == 0))
            return false;
    return true;
}

// A smaller world that collectives treat alike, which look for powers of two, grids and hosts: the next divisor; where that is
// far away (of a prime number there is none), a world of the same small divisors. 0: none.
static uint32_t smaller_world(const struct ls_simulation *simulation, uint32_t than)
{
    uint32_t world = than - 1;
    while (world >= SMALLEST_WORLD &&
           (simulation->world % world || !fills_hosts(simulation, world)))
        world--;
    if (world >= than / FAR)
        return world;
    for (world = than / 2; world >= SMALLEST_WORLD; world--)
        if (has_same_small_divisors(simulation->world, world) && fills_hosts(simulation, world))
            return world;
    return 0;
}

static enum ls_status verify(const struct ls_simulation *simulation, const char *label,
                             const char *text, uint32_t world, uint64_t count, uint32_t *verdict)
{
    const struct ls_collective_call call = call_in(simulation, world, count);
    struct ls_surroundings around;
    enum ls_status status = ls_surroundings_init(simulation->network, world, &around);
    if (status)
        return status;
    const struct ls_verify_case verified = {.operation = call.operation,
                                            .world = world,
                                            .root = call.root,
                                            .hosts = around.hosts,
                                            .cards = around.cards,
                                            .order = around.order,
                                            .count = count,
                                            .element_bytes = call.element_bytes};
    struct ls_verification found;
    status = ls_verify_schedule(simulation->collective, simulation->host, &verified, &found);
    ls_surroundings_finish(&around);
    if (status)
        return status;
    *verdict = found.verdict;
    if (found.verdict == LS_VERDICT_HOLDS || found.verdict == LS_VERDICT_DECLINED ||
        found.verdict == LS_VERDICT_LIMIT)
        return LS_OK;
    ls_error("simulate",
             "%s is wrong and is not simulated: %s of %" PRIu64 " elements, %u ranks: %s; lockstep "
             "verify %s --world=%u --count=%" PRIu64 " --ranks-per-host=%u --operation=%s shows it",
             label, ls_collective_operation_text(call.operation), count, world, found.reason, text,
             world, count, ranks_per_host(simulation),
             ls_collective_operation_text(call.operation));
    return LS_FAILED;
}

enum ls_status simulate_check(const struct ls_simulation *simulation, const char *label,
                              const char *text, uint32_t *verified_world)
{
    const uint64_t count = simulation->count;
    *verified_world = 0;
    for (uint32_t world = simulation->world; world; world = smaller_world(simulation, world)) {
        uint32_t verdict = LS_VERDICT_LIMIT;
        if (!fits(simulation, world))
            continue;
        enum ls_status status = verify(simulation, label, text, world, count, &verdict);
        // As many elements a rank, too: where there are few, some ranks have none.
        const uint64_t fewer = (uint64_t)((double)count / simulation->world * world);
        if (!status && verdict == LS_VERDICT_HOLDS && fewer != count)
            status = verify(simulation, label, text, world, fewer, &verdict);
        if (status)
            return status;
        if (verdict == LS_VERDICT_HOLDS) {
            *verified_world = world;
            return LS_OK;
        }
        if (verdict == LS_VERDICT_DECLINED && world == simulation->world)
            return LS_OK; // says why itself when it is simulated
    }
    return LS_OK;
}
