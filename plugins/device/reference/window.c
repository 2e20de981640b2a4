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
