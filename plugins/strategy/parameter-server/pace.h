// SPDX-License-Identifier: Apache-2.0
// The clock of the workers: how many steps each has made since all met last, who may begin another one, and how far
// each was ahead of the slowest when it did. No clock of the wall, no messages: a server keeps one and tells it what it
// hears.
#ifndef LS_PARAMETER_SERVER_PACE_H
#define LS_PARAMETER_SERVER_PACE_H

#include "plugins/strategy/parameter-server/wire.h"

#include <stdbool.h>

enum pace_state {
    PACE_RUNNING = 0,
    PACE_MEETING =
        1, // waits in synchronise: makes no step before all have met, so nobody waits for it
    PACE_GONE = 2,
    PACE_RESTING = 3, // has nothing to train for now
};

struct pace {
    uint64_t *steps; // a worker; ended since the last meeting
    uint32_t *states; // a worker; enum pace_state
    uint32_t workers;
};

#define PACE_NOBODY UINT32_MAX

// Of the workers that run the one with the fewest steps, of equal ones the first; PACE_NOBODY: none runs.
uint32_t pace_slowest(const struct pace *pace);
// Steps of `worker`, which runs, less those of the slowest.
uint64_t pace_lead(const struct pace *pace, uint32_t worker);
// Workers that are not gone.
uint32_t pace_living(const struct pace *pace);
// It runs, after a rest too: then it is no further behind than the slowest that runs, because what it pulls is new.
void pace_run(struct pace *pace, uint32_t worker);
// Whether all that are not gone meet; false when all are gone.
bool pace_all_meet(const struct pace *pace);
// They have met: all run again, and none is ahead.
void pace_restart(struct pace *pace);

void distribution_add(struct distribution *distribution, uint64_t value);
void distribution_merge(struct distribution *into, const struct distribution *from);
double distribution_mean(const struct distribution *distribution);
// Entries of the histogram up to the largest value seen; at least 1.
uint32_t distribution_bins(const struct distribution *distribution);

#endif
