// SPDX-License-Identifier: Apache-2.0
// What the convolutions share: a window that moves over planes, rows and columns, over rows and
// columns, or over the steps of a sequence, which operations see as an image of one row; and
// variables that operations see in another shape than Keras.
#ifndef LS_LAYERS_CONVOLUTION_H
#define LS_LAYERS_CONVOLUTION_H

#include "core/plugin/window.h"
#include "layers/kinds.h"

struct ls_convolution {
    uint32_t axes; // 3, 2, or 1: of one row
    uint32_t space; // dimensions that the operation's window moves along: 3, or 2
    int32_t kernel[3]; // of these
    bool same, causal, use_bias;
    struct ls_op_attributes attributes; // without padding
    struct ls_layer_activation activation;
    struct ls_initializer bias_initializer;
};

// The options that all of them have, for one, two or three axes.
void ls_read_convolution(struct ls_config *config, uint32_t axes, struct ls_convolution *out);
// The input as an image (B,H,W,C), a sequence as one row, or as a volume (B,D,H,W,C); it must have
// the dimensions, and with padding "valid" not be smaller than the window.
LS_STATUS ls_add_image(struct ls_graph *graph, const struct ls_convolution *o,
                       struct ls_tensor *input, struct ls_tensor **out);
// What was made of the image, as the layer's input was: for one axis a sequence.
LS_STATUS ls_add_image_end(struct ls_graph *graph, const struct ls_convolution *o,
                           struct ls_tensor *image, struct ls_tensor **out);
// How many elements the window spans along `axis` of space.
int64_t ls_window_extent(const struct ls_convolution *o, uint32_t axis);
// Writes the padding for an input of (B, H, W, C) or (B, D, H, W, C).
void ls_pad_convolution(struct ls_convolution *o, const struct ls_shape *image);

// A parameter that Keras has as `variable` and operations see as `seen`.
LS_STATUS ls_add_variable(struct ls_graph *graph, const char *name, const struct ls_shape *variable,
                          const struct ls_shape *seen, const struct ls_initializer *initializer,
                          struct ls_tensor **out);
// The shape of a kernel with these last two dimensions.
struct ls_shape ls_kernel_shape(const struct ls_convolution *o, int64_t before_last, int64_t last);
// A kernel that Keras has as `variable`, for one axis without its first size, which is 1.
LS_STATUS ls_add_kernel(struct ls_graph *graph, const char *name, const struct ls_convolution *o,
                        const struct ls_shape *variable, const struct ls_shape *seen,
                        const struct ls_initializer *initializer, struct ls_tensor **out);
// The same elements in another shape.
LS_STATUS ls_add_reshape(struct ls_graph *graph, struct ls_tensor *input,
                         const struct ls_shape *shape, struct ls_tensor **out);
// Bias "bias" of `size` elements into arguments[2], if there is one; the operation; the activation.
LS_STATUS ls_finish_convolution(struct ls_graph *graph, const struct ls_convolution *o, uint32_t op,
                                struct ls_tensor *arguments[3], int64_t size,
                                const struct ls_shape *shape, struct ls_tensor **out);

#endif
