// SPDX-License-Identifier: Apache-2.0
// The reductions of the local transport: plain arithmetic element by element, rounded to nearest, and the same
// bits with every instruction set.
#include "plugins/transport/local/kernels.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Every binary16 bit pattern, decoded slowly.
static double half_value(uint16_t half)
{
    const int exponent = half >> 10 & 31, mantissa = half & 1023;
    double value = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    if (exponent == 31)
        value = mantissa ? NAN : INFINITY;
    return half & 0x8000 ? -value : value;
}

static int is_half_nan(uint16_t half)
{
    return (half & 0x7fff) > 0x7c00;
}

TEST(halves_survive_a_product_with_one)
{
    static uint16_t values[65536], ones[65536];
    for (uint32_t i = 0; i < 65536; i++) {
        values[i] = (uint16_t)i;
        ones[i] = 0x3c00;
    }
    local_kernels_plain.reduce[LS_F16][LS_PRODUCT](values, ones, 65536);
    for (uint32_t i = 0; i < 65536; i++)
        ck_assert(is_half_nan((uint16_t)i) ? is_half_nan(values[i]) : values[i] == i);
}

// The sum of two halves is exact in double; the result must be the nearest half, and even on a tie.
TEST(sums_of_halves_are_rounded_to_nearest_even)
{
    uint32_t ties = 0;
    for (uint32_t a = 0; a < 0x7c00; a += 37) {
        for (uint32_t b = 1; b < 0x10000; b += 97) {
            uint16_t sum = (uint16_t)a, other = (uint16_t)b;
            if ((b & 0x7fff) >= 0x7c00)
                continue;
            const double exact = half_value(sum) + half_value(other);
            local_kernels_plain.reduce[LS_F16][LS_SUM](&sum, &other, 1);
            if (fabs(exact) >= 65520) {
                ck_assert_uint_eq(sum & 0x7fff, 0x7c00);
                continue;
            }
            const double error = fabs(half_value(sum) - exact);
            const double above = fabs(half_value((uint16_t)(sum + 1)) - exact);
            const double below =
                sum & 0x7fff ? fabs(half_value((uint16_t)(sum - 1)) - exact) : INFINITY;
            ck_assert_msg(error <= above && error <= below, "%04x + %04x = %04x", a, b, sum);
            if (error == above || error == below) {
                ck_assert_uint_eq(sum & 1, 0);
                ties++;
            }
        }
    }
    ck_assert_uint_gt(ties, 100);
}

TEST(bfloat16_rounds_to_nearest_even)
{
    // 1 + 2^-8 is a tie between 1 and 1 + 2^-7, 1 + 3 * 2^-8 one between 1 + 2^-7 and 1 + 2^-6.
    uint16_t values[] = {0x3f80, 0x3f81, 0x7f7f, 0x7f80, 0x7fc1, 0x0001};
    const uint16_t others[] = {0x3b80, 0x3b80, 0x7f7f, 0xff80, 0x3f80, 0x0001};
    local_kernels_plain.reduce[LS_BF16][LS_SUM](values, others, 6);
    ck_assert_uint_eq(values[0], 0x3f80);
    ck_assert_uint_eq(values[1], 0x3f82);
    ck_assert_uint_eq(values[2], 0x7f80);
    ck_assert_uint_gt(values[3] & 0x7fff, 0x7f80);
    ck_assert_uint_gt(values[4] & 0x7fff, 0x7f80);
    ck_assert_uint_eq(values[5], 0x0002);
}

TEST(a_nan_on_either_side_is_minimum_and_maximum)
{
    for (uint32_t reduction = LS_MIN; reduction <= LS_MAX; reduction++) {
        float values[] = {NAN, 1, 2, -INFINITY};
        const float others[] = {1, NAN, 3, INFINITY};
        local_kernels_plain.reduce[LS_F32][reduction](values, others, 4);
        ck_assert(isnan(values[0]) && isnan(values[1]));
        ck_assert(values[2] == (reduction == LS_MIN ? 2 : 3));
        ck_assert(values[3] == (reduction == LS_MIN ? -INFINITY : INFINITY));
    }
}

TEST(integers_wrap_around_and_divide_towards_zero)
{
    int32_t ints[] = {INT32_MAX, INT32_MIN, -7};
    const int32_t other_ints[] = {1, -1, 0};
    local_kernels_plain.reduce[LS_I32][LS_SUM](ints, other_ints, 3);
    ck_assert(ints[0] == INT32_MIN && ints[1] == INT32_MAX);
    local_kernels_plain.divide[LS_I32](ints + 2, 1, 2);
    ck_assert_int_eq(ints[2], -3);
    int64_t longs[] = {INT64_MAX, INT64_MIN};
    const int64_t other_longs[] = {2, 3};
    local_kernels_plain.reduce[LS_I64][LS_PRODUCT](longs, other_longs, 2);
    ck_assert(longs[0] == -2 && longs[1] == INT64_MIN);
    uint8_t bytes[] = {200, 16};
    const uint8_t other_bytes[] = {100, 17};
    local_kernels_plain.reduce[LS_U8][LS_SUM](bytes, other_bytes, 1);
    local_kernels_plain.reduce[LS_U8][LS_PRODUCT](bytes + 1, other_bytes + 1, 1);
    ck_assert(bytes[0] == 44 && bytes[1] == 16);
}

#define BYTES 4104
static unsigned char memory[3][2]
                           [BYTES]; // memory, other and out, of the tested and of the plain loops

static void fill(uint32_t seed)
{
    uint32_t state = seed;
    for (uint32_t which = 0; which < 3; which++) {
        for (uint32_t i = 0; i < BYTES; i++) {
            state = state * 1664525u + 1013904223u;
            memory[which][0][i] = (unsigned char)(state >> 24);
        }
        memcpy(memory[which][1], memory[which][0], BYTES);
    }
}

// A NaN that comes out of two may be either; which one is no part of the contract.
static int same_element(const unsigned char *a, const unsigned char *b, uint32_t dtype)
{
    const uint64_t bytes = ls_dtype_bytes(dtype);
    uint16_t halves[2];
    float singles[2];
    double doubles[2];
    if (memcmp(a, b, bytes) == 0)
        return 1;
    memcpy(halves, a, 2);
    memcpy(halves + 1, b, 2);
    if (dtype == LS_F16)
        return is_half_nan(halves[0]) && is_half_nan(halves[1]);
    if (dtype == LS_BF16)
        return (halves[0] & 0x7fff) > 0x7f80 && (halves[1] & 0x7fff) > 0x7f80;
    if (dtype == LS_F32) {
        memcpy(singles, a, 4);
        memcpy(singles + 1, b, 4);
        return isnan(singles[0]) && isnan(singles[1]);
    }
    memcpy(doubles, a, bytes);
    memcpy(doubles + 1, b, bytes);
    return dtype == LS_F64 && isnan(doubles[0]) && isnan(doubles[1]);
}

static void check_same(uint32_t dtype, uint32_t reduction, const char *form)
{
    const uint64_t bytes = ls_dtype_bytes(dtype);
    for (uint32_t which = 0; which < 3; which++)
        for (uint64_t i = 0; i + bytes <= BYTES; i += bytes)
            ck_assert_msg(same_element(memory[which][0] + i, memory[which][1] + i, dtype),
                          "type %u, reduction %u, %s: element %u differs", dtype, reduction, form,
                          (unsigned)(i / bytes));
}

// Random bit patterns: subnormal numbers, infinities and NaNs are among them.
static void check_variant(const struct local_kernels *tested)
{
    const struct local_kernels *plain = &local_kernels_plain;
    for (uint32_t dtype = LS_F32; dtype <= LS_U8; dtype++) {
        const uint64_t bytes = ls_dtype_bytes(dtype), count = BYTES / bytes - 2;
        for (uint32_t reduction = LS_SUM; reduction <= LS_MAX; reduction++) {
            unsigned char *a[2], *b[2], *c[2];
            for (uint32_t i = 0; i < 2; i++) {
                a[i] = memory[0][i] + bytes; // not where a vector begins
                b[i] = memory[1][i];
                c[i] = memory[2][i] + 2 * bytes;
            }
            fill(dtype * 10 + reduction);
            tested->reduce[dtype][reduction](a[0], b[0], count);
            plain->reduce[dtype][reduction](a[1], b[1], count);
            check_same(dtype, reduction, "reduce");
            fill(dtype * 20 + reduction);
            tested->reduce_both[dtype][reduction](a[0], b[0], count);
            plain->reduce[dtype][reduction](a[1], b[1], count);
            memcpy(b[1], a[1], count * bytes);
            check_same(dtype, reduction, "reduce_both");
            fill(dtype * 30 + reduction);
            tested->reduce_to[dtype][reduction](a[0], b[0], c[0], count);
            plain->reduce[dtype][reduction](a[1], b[1], count);
            memcpy(c[1], a[1], count * bytes);
            check_same(dtype, reduction, "reduce_to");
        }
        fill(dtype);
        tested->divide[dtype](memory[0][0], count, 7);
        plain->divide[dtype](memory[0][1], count, 7);
        check_same(dtype, 0, "divide");
    }
}

TEST(every_instruction_set_gives_the_same_bits)
{
    check_variant(&local_kernels_plain);
#ifdef LOCAL_X86_VARIANTS
    if (__builtin_cpu_supports("avx2"))
        check_variant(&local_kernels_avx2);
    else
        printf("SKIP: avx2: not on this processor\n");
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        check_variant(&local_kernels_avx512);
    else
        printf("SKIP: avx512: not on this processor\n");
#endif
}

TEST_SECONDS(300);
