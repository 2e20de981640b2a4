// SPDX-License-Identifier: Apache-2.0
// What the driver alone can tell, without the CUDA runtime: whether there is one, how new it is, and its GPUs.
#ifndef LS_DEVICE_CUDA_DRIVER_H
#define LS_DEVICE_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

struct cuda_driver_info {
    uint32_t count; // of GPUs
    char name[96]; // of the first
    int major, minor; // its compute capability
    uint64_t bytes; // its memory
};

// LS_OK; LS_UNAVAILABLE with the reason, one line. `out` NULL: only whether the driver runs. That is
// LS_OK, too, in a forked child of a process that uses it, as a probe may be: there cuInit answers
// that it cannot start again. [any thread]
int32_t cuda_driver_ask(struct cuda_driver_info *out, char *reason, size_t bytes);

#endif
