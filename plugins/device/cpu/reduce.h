// SPDX-License-Identifier: Apache-2.0
// Sums and largest elements along any dimensions, in an order that the shapes alone decide.
#ifndef LS_CPU_REDUCE_H
#define LS_CPU_REDUCE_H

#include "plugins/device/cpu/strided.h"

// Tensors of the strided view: dy, a, b, and the result, which is reduced along the dimensions in
// which it has distance 0.
enum { CPU_REDUCE_DY, CPU_REDUCE_A, CPU_REDUCE_B, CPU_REDUCE_RESULT };

struct cpu_reduce {
    struct cpu_strided kept, reduced; // outer dimensions of each kind; the columns are neither
    bool columns_kept;
    int64_t columns;
    int64_t items, chunks; // parts of the result; parts of what becomes one of them
    int64_t steps[CPU_STRIDED_TENSORS]; // of the columns
};

// False: the tensors do not lie so.
bool cpu_reduce_plan(const struct cpu_strided *collapsed, struct cpu_reduce *out);
uint64_t cpu_reduce_scratch(const struct cpu_reduce *plan);

struct cpu_reduce_call {
    bool largest; // else the sum
    uint32_t term; // enum cpu_term: of what
    double divisor; // of the sum
    struct cpu_tensor inputs[3]; // dy, a, b; without an address: it is not read
    struct cpu_tensor result;
    double *scratch;
};
void cpu_reduce_run(struct ls_device *device, const struct cpu_reduce *plan,
                    const struct cpu_reduce_call *call);

#endif
