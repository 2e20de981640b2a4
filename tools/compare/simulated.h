// SPDX-License-Identifier: Apache-2.0
// Fills in what the runs of a comparison would take on a network that is not here.
#ifndef LS_TOOLS_COMPARE_SIMULATED_H
#define LS_TOOLS_COMPARE_SIMULATED_H

#include "tools/compare/comparison.h"
#include "tools/compare/race.h"
#include "core/topology/network.h"

// Whether the network has room for so many ranks. LS_BAD_INPUT, logged.
LS_STATUS compare_network_fits(const struct ls_network *network, uint32_t world);

// After compare_collect, whose runs are in the order of those of `race` that are not hidden. Runs
// that cannot be simulated have the reason. LS_OUT_OF_MEMORY.
LS_STATUS compare_simulate(const struct compare_race *race, const struct ls_network *network,
                           struct ls_comparison *out);

#endif
