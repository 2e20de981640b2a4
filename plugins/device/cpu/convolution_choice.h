// SPDX-License-Identifier: Apache-2.0
// Which oneDNN primitive computes a convolution, and how its tensors are described to the library.
#ifndef LS_CPU_CONVOLUTION_CHOICE_H
#define LS_CPU_CONVOLUTION_CHOICE_H

#include "plugins/device/cpu/parts.h"

// Of a convolution, whichever of its three operations.
struct cpu_conv_geometry {
    struct ls_tensor_desc *x, *w, *y; // or their gradients
    bool bias;
    int32_t groups;
    dnnl_dims_t strides, dilation, before, after;
};

// One way to describe the tensors to oneDNN.
struct cpu_conv_tensors {
    dnnl_memory_desc_t x, w, b, y;
};

// A primitive, and the passes around it that it needs.
struct cpu_conv_choice {
    dnnl_primitive_desc_t desc;
    int grade;
    bool rewrites_x, converts_w;
};

dnnl_status_t cpu_conv_make_desc(struct ls_device *device, uint32_t op,
                                 const struct cpu_conv_geometry *g,
                                 const struct cpu_conv_tensors *t,
                                 const_dnnl_primitive_attr_t attributes,
                                 dnnl_primitive_desc_t *out);
// The library's reference code; of halves, also what is slower than float32 between conversions.
bool cpu_conv_is_slow(const struct cpu_conv_geometry *g, const_dnnl_primitive_desc_t desc);
// The best for fixed and free layouts; `best` begins with grade -1, and the caller destroys its description.
dnnl_status_t cpu_conv_choose(struct ls_device *device, uint32_t op,
                              const struct cpu_conv_geometry *g,
                              const_dnnl_primitive_attr_t attributes, struct cpu_conv_choice *best);

// ---- products of matrices, in bfloat16 (convolution_product.c) ----

struct cpu_conv_product {
    uint32_t op; // LS_OP_NONE: the convolution is no product
    int64_t examples, channels; // of x
    int64_t kernel[2], strides[2], dilation[2], before[2];
    int64_t x_size[2], y_size[2];
    int64_t rows, depth; // pixels of y; taps by channels of x
    bool gathers; // x is not the matrix
    uint64_t rows_bytes; // scratch for that, before that of the parts
    double work;
};

// Fills both and fixes the layouts; dnnl_unimplemented: it is no product that pays here.
dnnl_status_t cpu_conv_product_init(struct ls_device *device, uint32_t op,
                                    const struct cpu_conv_geometry *g,
                                    const_dnnl_primitive_attr_t attributes,
                                    struct cpu_conv_product *out, struct cpu_parts *parts);
// Pointers of the arguments as a convolution's primitive has them.
dnnl_status_t cpu_conv_product_run(struct ls_device *device, const struct cpu_conv_product *product,
                                   struct cpu_parts *parts, void **pointers, void *scratch);

// ---- own loops for the weight gradient over few pixels (convolution_taps.c) ----

// x or dy, in blocks of channels: elements from one pixel, block and example to the next.
struct cpu_conv_side {
    int64_t pixels, blocks;
    int64_t pixel, block, example;
};

struct cpu_conv_taps {
    struct cpu_taps taps;
    struct cpu_conv_side x, y;
    uint64_t x_bytes, scratch_bytes;
    double work;
    bool depthwise;
};

// Whether most of what the library would multiply is padding, and x, dy and dw lie as the loops
// expect.
bool cpu_conv_taps_fit(const struct ls_device *device, const struct cpu_conv_geometry *g,
                       struct cpu_conv_taps *out);
void cpu_conv_taps_run(const struct ls_device *device, const struct cpu_conv_taps *taps,
                       const float *x, const float *dy, float *dw, void *scratch);

#endif
