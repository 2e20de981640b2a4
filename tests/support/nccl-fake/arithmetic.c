// SPDX-License-Identifier: Apache-2.0
// Sums, products, minima and maxima of the fake, for the types that the plugin uses. Halves are added as floats, and rounded.
#include "plugins/device/cuda/engine/half.h"
#include "tests/support/nccl-fake/fake.h"

size_t nccl_fake_bytes(unsigned type)
{
    switch (type) {
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclFloat64: return 8;
    default: return 0;
    }
}

#define COMBINE(name, type, word)                                           \
    static type name(type a, type b, unsigned reduction)                    \
    {                                                                       \
        switch (reduction) {                                                \
        case ncclSum: return (type)((word)a + (word)b);                     \
        case ncclProd: return (type)((word)a * (word)b);                    \
        case ncclMax: return a > b ? a : b;                                 \
        case ncclMin: return a < b ? a : b;                                 \
        default: nccl_fake_stop("a reduction of the number %u", reduction); \
        }                                                                   \
    }

COMBINE(combine_u8, uint8_t, uint32_t)
COMBINE(combine_i32, int32_t, uint32_t)
COMBINE(combine_i64, int64_t, uint64_t)
COMBINE(combine_f32, float, float)
COMBINE(combine_f64, double, double)

static uint16_t combine_f16(uint16_t a, uint16_t b, unsigned reduction)
{
    return cuda_to_f16(combine_f32(cuda_from_f16(a), cuda_from_f16(b), reduction));
}

static uint16_t combine_bf16(uint16_t a, uint16_t b, unsigned reduction)
{
    return cuda_to_bf16(combine_f32(cuda_from_bf16(a), cuda_from_bf16(b), reduction));
}

#define LOOP(type, call)               \
    for (size_t i = 0; i < count; i++) \
    ((type *)to)[i] = call(((type *)to)[i], ((const type *)from)[i], reduction)

void nccl_fake_combine(void *to, const void *from, size_t count, unsigned type, unsigned reduction)
{
    switch (type) {
    case ncclUint8: LOOP(uint8_t, combine_u8); break;
    case ncclInt32: LOOP(int32_t, combine_i32); break;
    case ncclInt64: LOOP(int64_t, combine_i64); break;
    case ncclFloat16: LOOP(uint16_t, combine_f16); break;
    case ncclBfloat16: LOOP(uint16_t, combine_bf16); break;
    case ncclFloat32: LOOP(float, combine_f32); break;
    case ncclFloat64: LOOP(double, combine_f64); break;
    default: nccl_fake_stop("a type of the number %u", type);
    }
}
