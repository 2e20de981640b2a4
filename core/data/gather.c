// SPDX-License-Identifier: Apache-2.0
// The gather: random reads of a large set, so the next example is asked for while one is converted (twice as fast
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

uint64_t ls_dataset_example_elements(const struct ls_dataset *dataset)
{
    uint64_t elements = 1;
    for (uint32_t i = 0; i < dataset->ndims; i++)
        elements *= (uint64_t)dataset->dims[i];
    return elements;
}

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

void ls_gather_examples(const struct ls_dataset *dataset, const uint32_t *order, uint64_t count,
                        float *out)
{
    const uint64_t elements = ls_dataset_example_elements(dataset);
    const uint64_t bytes = elements * ls_dtype_bytes(dataset->example_dtype);
    const char *examples = dataset->examples;
    for (uint64_t i = 0; i < count; i++) {
        const void *from = examples + order[i] * bytes;
        float *to = out + i * elements;
        if (i + 1 < count)
            prefetch(examples + order[i + 1] * bytes, bytes);
        if (dataset->example_dtype == LS_U8)
            divide_bytes(from, elements, dataset->divisor, to);
        else if (dataset->divisor != 1)
            divide_floats(from, elements, dataset->divisor, to);
        else
            memcpy(to, from, bytes);
    }
}

void ls_gather_bytes(const struct ls_dataset *dataset, const uint32_t *order, uint64_t count,
                     void *out)
{
    const uint64_t bytes = ls_dataset_example_elements(dataset);
    const char *examples = dataset->examples;
    for (uint64_t i = 0; i < count; i++) {
        if (i + 1 < count)
            prefetch(examples + order[i + 1] * bytes, bytes);
        memcpy((char *)out + i * bytes, examples + order[i] * bytes, bytes);
    }
}

void ls_gather_labels(const struct ls_dataset *dataset, const uint32_t *order, uint64_t count,
                      void *out)
{
    const uint64_t elements = dataset->label_elements;
    if (dataset->label_dtype == LS_U8) {
        const uint8_t *from = dataset->labels;
        int32_t *to = out;
        for (uint64_t i = 0; i < count; i++)
            for (uint64_t e = 0; e < elements; e++)
                to[i * elements + e] = from[order[i] * elements + e];
        return;
    }
    const char *from = dataset->labels; // I32 and F32 alike
    for (uint64_t i = 0; i < count; i++)
        memcpy((char *)out + i * elements * 4, from + order[i] * elements * 4, elements * 4);
}
