// SPDX-License-Identifier: Apache-2.0
// Numbers of the types of kernels.h in memory, for the libraries of the fake: plain float arithmetic over them.
#ifndef LS_TESTS_CUDA_NUMBERS_H
#define LS_TESTS_CUDA_NUMBERS_H

#include "plugins/device/cuda/engine/half.h"
#include "plugins/device/cuda/engine/kernels.h"

static inline float double_get(const void *values, uint32_t type, uint64_t i)
{
    const uint16_t *halves = values;
    return type == CUDA_F16    ? cuda_from_f16(halves[i])
           : type == CUDA_BF16 ? cuda_from_bf16(halves[i])
                               : ((const float *)values)[i];
}

static inline void double_put(void *values, uint32_t type, uint64_t i, float value)
{
    uint16_t *halves = values;
    if (type == CUDA_FLOAT)
        ((float *)values)[i] = value;
    else
        halves[i] = type == CUDA_F16 ? cuda_to_f16(value) : cuda_to_bf16(value);
}

// A float32 as tensor cores read it where TF32 is allowed: 10 bits of mantissa, here to nearest.
static inline float double_tf32(float value)
{
    const uint32_t bits = cuda_bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return value; // a NaN
    return cuda_float_of((bits + 0x0fff + (bits >> 13 & 1)) & UINT32_C(0xffffe000));
}

#endif
