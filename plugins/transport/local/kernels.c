// SPDX-License-Identifier: Apache-2.0
// The loops behind kernels.h. Compiled several times with LOCAL_KERNELS naming the table; the
// compiler vectorises them. Nothing here may depend on the instruction set but speed: every variant
// gives the same bits.
#include "plugins/transport/local/kernels.h"

#include <string.h>

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

// Binary16 to binary32, without branches and without subnormal arithmetic.
static inline float from_f16(uint16_t half)
{
    const uint32_t magnitude = (half & UINT32_C(0x7fff)) << 13;
    const uint32_t rebased = magnitude + UINT32_C(0x38000000);
    const uint32_t special = magnitude >= UINT32_C(0x0f800000) ? UINT32_C(0x38000000) : 0;
    const float subnormal =
        float_of(magnitude + UINT32_C(0x38800000)) - float_of(UINT32_C(0x38800000));
    const uint32_t bits = magnitude < UINT32_C(0x00800000) ? bits_of(subnormal) : rebased + special;
    return float_of(bits | (half & UINT32_C(0x8000)) << 16);
}

// Binary32 to binary16, to nearest, ties to even.
static inline uint16_t to_f16(float value)
{
    const uint32_t all = bits_of(value), magnitude = all & UINT32_C(0x7fffffff);
    const uint32_t special = magnitude > UINT32_C(0x7f800000) ? UINT32_C(0x7e00) : UINT32_C(0x7c00);
    // Adding 0.5 leaves the subnormal's bits, rounded, at the low end.
    const uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - UINT32_C(0x3f000000);
    const uint32_t normal = (magnitude + UINT32_C(0xc8000fff) + (magnitude >> 13 & 1)) >> 13;
    const uint32_t finite = magnitude < UINT32_C(0x38800000) ? subnormal : normal;
    const uint32_t half = magnitude >= UINT32_C(0x47800000) ? special : finite;
    return (uint16_t)(half | (all >> 16 & UINT32_C(0x8000)));
}

static inline float from_bf16(uint16_t value)
{
    return float_of((uint32_t)value << 16);
}

static inline uint16_t to_bf16(float value)
{
    const uint32_t bits = bits_of(value);
    const uint32_t rounded = (bits + UINT32_C(0x7fff) + (bits >> 16 & 1)) >> 16;
    const uint32_t nan = bits >> 16 | UINT32_C(0x40);
    return (uint16_t)((bits & UINT32_C(0x7fffffff)) > UINT32_C(0x7f800000) ? nan : rounded);
}

#define SAME(value) (value)

// Integers wrap around, so sums and products are done unsigned. A NaN on either side is the minimum
// and the maximum.
#define SUM(a, b) ((a) + (b))
#define PRODUCT(a, b) ((a) * (b))
#define MIN(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))
#define MAX(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))

// stored: type in memory; value: type of the arithmetic; load and store convert.
#define DEFINE(name, stored, value, load, store, operation)                                  \
    static void name##_reduce(void *memory, const void *other, uint64_t count)               \
    {                                                                                        \
        stored *restrict a = memory;                                                         \
        const stored *restrict b = other;                                                    \
        for (uint64_t i = 0; i < count; i++) {                                               \
            const value x = load(a[i]), y = load(b[i]);                                      \
            a[i] = (stored)store((value)operation(x, y));                                    \
        }                                                                                    \
    }                                                                                        \
    static void name##_reduce_both(void *memory, void *other, uint64_t count)                \
    {                                                                                        \
        stored *restrict a = memory;                                                         \
        stored *restrict b = other;                                                          \
        for (uint64_t i = 0; i < count; i++) {                                               \
            const value x = load(a[i]), y = load(b[i]);                                      \
            a[i] = b[i] = (stored)store((value)operation(x, y));                             \
        }                                                                                    \
    }                                                                                        \
    static void name##_reduce_to(void *memory, const void *other, void *out, uint64_t count) \
    {                                                                                        \
        stored *restrict a = memory;                                                         \
        const stored *restrict b = other;                                                    \
        stored *restrict c = out;                                                            \
        for (uint64_t i = 0; i < count; i++) {                                               \
            const value x = load(a[i]), y = load(b[i]);                                      \
            a[i] = c[i] = (stored)store((value)operation(x, y));                             \
        }                                                                                    \
    }

#define DEFINE_TYPE(name, stored, value, ordered, load, store)  \
    DEFINE(name##_sum, stored, value, load, store, SUM)         \
    DEFINE(name##_product, stored, value, load, store, PRODUCT) \
    DEFINE(name##_min, stored, ordered, load, store, MIN)       \
    DEFINE(name##_max, stored, ordered, load, store, MAX)

#define DEFINE_DIVIDE(name, stored, value, load, store)                       \
    static void name##_divide(void *memory, uint64_t count, uint64_t divisor) \
    {                                                                         \
        stored *a = memory;                                                   \
        const value d = (value)divisor;                                       \
        for (uint64_t i = 0; i < count; i++)                                  \
            a[i] = (stored)store((value)(load(a[i]) / d));                    \
    }

DEFINE_TYPE(f32, float, float, float, SAME, SAME)
DEFINE_TYPE(f64, double, double, double, SAME, SAME)
DEFINE_TYPE(f16, uint16_t, float, float, from_f16, to_f16)
DEFINE_TYPE(bf16, uint16_t, float, float, from_bf16, to_bf16)
DEFINE_TYPE(i32, int32_t, uint32_t, int32_t, SAME, SAME)
DEFINE_TYPE(i64, int64_t, uint64_t, int64_t, SAME, SAME)
DEFINE_TYPE(u8, uint8_t, uint8_t, uint8_t, SAME, SAME)

DEFINE_DIVIDE(f32, float, float, SAME, SAME)
DEFINE_DIVIDE(f64, double, double, SAME, SAME)
DEFINE_DIVIDE(f16, uint16_t, float, from_f16, to_f16)
DEFINE_DIVIDE(bf16, uint16_t, float, from_bf16, to_bf16)
DEFINE_DIVIDE(i32, int32_t, int64_t, SAME, SAME)
DEFINE_DIVIDE(i64, int64_t, int64_t, SAME, SAME)
DEFINE_DIVIDE(u8, uint8_t, uint32_t, SAME, SAME)

#define OF_TYPE(name, form)                                                 \
    {                                                                       \
        [LS_SUM] = name##_sum_##form, [LS_PRODUCT] = name##_product_##form, \
        [LS_MIN] = name##_min_##form, [LS_MAX] = name##_max_##form,         \
    }
#define OF_ALL(form)                                                                               \
    {                                                                                              \
        [LS_F32] = OF_TYPE(f32, form), [LS_F64] = OF_TYPE(f64, form),                              \
        [LS_F16] = OF_TYPE(f16, form), [LS_BF16] = OF_TYPE(bf16, form),                            \
        [LS_I32] = OF_TYPE(i32, form), [LS_I64] = OF_TYPE(i64, form), [LS_U8] = OF_TYPE(u8, form), \
    }

const struct local_kernels LOCAL_KERNELS = {
    .reduce = OF_ALL(reduce),
    .reduce_both = OF_ALL(reduce_both),
    .reduce_to = OF_ALL(reduce_to),
    .divide = {[LS_F32] = f32_divide,
               [LS_F64] = f64_divide,
               [LS_F16] = f16_divide,
               [LS_BF16] = bf16_divide,
               [LS_I32] = i32_divide,
               [LS_I64] = i64_divide,
               [LS_U8] = u8_divide},
};
