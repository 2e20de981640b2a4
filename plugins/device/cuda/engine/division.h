// SPDX-License-Identifier: Apache-2.0
// Division of 32-bit numbers by one that the host knows before: a multiplication and a shift.
#ifndef LS_DEVICE_CUDA_DIVISION_H
#define LS_DEVICE_CUDA_DIVISION_H

#include "plugins/device/cuda/engine/half.h"

#include <stdint.h>

struct cuda_divisor {
    uint32_t by, factor, shift; // factor + 2^32 is 2^(32 + shift) / by, rounded up
};

// For `by` from 1 to 2^31.
CUDA_SHARED struct cuda_divisor cuda_divisor_of(uint32_t by)
{
    uint32_t shift = 0;
    while (UINT64_C(1) << shift < by)
        shift++;
    const uint64_t over = ((UINT64_C(1) << shift) - by) << 32;
    const struct cuda_divisor out = {by, (uint32_t)(over / by) + 1, shift};
    return out;
}

// n / by, for n below 2^31.
CUDA_SHARED uint32_t cuda_divide(uint32_t n, struct cuda_divisor d)
{
    return ((uint32_t)((uint64_t)n * d.factor >> 32) + n) >> d.shift;
}

#endif
