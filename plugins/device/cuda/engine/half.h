// SPDX-License-Identifier: Apache-2.0
// float16 and bfloat16 as float32 and back, as C that is also CUDA C++: with operations that round alike, so that a GPU and a
// host give the same bits. To a half: to nearest, ties to even; a NaN stays one, and with bfloat16 keeps its upper bits.
#ifndef LS_DEVICE_CUDA_HALF_H
#define LS_DEVICE_CUDA_HALF_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define CUDA_SHARED static __host__ __device__ inline
#else
#define CUDA_SHARED static inline
#endif

CUDA_SHARED uint32_t cuda_bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

CUDA_SHARED float cuda_float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

CUDA_SHARED float cuda_from_f16(uint16_t half)
{
    const uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13;
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    if (magnitude < UINT32_C(0x00800000)) // zero or subnormal: exact as a float
        return cuda_float_of(sign | cuda_bits_of((float)(half & 0x7fff) * (1.0f / 16777216.0f)));
    // The exponent's bias is 15, and 127 as a float; infinity and NaN have the largest of either.
    const uint32_t special = magnitude >= UINT32_C(0x0f800000) ? UINT32_C(0x38000000) : 0;
    return cuda_float_of(sign | (magnitude + UINT32_C(0x38000000) + special));
}

CUDA_SHARED uint16_t cuda_to_f16(float value)
{
    const uint32_t all = cuda_bits_of(value), magnitude = all & UINT32_C(0x7fffffff);
    uint32_t half;
    if (magnitude > UINT32_C(0x7f800000))
        half = UINT32_C(0x7e00);
    else if (magnitude >= UINT32_C(0x47800000)) // 65536 and more
        half = UINT32_C(0x7c00);
    else if (magnitude <
             UINT32_C(0x38800000)) // subnormal: adding 0.5 leaves its bits, rounded, at the low end
        half = cuda_bits_of(cuda_float_of(magnitude) + 0.5f) - UINT32_C(0x3f000000);
    else
        half = (magnitude - UINT32_C(0x38000000) + UINT32_C(0xfff) + (magnitude >> 13 & 1)) >> 13;
    return (uint16_t)(half | (all >> 16 & UINT32_C(0x8000)));
}

CUDA_SHARED float cuda_from_bf16(uint16_t half)
{
    return cuda_float_of((uint32_t)half << 16);
}

CUDA_SHARED uint16_t cuda_to_bf16(float value)
{
    const uint32_t bits = cuda_bits_of(value);
    if ((bits & UINT32_C(0x7fffffff)) > UINT32_C(0x7f800000))
        return (uint16_t)(bits >> 16 | UINT32_C(0x40));
    return (uint16_t)((bits + UINT32_C(0x7fff) + (bits >> 16 & 1)) >> 16);
}

#endif
