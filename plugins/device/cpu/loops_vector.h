// SPDX-License-Identifier: Apache-2.0
// Vectors of the instruction set that a file of loops is compiled for. Compilers keep vectors of
// this kind in registers where they would not keep arrays.
#ifndef LS_PLUGINS_DEVICE_CPU_LOOPS_VECTOR_H
#define LS_PLUGINS_DEVICE_CPU_LOOPS_VECTOR_H

#include <string.h>

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

typedef float vec __attribute__((vector_size(4 * LANES)));

static inline __attribute__((always_inline)) vec load(const float *from)
{
    vec value;
    memcpy(&value, from, sizeof(value));
    return value;
}

static inline __attribute__((always_inline)) void store(float *to, vec value)
{
    memcpy(to, &value, sizeof(value));
}

#endif
