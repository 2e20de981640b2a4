// SPDX-License-Identifier: Apache-2.0
// Shapes of tensors, in the plain layout (see core/plugin/operations.h). [any thread]
#ifndef LS_OPERATION_SHAPE_H
#define LS_OPERATION_SHAPE_H

#include "core/plugin/compose.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_MAX_ARGUMENTS 16 // inputs and outputs of an operation

struct ls_shape {
    uint32_t ndims;
    int64_t dims[LS_MAX_DIMS];
};

// (None, 28, 28, 1), as Keras prints it; returns `text`.
const char *ls_shape_text(const struct ls_shape *shape, char *text, size_t bytes);
// Product of the dimensions with LS_BATCH counted as `batch`.
int64_t ls_shape_elements(const struct ls_shape *shape, int64_t batch);
bool ls_shape_equal(const struct ls_shape *a, const struct ls_shape *b);

// Padding "same" along one axis as in Keras: the smaller half before.
void ls_same_padding(int64_t size, int64_t kernel, int64_t stride, int64_t dilation,
                     int32_t *before, int32_t *after);
// Elements along an axis after a window of `kernel` moves with `stride`; 0 when it does not fit.
int64_t ls_window_count(int64_t size, int64_t kernel, int64_t stride, int64_t dilation,
                        int64_t before, int64_t after);

#endif
