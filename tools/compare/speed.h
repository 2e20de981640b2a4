// SPDX-License-Identifier: Apache-2.0
// Measures the speed of the runs of `lockstep compare`: each in several fresh processes, which take
// turns.
#ifndef LS_TOOLS_COMPARE_SPEED_H
#define LS_TOOLS_COMPARE_SPEED_H

#include "tools/compare/race.h"

// The data that all timed processes of this worker read; NULL: each reads for itself.
struct ls_data *compare_speed_data(const struct compare_setting *setting);

// Times all runs that have trained, in blocks: a fresh process of each, which take turns in an order that changes. `steps`:
// to time in each run, at least, and at least 8 blocks. LS_INTERRUPTED: the blocks before that one count.
LS_STATUS compare_speed_run(struct compare_race *race, uint64_t steps);

#endif
