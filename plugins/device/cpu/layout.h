// SPDX-License-Identifier: Apache-2.0
// The layouts of device `cpu`. Beside the plain one, which volumes always have, there are oneDNN's
// blocked layouts, of images, of kernels and of matrices of halves, kept as the order of the
// dimensions and the blocks inside, and the rows of a dense kernel in the order in which the
// activation before it lies in memory.
#ifndef LS_CPU_LAYOUT_H
#define LS_CPU_LAYOUT_H

#include "plugins/device/cpu/cpu.h"

enum cpu_role { CPU_ACTIVATION = 1, CPU_KERNEL = 2, CPU_DENSE_ROWS = 3, CPU_MATRIX = 4 };

// 0 for the plain layout.
enum cpu_role cpu_layout_role(const struct ls_layout *layout);

void cpu_layout_plain(const struct ls_tensor_desc *desc, struct ls_layout *out);

// LS_F32, LS_BF16 or LS_F16 as oneDNN calls it.
dnnl_data_type_t cpu_dnnl_type(uint32_t dtype);

// The layout of a tensor that oneDNN describes as `md`; false when it cannot be said in a
// ls_layout. `groups` of a kernel, else 1.
bool cpu_layout_of(enum cpu_role role, const struct ls_tensor_desc *desc, int32_t groups,
                   const dnnl_memory_desc_t *md, struct ls_layout *out);

// What oneDNN calls this tensor: logical dimensions B C H W, or F C KH KW, or G F/G C KH KW, with D
// and KD of volumes before H and KH, or the two of a matrix.
// Layout ANY becomes dnnl_format_tag_any. False: not a layout of ours for this role.
bool cpu_memory_desc(enum cpu_role role, const struct ls_tensor_desc *desc, int32_t groups,
                     dnnl_memory_desc_t *out);
// The same memory seen as B C H W, where one of C and H W is 1; false: it is not.
bool cpu_memory_desc_transposed(const struct ls_tensor_desc *desc, dnnl_memory_desc_t *out);

// How a unit for matrices reads a right side (depth, columns): blocks of columns, one after the
// other, of pairs of rows, padded. False: the matrix does not lie like this.
struct cpu_pairs {
    bool transposed; // the matrix is (columns, depth)
    int64_t depth, padded_depth, columns, block;
};
bool cpu_pairs_of(const struct ls_tensor_desc *matrix, struct cpu_pairs *out);

// How loops over channels see an activation: (outer, height, width, inner) in memory, the planes of
// a volume one below the other; channel of
// element i of outer o is (o % blocks) * inner + i, its example o / blocks. False: it does not lie
// like this.
struct cpu_view {
    int64_t outer, height, width, inner, blocks, channels;
};
bool cpu_view_of(const struct ls_tensor_desc *desc, struct cpu_view *out);

// The layout of `desc` that lies as `like` lies, for a tensor of other dims.
void cpu_layout_like(const struct ls_layout *like, const struct ls_tensor_desc *desc,
                     struct ls_layout *out);

// Makes the padding of a tensor zero again.
void cpu_zero_padding(const struct ls_tensor_desc *desc, void *memory);
bool cpu_has_padding(const struct ls_tensor_desc *desc);

// ---- Dense ----

// The layout of a dense kernel (K, N) for x as it lies in memory; plain where that is the same.
// False: an example of x is not contiguous in memory, or K is not an example.
bool cpu_layout_dense(const struct ls_tensor_desc *x, const struct ls_tensor_desc *w,
                      struct ls_layout *out);
// The layout of an activation of x's shape for which the dense kernel layout `rows` was made.
void cpu_layout_of_rows(const struct ls_layout *rows, const struct ls_tensor_desc *x,
                        struct ls_layout *out);
// For each row of the kernel in memory its plain row, or -1 where it is padding. The caller frees
// it; NULL: out of memory.
int64_t *cpu_dense_rows(const struct ls_tensor_desc *w, int64_t *count);

#endif
