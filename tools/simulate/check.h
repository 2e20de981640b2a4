// SPDX-License-Identifier: Apache-2.0
// Verifies the schedule of a collective before it is simulated, in its world or the largest one that
// can be verified.
#ifndef LS_TOOLS_SIMULATE_CHECK_H
#define LS_TOOLS_SIMULATE_CHECK_H

#include "core/base/status.h"
#include "tools/simulate/simulation.h"

// LS_FAILED, logged, for a wrong schedule. `verified_world`: the number of ranks that were verified,
// all of them or fewer; 0: no world could be verified. The number does not depend on the machine.
// `label` and `text` name the collective, in messages and on a command line.
LS_STATUS simulate_check(const struct ls_simulation *simulation, const char *label,
                         const char *text, uint32_t *verified_world);

#endif
