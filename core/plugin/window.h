// SPDX-License-Identifier: Apache-2.0
// How the window of a convolution moves over rows and columns of an image, or over planes, rows and
// columns of a volume, in the attributes of its operation. Those of a volume have stride, dilation,
// and zeros before and behind, all of the planes, in axes[0] to axes[3].
#ifndef LS_PLUGIN_WINDOW_H
#define LS_PLUGIN_WINDOW_H

#include "core/plugin/operations.h"

#ifdef __cplusplus
extern "C" {
#endif

// Along one dimension.
struct ls_moves {
    int32_t stride, dilation; // 1: none
    int32_t before, after; // zeros added
};

// Along dimension `axis`, from 0, of `space` (2: rows, columns; 3: planes, rows, columns).
static inline struct ls_moves ls_moves_along(const struct ls_op_attributes *attributes,
                                             uint32_t space, uint32_t axis)
{
    const uint32_t image = axis + 2 - space; // wraps for planes
    struct ls_moves moves = {attributes->axes[0], attributes->axes[1], attributes->axes[2],
                             attributes->axes[3]};
    if (axis + 2 >= space) {
        moves.stride = attributes->strides[image];
        moves.dilation = attributes->dilation[image];
        moves.before = attributes->padding[2 * image];
        moves.after = attributes->padding[2 * image + 1];
    }
    return moves;
}

// The other direction.
static inline void ls_set_moves(struct ls_op_attributes *attributes, uint32_t space, uint32_t axis,
                                const struct ls_moves *moves)
{
    const uint32_t image = axis + 2 - space;
    if (axis + 2 < space) {
        attributes->axes[0] = moves->stride;
        attributes->axes[1] = moves->dilation;
        attributes->axes[2] = moves->before;
        attributes->axes[3] = moves->after;
        return;
    }
    attributes->strides[image] = moves->stride;
    attributes->dilation[image] = moves->dilation;
    attributes->padding[2 * image] = moves->before;
    attributes->padding[2 * image + 1] = moves->after;
}

#ifdef __cplusplus
}
#endif

#endif
