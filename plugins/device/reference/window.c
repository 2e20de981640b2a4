// SPDX-License-Identifier: Apache-2.0
// Questions about shapes that several operations ask.
#include "plugins/device/reference/reference.h"

#include <string.h>

struct reference_window reference_window_of(const struct ls_op_attributes *attributes, int64_t rows,
                                            int64_t columns)
{
    struct reference_window window = {
        .size = {rows, columns},
        .before = {attributes->padding[0], attributes->padding[2]},
        .after = {attributes->padding[1], attributes->padding[3]},
    };
    for (int i = 0; i < 2; i++) {
        window.stride[i] = attributes->strides[i];
        window.dilation[i] = attributes->dilation[i] > 0 ? attributes->dilation[i] : 1;
    }
    return window;
}

bool reference_window_fits(const struct reference_window *window, const struct ls_tensor_desc *in,
                           const struct ls_tensor_desc *out)
{
    if (in->dims[0] != out->dims[0])
        return false;
    for (int i = 0; i < 2; i++) {
        if (window->stride[i] < 1 || window->before[i] < 0 || window->after[i] < 0)
            return false;
        const int64_t span = (window->size[i] - 1) * window->dilation[i] + 1;
        const int64_t padded = in->dims[1 + i] + window->before[i] + window->after[i];
        if (padded < span || out->dims[1 + i] != (padded - span) / window->stride[i] + 1)
            return false;
    }
    return true;
}

bool reference_same_shape(const struct ls_tensor_desc *a, const struct ls_tensor_desc *b)
{
    return a->ndims == b->ndims && memcmp(a->dims, b->dims, a->ndims * sizeof(a->dims[0])) == 0;
}

bool reference_same_count(const struct ls_tensor_desc *a, const struct ls_tensor_desc *b)
{
    return ls_tensor_elements(a) == ls_tensor_elements(b);
}
