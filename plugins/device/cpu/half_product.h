// SPDX-License-Identifier: Apache-2.0
// Matrix products of halves with float32 sums, by oneDNN's kernels for the processor's units (AMX,
// AVX512-BF16).
#ifndef LS_CPU_HALF_PRODUCT_H
#define LS_CPU_HALF_PRODUCT_H

#include "plugins/device/cpu/primitive.h"

// result (rows,columns) = function(left (rows,depth) right (depth,columns) + bias (columns)); all
// are plain.
struct cpu_half_product_shape {
    int64_t rows, columns, depth;
    bool left_transposed, right_transposed; // they are (depth,rows) and (columns,depth) in memory
    uint32_t dtype; // of left, right and bias
    uint32_t result_dtype; // the same, or LS_F32
    bool bias;
    bool add; // the product to what is in a float32 result
    struct cpu_function function; // one that cpu_half_product_applies()
};

struct cpu_half_product;

// Called for each block of the result by the thread that has written it.
typedef void cpu_half_product_after(void *context, int64_t row, int64_t rows, int64_t column,
                                    int64_t columns);

struct cpu_half_product_call {
    const void *left, *right, *bias; // right: plain, or as cpu_half_product_take_packed() says
    void *result, *scratch;
    cpu_half_product_after *after; // NULL: nothing follows
    void *context;
};

// Whether the kernel applies the function itself.
bool cpu_half_product_applies(uint32_t activation);
// CPU_COPIES, with nothing logged, where oneDNN has no kernel for the processor's unit.
int32_t cpu_half_product_create(struct ls_device *device,
                                const struct cpu_half_product_shape *shape,
                                struct cpu_half_product **out);
// The layout in which the kernel reads its right side, of `w`: the right side, or where that is
// transposed what it is a transposition of. False: it cannot be said in a ls_layout.
bool cpu_half_product_layout(const struct cpu_half_product *product, const struct ls_tensor_desc *w,
                             struct ls_layout *out);
// Every call has its right side in that layout; else it is plain, and each call packs it in scratch.
void cpu_half_product_take_packed(struct cpu_half_product *product);
uint64_t cpu_half_product_scratch(const struct cpu_half_product *product); // bytes
const char *cpu_half_product_name(const struct cpu_half_product *product); // oneDNN's
int32_t cpu_half_product_run(struct ls_device *device, struct cpu_half_product *product,
                             const struct cpu_half_product_call *call);
void cpu_half_product_destroy(struct cpu_half_product *product); // takes NULL

#endif
