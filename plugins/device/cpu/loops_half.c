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

static inline uint32_t bfloat16_of(float value)
{
    const uint32_t bits = bits_of(value), magnitude = bits & UINT32_C(0x7fffffff);
    const uint32_t nan = magnitude > UINT32_C(0x7f800000), sign = bits >> 16 & 0x8000u;
    return choose(nan, 0x7fc0u, (magnitude + 0x7fffu + (magnitude >> 16 & 1u)) >> 16) | sign;
}

static inline uint16_t narrow(uint32_t dtype, float value)
{
    const uint32_t bits = bits_of(value), magnitude = bits & UINT32_C(0x7fffffff);
    const uint32_t nan = magnitude > UINT32_C(0x7f800000), sign = bits >> 16 & 0x8000u;
    uint32_t half;

    if (dtype == LS_BF16)
        return (uint16_t)bfloat16_of(value);
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

// Above 0 are the halves from the smallest one to infinity.
static void relu_backward(uint32_t dtype, const uint16_t *restrict y, uint16_t *restrict dx,
                          int64_t n)
{
    const uint16_t above = dtype == LS_BF16 ? 0x7f80 : 0x7c00;
    for (int64_t i = 0; i < n; i++)
        dx[i] = (uint16_t)(y[i] - 1u) < above ? dx[i] : 0;
}

// ---- Pairs ----

// Rows of w that is read are far apart and read in short pieces, which the processor does not see
// coming: hence the prefetches.
enum { SIDE = 16 };

static inline uint32_t pair_of(float low, float high)
{
    return bfloat16_of(low) | bfloat16_of(high) << 16;
}

static void pack_pairs(const float *restrict w, int64_t depth, int64_t columns, int64_t stride,
                       int64_t block, int64_t padded, uint32_t *restrict y)
{
    for (int64_t k = 0; k < padded; k += 2, y += block) {
        const float *restrict low = w + k * stride, *restrict high = low + stride;
        const int64_t pairs = k + 1 < depth ? columns : 0, lows = k < depth ? columns : 0;
        // The next columns of these rows; at the end of w an address alone.
        for (int64_t i = block; i < 2 * block && pairs > 0; i += SIDE) {
            __builtin_prefetch(low + i);
            __builtin_prefetch(high + i);
        }
        for (int64_t i = 0; i < pairs; i++)
            y[i] = pair_of(low[i], high[i]);
        for (int64_t i = pairs; i < lows; i++)
            y[i] = pair_of(low[i], 0);
        for (int64_t i = lows; i < block; i++)
            y[i] = 0;
    }
}

typedef uint32_t side_vec __attribute__((vector_size(4 * SIDE)));

// Four times the rows of both halves are shuffled like cards, and so are those of a pair of them.
static inline void transpose(side_vec *rows)
{
    const side_vec low = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
    side_vec next[SIDE];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < SIDE / 2; i++) {
            next[2 * i] = __builtin_shuffle(rows[i], rows[i + SIDE / 2], low);
            next[2 * i + 1] = __builtin_shuffle(rows[i], rows[i + SIDE / 2], low + SIDE / 2);
        }
        memcpy(rows, next, sizeof(next));
    }
}

static void pack_transposed_pairs(const float *restrict w, int64_t depth, int64_t columns,
                                  int64_t stride, int64_t block, int64_t padded,
                                  uint32_t *restrict y)
{
    for (int64_t k = 0; k < padded; k += 2 * SIDE)
        for (int64_t at = 0; at < block; at += SIDE) {
            uint32_t pairs[SIDE][SIDE];
            float edge[2 * SIDE] = {0};
            for (int64_t i = 0; i < SIDE; i++) {
                const float *x = w + (at + i) * stride + k;
                const int64_t left = at + i < columns ? depth - k : 0;
                if (left < 2 * SIDE) {
                    memset(edge, 0, sizeof(edge));
                    if (left > 0)
                        memcpy(edge, x, (size_t)left * sizeof(float));
                    x = edge;
                }
                if (left >= 4 * SIDE) {
                    __builtin_prefetch(x + 2 * SIDE);
                    __builtin_prefetch(x + 3 * SIDE);
                }
                for (int64_t j = 0; j < SIDE; j++)
                    pairs[i][j] = pair_of(x[2 * j], x[2 * j + 1]);
            }
            side_vec rows[SIDE];
            memcpy(rows, pairs, sizeof(rows));
            transpose(rows);
            for (int64_t j = 0; j < SIDE; j++)
                memcpy(y + (k / 2 + j) * block + at, &rows[j], sizeof(rows[j]));
        }
}

const struct cpu_half_loops CPU_TABLE(half) = {
    .widen = widen_all,
    .narrow = narrow_all,
    .widen_rows = widen_rows,
    .narrow_rows = narrow_rows,
    .column_sums = column_sums,
    .relu_backward = relu_backward,
    .pack_pairs = pack_pairs,
    .pack_transposed_pairs = pack_transposed_pairs,
};
