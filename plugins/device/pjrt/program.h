// SPDX-License-Identifier: Apache-2.0
// A program: the function around instructions.
#ifndef LS_DEVICE_PJRT_PROGRAM_H
#define LS_DEVICE_PJRT_PROGRAM_H

#include "plugins/device/pjrt/device.h"

// A flat value that will be an argument.
struct hlo_value pjrt_program_argument(struct hlo *h, const struct pjrt_range *range);

// Makes the function of what was written in `h` and compiles it. `about` names it in messages.
int32_t pjrt_program_compile(const struct pjrt_caller *caller, const char *about,
                             const struct hlo *h, const struct hlo_value *arguments,
                             uint32_t argument_count, const struct hlo_value *results,
                             uint32_t result_count, struct PJRT_LoadedExecutable **out);

#endif
