// SPDX-License-Identifier: Apache-2.0
// A program: the function around instructions.
#ifndef LS_DEVICE_PJRT_PROGRAM_H
#define LS_DEVICE_PJRT_PROGRAM_H

#include "plugins/device/pjrt/device.h"

struct pjrt_function {
    const struct hlo *instructions;
    const struct hlo_value *arguments, *results;
    uint32_t argument_count, result_count;
    // By argument: 1 + the result, of the same type and size, that may take its memory; the buffer
    // of such an argument is no longer valid after the program has run, and still to be released. 0:
    // none does. NULL: nowhere.
    const uint32_t *given_to;
    uint32_t replicas; // that run it together; 0: it runs alone
};

// A flat value that will be an argument.
struct hlo_value pjrt_program_argument(struct hlo *h, const struct pjrt_range *range);

// The whole text. Memory that runs out is noted in `out`, which the caller finishes in any case.
void pjrt_program_print(const struct pjrt_function *function, struct hlo *out);

// Prints and compiles what runs alone. `about` names it in messages.
int32_t pjrt_program_compile(const struct pjrt_caller *caller, const char *about,
                             const struct pjrt_function *function,
                             struct PJRT_LoadedExecutable **out);

#endif
