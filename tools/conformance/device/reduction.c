// SPDX-License-Identifier: Apache-2.0
// Cases of `reduce`: every type and operation, bit for bit, with counts and addresses that do not fit any vector.
#include "tools/conformance/device/suite.h"

#include "core/base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST 2061 // elements
#define MOST_SHIFT 9 // elements before the first one

// ---- Halves, by way of doubles ----

struct half {
    int bits; // of the mantissa
    int least; // exponent of the smallest normal number
    int bias;
};
static const struct half f16 = {10, -14, 15}, bf16 = {7, -126, 127};

static double half_value(const struct half *h, uint16_t half)
{
    const int exponent = (half & 0x7fff) >> h->bits, top = (1 << (15 - h->bits)) - 1;
    const double mantissa = half & ((1 << h->bits) - 1);
    const double magnitude = exponent == top ? (mantissa > 0 ? (double)NAN : (double)INFINITY)
                             : exponent
                                 ? ldexp(mantissa + (1 << h->bits), exponent - h->bias - h->bits)
                                 : ldexp(mantissa, h->least - h->bits);
    return half & 0x8000 ? -magnitude : magnitude;
}

static uint16_t half_of(const struct half *h, float value)
{
    const int top = (1 << (15 - h->bits)) - 1;
    const int sign = signbit(value) ? 0x8000 : 0;
    const double magnitude = fabs((double)value);
    if (isnan(value))
        return (uint16_t)(sign | 0x7fff);
    int exponent = magnitude > 0 && isfinite(magnitude) ? ilogb(magnitude) : h->least;
    exponent = exponent < h->least ? h->least : exponent;
    // To a multiple of the last bit's value, ties to even; that may be the next power of two, or no more a half.
    const double units = nearbyint(ldexp(magnitude, h->bits - exponent));
    const double bits = units + (double)(exponent - h->least) *
                                    (1 << h->bits); // the hidden bit is one of the units
    return (uint16_t)(sign | (bits < (double)(top << h->bits) ? (int)bits : top << h->bits));
}

// ---- What is wanted ----

// Both sides as numbers of the type, and back.
#define COMBINE(type, sum, a, b)                                       \
    (reduction == LS_SUM       ? (type)((sum)(a) + (sum)(b))           \
     : reduction == LS_PRODUCT ? (type)((sum)(a) * (sum)(b))           \
     : reduction == LS_MIN     ? ((b) < (a) || (b) != (b) ? (b) : (a)) \
                               : ((b) > (a) || (b) != (b) ? (b) : (a)))
#define WANTED(type, sum, wide)                                                              \
    do {                                                                                     \
        type x, y = 0;                                                                       \
        memcpy(&x, a, sizeof(x));                                                            \
        if (b)                                                                               \
            memcpy(&y, b, sizeof(y));                                                        \
        const type z = divisor ? (type)((wide)x / (wide)divisor) : COMBINE(type, sum, x, y); \
        memcpy(out, &z, sizeof(z));                                                          \
    } while (0)

static void wanted_half(const struct half *h, uint32_t reduction, uint64_t divisor, const void *a,
                        const void *b, void *out)
{
    uint16_t bits[2] = {0, 0};
    memcpy(&bits[0], a, 2);
    if (b)
        memcpy(&bits[1], b, 2);
    const float x = (float)half_value(h, bits[0]), y = (float)half_value(h, bits[1]);
    const uint16_t z = half_of(h, divisor ? x / (float)divisor : COMBINE(float, float, x, y));
    memcpy(out, &z, sizeof(z));
}

static void wanted_of(uint32_t dtype, uint32_t reduction, uint64_t divisor, const void *a,
                      const void *b, void *out)
{
    switch (dtype) {
    case LS_F32: WANTED(float, float, float); break;
    case LS_F64: WANTED(double, double, double); break;
    case LS_F16: wanted_half(&f16, reduction, divisor, a, b, out); break;
    case LS_BF16: wanted_half(&bf16, reduction, divisor, a, b, out); break;
    case LS_I32: WANTED(int32_t, uint32_t, int64_t); break;
    case LS_I64: WANTED(int64_t, uint64_t, int64_t); break;
    default: WANTED(uint8_t, uint32_t, uint32_t); break;
    }
}

// The bits of a NaN are the device's own.
static bool is_nan(uint32_t dtype, const void *value)
{
    float single;
    double wide;
    uint16_t half;
    switch (dtype) {
    case LS_F32: memcpy(&single, value, sizeof(single)); return isnan(single);
    case LS_F64: memcpy(&wide, value, sizeof(wide)); return isnan(wide);
    case LS_F16: memcpy(&half, value, sizeof(half)); return isnan(half_value(&f16, half));
    case LS_BF16: memcpy(&half, value, sizeof(half)); return isnan(half_value(&bf16, half));
    default: return false;
    }
}

// ---- Cases ----

struct reduction_case {
    uint32_t dtype, reduction;
    uint64_t divisor, count;
    uint64_t shift[3]; // of to, from, also
    enum { NOT_ALSO, ALSO_FROM, ALSO_ELSEWHERE } also;
};

// Any bits: small and large numbers, subnormal ones, infinities, NaN; and often what lies near, so that sums are rounded.
static void draw(uint32_t dtype, uint64_t seed, unsigned char *values, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += 8) {
        uint64_t word = ls_random_u64(seed, i);
        const uint64_t kind = ls_random_u64(seed + 1, i) % 3;
        if (kind && dtype == LS_F32)
            word = (word & UINT64_C(0x80ffffff80ffffff)) | UINT64_C(0x3f0000003f000000);
        if (kind && dtype == LS_F64)
            word = (word & UINT64_C(0x803fffffffffffff)) | UINT64_C(0x3fc0000000000000);
        if (kind && dtype == LS_F16)
            word = (word & UINT64_C(0x87ff87ff87ff87ff)) | UINT64_C(0x3800380038003800);
        if (kind && dtype == LS_BF16)
            word = (word & UINT64_C(0x81ff81ff81ff81ff)) | UINT64_C(0x3e003e003e003e00);
        memcpy(values + i, &word, sizeof(word));
    }
}

struct reduction_memory {
    struct ls_device_buffer buffers[3]; // to, from, also
    unsigned char *values[3], *results[3];
    uint64_t bytes;
};

static bool memory_open(struct ls_device_suite *suite, struct reduction_memory *m)
{
    bool good = true;
    m->bytes = (MOST + MOST_SHIFT) * 8;
    for (int i = 0; i < 3; i++) {
        m->values[i] = malloc(m->bytes);
        m->results[i] = malloc(m->bytes);
        good = good && m->values[i] && m->results[i] &&
               ls_device_buffer_create(suite, suite->tested, m->bytes, &m->buffers[i]);
    }
    return good || ls_device_suite_fail(suite, "no memory");
}

static void memory_close(struct ls_device_suite *suite, struct reduction_memory *m)
{
    for (int i = 0; i < 3; i++) {
        ls_device_buffer_destroy(suite->tested, &m->buffers[i]);
        free(m->values[i]);
        free(m->results[i]);
    }
}

static bool reduce_on_device(struct ls_device_suite *suite, struct reduction_memory *m,
                             const struct reduction_case *c)
{
    const struct ls_device_side *side = suite->tested;
    const uint64_t size = ls_dtype_bytes(c->dtype);
    struct ls_memory at[3];
    const struct ls_memory nowhere = {NULL, 0};
    for (int i = 0; i < 3; i++) {
        at[i] = ls_memory_at(ls_device_buffer_memory(&m->buffers[i]), c->shift[i] * size);
        draw(c->dtype, c->count * 10 + (uint64_t)i * 1000, m->values[i], m->bytes);
        if (!ls_device_buffer_write(suite, suite->tested, &m->buffers[i], m->values[i]))
            return false;
    }
    const struct ls_device_reduction call = {
        .struct_size = sizeof(call),
        .dtype = c->dtype,
        .reduction = c->reduction,
        .to = at[0],
        .from = c->divisor ? nowhere : at[1],
        .also = c->also == NOT_ALSO    ? nowhere
                : c->also == ALSO_FROM ? at[1]
                                       : at[2],
        .count = c->count,
        .divisor = c->divisor,
    };
    if (side->interface->peers->reduce(side->device, &call, NULL))
        return ls_device_suite_fail(suite, "count %llu: %s", (unsigned long long)c->count,
                                    side->message);
    for (int i = 0; i < 3; i++)
        if (!ls_device_buffer_read(suite, suite->tested, &m->buffers[i], "an argument",
                                   m->results[i]))
            return false;
    return true;
}

// Fills in what `values` should have become.
static void reduce_here(struct reduction_memory *m, const struct reduction_case *c)
{
    const uint64_t size = ls_dtype_bytes(c->dtype);
    for (uint64_t i = 0; i < c->count; i++) {
        unsigned char *to = m->values[0] + (c->shift[0] + i) * size;
        unsigned char *from = m->values[1] + (c->shift[1] + i) * size;
        unsigned char *other = m->values[2] + (c->shift[2] + i) * size;
        wanted_of(c->dtype, c->reduction, c->divisor, to, c->divisor ? NULL : from, to);
        if (c->also != NOT_ALSO)
            memcpy(c->also == ALSO_FROM ? from : other, to, size);
    }
}

static bool compare(struct ls_device_suite *suite, const struct reduction_memory *m,
                    const struct reduction_case *c)
{
    static const char *const names[] = {"to", "from", "also"};
    const uint64_t size = ls_dtype_bytes(c->dtype);
    for (int i = 0; i < 3; i++)
        for (uint64_t k = 0; k < m->bytes / size; k++) {
            const unsigned char *is = m->results[i] + k * size, *wanted = m->values[i] + k * size;
            if (memcmp(is, wanted, size) != 0 &&
                !(is_nan(c->dtype, is) && is_nan(c->dtype, wanted)))
                return ls_device_suite_fail(
                    suite, "count %llu: element %llu of `%s` has other bits than on a host",
                    (unsigned long long)c->count, (unsigned long long)k, names[i]);
        }
    return true;
}

static void run_case(struct ls_device_suite *suite, uint32_t dtype, uint32_t reduction)
{
    static const char *const types[] = {"", "f32", "f64", "f16", "bf16", "i32", "i64", "u8"};
    static const char *const operations[] = {"division", "sum", "product", "minimum", "maximum"};
    // Count, then the shifts: alike and not, also within 16 bytes.
    static const uint64_t shapes[][4] = {{1, 0, 0, 0},    {7, 1, 1, 1},    {33, 3, 0, 1},
                                         {1000, 0, 0, 0}, {2047, 9, 9, 9}, {2061, 2, 5, 2}};
    struct reduction_memory memory = {0};
    char name[64];
    snprintf(name, sizeof(name), "reduce: %s of %s", operations[reduction], types[dtype]);
    if (!ls_device_suite_begin(suite, name))
        return;
    bool good = memory_open(suite, &memory);
    for (uint64_t i = 0; good && i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const struct reduction_case c = {.dtype = dtype,
                                         .reduction = reduction,
                                         .divisor = reduction ? 0 : i + 3,
                                         .count = shapes[i][0],
                                         .shift = {shapes[i][1], shapes[i][2], shapes[i][3]},
                                         .also = reduction ? i % 3 : NOT_ALSO};
        good = reduce_on_device(suite, &memory, &c);
        if (good) {
            reduce_here(&memory, &c);
            good = compare(suite, &memory, &c);
        }
    }
    memory_close(suite, &memory);
    ls_device_suite_end(suite, name, NULL);
}

void ls_device_reduction_cases(struct ls_device_suite *suite)
{
    for (uint32_t dtype = LS_F32; dtype <= LS_U8; dtype++)
        for (uint32_t reduction = 0; reduction <= LS_MAX; reduction++) // 0: division
            run_case(suite, dtype, reduction);
}
