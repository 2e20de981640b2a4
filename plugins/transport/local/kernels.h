// SPDX-License-Identifier: Apache-2.0
// Reductions as plain loops, compiled once per instruction set; the transports take the best that
// the processor has. Ranges of different arguments never overlap.
#ifndef LS_LOCAL_KERNELS_H
#define LS_LOCAL_KERNELS_H

#include "core/plugin/plugin.h"

#define LOCAL_DTYPES 8 // index: enum ls_dtype
#define LOCAL_REDUCTIONS 5 // index: enum ls_reduction; mean is not one of them

struct local_kernels {
    // memory = memory (+) other
    void (*reduce[LOCAL_DTYPES][LOCAL_REDUCTIONS])(void *memory, const void *other, uint64_t count);
    // memory = other = memory (+) other
    void (*reduce_both[LOCAL_DTYPES][LOCAL_REDUCTIONS])(void *memory, void *other, uint64_t count);
    // memory = out = memory (+) other
    void (*reduce_to[LOCAL_DTYPES][LOCAL_REDUCTIONS])(void *memory, const void *other, void *out,
                                                      uint64_t count);
    // memory = memory / divisor, rounded once; integers towards zero
    void (*divide[LOCAL_DTYPES])(void *memory, uint64_t count, uint64_t divisor);
};

extern const struct local_kernels local_kernels_plain;
extern const struct local_kernels local_kernels_avx2; // x86-64 only
extern const struct local_kernels local_kernels_avx512; // x86-64 only

// For this processor.
static inline const struct local_kernels *local_kernels_best(void)
{
#if defined(LOCAL_X86_VARIANTS)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return &local_kernels_avx512;
    if (__builtin_cpu_supports("avx2"))
        return &local_kernels_avx2;
#endif
    return &local_kernels_plain;
}

#endif
