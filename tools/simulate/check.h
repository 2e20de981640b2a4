// SPDX-License-Identifier: Apache-2.0
// What is done before a collective is simulated: its schedule is verified, in its world or the largest one that can be.
#ifndef LS_TOOLS_SIMULATE_CHECK_H
#define LS_TOOLS_SIMULATE_CHECK_H

#include "core/base/status.h"
#include "tools/simulate/simulation.h"

// LS_FAILED, logged, for a schedule that is wrong. `verified_world`: as many ranks as were verified, all of them or fewer; 0:
// no world could be. `label` and `text` name the collective, to people and on a command line. How many ranks that are does not hang on the machine.
LS_STATUS simulate_check(const struct ls_simulation *simulation, const char *label,
                         const char *text, uint32_t *verified_world);

#endif
