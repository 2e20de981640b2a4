// SPDX-License-Identifier: Apache-2.0
// Where a plan gets its schedule from. The first rank that asks has the schedules of all ranks described and verified;
// each rank then takes its own out of what was verified, so nothing else can run. What would take too long to verify is
// described rank by rank, and its plans are held to a known answer instead.
#include "core/collective/internal.h"

#include "core/base/clock.h"
#include "core/base/caller.h"
#include "core/base/log.h"
#include "core/collective/tuner.h"
#include "core/schedule/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

// Steps and rounds of all ranks and schedules of a communicator together that are verified: a
// quarter of a second where a core verifies four million a second. A number and no time, so that
// every run of a program does the same.
#define PROVEN_STEPS (UINT64_C(1) << 20)

struct ls_proof {
    const struct ls_host *drawer; // which candidate of `auto`
    uint32_t operation, root, element_bytes;
    uint64_t count;
    bool halves;
    enum ls_status status; // of the attempt, which has logged why
    struct ls_verified_schedules *schedules; // NULL: was not verified
    struct ls_proof *next;
};

// One line with all that is needed to see it again.
static void log_refusal(const struct ls_communicator_group *group,
                        const struct ls_collective_call *call, const struct ls_verification *found)
{
    const char *name = ls_tuner_name(group->collective, call);
    if (found->verdict == LS_VERDICT_ROUNDING && call->host != group->collective_host) {
        ls_info("auto",
                "%s is left out, as it cannot send 16 bits: %u ranks would not end with equal "
                "values: %s; lockstep verify %s --world=%u --count=%" PRIu64 " --wire shows it",
                name, call->world, found->reason, name, call->world, call->count);
        return;
    }
    if (found->verdict == LS_VERDICT_ROUNDING) {
        ls_error(group->scope,
                 "collective %s cannot send 16 bits: %u ranks would not end with equal values: %s; "
                 "use --wire=float32, or another collective, such as ring; lockstep verify %s "
                 "--world=%u "
                 "--count=%" PRIu64 " --wire shows it",
                 name, call->world, found->reason, name, call->world, call->count);
        return;
    }
    const char *operation = ls_collective_operation_text(call->operation);
    char root[32] = "";
    if (call->operation == LS_BROADCAST || call->operation == LS_REDUCE)
        snprintf(root, sizeof(root), ", root %u", call->root);
    ls_error(group->scope,
             "collective %s is wrong and was not run: %s of %" PRIu64 " elements, %u ranks%s: %s; "
             "lockstep verify %s --world=%u --count=%" PRIu64 " --ranks-per-host=%u --operation=%s "
             "shows it",
             name, operation, call->count, call->world, root, found->reason,
             group->collective_text ? group->collective_text : name, call->world, call->count,
             ls_ranks_per_host(call->hosts, call->world), operation);
}

static enum ls_status prove(struct ls_communicator_group *group,
                            const struct ls_collective_call *call, struct ls_proof *proof)
{
    const struct ls_verify_case verified = {.operation = call->operation,
                                            .world = call->world,
                                            .root = call->root,
                                            .hosts = call->hosts,
                                            .cards = call->cards,
                                            .order = call->order,
                                            .count = call->count,
                                            .element_bytes = call->element_bytes,
                                            .halves = proof->halves,
                                            .most_steps = PROVEN_STEPS - group->proven_steps};
    struct ls_verification found;
    if (group->proven_steps == PROVEN_STEPS || call->world > LS_VERIFY_WORLD ||
        call->count > LS_VERIFY_COUNT)
        return LS_OK;
    ls_expectation_enter(&group->expectation);
    const enum ls_status status =
        ls_verify_and_keep(group->algorithm, call->host, &verified, &found, &proof->schedules);
    ls_expectation_leave(&group->expectation);
    if (status)
        return status;
    switch (found.verdict) {
    case LS_VERDICT_HOLDS: {
        const uint64_t spent = found.steps + (uint64_t)found.rounds * call->world;
        const uint64_t left = PROVEN_STEPS - group->proven_steps;
        group->proven_steps += spent < left ? spent : left;
        if (!found.same_order && !group->said_orders)
            ls_warn(group->scope,
                    "with collective %s these %u ranks add in different orders, so their bits "
                    "differ: a training whose replicas must stay equal fails at its end, or after "
                    "--check-replicas steps; choose another, such as ring",
                    ls_tuner_name(group->collective, call), call->world);
        group->said_orders |= !found.same_order;
        return LS_OK;
    }
    case LS_VERDICT_LIMIT: group->proven_steps = PROVEN_STEPS; return LS_OK;
    case LS_VERDICT_DECLINED: return LS_OK; // says so itself when it is asked to describe it
    default:
        log_refusal(group, call, &found);
        return found.verdict == LS_VERDICT_ROUNDING ? LS_UNAVAILABLE : LS_FAILED;
    }
}

static bool same(const struct ls_proof *proof, const struct ls_host *drawer,
                 const struct ls_collective_call *call, bool halves)
{
    return proof->drawer == drawer && proof->halves == halves &&
           proof->operation == call->operation && proof->root == call->root &&
           proof->element_bytes == call->element_bytes && proof->count == call->count;
}

// The lock is held. NULL: out of memory.
static struct ls_proof *find_or_prove(struct ls_communicator_group *group,
                                      const struct ls_collective_call *call, bool halves)
{
    const struct ls_host *drawer = ls_tuner_drawer(group->collective, call);
    struct ls_proof *proof = group->proofs;
    while (proof && !same(proof, drawer, call, halves))
        proof = proof->next;
    if (proof)
        return proof;
    proof = calloc(1, sizeof(*proof));
    if (!proof)
        return NULL;
    *proof = (struct ls_proof){.drawer = drawer,
                               .operation = call->operation,
                               .root = call->root,
                               .element_bytes = call->element_bytes,
                               .count = call->count,
                               .halves = halves,
                               .next = group->proofs};
    const uint64_t begin = ls_clock_ns();
    proof->status = prove(group, call, proof);
    atomic_fetch_add(&group->check_ns, ls_clock_ns() - begin);
    group->proofs = proof;
    return proof;
}

static enum ls_status describe(struct ls_communicator_group *group,
                               const struct ls_collective_call *call, struct ls_drawn_schedule *out)
{
    ls_expectation_enter(&group->expectation);
    const enum ls_status status =
        ls_schedule_draw(group->algorithm, group->collective->name, call, out);
    ls_expectation_leave(&group->expectation);
    return status;
}

// The lock is held, so that the first rank that fails says why, and the others nothing.
static enum ls_status take(struct ls_communicator_group *group,
                           const struct ls_collective_call *call, bool halves,
                           struct ls_drawn_schedule *out, enum ls_schedule_check *check)
{
    struct ls_proof *proof = find_or_prove(group, call, halves);
    if (!proof)
        return LS_OUT_OF_MEMORY;
    if (proof->status) {
        ls_caller_note_reason(); // maybe on the thread of another rank
        return proof->status;
    }
    *check = proof->schedules ? LS_CHECK_VERIFIED : LS_CHECK_MISSING;
    if (proof->schedules)
        return ls_verified_schedules_get(proof->schedules, call->rank, out);
    proof->status = describe(group, call, out);
    return proof->status;
}

enum ls_status ls_proof_draw(struct ls_communicator_group *group,
                             const struct ls_collective_call *call, bool halves,
                             struct ls_drawn_schedule *out, enum ls_schedule_check *check)
{
    *check = LS_CHECK_NONE;
    if (group->unproven || group->world == 1)
        return describe(group, call, out);
    pthread_mutex_lock(&group->proof_lock);
    const enum ls_status status = take(group, call, halves, out, check);
    pthread_mutex_unlock(&group->proof_lock);
    return status;
}

void ls_proofs_destroy(struct ls_communicator_group *group)
{
    while (group->proofs) {
        struct ls_proof *proof = group->proofs;
        group->proofs = proof->next;
        ls_verified_schedules_destroy(proof->schedules);
        free(proof);
    }
}
