// SPDX-License-Identifier: Apache-2.0
// The clock behind pace.h.
#include "plugins/strategy/parameter-server/pace.h"

uint32_t pace_slowest(const struct pace *pace)
{
    uint32_t slowest = PACE_NOBODY;
    for (uint32_t i = 0; i < pace->workers; i++)
        if (pace->states[i] == PACE_RUNNING &&
            (slowest == PACE_NOBODY || pace->steps[i] < pace->steps[slowest]))
            slowest = i;
    return slowest;
}

uint64_t pace_lead(const struct pace *pace, uint32_t worker)
{
    return pace->steps[worker] - pace->steps[pace_slowest(pace)];
}

uint32_t pace_living(const struct pace *pace)
{
    uint32_t living = 0;
    for (uint32_t i = 0; i < pace->workers; i++)
        living += pace->states[i] != PACE_GONE;
    return living;
}

void pace_run(struct pace *pace, uint32_t worker)
{
    const uint32_t slowest = pace_slowest(pace);
    if (pace->states[worker] == PACE_RESTING && slowest != PACE_NOBODY &&
        pace->steps[worker] < pace->steps[slowest])
        pace->steps[worker] = pace->steps[slowest];
    pace->states[worker] = PACE_RUNNING;
}

bool pace_all_meet(const struct pace *pace)
{
    uint32_t meeting = 0;
    for (uint32_t i = 0; i < pace->workers; i++)
        meeting += pace->states[i] == PACE_MEETING;
    return meeting > 0 && meeting == pace_living(pace);
}

void pace_restart(struct pace *pace)
{
    for (uint32_t i = 0; i < pace->workers; i++) {
        pace->steps[i] = 0;
        if (pace->states[i] == PACE_MEETING)
            pace->states[i] = PACE_RUNNING;
    }
}

void distribution_add(struct distribution *distribution, uint64_t value)
{
    const uint64_t last = DISTRIBUTION_BINS - 1;
    distribution->count++;
    distribution->sum += value;
    if (value > distribution->largest)
        distribution->largest = value;
    distribution->bins[value < last ? value : last]++;
}

void distribution_merge(struct distribution *into, const struct distribution *from)
{
    into->count += from->count;
    into->sum += from->sum;
    if (from->largest > into->largest)
        into->largest = from->largest;
    for (uint32_t i = 0; i < DISTRIBUTION_BINS; i++)
        into->bins[i] += from->bins[i];
}

double distribution_mean(const struct distribution *distribution)
{
    return distribution->count ? (double)distribution->sum / (double)distribution->count : 0.0;
}

uint32_t distribution_bins(const struct distribution *distribution)
{
    return distribution->largest < DISTRIBUTION_BINS ? (uint32_t)distribution->largest + 1
                                                     : DISTRIBUTION_BINS;
}
