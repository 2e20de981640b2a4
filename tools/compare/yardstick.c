// SPDX-License-Identifier: Apache-2.0
// The hidden runs.
#include "tools/compare/yardstick.h"

#include "core/plugin/device.h"

#include <stdlib.h>
#include <string.h>

static enum ls_basis basis_of(uint32_t statistics, uint32_t shards)
{
    if (shards)
        return LS_BASIS_BITS;
    switch (statistics) {
    case 0: return LS_BASIS_HALVES;
    case COMPARE_OF_SHARES: return LS_BASIS_SHARES;
    case COMPARE_SYNCHRONIZED: return LS_BASIS_WHOLE;
    default: return LS_BASIS_MIXED;
    }
}

// Whose rounding the learning rate of the second run is off by; 0: it is not.
static uint32_t nudge_dtype(enum ls_basis basis, uint32_t computed, const char *wire)
{
    const bool bfloat16 = wire && strcmp(wire, "bfloat16") == 0;
    const bool float16 = wire && strcmp(wire, "float16") == 0;
    if (computed == LS_BF16 || bfloat16)
        return LS_BF16;
    if (computed == LS_F16 || float16)
        return LS_F16;
    return basis == LS_BASIS_SHARES ? LS_F32 : 0;
}

// A run of one device that nobody asked for. `like`: whose threads it has, so that each share has
// the bits that a replica's has.
static enum ls_status add(struct compare_race *race, size_t like, struct compare_entry how)
{
    struct compare_entry entry = race->runners[like].entry;
    entry.strategy = COMPARE_REFERENCE;
    entry.workers = 1;
    entry.replicas = 1;
    entry.microbatches = how.microbatches;
    entry.nudge_rate = how.nudge_rate;
    entry.nudge_weights = how.nudge_weights;
    entry.note = how.note;
    return compare_race_add(race, &entry, true);
}

static size_t find_shares(const struct compare_race *race, uint32_t shares)
{
    for (size_t i = 0; i < race->count; i++)
        if (race->runners[i].hidden && race->runners[i].entry.microbatches == shares)
            return i;
    return SIZE_MAX;
}

// The same shares for each count of replicas, and once more for the largest.
static enum ls_status add_shares(struct compare_race *race, struct compare_yardstick *yardstick,
                                 size_t visible)
{
    const size_t reference = yardstick->reference;
    size_t widest = reference;
    for (size_t i = 0; i < visible; i++) {
        const struct compare_entry entry = race->runners[i].entry;
        const uint32_t world = compare_entry_world(&entry);
        if (entry.batch != race->runners[reference].entry.batch || world == 1)
            continue;
        if (find_shares(race, world) == SIZE_MAX) {
            const enum ls_status status =
                add(race, i,
                    (struct compare_entry){.microbatches = world, .note = ", the same shares"});
            if (status)
                return status;
        }
        yardstick->truth_of[i] = find_shares(race, world);
        if (world > compare_entry_world(&race->runners[widest].entry))
            widest = i;
    }
    yardstick->twin_of = yardstick->truth_of[widest];
    yardstick->twin = race->count;
    return add(
        race, widest,
        (struct compare_entry){.microbatches = compare_entry_world(&race->runners[widest].entry),
                               .nudge_rate = ls_rounding_of(yardstick->nudge_dtype),
                               .note = ", a rounding off"});
}

enum ls_status compare_yardstick_add(struct compare_race *race, size_t reference,
                                     struct compare_yardstick *out)
{
    const size_t visible = race->count;
    *out = (struct compare_yardstick){.basis = basis_of(race->runners[reference].shared->statistics,
                                                        race->setting->run.reproducible),
                                      .reference = reference,
                                      .truth_of = calloc(visible, sizeof(*out->truth_of)),
                                      .twin = SIZE_MAX,
                                      .twin_of = SIZE_MAX};
    if (!out->truth_of)
        return LS_OUT_OF_MEMORY;
    out->nudge_dtype =
        nudge_dtype(out->basis, race->runners[reference].shared->dtype, race->setting->run.wire);
    for (size_t i = 0; i < visible; i++)
        out->truth_of[i] =
            out->basis == LS_BASIS_MIXED && compare_entry_world(&race->runners[i].entry) > 1
                ? SIZE_MAX
                : reference;
    if (out->basis == LS_BASIS_MIXED || out->basis == LS_BASIS_BITS)
        return LS_OK;
    if (out->basis == LS_BASIS_SHARES)
        return add_shares(race, out, visible);
    const bool halves = out->basis == LS_BASIS_HALVES;
    out->twin_of = reference;
    out->twin = race->count;
    return add(race, reference,
               (struct compare_entry){.microbatches = halves ? 2 : 1,
                                      .nudge_rate =
                                          out->nudge_dtype ? ls_rounding_of(out->nudge_dtype) : 0,
                                      .nudge_weights = !halves,
                                      .note = halves ? ", in two halves" : ", a rounding off"});
}

const char *compare_yardstick_text(const struct compare_yardstick *yardstick)
{
    switch (yardstick->basis) {
    case LS_BASIS_HALVES: return ", and the reference in two halves";
    case LS_BASIS_SHARES: return ", and one device with the same shares, twice";
    case LS_BASIS_WHOLE: return ", and the reference twice";
    default: return "";
    }
}

void compare_yardstick_finish(struct compare_yardstick *yardstick)
{
    free(yardstick->truth_of);
    *yardstick = (struct compare_yardstick){.twin = SIZE_MAX};
}
