// SPDX-License-Identifier: Apache-2.0
// Hands the schedules of a collective to the verifier, and its findings to the report.
#include "tools/conformance/schedule.h"

#include "core/schedule/schedule.h"
#include "core/schedule/verify.h"
#include "tools/conformance/tally.h"

#include <inttypes.h>

static const uint32_t worlds[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 32};
static const uint64_t counts[] = {0, 1, 13, 1009, 100003};

struct suite {
    const struct ls_schedule_conformance_options *options;
    struct ls_tally tally;
};

// False: nothing more is to be said about this case.
static bool verify_one(struct suite *suite, uint32_t operation, uint32_t world, uint32_t root,
                       uint64_t count)
{
    struct ls_verification found;
    const struct ls_verify_case verified = {
        .operation = operation,
        .world = world,
        .root = root,
        .count = ls_collective_whole_count(operation, count, world),
        .element_bytes = 4,
    };
    const enum ls_status status =
        ls_verify_schedule(suite->options->collective, suite->options->host, &verified, &found);
    if (status)
        return ls_tally_blame(&suite->tally, "count %" PRIu64 ": %s", count,
                              ls_status_text(status));
    if (found.verdict == LS_VERDICT_DECLINED) {
        ls_tally_refuse(&suite->tally, "%s", found.reason);
        return false;
    }
    if (found.verdict != LS_VERDICT_HOLDS)
        return ls_tally_blame(&suite->tally, "count %" PRIu64 ": %s", count, found.reason);
    return true;
}

static void schedule_case(struct suite *suite, uint32_t operation, uint32_t world)
{
    const bool rooted = operation == LS_BROADCAST || operation == LS_REDUCE;
    const uint32_t roots[] = {0, world / 2, world - 1};
    if (!ls_tally_begin(&suite->tally, "%s ranks=%u", ls_collective_operation_text(operation),
                        world))
        return;
    bool good = true;
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
        for (size_t k = 0; good && k < (rooted ? 3 : 1); k++)
            if (k == 0 || roots[k] != roots[k - 1])
                good = verify_one(suite, operation, world, roots[k], counts[i]);
    ls_tally_end(&suite->tally);
}

enum ls_status ls_conformance_schedule(const struct ls_schedule_conformance_options *options,
                                       ls_conformance_report report, void *context,
                                       struct ls_conformance_counts *tallied)
{
    const uint32_t most = options->collective->maximum_world;
    struct suite suite = {.options = options};
    ls_tally_init(&suite.tally, options->only, options->wanted, report, context);
    for (uint32_t operation = LS_ALL_REDUCE; operation <= LS_ALL_TO_ALL; operation++)
        for (size_t i = 0; i < sizeof(worlds) / sizeof(*worlds); i++)
            if (options->collective->operations >> operation & 1 && (!most || worlds[i] <= most))
                schedule_case(&suite, operation, worlds[i]);
    if (tallied)
        *tallied = suite.tally.counts;
    ls_tally_finish(&suite.tally);
    return suite.tally.counts.failed ? LS_FAILED : LS_OK;
}
