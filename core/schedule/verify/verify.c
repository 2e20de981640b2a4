// SPDX-License-Identifier: Apache-2.0
// The whole proof of one case, part by part.
#include "core/schedule/verify/symbols.h"

#include "core/base/log.h"
#include "core/schedule/schedule.h"

#include <inttypes.h>
#include <stdlib.h>

// ---- What is known to be least ----

// With m messages sent, or received, by a rank in one round, what one rank knows reaches at most m
// + 1 times as many ranks after it.
static uint32_t least_rounds(uint32_t world, uint32_t messages_at_once)
{
    uint32_t rounds = 0;
    for (uint64_t reached = 1; reached < world && messages_at_once; rounds++)
        reached *= (uint64_t)messages_at_once + 1;
    return rounds;
}

static double least_bytes(const struct ls_verify_case *verified)
{
    const double bytes = (double)verified->count * verified->element_bytes;
    const double others = (verified->world - 1.0) / verified->world;
    switch (verified->operation) {
    case LS_ALL_REDUCE: return 2 * others * bytes;
    case LS_REDUCE_SCATTER:
    case LS_ALL_GATHER:
    case LS_ALL_TO_ALL: return others * bytes;
    default: return verified->world > 1 ? bytes : 0;
    }
}

// ---- One case ----

static enum ls_status prove(struct ls_verifier *verifier,
                            const struct ls_collective_interface *collective,
                            const struct ls_host *host)
{
    enum ls_status status = ls_verifier_draw(verifier, collective, host);
    if (!status)
        status = ls_verifier_match(verifier);
    if (!status)
        status = ls_verifier_check_rounds(verifier);
    if (!status)
        status = ls_verifier_run(verifier);
    if (!status) {
        const struct ls_verify_case *verified = verifier->verified;
        verifier->out->least_rounds =
            least_rounds(verified->world, verifier->out->messages_at_once);
        verifier->out->least_bytes = least_bytes(verified);
        status = ls_verifier_check_result(verifier, collective->deterministic);
    }
    return status;
}

static enum ls_status check_case(const struct ls_verify_case *verified)
{
    if (!ls_collective_operation_text(verified->operation) || verified->world == 0 ||
        verified->world > LS_VERIFY_WORLD || verified->root >= verified->world ||
        verified->count > LS_VERIFY_COUNT || verified->element_bytes == 0 ||
        verified->element_bytes > 16) {
        ls_error("verify",
                 "no case that can be verified: operation %u, root %u of %u ranks (at most %u), "
                 "%" PRIu64 " elements (at most %" PRIu64 ") of %u bytes",
                 verified->operation, verified->root, verified->world, LS_VERIFY_WORLD,
                 verified->count, LS_VERIFY_COUNT, verified->element_bytes);
        return LS_USAGE;
    }
    if (ls_collective_whole_count(verified->operation, verified->count, verified->world) !=
        verified->count) {
        ls_error("verify", "%" PRIu64 " elements are no equal blocks for %u ranks, as %s needs",
                 verified->count, verified->world,
                 ls_collective_operation_text(verified->operation));
        return LS_USAGE;
    }
    return LS_OK;
}

enum ls_status ls_verify_schedule(const struct ls_collective_interface *collective,
                                  const struct ls_host *host, const struct ls_verify_case *verified,
                                  struct ls_verification *out)
{
    struct ls_verified_schedules *kept;
    const enum ls_status status = ls_verify_and_keep(collective, host, verified, out, &kept);
    if (!status)
        ls_verified_schedules_destroy(kept);
    return status;
}

enum ls_status ls_verify_and_keep(const struct ls_collective_interface *collective,
                                  const struct ls_host *host, const struct ls_verify_case *verified,
                                  struct ls_verification *out, struct ls_verified_schedules **kept)
{
    struct ls_verification found = {0};
    struct ls_symbols symbols = {0};
    struct ls_verifier verifier = {.verified = verified, .out = &found, .symbols = &symbols};
    enum ls_status status = check_case(verified);
    if (status)
        return status;
    struct ls_verified_schedules *schedules = calloc(1, sizeof(*schedules));
    if (!schedules)
        return LS_OUT_OF_MEMORY;
    verifier.first = calloc((size_t)verified->world + 1, sizeof(*verifier.first));
    verifier.rounds = calloc(verified->world, sizeof(*verifier.rounds));
    verifier.scratch = calloc(verified->world, sizeof(*verifier.scratch));
    status = LS_OUT_OF_MEMORY;
    if (verifier.first && verifier.rounds && verifier.scratch) {
        if (collective->maximum_world && verified->world > collective->maximum_world)
            status = ls_verifier_refuse(&verifier, LS_VERDICT_DECLINED, 0, 0, NULL,
                                        "works in worlds of at most %u ranks",
                                        collective->maximum_world);
        else
            status = prove(&verifier, collective, host);
    }
    ls_symbols_finish(&symbols);
    *schedules = (struct ls_verified_schedules){verifier.steps, verifier.first, verifier.rounds,
                                                verifier.scratch};
    if (status) {
        ls_verified_schedules_destroy(schedules);
        schedules = NULL;
    }
    if (status && status != LS_FAILED)
        return status;
    *out = found;
    *kept = schedules;
    return LS_OK;
}

// ---- What was verified ----

enum ls_status ls_verified_schedules_get(const struct ls_verified_schedules *kept, uint32_t rank,
                                         struct ls_drawn_schedule *out)
{
    const struct ls_verified_step *steps = kept->steps + kept->first[rank];
    const size_t count = kept->first[rank + 1] - kept->first[rank];
    struct ls_drawn_schedule drawn = {.steps = malloc((count + 1) * sizeof(*drawn.steps)),
                                      .step_count = count,
                                      .round_count = kept->rounds[rank],
                                      .scratch_count = kept->scratch[rank]};
    if (!drawn.steps)
        return LS_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const bool local = ls_step_is_local(&steps[i]);
        drawn.steps[i] = (struct ls_scheduled_step){
            .step = {.struct_size = sizeof(struct ls_step),
                     .kind = steps[i].kind,
                     .peer = local ? 0 : steps[i].peer,
                     .range = ls_step_range(&steps[i]),
                     .from = local ? ls_step_from(&steps[i]) : ls_data_range(0, 0)},
            .round = steps[i].round};
    }
    *out = drawn;
    return LS_OK;
}

void ls_verified_schedules_destroy(struct ls_verified_schedules *kept)
{
    if (!kept)
        return;
    free(kept->steps);
    free(kept->first);
    free(kept->rounds);
    free(kept->scratch);
    free(kept);
}
