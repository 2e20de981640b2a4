// SPDX-License-Identifier: Apache-2.0
// The gather: random reads of a large set, so the next example is prefetched while one is converted (twice as fast
// for 28 x 28 bytes). Division and not multiplication by 1/255: numpy and PyTorch users divide, and the two differ in
// the last bit; vectorised it is faster than a table.
#include "core/data/gather.h"

#include <string.h>

#define CACHE_LINE 64
#define PREFETCH_BYTES 1024 // of the next example; the hardware goes on from there

// The resolver behind target_clones runs before a sanitizer is ready.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define EVERY_CPU __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define EVERY_CPU
#endif

static void prefetch(const char *example, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes && i < PREFETCH_BYTES; i += CACHE_LINE)
        __builtin_prefetch(example + i);
}

EVERY_CPU
static void divide_bytes(const uint8_t *restrict from, uint64_t count, float divisor,
                         float *restrict to)
{
    for (uint64_t i = 0; i < count; i++)
        to[i] = (float)from[i] / divisor;
}

EVERY_CPU
static void divide_floats(const float *restrict from, uint64_t count, float divisor,
                          float *restrict to)
{
    for (uint64_t i = 0; i < count; i++)
        to[i] = from[i] / divisor;
}

EVERY_CPU
static void divide_integers(const int32_t *restrict from, uint64_t count, float divisor,
                            float *restrict to)
{
    for (uint64_t i = 0; i < count; i++)
        to[i] = (float)from[i] / divisor;
}

// One value an example, as class numbers are: in a loop of its own, for an example is less work than a call.
static void widen_single(const struct ls_field *field, const uint32_t *order, uint64_t count,
                         int32_t *out)
{
    const uint8_t *values = field->values;
    for (uint64_t i = 0; i < count; i++)
        out[i] = values[order[i] * field->stride];
}

static void widen(const uint8_t *restrict from, uint64_t count, int32_t *restrict to)
{
    for (uint64_t i = 0; i < count; i++)
        to[i] = from[i];
}

void ls_deliver(const struct ls_field *field, uint32_t dtype, const void *from, uint64_t elements,
                void *to)
{
    if (dtype == LS_F32 && field->dtype == LS_U8)
        divide_bytes(from, elements, field->divisor, to);
    else if (dtype == LS_F32 && field->dtype == LS_I32)
        divide_integers(from, elements, field->divisor, to);
    else if (dtype == LS_F32 && field->divisor != 1)
        divide_floats(from, elements, field->divisor, to);
    else if (dtype == LS_I32 && field->dtype == LS_U8)
        widen(from, elements, to);
    else
        memcpy(to, from, elements * ls_dtype_bytes(dtype));
}

bool ls_can_gather(uint32_t stored, uint32_t dtype)
{
    const bool integers = stored == LS_U8 || stored == LS_I32;
    return (dtype == LS_F32 && (integers || stored == LS_F32)) || (dtype == LS_I32 && integers) ||
           (dtype == LS_U8 && stored == LS_U8);
}

void ls_gather(const struct ls_field *field, uint32_t dtype, const uint32_t *order, uint64_t count,
               void *out)
{
    const uint64_t elements = ls_field_elements(field);
    const uint64_t stored = elements * ls_dtype_bytes(field->dtype);
    const uint64_t delivered = elements * ls_dtype_bytes(dtype);
    const char *values = field->values;
    if (elements == 1 && dtype == LS_I32 && field->dtype == LS_U8) {
        widen_single(field, order, count, out);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        if (i + 1 < count)
            prefetch(values + order[i + 1] * field->stride, stored);
        ls_deliver(field, dtype, values + order[i] * field->stride, elements,
                   (char *)out + i * delivered);
    }
}
