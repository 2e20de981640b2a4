// SPDX-License-Identifier: Apache-2.0
// What plans.c hands to plans_time.c.
#ifndef LS_TOOLS_DEVELOPMENT_GPU_PLANS_H
#define LS_TOOLS_DEVELOPMENT_GPU_PLANS_H

#include "tools/development/gpu/plans_cudnn.h"

// Times each question on GPU 0: a line of JSON for each on stdout. Ends after `seconds`. 0, or 1: nothing was timed.
int plans_time(const struct question *questions, int count, int most_plans, double seconds);

#endif
