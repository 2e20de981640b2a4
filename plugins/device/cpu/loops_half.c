// SPDX-License-Identifier: Apache-2.0
// Between float32 and its halves, as ls_half_get() and ls_half_of() of core/plugin/half.h have it,
// without a branch; compiled for each instruction set. In integers: the instructions that convert
// would take float32 values below the smallest normal one for zero, or are not there.
#include "core/plugin/half.h"
#include "plugins/device/cpu/loops.h"

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

// a where the condition holds, else b. Both are computed: a branch would not be vectorised.
static inline uint32_t choose(uint32_t condition, uint32_t a, uint32_t b)
{
    const uint32_t mask = 0u - condition;
    return (a & mask) | (b & ~mask);
}

// `dtype` is a constant wherever these two are inlined.
static inline float widen(uint32_t dtype, uint16_t half)
{
    if (dtype == LS_BF16)
        return float_of((uint32_t)half << 16);
    const uint32_t exponent = half >> 10 & 31u, mantissa = half & 0x3ffu;
    const uint32_t small = bits_of((float)(int32_t)mantissa * 0x1p-24f); // where the exponent is 0
    const uint32_t normal = choose(exponent == 31u, 255u, exponent + 112u) << 23 | mantissa << 13;
    return float_of(choose(exponent != 0, normal, small) | (uint32_t)(half & 0x8000u) << 16);
}

static inline uint16_t narrow(uint32_t dtype, float value)
{
    const uint32_t bits = bits_of(value), magnitude = bits & UINT32_C(0x7fffffff);
    const uint32_t nan = magnitude > UINT32_C(0x7f800000), sign = bits >> 16 & 0x8000u;
    uint32_t half;

    if (dtype == LS_BF16) {
        half = (magnitude + 0x7fffu + (magnitude >> 16 & 1u)) >> 16;
        return (uint16_t)(choose(nan, 0x7fc0u, half) | sign);
    }
    // Below 2^-14 the sum's last bit is 2^-24, which rounds; from 65,520 on it is infinity.
    const uint32_t tiny = bits_of(float_of(magnitude) + 0.5f) - UINT32_C(0x3f000000);
    const uint32_t rebased = magnitude - (UINT32_C(112) << 23);
    half = (rebased + 0xfffu + (rebased >> 13 & 1u)) >> 13;
    half = choose(magnitude >= UINT32_C(0x477ff000), 0x7c00u, half);
    half = choose(magnitude < UINT32_C(0x38800000), tiny, half);
    return (uint16_t)(choose(nan, 0x7e00u, half) | sign);
}

static void widen_all(uint32_t dtype, const uint16_t *restrict x, float *restrict y, int64_t n)
{
    if (dtype == LS_BF16)
        for (int64_t i = 0; i < n; i++)
            y[i] = widen(LS_BF16, x[i]);
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = widen(LS_F16, x[i]);
}

static void narrow_all(uint32_t dtype, const float *restrict x, uint16_t *restrict y, int64_t n)
{
    if (dtype == LS_BF16)
        for (int64_t i = 0; i < n; i++)
            y[i] = narrow(LS_BF16, x[i]);
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = narrow(LS_F16, x[i]);
}

static void widen_rows(uint32_t dtype, const uint16_t *x, int64_t rows, int64_t columns,
                       int64_t x_stride, float *y, int64_t y_stride)
{
    for (int64_t r = 0; r < rows; r++)
        widen_all(dtype, x + r * x_stride, y + r * y_stride, columns);
}

static void narrow_rows(uint32_t dtype, const float *x, int64_t rows, int64_t columns,
                        int64_t x_stride, uint16_t *y, int64_t y_stride)
{
    for (int64_t r = 0; r < rows; r++)
        narrow_all(dtype, x + r * x_stride, y + r * y_stride, columns);
}

// `count` columns, a constant in each call, so that their sums stay in registers while all rows
// pass.
static inline void sum_columns(uint32_t dtype, const uint16_t *restrict x, int64_t rows,
                               int64_t count, int64_t stride, float *restrict sums)
{
    float group[64] = {0};
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < count; i++)
            group[i] += widen(dtype, x[r * stride + i]);
    for (int64_t i = 0; i < count; i++)
        sums[i] = group[i];
}

static inline void sum_all_columns(uint32_t dtype, const uint16_t *restrict x, int64_t rows,
                                   int64_t columns, int64_t stride, float *restrict sums)
{
    int64_t c = 0;
    for (; c + 64 <= columns; c += 64)
        sum_columns(dtype, x + c, rows, 64, stride, sums + c);
    for (; c + 16 <= columns; c += 16)
        sum_columns(dtype, x + c, rows, 16, stride, sums + c);
    for (; c < columns; c++)
        sum_columns(dtype, x + c, rows, 1, stride, sums + c);
}

static void column_sums(uint32_t dtype, const uint16_t *x, int64_t rows, int64_t columns,
                        int64_t stride, float *sums)
{
    if (dtype == LS_BF16)
        sum_all_columns(LS_BF16, x, rows, columns, stride, sums);
    else
        sum_all_columns(LS_F16, x, rows, columns, stride, sums);
}

const struct cpu_half_loops CPU_TABLE(half) = {
    .widen = widen_all,
    .narrow = narrow_all,
    .widen_rows = widen_rows,
    .narrow_rows = narrow_rows,
    .column_sums = column_sums,
};
