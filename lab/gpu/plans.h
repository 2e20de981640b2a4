// SPDX-License-Identifier: Apache-2.0
// What plans.c hands to plans_time.c.
#ifndef LS_TOOLS_DEVELOPMENT_GPU_PLANS_H
#define LS_TOOLS_DEVELOPMENT_GPU_PLANS_H

#include "lab/gpu/plans_cudnn.h"

// Times the questions on GPU 0, `most` plans of each, for so many seconds; writes a JSON array with an object for each that was
// answered. The exit code of the program.
int plans_time(const struct question *questions, int count, int most, double seconds,
               const char *path);

#endif
