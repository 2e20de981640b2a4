// SPDX-License-Identifier: Apache-2.0
// Several tensors as they lie in memory, seen through the dimensions of the largest of them: how far
// it is to the next element of each. Plain tensors, and activations in blocks of channels.
#ifndef LS_CPU_STRIDED_H
#define LS_CPU_STRIDED_H

#include "plugins/device/cpu/cpu.h"

enum { CPU_STRIDED_TENSORS = 4 };

struct cpu_strided {
    int ndims; // at least 1
    int count; // of tensors
    int64_t piece; // elements that a body takes at once; 0: any number
    int64_t dims[LS_MAX_DIMS];
    int64_t strides[CPU_STRIDED_TENSORS][LS_MAX_DIMS]; // 0: the tensor is repeated
};

// Begins with the dimensions of `whole` in memory. False: it does not lie in one of these layouts.
bool cpu_strided_start(const struct ls_tensor_desc *whole, struct cpu_strided *out);
// Adds a tensor whose dimensions are those of `whole` from the last one on, or 1. False: it does not
// lie so that it can be said by distances.
bool cpu_strided_add(const struct ls_tensor_desc *whole, const struct ls_tensor_desc *part,
                     struct cpu_strided *strided);
// Joins dimensions that follow each other in all tensors, and drops those of size 1.
void cpu_strided_collapse(struct cpu_strided *strided);
// Where element `index` of the outermost `ndims` dimensions begins in tensor `tensor`.
int64_t cpu_strided_offset(const struct cpu_strided *strided, int tensor, int ndims, int64_t index);

// Whether columns (the last dimension) of every tensor follow each other or are one, so that the
// loops over rows can run.
bool cpu_strided_has_rows(const struct cpu_strided *strided);
// Runs `body` over all of it, in parallel when `work` (about nanoseconds on one thread) is worth it:
// each time `rows` rows of the last but one dimension, `columns` columns of the last, which begin at
// these offsets of the tensors.
typedef void cpu_strided_body(void *context, const int64_t *offsets, int64_t rows, int64_t columns);
void cpu_strided_run(struct ls_device *device, const struct cpu_strided *strided, double work,
                     cpu_strided_body *body, void *context);
// To the next row of a tensor; 0 where there is one dimension only.
static inline int64_t cpu_strided_row(const struct cpu_strided *strided, int tensor)
{
    return strided->ndims > 1 ? strided->strides[tensor][strided->ndims - 2] : 0;
}
static inline int64_t cpu_strided_step(const struct cpu_strided *strided, int tensor)
{
    return strided->strides[tensor][strided->ndims - 1];
}

// Rows of a tensor, by distances in elements.
struct cpu_place {
    struct cpu_tensor tensor; // without an address: it is not read
    int64_t offset, row, step;
};
// As loops over float32 read them: where they are, or widened into `room` (rows, columns).
struct cpu_operand cpu_read_rows(const struct ls_device *device, const struct cpu_place *place,
                                 int64_t rows, int64_t columns, float *room);
// Where a loop writes them, a column beside the one before, and what has to be called when it has.
struct cpu_result cpu_target_rows(const struct cpu_place *place, int64_t columns, float *room);
void cpu_written_rows(const struct ls_device *device, const struct cpu_place *place, int64_t rows,
                      int64_t columns, const float *room);
static inline struct cpu_place cpu_strided_place(const struct cpu_strided *strided, int tensor,
                                                 struct cpu_tensor memory, const int64_t *offsets)
{
    return (struct cpu_place){memory, offsets[tensor], cpu_strided_row(strided, tensor),
                              cpu_strided_step(strided, tensor)};
}

// Gives tensors of a broadcast layouts where any is allowed. `whole` is the index of the argument
// that has the shape of the result.
void cpu_broadcast_layouts(struct ls_kernel *kernel, uint32_t count, uint32_t whole);

#endif
