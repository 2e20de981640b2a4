// SPDX-License-Identifier: Apache-2.0
// Reductions for collectives, as C that is also CUDA C++: what one item does, with the bits that a host gives (transport
// `local` has the same rules). Halves are computed as float32 and rounded once; integers wrap around; a NaN on either side is
// the minimum and the maximum.
#ifndef LS_DEVICE_CUDA_REDUCE_BODY_H
#define LS_DEVICE_CUDA_REDUCE_BODY_H

#include "plugins/device/cuda/engine/half.h"
#include "plugins/device/cuda/engine/kernels.h"

// An item is a pack of 16 bytes, so that a thread reads and writes them at once, or an element before or behind the packs.
#define CUDA_PACK_BYTES 16

// name, type in memory, type of sums and products, type of comparisons, type of divisions, to the arithmetic and back
#define CUDA_REDUCED_TYPES(type)                                                             \
    type(F32, float, float, float, float, CUDA_SAME, CUDA_SAME)                              \
        type(F64, double, double, double, double, CUDA_SAME, CUDA_SAME)                      \
            type(F16, uint16_t, float, float, float, cuda_from_f16, cuda_to_f16)             \
                type(BF16, uint16_t, float, float, float, cuda_from_bf16, cuda_to_bf16)      \
                    type(I32, int32_t, uint32_t, int32_t, int64_t, CUDA_SAME, CUDA_SAME)     \
                        type(I64, int64_t, uint64_t, int64_t, int64_t, CUDA_SAME, CUDA_SAME) \
                            type(U8, uint8_t, uint32_t, uint8_t, uint32_t, CUDA_SAME, CUDA_SAME)

#define CUDA_SAME(value) (value)

#define CUDA_REDUCE_TYPE(name, stored, value, ordered, divided, load, store)                    \
    struct cuda_pack_##name {                                                                   \
        stored v[CUDA_PACK_BYTES / sizeof(stored)];                                             \
    } __attribute__((aligned(CUDA_PACK_BYTES)));                                                \
                                                                                                \
    CUDA_SHARED stored cuda_reduced_##name(const struct cuda_reduction *r, stored a, stored b)  \
    {                                                                                           \
        const ordered x = (ordered)load(a), y = (ordered)load(b);                               \
        switch (r->operation) {                                                                 \
        case LS_SUM: return (stored)store((value)x + (value)y);                                 \
        case LS_PRODUCT: return (stored)store((value)x * (value)y);                             \
        case LS_MIN: return (stored)store(y < x || y != y ? y : x);                             \
        case LS_MAX: return (stored)store(y > x || y != y ? y : x);                             \
        default: return (stored)store((divided)x / (divided)r->divisor);                        \
        }                                                                                       \
    }                                                                                           \
                                                                                                \
    CUDA_SHARED void cuda_reduce_##name(const struct cuda_reduction *r, int64_t i)              \
    {                                                                                           \
        const int64_t each = CUDA_PACK_BYTES / sizeof(stored);                                  \
        if (i < r->packs) {                                                                     \
            struct cuda_pack_##name *to =                                                       \
                (struct cuda_pack_##name *)((stored *)r->to + r->head) + i;                     \
            const struct cuda_pack_##name a = *to;                                              \
            const struct cuda_pack_##name b =                                                   \
                r->from                                                                         \
                    ? ((const struct cuda_pack_##name *)((const stored *)r->from + r->head))[i] \
                    : a;                                                                        \
            struct cuda_pack_##name out;                                                        \
            for (int k = 0; k < (int)each; k++)                                                 \
                out.v[k] = cuda_reduced_##name(r, a.v[k], b.v[k]);                              \
            *to = out;                                                                          \
            if (r->also)                                                                        \
                ((struct cuda_pack_##name *)((stored *)r->also + r->head))[i] = out;            \
            return;                                                                             \
        }                                                                                       \
        const int64_t single = i - r->packs;                                                    \
        const int64_t at = single < r->head ? single : single + r->packs * each;                \
        stored *to = (stored *)r->to + at;                                                      \
        const stored out =                                                                      \
            cuda_reduced_##name(r, *to, r->from ? ((const stored *)r->from)[at] : *to);         \
        *to = out;                                                                              \
        if (r->also)                                                                            \
            ((stored *)r->also)[at] = out;                                                      \
    }

CUDA_REDUCED_TYPES(CUDA_REDUCE_TYPE)

#endif
