// SPDX-License-Identifier: Apache-2.0
// Which elements a dropout keeps, and noise: as ls_mix64(), ls_dropout_key(), ls_dropout_keep() and LS_OP_NOISE of core/plugin/operations.h, which is no CUDA C++.
#ifndef LS_DEVICE_CUDA_RANDOM_BODY_H
#define LS_DEVICE_CUDA_RANDOM_BODY_H

#include "plugins/device/cuda/engine/half.h"
#include "plugins/device/cuda/engine/kernels.h"

#include <math.h>

CUDA_SHARED uint64_t cuda_mix(uint64_t a, uint64_t b)
{
    uint64_t z = a + UINT64_C(0x9e3779b97f4a7c15) * (b + 1);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

CUDA_SHARED uint64_t cuda_draw_key(const struct ls_step_record *r, uint32_t layer, int64_t example)
{
    return cuda_mix(cuda_mix(cuda_mix(r->seed, r->step), layer),
                    r->example_offset + (uint64_t)example);
}

CUDA_SHARED uint32_t cuda_keep(uint64_t key, uint32_t element, float rate)
{
    uint32_t z = element * UINT32_C(0x9e3779b9) + (uint32_t)key;
    z = (z ^ (z >> 16)) * UINT32_C(0x85ebca6b);
    z = (z ^ (z >> 13) ^ (uint32_t)(key >> 32)) * UINT32_C(0xc2b2ae35);
    z ^= z >> 16;
    return (float)(z >> 8) * (1.0f / 16777216.0f) >= rate;
}

// Of the normal distribution. Near 1 the logarithm is that of 1 less what is left, which float32 has exactly enough.
CUDA_SHARED float cuda_normal(uint64_t key, uint64_t element)
{
    const uint64_t bits = cuda_mix(key, element), above = (bits >> 32) + 1;
    const float part = 1.0f / 4294967296.0f;
    const float log_u = above >> 31 ? log1pf(-(float)((UINT64_C(1) << 32) - above) * part)
                                    : logf((float)above * part);
    return sqrtf(-2 * log_u) * cospif((float)(int32_t)(uint32_t)bits * (2 * part));
}

#endif
